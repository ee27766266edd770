#include <algorithm>

#include "rows.hpp"

namespace feedrate {
namespace {

const std::vector<Column> kLoopColumns{
    {"ms/step", "", 10, 3},
    {"steps/s", "steps_per_s", 10, 2},
    {"compute", "compute_ms", 9, 2},
    {"copy", "exposed_copy_ms", 8, 2},
    {"fetch", "exposed_fetch_ms", 8, 2},
    {"host", "exposed_host_ms", 8, 2},
    {"other", "other_ms", 7, 2},
    {"h2d GB/s", "h2d_GBps", 9, 2},
    {"of limit", "of_limit", 9, 3},
    {"bad", "bad_batches", 5, 0},
};

std::vector<Column> with_peak(std::vector<Column> columns) {
  columns.push_back({"peak GB", "peak_device_GB", 8, 2});
  return columns;
}
const std::vector<Column> kTransferColumns{
    {"us/copy", "copy_us", 12, 2}, {"least us", "min_us", 12, 2},     {"GB/s", "GBps", 9, 2},
    {"of link", "of_link", 9, 3},  {"of pinned", "of_pinned", 10, 3}, {"spread", "spread", 9, 4},
};
const std::vector<Column> kLoaderColumns{
    {"ms/batch", "", 10, 3},
    {"batches/s", "batches_per_s", 10, 2},
    {"GB/s", "GBps", 8, 2},
    {"first ms", "first_batch_ms", 9, 1},
    {"CPU s", "cpu_s_per_batch", 8, 4},
    {"faults", "faults_per_batch", 8, 0},
    {"scaling", "scaling", 8, 3},
    {"of cache", "of_in_cache", 9, 3},
    {"spread", "spread", 7, 3},
};

}  // namespace

const std::vector<Family>& families() {
  static const std::vector<Family> all{
      {"Pipeline", "the whole flow: the floor, the published rungs, direct", pipeline_rows,
       kLoopColumns},
      {"Workers", "the whole flow by number of workers", workers_rows, kLoopColumns},
      {"BatchSize", "the whole flow by batch size", batch_size_rows, kLoopColumns},
      {"ImageSize", "the whole flow by image size", image_size_rows, kLoopColumns},
      {"Order", "when the next batch is fetched, with and without synchronising", order_rows,
       kLoopColumns},
      {"Factorial", "memory, copy, schedule and synchronisation in all combinations",
       factorial_rows, kLoopColumns},
      {"Guard", "what keeps a batch whole while it is used", guard_rows, with_peak(kLoopColumns)},
      {"Loader", "each loader alone, by its number of workers", loader_rows, kLoaderColumns},
      {"Staging",
       "host memory: fresh against reused, pin thread against direct, page-locking",
       staging_rows,
       {{"ms", "", 10, 3},
        {"release", "release_ms", 9, 3},
        {"GB/s", "GBps", 9, 2},
        {"faults", "faults", 9, 0},
        {"steps/s", "steps_per_s", 10, 2},
        {"lock/GiB", "lock_ms_per_GiB", 10, 2},
        {"unlock", "unlock_ms_per_GiB", 9, 2},
        {"touch", "touch_ms_per_GiB", 9, 2},
        {"reuses", "reuses_to_pay", 8, 1}}},
      {"H2D", "copies to the device, by memory kind, size and blocking", h2d_rows,
       kTransferColumns},
      {"D2H", "copies to the host, likewise", d2h_rows, kTransferColumns},
      {"Duplex",
       "both directions at once",
       duplex_rows,
       {{"ms", "", 10, 3},
        {"GB/s", "GBps", 9, 2},
        {"best", "best_GBps", 9, 2},
        {"cached", "cached_GBps", 9, 2},
        {"other", "other_GBps", 9, 2},
        {"of alone", "of_alone", 9, 3},
        {"spread", "spread", 9, 4}}},
      {"Copy",
       "what one copy costs the host: until it returns, until the data is there",
       copy_rows,
       {{"return us", "return_us", 12, 2},
        {"done us", "done_us", 12, 2},
        {"waits", "waits_for_stream", 8, 2},
        {"busy ms", "busy_ms", 9, 2},
        {"spread", "spread", 9, 3}}},
      {"Overlap",
       "copies beside compute: one stream against two",
       overlap_rows,
       {{"ms/step", "step_ms", 10, 3},
        {"copy", "copy_ms", 9, 3},
        {"compute", "compute_ms", 9, 3},
        {"ratio", "ratio_measured", 8, 3},
        {"efficiency", "efficiency", 11, 3},
        {"spread", "spread", 9, 4}}},
      {"Compute", "the step alone: the ceiling", compute_rows, kLoopColumns},
  };
  return all;
}

std::vector<std::string_view> members_but(const std::vector<std::string_view>& read) {
  std::vector<std::string_view> members;
  for_each_member([&](std::string_view name, auto&&...) {
    if (std::find(read.begin(), read.end(), name) == read.end()) {
      members.push_back(name);
    }
  });
  return members;
}

}  // namespace feedrate
