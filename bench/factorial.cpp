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
          const bool pinned = memory == HostMemory::kPinned;
          rows.push_back({.name = "Factorial/memory:" + std::string(name_of(memory)) +
                                  "/copy:" + std::string(name_of(copy)) +
                                  "/schedule:" + std::string(name_of(schedule)) +
                                  "/sync_every:" + std::to_string(sync_every),
                          .spec = {.dataset = DatasetKind::kReplay,
                                   .loader = LoaderKind::kThreads,
                                   .workers = replay_workers(context),
                                   .memory = memory,
                                   .buffers = Buffers::kRing,
                                   .pinning = pinned ? Pinning::kDirect : Pinning::kNone,
                                   .copy = copy,
                                   .schedule = schedule,
                                   .sync_every = sync_every},
                          .own = {"dataset", "loader", "memory", "buffers", "pinning", "copy",
                                  "schedule", "guard", "lag_ms", "sync_every", "pop_first"},
                          .run = run_pipeline});
        }
      }
    }
  }
  return rows;
}

}  // namespace feedrate
