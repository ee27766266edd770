#include "usage.hpp"

#include <sys/resource.h>
#include <time.h>

#include <fstream>
#include <iterator>
#include <locale>
#include <sstream>
#include <string>

namespace feedrate {
namespace {

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

// Finer than the jiffies of /proc/PID/stat.
double cpu_s(int pid) {
  clockid_t clock{};
  timespec time{};
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &time) != 0) {
    return 0;
  }
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// The tenth field of /proc/PID/stat; the second one is a name in brackets that may hold anything.
double minor_faults(int pid) {
  constexpr int kFieldsBetween = 7;
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) {
    return 0;
  }
  std::istringstream fields(text.substr(name_end + 1));
  fields.imbue(std::locale::classic());
  std::string skipped;
  for (int field = 0; field < kFieldsBetween; ++field) {
    fields >> skipped;
  }
  double faults = 0;
  return fields >> faults ? faults : 0;
}

}  // namespace

Usage usage(std::span<const int> others) {
  rusage own{};
  getrusage(RUSAGE_SELF, &own);
  Usage sum{seconds(own.ru_utime) + seconds(own.ru_stime), static_cast<double>(own.ru_minflt)};
  for (const int pid : others) {
    sum.cpu_s += cpu_s(pid);
    sum.minor_faults += minor_faults(pid);
  }
  return sum;
}

}  // namespace feedrate
