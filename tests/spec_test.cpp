#include "feedrate/spec.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <set>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "../fixtures/rungs.hpp"

namespace feedrate {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Optional;

constexpr Spec kPinnedByThread{
    .loader = LoaderKind::kProcesses, .memory = HostMemory::kPinned, .pinning = Pinning::kThread};

TEST(Spec, DefaultIsTheBaselineOfTheOriginal) {
  const Spec spec;
  EXPECT_EQ(spec.shape().images_bytes(), 201'326'592u);
  EXPECT_EQ(spec.shape().labels_bytes(), 512u);
  EXPECT_EQ(invalid(spec), std::nullopt);
  EXPECT_EQ(describe(spec), "");
}

TEST(Spec, EmptyDatasetHasNoBytes) {
  EXPECT_EQ((Spec{.dataset = DatasetKind::kNone}.shape().bytes()), 0u);
}

TEST(Spec, EveryChoiceHasItsOwnNameAndIsFoundByIt) {
  for_each_member([](std::string_view, auto member, std::string_view, Range = {}) {
    using Value = std::remove_reference_t<decltype(Spec{}.*member)>;
    if constexpr (std::is_enum_v<Value>) {
      std::set<std::string_view> names;
      for (const auto& choice : choices<Value>()) {
        EXPECT_TRUE(names.insert(choice.name).second) << choice.name;
        EXPECT_EQ(choice_named<Value>(choice.name), choice.value);
        EXPECT_EQ(name_of(choice.value), choice.name);
      }
      EXPECT_EQ(Spec{}.*member, choices<Value>().front().value) << "the first is the default";
      EXPECT_EQ(choice_named<Value>("no such thing"), std::nullopt);
    }
  });
}

TEST(Spec, DefaultsLieInTheirRanges) {
  for_each_member([](std::string_view name, auto member, std::string_view, Range range = {}) {
    if constexpr (std::is_same_v<decltype(member), int Spec::*>) {
      const int value = Spec{}.*member;
      EXPECT_TRUE((value == 0 && !range.zero.empty()) ||
                  (value >= range.least && value <= range.most))
          << name;
    }
  });
}

TEST(Spec, OneSmallImageIsNothingToNormaliseOver) {
  EXPECT_THAT(invalid({.batch = 1, .image = 32}), Optional(HasSubstr("use batch 2 or image 36")));
  EXPECT_EQ(invalid({.batch = 2, .image = 32}), std::nullopt);
  EXPECT_EQ(invalid({.batch = 1, .image = 36}), std::nullopt);
}

TEST(Spec, NumberOutsideItsRangeIsInvalid) {
  for_each_member([](std::string_view name, auto member, std::string_view, Range range = {}) {
    if constexpr (std::is_same_v<decltype(member), int Spec::*>) {
      const auto with = [&](int value) {
        Spec spec;
        spec.*member = value;
        return invalid(spec);
      };
      EXPECT_EQ(with(range.most), std::nullopt);
      EXPECT_EQ(with(range.least), std::nullopt);
      EXPECT_THAT(with(range.most + range.multiple_of), Optional(HasSubstr(std::string(name))));
      EXPECT_THAT(with(-1), Optional(HasSubstr(describe(range))));
      EXPECT_EQ(with(0).has_value(), range.least > 0 && range.zero.empty()) << name;
    }
  });
}

TEST(Spec, ImageIsAMultipleOfFour) {
  EXPECT_THAT(invalid({.image = 510}), Optional(HasSubstr("a multiple of 4")));
}

TEST(Spec, EmptyBatchesCannotBeTrainedOn) {
  EXPECT_THAT(invalid({.dataset = DatasetKind::kNone}), Optional(HasSubstr("use step null")));
  EXPECT_EQ(invalid({.dataset = DatasetKind::kNone, .step = StepKind::kNull}), std::nullopt);
}

TEST(Spec, PinningAndMemoryMustAgree) {
  EXPECT_THAT(invalid({.memory = HostMemory::kPinned}), Optional(HasSubstr("use memory pageable")));
  for (const auto pinning : {Pinning::kThread, Pinning::kDirect}) {
    EXPECT_THAT(
        invalid({.loader = LoaderKind::kThreads, .buffers = Buffers::kRing, .pinning = pinning}),
        Optional(HasSubstr("needs page-locked memory")));
    for (const auto memory :
         {HostMemory::kPinned, HostMemory::kRegistered, HostMemory::kWriteCombined}) {
      EXPECT_EQ(invalid({.loader = LoaderKind::kThreads,
                         .memory = memory,
                         .buffers = Buffers::kRing,
                         .pinning = pinning}),
                std::nullopt);
    }
  }
}

TEST(Spec, DirectNeedsWorkersAndARing) {
  const Spec sound{.loader = LoaderKind::kProcesses,
                   .memory = HostMemory::kPinned,
                   .buffers = Buffers::kRing,
                   .pinning = Pinning::kDirect};
  EXPECT_EQ(invalid(sound), std::nullopt);
  Spec spec = sound;
  spec.loader = LoaderKind::kInline;
  EXPECT_THAT(invalid(spec), Optional(HasSubstr("loader threads or processes")));
  spec = sound;
  spec.buffers = Buffers::kFresh;
  EXPECT_THAT(invalid(spec), Optional(HasSubstr("use buffers ring")));
}

TEST(Spec, LibtorchAllocatesItsBatchesItself) {
  Spec spec{.loader = LoaderKind::kLibtorch};
  EXPECT_EQ(invalid(spec), std::nullopt);
  spec.memory = HostMemory::kPinned;
  spec.pinning = Pinning::kThread;
  EXPECT_EQ(invalid(spec), std::nullopt);
  spec.buffers = Buffers::kRing;
  EXPECT_THAT(invalid(spec), Optional(HasSubstr("use buffers fresh")));
  spec.pinning = Pinning::kDirect;
  EXPECT_THAT(invalid(spec), Optional(HasSubstr("loader threads or processes")));
}

TEST(Spec, InlineHasNoWorkers) {
  EXPECT_EQ((Spec{.loader = LoaderKind::kInline, .workers = 5}.worker_count()), 0);
  EXPECT_EQ((Spec{.loader = LoaderKind::kThreads, .workers = 5}.worker_count()), 5);
}

TEST(Spec, AllCoresAreThoseThatTheProcessMayUse) {
  const Spec spec{.loader = LoaderKind::kThreads, .workers = kAllCores};
  int narrowed = 0;
  // The mask of a thread is its own; the test's other threads keep theirs.
  std::thread([&] {
    cpu_set_t all;
    ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
    EXPECT_EQ(spec.worker_count(), CPU_COUNT(&all));
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &all)) {
        CPU_SET(cpu, &one);
        break;
      }
    }
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    narrowed = spec.worker_count();
  }).join();
  EXPECT_EQ(narrowed, 1);
}

TEST(Spec, QueueCountsWorkersPinThreadAndDeviceSlots) {
  EXPECT_EQ(Spec{}.queue_batches(), 1) << "inline and serial: the one batch in its slot";
  Spec spec = kPinnedByThread;
  spec.workers = 3;
  spec.prefetch = 2;
  spec.slots = 4;
  EXPECT_EQ(spec.queue_batches(), 3 * 2 + (4 + 2) + 1);
  spec.schedule = ScheduleKind::kTwoStreams;
  EXPECT_EQ(spec.queue_batches(), 3 * 2 + (4 + 2) + 4);
  spec.pinning = Pinning::kDirect;
  EXPECT_EQ(spec.queue_batches(), 3 * 2 + 4);
}

TEST(Spec, AutomaticStepsOutlastEveryQueue) {
  EXPECT_EQ(Spec{}.step_count(), 20);
  EXPECT_EQ((Spec{.steps = 3}.step_count()), 3);
  for (const int workers : {1, 8, 64, 500}) {
    Spec spec = kPinnedByThread;
    spec.workers = workers;
    EXPECT_GT(spec.step_count(), spec.queue_batches());
    EXPECT_GE(spec.step_count(), 20);
  }
}

TEST(Spec, DescriptionNamesWhatDiffersInTheOrderOfTheFlow) {
  EXPECT_EQ(
      describe(Spec{
          .batch = 8, .loader = LoaderKind::kThreads, .copy = CopyMode::kAsync, .pop_first = true}),
      "batch=8 loader=threads copy=async pop_first=on");
  EXPECT_EQ(describe(Spec{.workers = 8, .steps = 3}), "workers=8 steps=3");
}

TEST(Rungs, AreTheFloorTheFivePublishedOnesAndDirect) {
  std::vector<std::string> names;
  for (const auto& row : rungs()) {
    names.push_back(row.name);
    EXPECT_EQ(invalid(row.spec), std::nullopt) << row.name;
  }
  EXPECT_THAT(names, ElementsAre("null", "baseline", "workers", "pinned", "streams", "prefetch",
                                 "direct", "direct_u8"));
}

TEST(Rungs, SayWhatTheyChange) {
  std::vector<std::string> specs;
  for (const auto& row : rungs()) {
    specs.push_back(describe(row.spec));
  }
  const std::string pinned = "loader=processes memory=pinned pinning=thread copy=async";
  const std::string direct =
      "loader=threads memory=pinned buffers=ring pinning=direct copy=async schedule=prefetcher";
  EXPECT_THAT(specs, ElementsAre("dataset=none step=null steps=2000", "", "loader=processes",
                                 pinned, pinned + " schedule=two_streams",
                                 pinned + " schedule=prefetcher pop_first=on", direct,
                                 "dataset=noise_u8 " + direct));
}

}  // namespace
}  // namespace feedrate
