// What every loader must do, with every kind of memory behind it. A test program that includes this
// once instantiates EveryLoader for its loaders:
//
//   INSTANTIATE_TEST_SUITE_P(Threads, EveryLoader,
//                            testing::ValuesIn(with_all_memory(LoaderKind::kThreads)),
//                            loader_name);
//
// FEEDRATE_TEST_WORKER is the program of the worker processes.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "feedrate/device.hpp"
#include "feedrate/error.hpp"
#include "feedrate/loader.hpp"
#include "test_datasets.hpp"

namespace feedrate {

inline std::vector<std::byte> expected_batch(std::int64_t index, const BatchShape& shape) {
  std::vector<std::byte> memory(shape.bytes());
  RampDataset dataset;
  make_batch(dataset, index, shape, memory);
  return memory;
}

struct LoaderUnderTest {
  LoaderKind loader;
  Buffers buffers;
  Pinning pinning;
  std::vector<LoaderEntry> (*further)() = nullptr;  // the table that it is in, unless the core's

  Spec spec() const {
    return {.batch = 4,
            .image = 32,
            .loader = loader,
            .workers = 3,
            .prefetch = 2,
            .memory = pinning == Pinning::kNone ? HostMemory::kPageable : HostMemory::kPinned,
            .buffers = buffers,
            .pinning = pinning};
  }
  std::string name() const {
    return std::string(name_of(loader)) + "_" + std::string(name_of(buffers)) + "_" +
           std::string(name_of(pinning));
  }
  friend void PrintTo(const LoaderUnderTest& of, std::ostream* out) { *out << of.name(); }
};

// A loader with every kind of memory that can be behind it.
inline std::vector<LoaderUnderTest> with_all_memory(
    LoaderKind loader, std::vector<LoaderEntry> (*further)() = nullptr) {
  std::vector<LoaderUnderTest> all;
  for (const auto& buffers : choices<Buffers>()) {
    for (const auto& pinning : choices<Pinning>()) {
      const LoaderUnderTest one{loader, buffers.value, pinning.value, further};
      if (!invalid(one.spec())) {
        all.push_back(one);
      }
    }
  }
  return all;
}

inline std::string loader_name(const testing::TestParamInfo<LoaderUnderTest>& info) {
  return info.param.name();
}

class EveryLoader : public testing::TestWithParam<LoaderUnderTest> {
 protected:
  EveryLoader() { unsetenv("FEEDRATE_TEST_BEHAVIOUR"); }

  static Spec spec() { return GetParam().spec(); }
  // The dataset that misbehaves as told, in whichever process it is made.
  Spec misbehaving(const std::string& behaviour) {
    setenv("FEEDRATE_TEST_BEHAVIOUR", behaviour.c_str(), 1);
    datasets_ = test_datasets(Behaviour::parse(behaviour));
    Spec spec = EveryLoader::spec();
    spec.dataset = DatasetKind::kReplay;
    return spec;
  }

  std::unique_ptr<Source> make(const Spec& spec) {
    return make_source(spec, {.device = *device_,
                              .datasets = datasets_,
                              .processes = &pool_,
                              .stop = &stop_,
                              .loaders = further_});
  }

  // How many batches may be begun before batch 0 is handed to the training loop.
  static std::int64_t bound(const Spec& spec) {
    const std::int64_t loader = std::max(1, spec.worker_count() * spec.prefetch);
    return spec.pinning == Pinning::kThread ? loader + spec.slots + 2 + 1 : loader;
  }

  std::string worker_name() const {
    switch (GetParam().loader) {
      case LoaderKind::kInline:
        return "loader inline";
      case LoaderKind::kThreads:
        return "loader thread ";
      case LoaderKind::kProcesses:
        return "loader process ";
      case LoaderKind::kLibtorch:
        return "loader libtorch worker ";
    }
    return "";
  }

  std::unique_ptr<Device> device_ = make_device({cpu_device()}, "cpu");
  std::unique_ptr<Stream> stream_ = device_->stream("copy");
  std::atomic<bool> stop_ = false;
  DatasetTable datasets_ = test_datasets();
  std::vector<LoaderEntry> further_ =
      GetParam().further == nullptr ? std::vector<LoaderEntry>{} : GetParam().further();
  WorkerPool pool_{FEEDRATE_TEST_WORKER};
};

TEST_P(EveryLoader, HandsOutEachBatchOnceAndInOrder) {
  const Spec spec = EveryLoader::spec();
  const BatchShape shape = spec.shape();
  const auto source = make(spec);
  for (std::int64_t index = 0; index < 40; ++index) {
    const HostBatch batch = source->next();
    ASSERT_EQ(batch.index, index);
    const std::vector<std::byte> expected = expected_batch(index, shape);
    ASSERT_EQ(batch.images.size(), shape.images_bytes());
    ASSERT_EQ(batch.labels.size(), shape.labels_bytes());
    EXPECT_EQ(std::memcmp(batch.images.data(), expected.data(), shape.images_bytes()), 0);
    EXPECT_EQ(std::memcmp(batch.labels.data(), expected.data() + shape.images_bytes(),
                          shape.labels_bytes()),
              0);
    EXPECT_EQ(batch.fingerprint, fingerprint_of(shape, batch.images, batch.labels));
    EXPECT_EQ(batch.memory, spec.memory);
  }
}

TEST_P(EveryLoader, KeepsABatchUntilItsCopyIsDone) {
  const Spec spec = EveryLoader::spec();
  const BatchShape shape = spec.shape();
  std::vector<std::vector<std::byte>> copies(30, std::vector<std::byte>(shape.bytes()));
  {
    const auto source = make(spec);
    for (std::vector<std::byte>& copy : copies) {
      HostBatch batch = source->next();
      device_->copy(*stream_, Direction::kH2d, copy.data(), batch.images.data(),
                    batch.images.size(), batch.memory, CopyMode::kAsync);
      device_->copy(*stream_, Direction::kH2d, copy.data() + batch.images.size(),
                    batch.labels.data(), batch.labels.size(), batch.memory, CopyMode::kAsync);
      batch.lease.give_back_after(*stream_);
    }
  }
  for (std::size_t index = 0; index < copies.size(); ++index) {
    EXPECT_EQ(copies[index], expected_batch(static_cast<std::int64_t>(index), shape)) << index;
  }
}

TEST_P(EveryLoader, SaysWhoMadeABatchAndWhen) {
  const Spec spec = EveryLoader::spec();
  const auto source = make(spec);
  for (int turn = 0; turn < 10; ++turn) {
    const HostBatch batch = source->next();
    if (spec.loader == LoaderKind::kInline) {
      EXPECT_EQ(batch.worker, -1);
    } else {
      EXPECT_GE(batch.worker, 0);
      EXPECT_LT(batch.worker, spec.workers);
    }
    EXPECT_LT(batch.made.begin, batch.made.end);
    if (spec.pinning == Pinning::kThread) {
      EXPECT_LE(batch.made.end, batch.pinned.begin);
      EXPECT_LT(batch.pinned.begin, batch.pinned.end);
      EXPECT_LE(batch.pinned.end, monotonic_now());
    } else {
      EXPECT_EQ(batch.pinned.length(), 0);
      EXPECT_LE(batch.made.end, monotonic_now());
    }
  }
}

// Batch n may be begun only once batch n - bound has been asked for.
TEST_P(EveryLoader, BeginsNoMoreBatchesThanItsBound) {
  const Spec spec = EveryLoader::spec();
  const auto source = make(spec);
  usleep(50'000);  // time enough to run ahead
  std::vector<TimeNs> asked;
  for (std::int64_t index = 0; index < 30; ++index) {
    asked.push_back(monotonic_now());
    const HostBatch batch = source->next();
    if (index >= bound(spec)) {
      EXPECT_GE(batch.made.begin, asked[static_cast<std::size_t>(index - bound(spec))]) << index;
    }
    usleep(1'000);
  }
}

TEST_P(EveryLoader, WorksAheadUnlessTheTrainingLoopMakesEachBatch) {
  const Spec spec = EveryLoader::spec();
  const auto source = make(spec);
  int ahead = 0;
  for (int turn = 0; turn < 50; ++turn) {
    usleep(2'000);
    const TimeNs asked = monotonic_now();
    ahead += source->next().made.begin < asked ? 1 : 0;
  }
  if (spec.loader == LoaderKind::kInline && spec.pinning != Pinning::kThread) {
    EXPECT_EQ(ahead, 0);
  } else {
    EXPECT_GT(ahead, 0);
  }
}

TEST_P(EveryLoader, MakesEmptyBatchesWithoutMemory) {
  Spec spec = EveryLoader::spec();
  spec.dataset = DatasetKind::kNone;
  const auto source = make(spec);
  for (std::int64_t index = 0; index < 50; ++index) {
    HostBatch batch = source->next();
    EXPECT_EQ(batch.index, index);
    EXPECT_EQ(batch.images.data(), nullptr);
    EXPECT_EQ(batch.labels.data(), nullptr);
    EXPECT_FALSE(batch.lease);
    EXPECT_EQ(batch.fingerprint, 0u);
    batch.lease.give_back_after(*stream_);
  }
}

TEST_P(EveryLoader, ReportsAWorkersErrorWithItsName) {
  const auto source = make(misbehaving("throws 21"));
  int handed_over = 0;
  std::string first;
  try {
    for (;; ++handed_over) {
      source->next();
    }
  } catch (const LoaderError& error) {
    first = error.what();
  }
  EXPECT_LE(handed_over, 21 / 4);
  EXPECT_THAT(first, testing::StartsWith(worker_name()));
  EXPECT_THAT(first, testing::HasSubstr("a bad sample"));
  for (int again = 0; again < 3; ++again) {
    try {
      source->next();
      FAIL() << "handed out a batch after an error";
    } catch (const LoaderError& error) {
      EXPECT_EQ(error.what(), first);
    }
  }
}

TEST_P(EveryLoader, ReportsADatasetThatCannotBeMade) {
  if (GetParam().loader == LoaderKind::kInline) {
    EXPECT_THROW(make(misbehaving("refuses")), std::runtime_error);
    return;
  }
  const auto source = make(misbehaving("refuses"));
  try {
    source->next();
    FAIL() << "handed out a batch of nothing";
  } catch (const LoaderError& error) {
    EXPECT_THAT(error.what(), testing::StartsWith(worker_name()));
    EXPECT_THAT(error.what(), testing::HasSubstr("there are no samples"));
  }
}

TEST_P(EveryLoader, IsInterruptedWhileItWaits) {
  Spec spec = misbehaving("slow");
  spec.batch = 200;
  const auto source = make(spec);
  std::thread ctrl_c([&] {
    usleep(30'000);
    stop_ = true;
  });
  EXPECT_THROW(source->next(), Interrupted);
  ctrl_c.join();
  EXPECT_THROW(source->next(), Interrupted);
}

TEST_P(EveryLoader, IsStoppedByAnotherThread) {
  Spec spec = misbehaving("slow");
  spec.batch = 200;
  const auto source = make(spec);
  std::thread other([&] {
    usleep(30'000);
    source->stop();
  });
  EXPECT_THROW(source->next(), Interrupted);
  other.join();
  EXPECT_THROW(source->next(), Interrupted);
}

TEST_P(EveryLoader, NamesTheMemoryThatIsTooMuch) {
  Spec spec = EveryLoader::spec();
  spec.batch = 65536;
  spec.image = 8192;
  try {
    make(spec);
    FAIL() << "got 50 TiB a batch";
  } catch (const OutOfMemory& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("host memory"));
    EXPECT_THAT(error.what(), testing::HasSubstr(" bytes"));
  }
}

// --- Nothing is left behind ----------------------------------------------------------------------

// What a process holds, counted by the kernel.
struct Holdings {
  std::size_t threads = 0;
  std::set<std::string> descriptors;
  std::size_t shared_mappings = 0;  // of memory files
  std::size_t private_bytes = 0;    // of all anonymous mappings
  std::size_t resident_bytes = 0;   // of them, after the allocator has given back what is free

  static Holdings now() {
    Holdings holdings;
    for ([[maybe_unused]] const auto& task :
         std::filesystem::directory_iterator("/proc/self/task")) {
      ++holdings.threads;
    }
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      const std::string target = std::filesystem::read_symlink(entry.path(), gone);
      if (!gone && !target.starts_with("/proc/")) {
        holdings.descriptors.insert(entry.path().filename().string() + " " + target);
      }
    }
    malloc_trim(0);
    std::ifstream status("/proc/self/status");
    std::string line;
    while (std::getline(status, line)) {
      if (line.starts_with("RssAnon:")) {
        holdings.resident_bytes = std::stoull(line.substr(8)) * 1024;
      }
    }
    std::ifstream maps("/proc/self/maps");
    while (std::getline(maps, line)) {
      holdings.shared_mappings += line.find("/memfd:feedrate") != std::string::npos ? 1 : 0;
      const bool anonymous = line.find('/') == std::string::npos;
      if (anonymous && line.find(" rw-p ") != std::string::npos) {
        const std::size_t dash = line.find('-');
        holdings.private_bytes += std::stoull(line.substr(dash + 1), nullptr, 16) -
                                  std::stoull(line.substr(0, dash), nullptr, 16);
      }
    }
    return holdings;
  }
};

TEST_P(EveryLoader, LeavesNothingBehindWheneverItEnds) {
  const Spec small = EveryLoader::spec();
  Spec large = small;
  large.batch = 16;
  large.image = 160;  // 4.7 MiB a batch, to stand out among the mappings
  pool_.ensure(small.workers);
  const auto use = [&](const Spec& spec, int batches) {
    const auto source = make(spec);
    for (int turn = 0; turn < batches; ++turn) {
      HostBatch batch = source->next();
      if (turn % 2 == 0) {
        batch.lease.give_back_after(*stream_);
      }
    }
  };
  use(large, 8);  // what is made once is made
  const Holdings before = Holdings::now();
  const std::vector<int> pids = pool_.pids();
  const auto expect_nothing_more = [&] {
    // A joined thread stands in /proc a moment longer.
    Holdings after = Holdings::now();
    for (int look = 0; after.threads > before.threads && look < 1000; ++look) {
      usleep(10'000);
      after = Holdings::now();
    }
    EXPECT_LE(after.threads, before.threads);
    EXPECT_EQ(after.descriptors, before.descriptors);
    EXPECT_EQ(after.shared_mappings, 0u);
  };
  constexpr int kRestarts = 100;
  for (int restart = 0; restart < kRestarts; ++restart) {
    use(small, restart % 10);
  }
  expect_nothing_more();
  constexpr int kRounds = 4;
  constexpr std::array kEnds{0, 1, 2, 3, 5, 7, 9};
  for (int round = 0; round < kRounds; ++round) {
    for (const int batches : kEnds) {
      use(large, batches);
      expect_nothing_more();
    }
  }
  EXPECT_EQ(pool_.pids(), pids) << "each early end left the workers idle and alive";
// The thread sanitizer maps shadow memory for each new address and never unmaps it; the address
// sanitizer keeps what was freed, and finds leaks itself.
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
  // Half of what ends that leave one batch each would leave. Allocators keep some of their own:
  // LibTorch's batches come from malloc, which keeps far more mapped than is in use, and up to
  // 40 MiB in memory.
  const std::size_t slack = kRounds * kEnds.size() * large.shape().bytes() / 2;
  const Holdings after = Holdings::now();
  if (large.loader == LoaderKind::kLibtorch) {
    EXPECT_LT(after.resident_bytes, before.resident_bytes + slack);
  } else {
    EXPECT_LT(after.private_bytes, before.private_bytes + slack);
  }
#endif
}

TEST_P(EveryLoader, EndsWhileItsQueuesAreFull) {
  for (int restart = 0; restart < 5; ++restart) {
    const auto source = make(EveryLoader::spec());
    const HostBatch first = source->next();
    usleep(5'000);
  }
}

TEST_P(EveryLoader, EndsWhileItsWorkersAreInTheMiddleOfABatch) {
  Spec spec = misbehaving("slow");
  {
    const auto source = make(EveryLoader::spec());
    for (int turn = 0; turn < 10; ++turn) {
      source->next();  // so that every worker has started
    }
  }
  spec.batch = 200;
  const std::vector<int> pids = pool_.pids();
  for (int restart = 0; restart < 3; ++restart) {
    const auto source = make(spec);
    usleep(30'000);
  }
  EXPECT_EQ(pool_.pids(), pids);
}

}  // namespace feedrate
