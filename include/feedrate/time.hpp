// The one time axis of a run.
//
// Every stamp, taken by the host, a worker process or a device event, is a TimeNs: nanoseconds of
// CLOCK_MONOTONIC on a real device (the same clock in every process of the machine), nanoseconds of
// the virtual clock on a simulated one.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace feedrate {

using TimeNs = std::int64_t;

// The host's monotonic clock. Any thread, any process.
inline TimeNs monotonic_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

constexpr double to_ms(TimeNs time_ns) { return static_cast<double>(time_ns) * 1e-6; }
constexpr double to_s(TimeNs time_ns) { return static_cast<double>(time_ns) * 1e-9; }

// A stretch of time, [begin, end). Empty when end <= begin.
struct Interval {
  TimeNs begin = 0;
  TimeNs end = 0;

  constexpr TimeNs length() const { return std::max<TimeNs>(0, end - begin); }
  constexpr Interval intersect(Interval other) const {
    return {std::max(begin, other.begin), std::min(end, other.end)};
  }
};

}  // namespace feedrate
