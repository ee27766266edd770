// What keeps a batch whole while it is used, and that its absence is noticed: with guard none the
// published loop's steps train on batches that the next copies have overwritten.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <future>
#include <memory>
#include <numeric>
#include <vector>

#include "feedrate/dataset.hpp"
#include "on_sim.hpp"

namespace feedrate {
namespace {

using testing::ElementsAreArray;
using testing::IsEmpty;

std::vector<std::int64_t> bad_batches(const Timeline& timeline) {
  std::vector<std::int64_t> bad;
  for (const StepRecord& step : timeline.steps) {
    if (step.fingerprint_used != step.fingerprint_made) {
      bad.push_back(step.index);
    }
  }
  return bad;
}

// All but the last `whole`: there is no later copy into their memory.
std::vector<std::int64_t> all_but(const Timeline& timeline, std::size_t whole) {
  std::vector<std::int64_t> indices(timeline.steps.size() - whole);
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

// A loader that keeps up.
Spec spec_with(ScheduleKind schedule, Guard guard) {
  return {.dataset = DatasetKind::kReplay,
          .loader = LoaderKind::kThreads,
          .workers = 8,
          .memory = HostMemory::kPinned,
          .buffers = Buffers::kRing,
          .pinning = Pinning::kDirect,
          .copy = CopyMode::kAsync,
          .schedule = schedule,
          .guard = guard,
          .steps = 40};
}

constexpr ScheduleKind kOverlapped[] = {ScheduleKind::kTwoStreams, ScheduleKind::kPrefetcher};

// --- Simulated: exact.

TEST(GuardOnSim, WithoutOneEveryBatchIsOverwrittenThatHasASuccessorInItsMemory) {
  SimDevice device(l40s(), "l40s");
  for (const ScheduleKind schedule : kOverlapped) {
    for (const int lag_ms : {0, 50}) {
      Spec spec = spec_with(schedule, Guard::kNone);
      spec.lag_ms = lag_ms;
      const Timeline two_blocks = run_on(device, spec);
      EXPECT_THAT(bad_batches(two_blocks), ElementsAreArray(all_but(two_blocks, 2)));
      EXPECT_EQ(two_blocks.peak_device_bytes, 2 * spec.shape().bytes());
      spec.pop_first = true;
      const Timeline three_blocks = run_on(device, spec);
      EXPECT_THAT(bad_batches(three_blocks), ElementsAreArray(all_but(three_blocks, 3)));
      EXPECT_EQ(three_blocks.peak_device_bytes, 3 * spec.shape().bytes());
    }
  }
}

TEST(GuardOnSim, WithOneNoBatchIsBadAndTheRateIsTheSame) {
  SimDevice device(l40s(), "l40s");
  for (const ScheduleKind schedule : kOverlapped) {
    for (const bool pop_first : {false, true}) {
      for (const int lag_ms : {0, 50}) {
        for (const Guard guard : {Guard::kSlots, Guard::kRecord}) {
          Spec spec = spec_with(schedule, guard);
          spec.pop_first = pop_first;
          spec.lag_ms = lag_ms;
          const Timeline timeline = run_on(device, spec);
          EXPECT_THAT(bad_batches(timeline), IsEmpty()) << name_of(guard);
          EXPECT_EQ(timeline.window.length(), (155 + lag_ms) * TimeNs{1'000'000} * 40);
        }
      }
    }
  }
}

TEST(GuardOnSim, ARecordedBlockIsNotReusedWhileItIsReadSoMemoryGrows) {
  SimDevice device(l40s(), "l40s");
  Spec spec = spec_with(ScheduleKind::kTwoStreams, Guard::kSlots);
  EXPECT_EQ(run_on(device, spec).peak_device_bytes, 2 * spec.shape().bytes());
  spec.guard = Guard::kRecord;
  const Timeline timeline = run_on(device, spec);
  EXPECT_GT(timeline.peak_device_bytes, 3 * spec.shape().bytes());
  EXPECT_LT(timeline.peak_device_bytes, timeline.steps.size() * spec.shape().bytes());
  // Nothing of it is left.
  spec.guard = Guard::kSlots;
  EXPECT_EQ(run_on(device, spec).peak_device_bytes, 2 * spec.shape().bytes());
}

TEST(GuardOnSim, ALoopThatIsNeverAheadNeedsNone) {
  SimDevice device(l40s(), "l40s");
  for (const ScheduleKind schedule : kOverlapped) {
    for (const bool pop_first : {false, true}) {
      Spec spec = spec_with(schedule, Guard::kNone);
      spec.pop_first = pop_first;
      spec.sync_every = 1;
      EXPECT_THAT(bad_batches(run_on(device, spec)), IsEmpty()) << name_of(schedule);
    }
  }
}

TEST(GuardOnSim, OnOneStreamTheOrderOfTheStreamIsEnough) {
  SimDevice device(l40s(), "l40s");
  for (const auto& guard : choices<Guard>()) {
    EXPECT_THAT(bad_batches(run_on(device, spec_with(ScheduleKind::kSerial, guard.value))),
                IsEmpty())
        << guard.name;
  }
}

TEST(GuardOnSim, AForcedLagIsPartOfComputeAndTheSplitAddsUp) {
  SimDevice device(l40s(), "l40s");
  Spec spec = spec_with(ScheduleKind::kTwoStreams, Guard::kSlots);
  spec.lag_ms = 50;
  const Split split = split_of(run_on(device, spec));
  EXPECT_DOUBLE_EQ(split.compute_ms, 155 + 50);
  EXPECT_DOUBLE_EQ(
      split.exposed_copy_ms + split.exposed_fetch_ms + split.exposed_host_ms + split.other_ms, 0);
}

// --- On the cpu device: real copies by a real thread.

// Every batch has contents and memory of its own, so that only device memory is ever used twice.
// Remembers the copy stream.
class DistinctBatches final : public Source, private LeaseHome {
 public:
  DistinctBatches(const BatchShape& shape, int count) : shape_(shape) {
    for (int n = 0; n < count; ++n) {
      memory_.emplace_back(shape.bytes());
      std::memset(memory_.back().data(), n + 1, shape.images_bytes());
    }
  }

  HostBatch next() override {
    std::vector<std::byte>& memory = memory_.at(static_cast<std::size_t>(next_));
    HostBatch batch;
    batch.index = next_++;
    batch.images = std::span(memory).first(shape_.images_bytes());
    batch.labels = std::span(memory).subspan(shape_.images_bytes());
    batch.fingerprint = fingerprint_of(shape_, batch.images, batch.labels);
    batch.memory = HostMemory::kPinned;
    batch.lease = Lease(*this, 0, memory);
    return batch;
  }

  Stream* copy_stream = nullptr;

 private:
  void give_back(int /*slot*/) noexcept override {}
  void give_back_after(int /*slot*/, Stream& stream) override { copy_stream = &stream; }

  BatchShape shape_;
  std::vector<std::vector<std::byte>> memory_;
  std::int64_t next_ = 0;
};

// Its first step does not begin before it may.
class HeldStep final : public Step {
 public:
  explicit HeldStep(std::shared_future<void> begin) : begin_(std::move(begin)) {}
  void train(const DeviceBatch& /*batch*/) override { begin_.wait(); }
  void reset() override {}
  std::vector<float> losses() override { return {}; }

 private:
  std::shared_future<void> begin_;
};

// Steps begin when the loop has launched all of them and all batches are copied: no lag is longer.
Timeline run_far_ahead(Device& device, Spec spec) {
  spec.batch = 2;
  spec.image = 32;
  spec.warmup = 2;
  spec.steps = 8;
  device.prepare(spec);
  const int total = spec.warmup + spec.steps + spec.cooldown;
  DistinctBatches source(spec.shape(), total);
  std::promise<void> begin;
  HeldStep step(begin.get_future().share());
  Trace trace;
  return run(spec, {.device = device,
                    .source = &source,
                    .step = step,
                    .trace = trace,
                    .progress = [&](int done, int of) {
                      if (done == of) {
                        device.synchronize(*source.copy_stream);
                        begin.set_value();
                      }
                    }});
}

TEST(GuardOnCpu, WithoutOneEveryBatchIsOverwrittenThatHasASuccessorInItsMemory) {
  const auto device = make_device({cpu_device()}, "cpu");
  for (const ScheduleKind schedule : kOverlapped) {
    Spec spec = spec_with(schedule, Guard::kNone);
    const Timeline two_blocks = run_far_ahead(*device, spec);
    EXPECT_THAT(bad_batches(two_blocks), ElementsAreArray(all_but(two_blocks, 2)));
    spec.pop_first = true;
    const Timeline three_blocks = run_far_ahead(*device, spec);
    EXPECT_THAT(bad_batches(three_blocks), ElementsAreArray(all_but(three_blocks, 3)));
  }
}

TEST(GuardOnCpu, RecordedBlocksStayWholeHoweverFarTheLoopIsAhead) {
  const auto device = make_device({cpu_device()}, "cpu");
  for (const ScheduleKind schedule : kOverlapped) {
    for (const bool pop_first : {false, true}) {
      Spec spec = spec_with(schedule, Guard::kRecord);
      spec.pop_first = pop_first;
      EXPECT_THAT(bad_batches(run_far_ahead(*device, spec)), IsEmpty());
    }
  }
}

// With a lag that no copy of so small a batch outlasts, and no order but the guard's.
Timeline run_with_lag(Device& device, Spec spec) {
  spec.batch = 2;
  spec.image = 32;
  spec.warmup = 2;
  spec.steps = 8;
  spec.lag_ms = 5;
  device.prepare(spec);
  DistinctBatches source(spec.shape(), spec.warmup + spec.steps + spec.cooldown);
  const auto step = make_null_step();
  Trace trace;
  return run(spec, {.device = device, .source = &source, .step = *step, .trace = trace});
}

TEST(GuardOnCpu, WithOneNoBatchIsBadInSpiteOfTheLag) {
  const auto device = make_device({cpu_device()}, "cpu");
  for (const ScheduleKind schedule : {ScheduleKind::kSerial, ScheduleKind::kTwoStreams}) {
    for (const Guard guard : {Guard::kSlots, Guard::kRecord}) {
      const Timeline timeline = run_with_lag(*device, spec_with(schedule, guard));
      EXPECT_THAT(bad_batches(timeline), IsEmpty()) << name_of(guard);
      for (const StepRecord& step : timeline.steps) {
        EXPECT_GE(step.compute.length(), 5'000'000);
      }
    }
  }
}

TEST(GuardOnCpu, WithoutOneTheLagIsEnoughToSeeIt) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the race that this is about";
#endif
  const auto device = make_device({cpu_device()}, "cpu");
  const Timeline timeline =
      run_with_lag(*device, spec_with(ScheduleKind::kTwoStreams, Guard::kNone));
  EXPECT_THAT(bad_batches(timeline), testing::Not(IsEmpty()));
}

TEST(GuardOnCpu, OnOneStreamNoneIsNeeded) {
  const auto device = make_device({cpu_device()}, "cpu");
  EXPECT_THAT(bad_batches(run_with_lag(*device, spec_with(ScheduleKind::kSerial, Guard::kNone))),
              IsEmpty());
}

}  // namespace
}  // namespace feedrate
