// Rows: the tables of what can be run, one file a family (families.cpp lists them). A new row is a
// line in its family's table, a new family a file like pipeline.cpp and a line in families.cpp.
#pragma once

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "feedrate/device.hpp"
#include "feedrate/report.hpp"
#include "feedrate/spec.hpp"

namespace feedrate {

class Session;

// What a row is called by, beside its name: "bytes", "4096".
using Arguments = std::vector<std::pair<std::string, std::string>>;

struct BenchRow {
  std::string
      name;  // "Pipeline/streams", "H2D/pinned/async/bytes:4096": ASCII, stable, < 200 bytes
  // What runs. Of a row that is no training loop only what `run` reads counts: batch and image,
  // steps as the number of samples, warmup as those before them.
  Spec spec = {};
  // Members of the spec that make the row what its name says: flags leave them alone.
  std::vector<std::string_view> own = {};
  std::function<Report(Session& session, const Spec& spec)> run;
  // For a row that is no training loop: what the result file says of it in place of the spec.
  Arguments arguments = {};

  bool is_training_loop() const { return arguments.empty(); }
};

// Bounds of a sweep's axis, both included. 0: the row family's own.
struct Bounds {
  int least = 0;
  int most = 0;
};

// What rows depend on besides their tables.
struct RowContext {
  Spec common;    // batch and image as the device's usual ones and the flags have them
  int cores = 1;  // what kAllCores means there
  DeviceType device = DeviceType::kCuda;
  Bounds sweep_workers;
  Bounds sweep_batch;
  Bounds sweep_image;
};

// A column of the table on stdout: a counter, or the row's real_time in ms if it has no name.
struct Column {
  std::string_view title;
  std::string_view counter;
  std::size_t width;
  int digits;
};

struct Family {
  std::string_view name;  // rows are called NAME/…
  std::string_view help;
  std::vector<BenchRow> (*rows)(const RowContext& context);
  std::vector<Column> columns;
};

// In the order of the flow. Names are unique, and none is contained in another's rows.
const std::vector<Family>& families();

// The values of a sweep's axis: both bounds, and the powers of two between them. `usual` where the
// user gave none.
std::set<int> sweep_axis(Bounds given, Bounds usual);

// All members of Spec but those: for the `own` of rows that read only a few.
std::vector<std::string_view> members_but(const std::vector<std::string_view>& read);

// Runs the spec as it stands, all stages: what most families' rows are.
Report run_pipeline(Session& session, const Spec& spec);

// A loader that keeps up with any step: batches made once are replayed into a page-locked ring. Its
// workers are enough for that, few enough to leave the loop its core and to need no long ring.
inline Spec replayed(const RowContext& context) {
  return {.dataset = DatasetKind::kReplay,
          .loader = LoaderKind::kThreads,
          .workers = std::min(4, context.cores),
          .memory = HostMemory::kPinned,
          .buffers = Buffers::kRing,
          .pinning = Pinning::kDirect,
          .copy = CopyMode::kAsync};
}
// What makes it one: for the `own` of its rows, which add to it.
inline std::vector<std::string_view> replayed_members(const std::vector<std::string_view>& more) {
  std::vector<std::string_view> members{"dataset", "loader",  "memory",
                                        "buffers", "pinning", "copy"};
  members.insert(members.end(), more.begin(), more.end());
  return members;
}

// In the label of a row that is to have bad batches, or the check of them would be worth nothing.
inline constexpr std::string_view kNegativeControl = "negative control";

// The whole flow: the floor, the published rungs, and direct.
std::vector<BenchRow> pipeline_rows(const RowContext& context);
// The same along one axis.
std::vector<BenchRow> workers_rows(const RowContext& context);
std::vector<BenchRow> batch_size_rows(const RowContext& context);
std::vector<BenchRow> image_size_rows(const RowContext& context);
// What the order of fetch and launch does to a prefetcher once the loop synchronises.
std::vector<BenchRow> order_rows(const RowContext& context);
// What keeps a batch whole while it is used, and that its absence is noticed.
std::vector<BenchRow> guard_rows(const RowContext& context);
// Memory, copy, schedule and synchronisation in all combinations (scripts/effects.py reads them).
std::vector<BenchRow> factorial_rows(const RowContext& context);
// Host memory: what it costs to fill, to reuse, to page-lock.
std::vector<BenchRow> staging_rows(const RowContext& context);
// Copies by memory kind, size, direction and blocking; both directions at once; what the host pays.
std::vector<BenchRow> h2d_rows(const RowContext& context);
std::vector<BenchRow> d2h_rows(const RowContext& context);
std::vector<BenchRow> duplex_rows(const RowContext& context);
std::vector<BenchRow> copy_rows(const RowContext& context);
// One stream against two.
std::vector<BenchRow> overlap_rows(const RowContext& context);
// Each loader alone, by its number of workers.
std::vector<BenchRow> loader_rows(const RowContext& context);
// The step alone: the ceiling.
std::vector<BenchRow> compute_rows(const RowContext& context);

}  // namespace feedrate
