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
