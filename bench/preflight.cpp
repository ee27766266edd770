#include "preflight.hpp"

#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>

#include "feedrate/loader.hpp"
#include "host_memory.hpp"
#include "text.hpp"

namespace feedrate {
namespace {

std::optional<std::size_t> soft_limit(decltype(RLIMIT_MEMLOCK) resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return std::nullopt;
  }
  return limit.rlim_cur;
}

std::optional<std::size_t> shared_memory_free() {
  struct statvfs status {};
  if (statvfs("/dev/shm", &status) != 0) {
    return std::nullopt;
  }
  return status.f_bavail * status.f_frsize;
}

// "50000 100000": that many microseconds of CPU time in each period; "max …": no limit.
std::optional<double> quota_of(const std::filesystem::path& group) {
  std::istringstream stream(first_line_of(group / "cpu.max"));
  stream.imbue(std::locale::classic());
  double quota_us = 0;
  double period_us = 0;
  if (stream >> quota_us >> period_us && period_us > 0) {
    return quota_us / period_us;
  }
  return std::nullopt;
}

// The tightest of the control group that this process is in and all above it.
std::optional<double> quota_cores() {
  std::filesystem::path group = control_group().value_or(kControlGroups);
  std::optional<double> tightest;
  for (;; group = group.parent_path()) {
    if (const auto quota = quota_of(group); quota && (!tightest || *quota < *tightest)) {
      tightest = quota;
    }
    if (group.native().size() <= kControlGroups.size()) {
      return tightest;
    }
  }
}

// The NUMA nodes of the cores that this process may run on, from "0-15,32-47" of each node.
std::vector<int> nodes_of_process() {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) {
    return {};
  }
  std::vector<int> nodes;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/devices/system/node", error)) {
    const std::string name = entry.path().filename();
    int node = 0;
    const char* const end = name.data() + name.size();
    constexpr std::size_t kPrefix = std::string_view("node").size();
    if (!name.starts_with("node") || std::from_chars(name.data() + kPrefix, end, node).ptr != end ||
        name.size() == kPrefix) {
      continue;
    }
    std::istringstream ranges(first_line_of(entry.path() / "cpulist"));
    bool used = false;
    for (std::string range; std::getline(ranges, range, ',');) {
      std::istringstream bounds(range);
      int first = 0;
      char dash = 0;
      int last = 0;
      if (!(bounds >> first)) {
        continue;
      }
      if (!(bounds >> dash >> last)) {
        last = first;
      }
      for (int cpu = first; cpu <= last && cpu < CPU_SETSIZE; ++cpu) {
        used = used || CPU_ISSET(cpu, &usable);
      }
    }
    if (used) {
      nodes.push_back(node);
    }
  }
  std::sort(nodes.begin(), nodes.end());
  return nodes;
}

std::string GB(std::size_t bytes) { return fixed(static_cast<double>(bytes) * 1e-9, 1); }

std::string listed(const std::vector<int>& numbers) {
  std::string text;
  for (const int number : numbers) {
    text += (text.empty() ? "" : " ") + std::to_string(number);
  }
  return text.empty() ? "unknown" : text;
}

// The row for which `amount` is largest.
template <typename Amount>
const BenchRow& greediest(const std::vector<BenchRow>& rows, const Amount& amount) {
  return *std::max_element(rows.begin(), rows.end(), [&](const BenchRow& a, const BenchRow& b) {
    return amount(a.spec) < amount(b.spec);
  });
}

// Sockets of the workers. A batch's descriptor is closed as soon as it is mapped.
std::size_t sockets_of(const Spec& spec) {
  return spec.loader == LoaderKind::kProcesses ? static_cast<std::size_t>(spec.worker_count()) : 0;
}

std::size_t open_descriptors() {
  std::error_code error;
  const std::filesystem::directory_iterator open("/proc/self/fd", error);
  return error ? 0 : static_cast<std::size_t>(std::distance(begin(open), end(open)));
}

}  // namespace

Limits read_limits() {
  return {.available_bytes = available_host_bytes(),
          .lockable_bytes = soft_limit(RLIMIT_MEMLOCK),
          .shared_bytes = shared_memory_free(),
          .quota_cores = quota_cores(),
          .descriptors = soft_limit(RLIMIT_NOFILE),
          .open_descriptors = open_descriptors(),
          .cores = usable_cores(),
          .cpu_nodes = nodes_of_process()};
}

ContextList preflight_context(const Limits& limits, const DeviceInfo& device) {
  ContextList context{
      {"feedrate.available_GB", GB(limits.available_bytes)},
      // The driver page-locks on its own account: RLIMIT_MEMLOCK, below, does not bind it.
      {"feedrate.pinnable_GB", device.type == DeviceType::kCuda ? GB(limits.available_bytes) : "0"},
      {"feedrate.memlock_limit_GB",
       limits.lockable_bytes ? GB(*limits.lockable_bytes) : "unlimited"},
      {"feedrate.shm_free_GB", limits.shared_bytes ? GB(*limits.shared_bytes) : "none"},
      {"feedrate.descriptor_limit",
       limits.descriptors ? std::to_string(*limits.descriptors) : "unlimited"},
      {"feedrate.process_numa_nodes", listed(limits.cpu_nodes)},
  };
  if (limits.quota_cores) {
    context.emplace_back("feedrate.cores_quota", fixed(*limits.quota_cores, 2));
  }
  if (device.numa_node >= 0) {
    context.emplace_back("feedrate.gpu_numa_node", std::to_string(device.numa_node));
  }
  return context;
}

std::vector<std::string> preflight_warnings(const Limits& limits, const DeviceInfo& device,
                                            const std::vector<BenchRow>& rows) {
  std::vector<std::string> warnings;
  if (rows.empty() || device.simulated) {
    return warnings;
  }
  const BenchRow& largest = greediest(rows, host_bytes);
  if (const std::size_t wanted = host_bytes(largest.spec); wanted > limits.available_bytes) {
    warnings.push_back("memory: " + largest.name + " wants up to " + GB(wanted) +
                       " GB of host memory for its batches, " + GB(limits.available_bytes) +
                       " GB are there: fewer --workers, --prefetch or --batch want less");
  }
  const BenchRow& widest =
      greediest(rows, [](const Spec& spec) { return static_cast<double>(spec.worker_count()); });
  if (limits.quota_cores && *limits.quota_cores < limits.cores &&
      widest.spec.worker_count() > *limits.quota_cores) {
    warnings.push_back("CPU quota: this container may use the time of " +
                       fixed(*limits.quota_cores, 2) + " cores, and " + widest.name + " has " +
                       std::to_string(widest.spec.worker_count()) +
                       " workers, which will be throttled: --workers=" +
                       fixed(std::max(1.0, *limits.quota_cores), 0) + " fits");
  }
  constexpr std::size_t kForAMoment = 2;  // a worker's end of its socket, what the kernel says
  const BenchRow& opener = greediest(rows, sockets_of);
  const std::size_t opened =
      std::max(limits.open_descriptors, sockets_of(opener.spec)) + kForAMoment;
  if (limits.descriptors && opened > *limits.descriptors) {
    warnings.push_back("descriptors: " + opener.name + " needs " + std::to_string(opened) + ", " +
                       std::to_string(*limits.descriptors) + " are allowed: raise ulimit -n");
  }
  if (device.link_width > 0 && device.link_width < device.link_width_most) {
    warnings.push_back("link: the GPU is connected by " + std::to_string(device.link_width) +
                       " of " + std::to_string(device.link_width_most) +
                       " lanes, so copies run at that share of the rate at most");
  }
  const auto& nodes = limits.cpu_nodes;
  if (device.numa_node >= 0 && !nodes.empty() &&
      std::find(nodes.begin(), nodes.end(), device.numa_node) == nodes.end()) {
    warnings.push_back(
        "NUMA: the GPU is at node " + std::to_string(device.numa_node) +
        " and this process runs on " + listed(nodes) +
        ", so copies cross nodes: numactl --cpunodebind=" + std::to_string(device.numa_node) +
        " --membind=" + std::to_string(device.numa_node));
  }
  return warnings;
}

}  // namespace feedrate
