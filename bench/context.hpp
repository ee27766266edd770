// Context: what a reader of a result must know about the program, the machine and the device. All
// keys begin with "feedrate.", all values are text.
#pragma once

#include <string>

#include "feedrate/dataset.hpp"
#include "feedrate/device.hpp"
#include "result_file.hpp"

namespace feedrate {

// Times of a build without optimisation, or with assertions, mean nothing.
bool debug_build();

// "feedrate 0.1.0 (revision)".
std::string version_text();

// Version, revision, build, compiler, command line.
ContextList program_context(int argc, const char* const* argv);

// CPU, cores that this process may use and that there are, NUMA nodes, memory, kernel.
ContextList host_context();

// The device's own context; `info` is read while or right after it works.
ContextList device_context(const DeviceInfo& info);

// How fast this machine's cores are right now: "randn" samples made over and over in a buffer that
// fits the cache, by one thread and by one on each core. Takes a tenth of a second. The speed of
// shared cores moves, so that two results cannot be compared without it.
ContextList cpu_rate_context(const DatasetTable& datasets);

// The share of the cores' time that the hypervisor gave to others since this object was made.
class StealTime {
 public:
  StealTime();
  ContextList context() const;

 private:
  struct Jiffies {
    double steal = 0;
    double all = 0;
  };
  static Jiffies read();

  Jiffies start_;
};

}  // namespace feedrate
