#include "feedrate/schedule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "feedrate/error.hpp"
#include "recording_device.hpp"

namespace feedrate {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

// Batches of one byte's value each. Writes into the device's log when it is asked for one.
class CountingSource final : public Source, public LeaseHome {
 public:
  explicit CountingSource(RecordingDevice& device, const BatchShape& shape)
      : device_(device), memory_(shape.bytes()), shape_(shape) {}

  HostBatch next() override {
    const std::int64_t n = next_++;
    device_.note("fetch" + std::to_string(n));
    std::fill(memory_.begin(), memory_.end(), static_cast<std::byte>(n));
    HostBatch batch;
    batch.index = n + skip;
    batch.images = std::span(memory_).first(shape_.images_bytes());
    batch.labels = std::span(memory_).subspan(shape_.images_bytes());
    batch.fingerprint = static_cast<std::uint64_t>(n);
    batch.lease = Lease(*this, static_cast<int>(n), memory_);
    ++out;
    return batch;
  }
  void give_back(int slot) noexcept override {
    device_.log.push_back("release" + std::to_string(slot));
    --out;
  }
  void give_back_after(int slot, Stream& /*stream*/) override {
    device_.note("release" + std::to_string(slot) + ":after");
    --out;
  }

  int out = 0;
  std::int64_t skip = 0;

 private:
  RecordingDevice& device_;
  std::vector<std::byte> memory_;
  BatchShape shape_;
  std::int64_t next_ = 0;
};

class RangeCounter final : public Trace {
 public:
  void push(TraceRange range, std::int64_t step) override {
    open_.push_back(range);
    names.push_back(std::to_string(open_.size()) + ":" + std::to_string(static_cast<int>(range)) +
                    ":" + std::to_string(step));
  }
  void pop() override { open_.pop_back(); }
  std::uint64_t start(TraceRange range, std::int64_t /*step*/) override {
    EXPECT_EQ(range, TraceRange::kCompute);
    running_.insert(++id_);
    return id_;
  }
  void end(std::uint64_t id) override { EXPECT_EQ(running_.erase(id), 1U); }

  bool balanced() const { return open_.empty() && running_.empty(); }
  std::uint64_t computes() const { return id_; }
  std::vector<std::string> names;

 private:
  std::vector<TraceRange> open_;
  std::set<std::uint64_t> running_;
  std::uint64_t id_ = 0;
};

Spec small(ScheduleKind schedule) {
  return {.batch = 1,
          .image = 32,
          .copy = CopyMode::kAsync,
          .schedule = schedule,
          .step = StepKind::kNull,
          .warmup = 1,
          .steps = 2,
          .cooldown = 0};
}

struct Outcome {
  Timeline timeline;
  std::vector<std::string> log;
};

Outcome run_recorded(const Spec& spec) {
  RecordingDevice device;
  Outcome outcome;
  {
    CountingSource source(device, spec.shape());
    RangeCounter trace;
    const auto step = make_null_step();
    outcome.timeline =
        run(spec, {.device = device, .source = &source, .step = *step, .trace = trace});
    EXPECT_EQ(source.out, 0);
    EXPECT_TRUE(trace.balanced());
    EXPECT_EQ(trace.computes(), outcome.timeline.steps.size());
  }
  EXPECT_EQ(device.live_handles, 0);
  EXPECT_EQ(device.live_buffers, 0);
  outcome.log = device.log;
  return outcome;
}

TEST(Schedule, SerialDoesOneThingAfterTheOtherOnOneStream) {
  auto spec = small(ScheduleKind::kSerial);
  spec.copy = CopyMode::kBlocking;
  EXPECT_THAT(run_recorded(spec).log,
              ElementsAre("fetch0", "copy:compute:blocking", "release0", "step0:compute",  //
                          "fetch1", "sync-event", "copy:compute:blocking", "release1",
                          "step1:compute",  //
                          "fetch2", "sync-event", "copy:compute:blocking", "release2",
                          "step2:compute",  //
                          "sync:compute", "sync:compute"));
}

TEST(Schedule, OnOneStreamBlocksComeFromIt) {
  auto spec = small(ScheduleKind::kSerial);
  spec.guard = Guard::kNone;
  EXPECT_THAT(run_recorded(spec).log,
              ElementsAre("fetch0", "alloc:compute", "copy:compute", "release0:after",
                          "step0:compute",  //
                          "fetch1", "alloc:compute", "copy:compute", "release1:after", "drop",
                          "step1:compute",  //
                          "fetch2", "alloc:compute", "copy:compute", "release2:after", "drop",
                          "step2:compute",  //
                          "sync:compute", "sync:compute", "drop"));
}

// Launches step n, then fetches and copies n + 1; from the third copy on a slot is used again.
const std::vector<std::string> kLaunchFirst{
    "fetch0",         "copy:copy",                         // batch 0 ahead of the loop
    "release0:after",                                      //
    "wait:compute",   "step0:compute",                     //
    "fetch1",         "copy:copy",      "release1:after",  //
    "wait:compute",   "step1:compute",                     //
    "fetch2",         "sync-event",     "wait:copy",       // slot 0: host, then device side
    "copy:copy",      "release2:after",                    //
    "wait:compute",   "step2:compute",                     //
    "sync:copy",      "sync:compute"};

// Fetches and copies n + 1, then launches step n.
const std::vector<std::string> kPopFirst{"fetch0",         "copy:copy",     "release0:after",  //
                                         "fetch1",         "copy:copy",     "release1:after",
                                         "wait:compute",   "step0:compute", "fetch2",
                                         "sync-event",     "wait:copy",     "copy:copy",
                                         "release2:after", "wait:compute",  "step1:compute",  //
                                         "wait:compute",   "step2:compute",                   //
                                         "sync:copy",      "sync:compute"};

class Overlapped : public testing::TestWithParam<ScheduleKind> {};

TEST_P(Overlapped, LaunchesThenLoadsTheNextBatch) {
  EXPECT_THAT(run_recorded(small(GetParam())).log, ElementsAreArray(kLaunchFirst));
}

TEST_P(Overlapped, PopFirstLoadsTheNextBatchThenLaunches) {
  auto spec = small(GetParam());
  spec.pop_first = true;
  EXPECT_THAT(run_recorded(spec).log, ElementsAreArray(kPopFirst));
}

// The host waits for nothing, and drops step n - 1's block right before it launches step n.
TEST_P(Overlapped, WithoutSlotsTheLoopDropsABlockWhenItBindsTheNextOne) {
  auto spec = small(GetParam());
  spec.guard = Guard::kRecord;
  const std::vector<std::string> recorded{"fetch0",
                                          "alloc:copy",
                                          "copy:copy",
                                          "release0:after",  //
                                          "wait:compute",
                                          "step0:compute",
                                          "record_stream:compute",  //
                                          "fetch1",
                                          "alloc:copy",
                                          "copy:copy",
                                          "release1:after",  //
                                          "drop",
                                          "wait:compute",
                                          "step1:compute",
                                          "record_stream:compute",  //
                                          "fetch2",
                                          "alloc:copy",
                                          "copy:copy",
                                          "release2:after",  //
                                          "drop",
                                          "wait:compute",
                                          "step2:compute",
                                          "record_stream:compute",  //
                                          "sync:copy",
                                          "sync:compute",
                                          "drop"};
  EXPECT_THAT(run_recorded(spec).log, ElementsAreArray(recorded));

  spec.guard = Guard::kNone;
  auto unrecorded = recorded;
  std::erase(unrecorded, "record_stream:compute");
  EXPECT_THAT(run_recorded(spec).log, ElementsAreArray(unrecorded));
}

TEST_P(Overlapped, PopFirstHoldsThreeBlocks) {
  auto spec = small(GetParam());
  spec.guard = Guard::kNone;
  spec.pop_first = true;
  EXPECT_THAT(run_recorded(spec).log,
              ElementsAre("fetch0", "alloc:copy", "copy:copy", "release0:after",  //
                          "fetch1", "alloc:copy", "copy:copy", "release1:after",  //
                          "wait:compute", "step0:compute",                        //
                          "fetch2", "alloc:copy", "copy:copy", "release2:after",  //
                          "drop", "wait:compute", "step1:compute",                //
                          "drop", "wait:compute", "step2:compute",                //
                          "sync:copy", "sync:compute", "drop"));
}

INSTANTIATE_TEST_SUITE_P(Schedule, Overlapped,
                         testing::Values(ScheduleKind::kTwoStreams, ScheduleKind::kPrefetcher),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

class EverySchedule : public testing::TestWithParam<ScheduleKind> {};

TEST_P(EverySchedule, UsesEachBatchOnceAndInOrder) {
  auto spec = small(GetParam());
  spec.warmup = 3;
  spec.steps = 7;
  spec.cooldown = 2;
  const auto timeline = run_recorded(spec).timeline;
  ASSERT_EQ(timeline.steps.size(), 12U);
  EXPECT_EQ(timeline.first, 3);
  EXPECT_EQ(timeline.count, 7);
  for (std::size_t n = 0; n < timeline.steps.size(); ++n) {
    const auto& step = timeline.steps[n];
    EXPECT_EQ(step.index, static_cast<std::int64_t>(n));
    EXPECT_EQ(step.fingerprint_made, n);
    EXPECT_EQ(step.fingerprint_used, n);
    EXPECT_EQ(step.bytes, spec.shape().bytes());
    EXPECT_LE(step.fetch.end, step.submit.begin);
    EXPECT_LE(step.submit.end, step.launch.begin);
    EXPECT_LE(step.copy.end, step.compute.begin);
    EXPECT_LE(step.compute.begin, step.step_end);
    EXPECT_LE(step.step_end, step.compute.end);
  }
  EXPECT_EQ(timeline.window.begin, timeline.steps[2].compute.end);
  EXPECT_EQ(timeline.window.end, timeline.steps[9].compute.end);
}

TEST_P(EverySchedule, ThePublishedWindowIsSynchronisedOnBothSides) {
  auto spec = small(GetParam());
  spec.window = Window::kPublished;
  spec.cooldown = 1;
  const auto outcome = run_recorded(spec);
  std::vector<std::string> around;
  for (const auto& entry : outcome.log) {
    if (entry.starts_with("step") || entry == "sync:compute") {
      around.push_back(entry);
    }
  }
  around.erase(std::unique(around.begin(), around.end()), around.end());
  EXPECT_THAT(around, ElementsAre("step0:compute", "sync:compute", "step1:compute", "step2:compute",
                                  "sync:compute", "step3:compute", "sync:compute"));
  const auto& steps = outcome.timeline.steps;
  EXPECT_GT(outcome.timeline.window.begin, steps[0].compute.end);
  EXPECT_LT(outcome.timeline.window.begin, steps[1].compute.begin);
  EXPECT_GT(outcome.timeline.window.end, steps[2].compute.end);
  EXPECT_LT(outcome.timeline.window.end, steps[3].compute.begin);
}

TEST_P(EverySchedule, SynchronisesEveryKSteps) {
  auto spec = small(GetParam());
  spec.sync_every = 2;
  spec.warmup = 0;
  spec.steps = 4;
  const auto timeline = run_recorded(spec).timeline;
  EXPECT_EQ(timeline.steps[0].sync.length(), 0);
  EXPECT_GT(timeline.steps[1].sync.length(), 0);
  EXPECT_EQ(timeline.steps[2].sync.length(), 0);
  EXPECT_GT(timeline.steps[3].sync.length(), 0);
}

TEST_P(EverySchedule, AForcedLagIsTheBeginOfTheStep) {
  auto spec = small(GetParam());
  spec.lag_ms = 7;
  auto log = run_recorded(spec).log;
  std::erase_if(log, [](const auto& entry) {
    return !entry.starts_with("busy") && !entry.starts_with("step");
  });
  EXPECT_THAT(log, ElementsAre("busy:compute", "step0:compute", "busy:compute", "step1:compute",
                               "busy:compute", "step2:compute"));
}

TEST_P(EverySchedule, ARecordingBracketsJustTheMeasuredSteps) {
  auto spec = small(GetParam());
  spec.cooldown = 1;
  RecordingDevice device;
  CountingSource source(device, spec.shape());
  Trace trace;
  const auto step = make_null_step();
  const auto timeline = run(
      spec,
      {.device = device, .source = &source, .step = *step, .trace = trace, .record = [&](bool on) {
         device.profiler(on);
       }});
  // Starting a profiler takes long: the window begins behind it.
  EXPECT_GT(timeline.window.begin, timeline.steps[0].compute.end);
  EXPECT_LT(timeline.window.begin, timeline.steps[1].launch.begin);
  EXPECT_GT(timeline.window.end, timeline.steps[2].compute.end);
  EXPECT_LT(timeline.window.end, timeline.steps[3].launch.begin);
  std::vector<std::string> around;
  for (const auto& entry : device.log) {
    if (entry.starts_with("step") || entry.starts_with("profiler")) {
      around.push_back(entry);
    }
  }
  EXPECT_THAT(around, ElementsAre("step0:compute", "profiler-on", "step1:compute", "step2:compute",
                                  "profiler-off", "step3:compute"));
}

TEST_P(EverySchedule, ARecordingEndsWithTheErrorThatEndsTheRun) {
  const auto spec = small(GetParam());
  RecordingDevice device;
  device.fail_at = "step1:compute";
  CountingSource source(device, spec.shape());
  Trace trace;
  const auto step = make_null_step();
  std::vector<bool> told;
  EXPECT_ANY_THROW(run(
      spec,
      {.device = device, .source = &source, .step = *step, .trace = trace, .record = [&](bool on) {
         told.push_back(on);
       }}));
  EXPECT_THAT(told, ElementsAre(true, false));
}

TEST_P(EverySchedule, AnErrorLeavesNothingBehind) {
  auto spec = small(GetParam());
  for (const auto& guard : choices<Guard>()) {
    SCOPED_TRACE(guard.name);
    spec.guard = guard.value;
    const auto whole = run_recorded(spec).log;
    int tried = 0;
    for (const std::string entry :
         {"fetch2", "copy:copy", "copy:compute", "step1:compute", "wait:compute", "release1:after",
          "alloc:copy", "alloc:compute", "record_stream:compute"}) {
      if (std::find(whole.begin(), whole.end(), entry) == whole.end()) {
        continue;  // another schedule's
      }
      ++tried;
      RecordingDevice device;
      device.fail_at = entry;
      {
        CountingSource source(device, spec.shape());
        RangeCounter trace;
        const auto step = make_null_step();
        const RunParts parts{.device = device, .source = &source, .step = *step, .trace = trace};
        EXPECT_THROW(run(spec, parts), DeviceError) << entry;
        EXPECT_NE(std::find(device.log.begin(), device.log.end(), "sync:compute"), device.log.end())
            << entry;
        EXPECT_TRUE(trace.balanced()) << entry;
      }
      EXPECT_EQ(device.live_handles, 0) << entry;
      EXPECT_EQ(device.live_buffers, 0) << entry;
    }
    EXPECT_GE(tried, 4);
  }
}

TEST_P(EverySchedule, StopsAtTheNextStep) {
  auto spec = small(GetParam());
  spec.steps = 1000;
  RecordingDevice device;
  CountingSource source(device, spec.shape());
  Trace trace;
  const auto step = make_null_step();
  std::atomic<bool> stop = false;
  int launched = 0;
  EXPECT_THROW(run(spec, {.device = device,
                          .source = &source,
                          .step = *step,
                          .trace = trace,
                          .stop = &stop,
                          .progress =
                              [&](int done, int total) {
                                EXPECT_EQ(total, 1001);
                                launched = done;
                                stop = done == 5;
                              }}),
               Interrupted);
  EXPECT_EQ(launched, 5);
  EXPECT_EQ(source.out, 0);
}

TEST_P(EverySchedule, RefusesABatchOutOfTurn) {
  const auto spec = small(GetParam());
  RecordingDevice device;
  CountingSource source(device, spec.shape());
  source.skip = 1;
  Trace trace;
  const auto step = make_null_step();
  EXPECT_THROW(run(spec, {.device = device, .source = &source, .step = *step, .trace = trace}),
               LoaderError);
}

INSTANTIATE_TEST_SUITE_P(Schedule, EverySchedule,
                         testing::Values(ScheduleKind::kSerial, ScheduleKind::kTwoStreams,
                                         ScheduleKind::kPrefetcher),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

TEST(Resident, TrainsOnOneBatchAndCopiesNothing) {
  auto spec = small(ScheduleKind::kSerial);
  RecordingDevice device;
  const Buffer memory = device.device_buffer(spec.shape().bytes());
  memory.data()[0] = std::byte{42};
  Trace trace;
  const auto step = make_null_step();
  const auto timeline = run_resident(
      spec, {.device = device, .source = nullptr, .step = *step, .trace = trace},
      {memory.data(), memory.data() + spec.shape().images_bytes(), spec.shape(), 0}, 42);
  EXPECT_THAT(device.log, ElementsAre("step0:compute", "step0:compute", "step0:compute",
                                      "sync:compute", "sync:compute"));
  for (const auto& record : timeline.steps) {
    EXPECT_EQ(record.copy.length(), 0);
    EXPECT_EQ(record.bytes, 0U);
    EXPECT_EQ(record.fingerprint_used, 42U);
    EXPECT_EQ(record.fingerprint_made, 42U);
  }
}

}  // namespace
}  // namespace feedrate
