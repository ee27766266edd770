// Harness: runs rows. The only place that meets Google Benchmark's State, and where every counter
// of every row is written.
//
// A row is a Spec and a function that runs it and reports; families are tables of them (rows.hpp).
// One Session runs all rows of a program on one device and keeps what is dear to make: the model,
// warm for each shape. All of it is used by the training loop's thread.
#pragma once

#include <benchmark/benchmark.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "feedrate/dataset.hpp"
#include "feedrate/device.hpp"
#include "feedrate/loader.hpp"
#include "feedrate/schedule.hpp"
#include "feedrate/step.hpp"
#include "feedrate/timeline.hpp"
#include "feedrate/trace.hpp"
#include "progress.hpp"
#include "result_file.hpp"
#include "rows.hpp"
#include "torch_profile.hpp"
#include "trace_file.hpp"

namespace feedrate {

class Session {
 public:
  // All must outlive the Session.
  struct Parts {
    Device& device;
    const DatasetTable& datasets;
    WorkerPool& processes;
    Trace& trace;
    Results& results;
    Progress& progress;
    const std::atomic<bool>& stop;
    int repetitions = 1;
    TraceFile* timelines = nullptr;         // takes every run's records, if there is one
    TorchProfile* torch_profile = nullptr;  // records the measured steps, if there is one
    std::function<void(bool on)> record;    // RunParts has it
  };

  explicit Session(const Parts& parts);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Registers the row with Google Benchmark, or skips it if its spec makes no sense.
  void add(const BenchRow& row);

  // Workers and steps as numbers; on a simulated device all cores are its own.
  Spec resolved(Spec spec) const;

  // The device as it was when it last worked.
  const DeviceInfo& device_info() const { return info_; }

  // --- For the rows' functions

  Device& device() const { return parts_.device; }
  const DatasetTable& datasets() const { return parts_.datasets; }
  WorkerPool& processes() const { return parts_.processes; }

  // The report of a training loop that has run.
  Report report(const Spec& spec, const Timeline& timeline);

  // For rows that are no training loop, after each sample: `done` of spec.warmup + spec.steps, once
  // with 0 before the first. Shows progress and takes CPU time of the measured samples alone.
  // Throws Interrupted.
  void sampled(int done);

  // The spec's step, warm for its shape, with the initial weights. Throws Interrupted.
  Step& step(const Spec& spec);

  // What the rows of a family share and is dear to make, of a type of the family's own: made when
  // first asked for, dropped when a row of another family begins.
  template <typename Kept>
  Kept& kept() {
    if (kept_ == nullptr) {
      kept_ = std::make_shared<Kept>();
    }
    return *static_cast<Kept*>(kept_.get());
  }

  std::unique_ptr<Source> source(const Spec& spec) const { return source(spec, loaders_); }
  // With another table of what is not in the core, and another dataset than the spec's.
  std::unique_ptr<Source> source(const Spec& spec, std::span<const LoaderEntry> loaders,
                                 std::string_view dataset = {}) const;
  // For the run that begins now. `source` may be null (run_resident).
  RunParts run_parts(Source* source, Step& step);

  // Batch 0 of the spec's dataset, on the device.
  struct Resident {
    Buffer memory;
    DeviceBatch batch;
    std::uint64_t fingerprint = 0;
  };
  Resident resident(const Spec& spec) const;

 private:
  void run(const BenchRow& row, benchmark::State& state);
  void write(const Report& report, benchmark::State& state);
  void step_done(int done, int total);
  // Whether what runs now counts as the row's CPU time.
  void time_cpu(bool on);

  Parts parts_;
  DeviceInfo info_;
  const std::vector<LoaderEntry> loaders_;
  std::map<StepKind, std::unique_ptr<Step>> steps_;
  std::unique_ptr<Step> watched_step_;                    // of the run, if a profile is wanted
  std::set<std::tuple<StepKind, int, int, Pixel>> warm_;  // step, batch, image
  std::map<std::string, std::string> failed_;             // row, message
  std::map<std::string, int> runs_;                       // row, its repetitions so far
  std::shared_ptr<void> kept_;                            // by the family of the latest row
  std::string family_;
  // The row that runs.
  const BenchRow* row_ = nullptr;
  benchmark::State* state_ = nullptr;
  int first_ = 0;
  int end_ = 0;
  bool timed_ = false;
};

}  // namespace feedrate
