#include "feedrate/dataset.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "feedrate/error.hpp"
#include "test_datasets.hpp"

namespace feedrate {
namespace {

std::vector<std::byte> words(std::size_t count, std::int64_t sample) {
  std::vector<std::byte> bytes(count * sizeof(std::uint64_t));
  RampDataset().fill(sample, bytes);
  return bytes;
}

std::span<const std::byte> images_of(const BatchShape& shape, const std::vector<std::byte>& all) {
  return std::span(all).first(shape.images_bytes());
}
std::span<const std::byte> labels_of(const BatchShape& shape, const std::vector<std::byte>& all) {
  return std::span(all).subspan(shape.images_bytes());
}

TEST(WordSum, IsTheSumOfTheWordsWhateverTheLength) {
  for (std::size_t count = 0; count < 70; ++count) {
    std::uint64_t sum = 0;
    for (std::size_t place = 0; place < count; ++place) {
      sum += ramp_word(5, place);
    }
    EXPECT_EQ(word_sum(words(count, 5)), sum) << count << " words";
  }
}

TEST(WordSum, OfAWholeIsTheSumOfItsParts) {
  const std::vector<std::byte> all = words(1000, 3);
  const std::span<const std::byte> view(all);
  for (const std::size_t cut : {0, 8, 48, 128, 136, 7992, 8000}) {
    EXPECT_EQ(word_sum(view.first(cut)) + word_sum(view.subspan(cut)), word_sum(view));
  }
}

TEST(Fingerprint, OfMemoryIsTheOneItWasMadeWith) {
  const BatchShape shape{.batch = 5, .image = 32};
  std::vector<std::byte> memory(shape.bytes());
  RampDataset dataset;
  const std::uint64_t made = make_batch(dataset, 7, shape, memory);
  EXPECT_EQ(fingerprint_of(shape, images_of(shape, memory), labels_of(shape, memory)), made);
}

TEST(Fingerprint, IsTheWeightedSumThatTheHeaderSays) {
  Fingerprint fingerprint;
  fingerprint.add(10, 1);
  fingerprint.add(100, 2);
  EXPECT_EQ(fingerprint.value(), 1 * (10 + 1) + 3 * (100 + 2));
}

TEST(Fingerprint, ChangesWithEveryWordLabelAndOrder) {
  const BatchShape shape{.batch = 3, .image = 32};
  std::vector<std::byte> memory(shape.bytes());
  RampDataset dataset;
  const std::uint64_t made = make_batch(dataset, 0, shape, memory);
  const auto fingerprint = [&](const std::vector<std::byte>& bytes) {
    return fingerprint_of(shape, images_of(shape, bytes), labels_of(shape, bytes));
  };
  for (std::size_t word = 0; word < memory.size() / 8; word += 97) {
    std::vector<std::byte> torn = memory;
    torn[word * 8] ^= std::byte{1};
    EXPECT_NE(fingerprint(torn), made) << "word " << word;
  }
  std::vector<std::byte> other_label = memory;
  other_label[shape.images_bytes() + 8] ^= std::byte{1};
  EXPECT_NE(fingerprint(other_label), made);

  std::vector<std::byte> swapped = memory;
  const auto image = static_cast<std::ptrdiff_t>(shape.image_bytes());
  std::swap_ranges(swapped.begin(), swapped.begin() + image, swapped.begin() + image);
  EXPECT_NE(fingerprint(swapped), made);
}

TEST(MakeBatch, PutsSamplesAndThenLabelsInOrder) {
  const BatchShape shape{.batch = 4, .image = 32};
  std::vector<std::byte> memory(shape.bytes());
  RampDataset dataset;
  make_batch(dataset, 3, shape, memory);
  for (int b = 0; b < shape.batch; ++b) {
    const std::int64_t sample = 3 * 4 + b;
    const auto place = static_cast<std::size_t>(b);
    const std::vector<std::byte> image = words(shape.image_bytes() / 8, sample);
    EXPECT_EQ(std::memcmp(memory.data() + place * shape.image_bytes(), image.data(), image.size()),
              0);
    std::int64_t label = -1;
    std::memcpy(&label, memory.data() + shape.images_bytes() + place * 8, 8);
    EXPECT_EQ(label, sample % 10);
  }
}

TEST(EmptyDataset, MakesBatchesOfNoBytesWithFingerprintZero) {
  const BatchShape shape{.batch = 64, .image = 512, .empty = true};
  const DatasetTable table{empty_dataset()};
  const auto dataset = make_dataset(table, "none", shape, DatasetPlace::kWorker);
  EXPECT_EQ(make_batch(*dataset, 3, shape, {}), 0u);
  EXPECT_EQ(fingerprint_of(shape, {}, {}), 0u);
  const Sample sample = dataset->fill(5, {});
  EXPECT_EQ(sample.label, 0);
  EXPECT_EQ(sample.word_sum, 0u);
}

TEST(DatasetTable, NamesWhatThereIsWhenANameIsUnknown) {
  const DatasetTable table = test_datasets();
  try {
    make_dataset(table, "imagenet", {}, DatasetPlace::kWorker);
    FAIL() << "made a dataset that does not exist";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "unknown dataset 'imagenet': there are randn, replay, none");
  }
}

// Counts its samples, over all objects.
class CountingDataset final : public RampDataset {
 public:
  explicit CountingDataset(std::atomic<int>& made) : made_(made) {}
  Sample fill(std::int64_t index, std::span<std::byte> image) override {
    ++made_;
    return RampDataset::fill(index, image);
  }

 private:
  std::atomic<int>& made_;
};

class ReplayDatasetTest : public testing::Test {
 protected:
  std::unique_ptr<Dataset> make(const BatchShape& shape) const {
    return replay_.make(shape, DatasetPlace::kWorker);
  }

  static void expect_sample(Dataset& dataset, std::int64_t index, std::int64_t original) {
    std::vector<std::byte> image(kShape.image_bytes());
    const Sample sample = dataset.fill(index, image);
    EXPECT_EQ(image, words(kShape.image_bytes() / 8, original));
    EXPECT_EQ(sample.label, original % 10);
    EXPECT_EQ(sample.word_sum, word_sum(image));
  }

  static constexpr BatchShape kShape{.batch = 4, .image = 32};
  static constexpr int kDistinct = 12;
  std::atomic<int> made_ = 0;
  DatasetEntry replay_ = replay_dataset(
      {"counting", [this](const BatchShape&,
                          DatasetPlace) { return std::make_unique<CountingDataset>(made_); }},
      kDistinct);
};

TEST_F(ReplayDatasetTest, RepeatsTheFirstSamples) {
  const auto dataset = make(kShape);
  for (const std::int64_t index : {0, 1, 11, 12, 13, 120, 131}) {
    expect_sample(*dataset, index, index % kDistinct);
  }
}

TEST_F(ReplayDatasetTest, MakesEachSampleOnceForAllObjectsAndThreads) {
  const auto keeper = make(kShape);
  EXPECT_EQ(made_, 0) << "nothing is made before it is needed";
  std::vector<std::thread> threads;
  for (int worker = 0; worker < 4; ++worker) {
    threads.emplace_back([&] {
      const auto dataset = make(kShape);
      for (std::int64_t index = 0; index < 3 * kDistinct; ++index) {
        expect_sample(*dataset, index, index % kDistinct);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(made_, kDistinct);
}

TEST_F(ReplayDatasetTest, KeepsShapesApart) {
  const auto small = make(kShape);
  expect_sample(*small, 2, 2);
  const BatchShape larger{.batch = 4, .image = 64};
  const auto large = make(larger);
  std::vector<std::byte> image(larger.image_bytes());
  large->fill(2, image);
  EXPECT_EQ(image, words(larger.image_bytes() / 8, 2));
  expect_sample(*small, 2, 2);
}

TEST_F(ReplayDatasetTest, MakesASampleAfterItsFirstAttemptFailed) {
  bool fails = true;
  class Unreliable final : public RampDataset {
   public:
    explicit Unreliable(bool& fails) : fails_(fails) {}
    Sample fill(std::int64_t index, std::span<std::byte> image) override {
      if (fails_) {
        throw std::runtime_error("not now");
      }
      return RampDataset::fill(index, image);
    }

   private:
    bool& fails_;
  };
  const DatasetEntry replay = replay_dataset(
      {"unreliable",
       [&](const BatchShape&, DatasetPlace) { return std::make_unique<Unreliable>(fails); }},
      kDistinct);
  const auto dataset = replay.make(kShape, DatasetPlace::kWorker);
  std::vector<std::byte> image(kShape.image_bytes());
  EXPECT_THROW(dataset->fill(1, image), std::runtime_error);
  fails = false;
  expect_sample(*dataset, 1, 1);
}

}  // namespace
}  // namespace feedrate
