#include "feedrate/transfer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "device_sim.hpp"
#include "faulty_device.hpp"
#include "feedrate/error.hpp"
#include "feedrate/profile.hpp"

namespace feedrate {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::array kDirections{Direction::kH2d, Direction::kD2h};
constexpr std::array kModes{CopyMode::kBlocking, CopyMode::kAsync};
constexpr std::size_t kMiB = std::size_t{1} << 20;

// Pageable copies take twice what pinned ones do: 10 ms a MiB of copy.
Profile profile() {
  Profile profile = parse_profile(std::string(builtin_profiles().front().json), "test");
  profile.copy_pinned.ms = 10.0 * static_cast<double>(profile.shape.bytes()) / kMiB;
  profile.copy_pageable.ms = 2 * profile.copy_pinned.ms;
  return profile;
}

class SimTransfer : public testing::Test {
 protected:
  SimDevice device_{profile(), "test"};
};

TEST(CopyKind, OnlyAsyncCopiesOfPageLockedMemoryAreTimedByEvents) {
  for (const auto& kind : choices<HostMemory>()) {
    EXPECT_EQ((CopyKind{.memory = kind.value, .mode = CopyMode::kBlocking}.clock()),
              CopyClock::kWall);
    EXPECT_EQ((CopyKind{.memory = kind.value, .mode = CopyMode::kAsync}.clock()),
              kind.value == HostMemory::kPageable ? CopyClock::kWall : CopyClock::kEvents);
  }
  const CopyKind by_another{.by = [](Stream&, std::byte*, const std::byte*) {}};
  EXPECT_EQ(by_another.clock(), CopyClock::kWall);
}

TEST_F(SimTransfer, ACopyTakesWhatTheProfileSays) {
  for (const HostMemory memory_kind : {HostMemory::kPageable, HostMemory::kPinned}) {
    TransferMemory memory(device_, memory_kind, 4 * kMiB);
    for (const Direction direction : kDirections) {
      for (const CopyMode mode : kModes) {
        for (const std::size_t bytes : {std::size_t{4096}, kMiB, 2 * kMiB}) {
          const CopyKind kind{
              .direction = direction, .memory = memory_kind, .mode = mode, .bytes = bytes};
          const auto samples = measure_copies(device_, memory, kind, {.warmup = 1, .samples = 5});
          const double expected_s = (memory_kind == HostMemory::kPageable ? 20e-3 : 10e-3) *
                                    static_cast<double>(bytes) / kMiB;
          ASSERT_EQ(samples.size(), 5u);
          for (const double sample : samples) {
            EXPECT_NEAR(sample, expected_s, 2e-9);
          }
        }
      }
    }
  }
}

TEST_F(SimTransfer, TellsHowFarItIs) {
  TransferMemory memory(device_, HostMemory::kPinned, 4 * kMiB);
  TransferMemory other(device_, HostMemory::kPinned, 4 * kMiB);
  std::vector<int> told;
  Sampling sampling{.warmup = 2, .samples = 3, .done = [&](int done) { told.push_back(done); }};
  measure_copies(device_, memory, {.mode = CopyMode::kBlocking, .bytes = 4096}, sampling);
  EXPECT_THAT(told, ElementsAre(0, 1, 2, 3, 4, 5));
  told.clear();
  measure_copies(device_, memory, {.mode = CopyMode::kAsync, .bytes = 4096}, sampling);
  EXPECT_THAT(told, ElementsAre(0, 1, 2, 5));  // a group behind a gate is done at once
  told.clear();
  measure_while_other(device_, memory, other, Direction::kD2h, 4096, sampling);
  EXPECT_THAT(told, ElementsAre(0, 2, 5));
  told.clear();
  sampling.warmup = 0;
  measure_both(device_, memory, other, 4096, 1, sampling);
  EXPECT_THAT(told, ElementsAre(0, 1, 2, 3));
  told.clear();
  measure_while_other(device_, memory, other, Direction::kD2h, 4096, sampling);
  EXPECT_THAT(told, ElementsAre(0, 3));
  told.clear();
  measure_host_cost(device_, memory, {.bytes = 4096}, 0, sampling);
  EXPECT_THAT(told, ElementsAre(0, 1, 2, 3));
}

TEST_F(SimTransfer, OneDirectionWhileTheOtherOneRunsIsAsFastAsAlone) {
  TransferMemory memory(device_, HostMemory::kPinned, 4 * kMiB);
  TransferMemory other(device_, HostMemory::kPinned, 4 * kMiB);
  for (const Direction timed : kDirections) {
    const auto samples =
        measure_while_other(device_, memory, other, timed, kMiB, {.warmup = 1, .samples = 6});
    EXPECT_EQ(samples.timed_s.size(), 6u);
    EXPECT_EQ(samples.other_s.size(), 6u);  // more were queued: those outside do not count
    for (const double sample : samples.timed_s) {
      EXPECT_NEAR(sample, 10e-3, 2e-9);
    }
    for (const double sample : samples.other_s) {
      EXPECT_NEAR(sample, 10e-3, 2e-9);
    }
  }
}

TEST_F(SimTransfer, BothDirectionsAtOnceTakeAsLongAsOne) {
  TransferMemory h2d(device_, HostMemory::kPinned, 4 * kMiB);
  TransferMemory d2h(device_, HostMemory::kPinned, 4 * kMiB);
  const auto samples = measure_both(device_, h2d, d2h, kMiB, 4, {.warmup = 1, .samples = 3});
  ASSERT_EQ(samples.size(), 3u);
  for (const double sample : samples) {
    EXPECT_NEAR(sample, 40e-3, 8e-9);
  }
}

TEST_F(SimTransfer, AsyncCopiesOfPinnedMemoryReturnAtOnce) {
  TransferMemory memory(device_, HostMemory::kPinned, 4 * kMiB);
  const CopyKind kind{.bytes = kMiB};
  const HostCost idle = measure_host_cost(device_, memory, kind, 0, {.samples = 3});
  EXPECT_THAT(idle.return_s, ElementsAre(0, 0, 0));
  EXPECT_TRUE(idle.busy_s.empty());
  EXPECT_NEAR(idle.done_s[1], 10e-3, 2e-9);
  const HostCost busy = measure_host_cost(device_, memory, kind, 50'000'000, {.samples = 3});
  EXPECT_THAT(busy.return_s, ElementsAre(0, 0, 0));
  EXPECT_THAT(busy.busy_s, Each(50e-3));
  EXPECT_NEAR(busy.done_s[1], 60e-3, 2e-9);
  EXPECT_EQ(busy.waited, 0);
}

TEST_F(SimTransfer, AsyncCopiesOfPageableMemoryWaitForEarlierWork) {
  TransferMemory memory(device_, HostMemory::kPageable, 4 * kMiB);
  const CopyKind kind{.memory = HostMemory::kPageable, .bytes = kMiB};
  const HostCost busy = measure_host_cost(device_, memory, kind, 50'000'000, {.samples = 3});
  EXPECT_NEAR(busy.return_s[1], 70e-3, 2e-9);
  EXPECT_EQ(busy.waited, 3);
}

TEST_F(SimTransfer, BlockingCopiesWaitForEarlierWork) {
  TransferMemory memory(device_, HostMemory::kPinned, 4 * kMiB);
  const CopyKind kind{.mode = CopyMode::kBlocking, .bytes = kMiB};
  const HostCost busy = measure_host_cost(device_, memory, kind, 50'000'000, {.samples = 3});
  EXPECT_NEAR(busy.return_s[1], 60e-3, 2e-9);
  EXPECT_EQ(busy.waited, 3);
}

class CpuTransfer : public testing::Test {
 protected:
  // What the measurement throws, or nothing.
  std::string error_of(const CopyKind& kind, const Sampling& sampling) {
    try {
      TransferMemory memory(device_, kind.memory, memory_bytes_);
      device_.copies = 0;
      measure_copies(device_, memory, kind, sampling);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  FaultyDevice device_{make_device({cpu_device()}, "cpu")};
  std::size_t memory_bytes_ = 64 * 1024;
};

TEST_F(CpuTransfer, EveryKindArrivesAsItWasSent) {
  for (const auto& memory_kind : choices<HostMemory>()) {
    TransferMemory memory(device_, memory_kind.value, 20 * kMiB);
    for (const Direction direction : kDirections) {
      for (const CopyMode mode : kModes) {
        // A page, odd ones, one that leaves room for a single slot, one of several parts.
        for (const std::size_t bytes : {std::size_t{8}, std::size_t{4104}, kMiB, 17 * kMiB}) {
          const CopyKind kind{
              .direction = direction, .memory = memory_kind.value, .mode = mode, .bytes = bytes};
          const auto samples = measure_copies(device_, memory, kind, {.warmup = 1, .samples = 4});
          EXPECT_EQ(samples.size(), 4u);
          EXPECT_GE(*std::min_element(samples.begin(), samples.end()), 0);
        }
      }
    }
  }
}

TEST_F(CpuTransfer, MoreSamplesThanAGateHoldsComeInGroups) {
  TransferMemory memory(device_, HostMemory::kPinned, 16 * kMiB);
  std::vector<int> told;
  const auto samples =
      measure_copies(device_, memory, {.bytes = 4096},
                     {.samples = 450, .done = [&](int done) { told.push_back(done); }});
  EXPECT_EQ(samples.size(), 450u);
  EXPECT_EQ(told.front(), 0);
  EXPECT_EQ(told.back(), 450);
  EXPECT_EQ(told.size(), 4u);
}

TEST_F(CpuTransfer, AFlippedBitIsNoticedWhereverItIs) {
  for (const Direction direction : kDirections) {
    const CopyKind kind{.direction = direction, .bytes = 4096};
    for (const int copy : {0, 7, 11}) {  // warm-up included
      device_.flip_in = copy;
      EXPECT_THAT(error_of(kind, {.warmup = 2, .samples = 10}),
                  HasSubstr("4096 bytes: what arrived is not what was sent"));
    }
    device_.flip_in = -1;
    EXPECT_EQ(error_of(kind, {.warmup = 2, .samples = 10}), "");
  }
}

TEST_F(CpuTransfer, ACopyThatDidNotHappenIsNoticed) {
  for (const Direction direction : kDirections) {
    const CopyKind kind{.direction = direction, .bytes = 4096};
    for (const int copy : {0, 9}) {
      device_.lose = copy;
      EXPECT_NE(error_of(kind, {.samples = 10}), "") << copy;
    }
    // In the second lap the place still has what an earlier copy brought.
    device_.lose = 28;
    EXPECT_NE(error_of(kind, {.samples = 30}), "");
    device_.lose = -1;
    EXPECT_EQ(error_of(kind, {.samples = 30}), "");
  }
}

TEST_F(CpuTransfer, DestinationsHoldSomethingElseBefore) {
  // The second measurement would find what the first one brought.
  TransferMemory memory(device_, HostMemory::kPinned, 4096);
  for (const Direction direction : kDirections) {
    const CopyKind kind{.direction = direction, .bytes = 4096};
    measure_copies(device_, memory, kind, {.samples = 1});
    device_.copies = 0;
    device_.lose = 0;
    EXPECT_THROW(measure_copies(device_, memory, kind, {.samples = 1}), Error);
    device_.lose = -1;
  }
}

TEST_F(CpuTransfer, EveryPlaceIsCopiedBeforeTheFirstOneAgain) {
  TransferMemory memory(device_, HostMemory::kPinned, 16 * 4096);
  std::vector<const std::byte*> sources;
  CopyKind kind{.bytes = 4096};
  kind.mode = CopyMode::kBlocking;
  kind.by = [&](Stream& stream, std::byte* to, const std::byte* from) {
    sources.push_back(from);
    device_.copy(stream, kind.direction, to, from, kind.bytes, kind.memory, kind.mode);
  };
  measure_copies(device_, memory, kind, {.samples = 10});
  measure_copies(device_, memory, kind, {.samples = 6});
  EXPECT_EQ(std::set(sources.begin(), sources.end()).size(), 16u);
}

TEST_F(CpuTransfer, OfAnotherWayToCopyTheResultIsCheckedToo) {
  CopyKind kind{.memory = HostMemory::kPageable, .bytes = 4096};
  kind.by = [&](Stream&, std::byte* to, const std::byte* from) {
    std::copy_n(from, kind.bytes - 1, to);
  };
  EXPECT_NE(error_of(kind, {.samples = 2}), "");
}

TEST_F(CpuTransfer, ACopyThatDoesNotFitIsAnError) {
  EXPECT_THAT(error_of({.bytes = memory_bytes_ + 8}, {}), HasSubstr("does not fit"));
  EXPECT_THAT(error_of({.bytes = 12}, {}), HasSubstr("12 bytes does not fit"));
  EXPECT_NE(error_of({.bytes = 0}, {}), "");
}

TEST_F(CpuTransfer, AnInterruptedMeasurementLeavesEverythingUsable) {
  TransferMemory memory(device_, HostMemory::kPinned, 4 * kMiB);
  TransferMemory other(device_, HostMemory::kPinned, 4 * kMiB);
  const Sampling stopped{.warmup = 2, .samples = 4, .done = [](int done) {
                           if (done == 2) {
                             throw Interrupted();
                           }
                         }};
  for (const CopyMode mode : kModes) {
    const CopyKind kind{.mode = mode, .bytes = kMiB};
    EXPECT_THROW(measure_copies(device_, memory, kind, stopped), Interrupted);
    EXPECT_EQ(measure_copies(device_, memory, kind, {.samples = 3}).size(), 3u);
  }
  EXPECT_THROW(measure_both(device_, memory, other, 4096, 2, stopped), Interrupted);
  EXPECT_THROW(measure_host_cost(device_, memory, {.bytes = 4096}, 1'000'000, stopped),
               Interrupted);
}

TEST_F(CpuTransfer, BothDirectionsRunAndAreChecked) {
  TransferMemory h2d(device_, HostMemory::kPinned, 4 * kMiB);
  TransferMemory d2h(device_, HostMemory::kPinned, 4 * kMiB);
  const Sampling sampling{.warmup = 1, .samples = 4};
  EXPECT_EQ(measure_both(device_, h2d, d2h, 64 * 1024, 3, sampling).size(), 4u);
  device_.copies = 0;
  device_.flip_in = 22;  // of the second direction's
  EXPECT_THROW(measure_both(device_, h2d, d2h, 64 * 1024, 3, sampling), Error);
}

// Threads that share cores need not run side by side; that is then said and is no other error.
TEST_F(CpuTransfer, OneDirectionIsTimedOnlyWhileTheOtherOneRuns) {
  TransferMemory memory(device_, HostMemory::kPinned, 4 * kMiB);
  TransferMemory other(device_, HostMemory::kPinned, 4 * kMiB);
  for (const Direction timed : kDirections) {
    try {
      const auto samples =
          measure_while_other(device_, memory, other, timed, kMiB, {.warmup = 1, .samples = 4});
      EXPECT_EQ(samples.timed_s.size(), 4u);
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("copies ended before the measured ones"));
    }
  }
  device_.lose = 8;  // the last measured one
  device_.copies = 0;
  EXPECT_THROW(measure_while_other(device_, memory, other, Direction::kH2d, kMiB,
                                   {.warmup = 1, .samples = 2}),
               Error);
}

TEST_F(CpuTransfer, EarlierWorkIsTimedByEvents) {
  TransferMemory memory(device_, HostMemory::kPinned, 4 * kMiB);
  const HostCost cost =
      measure_host_cost(device_, memory, {.bytes = 4096}, 2'000'000, {.warmup = 1, .samples = 3});
  ASSERT_EQ(cost.busy_s.size(), 3u);
  EXPECT_GE(*std::min_element(cost.busy_s.begin(), cost.busy_s.end()), 2e-3);
}

}  // namespace
}  // namespace feedrate
