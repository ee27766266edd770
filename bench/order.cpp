#include "rows.hpp"
#include "rungs.hpp"

namespace feedrate {

// The published prefetch rung but for the members in the name. A loop that synchronises after each
// step hides a copy only if it was submitted before the step.
std::vector<BenchRow> order_rows(const RowContext& /*context*/) {
  std::vector<BenchRow> rows;
  for (const ScheduleKind schedule : {ScheduleKind::kTwoStreams, ScheduleKind::kPrefetcher}) {
    for (const bool pop_first : {false, true}) {
      for (const int sync_every : {0, 1}) {
        Spec spec = rung("prefetch");
        spec.schedule = schedule;
        spec.pop_first = pop_first;
        spec.sync_every = sync_every;
        rows.push_back({.name = "Order/" + std::string(name_of(schedule)) +
                                "/pop_first:" + (pop_first ? "1" : "0") +
                                "/sync_every:" + std::to_string(sync_every),
                        .spec = spec,
                        .own = {"schedule", "pop_first", "sync_every"},
                        .run = run_pipeline});
      }
    }
  }
  return rows;
}

}  // namespace feedrate
