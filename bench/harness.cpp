#include "harness.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "context.hpp"
#include "feedrate/error.hpp"
#include "loader_libtorch.hpp"
#include "text.hpp"

namespace feedrate {
namespace {

constexpr int kWarmSteps = 3;

std::unique_ptr<Step> make_step(StepKind kind, const DeviceInfo& device) {
  // A simulated device runs no step: it knows what one costs.
  if (kind == StepKind::kNull || device.simulated) {
    return make_null_step();
  }
  return make_resnet18_step(device);
}

}  // namespace

Session::Session(const Parts& parts)
    : parts_(parts), info_(parts.device.info()), loaders_(torch_loaders()) {}

Spec Session::resolved(Spec spec) const {
  if (spec.workers == kAllCores && spec.loader != LoaderKind::kInline) {
    spec.workers = info_.cores > 0 ? info_.cores : spec.worker_count();
  }
  spec.steps = spec.step_count();
  return spec;
}

void Session::add(const BenchRow& row) {
  if (const auto reason = invalid(row.spec)) {
    parts_.results.skip(row.name, *reason);
    return;
  }
  BenchRow resolved_row = row;
  resolved_row.spec = resolved(row.spec);
  parts_.results.describe(row.name, resolved_row.spec, resolved_row.arguments);
  // The number of iterations is fixed, or the row would be run again for every guess of it.
  benchmark::RegisterBenchmark(
      row.name.c_str(), [this, resolved_row](benchmark::State& state) { run(resolved_row, state); })
      ->Iterations(resolved_row.spec.steps)
      ->UseManualTime();
}

Step& Session::step(const Spec& spec) {
  auto& step = steps_[spec.step];
  if (step == nullptr) {
    step = make_step(spec.step, info_);
  }
  const std::tuple warmth{spec.step, spec.batch, spec.image, spec.shape().pixel};
  if (!info_.simulated && !spec.shape().empty && !warm_.contains(warmth)) {
    const auto batch = resident(spec);
    const auto stream = parts_.device.stream("compute");
    for (int i = 0; i < kWarmSteps; ++i) {
      if (parts_.stop) {
        throw Interrupted();
      }
      parts_.device.enqueue(*stream, Stage::kCompute, batch.batch, [&] {
        if (batch.batch.shape.pixel == Pixel::kU8) {
          step->normalize(batch.batch);
        }
        step->train(batch.batch);
      });
      parts_.device.synchronize(*stream);
    }
    warm_.insert(warmth);
  }
  step->reset();
  return *step;
}

std::unique_ptr<Source> Session::source(const Spec& spec, std::span<const LoaderEntry> loaders,
                                        std::string_view dataset) const {
  return make_source(spec, {.device = parts_.device,
                            .datasets = parts_.datasets,
                            .processes = &parts_.processes,
                            .stop = &parts_.stop,
                            .loaders = loaders,
                            .dataset = dataset});
}

RunParts Session::run_parts(Source* source, Step& step) {
  if (first_ == 0) {
    time_cpu(true);
  }
  Step* runs = &step;
  if (parts_.torch_profile != nullptr) {
    watched_step_ = parts_.torch_profile->watched(step);
    runs = watched_step_.get();
  }
  return {.device = parts_.device,
          .source = source,
          .step = *runs,
          .trace = parts_.trace,
          .stop = &parts_.stop,
          .record = parts_.record,
          .progress = [this](int done, int total) { step_done(done, total); }};
}

Session::Resident Session::resident(const Spec& spec) const {
  Device& device = parts_.device;
  const Spec plain{.dataset = spec.dataset, .batch = spec.batch, .image = spec.image};
  const auto inline_source = source(plain);
  const HostBatch host = inline_source->next();

  Resident resident;
  resident.fingerprint = host.fingerprint;
  resident.memory = device.device_buffer(plain.shape().bytes());
  std::byte* const images = resident.memory.data();
  resident.batch = {images, images == nullptr ? nullptr : images + host.images.size(),
                    plain.shape(), host.index};
  const auto stream = device.stream("copy");
  device.copy(*stream, Direction::kH2d, resident.batch.images, host.images.data(),
              host.images.size(), host.memory, CopyMode::kBlocking);
  device.copy(*stream, Direction::kH2d, resident.batch.labels, host.labels.data(),
              host.labels.size(), host.memory, CopyMode::kBlocking);
  device.synchronize(*stream);
  return resident;
}

void Session::run(const BenchRow& row, benchmark::State& state) {
  if (!parts_.stop) {
    parts_.progress.begin(row.name);
  }
  row_ = &row;
  ++runs_[row.name];
  const std::string family = row.name.substr(0, row.name.find('/'));
  if (family != std::exchange(family_, family)) {
    kept_.reset();
  }
  state_ = &state;
  first_ = row.spec.warmup;
  end_ = row.spec.warmup + row.spec.steps;
  // Entered once. Failures, too, are reported from inside: Google Benchmark wants the same number
  // of iterations of every repetition.
  while (state.KeepRunningBatch(row.spec.steps)) {
    // CPU time is of the measured steps alone: step_done() goes on with it.
    state.PauseTiming();
    timed_ = false;
    try {
      if (const auto failed = failed_.find(row.name); failed != failed_.end()) {
        // Google Benchmark crashes when a repetition fails and a later one does not.
        throw Error(failed->second);
      }
      if (parts_.stop) {
        throw Interrupted();
      }
      parts_.device.prepare(row.spec);
      write(row.run(*this, row.spec), state);
      time_cpu(true);  // as Google Benchmark wants to find it
    } catch (const Interrupted& error) {
      parts_.results.leave_out_failures(row.name);
      state.SkipWithError(error.what());
    } catch (const Unsupported& error) {
      parts_.results.skip(row.name, words_of(error));
      state.SkipWithError(error.what());
    } catch (const std::exception& error) {
      const std::string message = words_of(error);
      failed_.emplace(row.name, message);
      state.SkipWithError(message.c_str());
    }
  }
  parts_.progress.clear();
}

void Session::time_cpu(bool on) {
  if (std::exchange(timed_, on) != on) {
    on ? state_->ResumeTiming() : state_->PauseTiming();
  }
}

void Session::step_done(int done, int total) {
  if (done >= first_) {  // some rows do several samples at a time
    time_cpu(done < end_);
  }
  parts_.progress.step(done, total);
}

Report Session::report(const Spec& spec, const Timeline& timeline) {
  if (parts_.timelines != nullptr) {
    std::string title = row_->name;
    if (parts_.repetitions > 1) {
      title += ", repetition " + std::to_string(runs_[row_->name]) + " of " +
               std::to_string(parts_.repetitions);
    }
    title += " on " + info_.name + (info_.simulated ? " (simulated)" : "");
    parts_.timelines->add(title, spec, timeline);
  }
  return feedrate::report(spec, timeline);
}

void Session::sampled(int done) {
  if (parts_.stop) {
    throw Interrupted();
  }
  step_done(done, end_);
}

void Session::write(const Report& result, benchmark::State& state) {
  if (result.bytes > 0) {
    info_ = parts_.device.info();  // while the link is still awake
    state.SetBytesProcessed(static_cast<std::int64_t>(result.bytes));
  }
  if (result.images > 0) {
    state.SetItemsProcessed(static_cast<std::int64_t>(result.images));
  }
  state.SetIterationTime(result.window_s);
  for (const auto& counter : result.counters) {
    state.counters[counter.name] = counter.value;
  }
  std::string label = result.label;
  const auto also = [&](const std::string& text) { label += (label.empty() ? "" : ", ") + text; };
  if (result.unsteady) {
    also("unsteady");
  }
  if (info_.simulated) {
    also("simulated");
  }
  if (debug_build()) {
    also("debug build");
  }
  state.SetLabel(label);
}

}  // namespace feedrate
