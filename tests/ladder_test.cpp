// The published ladder on the simulated device, through the very loop that real devices run,
// against the formulas that the model promises (T, the steady time of a step).

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <ostream>
#include <string>

#include "on_sim.hpp"
#include "rungs.hpp"

namespace feedrate {
namespace {

constexpr int kWorkers = 8;

Spec spec_of(const std::string& name) {
  Spec spec = rung(name);
  spec.workers = kWorkers;
  return spec;
}

// F one producer's time for a batch, W workers, g hand-off, Hp blocking copy from pageable memory,
// U giving a fresh batch's memory back, P copy into pinned memory, H copy from pinned memory, C
// compute and check, L host launch of a step.
double steady_ms(const std::string& rung, const Profile& p) {
  const double F = p.make.ms, W = kWorkers, g = p.handoff.ms, Hp = p.copy_pageable.ms, P = p.pin.ms,
               H = p.copy_pinned.ms, C = p.compute.ms + p.check.ms, L = p.launch.ms;
  const double share = F * std::max(1.0, W / p.cores) / W;
  if (rung == "baseline") {
    return std::max(C, L + F) + Hp + p.release_private.ms;
  }
  const double U = p.release_shared.ms;
  if (rung == "workers") {
    return std::max(share, std::max(C, L + g) + Hp + U);
  }
  if (rung == "pinned") {
    return std::max({share, P + U, L + g, H + C});
  }
  if (rung == "direct") {
    return std::max({share, L + g, H, C});
  }
  return std::max({share, P + U, L + g, H, C});
}

struct Case {
  std::string what;
  std::map<std::string, double> ms;  // by cost; the others are the L40S's
  int cores = kWorkers;

  Profile profile() const {
    Profile profile = l40s();
    profile.cores = cores;
    for (const auto& [key, cost, optional] : profile_costs()) {
      if (const auto found = ms.find(std::string(key)); found != ms.end()) {
        (profile.*cost).ms = found->second;
      }
    }
    return profile;
  }
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.what; }

class Ladder : public testing::TestWithParam<std::tuple<Case, std::string>> {
 protected:
  Profile profile() const { return std::get<0>(GetParam()).profile(); }
  std::string name() const { return std::get<1>(GetParam()); }
};

TEST_P(Ladder, TheSteadyRateIsTheModels) {
  SimDevice device(profile(), "test");
  Spec spec = spec_of(name());
  // Workers that bind hand out their batches in bursts of W: whole bursts, and many of them.
  spec.steps = 100 * kWorkers;
  const Timeline timeline = run_on(device, spec);
  const Report result = report(spec, timeline);
  const double expected = 1e3 / steady_ms(name(), profile());
  EXPECT_NEAR(counter(result, "steps_per_s"), expected, 0.01 * expected);
  EXPECT_EQ(counter(result, "bad_batches"), 0);
  EXPECT_EQ(timeline.steps.size(), static_cast<std::size_t>(10 + spec.steps + 1));
}

TEST_P(Ladder, TheSplitAddsUpToTheStep) {
  for (const Window window : {Window::kSteady, Window::kPublished}) {
    SimDevice device(profile(), "test");
    Spec spec = spec_of(name());
    spec.window = window;
    const Timeline timeline = run_on(device, spec);
    const Split split = split_of(timeline);
    const double step_ms = to_ms(timeline.window.length()) / timeline.count;
    EXPECT_NEAR(split.compute_ms + split.exposed_copy_ms + split.exposed_fetch_ms +
                    split.exposed_host_ms + split.other_ms,
                step_ms, 1e-9 * step_ms)
        << name_of(window);
  }
}

TEST_P(Ladder, ASecondRunGivesTheSameToTheLastDigit) {
  const Spec spec = spec_of(name());
  SimDevice device(profile(), "test");
  SimDevice other(profile(), "test");
  const Report first = report(spec, run_on(device, spec));
  for (Device* next : {&device, &other}) {
    const Report again = report(spec, run_on(*next, spec));
    EXPECT_EQ(again.label, first.label);
    ASSERT_EQ(again.counters.size(), first.counters.size());
    for (std::size_t i = 0; i < first.counters.size(); ++i) {
      EXPECT_EQ(again.counters[i].name, first.counters[i].name);
      EXPECT_EQ(again.counters[i].value, first.counters[i].value) << first.counters[i].name;
    }
  }
}

// Each stage is the one that binds in one of them.
const Case kCases[] = {
    {.what = "l40s", .ms = {}},
    {.what = "make", .ms = {{"make", 2000}}},
    {.what = "shared_cores", .ms = {{"make", 1000}}, .cores = 4},
    {.what = "pin", .ms = {{"pin", 170}}},
    {.what = "release", .ms = {{"release_shared", 200}, {"release_private", 190}}},
    {.what = "copy", .ms = {{"copy_pinned", 180}, {"copy_pageable", 250}}},
    {.what = "compute", .ms = {{"compute", 400}}},
    {.what = "launch", .ms = {{"launch", 200}, {"handoff", 5}}},
    {.what = "handoff", .ms = {{"compute", 40}, {"handoff", 150}}},
    {.what = "check", .ms = {{"check", 25}}},
};
const std::string kNames[] = {"baseline", "workers", "pinned", "streams", "prefetch", "direct"};

std::string case_name(const testing::TestParamInfo<Ladder::ParamType>& test) {
  return std::get<0>(test.param).what + "_" + std::get<1>(test.param);
}

INSTANTIATE_TEST_SUITE_P(Profiles, Ladder,
                         testing::Combine(testing::ValuesIn(kCases), testing::ValuesIn(kNames)),
                         case_name);

TEST(PublishedLadder, ThePublishedWindowGivesThePublishedRates) {
  const std::map<std::string, double> published = {{"baseline", 2.97},
                                                   {"workers", 4.81},
                                                   {"pinned", 5.91},
                                                   {"streams", 6.44},
                                                   {"prefetch", 6.44}};
  const auto device = make_device({sim_device()}, "sim:l40s");
  for (const auto& [name, steps_per_s] : published) {
    Spec spec = spec_of(name);
    spec.window = Window::kPublished;
    spec.steps = 3;
    const Report result = report(spec, run_on(*device, spec));
    EXPECT_NEAR(counter(result, "steps_per_s"), steps_per_s, 0.02 * steps_per_s) << name;
    EXPECT_EQ(counter(result, "bad_batches"), 0) << name;
  }
}

TEST(PublishedLadder, TheDefaultWindowGivesTheSteadyRates) {
  const auto device = make_device({sim_device()}, "sim:l40s");
  for (const std::string& name : kNames) {
    const Spec spec = spec_of(name);
    const double expected = 1e3 / steady_ms(name, l40s());
    EXPECT_NEAR(counter(report(spec, run_on(*device, spec)), "steps_per_s"), expected,
                0.01 * expected)
        << name;
  }
}

// The published window of the baseline ends with a compute that no next fetch overlaps.
TEST(PublishedLadder, ThePublishedWindowChargesTheBaselineAThirdOfALastCompute) {
  const auto device = make_device({sim_device()}, "sim:l40s");
  const Profile profile = l40s();
  for (const std::string& name : kNames) {
    Spec spec = spec_of(name);
    spec.window = Window::kPublished;
    spec.steps = 3;
    const double step_ms = 1e3 / counter(report(spec, run_on(*device, spec)), "steps_per_s");
    const double extra_ms =
        name == "baseline" ? (profile.compute.ms - profile.launch.ms) / spec.steps : 0;
    EXPECT_NEAR(step_ms, steady_ms(name, profile) + extra_ms, 0.01) << name;
  }
}

// A quarter of the bytes: all that moves them costs a quarter; the device makes floats of them.
TEST(BytesOnTheSimulatedL40s, CostAQuarterToMoveAndANormalisation) {
  SimDevice device(l40s(), "l40s");
  const Profile profile = l40s();
  const Spec spec = spec_of("direct_u8");
  const Report result = report(spec, run_on(device, spec));
  const double step_ms = std::max({profile.make_u8.ms / kWorkers, profile.launch.ms,
                                   profile.normalize.ms + profile.compute.ms});
  EXPECT_NEAR(counter(result, "steps_per_s"), 1e3 / step_ms, 1e-3 / step_ms);
  EXPECT_NEAR(counter(result, "normalize_ms"), profile.normalize.ms, 1e-6);
  EXPECT_NEAR(counter(result, "compute_ms"), step_ms, 1e-6);
  EXPECT_NEAR(counter(result, "make_ms"), profile.make_u8.ms, 1e-6);
  EXPECT_NEAR(counter(result, "copy_ms"), profile.copy_pinned.ms / 4, 1e-4);
  EXPECT_EQ(counter(result, "bad_batches"), 0);
}

TEST(BytesOnTheSimulatedL40s, AreTheSerialSchedulesExposedCopyToo) {
  SimDevice device(l40s(), "l40s");
  const Profile profile = l40s();
  Spec spec = spec_of("pinned");
  spec.dataset = DatasetKind::kNoiseU8;
  const Report result = report(spec, run_on(device, spec));
  EXPECT_NEAR(counter(result, "exposed_copy_ms"), profile.copy_pinned.ms / 4, 1e-4);
  EXPECT_NEAR(counter(result, "compute_ms"), profile.normalize.ms + profile.compute.ms, 1e-6);
  EXPECT_NEAR(counter(result, "step_p50_ms"),
              profile.normalize.ms + profile.compute.ms + profile.copy_pinned.ms / 4, 1e-4);
}
// --- The order of fetch and launch. Without synchronising it decides nothing.

class Order : public testing::TestWithParam<Case> {};

TEST_P(Order, OfFetchAndLaunchDecidesWhetherASynchronisedLoopHidesTheCopy) {
  const Profile p = GetParam().profile();
  const double g = p.handoff.ms, H = p.copy_pinned.ms, C = p.compute.ms + p.check.ms,
               L = p.launch.ms, step = std::max(L, C);
  const double fed = std::max(p.make.ms / kWorkers, p.pin.ms + p.release_shared.ms);
  for (const ScheduleKind schedule : {ScheduleKind::kTwoStreams, ScheduleKind::kPrefetcher}) {
    for (const bool pop_first : {false, true}) {
      for (const int sync_every : {0, 1}) {
        Spec spec = spec_of("prefetch");
        spec.schedule = schedule;
        spec.pop_first = pop_first;
        spec.sync_every = sync_every;
        SimDevice device(p, "test");
        const double T = sync_every == 0 ? std::max({fed, L + g, H, C})
                         : pop_first     ? std::max({fed, g + step, H})
                                         : std::max(fed, g + std::max(L, H + C));
        EXPECT_NEAR(1e3 / counter(report(spec, run_on(device, spec)), "steps_per_s"), T, 1e-6 * T)
            << name_of(schedule) << (pop_first ? ", pop first" : "") << ", sync " << sync_every;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Profiles, Order,
    testing::Values(Case{.what = "l40s", .ms = {}},
                    Case{.what = "copy", .ms = {{"copy_pinned", 100}, {"handoff", 5}}},
                    Case{.what = "launch", .ms = {{"launch", 200}}},
                    Case{.what = "check", .ms = {{"check", 25}, {"handoff", 3}}}),
    [](const auto& test) { return test.param.what; });

}  // namespace
}  // namespace feedrate
