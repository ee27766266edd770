// Flags: the command line, as options.
//
// Ours and Google Benchmark's stand in tables (flags.cpp) from which parsing and --help are made.
// Google's are read here too, since its own parser passes over what it does not like, opens the
// result file before anything has run and ends the process with status 1; what it still has to know
// is handed on. Dashes and underscores in a flag's name mean the same; the last of several wins; a
// flag of Google's may stand in the environment (BENCHMARK_FILTER, …) as its own would.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "feedrate/device.hpp"
#include "feedrate/spec.hpp"
#include "rows.hpp"

namespace feedrate {

// A member of Spec that the user has chosen for every row.
struct Override {
  std::string_view member;
  std::function<void(Spec&)> apply;
};

struct Options {
  bool help = false;
  bool version = false;

  std::string device = "auto";
  std::optional<bool> trace;  // nothing: on when a profiler is there
  bool capture = false;
  std::vector<Override> overrides;  // in the order of the flow

  std::optional<std::string> timeline;       // the trace of every record
  std::optional<std::string> torch_profile;  // LibTorch's trace of the measured steps

  // Bounds of the sweeps.
  Bounds sweep_workers;
  Bounds sweep_batch;
  Bounds sweep_image;

  // Google Benchmark's flags.
  bool list = false;
  std::string filter;  // as Google has it: extended regular expression, "-" in front of it negates
  int repetitions = 1;
  bool report_aggregates_only = false;
  bool display_aggregates_only = false;
  bool json = false;               // the result goes to stdout, and nothing else does
  std::optional<std::string> out;  // the result file
  std::vector<std::pair<std::string, std::string>> context;
  std::string perf_counters;
  std::vector<std::string> passed_on;  // for benchmark::Initialize, checked

  std::vector<std::string> notes;  // flags that were understood and have no effect here

  bool overrides_member(std::string_view member) const;
};

// Throws UsageError: unknown flag, bad value, stray argument.
Options parse_flags(int argc, const char* const* argv);

std::string help_text(const DeviceTable& devices);

}  // namespace feedrate
