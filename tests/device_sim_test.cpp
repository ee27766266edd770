#include "device_sim.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <set>
#include <string>

#include "feedrate/error.hpp"
#include "feedrate/loader.hpp"

namespace feedrate {
namespace {

constexpr TimeNs kMs = 1'000'000;

// Each cost another figure, so that every sum tells what is in it.
Profile test_profile() {
  const auto cost = [](double ms, Scaling scaling) {
    return Cost{.ms = ms, .origin = Origin::kAssumed, .scaling = scaling};
  };
  Profile profile;
  profile.name = "test";
  profile.source = "made up";
  profile.gpu = "none";
  profile.shape = {.batch = 4, .image = 32};
  profile.cores = 4;
  profile.device_memory_GB = 0.001;
  profile.make = cost(100, Scaling::kPixels);
  profile.handoff = cost(1, Scaling::kConstant);
  profile.pin = cost(30, Scaling::kBytes);
  profile.copy_pageable = cost(20, Scaling::kBytes);
  profile.copy_pinned = cost(10, Scaling::kBytes);
  profile.release_private = cost(5, Scaling::kBytes);
  profile.release_shared = cost(8, Scaling::kBytes);
  profile.launch = cost(3, Scaling::kConstant);
  profile.compute = cost(50, Scaling::kPixels);
  profile.check = cost(2, Scaling::kBytes);
  return profile;
}

Spec test_spec() { return {.batch = 4, .image = 32}; }

class SimTest : public testing::Test {
 protected:
  SimTest() { device_.prepare(test_spec()); }

  void copy(Stream& stream, const Buffer& to, const Buffer& from,
            HostMemory kind = HostMemory::kPinned, CopyMode mode = CopyMode::kAsync) {
    device_.copy(stream, Direction::kH2d, to.data(), from.data(), from.bytes(), kind, mode);
  }
  Buffer host_batch(std::uint64_t value) {
    Buffer buffer = device_.host_buffer(shape_.bytes(), HostMemory::kPinned);
    std::memcpy(buffer.data(), &value, sizeof value);
    return buffer;
  }
  DeviceBatch batch_in(const Buffer& memory) {
    return {memory.data(), memory.data() + shape_.images_bytes(), shape_, 0};
  }
  void compute(Stream& stream, const Buffer& batch) {
    device_.enqueue(stream, Stage::kCompute, batch_in(batch), {});
  }

  SimDevice device_{test_profile(), "test"};
  const BatchShape shape_ = test_spec().shape();
  const std::unique_ptr<Stream> a_ = device_.stream("a");
  const std::unique_ptr<Stream> b_ = device_.stream("b");
};

TEST_F(SimTest, SaysWhatItsFiguresRestOn) {
  const DeviceInfo info = make_device({sim_device()}, "sim")->info();
  EXPECT_EQ(info.name, "sim:l40s");
  EXPECT_TRUE(info.simulated);
  EXPECT_EQ(info.cores, 8);
  const std::map<std::string, std::string> context(info.context.begin(), info.context.end());
  EXPECT_EQ(context.at("profile"), "l40s");
  EXPECT_EQ(context.at("profile_published"), "copy_pageable, copy_pinned, compute");
  EXPECT_EQ(context.at("profile_fitted"), "make, release_shared");
  EXPECT_EQ(context.at("profile_assumed"),
            "make_u8, handoff, pin, release_private, launch, normalize, check");
  EXPECT_EQ(context.count("profile_measured"), 0u);
  EXPECT_FALSE(context.at("profile_source").empty());
}

TEST_F(SimTest, AnUnknownProfileIsAnErrorThatNamesThoseThereAre) {
  try {
    make_device({sim_device()}, "sim:h9000");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "unknown profile 'h9000': built in are l40s, and there is no such file");
  }
}

TEST_F(SimTest, TimeStandsStillUnlessSomethingCosts) {
  const TimeNs begin = device_.now();
  for (const Stage stage : {Stage::kFetch, Stage::kCopy, Stage::kSync}) {
    device_.stage(stage, [] {});
  }
  device_.synchronize(*a_);
  EXPECT_EQ(device_.now(), begin);
}

TEST_F(SimTest, OnlyAnAsynchronousCopyFromPageLockedMemoryLetsTheHostGoOn) {
  const Buffer from = host_batch(1);
  const Buffer to = device_.device_buffer(shape_.bytes());
  copy(*a_, to, from);
  EXPECT_EQ(device_.now(), 0);
  EXPECT_EQ(device_.position(*a_), 10 * kMs);
  copy(*a_, to, from, HostMemory::kRegistered, CopyMode::kBlocking);
  EXPECT_EQ(device_.now(), 20 * kMs);
  copy(*a_, to, from, HostMemory::kPageable, CopyMode::kBlocking);
  EXPECT_EQ(device_.now(), 40 * kMs);
  copy(*a_, to, from, HostMemory::kPageable, CopyMode::kAsync);
  EXPECT_EQ(device_.now(), 60 * kMs);
}

TEST_F(SimTest, ABlockingCopyWaitsForWhatIsBeforeItOnItsStream) {
  const Buffer from = host_batch(1);
  const Buffer to = device_.device_buffer(shape_.bytes());
  compute(*a_, to);
  copy(*a_, to, from, HostMemory::kPageable, CopyMode::kBlocking);
  EXPECT_EQ(device_.now(), 70 * kMs);
}

TEST_F(SimTest, EnginesWorkSideBySideButEachInOrder) {
  const Buffer host = host_batch(1);
  const Buffer there = device_.device_buffer(shape_.bytes());
  const auto c = device_.stream("c");
  copy(*a_, there, host);
  copy(*b_, there, host);  // the same engine
  device_.copy(*c, Direction::kD2h, host.data(), there.data(), host.bytes(), HostMemory::kPinned,
               CopyMode::kAsync);
  const auto d = device_.stream("d");
  compute(*d, there);
  const auto e = device_.stream("e");
  compute(*e, there);
  EXPECT_EQ(device_.position(*a_), 10 * kMs);
  EXPECT_EQ(device_.position(*b_), 20 * kMs);
  EXPECT_EQ(device_.position(*c), 10 * kMs);
  EXPECT_EQ(device_.position(*d), 50 * kMs);
  EXPECT_EQ(device_.position(*e), 100 * kMs);
}

TEST_F(SimTest, AStepIsNotDoneBeforeItIsLaunched) {
  Profile profile = test_profile();
  profile.launch.ms = 80;
  SimDevice device(profile, "test");
  device.prepare(test_spec());
  const auto stream = device.stream("a");
  device.enqueue(*stream, Stage::kCompute, {}, {});
  EXPECT_EQ(device.now(), 80 * kMs);
  EXPECT_EQ(device.position(*stream), 80 * kMs);
}

TEST_F(SimTest, CostsFollowTheShapeThatWasPrepared) {
  Spec spec = test_spec();
  spec.batch = 8;
  spec.image = 64;
  device_.prepare(spec);
  device_.enqueue(*a_, Stage::kCompute, {}, {});
  EXPECT_EQ(device_.now(), 3 * kMs);                   // constant
  EXPECT_EQ(device_.position(*a_), 2 * 4 * 50 * kMs);  // pixels
}

TEST_F(SimTest, ANullStepCostsNothing) {
  Spec spec = test_spec();
  spec.step = StepKind::kNull;
  device_.prepare(spec);
  device_.enqueue(*a_, Stage::kCompute, {}, {});
  EXPECT_EQ(device_.position(*a_), 0);
}

TEST_F(SimTest, GivingBackCostsTheLoopOnlyFreshMemoryWithoutAPinThread) {
  const auto cost = [&](Spec spec) {
    spec.batch = 4;
    spec.image = 32;
    device_.prepare(spec);
    const TimeNs begin = device_.now();
    bool ran = false;
    device_.stage(Stage::kRelease, [&] { ran = true; });
    EXPECT_TRUE(ran);
    return device_.now() - begin;
  };
  EXPECT_EQ(cost({}), 5 * kMs);
  EXPECT_EQ(cost({.loader = LoaderKind::kThreads}), 5 * kMs);
  EXPECT_EQ(cost({.loader = LoaderKind::kProcesses}), 8 * kMs);
  EXPECT_EQ(cost({.loader = LoaderKind::kProcesses, .buffers = Buffers::kRing}), 0);
  EXPECT_EQ(cost({.loader = LoaderKind::kProcesses,
                  .memory = HostMemory::kPinned,
                  .pinning = Pinning::kThread}),
            0);
  EXPECT_EQ(cost({.dataset = DatasetKind::kNone}), 0);
}

TEST_F(SimTest, DeviceMemoryIsThatOfTheProfile) {
  Buffer most = device_.device_buffer(999'000);
  EXPECT_THROW(device_.device_buffer(2000), OutOfMemory);
  EXPECT_NO_THROW(device_.device_buffer(1000));
  most = Buffer();
  EXPECT_NO_THROW(device_.device_buffer(1'000'000));
  EXPECT_THROW(device_.device_buffer(1'000'001), OutOfMemory);
}

TEST_F(SimTest, AStageThatWouldTakeForEverIsRefused) {
  Spec spec = test_spec();
  spec.batch = 65536;
  spec.image = 8192;
  EXPECT_THROW(device_.prepare(spec), Unsupported);
}

// The loop of the schedules with two streams, by hand and with one slot: batch 1 is copied on one
// stream while the step on the other one still reads batch 0.
class SimGuards : public SimTest {
 protected:
  static constexpr std::uint64_t kFirst = 11;
  static constexpr std::uint64_t kSecond = 22;

  std::vector<std::uint64_t> used(bool copy_waits_for_step, bool step_waits_for_copy) {
    const Buffer first = host_batch(kFirst);
    const Buffer second = host_batch(kSecond);
    const Buffer slot = device_.device_buffer(shape_.bytes());
    const auto log = device_.fingerprint_log(2);
    const auto copied = device_.event();
    const auto computed = device_.event();
    for (int n = 0; n < 2; ++n) {
      if (n > 0 && copy_waits_for_step) {
        device_.wait(*a_, *computed);
      }
      copy(*a_, slot, n == 0 ? first : second);
      device_.record(*copied, *a_);
      if (step_waits_for_copy) {
        device_.wait(*b_, *copied);
      }
      compute(*b_, slot);
      log->take(*b_, batch_in(slot), static_cast<std::size_t>(n));
      device_.record(*computed, *b_);
    }
    return log->read();
  }
};

TEST_F(SimGuards, AGuardedSlotKeepsItsBatchWhole) {
  EXPECT_EQ(used(true, true), (std::vector<std::uint64_t>{kFirst, kSecond}));
}

TEST_F(SimGuards, ACopyThatDoesNotWaitForTheStepTearsItsBatch) {
  EXPECT_EQ(used(false, true), (std::vector<std::uint64_t>{SimContents::kTorn, kSecond}));
}

TEST_F(SimGuards, AStepThatDoesNotWaitForItsCopyReadsSomethingElse) {
  const auto values = used(true, false);
  EXPECT_EQ(values[0], SimContents::kTorn);
  EXPECT_NE(values[1], kSecond);
}

TEST(SimContents, AtEqualTimesWhatWasEnqueuedFirstCameFirst) {
  SimContents contents;
  const auto* address = reinterpret_cast<const std::byte*>(&contents);
  EXPECT_EQ(contents.read(address, {0, 0}, 0), 0u);
  contents.write(address, {5, 5}, 1);
  const std::uint64_t one_write = contents.writes();
  contents.write(address, {5, 5}, 2);
  EXPECT_EQ(contents.read(address, {5, 5}, one_write), 1u);
  EXPECT_EQ(contents.read(address, {5, 5}, contents.writes()), 2u);
  EXPECT_EQ(contents.read(address, {0, 4}, contents.writes()), 0u);
  EXPECT_EQ(contents.read(address, {4, 6}, contents.writes()), SimContents::kTorn);
}

TEST(SimContents, FreedMemoryIsForgotten) {
  SimContents contents;
  const auto* address = reinterpret_cast<const std::byte*>(&contents);
  contents.write(address, {1, 2}, 1);
  contents.write(address + 8, {1, 2}, 2);
  contents.forget(address, 8);
  EXPECT_EQ(contents.read(address, {3, 4}, contents.writes()), 0u);
  EXPECT_EQ(contents.read(address + 8, {3, 4}, contents.writes()), 2u);
}

// --- The loader's queueing model. F 100, P 30, U 5 or 8, hand-off 1, 4 cores.

class SimSourceTest : public SimTest {
 protected:
  std::unique_ptr<Source> source(Spec spec) {
    spec.batch = 4;
    spec.image = 32;
    return make_source(spec, {.device = device_, .datasets = datasets_, .stop = &stop_});
  }

  static void expect(const Interval& interval, TimeNs begin_ms, TimeNs end_ms) {
    EXPECT_EQ(interval.begin, begin_ms * kMs);
    EXPECT_EQ(interval.end, end_ms * kMs);
  }

  const DatasetTable datasets_;
  std::atomic<bool> stop_ = false;
};

TEST_F(SimSourceTest, InlineTheLoopMakesEachBatchItself) {
  const auto loader = source({});
  for (std::int64_t n = 0; n < 3; ++n) {
    const HostBatch batch = loader->next();
    EXPECT_EQ(batch.index, n);
    EXPECT_EQ(batch.worker, -1);
    expect(batch.made, 100 * n, 100 * n + 100);
    EXPECT_EQ(device_.now(), (100 * n + 100) * kMs);
  }
}

TEST_F(SimSourceTest, ABatchIsItsFingerprintInItsFirstEightBytes) {
  const auto loader = source({});
  std::set<std::uint64_t> seen;
  for (int n = 0; n < 100; ++n) {
    const HostBatch batch = loader->next();
    EXPECT_EQ(batch.images.size(), shape_.images_bytes());
    EXPECT_EQ(batch.labels.size(), shape_.labels_bytes());
    std::uint64_t value = 0;
    std::memcpy(&value, batch.images.data(), sizeof value);
    EXPECT_EQ(value, batch.fingerprint);
    EXPECT_NE(value, SimContents::kTorn);
    seen.insert(value);
  }
  EXPECT_EQ(seen.size(), 100u);
}

TEST_F(SimSourceTest, WorkersBeginTogetherAndAtMostTheirPrefetchAhead) {
  const auto loader = source({.loader = LoaderKind::kThreads, .workers = 2, .prefetch = 1});
  HostBatch batch = loader->next();
  expect(batch.made, 0, 100);
  EXPECT_EQ(device_.now(), 101 * kMs);  // the hand-off
  device_.advance_to(150 * kMs);        // a step
  batch = loader->next();
  expect(batch.made, 0, 100);
  EXPECT_NE(batch.worker, -1);
  EXPECT_EQ(device_.now(), 151 * kMs);
  batch = loader->next();
  expect(batch.made, 100, 200);  // when batch 0 was handed over
  batch = loader->next();
  expect(batch.made, 150, 250);  // when batch 1 was
}

TEST_F(SimSourceTest, WorkersStartWhenTheSourceIsMade) {
  device_.advance_to(70 * kMs);
  const auto loader = source({.loader = LoaderKind::kThreads, .workers = 1});
  device_.advance_to(90 * kMs);
  expect(loader->next().made, 70, 170);
}

TEST_F(SimSourceTest, WorkersBeyondTheCoresShareThem) {
  const auto loader = source({.loader = LoaderKind::kProcesses, .workers = 6});
  expect(loader->next().made, 0, 150);
}

TEST_F(SimSourceTest, AllCoresAreThoseOfTheProfile) {
  const auto loader = source({.loader = LoaderKind::kProcesses, .workers = kAllCores});
  std::set<int> workers;
  for (int n = 0; n < 12; ++n) {
    workers.insert(loader->next().worker);
  }
  EXPECT_EQ(workers, (std::set<int>{0, 1, 2, 3}));
}

TEST_F(SimSourceTest, ThePinThreadCopiesAndReleasesOneBatchAtATime) {
  const auto loader = source({.loader = LoaderKind::kProcesses,
                              .workers = 4,
                              .memory = HostMemory::kPinned,
                              .pinning = Pinning::kThread});
  HostBatch batch = loader->next();
  EXPECT_EQ(batch.memory, HostMemory::kPinned);
  expect(batch.made, 0, 100);
  expect(batch.pinned, 100, 138);
  EXPECT_EQ(device_.now(), 139 * kMs);
  batch = loader->next();
  expect(batch.made, 0, 100);
  expect(batch.pinned, 138, 176);
}

TEST_F(SimSourceTest, ThePinThreadDoesNotReleaseARing) {
  const auto loader = source({.loader = LoaderKind::kProcesses,
                              .memory = HostMemory::kPinned,
                              .buffers = Buffers::kRing,
                              .pinning = Pinning::kThread});
  expect(loader->next().pinned, 100, 130);
}

TEST_F(SimSourceTest, APinThreadMakesWhatAnInlineLoaderWould) {
  const auto loader = source({.memory = HostMemory::kPinned, .pinning = Pinning::kThread});
  HostBatch batch = loader->next();
  expect(batch.made, 0, 100);
  expect(batch.pinned, 100, 135);
  EXPECT_EQ(device_.now(), 136 * kMs);
  batch = loader->next();
  expect(batch.made, 135, 235);
}

TEST_F(SimSourceTest, ThePinThreadWaitsForASlotOfItsRing) {
  const Spec spec{.loader = LoaderKind::kThreads,
                  .workers = 4,
                  .memory = HostMemory::kPinned,
                  .pinning = Pinning::kThread,
                  .slots = 2};
  const auto loader = source(spec);
  std::vector<HostBatch> held;
  for (int n = 0; n < 4; ++n) {
    held.push_back(loader->next());
  }
  EXPECT_THROW(loader->next(), LoaderError);  // a real one would wait for ever
  compute(*a_, Buffer());
  const TimeNs end = device_.position(*a_);
  held[2].lease.give_back_after(*a_);
  const HostBatch batch = loader->next();
  EXPECT_EQ(batch.pinned.begin, end);
  EXPECT_EQ(batch.images.data(), held[2].images.data());
}

TEST_F(SimSourceTest, DirectWorkersWaitForASlotOfTheRing) {
  const auto loader = source({.loader = LoaderKind::kThreads,
                              .workers = 1,
                              .prefetch = 1,
                              .memory = HostMemory::kWriteCombined,
                              .buffers = Buffers::kRing,
                              .pinning = Pinning::kDirect,
                              .copy = CopyMode::kAsync,
                              .slots = 2});
  std::vector<HostBatch> held;
  for (int n = 0; n < 4; ++n) {  // 1 * 1 + 2 + 1 slots
    held.push_back(loader->next());
    EXPECT_EQ(held.back().memory, HostMemory::kWriteCombined);
    EXPECT_EQ(held.back().pinned.length(), 0);
  }
  device_.advance_to(1000 * kMs);
  held[1].lease.give_back();
  const HostBatch batch = loader->next();
  expect(batch.made, 1000, 1100);
  EXPECT_EQ(batch.images.data(), held[1].images.data());
}

TEST_F(SimSourceTest, FreshMemoryIsNeverWaitedFor) {
  const auto loader = source({.loader = LoaderKind::kThreads, .workers = 1});
  std::vector<HostBatch> held;
  for (int n = 0; n < 50; ++n) {
    held.push_back(loader->next());
    expect(held.back().made, 100 * n, 100 * n + 100);
  }
}

TEST_F(SimSourceTest, EmptyBatchesCostNothing) {
  const auto loader = source({.dataset = DatasetKind::kNone, .loader = LoaderKind::kProcesses});
  for (int n = 0; n < 10; ++n) {
    const HostBatch batch = loader->next();
    EXPECT_EQ(batch.images.data(), nullptr);
    EXPECT_EQ(batch.fingerprint, 0u);
  }
  EXPECT_EQ(device_.now(), 0);
}

TEST_F(SimSourceTest, AReplayedBatchCostsACopy) {
  const auto loader = source({.dataset = DatasetKind::kReplay});
  expect(loader->next().made, 0, 30);
}

TEST_F(SimSourceTest, StoppingInterrupts) {
  const auto loader = source({});
  loader->next();
  stop_ = true;
  EXPECT_THROW(loader->next(), Interrupted);
}

// A profile of tiny batches would have stages of hours for the published one.
TEST(SimDevice, RowsHaveTheProfilesShapeUnlessToldOtherwise) {
  Profile profile = parse_profile(std::string(builtin_profiles().front().json), "l40s");
  profile.shape = {.batch = 2, .image = 32};
  profile.compute.ms = 300;
  const SimDevice device(profile, "tiny");
  EXPECT_EQ(device.info().usual.batch, 2);
  EXPECT_EQ(device.info().usual.image, 32);
}

}  // namespace
}  // namespace feedrate
