#include "feedrate/overlap.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "feedrate/error.hpp"
#include "feedrate/samples.hpp"
#include "harness.hpp"
#include "rows.hpp"
#include "transfer_rows.hpp"

namespace feedrate {
namespace {

constexpr double kMs = 1e3;  // in a second

// copy : compute.
struct Ratio {
  std::string_view text;
  double value;
};
constexpr std::array kSpinRatios{Ratio{"0.1", 0.1}, Ratio{"0.2", 0.2}, Ratio{"0.5", 0.5},
                                 Ratio{"1", 1},     Ratio{"2", 2},     Ratio{"5", 5},
                                 Ratio{"10", 10}};
constexpr std::array kStepRatios{Ratio{"0.1", 0.1}, Ratio{"0.5", 0.5}, Ratio{"1", 1},
                                 Ratio{"2", 2}};

Report overlap_report(const Spec& spec, double bytes, const Turns& copy, const Turns& compute,
                      const Turns& both) {
  Report report;
  report.window_s = both.turn_s * spec.steps;
  report.steps = spec.steps;
  report.bytes = bytes * spec.steps;
  report.unsteady = unsteady(both.turns_s);
  report.counters = {{"efficiency", overlap_efficiency(copy.turn_s, compute.turn_s, both.turn_s)},
                     {"step_ms", both.turn_s * kMs},
                     {"copy_ms", copy.turn_s * kMs},
                     {"compute_ms", compute.turn_s * kMs},
                     {"ratio_measured", copy.turn_s / compute.turn_s},
                     {"spread", spread(both.turns_s)}};
  report.label = "clock: events";
  return report;
}

// What the rows share: memory, as long as they copy the same.
struct OverlapMemory {
  std::optional<OverlapPipeline> pipeline;

  OverlapPipeline& of(Device& device, std::size_t bytes) {
    if (!pipeline || pipeline->batch().size() != bytes) {
      pipeline.reset();
      pipeline.emplace(device, bytes);
    }
    pipeline->set_amount({.bytes = bytes});
    return *pipeline;
  }
};

// The compute clock drifts, and the link is shared with others: what is alone is measured before
// and after what it is compared with.
Turns mean_of(const Turns& before, const Turns& after) {
  return {.turn_s = (before.turn_s + after.turn_s) / 2};
}

// What enqueuing costs must not count beside what is enqueued.
void require_length(double copy_s, double compute_s) {
  constexpr double kLeast = 100e-6;
  if (std::min(copy_s, compute_s) < kLeast) {
    throw Unsupported("the batch is too small here: copy and compute must take 100 us each");
  }
}

Sampling alone(const Spec& spec) { return {.warmup = spec.warmup, .samples = spec.steps}; }

Report run_spin(Session& session, const Spec& spec, double ratio, bool two_streams, int chunks) {
  Device& device = session.device();
  const std::size_t bytes = BatchShape{spec.batch, spec.image}.images_bytes();
  require_size(device.info(), bytes);
  OverlapPipeline& pipeline = session.kept<OverlapMemory>().of(device, bytes);
  device.prepare(spec);
  const Turns whole_copy = pipeline.copy_alone(alone(spec));
  require_length(whole_copy.turn_s, whole_copy.turn_s / ratio);
  const TimeNs spin = calibrated_spin(pipeline, device, whole_copy.turn_s / ratio);
  const OverlapPipeline::Work work = [&](Stream& stream, std::byte*) { device.busy(stream, spin); };
  const Turns compute = pipeline.work_alone(work, alone(spec));
  pipeline.set_amount({.bytes = bytes, .chunks = chunks});
  const Turns both = pipeline.both(work, two_streams, sampling(session, spec));
  const Turns compute_after = pipeline.work_alone(work, alone(spec));
  pipeline.set_amount({.bytes = bytes});
  const Turns copy_after = pipeline.copy_alone(alone(spec));
  return overlap_report(spec, static_cast<double>(bytes), mean_of(whole_copy, copy_after),
                        mean_of(compute, compute_after), both);
}

// The batch is copied as often as the ratio wants: a step of the model takes what it takes.
Report run_step(Session& session, const Spec& spec, double ratio, bool two_streams) {
  constexpr double kMostCopies = 200;
  constexpr double kWord = 8;
  Device& device = session.device();
  Step& step = session.step(spec);
  const BatchShape shape = spec.shape();
  require_size(device.info(), shape.bytes());
  OverlapPipeline& pipeline = session.kept<OverlapMemory>().of(device, shape.bytes());
  {
    const auto resident = session.resident(spec);
    const auto stream = device.stream("copy");
    device.copy(*stream, Direction::kD2h, pipeline.batch().data(), resident.batch.images,
                shape.bytes(), HostMemory::kPinned, CopyMode::kBlocking);
  }
  device.prepare(spec);
  const OverlapPipeline::Work work = [&](Stream& stream, std::byte* slot) {
    const DeviceBatch batch{slot, slot + shape.images_bytes(), shape, 0};
    device.enqueue(stream, Stage::kCompute, batch, [&step, batch] { step.train(batch); });
  };
  // Both slots hold the batch from here on.
  const Turns one_copy = pipeline.copy_alone(alone(spec));
  require_length(one_copy.turn_s, one_copy.turn_s);
  const Turns compute = pipeline.work_alone(work, alone(spec));
  const double copies = ratio * compute.turn_s / one_copy.turn_s;
  if (!(copies <= kMostCopies)) {
    throw Unsupported("the batch would have to be copied more than " +
                      std::to_string(std::llround(kMostCopies)) + " times a step for this ratio");
  }
  const auto bytes = static_cast<std::size_t>(
      std::max(1.0, std::round(copies * static_cast<double>(shape.bytes()) / kWord)) * kWord);
  pipeline.set_amount({.bytes = bytes});
  const Turns copy = pipeline.copy_alone(alone(spec));
  const Turns both = pipeline.both(work, two_streams, sampling(session, spec));
  return overlap_report(spec, static_cast<double>(bytes),
                        mean_of(copy, pipeline.copy_alone(alone(spec))),
                        mean_of(compute, pipeline.work_alone(work, alone(spec))), both);
}

std::string streams_text(bool two_streams) { return two_streams ? "two_streams" : "one_stream"; }

}  // namespace

std::vector<BenchRow> overlap_rows(const RowContext& /*context*/) {
  std::vector<BenchRow> rows;
  const auto add = [&](const std::string& work, bool two_streams, Ratio ratio, int steps,
                       const std::vector<std::string_view>& own,
                       std::function<Report(Session&, const Spec&)> run) -> BenchRow& {
    rows.push_back({.name = "Overlap/" + work + "/" + streams_text(two_streams) +
                            "/ratio:" + std::string(ratio.text),
                    .spec = {.warmup = 3, .steps = steps},
                    .own = own,
                    .run = std::move(run),
                    .arguments = {{"work", work},
                                  {"streams", two_streams ? "2" : "1"},
                                  {"ratio", std::string(ratio.text)}}});
    return rows.back();
  };
  const auto spin_own = members_but({"batch", "image", "steps"});
  const auto add_spin = [&](bool two_streams, Ratio ratio, int chunks) -> BenchRow& {
    constexpr int kSteps = 16;
    return add("spin", two_streams, ratio, kSteps, spin_own,
               [=](Session& session, const Spec& spec) {
                 return run_spin(session, spec, ratio.value, two_streams, chunks);
               });
  };
  for (const bool two_streams : {false, true}) {
    for (const Ratio ratio : kSpinRatios) {
      add_spin(two_streams, ratio, 1);
    }
  }
  for (const int chunks : {1, 4, 16, 64}) {
    BenchRow& row = add_spin(true, {"1", 1}, chunks);
    row.name += "/chunks:" + std::to_string(chunks);
    row.arguments.emplace_back("chunks", std::to_string(chunks));
  }
  for (const bool two_streams : {false, true}) {
    for (const Ratio ratio : kStepRatios) {
      constexpr int kSteps = 6;
      add("step", two_streams, ratio, kSteps, members_but({"batch", "image", "steps"}),
          [=](Session& session, const Spec& spec) {
            return run_step(session, spec, ratio.value, two_streams);
          });
    }
  }
  return rows;
}

}  // namespace feedrate
