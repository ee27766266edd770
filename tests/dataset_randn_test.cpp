#include "dataset_randn.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <set>
#include <span>
#include <thread>
#include <vector>

#include "feedrate/device.hpp"
#include "feedrate/time.hpp"

namespace feedrate {
namespace {

constexpr BatchShape kSmall{.batch = 3, .image = 32};
constexpr BatchShape kPublished{};  // its images take several chunks, the last of them whole
constexpr BatchShape kOdd{.batch = 1, .image = 300};  // the last chunk is not whole

struct Made {
  Sample sample;
  std::vector<std::byte> image;

  std::span<const float> floats() const {
    return {reinterpret_cast<const float*>(image.data()), image.size() / sizeof(float)};
  }
};

std::unique_ptr<Dataset> dataset(std::string_view name, const BatchShape& shape,
                                 DatasetPlace place = DatasetPlace::kWorker) {
  return make_dataset(torch_datasets(), name, shape, place);
}

Made make(Dataset& from, std::int64_t index, const BatchShape& shape) {
  Made made{{}, std::vector<std::byte>(shape.image_bytes())};
  made.sample = from.fill(index, made.image);
  return made;
}

// Memory that nobody has touched.
Buffer untouched(std::size_t bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_NE(data, MAP_FAILED);
  return {static_cast<std::byte*>(data), bytes,
          [](std::byte* memory, std::size_t size) { munmap(memory, size); }};
}

std::ptrdiff_t threads_of_process() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

// What `work` returns on a thread of its own, which has no intra-op threads yet.
template <typename Work>
auto on_new_thread(const Work& work) {
  decltype(work()) result{};
  std::thread([&] { result = work(); }).join();
  return result;
}

// Once the intra-op threads of a thread that has ended have ended as well.
std::ptrdiff_t settled_threads_of_process() {
  constexpr int kLooks = 5;
  std::ptrdiff_t threads = threads_of_process();
  for (int same = 0; same < kLooks; ++same) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (const std::ptrdiff_t now = threads_of_process(); now != threads) {
      threads = now;
      same = 0;
    }
  }
  return threads;
}

// Threads that making a batch of one image in fresh memory adds to the process.
std::ptrdiff_t threads_started(DatasetPlace place, Buffer& memory) {
  return on_new_thread([&] {
    const auto maker = dataset("randn", kPublished, place);
    const std::ptrdiff_t before = settled_threads_of_process();
    maker->begin_batch(memory.span());
    maker->fill(0, memory.span());
    return threads_of_process() - before;
  });
}

TEST(RandnDataset, ASampleIsTheSameWhateverObjectAndOrder) {
  const auto forward = dataset("randn", kSmall);
  const auto backward = dataset("randn", kSmall, DatasetPlace::kTrainingLoop);
  std::vector<Made> samples;
  for (std::int64_t i = 0; i < 5; ++i) {
    samples.push_back(make(*forward, i, kSmall));
  }
  for (std::int64_t i = 4; i >= 0; --i) {
    EXPECT_EQ(make(*backward, i, kSmall).image, samples[static_cast<std::size_t>(i)].image) << i;
  }
}

TEST(RandnDataset, ChunksAreWhatTheWholeImageWouldBe) {
  for (const BatchShape& shape : {kSmall, kPublished, kOdd}) {
    constexpr std::int64_t kSample = 7;
    const Made made = make(*dataset("randn", shape), kSample, shape);
    const at::Tensor whole =
        at::empty({static_cast<std::int64_t>(made.floats().size())})
            .normal_(0, 1, at::detail::createCPUGenerator(randn_seed(kSample)));
    EXPECT_EQ(std::memcmp(made.image.data(), whole.const_data_ptr(), made.image.size()), 0)
        << "image " << shape.image;
  }
}

TEST(RandnDataset, TheWordSumIsThatOfTheBytes) {
  for (const BatchShape& shape : {kSmall, kPublished, kOdd}) {
    const Made made = make(*dataset("randn", shape), 3, shape);
    EXPECT_EQ(made.sample.word_sum, word_sum(made.image)) << "image " << shape.image;
  }
}

TEST(RandnDataset, LabelsAreTheIndexModulo10) {
  const auto maker = dataset("randn", kSmall);
  for (const std::int64_t index : {0, 1, 9, 10, 12345678}) {
    EXPECT_EQ(make(*maker, index, kSmall).sample.label, index % 10);
  }
}

TEST(RandnDataset, IsNormalNoise) {
  const Made made = make(*dataset("randn", kPublished), 0, kPublished);
  double sum = 0;
  double squares = 0;
  double fourths = 0;
  for (const float value : made.floats()) {
    const double square = static_cast<double>(value) * value;
    sum += value;
    squares += square;
    fourths += square * square;
  }
  // Within five standard errors.
  const auto count = static_cast<double>(made.floats().size());
  EXPECT_NEAR(sum / count, 0, 5 / std::sqrt(count));
  EXPECT_NEAR(squares / count, 1, 5 * std::sqrt(2 / count));
  EXPECT_NEAR(fourths / count, 3, 5 * std::sqrt(96 / count));
}

TEST(RandnDataset, SamplesDiffer) {
  const auto maker = dataset("randn", kSmall);
  std::set<std::uint64_t> word_sums;
  std::set<std::uint64_t> seeds;
  for (std::int64_t i = 0; i < 100; ++i) {
    word_sums.insert(make(*maker, i, kSmall).sample.word_sum);
  }
  for (std::int64_t i = 0; i < 100'000; ++i) {
    seeds.insert(randn_seed(i) & 0xffffffff);  // what the generator takes of it
  }
  EXPECT_EQ(word_sums.size(), 100u);
  EXPECT_EQ(seeds.size(), 100'000u);
}

TEST(RandnDataset, AWorkerStartsNoIntraOpThreads) {
  Buffer memory = untouched(kPublished.image_bytes());
  EXPECT_EQ(threads_started(DatasetPlace::kWorker, memory), 0);
}

TEST(RandnDataset, TheTrainingLoopFaultsFreshMemoryInWithAllIntraOpThreads) {
  const int threads = on_new_thread([] { return at::get_num_threads(); });
  if (threads == 1) {
    GTEST_SKIP() << "LibTorch has one intra-op thread here";
  }
  Buffer memory = untouched(kPublished.image_bytes());
  EXPECT_EQ(threads_started(DatasetPlace::kTrainingLoop, memory), threads - 1);
  EXPECT_EQ(threads_started(DatasetPlace::kTrainingLoop, memory), 0) << "the pages were there";
}

TEST(RandnDataset, AWorkerLeavesTheIntraOpThreadsOfOthersAlone) {
  const auto usual = [] { return on_new_thread([] { return at::get_num_threads(); }); };
  const int before = usual();
  Buffer memory = untouched(kPublished.image_bytes());
  threads_started(DatasetPlace::kWorker, memory);
  EXPECT_EQ(usual(), before);
  EXPECT_EQ(at::get_num_threads(), before);
}

TEST(ReplayDataset, RepeatsRandnWithOneSampleMoreThanABatch) {
  constexpr BatchShape kShape{.batch = 20, .image = 32};
  const auto replayed = dataset("replay", kShape);
  const auto original = dataset("randn", kShape);
  for (std::int64_t i = 0; i < 3 * (kShape.batch + 1); ++i) {
    const Made made = make(*replayed, i, kShape);
    const Made expected = make(*original, i % (kShape.batch + 1), kShape);
    EXPECT_EQ(made.image, expected.image) << i;
    EXPECT_EQ(made.sample.label, expected.sample.label) << i;
    EXPECT_EQ(made.sample.word_sum, expected.sample.word_sum) << i;
  }
}

TEST(ReplayDataset, ABatchDiffersFromTheBatchesBeforeIt) {
  constexpr std::size_t kBatches = 17;
  for (const int batch : {1, 2, 3, 4, 15, 16, 17, 24}) {
    const BatchShape shape{.batch = batch, .image = 32};
    const auto replayed = dataset("replay", shape);
    std::vector<std::byte> memory(shape.bytes());
    std::set<std::uint64_t> fingerprints;
    for (std::int64_t n = 0; n < static_cast<std::int64_t>(kBatches); ++n) {
      fingerprints.insert(make_batch(*replayed, n, shape, memory));
    }
    EXPECT_EQ(fingerprints.size(), kBatches) << batch;
  }
}

TEST(TorchDatasets, HasEveryKindThatASpecKnows) {
  for (const auto& choice : choices<DatasetKind>()) {
    EXPECT_NE(dataset(choice.name, kSmall), nullptr) << choice.name;
  }
}

constexpr BatchShape kBytes{.batch = 3, .image = 300, .empty = false, .pixel = Pixel::kU8};

TEST(NoiseU8, TakesAQuarterOfTheBytes) {
  EXPECT_EQ(kBytes.image_bytes() * sizeof(float), kOdd.image_bytes());
  EXPECT_EQ(kBytes.bytes(), 3u * (3 * 300 * 300 + sizeof(std::int64_t)));
}

TEST(NoiseU8, IsUniformOverAllBytes) {
  const Made made = make(*dataset("noise_u8", kBytes), 7, kBytes);
  std::vector<double> counts(256);
  for (const std::byte value : made.image) {
    counts[std::to_integer<std::size_t>(value)] += 1;
  }
  const double expected = static_cast<double>(made.image.size()) / 256;
  double chi_square = 0;
  for (const double count : counts) {
    chi_square += (count - expected) * (count - expected) / expected;
  }
  // 255 degrees of freedom: beyond 350 once in ten thousand seeds, and the seed is fixed.
  EXPECT_LT(chi_square, 350);
  EXPECT_GT(chi_square, 170);
}

TEST(NoiseU8, MakesASampleTheSameWhoeverMakesIt) {
  const auto one = dataset("noise_u8", kBytes);
  const auto other = dataset("noise_u8", kBytes);
  make(*one, 3, kBytes);
  const Made made = make(*one, 5, kBytes);
  const Made again = make(*other, 5, kBytes);
  EXPECT_EQ(made.image, again.image);
  EXPECT_EQ(made.sample.word_sum, word_sum(made.image));
  EXPECT_EQ(made.sample.label, 5);
  EXPECT_NE(made.image, make(*other, 6, kBytes).image);
}

TEST(RandnBesideCache, HasTheImagesOfRandn) {
  const BatchShape shape = kOdd;
  const auto plain = dataset("randn", shape);
  const auto beside = dataset(kRandnBesideCache, shape);
  for (std::int64_t i = 0; i < 3; ++i) {
    const Made made = make(*beside, i, shape);
    EXPECT_EQ(made.image, make(*plain, i, shape).image) << i;
    EXPECT_EQ(made.sample.word_sum, word_sum(made.image)) << i;
  }
}

TEST(RandnBesideCache, LabelsAFewImagesOfABatchWithWhatTheyTakeInCache) {
  for (const BatchShape& shape : {kPublished, kSmall, kOdd, BatchShape{.batch = 64, .image = 32}}) {
    const auto beside = dataset(kRandnBesideCache, shape);
    Made made{{}, std::vector<std::byte>(shape.image_bytes())};
    std::vector<std::int64_t> labels;
    for (int i = 0; i < shape.batch; ++i) {
      const TimeNs begin = monotonic_now();
      labels.push_back(beside->fill(i, made.image).label);
      const TimeNs took = monotonic_now() - begin;
      // Part of `took` was spent on a part of at least 256 KiB.
      EXPECT_LE(labels.back(), took * static_cast<TimeNs>(shape.image_bytes() / (256 * 1024) + 1));
    }
    const auto measured =
        std::count_if(labels.begin(), labels.end(), [](auto ns) { return ns > 0; });
    EXPECT_EQ(std::count_if(labels.begin(), labels.end(), [](auto ns) { return ns < 0; }), 0);
    EXPECT_GE(measured, std::min(shape.batch, 2));
    if (shape.image == kPublished.image) {
      EXPECT_LE(measured, shape.batch / 9);  // a twelfth of an image each
    }
  }
}

}  // namespace
}  // namespace feedrate
