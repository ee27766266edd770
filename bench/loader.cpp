// Loader rows: batches are taken as fast as they come and given back at once; nothing is copied to
// the device and no step runs.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dataset_randn.hpp"
#include "feedrate/error.hpp"
#include "feedrate/samples.hpp"
#include "feedrate/spec.hpp"
#include "harness.hpp"
#include "loader_libtorch.hpp"
#include "randn_rate.hpp"
#include "rows.hpp"
#include "usage.hpp"

namespace feedrate {
namespace {

struct Variant {
  std::string name;
  Spec spec;
  LibtorchUse libtorch = {};
  int most_workers = 4096;
};

std::vector<Variant> variants(const RowContext& context) {
  constexpr auto threads = LoaderKind::kThreads, processes = LoaderKind::kProcesses,
                 libtorch = LoaderKind::kLibtorch;
  constexpr auto pinned = HostMemory::kPinned;
  constexpr auto ring = Buffers::kRing;
  constexpr auto direct = Pinning::kDirect;
  // clang-format off
  return {
      {"inline",           {}},
      {"threads_fresh",    {.loader = threads}},
      {"threads_ring",     {.loader = threads, .buffers = ring}},
      {"threads_pinned",   {.loader = threads, .memory = pinned, .buffers = ring, .pinning = direct}},
      {"processes_fresh",  {.loader = processes}},
      {"processes_ring",   {.loader = processes, .buffers = ring}},
      {"processes_pinned", {.loader = processes, .memory = pinned, .buffers = ring, .pinning = direct}},
      {"libtorch",                  {.loader = libtorch}},
      // One sample at a time, whatever the workers: two show it, and many take minutes.
      {"libtorch_shared_generator", {.loader = libtorch}, {.shared_generator = true}, 2},
      // Each worker's intra-op threads are too many from two workers on.
      {"libtorch_intra_op",         {.loader = libtorch}, {.one_intra_op_thread = false}, std::max(2, context.cores)},
  };
  // clang-format on
}

constexpr const char* kInCache = "randn_in_cache";

// Batches a second of one worker, by variant, of the rows that have run.
using OneWorkerRates = std::map<std::string, double>;

// What every row of the family says of its rate. No workers: inline, which is one producer.
Report report_rate(const Spec& spec, const std::string& variant, int workers, double window_s,
                   OneWorkerRates& one_worker) {
  const double rate = spec.steps / window_s;
  Report report{.window_s = window_s,
                .steps = spec.steps,
                .images = static_cast<double>(spec.steps) * spec.batch};
  report.counters = {{"batches_per_s", rate},
                     {"images_per_s", rate * spec.batch},
                     {"GBps", rate * static_cast<double>(spec.shape().bytes()) * 1e-9}};
  if (workers == 1) {
    one_worker[variant] = rate;
  }
  if (const auto one = one_worker.find(variant); workers > 0 && one != one_worker.end()) {
    report.counters.push_back({"scaling", rate / (workers * one->second)});
  }
  return report;
}

// What share of their time workers would need if memory played no part, and nobody had to wait: the
// labels of kRandnBesideCache against the time from one batch of a worker to its next, of which a
// worker has a part where they are more than the cores. A worker's first batch has none before it.
class InCache {
 public:
  explicit InCache(int workers)
      : core_share_(std::min(1.0, static_cast<double>(usable_cores()) / workers)) {}

  void add(const HostBatch& batch) {
    const auto [previous, is_first] = ends_.try_emplace(batch.worker, batch.made.end);
    if (!is_first) {
      took_s_ += to_s(batch.made.end - previous->second);
      in_cache_s_ += in_cache_s(batch.labels);
    }
    previous->second = batch.made.end;
  }
  std::optional<double> share() const {
    return took_s_ > 0 ? std::optional(in_cache_s_ / (took_s_ * core_share_)) : std::nullopt;
  }

 private:
  // The whole batch, by its images that were measured.
  static double in_cache_s(std::span<const std::byte> labels) {
    TimeNs sum_ns = 0;
    int measured = 0;
    for (std::size_t at = 0; at < labels.size(); at += sizeof(TimeNs)) {
      TimeNs ns = 0;
      std::memcpy(&ns, labels.data() + at, sizeof ns);
      sum_ns += ns;
      measured += ns > 0 ? 1 : 0;
    }
    const auto images = static_cast<double>(labels.size() / sizeof(TimeNs));
    return measured > 0 ? to_s(sum_ns) * images / measured : 0;
  }

  const double core_share_;
  std::map<int, TimeNs> ends_;  // by worker, of its latest batch
  double took_s_ = 0;
  double in_cache_s_ = 0;
};

std::unique_ptr<Source> make(const Session& session, const Spec& spec, const LibtorchUse& use) {
  const std::vector<LoaderEntry> loaders{libtorch_loader(use)};
  try {
    return session.source(spec, loaders, kRandnBesideCache);
  } catch (const OutOfMemory& error) {
    throw Unsupported(error.what());  // so many workers' batches are not for this machine
  }
}

Report run_loader(Session& session, const Spec& spec, const Variant& variant,
                  OneWorkerRates& one_worker) {
  Device& device = session.device();
  const int lanes = std::max(1, spec.worker_count());
  session.sampled(0);

  const TimeNs begin = device.now();
  auto source = make(session, spec, variant.libtorch);
  // Their start is not in any figure: they were there before the first row.
  const std::vector<int> pids =
      spec.loader == LoaderKind::kProcesses ? session.processes().pids() : std::vector<int>{};
  Usage used;
  std::vector<TimeNs> taken;
  InCache in_cache(lanes);
  for (int turn = 0; turn < spec.warmup + spec.steps; ++turn) {
    HostBatch batch = source->next();
    taken.push_back(device.now());
    if (turn + 1 == spec.warmup) {
      used = usage(pids);
    }
    in_cache.add(batch);
    device.stage(Stage::kRelease, [&] { batch.lease.give_back(); });
    session.sampled(turn + 1);
  }
  used = usage(pids) - used;
  source.reset();

  // Workers that began together end together, and W batches come at once: only whole rounds of W
  // can be compared.
  const std::size_t first = static_cast<std::size_t>(spec.warmup) - 1;
  const auto round = static_cast<std::size_t>(std::min(lanes, std::max(1, spec.steps - 1)));
  std::vector<double> rounds_ms;
  for (std::size_t end = first + round; end < taken.size(); ++end) {
    rounds_ms.push_back(to_ms(taken[end] - taken[end - round]) / static_cast<double>(round));
  }
  Report report = report_rate(spec, variant.name, spec.worker_count(),
                              to_s(taken.back() - taken[first]), one_worker);
  report.counters.push_back({"first_batch_ms", to_ms(taken.front() - begin)});
  if (!session.device_info().simulated) {
    // With a shared generator LibTorch makes the samples, with labels of its own.
    if (const auto share = in_cache.share(); share && !variant.libtorch.shared_generator) {
      report.counters.push_back({"of_in_cache", *share});
    }
    report.counters.push_back({"cpu_s_per_batch", used.cpu_s / spec.steps});
    report.counters.push_back({"faults_per_batch", used.minor_faults / spec.steps});
  }
  report.counters.push_back({"spread", spread(rounds_ms)});
  report.unsteady = unsteady(rounds_ms);
  return report;
}

Report run_in_cache(Session& session, const Spec& spec, int workers, OneWorkerRates& one_worker) {
  if (session.device_info().simulated) {
    throw Unsupported("nothing is computed on a simulated device");
  }
  const double batch_GB = static_cast<double>(spec.shape().images_bytes()) * 1e-9;
  std::vector<double> batch_s;
  session.sampled(0);
  for (int sample = 0; sample < spec.warmup + spec.steps; ++sample) {
    const double GBps = randn_GBps(session.datasets(), workers);
    if (sample >= spec.warmup) {
      batch_s.push_back(batch_GB / GBps);
    }
    session.sampled(sample + 1);
  }
  Report report = report_rate(spec, kInCache, workers, median(batch_s) * spec.steps, one_worker);
  report.counters.push_back({"spread", spread(batch_s)});
  report.unsteady = unsteady(batch_s);
  return report;
}

std::set<int> worker_counts(const RowContext& context) {
  std::set<int> counts = sweep_axis(context.sweep_workers, {1, 2 * context.cores});
  if (context.sweep_workers.most == 0) {
    counts.insert(context.cores);
  }
  return counts;
}

std::string name_of_row(const std::string& variant, int workers) {
  return "Loader/" + variant + "/workers:" + std::to_string(workers);
}

}  // namespace

std::vector<BenchRow> loader_rows(const RowContext& context) {
  // Whole rounds of W batches, at least two and some ten batches: a second or so on cores that make
  // one in 0.3 s. Before them as many, or one where workers share cores and a round is long; the
  // queue has no head start, since batches are taken as they come.
  constexpr int kFewestBatches = 6;
  constexpr int kFewestRounds = 2;
  constexpr int kWarmRounds = 2;
  constexpr int kCacheSamples = 10;
  const auto own = members_but({"batch", "image", "prefetch", "steps"});
  const auto rates = std::make_shared<OneWorkerRates>();

  std::vector<BenchRow> rows;
  // The ceiling comes first: the others are compared with it.
  for (const int workers : worker_counts(context)) {
    rows.push_back(
        {.name = name_of_row(kInCache, workers),
         .spec = {.step = StepKind::kNull, .warmup = 1, .steps = kCacheSamples},
         .own = own,
         .run = [=](Session& session,
                    const Spec& spec) { return run_in_cache(session, spec, workers, *rates); },
         .arguments = {{"variant", kInCache}, {"workers", std::to_string(workers)}}});
  }
  for (const Variant& variant : variants(context)) {
    const bool in_line = variant.spec.loader == LoaderKind::kInline;
    for (const int workers : in_line ? std::set{0} : worker_counts(context)) {
      if (workers > variant.most_workers) {
        continue;
      }
      const int lanes = std::max(1, workers);
      const int rounds = std::max(kFewestRounds, (kFewestBatches + lanes - 1) / lanes);
      BenchRow row{
          .name = in_line ? "Loader/" + variant.name : name_of_row(variant.name, workers),
          .spec = variant.spec,
          .own = own,
          .run = [=](Session& session,
                     const Spec& spec) { return run_loader(session, spec, variant, *rates); },
          .arguments = {{"variant", variant.name}}};
      if (!in_line) {
        row.spec.workers = workers;
        row.arguments.emplace_back("workers", std::to_string(workers));
      }
      row.spec.step = StepKind::kNull;
      row.spec.warmup = (lanes > context.cores ? 1 : kWarmRounds) * lanes;
      row.spec.steps = rounds * lanes;
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

}  // namespace feedrate
