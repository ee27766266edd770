#include "feedrate/staging.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "feedrate/device.hpp"
#include "feedrate/error.hpp"
#include "host_memory.hpp"
#include "recording_device.hpp"

namespace feedrate {
namespace {

constexpr std::size_t kBytes = 64 * 1024;

bool is_mapped(const std::byte* memory) {
  return msync(const_cast<std::byte*>(memory), 1, MS_ASYNC) == 0;
}

// Work on a stream that lasts until it is told to end.
class Gate {
 public:
  Gate(Device& device, Stream& stream) {
    device.enqueue(stream, Stage::kCompute, {},
                   [opened = opened_.get_future().share()] { opened.wait(); });
  }
  ~Gate() { open(); }
  void open() {
    if (!open_) {
      open_ = true;
      opened_.set_value();
    }
  }

 private:
  bool open_ = false;
  std::promise<void> opened_;
};

class Staging : public testing::Test {
 protected:
  std::unique_ptr<Device> device_ = make_device({cpu_device()}, "cpu");
  std::unique_ptr<Stream> stream_ = device_->stream("copy");
};

// --- What every pool does ------------------------------------------------------------------------

struct PoolCase {
  const char* name;
  std::unique_ptr<HostPool> (*make)(Device& device);
};

std::unique_ptr<HostPool> ring_of(Device& device) {
  return make_ring(device, 2, kBytes, HostMemory::kPageable);
}
std::unique_ptr<HostPool> ring_of_buffers(Device& device) {
  std::vector<Buffer> buffers;
  buffers.push_back(device.host_buffer(kBytes, HostMemory::kPinned));
  buffers.push_back(device.host_buffer(kBytes, HostMemory::kPinned));
  return make_ring(device, std::move(buffers));
}
std::unique_ptr<HostPool> fresh_of(Device& device) { return make_fresh(device, kBytes); }

class EveryPool : public testing::TestWithParam<PoolCase> {
 protected:
  std::unique_ptr<Device> device_ = make_device({cpu_device()}, "cpu");
  std::unique_ptr<Stream> stream_ = device_->stream("copy");
  std::unique_ptr<HostPool> pool_ = GetParam().make(*device_);
};

std::string pool_name(const testing::TestParamInfo<PoolCase>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Pools, EveryPool,
                         testing::Values(PoolCase{"ring", ring_of},
                                         PoolCase{"ring_of_buffers", ring_of_buffers},
                                         PoolCase{"fresh", fresh_of}),
                         pool_name);

TEST_P(EveryPool, HandsOutMemoryOfItsOwn) {
  Lease first = pool_->acquire();
  Lease second = pool_->acquire();
  ASSERT_TRUE(first);
  ASSERT_TRUE(second);
  EXPECT_EQ(first.memory().size(), kBytes);
  EXPECT_EQ(second.memory().size(), kBytes);
  EXPECT_NE(first.memory().data(), second.memory().data());
  EXPECT_NE(first.slot(), second.slot());
  std::fill(first.memory().begin(), first.memory().end(), std::byte{1});
  std::fill(second.memory().begin(), second.memory().end(), std::byte{2});
  EXPECT_THAT(first.memory(), testing::Each(std::byte{1}));
}

TEST_P(EveryPool, CountsLeasesUntilTheyAreGivenBack) {
  EXPECT_EQ(pool_->outstanding(), 0);
  Lease lease = pool_->acquire();
  EXPECT_EQ(pool_->outstanding(), 1);
  Lease moved = std::move(lease);
  EXPECT_FALSE(lease);  // NOLINT: moved from on purpose
  EXPECT_EQ(pool_->outstanding(), 1);
  {
    const Lease other = pool_->try_acquire();
    EXPECT_TRUE(other);
    EXPECT_EQ(pool_->outstanding(), 2);
  }
  EXPECT_EQ(pool_->outstanding(), 1);
  moved.give_back();
  moved.give_back();
  EXPECT_EQ(pool_->outstanding(), 0);
}

TEST_P(EveryPool, KeepsMemoryUntilTheStreamIsDone) {
  std::vector<std::byte> seen(kBytes);
  {
    Gate gate(*device_, *stream_);
    Lease lease = pool_->acquire();
    std::fill(lease.memory().begin(), lease.memory().end(), std::byte{7});
    device_->copy(*stream_, Direction::kH2d, seen.data(), lease.memory().data(), kBytes,
                  HostMemory::kPageable, CopyMode::kAsync);
    lease.give_back_after(*stream_);
    Lease next = pool_->try_acquire();
    ASSERT_TRUE(next);
    std::fill(next.memory().begin(), next.memory().end(), std::byte{8});
  }
  device_->synchronize(*stream_);
  EXPECT_THAT(seen, testing::Each(std::byte{7}));
}

TEST_P(EveryPool, WaitsForItsStreamsWhenItGoes) {
  std::atomic<bool> copied = false;
  auto gate = std::make_unique<Gate>(*device_, *stream_);
  device_->enqueue(*stream_, Stage::kCompute, {}, [&] { copied = true; });
  pool_->acquire().give_back_after(*stream_);
  std::thread opener([&] { gate->open(); });
  pool_.reset();
  EXPECT_TRUE(copied);
  opener.join();
}

TEST_P(EveryPool, ReturnsEmptyLeasesOnceStopped) {
  pool_->stop();
  EXPECT_FALSE(pool_->acquire());
  EXPECT_FALSE(pool_->try_acquire());
}

TEST_P(EveryPool, ServesManyThreads) {
  std::vector<std::thread> threads;
  std::atomic<int> torn = 0;
  for (int worker = 0; worker < 4; ++worker) {
    threads.emplace_back([&, worker] {
      const auto stream = device_->stream("copy");
      for (int turn = 0; turn < 50; ++turn) {
        Lease lease = pool_->acquire();
        std::fill(lease.memory().begin(), lease.memory().end(), std::byte(worker));
        for (const std::byte byte : lease.memory()) {
          torn += byte != std::byte(worker) ? 1 : 0;
        }
        if (turn % 2 == 0) {
          lease.give_back_after(*stream);
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(torn, 0);
  EXPECT_EQ(pool_->outstanding(), 0);
}

// --- Rings ---------------------------------------------------------------------------------------

TEST_F(Staging, RingReusesSlotsInTheOrderInWhichTheyComeBack) {
  const auto ring = make_ring(*device_, 3, kBytes, HostMemory::kPageable);
  Lease a = ring->acquire();
  Lease b = ring->acquire();
  Lease c = ring->acquire();
  const std::vector<int> expected{b.slot(), c.slot(), a.slot()};
  b.give_back();
  c.give_back_after(*stream_);
  a.give_back();
  Lease first = ring->acquire();
  Lease second = ring->acquire();
  Lease third = ring->acquire();
  EXPECT_EQ((std::vector{first.slot(), second.slot(), third.slot()}), expected);
}

TEST_F(Staging, RingWithoutAFreeSlotHasNothingToTry) {
  const auto ring = make_ring(*device_, 1, kBytes, HostMemory::kPageable);
  Lease only = ring->acquire();
  EXPECT_FALSE(ring->try_acquire());
  only.give_back();
  EXPECT_TRUE(ring->try_acquire());
}

TEST_F(Staging, RingWaitsForTheEventOfTheSlotThatItHandsOut) {
  const auto ring = make_ring(*device_, 1, kBytes, HostMemory::kPageable);
  std::atomic<bool> read = false;
  Gate gate(*device_, *stream_);
  Lease lease = ring->acquire();
  device_->enqueue(*stream_, Stage::kCompute, {}, [&] { read = true; });
  lease.give_back_after(*stream_);
  EXPECT_FALSE(ring->try_acquire());
  std::thread opener([&] { gate.open(); });
  const Lease next = ring->acquire();
  EXPECT_TRUE(read);
  EXPECT_TRUE(next);
  opener.join();
}

TEST_F(Staging, RingForgetsAnEventThatItHasWaitedFor) {
  const auto ring = make_ring(*device_, 1, kBytes, HostMemory::kPageable);
  ring->acquire().give_back_after(*stream_);
  ring->acquire().give_back();
  Gate gate(*device_, *stream_);
  EXPECT_TRUE(ring->try_acquire());
}

TEST_F(Staging, RingWakesWhoWaitsWhenItStops) {
  const auto ring = make_ring(*device_, 1, kBytes, HostMemory::kPageable);
  const Lease only = ring->acquire();
  auto waiter = std::async(std::launch::async, [&] { return static_cast<bool>(ring->acquire()); });
  ring->stop();
  EXPECT_FALSE(waiter.get());
}

TEST(Ring, MakesItsEventsUpFrontAndWaitsOnNoneThatWasNotRecorded) {
  RecordingDevice device;
  const auto ring = make_ring(device, 3, kBytes, HostMemory::kPageable);
  const int handles = device.live_handles;
  EXPECT_EQ(handles, 3);
  const auto stream = device.stream("copy");
  for (int turn = 0; turn < 9; ++turn) {
    ring->acquire().give_back_after(*stream);
  }
  EXPECT_EQ(device.live_handles, handles + 1);
}

TEST_F(Staging, RingNamesTheMemoryThatWasRefused) {
  const std::size_t too_much = std::size_t{1} << 60;
  try {
    make_ring(*device_, 4, too_much, HostMemory::kPinned);
    FAIL() << "got more memory than there is";
  } catch (const OutOfMemory& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("pinned host memory for a ring of 4 batches"));
    EXPECT_THAT(error.what(), testing::HasSubstr(std::to_string(4 * too_much)));
  }
}

// --- Fresh memory --------------------------------------------------------------------------------

TEST_F(Staging, RingOfPageableMemoryIsThereFromTheStart) {
  constexpr int kSlots = 5;
  constexpr std::size_t kPages = 16;
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const auto ring = make_ring(*device_, kSlots, kPages * page, HostMemory::kPageable);
  for (int slot = 0; slot < kSlots; ++slot) {
    const Lease lease = ring->acquire();
    std::array<unsigned char, kPages> resident{};
    ASSERT_EQ(mincore(lease.memory().data(), lease.memory().size(), resident.data()), 0);
    EXPECT_THAT(resident, testing::Each(1)) << slot;
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

TEST_F(Staging, FreshMemoryIsUnmappedByWhoeverGivesItBack) {
  const auto fresh = make_fresh(*device_, kBytes);
  Lease lease = fresh->acquire();
  const std::byte* memory = lease.memory().data();
  ASSERT_TRUE(is_mapped(memory));
  lease.give_back();
  EXPECT_FALSE(is_mapped(memory));
}

TEST_F(Staging, FreshMemoryGivenBackAfterAStreamIsUnmappedOnceThatIsDone) {
  const auto fresh = make_fresh(*device_, kBytes);
  const std::byte* memory = nullptr;
  {
    Gate gate(*device_, *stream_);
    Lease lease = fresh->acquire();
    memory = lease.memory().data();
    lease.give_back_after(*stream_);
    EXPECT_EQ(fresh->outstanding(), 0);
    fresh->acquire();
    EXPECT_TRUE(is_mapped(memory));
  }
  device_->synchronize(*stream_);
  const Lease next = fresh->acquire();
  EXPECT_TRUE(next.memory().data() == memory || !is_mapped(memory));
}

TEST_F(Staging, FreshMemoryIsZeroEachTime) {
  const auto fresh = make_fresh(*device_, kBytes);
  for (int turn = 0; turn < 3; ++turn) {
    const Lease lease = fresh->acquire();
    EXPECT_THAT(lease.memory(), testing::Each(std::byte{0}));
    std::fill(lease.memory().begin(), lease.memory().end(), std::byte{1});
  }
}

TEST_F(Staging, FreshNamesTheMemoryThatWasRefused) {
  const std::size_t too_much = std::size_t{1} << 60;
  const auto fresh = make_fresh(*device_, too_much);
  try {
    fresh->acquire();
    FAIL() << "got more memory than there is";
  } catch (const OutOfMemory& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("fresh host memory"));
    EXPECT_THAT(error.what(), testing::HasSubstr(std::to_string(too_much)));
  }
  EXPECT_EQ(fresh->outstanding(), 0);
}

// --- Streams that fail ---------------------------------------------------------------------------

TEST_P(EveryPool, HasASlotBackAlsoWhenItsStreamCannotBeAsked) {
  device_->enqueue(*stream_, Stage::kCompute, {}, [] { throw DeviceError("broken"); });
  EXPECT_THROW(device_->synchronize(*stream_), DeviceError);
  Lease lease = pool_->acquire();
  EXPECT_THROW(lease.give_back_after(*stream_), DeviceError);
  EXPECT_EQ(pool_->outstanding(), 0);
  EXPECT_TRUE(pool_->acquire());
}

TEST_F(Staging, RingReportsAFailedStreamOnceAndKeepsTheSlot) {
  const auto ring = make_ring(*device_, 1, kBytes, HostMemory::kPageable);
  {
    Gate gate(*device_, *stream_);
    device_->enqueue(*stream_, Stage::kCompute, {}, [] { throw DeviceError("broken"); });
    ring->acquire().give_back_after(*stream_);
  }
  EXPECT_THROW(ring->acquire(), DeviceError);
  EXPECT_TRUE(ring->acquire());
}

}  // namespace
}  // namespace feedrate
