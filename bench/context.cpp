#include "context.hpp"

#include <sys/utsname.h>
#include <unistd.h>

#include <cctype>
#include <feedrate_revision.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "host_memory.hpp"
#include "randn_rate.hpp"
#include "text.hpp"

namespace feedrate {
namespace {

// The value behind "key   : value" in a file of /proc.
std::string proc_value(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (line.starts_with(key) && colon != std::string::npos) {
      const std::size_t value = line.find_first_not_of(" \t", colon + 1);
      return value == std::string::npos ? "" : line.substr(value);
    }
  }
  return "";
}

std::string cpu_model() {
  const std::string model = proc_value("/proc/cpuinfo", "model name");
  return model.empty() ? "unknown" : model;
}

std::string numa_nodes() {
  int nodes = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/devices/system/node", error)) {
    const std::string name = entry.path().filename();
    nodes += name.starts_with("node") && name.size() > 4 && std::isdigit(name[4]) != 0 ? 1 : 0;
  }
  return std::to_string(nodes);
}

std::string memory_GB() {
  return fixed(static_cast<double>(bytes_in("/proc/meminfo", "MemTotal:").value_or(0)) * 1e-9, 1);
}

std::string kernel() {
  utsname name{};
  return uname(&name) == 0 ? std::string(name.sysname) + " " + name.release + " " + name.machine
                           : "unknown";
}

std::string compiler() {
#if defined(__clang__)
  return __VERSION__;
#else
  return "GCC " __VERSION__;
#endif
}

std::string command_line(int argc, const char* const* argv) {
  std::string text;
  for (int i = 0; i < argc; ++i) {
    const std::string arg = argv[i];
    const bool plain =
        !arg.empty() && arg.find_first_of(" \t\n'\"\\$*?|&;<>()[]{}!#~`") == std::string::npos;
    text += (i == 0 ? "" : " ") + (plain ? arg : "'" + arg + "'");
  }
  return text;
}

}  // namespace

bool debug_build() {
#if defined(NDEBUG) && defined(__OPTIMIZE__)
  return false;
#else
  return true;
#endif
}

std::string version_text() {
  return "feedrate " FEEDRATE_VERSION " (" + std::string(kGitRevision) + ")";
}

ContextList program_context(int argc, const char* const* argv) {
  ContextList context{
      {"feedrate.version", FEEDRATE_VERSION},
      {"feedrate.git_revision", std::string(kGitRevision)},
      {"feedrate.build_type", FEEDRATE_BUILD_TYPE},
      {"feedrate.compiler", compiler()},
      {"feedrate.command_line", command_line(argc, argv)},
  };
  if (debug_build()) {
    context.emplace_back("feedrate.warning", "debug build: its times mean nothing");
  }
  return context;
}

ContextList host_context() {
  return {
      {"feedrate.cpu", cpu_model()},
      {"feedrate.cores_usable", std::to_string(usable_cores())},
      {"feedrate.cores", std::to_string(sysconf(_SC_NPROCESSORS_ONLN))},
      {"feedrate.numa_nodes", numa_nodes()},
      {"feedrate.memory_GB", memory_GB()},
      {"feedrate.kernel", kernel()},
      {"feedrate.huge_pages", first_line_of("/sys/kernel/mm/transparent_hugepage/enabled")},
  };
}

ContextList device_context(const DeviceInfo& info) {
  ContextList context{
      {"feedrate.device", info.name},
      {"feedrate.simulated", info.simulated ? "true" : "false"},
  };
  for (const auto& [key, value] : info.context) {
    context.emplace_back("feedrate." + key, value);
  }
  return context;
}

ContextList cpu_rate_context(const DatasetTable& datasets) {
  const int cores = usable_cores();
  return {{"feedrate.randn_1_thread_GBps", fixed(randn_GBps(datasets, 1), 3)},
          {"feedrate.randn_all_cores_GBps", fixed(randn_GBps(datasets, cores), 3)}};
}

// --- StealTime -----------------------------------------------------------------------------------

StealTime::StealTime() : start_(read()) {}

// The first line of /proc/stat: "cpu", then user, nice, system, idle, iowait, irq, softirq, steal;
// guest times behind them are in user's already.
StealTime::Jiffies StealTime::read() {
  constexpr int kSteal = 7;
  std::istringstream stream(first_line_of("/proc/stat"));
  stream.imbue(std::locale::classic());
  std::string cpu;
  stream >> cpu;
  Jiffies jiffies;
  double value = 0;
  for (int i = 0; i <= kSteal && stream >> value; ++i) {
    jiffies.all += value;
    jiffies.steal = i == kSteal ? value : 0;
  }
  return jiffies;
}

ContextList StealTime::context() const {
  const Jiffies end = read();
  const double all = end.all - start_.all;
  return {{"feedrate.steal_percent",
           all > 0 ? fixed((end.steal - start_.steal) / all * 100, 2) : "unknown"}};
}

}  // namespace feedrate
