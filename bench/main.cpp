// bench: runs rows on a device, prints them as a table and writes the result file.
//
// Everything that can be wrong with the command line is found before anything is started, and the
// workers are started before the first CUDA call.

#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "at_exit.hpp"
#include "context.hpp"
#include "dataset_randn.hpp"
#include "feedrate/error.hpp"
#include "flags.hpp"
#include "harness.hpp"
#include "interrupt.hpp"
#include "preflight.hpp"
#include "progress.hpp"
#include "result_file.hpp"
#include "rows.hpp"
#include "text.hpp"
#include "torch_profile.hpp"
#ifdef FEEDRATE_CUDA
#include "device_cuda.hpp"
#endif

namespace feedrate {
namespace {

constexpr int kOk = 0;
constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

// One line, whatever the user wrote into what is quoted.
void say(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  std::fprintf(stderr, "bench: %s\n", text.c_str());
}

// What was asked for goes to standard output, whole or with a complaint.
int print(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0) {
    say("standard output could not be written");
    return kFailed;
  }
  return kOk;
}

// "cuda" of "cuda:1".
std::string kind_of(const std::string& device) { return device.substr(0, device.find(':')); }

// --- Rows ----------------------------------------------------------------------------------------

// What the flags and the device's usual shape say of a spec, but for the members of `own`.
void settle(const Options& options, const DeviceInfo& device,
            const std::vector<std::string_view>& own, Spec& spec) {
  const auto is_own = [&](std::string_view member) {
    return std::find(own.begin(), own.end(), member) != own.end();
  };
  for (const auto& [name, member] :
       {std::pair{"batch", &Spec::batch}, std::pair{"image", &Spec::image},
        std::pair{"warmup", &Spec::warmup}}) {
    if (!is_own(name)) {
      spec.*member = device.usual.*member;
    }
  }
  for (const auto& override : options.overrides) {
    if (!is_own(override.member)) {
      override.apply(spec);
    }
  }
}

// Those that Google Benchmark would choose, had they the names that we report.
std::vector<BenchRow> chosen_rows(const Options& options, const DeviceInfo& device) {
  const std::string& filter = options.filter;
  const bool negated = filter.starts_with('-');
  const std::string pattern = filter.substr(negated ? 1 : 0);
  std::regex regex;
  try {
    regex = std::regex(pattern.empty() || filter == "all" ? "." : pattern, std::regex::extended);
  } catch (const std::regex_error& error) {
    throw UsageError("--benchmark_filter=" + filter +
                     ": must be an extended regular expression: " + error.what());
  }
  RowContext context{.cores = device.cores > 0 ? device.cores : usable_cores(),
                     .device = device.type,
                     .sweep_workers = options.sweep_workers,
                     .sweep_batch = options.sweep_batch,
                     .sweep_image = options.sweep_image};
  settle(options, device, {}, context.common);

  std::vector<BenchRow> rows;
  std::string names;
  for (const auto& family : families()) {
    names += (names.empty() ? "" : ", ") + std::string(family.name);
    for (auto& row : family.rows(context)) {
      if (std::regex_search(row.name, regex) != negated) {
        settle(options, device, row.own, row.spec);
        rows.push_back(std::move(row));
      }
    }
  }
  if (rows.empty()) {
    throw UsageError("--benchmark_filter=" + filter + ": matches no row; there are the families " +
                     names + ", and --benchmark_list_tests lists the rows");
  }
  return rows;
}

int most_processes(const std::vector<BenchRow>& rows) {
  int most = 0;
  for (const auto& row : rows) {
    if (row.spec.loader == LoaderKind::kProcesses && !invalid(row.spec)) {
      most = std::max(most, row.spec.worker_count());
    }
  }
  return most;
}

// --- Device --------------------------------------------------------------------------------------

DeviceTable devices() {
  return {
#ifdef FEEDRATE_CUDA
      cuda_device(),
#endif
      cpu_device(), sim_device(),
      DeviceEntry{
          .name = "auto", .help = "the first CUDA device; with none, sim", .make = nullptr}};
}

// Whether there can be a CUDA device, found out without a CUDA call: an answer of no is certain.
bool may_have_gpu() {
#ifdef FEEDRATE_CUDA
  return std::filesystem::exists("/dev/nvidiactl") || std::filesystem::exists("/dev/dxg");
#else
  return false;
#endif
}

// The device that the user asked for, if it can be opened before the workers are started: one that
// makes no CUDA call.
std::unique_ptr<Device> device_without_cuda(const std::string& name) {
  if (kind_of(name) == "auto") {
    return may_have_gpu() ? nullptr : make_device(devices(), "sim");
  }
  return kind_of(name) == "cuda" ? nullptr : make_device(devices(), name);
}

// The one that may be CUDA's. The workers must have been started.
std::unique_ptr<Device> device_with_cuda(const std::string& name) {
  if (kind_of(name) != "auto") {
    return make_device(devices(), name);
  }
#ifdef FEEDRATE_CUDA
  if (cuda_device_count() > 0) {
    return make_device(devices(), "cuda");
  }
#endif
  return make_device(devices(), "sim");
}

std::string worker_program() {
  return std::filesystem::read_symlink("/proc/self/exe").replace_filename("worker");
}

// --- Profiler ------------------------------------------------------------------------------------

// Ranges cost something only while a profiler listens; it then sets this variable.
bool wants_trace(const Options& options) {
  return options.trace.value_or(options.capture || std::getenv("NVTX_INJECTION64_PATH") != nullptr);
}

std::unique_ptr<Trace> make_trace(const Options& options) {
  std::vector<std::unique_ptr<Trace>> traces;
  if (wants_trace(options)) {
#ifdef FEEDRATE_NVTX
    traces.push_back(make_nvtx_trace());
#else
    if (options.trace) {
      throw UsageError("--trace=on: this program was built without NVTX3");
    }
#endif
  }
  if (options.torch_profile) {
    traces.push_back(make_torch_trace());
  }
  return make_trace_list(std::move(traces));
}

// A row that makes no sense is skipped; if that is all that was asked for, the flags are wrong.
void check_makes_sense(const Options& options, const std::vector<BenchRow>& rows) {
  if (std::all_of(rows.begin(), rows.end(),
                  [](const BenchRow& row) { return invalid(row.spec).has_value(); })) {
    const BenchRow& one = rows.front();  // flags make the same mistake in all of them
    throw UsageError("no row of --benchmark_filter=" + options.filter +
                     " makes sense with these flags. " + one.name + ": " + *invalid(one.spec));
  }
}

// Steps are what both are of.
void check_has_steps(const std::string& flag, const std::vector<BenchRow>& rows) {
  if (std::none_of(rows.begin(), rows.end(),
                   [](const BenchRow& row) { return row.is_training_loop(); })) {
    throw UsageError(flag + "is of training loops, such as those of Pipeline, and " +
                     "--benchmark_filter chooses none");
  }
}

// LibTorch's profile is of one row that runs once, and of a device where LibTorch runs.
void check_records(const Options& options, const std::vector<BenchRow>& rows,
                   const Device* device) {
  if (options.timeline) {
    check_has_steps("--timeline=" + *options.timeline + ": ", rows);
  }
  if (!options.torch_profile) {
    return;
  }
  const std::string flag = "--torch_profile=" + *options.torch_profile + ": ";
  if (device != nullptr && device->info().simulated) {
    throw UsageError(flag + "the device " + device->info().name +
                     " is simulated, LibTorch runs nothing there; --timeline works on it");
  }
  if (rows.size() != 1) {
    throw UsageError(flag + "is of one row, and --benchmark_filter chooses " +
                     std::to_string(rows.size()));
  }
  check_has_steps(flag, rows);
  if (options.repetitions > 1) {
    throw UsageError(flag + "is of one run, and --benchmark_repetitions asks for " +
                     std::to_string(options.repetitions));
  }
}

// --- Running -------------------------------------------------------------------------------------

void initialize_benchmark(const Options& options, char* program) {
  // What is handled here is switched off there, also where the environment switches it on.
  std::vector<std::string> args{"--benchmark_list_tests=false",
                                "--benchmark_filter=",
                                "--benchmark_out=",
                                "--benchmark_out_format=json",
                                "--benchmark_format=console",
                                "--benchmark_report_aggregates_only=false",
                                "--benchmark_display_aggregates_only=false",
                                "--benchmark_min_warmup_time=0"};
  args.insert(args.end(), options.passed_on.begin(), options.passed_on.end());
  std::vector<char*> argv{program};
  for (auto& arg : args) {
    argv.push_back(arg.data());
  }
  int argc = static_cast<int>(argv.size());
  benchmark::SetDefaultTimeUnit(benchmark::kMillisecond);
  benchmark::Initialize(&argc, argv.data());
}

// How wide the names of a table's rows can get, aggregates included.
std::size_t name_width(const std::vector<BenchRow>& rows, int repetitions) {
  std::size_t width = 0;
  for (const auto& row : rows) {
    width = std::max(width, row.name.size());
  }
  return width + (repetitions > 1 ? std::string_view("_stddev").size() : 0) + 1;
}

// One run of the program, once its command line has been understood.
class Program {
 public:
  // `device` and `rows`: as chosen without a CUDA call; no device: it may be CUDA's.
  Program(int argc, char** argv, const Options& options, std::unique_ptr<Device> device,
          std::vector<BenchRow> rows)
      : argc_(argc),
        argv_(argv),
        options_(options),
        device_(std::move(device)),
        rows_(std::move(rows)),
        results_([this](const std::vector<Run>& runs) { show(runs); },
                 options.report_aggregates_only) {
    if (options.out) {
      file_.emplace(*options.out, "benchmark_out");
    }
    if (options.timeline) {
      timelines_.emplace("timeline", *options.timeline);
    }
    if (options.torch_profile) {
      profile_file_.emplace(*options.torch_profile, "torch_profile");
    }
    check_paths();
  }

  int run() {
    Interrupt interrupt([this] {
      write(Finish::kInterrupted);
      write_timelines();
    });
    const AtExit at_exit([&] {
      interrupt.finish();
      write(Finish::kEnded);
      write_timelines();
    });
    const auto& stop = interrupt.raised();
    const auto datasets = torch_datasets();
    WorkerPool processes(worker_program());
    open_device(processes, stop);
    const auto trace = make_trace(options_);
    const DeviceInfo info = device_->info();
    if (options_.torch_profile) {
      profile_.emplace(info.type);
    }
    describe_run(info);
    if (!info.simulated && !stop) {
      try {
        add_context(cpu_rate_context(datasets));
      } catch (const Error& error) {
        say(std::string("the arithmetic rate of the cores is not in the context: ") + error.what());
      }
    }

    initialize_benchmark(options_, argv_[0]);
    table_.set_name_width(name_width(rows_, options_.repetitions));
    const auto sound = std::count_if(rows_.begin(), rows_.end(),
                                     [](const BenchRow& row) { return !invalid(row.spec); });
    Progress progress(static_cast<int>(sound) * options_.repetitions);
    progress_ = &progress;
    Session session({.device = *device_,
                     .datasets = datasets,
                     .processes = processes,
                     .trace = *trace,
                     .results = results_,
                     .progress = progress,
                     .stop = stop,
                     .repetitions = options_.repetitions,
                     .timelines = timelines_ ? &*timelines_ : nullptr,
                     .torch_profile = profile_ ? &*profile_ : nullptr,
                     .record = recorder()});
    head(info, session);
    for (const auto& row : rows_) {
      session.add(row);
    }
    const StealTime steal;
    if (sound > 0) {
      benchmark::RunSpecifiedBenchmarks(&results_, ".");
    }
    progress_ = nullptr;

    interrupt.finish();
    add_context(device_context(session.device_info()));
    add_context(steal.context());
    if (!options_.json) {
      table_.skipped(results_.skipped());
    }
    if (results_.empty() && !results_.failed() && !stop) {
      say("every row was skipped; the reasons are in the table");
    }
    bool written = write(stop ? Finish::kInterrupted : Finish::kWhole);
    written = write_timelines() && written;
    written = write_profile() && written;
    const bool failed = results_.failed() || trained_on_bad_ || !written;
    return stop ? Interrupt::kExitStatus : failed ? kFailed : kOk;
  }

 private:
  // Starts the workers first, if there can be a row that needs them.
  void open_device(WorkerPool& processes, const std::atomic<bool>& stop) {
    if (device_ == nullptr || !device_->info().simulated) {
      try {
        processes.ensure(most_processes(rows_), &stop);
      } catch (const LoaderError& error) {
        say(error.what());  // the rows that want workers will fail, and the others run
      }
    }
    if (device_ == nullptr) {
      device_ = device_with_cuda(options_.device);
      if (device_->info().simulated) {
        rows_ = chosen_rows(options_, device_->info());  // not those of a GPU
      }
      check_records(options_, rows_, device_.get());
    }
    if (kind_of(options_.device) == "auto" && device_->info().simulated) {
      say("no CUDA device: what follows is SIMULATED, from a profile of another machine");
      add_context({{"feedrate.device_choice", "auto: no CUDA device, so simulated"}});
    }
  }

  void describe_run(const DeviceInfo& info) {
    if (options_.capture && info.type != DeviceType::kCuda) {
      say("--capture: there is no CUDA profiler for " + info.name +
          ", ranges are all that it brings");
    }
    add_context(device_context(info));
    add_context(program_context(argc_, argv_));
    add_context(host_context());
    const Limits limits = read_limits();
    add_context(preflight_context(limits, info));
    for (const auto& warning : preflight_warnings(limits, info, rows_)) {
      say(warning);
    }
    add_context(options_.context);
    if (debug_build()) {
      say("this is a debug build: its times mean nothing");
    }
  }

  // What rows have in common; each one's spec stands beside its figures.
  void head(const DeviceInfo& info, const Session& session) {
    Spec spec;
    settle(options_, info, {}, spec);
    spec.loader = LoaderKind::kThreads;
    const Spec common = session.resolved(spec);
    const std::string window(name_of(common.window));
    add_context({{"feedrate.workers", std::to_string(common.workers)},
                 {"feedrate.batch", std::to_string(common.batch)},
                 {"feedrate.image", std::to_string(common.image)},
                 {"feedrate.window", window}});
    if (!options_.json) {
      std::printf("%s on %s: %s%d workers, batches of %d images of %d x %d, %s window\n",
                  version_text().c_str(), info.name.c_str(),
                  info.simulated ? "SIMULATED, no time was measured; " : "", common.workers,
                  common.batch, common.image, common.image, window.c_str());
      std::fflush(stdout);
    }
  }

  void show(const std::vector<Run>& runs) {
    if (progress_ != nullptr) {
      progress_->clear();
    }
    for (const auto& run : runs) {
      const auto bad = run.counters.find("bad_batches");
      if (run.run_type == Run::RT_Iteration && bad != run.counters.end() && bad->second > 0 &&
          run.report_label.find(kNegativeControl) == std::string::npos) {
        say(run.benchmark_name() + ": steps trained on batches that were not the loader's");
        trained_on_bad_ = true;
      }
    }
    const bool hidden = options_.display_aggregates_only && options_.repetitions > 1 &&
                        runs.front().run_type == Run::RT_Iteration &&
                        std::none_of(runs.begin(), runs.end(), error_of);
    if (!options_.json && !hidden) {
      table_.rows(runs);
    }
  }

  // A later value of a key replaces an earlier one.
  void add_context(const ContextList& more) {
    const std::lock_guard lock(context_mutex_);
    for (const auto& [key, value] : more) {
      const auto found = std::find_if(context_.begin(), context_.end(),
                                      [&](const auto& entry) { return entry.first == key; });
      if (found == context_.end()) {
        context_.emplace_back(key, value);
      } else {
        found->second = value;
      }
    }
  }

  // How the run came to its end: kEnded by somebody else's exit().
  enum class Finish { kWhole, kInterrupted, kEnded };

  // Also called by the watcher of an interrupt and at exit, while rows run. False: could not be
  // written.
  bool write(Finish finish) {
    const bool interrupted = finish != Finish::kWhole;
    add_context({{"feedrate.interrupted", interrupted ? "true" : "false"}});
    if (interrupted) {
      const std::string how = finish == Finish::kInterrupted
                                  ? "interrupted"
                                  : "ended by a library (its reason stands above)";
      say(how + (results_.empty() ? " before any row had finished" : ""));
    }
    // Nothing to write, and perhaps no way to: Google Benchmark may have given up on the very file
    // that the context asks it for.
    const bool nothing = interrupted && results_.empty();
    const std::string text = nothing ? "" : result_text();
    if (options_.json) {
      std::fputs(text.c_str(), stdout);
    }
    bool good = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
    if (!good) {
      say("the rows ran, but standard output could not be written");
    }
    if (file_ && !nothing) {
      try {
        file_->write(text);
      } catch (const Error& error) {
        say(error.what());
        good = false;
      }
    }
    return good;
  }

  std::string result_text() const {
    ContextList context;
    {
      const std::lock_guard lock(context_mutex_);
      context = context_;
    }
    return results_.json(context);
  }

  // What is told which steps are measured.
  std::function<void(bool on)> recorder() {
    if (!options_.capture && !profile_) {
      return nullptr;
    }
    return [this](bool on) {
      if (options_.capture && on) {
        device_->profiler(true);
      }
      if (profile_) {
        profile_->record(on);
      }
      if (options_.capture && !on) {
        device_->profiler(false);
      }
    };
  }

  // Also called by the watcher of an interrupt. False: what was asked for is not there.
  bool write_timelines() const {
    if (!timelines_) {
      return true;
    }
    return written("timeline", timelines_->empty(), [this] { timelines_->write(); });
  }

  bool write_profile() {
    if (!profile_file_) {
      return true;
    }
    const bool none = results_.empty() || results_.failed() || !profile_->recorded();
    return written("torch_profile", none, [this] {
      profile_file_->write_by([this](const std::filesystem::path& path) { profile_->save(path); });
    });
  }

  static bool written(const std::string& flag, bool nothing, const std::function<void()>& write) {
    if (nothing) {
      say("--" + flag + ": no training loop ran to its end, so no file was written");
      return false;
    }
    try {
      write();
    } catch (const Error& error) {
      say(error.what());
      return false;
    }
    return true;
  }

  void check_paths() const {
    std::vector<std::filesystem::path> paths;
    if (file_) {
      paths.push_back(file_->path());
    }
    if (timelines_) {
      paths.push_back(timelines_->path());
    }
    if (profile_file_) {
      paths.push_back(profile_file_->path());
    }
    std::sort(paths.begin(), paths.end());
    const auto twice = std::adjacent_find(paths.begin(), paths.end());
    if (twice != paths.end()) {
      throw UsageError(twice->string() +
                       ": two of --benchmark_out, --timeline and --torch_profile name it");
    }
    const std::filesystem::path read = device_ == nullptr ? "" : device_->info().profile;
    for (const auto& path : paths) {
      std::error_code none;  // what is not there is not read
      if (std::filesystem::equivalent(path, read, none)) {
        throw UsageError(path.string() + ": cannot be written: --device=" + options_.device +
                         " reads it, and it would be lost");
      }
    }
  }

  int argc_;
  char** argv_;
  const Options& options_;
  std::unique_ptr<Device> device_;
  std::vector<BenchRow> rows_;
  Table table_;
  Results results_;
  std::optional<ResultFile> file_;
  std::optional<TraceFile> timelines_;
  std::optional<ResultFile> profile_file_;
  std::optional<TorchProfile> profile_;
  Progress* progress_ = nullptr;  // while rows run
  bool trained_on_bad_ = false;
  mutable std::mutex context_mutex_;
  ContextList context_;
};

void check_device_name(const std::string& name) {
  std::vector<std::string_view> names;
  const auto table = devices();
  for (const auto& device : table) {
    names.push_back(device.name);
  }
  const std::string kind = kind_of(name);
  if (kind == "cuda" && std::find(names.begin(), names.end(), kind) == names.end()) {
    throw UsageError("--device=" + name + ": this program was built with a Torch without CUDA");
  }
  if (std::find(names.begin(), names.end(), kind) == names.end() ||
      (kind == "auto" && name != kind)) {
    throw UsageError("--device=" + name + ": must be " + either(names));
  }
}

int bench(int argc, char** argv) {
  const Options options = parse_flags(argc, argv);
  if (options.help) {
    return print(help_text(devices()));
  }
  if (options.version) {
    return print(version_text() + "\n");
  }
  check_device_name(options.device);
  auto device = device_without_cuda(options.device);
  auto rows = chosen_rows(options, device ? device->info() : DeviceInfo{.type = DeviceType::kCuda});
  if (options.list) {
    std::string names;
    for (const auto& row : rows) {
      names += row.name + "\n";
    }
    return print(names);
  }
  check_makes_sense(options, rows);
  check_records(options, rows, device.get());
  Program program(argc, argv, options, std::move(device), std::move(rows));
  for (const auto& note : options.notes) {
    say(note);
  }
  return program.run();
}

// A standard descriptor that is closed would be the number of the next file or socket, and what is
// printed would go there. One that cannot be used in its direction says so instead.
void occupy_standard_descriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) < 0) {
      open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);  // the lowest number is free
    }
  }
}

}  // namespace
}  // namespace feedrate

int main(int argc, char** argv) {
  feedrate::occupy_standard_descriptors();
  // What cannot be written is an error where it is written, not the end of the process.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    return feedrate::bench(argc, argv);
  } catch (const feedrate::UsageError& error) {
    feedrate::say(error.what());
    return feedrate::kWrongUsage;
  } catch (const std::exception& error) {
    feedrate::say(feedrate::words_of(error));
    return feedrate::kFailed;
  }
}
