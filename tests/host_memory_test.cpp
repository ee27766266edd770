#include "host_memory.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "feedrate/error.hpp"

namespace feedrate {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

std::size_t bytes_there(const Fd& file) {
  struct stat status {};
  EXPECT_EQ(fstat(file.get(), &status), 0);
  return static_cast<std::size_t>(status.st_blocks) * 512;
}

TEST(MemoryFile, HasItsPagesAtOnceOrLater) {
  EXPECT_EQ(bytes_there(make_memory_file(kMiB)), kMiB);
  const Fd later = make_memory_file(kMiB, Pages::kLater);
  EXPECT_EQ(bytes_there(later), 0u);
  EXPECT_TRUE(is_memory_file(later.get(), kMiB));
}

// Of more than one part, the last of which is not whole.
TEST(Populate, MakesEveryPageAndKeepsWhatIsThere) {
  constexpr std::size_t kBytes = 33 * kMiB;
  const Fd file = make_memory_file(kBytes, Pages::kLater);
  const Buffer memory = map_shared(file.get(), kBytes, Populate::kNo);
  memory.data()[20 * kMiB] = std::byte{7};
  populate(file.get(), memory.span());
  EXPECT_EQ(bytes_there(file), kBytes);
  std::vector<unsigned char> there(kBytes / static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
  ASSERT_EQ(mincore(memory.data(), kBytes, there.data()), 0);
  EXPECT_THAT(there, testing::Each(1));
  EXPECT_EQ(memory.data()[20 * kMiB], std::byte{7});
  EXPECT_EQ(memory.data()[kBytes - 1], std::byte{0});
  populate(file.get(), {});
}

// Memory that does not begin with a page is refused with the error of a kernel that cannot do it.
TEST(Populate, MakesThePagesWhereTheKernelCannotMapThem) {
  const Fd file = make_memory_file(kMiB, Pages::kLater);
  const Buffer memory = map_shared(file.get(), kMiB, Populate::kNo);
  populate(file.get(), memory.span().subspan(8));
  EXPECT_EQ(bytes_there(file), kMiB);
}

TEST(Populate, NamesWhatTheKernelRefuses) {
  const Fd file = make_memory_file(kMiB, Pages::kLater);
  std::span<std::byte> gone;
  {
    const Buffer memory = map_shared(file.get(), kMiB, Populate::kNo);
    gone = memory.span();
  }
  try {
    populate(file.get(), gone);
    FAIL() << "populated what is not mapped";
  } catch (const OutOfMemory& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("shared host memory ("));
    EXPECT_THAT(error.what(), testing::HasSubstr("1048576 bytes"));
  }
}

TEST(Touch, OverwritesEveryPart) {
  std::vector<std::vector<std::byte>> memory;
  std::vector<Buffer> buffers;
  for (std::size_t bytes = 1; bytes <= 100; ++bytes) {
    memory.emplace_back(bytes, std::byte{7});
    buffers.emplace_back(memory.back().data(), bytes, nullptr);
  }
  touch(buffers);
  for (const auto& part : memory) {
    EXPECT_THAT(part, testing::Each(std::byte{0}));
  }
  touch({});
}

}  // namespace
}  // namespace feedrate
