// Usage: what processes have used so far. Differences of two looks are what is of interest.
#pragma once

#include <span>

namespace feedrate {

struct Usage {
  double cpu_s = 0;         // user and system
  double minor_faults = 0;  // pages that were mapped without reading a disk
};

// Of this process, its threads included, and of other running ones by their ids. One that has ended
// counts as nothing.
Usage usage(std::span<const int> others);

inline Usage operator-(const Usage& end, const Usage& begin) {
  return {end.cpu_s - begin.cpu_s, end.minor_faults - begin.minor_faults};
}

}  // namespace feedrate
