// How fast cores make random numbers when memory plays no part: the arithmetic ceiling of a loader.
#pragma once

#include "feedrate/dataset.hpp"

namespace feedrate {

// "randn" samples that `threads` threads make together, over and over, each in a buffer that fits
// the cache: GB (1e9 bytes) a second. Takes a twentieth of a second. Throws Error when a thread
// cannot be started.
double randn_GBps(const DatasetTable& datasets, int threads);

}  // namespace feedrate
