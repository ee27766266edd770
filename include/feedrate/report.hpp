// Report: what a row says. For a training loop it is derived from the timeline after the run; rows
// that measure one thing alone fill it in themselves.
//
// Pure functions of the records; the table of counters is the one place where a training loop's
// counter has a name, a unit and a meaning.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "feedrate/spec.hpp"
#include "feedrate/timeline.hpp"

namespace feedrate {

struct Counter {
  std::string name;  // carries its unit
  double value = 0;  // finite: a value that is not is left out
};

struct Report {
  double window_s = 0;  // of all steps together
  int steps = 0;        // or copies, batches, …: Google Benchmark's iterations
  double images = 0;
  double bytes = 0;               // copied to the device for the measured steps
  std::vector<Counter> counters;  // in the order of the table
  std::string label;              // the stage that binds, e.g. "limit: compute"
  bool unsteady = false;          // samples.hpp; the label then says so
};

// A counter's name and meaning, for --help, the README and tests.
struct CounterInfo {
  std::string_view name;
  std::string_view help;
};
std::vector<CounterInfo> counter_infos();

// The split of the window's wall time, ms a step: adds up to the step's time.
//
// For the published window the part before the first step's compute and after the last one's is
// split by the same rule.
struct Split {
  double compute_ms = 0;
  double exposed_copy_ms = 0;
  double exposed_fetch_ms = 0;
  double exposed_host_ms = 0;
  double other_ms = 0;
};
Split split_of(const Timeline& timeline);

Report report(const Spec& spec, const Timeline& timeline);

}  // namespace feedrate
