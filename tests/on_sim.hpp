// Runs a spec on a simulated device, through the very loop that real devices run.
#pragma once

#include <stdexcept>
#include <string>

#include "device_sim.hpp"
#include "feedrate/loader.hpp"
#include "feedrate/report.hpp"
#include "feedrate/schedule.hpp"

namespace feedrate {

inline Profile l40s() {
  return parse_profile(std::string(builtin_profiles().front().json), "l40s");
}

inline Timeline run_on(Device& device, const Spec& spec) {
  device.prepare(spec);
  const DatasetTable datasets;
  const auto source = make_source(spec, {.device = device, .datasets = datasets});
  const auto step = make_null_step();
  Trace trace;
  return run(
      spec,
      {.device = device, .source = source.get(), .step = *step, .trace = trace, .progress = {}});
}

inline double counter(const Report& report, const std::string& name) {
  for (const Counter& counter : report.counters) {
    if (counter.name == name) {
      return counter.value;
    }
  }
  throw std::out_of_range(name);
}

}  // namespace feedrate
