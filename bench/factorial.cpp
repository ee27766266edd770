#include "rows.hpp"

namespace feedrate {

// Workers write into the memory that the copy reads, so that the kind of memory brings no stage of
// its own with it, and batches are replayed, so that the loader keeps up.
std::vector<BenchRow> factorial_rows(const RowContext& context) {
  std::vector<BenchRow> rows;
  for (const HostMemory memory : {HostMemory::kPageable, HostMemory::kPinned}) {
    for (const CopyMode copy : {CopyMode::kBlocking, CopyMode::kAsync}) {
      for (const ScheduleKind schedule : {ScheduleKind::kSerial, ScheduleKind::kTwoStreams}) {
        for (const int sync_every : {0, 1}) {
          Spec spec = replayed(context);
          spec.memory = memory;
          spec.pinning = memory == HostMemory::kPinned ? Pinning::kDirect : Pinning::kNone;
          spec.copy = copy;
          spec.schedule = schedule;
          spec.sync_every = sync_every;
          rows.push_back(
              {.name = "Factorial/memory:" + std::string(name_of(memory)) + "/copy:" +
                       std::string(name_of(copy)) + "/schedule:" + std::string(name_of(schedule)) +
                       "/sync_every:" + std::to_string(sync_every),
               .spec = spec,
               .own = replayed_members({"schedule", "guard", "lag_ms", "sync_every", "pop_first"}),
               .run = run_pipeline});
        }
      }
    }
  }
  return rows;
}

}  // namespace feedrate
