#include "loader_libtorch.hpp"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "dataset_randn.hpp"
#include "feedrate/device.hpp"
#include "feedrate/error.hpp"
#include "loader_conformance.hpp"

namespace feedrate {
namespace {

INSTANTIATE_TEST_SUITE_P(Libtorch, EveryLoader,
                         testing::ValuesIn(with_all_memory(LoaderKind::kLibtorch, torch_loaders)),
                         loader_name);

class Libtorch : public testing::Test {
 protected:
  static constexpr int kWorkers = 3;

  std::unique_ptr<Source> make(const Spec& spec, const LibtorchUse& use = {}) {
    loaders_ = {libtorch_loader(use)};
    return make_source(spec, {.device = *device_, .datasets = datasets_, .loaders = loaders_});
  }
  static Spec spec(LoaderKind loader = LoaderKind::kLibtorch) {
    return {.batch = 4, .image = 32, .loader = loader, .workers = kWorkers};
  }

  std::unique_ptr<Device> device_ = make_device({cpu_device()}, "cpu");
  DatasetTable datasets_ = torch_datasets();
  std::vector<LoaderEntry> loaders_;
};

TEST_F(Libtorch, HasTheSamplesOfTheOtherLoaders) {
  for (const DatasetKind dataset :
       {DatasetKind::kRandn, DatasetKind::kNoiseU8, DatasetKind::kReplay}) {
    Spec theirs = spec();
    Spec ours = spec(LoaderKind::kInline);
    theirs.dataset = ours.dataset = dataset;
    const auto other = make(ours);
    const auto source = make(theirs);
    for (int turn = 0; turn < 10; ++turn) {
      const HostBatch expected = other->next();
      const HostBatch batch = source->next();
      EXPECT_EQ(batch.fingerprint, expected.fingerprint);
      EXPECT_EQ(std::memcmp(batch.images.data(), expected.images.data(), batch.images.size()), 0);
      EXPECT_EQ(std::memcmp(batch.labels.data(), expected.labels.data(), batch.labels.size()), 0);
    }
  }
}

TEST_F(Libtorch, ASharedGeneratorMakesOtherSamplesThatAreWhatItSays) {
  const auto other = make(spec(LoaderKind::kInline));
  const auto source = make(spec(), {.shared_generator = true});
  for (int turn = 0; turn < 10; ++turn) {
    const HostBatch batch = source->next();
    EXPECT_EQ(batch.fingerprint, fingerprint_of(spec().shape(), batch.images, batch.labels));
    EXPECT_NE(batch.fingerprint, other->next().fingerprint);
  }
  Spec replay = spec();
  replay.dataset = DatasetKind::kReplay;
  EXPECT_THROW(make(replay, {.shared_generator = true}), Unsupported);
}

// Tells how many intra-op threads its worker would use.
class ThreadCounter final : public RampDataset {
 public:
  struct Book {
    std::mutex mutex;
    std::set<int> threads;
    std::set<std::thread::id> workers;
  };
  explicit ThreadCounter(Book& book) : book_(book) {}
  Sample fill(std::int64_t index, std::span<std::byte> image) override {
    const std::lock_guard lock(book_.mutex);
    book_.threads.insert(at::get_num_threads());
    book_.workers.insert(std::this_thread::get_id());
    return RampDataset::fill(index, image);
  }

 private:
  Book& book_;
};

TEST_F(Libtorch, WorkersComputeAloneUnlessToldOtherwiseAndNobodyElseDoes) {
  const int usual = at::get_num_threads();
  constexpr int kThreads = 3;
  at::set_num_threads(kThreads);
  for (const bool alone : {true, false}) {
    ThreadCounter::Book book;
    datasets_ = {{"randn", [&](const BatchShape&, DatasetPlace) {
                    return std::make_unique<ThreadCounter>(book);
                  }}};
    {
      const auto source = make(spec(), {.one_intra_op_thread = alone});
      for (int turn = 0; turn < 20; ++turn) {
        source->next();
      }
      int later = 0;
      std::thread([&] { later = at::get_num_threads(); }).join();
      EXPECT_EQ(later, kThreads) << "of a thread that starts while they run";
    }
    EXPECT_EQ(book.threads, std::set{alone ? 1 : kThreads});
    EXPECT_FALSE(book.workers.contains(std::this_thread::get_id()));
    EXPECT_EQ(at::get_num_threads(), kThreads);
  }
  at::set_num_threads(usual);
}

// A slow batch is not taken for a lost one: LibTorch's own timeout is only when we look around.
class SlowDataset final : public RampDataset {
 public:
  Sample fill(std::int64_t index, std::span<std::byte> image) override {
    usleep(100'000);
    return RampDataset::fill(index, image);
  }
};

TEST_F(Libtorch, WaitsForABatchThatTakesLong) {
  datasets_ = {
      {"randn", [](const BatchShape&, DatasetPlace) { return std::make_unique<SlowDataset>(); }}};
  const auto source = make(spec());
  for (std::int64_t index = 0; index < 5; ++index) {
    const HostBatch batch = source->next();
    EXPECT_EQ(batch.index, index);
    EXPECT_EQ(batch.fingerprint, fingerprint_of(spec().shape(), batch.images, batch.labels));
  }
}

}  // namespace
}  // namespace feedrate
