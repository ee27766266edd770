#include "feedrate/transfer.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "copy_aten.hpp"
#include "feedrate/error.hpp"
#include "feedrate/samples.hpp"
#include "harness.hpp"
#include "rows.hpp"
#include "text.hpp"
#include "transfer_rows.hpp"

namespace feedrate {

std::size_t batch_bytes(const RowContext& context) {
  return BatchShape{context.common.batch, context.common.image}.images_bytes();
}

void require_kind(const DeviceInfo& device, HostMemory kind) {
  if (kind == HostMemory::kPageable || kind == HostMemory::kPinned) {
    return;
  }
  if (device.simulated) {
    throw Unsupported("a profile knows pageable and pinned memory only, not " +
                      std::string(name_of(kind)));
  }
  if (device.type == DeviceType::kCpu) {
    throw Unsupported("the cpu device locks no pages: " + std::string(name_of(kind)) +
                      " memory is what pageable and pinned are");
  }
}

void require_size(const DeviceInfo& device, std::size_t bytes) {
  if (device.type == DeviceType::kCpu && bytes > kMostCpuBytes) {
    throw Unsupported("copies of more than " + std::to_string(kMostCpuBytes) +
                      " bytes take too long on the cpu device");
  }
}

namespace {

// 0 if the system does not say.
std::size_t last_level_cache_bytes() {
  return static_cast<std::size_t>(std::max(sysconf(_SC_LEVEL3_CACHE_SIZE), 0L));
}

}  // namespace

std::size_t footprint_bytes(const DeviceInfo& device, std::size_t copy_bytes) {
  constexpr std::size_t kUsual = std::size_t{1} << 30;
  constexpr std::size_t kMost = std::size_t{2} << 30;
  if (device.type == DeviceType::kCpu) {
    return 2 * kMostCpuBytes;
  }
  return std::max(copy_bytes, std::clamp(2 * last_level_cache_bytes(), kUsual, kMost));
}

Sampling sampling(Session& session, const Spec& spec) {
  return {.warmup = spec.warmup, .samples = spec.steps, .done = [&session](int done) {
            session.sampled(done);
          }};
}

double GBps(double bytes, double seconds) { return bytes / seconds * 1e-9; }

namespace {

constexpr double kUs = 1e6;  // in a second
constexpr double kMs = 1e3;

constexpr std::array kKinds{HostMemory::kPageable, HostMemory::kPinned, HostMemory::kRegistered,
                            HostMemory::kWriteCombined};
constexpr std::array kModes{CopyMode::kBlocking, CopyMode::kAsync};

// What the rows of a family copy: memory of the latest kind, large enough.
class CopyMemory {
 public:
  TransferMemory& of(Device& device, HostMemory kind, std::size_t bytes) {
    if (!memory_ || memory_->kind() != kind || memory_->bytes() < bytes) {
      memory_.reset();  // first, so that both are never there together
      memory_.emplace(device, kind, footprint_bytes(device.info(), bytes));
    }
    return *memory_;
  }

 private:
  std::optional<TransferMemory> memory_;
};

// Samples for a copy of that size: enough for a median, few enough for all sizes to be measured.
// Those timed by events are short, and a few that something disturbed must not show in the spread.
Spec transfer_spec(const CopyKind& kind) {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  Spec spec;
  spec.warmup = kind.bytes <= kMiB ? 8 : 2;
  spec.steps = kind.bytes <= kMiB                                              ? 128
               : kind.bytes <= 16 * kMiB || kind.clock() == CopyClock::kEvents ? 40
                                                                               : 16;
  return spec;
}

// What is left of the flags: a row's name says everything else.
std::vector<std::string_view> own_members() { return members_but({"steps"}); }

Report copies_report(const Spec& spec, const std::vector<double>& samples_s, double bytes) {
  const double median_s = median(samples_s);
  Report report;
  report.window_s = median_s * spec.steps;
  report.steps = spec.steps;
  report.bytes = bytes * spec.steps;
  report.unsteady = unsteady(samples_s);
  report.counters = {{"GBps", GBps(bytes, median_s)}};
  return report;
}

// The best rate of a direction from page-locked memory: measured when first asked for, once a run.
class Reference {
 public:
  double GBps(Device& device, Direction direction) {
    double& known = GBps_[direction == Direction::kH2d ? 0 : 1];
    if (known == 0) {
      const std::size_t bytes =
          device.info().type == DeviceType::kCpu ? kMostCpuBytes / 4 : std::size_t{256} << 20;
      TransferMemory memory(device, HostMemory::kPinned, 2 * bytes);
      const auto samples = measure_copies(device, memory, {.direction = direction, .bytes = bytes},
                                          {.warmup = 2, .samples = 8});
      known = feedrate::GBps(static_cast<double>(bytes), median(samples));
    }
    return known;
  }

 private:
  std::array<double, 2> GBps_{};
};

// A rate that the link cannot have is a mistake of ours, not a record.
void check_link(double GBps, double link_GBps) {
  if (link_GBps > 0 && GBps > link_GBps) {
    throw Error("faster than the link: " + fixed(GBps, 2) + " GB/s of at most " +
                fixed(link_GBps, 2));
  }
}

// A measurement of one kind in memory made for it.
using Measure = std::function<std::vector<double>(TransferMemory& memory)>;

Report run_copies(Session& session, const Spec& spec, const CopyKind& kind, Reference& reference,
                  const Measure& measure) {
  Device& device = session.device();
  const DeviceInfo info = device.info();
  require_kind(info, kind.memory);
  require_size(info, kind.bytes);
  const double best_GBps = reference.GBps(device, kind.direction);
  TransferMemory& memory = session.kept<CopyMemory>().of(device, kind.memory, kind.bytes);
  device.prepare(spec);  // the time axis is finest at its begin
  const auto samples = measure(memory);
  const double link_GBps = device.info().link_GBps;  // while the link is awake

  Report report = copies_report(spec, samples, static_cast<double>(kind.bytes));
  const double rate = report.counters.front().value;
  check_link(rate, link_GBps);
  report.counters.push_back({"copy_us", median(samples) * kUs});
  report.counters.push_back({"min_us", *std::min_element(samples.begin(), samples.end()) * kUs});
  report.counters.push_back({"spread", spread(samples)});
  if (link_GBps > 0) {
    report.counters.push_back({"of_link", rate / link_GBps});
  }
  report.counters.push_back({"of_pinned", rate / best_GBps});
  report.label = kind.clock() == CopyClock::kEvents ? "clock: events" : "clock: wall";
  return report;
}

// LibTorch's copy_, and ours of the same kind in turn with it: the host's rates move within
// seconds.
Report run_tensor_copy(Session& session, const Spec& spec, const CopyKind& kind,
                       Reference& reference) {
  constexpr int kTurns = 4;
  Device& device = session.device();
  CopyKind tensor = kind;
  tensor.by = tensor_copy(device, kind.direction, kind.bytes, kind.mode);
  const Sampling each{.warmup = 1, .samples = std::max(1, spec.steps / kTurns)};
  std::vector<double> ours_s;
  Report report = run_copies(session, spec, tensor, reference, [&](TransferMemory& memory) {
    std::vector<double> theirs_s;
    const auto append = [](std::vector<double>& to, const std::vector<double>& more) {
      to.insert(to.end(), more.begin(), more.end());
    };
    session.sampled(0);
    session.sampled(spec.warmup);
    for (int turn = 1; turn <= kTurns; ++turn) {
      append(ours_s, measure_copies(device, memory, kind, each));
      append(theirs_s, measure_copies(device, memory, tensor, each));
      session.sampled(spec.warmup + spec.steps * turn / kTurns);
    }
    return theirs_s;
  });
  const double theirs_us = report.counters[1].value;
  report.counters.push_back({"of_pageable", median(ours_s) * kUs / theirs_us});
  return report;
}

std::vector<std::size_t> transfer_sizes(const RowContext& context) {
  constexpr std::size_t kLeast = 4096;
  constexpr std::size_t kMost = std::size_t{256} << 20;
  std::vector<std::size_t> sizes;
  for (std::size_t bytes = kLeast; bytes <= kMost; bytes *= 4) {
    sizes.push_back(bytes);
  }
  sizes.push_back(2 * kMost);
  sizes.push_back(batch_bytes(context));
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

std::string bytes_suffix(std::size_t bytes) { return "/bytes:" + std::to_string(bytes); }

std::vector<BenchRow> transfer_rows(const RowContext& context, Direction direction) {
  const std::string family = direction == Direction::kH2d ? "H2D" : "D2H";
  const auto reference = std::make_shared<Reference>();
  std::vector<BenchRow> rows;
  const auto add = [&](std::string_view memory, const CopyKind& kind,
                       std::function<Report(Session&, const Spec&)> run) {
    const std::string mode(name_of(kind.mode));
    rows.push_back(
        {.name = family + "/" + std::string(memory) + "/" + mode + bytes_suffix(kind.bytes),
         .spec = transfer_spec(kind),
         .own = own_members(),
         .run = std::move(run),
         .arguments = {{"memory", std::string(memory)},
                       {"copy", mode},
                       {"bytes", std::to_string(kind.bytes)}}});
  };
  for (const HostMemory memory : kKinds) {
    for (const CopyMode mode : kModes) {
      for (const std::size_t bytes : transfer_sizes(context)) {
        const CopyKind kind{.direction = direction, .memory = memory, .mode = mode, .bytes = bytes};
        add(name_of(memory), kind, [kind, reference](Session& session, const Spec& spec) {
          return run_copies(session, spec, kind, *reference, [&](TransferMemory& copied) {
            return measure_copies(session.device(), copied, kind, sampling(session, spec));
          });
        });
      }
    }
    if (memory != HostMemory::kPageable) {
      continue;
    }
    // The peer, right behind what it is to be compared with.
    for (const CopyMode mode : kModes) {
      const CopyKind kind{
          .direction = direction, .memory = memory, .mode = mode, .bytes = batch_bytes(context)};
      add("tensor_copy", kind, [kind, reference](Session& session, const Spec& spec) {
        return run_tensor_copy(session, spec, kind, *reference);
      });
    }
  }
  return rows;
}

// --- Duplex --------------------------------------------------------------------------------------

struct DuplexMemory {
  CopyMemory h2d;
  CopyMemory d2h;
  std::optional<TransferMemory> cached_h2d;
  std::optional<TransferMemory> cached_d2h;
};
struct DuplexParts {
  TransferMemory& h2d;
  TransferMemory& d2h;
};

// A copy's size so that what both directions go round in, two copies to the device and one back,
// stays in the last-level cache. 0: that would be too small for a copy to come near the link's
// rate.
std::size_t cached_copy_bytes() {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  const std::size_t bytes = std::min(last_level_cache_bytes() / 4 / kMiB, std::size_t{32}) * kMiB;
  return bytes < 8 * kMiB ? 0 : bytes;
}

// The rate of the direction `timed` while the other one copies, with buffers that stay in the
// last-level cache. Where a CPU serves its devices from there (Intel's DDIO) that is what the link
// gives when the host's memory holds up neither. Nothing where that cannot be told.
std::optional<double> cached_GBps(Session& session, Direction timed) {
  Device& device = session.device();
  const std::size_t bytes = cached_copy_bytes();
  if (device.info().simulated || bytes == 0) {  // a profile knows no cache
    return std::nullopt;
  }
  auto& memory = session.kept<DuplexMemory>();
  if (!memory.cached_h2d) {
    memory.cached_h2d.emplace(device, HostMemory::kPinned, 2 * bytes);
    memory.cached_d2h.emplace(device, HostMemory::kPinned, 2 * bytes);
  }
  const bool h2d = timed == Direction::kH2d;
  const auto samples = measure_while_other(device, h2d ? *memory.cached_h2d : *memory.cached_d2h,
                                           h2d ? *memory.cached_d2h : *memory.cached_h2d, timed,
                                           bytes, {.warmup = 4, .samples = 64});
  return GBps(static_cast<double>(bytes), median(samples.timed_s));
}

DuplexParts duplex_parts(Session& session, const Spec& spec, std::size_t bytes) {
  Device& device = session.device();
  require_size(device.info(), bytes);
  auto& memory = session.kept<DuplexMemory>();
  DuplexParts parts{memory.h2d.of(device, HostMemory::kPinned, bytes),
                    memory.d2h.of(device, HostMemory::kPinned, bytes)};
  device.prepare(spec);
  return parts;
}

double alone_GBps(Device& device, TransferMemory& memory, Direction direction, std::size_t bytes) {
  return GBps(static_cast<double>(bytes),
              median(measure_copies(device, memory, {.direction = direction, .bytes = bytes},
                                    {.warmup = 2, .samples = 8})));
}

Report run_while_other(Session& session, const Spec& spec, Direction timed, std::size_t bytes) {
  if (session.device().info().type == DeviceType::kCpu) {
    throw Unsupported(
        "the cpu device has no link: its streams share the cores, and neither is "
        "sure to copy while the other one does");
  }
  const DuplexParts both = duplex_parts(session, spec, bytes);
  Device& device = session.device();
  const bool h2d = timed == Direction::kH2d;
  TransferMemory& memory = h2d ? both.h2d : both.d2h;
  TransferMemory& other = h2d ? both.d2h : both.h2d;
  const double alone = alone_GBps(device, memory, timed, bytes);
  const std::optional<double> cached = cached_GBps(session, timed);
  const auto samples =
      measure_while_other(device, memory, other, timed, bytes, sampling(session, spec));
  const double link_GBps = device.info().link_GBps;

  Report report = copies_report(spec, samples.timed_s, static_cast<double>(bytes));
  const double rate = report.counters.front().value;
  check_link(rate, link_GBps);
  if (!samples.other_s.empty()) {
    report.counters.push_back(
        {"other_GBps", GBps(static_cast<double>(bytes), median(samples.other_s))});
  }
  // With both directions busy the host's memory is, too: what else uses it shows in these two.
  report.counters.push_back(
      {"best_GBps", GBps(static_cast<double>(bytes),
                         *std::min_element(samples.timed_s.begin(), samples.timed_s.end()))});
  if (cached) {
    check_link(*cached, link_GBps);
    report.counters.push_back({"cached_GBps", *cached});
  }
  report.counters.push_back({"of_alone", rate / alone});
  report.counters.push_back({"spread", spread(samples.timed_s)});
  report.label = "clock: events";
  return report;
}

Report run_both(Session& session, const Spec& spec, std::size_t bytes) {
  constexpr int kCopies = 4;
  const DuplexParts both = duplex_parts(session, spec, bytes);
  Device& device = session.device();
  const double alone = alone_GBps(device, both.h2d, Direction::kH2d, bytes) +
                       alone_GBps(device, both.d2h, Direction::kD2h, bytes);
  const auto samples =
      measure_both(device, both.h2d, both.d2h, bytes, kCopies, sampling(session, spec));
  const double link_GBps = device.info().link_GBps;

  Report report = copies_report(spec, samples, 2.0 * kCopies * static_cast<double>(bytes));
  const double rate = report.counters.front().value;
  check_link(rate, 2 * link_GBps);
  report.counters.push_back({"of_alone", rate / alone});
  report.counters.push_back({"spread", spread(samples)});
  report.label = "clock: events";
  return report;
}

// --- Copy ----------------------------------------------------------------------------------------

Report run_host_cost(Session& session, const Spec& spec, const CopyKind& kind, bool busy) {
  Device& device = session.device();
  require_kind(device.info(), kind.memory);
  require_size(device.info(), kind.bytes);
  TransferMemory& memory = session.kept<CopyMemory>().of(device, kind.memory, kind.bytes);
  device.prepare(spec);
  TimeNs busy_ns = 0;
  if (busy) {
    // Well above what the copy takes by itself, or one could not tell what it waited for.
    constexpr TimeNs kLeast = 5'000'000;
    constexpr double kTimes = 3e9;  // three times, in ns
    const auto idle = measure_host_cost(device, memory, kind, 0, {.warmup = 1, .samples = 3});
    busy_ns = std::max(kLeast, static_cast<TimeNs>(kTimes * median(idle.done_s)));
  }
  const HostCost cost = measure_host_cost(device, memory, kind, busy_ns, sampling(session, spec));

  Report report;
  report.window_s = median(cost.done_s) * spec.steps;
  report.steps = spec.steps;
  report.bytes = static_cast<double>(kind.bytes) * spec.steps;
  report.unsteady = unsteady(cost.done_s);
  report.counters = {{"return_us", median(cost.return_s) * kUs},
                     {"done_us", median(cost.done_s) * kUs}};
  if (busy) {
    report.counters.push_back({"waits_for_stream", static_cast<double>(cost.waited) / spec.steps});
    report.counters.push_back({"busy_ms", median(cost.busy_s) * kMs});
  }
  report.counters.push_back({"spread", spread(cost.done_s)});
  report.label = "clock: wall";
  return report;
}

}  // namespace

std::vector<BenchRow> h2d_rows(const RowContext& context) {
  return transfer_rows(context, Direction::kH2d);
}
std::vector<BenchRow> d2h_rows(const RowContext& context) {
  return transfer_rows(context, Direction::kD2h);
}

std::vector<BenchRow> duplex_rows(const RowContext& context) {
  constexpr std::size_t kLarge = std::size_t{512} << 20;
  std::vector<std::size_t> sizes{batch_bytes(context), kLarge};
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  std::vector<BenchRow> rows;
  const auto add = [&](const std::string& name, std::size_t bytes, int steps,
                       std::function<Report(Session&, const Spec&)> run) {
    rows.push_back({.name = "Duplex/" + name + bytes_suffix(bytes),
                    .spec = {.warmup = 2, .steps = steps},
                    .own = own_members(),
                    .run = std::move(run),
                    .arguments = {{"bytes", std::to_string(bytes)}}});
  };
  for (const std::size_t bytes : sizes) {
    for (const auto& [name, timed] : {std::pair{"h2d_while_d2h", Direction::kH2d},
                                      std::pair{"d2h_while_h2d", Direction::kD2h}}) {
      add(name, bytes, 80, [timed, bytes](Session& session, const Spec& spec) {
        return run_while_other(session, spec, timed, bytes);
      });
    }
    add("both_at_once", bytes, 8,
        [bytes](Session& session, const Spec& spec) { return run_both(session, spec, bytes); });
  }
  return rows;
}

std::vector<BenchRow> copy_rows(const RowContext& context) {
  std::vector<std::size_t> sizes{4096, 65536, 1048576, 16777216, batch_bytes(context)};
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  std::vector<BenchRow> rows;
  for (const HostMemory memory : kKinds) {
    for (const CopyMode mode : kModes) {
      for (const bool busy : {false, true}) {
        for (const std::size_t bytes : sizes) {
          const CopyKind kind{.memory = memory, .mode = mode, .bytes = bytes};
          const std::string stream = busy ? "busy" : "idle";
          const bool small = bytes <= 1048576;
          rows.push_back({.name = "Copy/" + std::string(name_of(memory)) + "/" +
                                  std::string(name_of(mode)) + "/" + stream + bytes_suffix(bytes),
                          .spec = {.warmup = 2,
                                   .steps = busy    ? 10
                                            : small ? 50
                                                    : 10},
                          .own = own_members(),
                          .run =
                              [kind, busy](Session& session, const Spec& spec) {
                                return run_host_cost(session, spec, kind, busy);
                              },
                          .arguments = {{"memory", std::string(name_of(memory))},
                                        {"copy", std::string(name_of(mode))},
                                        {"stream", stream},
                                        {"bytes", std::to_string(bytes)}}});
        }
      }
    }
  }
  return rows;
}

}  // namespace feedrate
