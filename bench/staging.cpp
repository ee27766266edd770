#include "feedrate/staging.hpp"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "feedrate/error.hpp"
#include "feedrate/samples.hpp"
#include "feedrate/transfer.hpp"
#include "harness.hpp"
#include "host_memory.hpp"
#include "random_bytes.hpp"
#include "rows.hpp"
#include "transfer_rows.hpp"

namespace feedrate {
namespace {

constexpr double kMs = 1e3;  // in a second
constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::size_t images_bytes(const Spec& spec) {
  return BatchShape{spec.batch, spec.image}.images_bytes();
}

// --- Fill ----------------------------------------------------------------------------------------

// Of the calling thread, those that needed no disk.
double page_faults() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return static_cast<double>(usage.ru_minflt);
}

using MakePool = std::unique_ptr<HostPool> (*)(Device& device, std::size_t bytes);

Report run_fill(Session& session, const Spec& spec, MakePool make_pool) {
  Device& device = session.device();
  if (device.info().simulated) {
    throw Unsupported("memory takes no time on a simulated device");
  }
  const std::size_t bytes = images_bytes(spec);
  const Buffer batch = map_private(bytes);
  fill_random(batch.span());
  const auto pool = make_pool(device, bytes);

  std::vector<double> fills_s;
  std::vector<double> releases_s;
  std::vector<double> turns_s;
  std::vector<double> faults;
  session.sampled(0);
  for (int turn = 1; turn <= spec.warmup + spec.steps; ++turn) {
    const double faults_before = page_faults();
    const TimeNs begin = monotonic_now();
    Lease lease = pool->acquire();
    std::memcpy(lease.memory().data(), batch.data(), bytes);
    const TimeNs filled = monotonic_now();
    const bool arrived = std::memcmp(lease.memory().data() + bytes / 2, batch.data() + bytes / 2,
                                     std::min(kPage, bytes - bytes / 2)) == 0;
    const TimeNs compared = monotonic_now();
    lease.give_back();
    const TimeNs end = monotonic_now();
    if (!arrived) {
      throw Error("a batch that was filled does not hold what was written");
    }
    if (turn > spec.warmup) {
      fills_s.push_back(to_s(filled - begin));
      releases_s.push_back(to_s(end - compared));
      turns_s.push_back(fills_s.back() + releases_s.back());
      faults.push_back(page_faults() - faults_before);
    }
    session.sampled(turn);
  }

  Report report;
  report.window_s = median(turns_s) * spec.steps;
  report.steps = spec.steps;
  report.bytes = static_cast<double>(bytes) * spec.steps;
  report.unsteady = unsteady(turns_s);
  report.counters = {{"fill_ms", median(fills_s) * kMs},
                     {"release_ms", median(releases_s) * kMs},
                     {"GBps", GBps(static_cast<double>(bytes), median(turns_s))},
                     {"faults", median(faults)},
                     {"spread", spread(turns_s)}};
  report.label = "clock: wall";
  return report;
}

std::unique_ptr<HostPool> fresh_pool(Device& device, std::size_t bytes) {
  return make_fresh(device, bytes);
}
std::unique_ptr<HostPool> ring_pool(Device& device, std::size_t bytes) {
  constexpr int kSlots = 2;
  return make_ring(device, kSlots, bytes, HostMemory::kPageable);
}

// --- Page-locking --------------------------------------------------------------------------------

// How much of [memory, memory + bytes) lies in huge pages, as the kernel says of its mappings.
double huge_share(const std::byte* memory, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  const std::uintptr_t end = begin + bytes;
  std::ifstream file("/proc/self/smaps");
  double huge_bytes = 0;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    unsigned long from = 0;
    unsigned long to = 0;
    std::size_t kib = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &from, &to) == 2) {
      inside = from < end && to > begin;
    } else if (inside && std::sscanf(line.c_str(), "AnonHugePages: %zu kB", &kib) == 1) {
      huge_bytes += static_cast<double>(kib) * 1024;
    }
  }
  return std::min(1.0, huge_bytes / static_cast<double>(bytes));
}

// What one buffer cost.
struct LockCost {
  double touch_s = 0;
  double lock_s = 0;
  double unlock_s = 0;
  double huge_share = 0;
};

LockCost lock_by_alloc(Device& device, std::size_t bytes) {
  LockCost cost;
  const TimeNs begin = monotonic_now();
  Buffer buffer = device.host_buffer(bytes, HostMemory::kPinned);
  const TimeNs locked = monotonic_now();
  buffer = {};
  cost.lock_s = to_s(locked - begin);
  cost.unlock_s = to_s(monotonic_now() - locked);
  return cost;
}

LockCost lock_by_register(Device& device, std::size_t bytes, std::size_t page_bytes) {
  LockCost cost;
  // Huge pages lie at multiples of their size.
  const Buffer mapping = map_private(bytes + kHugePage);
  const auto address = reinterpret_cast<std::uintptr_t>(mapping.data());
  const std::span<std::byte> memory =
      mapping.span().subspan((kHugePage - address % kHugePage) % kHugePage, bytes);
  // Fails where the kernel has no huge pages: the share says so.
  static_cast<void>(madvise(memory.data(), memory.size(),
                            page_bytes == kHugePage ? MADV_HUGEPAGE : MADV_NOHUGEPAGE));
  const TimeNs begin = monotonic_now();
  for (std::size_t at = 0; at < bytes; at += kPage) {
    *const_cast<volatile std::byte*>(memory.data() + at) = std::byte{1};
  }
  const TimeNs touched = monotonic_now();
  Buffer locked = device.register_host(memory);
  const TimeNs registered = monotonic_now();
  cost.huge_share = huge_share(memory.data(), memory.size());
  const TimeNs before_unlock = monotonic_now();
  locked = {};
  cost.unlock_s = to_s(monotonic_now() - before_unlock);
  cost.touch_s = to_s(touched - begin);
  cost.lock_s = to_s(registered - touched);
  return cost;
}

// Wall time of a blocking copy to the device.
double copy_s(Device& device, HostMemory kind, std::size_t bytes) {
  TransferMemory memory(device, kind, bytes);
  return median(measure_copies(device, memory,
                               {.memory = kind, .mode = CopyMode::kBlocking, .bytes = bytes},
                               {.warmup = 2, .samples = 8}));
}

// `page_bytes`: of memory that is registered; nothing: allocated page-locked.
Report run_lock(Session& session, const Spec& spec, std::optional<std::size_t> page_bytes) {
  Device& device = session.device();
  if (device.info().type != DeviceType::kCuda) {
    throw Unsupported("this device locks no pages");
  }
  const std::size_t bytes = images_bytes(spec) / kPage * kPage;
  if (bytes == 0) {
    throw Unsupported("the batch is smaller than a page");
  }
  std::vector<double> locks_s;
  std::vector<double> unlocks_s;
  std::vector<double> touches_s;
  std::vector<double> shares;
  session.sampled(0);
  for (int turn = 1; turn <= spec.warmup + spec.steps; ++turn) {
    const LockCost cost =
        page_bytes ? lock_by_register(device, bytes, *page_bytes) : lock_by_alloc(device, bytes);
    if (turn > spec.warmup) {
      locks_s.push_back(cost.lock_s);
      unlocks_s.push_back(cost.unlock_s);
      touches_s.push_back(cost.touch_s);
      shares.push_back(cost.huge_share);
    }
    session.sampled(turn);
  }
  const double saved_s =
      copy_s(device, HostMemory::kPageable, bytes) - copy_s(device, HostMemory::kPinned, bytes);

  const double per_GiB = kMs * kGiB / static_cast<double>(bytes);
  Report report;
  report.window_s = median(locks_s) * spec.steps;
  report.steps = spec.steps;
  report.unsteady = unsteady(locks_s);
  report.counters = {{"lock_ms_per_GiB", median(locks_s) * per_GiB},
                     {"unlock_ms_per_GiB", median(unlocks_s) * per_GiB}};
  if (page_bytes) {
    report.counters.push_back({"touch_ms_per_GiB", median(touches_s) * per_GiB});
    report.counters.push_back({"huge_share", median(shares)});
  }
  report.counters.push_back({"saved_ms", saved_s * kMs});
  if (saved_s > 0) {  // else it never pays
    report.counters.push_back({"reuses_to_pay", (median(locks_s) + median(unlocks_s)) / saved_s});
  }
  report.counters.push_back({"spread", spread(locks_s)});
  report.label = saved_s > 0 ? "clock: wall" : "clock: wall, never pays";
  return report;
}

}  // namespace

std::vector<BenchRow> staging_rows(const RowContext& /*context*/) {
  const auto own = members_but({"batch", "image", "steps"});
  std::vector<BenchRow> rows;
  for (const auto& [name, pool] :
       {std::pair{"fresh", &fresh_pool}, std::pair{"ring", &ring_pool}}) {
    rows.push_back(
        {.name = "Staging/fill/" + std::string(name),
         .spec = {.warmup = 2, .steps = 12},
         .own = own,
         .run = [pool = pool](Session& session,
                              const Spec& spec) { return run_fill(session, spec, pool); },
         .arguments = {{"buffers", name}}});
  }
  // A loader that keeps up and a step that takes no time: what is left is staging and the copy.
  for (const auto& [name, pinning] :
       {std::pair{"pin_thread", Pinning::kThread}, std::pair{"direct", Pinning::kDirect}}) {
    rows.push_back(
        {.name = "Staging/feed/" + std::string(name),
         .spec = {.dataset = DatasetKind::kReplay,
                  .loader = LoaderKind::kThreads,
                  .memory = HostMemory::kPinned,
                  .buffers = Buffers::kRing,
                  .pinning = pinning,
                  .copy = CopyMode::kAsync,
                  .schedule = ScheduleKind::kTwoStreams,
                  .step = StepKind::kNull,
                  // Steps are short: many, so that full queues at the begin do not count.
                  .steps = 200},
         .own = {"dataset", "loader", "memory", "buffers", "pinning", "copy", "schedule", "step"},
         .run = run_pipeline});
  }
  const auto add_lock = [&](const std::string& name, std::optional<std::size_t> page_bytes,
                            Arguments arguments) {
    rows.push_back(
        {.name = "Staging/lock/" + name,
         .spec = {.warmup = 1, .steps = 5},
         .own = own,
         .run = [page_bytes](Session& session,
                             const Spec& spec) { return run_lock(session, spec, page_bytes); },
         .arguments = std::move(arguments)});
  };
  add_lock("alloc", std::nullopt, {{"lock", "alloc"}});
  for (const std::size_t page_bytes : {kPage, kHugePage}) {
    const std::string text = std::to_string(page_bytes);
    add_lock("register/page_bytes:" + text, page_bytes,
             {{"lock", "register"}, {"page_bytes", text}});
  }
  return rows;
}

}  // namespace feedrate
