#include "rows.hpp"

namespace feedrate {

// The published prefetch rung but for the members in the name, with a loader that keeps up, or one
// would see that in place of the order. A loop that synchronises after each step hides a copy only
// if it was submitted before the step.
std::vector<BenchRow> order_rows(const RowContext& context) {
  std::vector<BenchRow> rows;
  for (const ScheduleKind schedule : {ScheduleKind::kTwoStreams, ScheduleKind::kPrefetcher}) {
    for (const bool pop_first : {false, true}) {
      for (const int sync_every : {0, 1}) {
        Spec spec = replayed(context);
        spec.schedule = schedule;
        spec.sync_every = sync_every;
        spec.pop_first = pop_first;
        rows.push_back({.name = "Order/" + std::string(name_of(schedule)) +
                                "/pop_first:" + (pop_first ? "1" : "0") +
                                "/sync_every:" + std::to_string(sync_every),
                        .spec = spec,
                        .own = replayed_members({"schedule", "sync_every", "pop_first"}),
                        .run = run_pipeline});
      }
    }
  }
  return rows;
}

}  // namespace feedrate
