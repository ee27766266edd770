#include "feedrate/report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace feedrate {
namespace {

constexpr TimeNs ms(double value) { return static_cast<TimeNs>(value * 1e6); }
constexpr Interval span_ms(double begin, double end) { return {ms(begin), ms(end)}; }

double counter(const Report& report, std::string_view name) {
  for (const auto& entry : report.counters) {
    if (entry.name == name) {
      return entry.value;
    }
  }
  ADD_FAILURE() << "no counter " << name;
  return std::nan("");
}

bool has_counter(const Report& report, std::string_view name) {
  for (const auto& entry : report.counters) {
    if (entry.name == name) {
      return true;
    }
  }
  return false;
}

// A warm-up step that ends at 0 and one measured step after it; the test fills in the second.
Timeline one_step() {
  Timeline timeline;
  timeline.steps.resize(2);
  timeline.steps[0].compute = span_ms(-50, 0);
  timeline.steps[0].launch = span_ms(-52, -49);
  timeline.first = 1;
  timeline.count = 1;
  return timeline;
}

void close_window(Timeline& timeline) {
  timeline.window = {
      timeline.steps[static_cast<std::size_t>(timeline.first) - 1].compute.end,
      timeline.steps[static_cast<std::size_t>(timeline.first + timeline.count) - 1].compute.end};
}

TEST(Split, ChargesTheBlockingLoopInTheOrderOfDependence) {
  // Fetch to 20, copy 20 to 35, release to 45, launch from 45 to 50, the step begins at 46.
  auto timeline = one_step();
  auto& step = timeline.steps[1];
  step.fetch = span_ms(-40, 20);
  step.submit = span_ms(20, 35);
  step.copy = span_ms(20, 35);
  step.release = span_ms(35, 45);
  step.launch = span_ms(45, 50);
  step.compute = span_ms(46, 146);
  close_window(timeline);
  const Split split = split_of(timeline);
  EXPECT_DOUBLE_EQ(split.exposed_fetch_ms, 20);
  EXPECT_DOUBLE_EQ(split.exposed_copy_ms, 15);
  EXPECT_DOUBLE_EQ(split.exposed_host_ms, 11);
  EXPECT_DOUBLE_EQ(split.other_ms, 0);
  EXPECT_DOUBLE_EQ(split.compute_ms, 100);
}

TEST(Split, ACopyThatRunsIsChargedBeforeAFetchAtTheSameTime) {
  // Popped first: the next batch is fetched while this one is still being copied, and after it.
  auto timeline = one_step();
  timeline.steps.resize(3);
  timeline.steps[1].fetch = span_ms(-30, -20);
  timeline.steps[1].copy = span_ms(-5, 10);
  timeline.steps[1].launch = span_ms(40, 41);
  timeline.steps[1].compute = span_ms(40, 140);
  timeline.steps[2].fetch = span_ms(0, 38);
  timeline.steps[2].compute = span_ms(140, 240);
  close_window(timeline);
  const Split split = split_of(timeline);
  EXPECT_DOUBLE_EQ(split.exposed_copy_ms, 10);
  EXPECT_DOUBLE_EQ(split.exposed_fetch_ms, 28);
  EXPECT_DOUBLE_EQ(split.exposed_host_ms, 2);
  EXPECT_DOUBLE_EQ(split.other_ms, 0);
}

TEST(Split, WhatWasLaunchedAndDoesNotRunIsOther) {
  auto timeline = one_step();
  timeline.steps[1].fetch = span_ms(-30, -20);
  timeline.steps[1].copy = span_ms(-20, -10);
  timeline.steps[1].launch = span_ms(-10, -8);
  timeline.steps[1].compute = span_ms(3, 103);
  close_window(timeline);
  EXPECT_DOUBLE_EQ(split_of(timeline).other_ms, 3);
}

TEST(Split, ThePublishedWindowsTailIsTheHosts) {
  auto timeline = one_step();
  timeline.steps[1].fetch = span_ms(0, 30);
  timeline.steps[1].launch = span_ms(30, 40);
  timeline.steps[1].compute = span_ms(30, 130);
  timeline.window = span_ms(0, 132);
  const Split split = split_of(timeline);
  EXPECT_DOUBLE_EQ(split.exposed_fetch_ms, 30);
  EXPECT_DOUBLE_EQ(split.compute_ms, 100);
  EXPECT_DOUBLE_EQ(split.exposed_host_ms, 2);
}

TEST(Split, AddsUpToTheWindowWhateverTheStampsAre) {
  // Stamps of a machine are not always in the order one thinks; the sum must hold all the same.
  std::uint64_t state = 7;
  const auto random = [&state](double upto) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<double>(state >> 40) / static_cast<double>(1 << 24) * upto;
  };
  for (int round = 0; round < 200; ++round) {
    Timeline timeline;
    timeline.steps.resize(8);
    double end = 0;
    for (auto& step : timeline.steps) {
      const auto any = [&] {
        const double begin = end - 20 + random(60);
        return span_ms(begin, begin + random(30));
      };
      step.fetch = any();
      step.submit = any();
      step.copy = any();
      step.launch = any();
      const double begin = end + random(20);
      end = begin + random(40);
      step.compute = span_ms(begin, end);
    }
    timeline.first = 2;
    timeline.count = 5;
    close_window(timeline);
    const Split split = split_of(timeline);
    EXPECT_NEAR(split.compute_ms + split.exposed_copy_ms + split.exposed_fetch_ms +
                    split.exposed_host_ms + split.other_ms,
                to_ms(timeline.window.length()) / timeline.count, 1e-9);
  }
}

// Four steps of 100 ms after one another, two of them measured, each with a copy of 40 ms of which
// 30 ms lie under the step before.
Timeline overlapping() {
  Timeline timeline;
  for (int n = 0; n < 4; ++n) {
    const double start = 110.0 * n;
    StepRecord step;
    step.index = n;
    step.copy = span_ms(start - 40, start);
    step.launch = span_ms(start - 5, start + (n == 0 ? 2 : 90));
    step.compute = span_ms(start, start + 100);
    step.step_end = ms(start + 99);
    step.made = span_ms(start - 400, start - 100);
    step.bytes = 8'000'000;
    step.fingerprint_made = step.fingerprint_used = static_cast<std::uint64_t>(n);
    timeline.steps.push_back(step);
  }
  timeline.first = 1;
  timeline.count = 2;
  close_window(timeline);
  return timeline;
}

TEST(Report, DerivesRatesFromTheWindow) {
  const Spec spec{.batch = 64, .loader = LoaderKind::kThreads, .workers = 4};
  const Report result = report(spec, overlapping());
  EXPECT_DOUBLE_EQ(result.window_s, 0.22);
  EXPECT_EQ(result.steps, 2);
  EXPECT_DOUBLE_EQ(counter(result, "steps_per_s"), 2 / 0.22);
  EXPECT_DOUBLE_EQ(counter(result, "images_per_s"), 128 / 0.22);
  EXPECT_DOUBLE_EQ(counter(result, "step_p50_ms"), 110);
  EXPECT_NEAR(counter(result, "h2d_GBps"), 16e-3 / 80e-3, 1e-12);
  EXPECT_NEAR(counter(result, "feed_GBps"), 16e-3 / 220e-3, 1e-12);
  EXPECT_DOUBLE_EQ(result.bytes, 16e6);
}

TEST(Report, OverlapIsTheShareOfTheCopyUnderCompute) {
  const Report result = report(Spec{.workers = 1}, overlapping());
  EXPECT_NEAR(counter(result, "overlap"), 0.75, 1e-12);
  EXPECT_NEAR(counter(result, "gpu_idle"), 0, 1e-12);
  EXPECT_DOUBLE_EQ(counter(result, "exposed_copy_ms"), 10);
}

TEST(Report, NamesTheTightestStage) {
  auto timeline = overlapping();
  // F / W = 300 / 4 = 75 ms < C = 100 ms.
  const Spec four{.loader = LoaderKind::kThreads, .workers = 4};
  EXPECT_EQ(report(four, timeline).label, "limit: compute");
  EXPECT_DOUBLE_EQ(counter(report(four, timeline), "limit_steps_per_s"), 10);
  EXPECT_NEAR(counter(report(four, timeline), "of_limit"), 100.0 / 110, 1e-12);
  const Spec two{.loader = LoaderKind::kThreads, .workers = 2};
  EXPECT_EQ(report(two, timeline).label, "limit: fetch");
  for (auto& step : timeline.steps) {
    step.pinned = span_ms(0, 200);
  }
  EXPECT_EQ(report(two, timeline).label, "limit: pin");
  for (auto& step : timeline.steps) {
    step.release = span_ms(0, 400);
  }
  EXPECT_EQ(report(two, timeline).label, "limit: host");
}

TEST(Report, OnlyASubmissionThatLetsTheHostGoOnIsTheHostsWork) {
  auto timeline = overlapping();
  for (auto& step : timeline.steps) {
    step.submit = span_ms(0, 40);
  }
  Spec spec;
  EXPECT_DOUBLE_EQ(counter(report(spec, timeline), "host_ms"), 7);
  spec.copy = CopyMode::kAsync;  // from pageable memory: by name only
  EXPECT_DOUBLE_EQ(counter(report(spec, timeline), "host_ms"), 7);
  spec.memory = HostMemory::kPinned;
  EXPECT_DOUBLE_EQ(counter(report(spec, timeline), "host_ms"), 7 + 40);
}

TEST(Report, TheLaunchIsTheShortestOne) {
  // The later ones wait for room in the device's queue.
  EXPECT_DOUBLE_EQ(counter(report(Spec{}, overlapping()), "launch_ms"), 7);
}

TEST(Report, CountsEveryBatchThatIsNotTheOneMade) {
  auto timeline = overlapping();
  timeline.steps[0].fingerprint_used = 99;  // also outside the window
  timeline.steps[2].fingerprint_used = 99;
  EXPECT_DOUBLE_EQ(counter(report(Spec{}, timeline), "bad_batches"), 2);
}

TEST(Report, ThePeakOfDeviceMemoryIsInDecimalGigabytes) {
  auto timeline = overlapping();
  timeline.peak_device_bytes = 402'654'208;
  EXPECT_DOUBLE_EQ(counter(report(Spec{}, timeline), "peak_device_GB"), 0.402654208);
}

TEST(Report, LeavesOutWhatMeansNothing) {
  auto timeline = overlapping();
  for (auto& step : timeline.steps) {
    step.bytes = 0;
    step.copy = {};
    step.made = {};
  }
  const Report result = report(Spec{}, timeline);
  for (const auto* name : {"h2d_GBps", "feed_GBps", "overlap", "copy_ms", "make_ms", "pin_ms"}) {
    EXPECT_FALSE(has_counter(result, name)) << name;
  }
  for (const auto& entry : result.counters) {
    EXPECT_TRUE(std::isfinite(entry.value)) << entry.name;
  }
  EXPECT_TRUE(has_counter(result, "steps_per_s"));
}

TEST(Report, CounterNamesAreUniqueAndExplained) {
  std::set<std::string_view> names;
  for (const auto& info : counter_infos()) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_FALSE(info.help.empty()) << info.name;
  }
  EXPECT_THAT(names,
              testing::IsSupersetOf({"steps_per_s", "images_per_s", "step_p50_ms", "step_p95_ms",
                                     "h2d_GBps", "feed_GBps", "compute_ms", "exposed_copy_ms",
                                     "exposed_fetch_ms", "exposed_host_ms", "other_ms", "overlap",
                                     "gpu_idle", "limit_steps_per_s", "of_limit", "bad_batches"}));
}

}  // namespace
}  // namespace feedrate
