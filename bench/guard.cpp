#include <string>

#include "feedrate/error.hpp"
#include "feedrate/schedule.hpp"
#include "harness.hpp"
#include "rows.hpp"

namespace feedrate {
namespace {

// How many batches later a dropped block is used again when nothing guards it (batch_memory.hpp):
// the loop holds two, and a third one if it fetches before it launches.
int reuse_distance(const Spec& spec) { return spec.pop_first ? 3 : 2; }

// Whether some copy into a block began before the step that reads the block had ended.
bool overtaken(const Spec& spec, const Timeline& timeline) {
  const auto distance = static_cast<std::size_t>(reuse_distance(spec));
  for (std::size_t n = distance; n < timeline.steps.size(); ++n) {
    if (timeline.steps[n].copy.begin < timeline.steps[n - distance].compute.end) {
      return true;
    }
  }
  return false;
}

bool any_bad(const Timeline& timeline) {
  for (const StepRecord& step : timeline.steps) {
    if (step.fingerprint_used != step.fingerprint_made) {
      return true;
    }
  }
  return false;
}

Report run_guard(Session& session, const Spec& spec) {
  Step& step = session.step(spec);
  const auto source = session.source(spec);
  const Timeline timeline = run(spec, session.run_parts(source.get(), step));
  Report result = session.report(spec, timeline);
  if (spec.guard == Guard::kNone) {
    if (spec.lag_ms > 0 && !any_bad(timeline)) {
      if (overtaken(spec, timeline)) {
        throw Error(
            "copies overtook the steps that read their memory, and no bad batch was found: the "
            "check of batches does not work here, so that bad_batches of other rows means nothing");
      }
      throw Unsupported(
          "no copy came before the step that read its memory had ended, in spite of the lag: the "
          "loader does not keep up, and there was nothing to find");
    }
    result.label =
        std::string(kNegativeControl) + (result.label.empty() ? "" : ", ") + result.label;
  }
  return result;
}

// More than a batch's copy takes there: a copy that does not wait for the step lands in the lag.
int lag_ms(DeviceType device) {
  switch (device) {
    case DeviceType::kCpu:
      return 10;
    case DeviceType::kCuda:
      return 20;
    case DeviceType::kSim:
      break;
  }
  return 50;
}

}  // namespace

// A loader that keeps up, so that copies come as early as the guard lets them. Each row as it is,
// and with a lag before each step, so that what is not guarded is surely overtaken.
std::vector<BenchRow> guard_rows(const RowContext& context) {
  std::vector<BenchRow> rows;
  for (const int lag : {0, lag_ms(context.device)}) {
    for (const ScheduleKind schedule : {ScheduleKind::kTwoStreams, ScheduleKind::kPrefetcher}) {
      for (const Guard guard : {Guard::kNone, Guard::kRecord, Guard::kSlots}) {
        Spec spec = replayed(context);
        spec.schedule = schedule;
        spec.guard = guard;
        spec.lag_ms = lag;
        spec.pop_first = schedule == ScheduleKind::kPrefetcher;  // as the published two
        rows.push_back(
            {.name = "Guard/" + std::string(name_of(schedule)) + "/" + std::string(name_of(guard)) +
                     (lag > 0 ? "/lag_ms:" + std::to_string(lag) : ""),
             .spec = spec,
             .own = replayed_members({"schedule", "guard", "lag_ms", "sync_every", "pop_first"}),
             .run = run_guard});
      }
    }
  }
  return rows;
}

}  // namespace feedrate
