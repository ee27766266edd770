// Samples: what is said of a quantity that was measured several times. Pure functions.
#pragma once

#include <span>
#include <vector>

namespace feedrate {

// Linear interpolation between the order statistics, as numpy's default; `share` from 0 to 1. Not a
// number when there are no samples.
double percentile(std::span<const double> samples, double share);
double median(std::span<const double> samples);

// How far the samples lie apart: the distance of the quartiles over the median. 0 for fewer than
// two.
double spread(std::span<const double> samples);

// Whether the second half of a measurement is not what the first one was: the halves' means, in the
// order of time, differ by more than 5 % of the smaller one. False for fewer than four samples.
inline constexpr double kUnsteady = 0.05;
bool unsteady(std::span<const double> samples);

}  // namespace feedrate
