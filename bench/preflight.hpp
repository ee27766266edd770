// Preflight: what this machine lets a training loop have, read before anything runs, and the limits
// among it that will bite the rows that were chosen.
//
// The context holds all of it; warnings() is what a user must know before the run, one line each.
// Pure but for reading /proc, /sys and limits; used by the training loop's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "feedrate/device.hpp"
#include "result_file.hpp"
#include "rows.hpp"

namespace feedrate {

struct Limits {
  std::size_t available_bytes = 0;  // of host memory, machine's and container's, without swapping
  std::optional<std::size_t> lockable_bytes;  // RLIMIT_MEMLOCK; nothing: no limit
  std::optional<std::size_t> shared_bytes;    // free in /dev/shm; nothing: there is none
  std::optional<double> quota_cores;          // CPU time of the container, in cores
  std::optional<std::size_t> descriptors;     // that this process may open; nothing: no limit
  std::size_t open_descriptors = 0;           // now, of them the sockets of workers that are there
  int cores = 1;                              // that this process may run on
  std::vector<int> cpu_nodes;                 // NUMA nodes of those cores
};

// As they are now.
Limits read_limits();

// "feedrate.available_GB", "feedrate.shm_free_GB", …
ContextList preflight_context(const Limits& limits, const DeviceInfo& device);

// One line for each limit that will slow or stop a row of `rows`: what it is, what the rows want,
// and what to do. Empty where all fits. Specs must have workers and steps as numbers.
std::vector<std::string> preflight_warnings(const Limits& limits, const DeviceInfo& device,
                                            const std::vector<BenchRow>& rows);

}  // namespace feedrate
