#include "feedrate/loader.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "feedrate/device.hpp"
#include "feedrate/error.hpp"
#include "loader_conformance.hpp"
#include "test_datasets.hpp"

namespace feedrate {
namespace {

INSTANTIATE_TEST_SUITE_P(Inline, EveryLoader,
                         testing::ValuesIn(with_all_memory(LoaderKind::kInline)), loader_name);
INSTANTIATE_TEST_SUITE_P(Threads, EveryLoader,
                         testing::ValuesIn(with_all_memory(LoaderKind::kThreads)), loader_name);
INSTANTIATE_TEST_SUITE_P(Processes, EveryLoader,
                         testing::ValuesIn(with_all_memory(LoaderKind::kProcesses)), loader_name);

// --- What only some of them do -------------------------------------------------------------------

class Threads : public testing::Test {
 protected:
  std::unique_ptr<Device> device_ = make_device({cpu_device()}, "cpu");
};

// Counts the datasets that make a sample at the same time, and which threads do.
class MeetingDataset final : public RampDataset {
 public:
  struct Book {
    std::mutex mutex;
    std::set<std::thread::id> makers;
    std::vector<DatasetPlace> places;
  };
  MeetingDataset(Book& book, DatasetPlace place) : book_(book) {
    const std::lock_guard lock(book_.mutex);
    book_.places.push_back(place);
  }
  Sample fill(std::int64_t index, std::span<std::byte> image) override {
    {
      const std::lock_guard lock(book_.mutex);
      book_.makers.insert(std::this_thread::get_id());
    }
    return RampDataset::fill(index, image);
  }

 private:
  Book& book_;
};

DatasetTable meeting(MeetingDataset::Book& book) {
  return {{"randn", [&book](const BatchShape&, DatasetPlace place) {
             return std::make_unique<MeetingDataset>(book, place);
           }}};
}

TEST_F(Threads, EachWorkerHasADatasetOfItsOwn) {
  MeetingDataset::Book book;
  const DatasetTable datasets = meeting(book);
  {
    const auto source =
        make_source({.batch = 4, .image = 32, .loader = LoaderKind::kThreads, .workers = 3},
                    {.device = *device_, .datasets = datasets});
    for (int turn = 0; turn < 30; ++turn) {
      source->next();
    }
  }
  EXPECT_EQ(book.places, std::vector(3, DatasetPlace::kWorker));
  EXPECT_FALSE(book.makers.contains(std::this_thread::get_id()));
}

TEST_F(Threads, InlineMakesItsBatchesOnTheCallingThread) {
  MeetingDataset::Book book;
  const DatasetTable datasets = meeting(book);
  const auto source =
      make_source({.batch = 4, .image = 32}, {.device = *device_, .datasets = datasets});
  source->next();
  EXPECT_EQ(book.places, std::vector{DatasetPlace::kTrainingLoop});
  EXPECT_EQ(book.makers, std::set{std::this_thread::get_id()});
}

// A batch that takes long must not keep the ring's memory from the one that is wanted first.
class UnevenDataset final : public RampDataset {
 public:
  Sample fill(std::int64_t index, std::span<std::byte> image) override {
    if (index % 7 == 0) {
      usleep(5'000);
    }
    return RampDataset::fill(index, image);
  }
};

TEST_F(Threads, KeepOrderWhenSomeBatchesTakeLong) {
  const DatasetTable datasets{
      {"randn", [](const BatchShape&, DatasetPlace) { return std::make_unique<UnevenDataset>(); }}};
  for (const Buffers buffers : {Buffers::kFresh, Buffers::kRing}) {
    const auto source = make_source({.batch = 1,
                                     .image = 32,
                                     .loader = LoaderKind::kThreads,
                                     .workers = 4,
                                     .prefetch = 1,
                                     .buffers = buffers},
                                    {.device = *device_, .datasets = datasets});
    for (std::int64_t index = 0; index < 60; ++index) {
      EXPECT_EQ(source->next().index, index);
    }
  }
}

TEST_F(Threads, ReportAnUnknownDatasetByName) {
  const DatasetTable datasets{empty_dataset()};
  const auto source =
      make_source({.batch = 4, .image = 32, .loader = LoaderKind::kThreads, .workers = 1},
                  {.device = *device_, .datasets = datasets});
  try {
    source->next();
    FAIL() << "made a batch of an unknown dataset";
  } catch (const LoaderError& error) {
    EXPECT_STREQ(error.what(), "loader thread 0: unknown dataset 'randn': there are none");
  }
}

TEST(Loaders, OneThatIsNotThereIsUnsupported) {
  const auto device = make_device({cpu_device()}, "cpu");
  const DatasetTable datasets = test_datasets();
  const Spec spec{.batch = 4, .image = 32, .loader = LoaderKind::kLibtorch, .workers = 1};
  try {
    make_source(spec, {.device = *device, .datasets = datasets});
    FAIL() << "made a loader of LibTorch's without LibTorch";
  } catch (const Unsupported& error) {
    EXPECT_STREQ(error.what(), "this program has no loader libtorch");
  }
}

TEST(Loaders, CanBeAddedToTheCores) {
  const auto device = make_device({cpu_device()}, "cpu");
  const DatasetTable datasets = test_datasets();
  int made = 0;
  const std::vector<LoaderEntry> further{
      {.name = "libtorch", .make = [&](const Spec& spec, const SourceParts& parts) {
         ++made;
         Spec other = spec;
         other.loader = LoaderKind::kThreads;
         return make_source(other, parts);
       }}};
  const Spec spec{.batch = 4, .image = 32, .loader = LoaderKind::kLibtorch, .workers = 1};
  const auto source =
      make_source(spec, {.device = *device, .datasets = datasets, .loaders = further});
  EXPECT_EQ(source->next().index, 0);
  EXPECT_EQ(made, 1);
}

TEST(Loaders, LibtorchHasNoModelOnTheSimulatedDevice) {
  const auto device = make_device({sim_device()}, "sim");
  const DatasetTable datasets = test_datasets();
  const Spec spec{.loader = LoaderKind::kLibtorch, .workers = 1};
  device->prepare(spec);
  EXPECT_THROW(make_source(spec, {.device = *device, .datasets = datasets}), Unsupported);
}

}  // namespace
}  // namespace feedrate
