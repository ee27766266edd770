#include "feedrate/overlap.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "device_sim.hpp"
#include "faulty_device.hpp"
#include "feedrate/error.hpp"
#include "feedrate/profile.hpp"
#include "recording_device.hpp"

namespace feedrate {
namespace {

using testing::ElementsAreArray;

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr double kExact = 1e-6;

// A copy takes 10 ms a MiB.
Profile profile() {
  Profile profile = parse_profile(std::string(builtin_profiles().front().json), "test");
  profile.copy_pinned.ms = 10.0 * static_cast<double>(profile.shape.bytes()) / kMiB;
  return profile;
}

TEST(OverlapEfficiency, IsOneAtTheLongerAndNoneAtTheSum) {
  EXPECT_DOUBLE_EQ(overlap_efficiency(2, 5, 5), 1);
  EXPECT_DOUBLE_EQ(overlap_efficiency(5, 2, 5), 1);
  EXPECT_DOUBLE_EQ(overlap_efficiency(2, 5, 7), 0);
  EXPECT_DOUBLE_EQ(overlap_efficiency(2, 5, 6), 0.5);
  EXPECT_LT(overlap_efficiency(2, 5, 8), 0);
}

class SimOverlap : public testing::Test {
 protected:
  OverlapPipeline::Work spin(double ms) {
    return [this, ms](Stream& stream, std::byte*) { device_.busy(stream, std::llround(ms * 1e6)); };
  }

  SimDevice device_{profile(), "test"};
  OverlapPipeline pipeline_{device_, kMiB};
  const Sampling sampling_{.warmup = 3, .samples = 10};
};

TEST_F(SimOverlap, AloneEachTakesItsOwnTime) {
  EXPECT_NEAR(pipeline_.copy_alone(sampling_).turn_s, 10e-3, 1e-8);
  EXPECT_NEAR(pipeline_.work_alone(spin(4), sampling_).turn_s, 4e-3, 1e-8);
  EXPECT_EQ(pipeline_.copy_alone(sampling_).turns_s.size(), 10u);
}

TEST_F(SimOverlap, TwoStreamsHideTheShorterAndOneStreamNothing) {
  for (const double ratio : {0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0}) {
    const auto work = spin(10 / ratio);
    const double copy_s = pipeline_.copy_alone(sampling_).turn_s;
    const double work_s = pipeline_.work_alone(work, sampling_).turn_s;
    EXPECT_NEAR(copy_s / work_s, ratio, kExact * ratio);
    EXPECT_NEAR(overlap_efficiency(copy_s, work_s, pipeline_.both(work, true, sampling_).turn_s), 1,
                kExact);
    EXPECT_NEAR(overlap_efficiency(copy_s, work_s, pipeline_.both(work, false, sampling_).turn_s),
                0, kExact);
  }
}

TEST_F(SimOverlap, ChunksAndRepeatsAddUp) {
  for (const int chunks : {1, 3, 4, 64}) {
    pipeline_.set_amount({.bytes = kMiB, .chunks = chunks});
    EXPECT_EQ(pipeline_.copies_a_turn(), chunks);
    EXPECT_NEAR(pipeline_.copy_alone(sampling_).turn_s, 10e-3, chunks * 1e-9);
  }
  pipeline_.set_amount({.bytes = 2 * kMiB + kMiB / 2, .chunks = 1});
  EXPECT_EQ(pipeline_.copies_a_turn(), 3);
  EXPECT_NEAR(pipeline_.copy_alone(sampling_).turn_s, 25e-3, 1e-8);
  pipeline_.set_amount({.bytes = kMiB / 4});
  EXPECT_EQ(pipeline_.copies_a_turn(), 1);
  EXPECT_NEAR(pipeline_.copy_alone(sampling_).turn_s, 2.5e-3, 1e-8);
  EXPECT_THROW(pipeline_.set_amount({.bytes = 0}), Error);
  EXPECT_THROW(pipeline_.set_amount({.bytes = 8, .chunks = 0}), Error);
}

TEST_F(SimOverlap, ASpinIsAsLongAsItIsWanted) {
  EXPECT_EQ(calibrated_spin(pipeline_, device_, 7e-3), 7'000'000);
}

TEST_F(SimOverlap, TellsHowFarItIs) {
  std::vector<int> told;
  pipeline_.both(spin(1), true,
                 {.warmup = 1, .samples = 2, .done = [&](int done) { told.push_back(done); }});
  EXPECT_THAT(told, testing::ElementsAre(0, 1, 2, 3));
}

std::vector<std::string> log_of(bool two_streams) {
  RecordingDevice device;
  OverlapPipeline pipeline(device, 16);
  device.log.clear();
  pipeline.both([&](Stream& stream, std::byte*) { device.busy(stream, 1); }, two_streams,
                {.warmup = 1, .samples = 1});
  return device.log;
}

TEST(OverlapOrder, ACopyWaitsForTheWorkTwoTurnsAgoAndWorkForItsCopy) {
  const std::vector<std::string> expected{
      "copy:copy:blocking", "copy:copy:blocking",                                  // other contents
      "copy:copy",          "wait:compute",       "busy:compute",                  // turn 0
      "copy:copy",          "wait:compute",       "busy:compute",                  // turn 1
      "wait:copy",          "copy:copy",          "wait:compute", "busy:compute",  // turn 2
      "sync:copy",          "sync:compute",                                        //
      "copy:copy:blocking", "copy:copy:blocking"};                                 // checked
  EXPECT_THAT(log_of(true), ElementsAreArray(expected));
}

TEST(OverlapOrder, OnOneStreamAllIsOnIt) {
  for (const std::string& entry : log_of(false)) {
    if (!entry.ends_with("blocking") && entry != "sync:copy") {
      EXPECT_TRUE(entry.ends_with(":compute")) << entry;
    }
  }
}

class CpuOverlap : public testing::Test {
 protected:
  FaultyDevice device_{make_device({cpu_device()}, "cpu")};
  OverlapPipeline pipeline_{device_, 64 * 1024};
};

TEST_F(CpuOverlap, WorkFindsInItsSlotWhatWasCopied) {
  int runs = 0;
  int wrong = 0;
  const std::span<std::byte> batch = pipeline_.batch();
  const OverlapPipeline::Work work = [&](Stream& stream, std::byte* slot) {
    device_.enqueue(stream, Stage::kCompute, {}, [&, slot] {
      ++runs;
      wrong += std::memcmp(slot, batch.data(), batch.size()) == 0 ? 0 : 1;
      std::memset(slot, 0, batch.size());  // so that the next turn needs its own copy
    });
  };
  // What work leaves behind is not what was copied, and the check at the end says so.
  EXPECT_THROW(pipeline_.both(work, true, {.warmup = 2, .samples = 30}), Error);
  EXPECT_EQ(runs, 33);
  EXPECT_EQ(wrong, 0);
}

TEST_F(CpuOverlap, ACopyThatGoesWrongIsNoticed) {
  const OverlapPipeline::Work work = [&](Stream& stream, std::byte*) { device_.busy(stream, 1); };
  const Sampling sampling{.warmup = 1, .samples = 2};  // four turns
  EXPECT_NO_THROW(pipeline_.both(work, true, sampling));
  for (const int copy : {2, 3}) {
    device_.copies = 0;
    device_.flip_in = copy;
    EXPECT_THROW(pipeline_.both(work, true, sampling), Error);
  }
}

TEST_F(CpuOverlap, AnInterruptedRunLeavesEverythingUsable) {
  const OverlapPipeline::Work work = [&](Stream& stream, std::byte*) {
    device_.busy(stream, 1'000'000);
  };
  EXPECT_THROW(pipeline_.both(work, true,
                              {.samples = 8,
                               .done =
                                   [](int done) {
                                     if (done == 4) {
                                       throw Interrupted();
                                     }
                                   }}),
               Interrupted);
  EXPECT_EQ(pipeline_.both(work, true, {.samples = 4}).turns_s.size(), 4u);
}

}  // namespace
}  // namespace feedrate
