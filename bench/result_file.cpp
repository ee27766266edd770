#include "result_file.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "feedrate/error.hpp"

namespace feedrate {
namespace {

using Json = nlohmann::ordered_json;

template <typename AnyRun>
std::optional<std::string> any_error_of(const AnyRun& run) {
  if constexpr (requires { run.skip_message; }) {
    return static_cast<int>(run.skipped) == 0 ? std::nullopt : std::optional(run.skip_message);
  } else {
    return run.error_occurred ? std::optional(run.error_message) : std::nullopt;
  }
}

// RFC 3339 in local time, as Google Benchmark has it.
std::string date_now() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 64> text{};
  const std::size_t size = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S%z", &local);
  const std::string_view date(text.data(), size);
  const std::size_t minutes = 2;  // behind the colon that %z lacks
  return std::string(date.substr(0, size - minutes))
      .append(":")
      .append(date.substr(size - minutes));
}

Json google_context() {
  const auto& cpu = benchmark::CPUInfo::Get();
  using CpuInfo = benchmark::CPUInfo;
  Json json;
  json["date"] = date_now();
  json["host_name"] = benchmark::SystemInfo::Get().name;
  if (const char* executable = benchmark::BenchmarkReporter::Context::executable_name) {
    json["executable"] = executable;
  }
  json["num_cpus"] = cpu.num_cpus;
  json["mhz_per_cpu"] = std::lround(cpu.cycles_per_second * 1e-6);
  if (cpu.scaling != CpuInfo::UNKNOWN) {
    json["cpu_scaling_enabled"] = cpu.scaling == CpuInfo::ENABLED;
  }
  json["caches"] = Json::array();
  for (const auto& cache : cpu.caches) {
    json["caches"].push_back({{"type", cache.type},
                              {"level", cache.level},
                              {"size", cache.size},
                              {"num_sharing", cache.num_sharing}});
  }
  json["load_avg"] = cpu.load_avg;
#ifdef NDEBUG
  json["library_build_type"] = "release";
#else
  json["library_build_type"] = "debug";
#endif
  json["json_schema_version"] = 1;
  return json;
}

void put(Json& json, const std::string& key, double value) {
  if (std::isfinite(value)) {
    json[key] = value;
  }
}

bool is_aggregate(const Run& run) { return run.run_type == Run::RT_Aggregate; }

// The times of an aggregate that is a share (cv) are not to be divided by anything.
double time_of(const Run& run, double accumulated, double adjusted) {
  const bool share = is_aggregate(run) && run.aggregate_unit == benchmark::kPercentage;
  return share ? accumulated : adjusted;
}

Json json_of(const Run& run) {
  Json json;
  json["name"] = run.benchmark_name();
  json["family_index"] = run.family_index;
  json["per_family_instance_index"] = run.per_family_instance_index;
  json["run_name"] = run.run_name.str();
  json["run_type"] = is_aggregate(run) ? "aggregate" : "iteration";
  json["repetitions"] = run.repetitions;
  if (is_aggregate(run)) {
    json["threads"] = run.threads;
    json["aggregate_name"] = run.aggregate_name;
    json["aggregate_unit"] = run.aggregate_unit == benchmark::kPercentage ? "percentage" : "time";
  } else {
    json["repetition_index"] = run.repetition_index;
    json["threads"] = run.threads;
  }
  const auto error = error_of(run);
  if (error) {
    json["error_occurred"] = true;
    json["error_message"] = *error;
  }
  json["iterations"] = error ? 0 : run.iterations;
  put(json, "real_time", time_of(run, run.real_accumulated_time, run.GetAdjustedRealTime()));
  put(json, "cpu_time", time_of(run, run.cpu_accumulated_time, run.GetAdjustedCPUTime()));
  json["time_unit"] = benchmark::GetTimeUnitString(run.time_unit);
  for (const auto& [name, counter] : run.counters) {
    put(json, name, counter.value);
  }
  if (!run.report_label.empty()) {
    json["label"] = run.report_label;
  }
  return json;
}

Json json_of(const Spec& spec) {
  Json json;
  for_each_member([&](std::string_view name, auto member, auto&&...) {
    const auto value = spec.*member;
    if constexpr (std::is_enum_v<std::remove_const_t<decltype(value)>>) {
      json[std::string(name)] = name_of(value);
    } else {
      json[std::string(name)] = value;
    }
  });
  return json;
}

std::string reason() { return std::strerror(errno); }

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, Close>;

}  // namespace

std::optional<std::string> error_of(const Run& run) { return any_error_of(run); }

// --- Results -------------------------------------------------------------------------------------

void Results::describe(const std::string& row, const Spec& spec,
                       const std::vector<std::pair<std::string, std::string>>& arguments) {
  const std::lock_guard lock(mutex_);
  descriptions_.insert_or_assign(row, Description{spec, arguments});
}

void Results::skip(const std::string& row, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (left_out_.insert(row).second) {
    skipped_.push_back({row, reason});
  }
}

void Results::leave_out_failures(const std::string& row) {
  const std::lock_guard lock(mutex_);
  left_out_.insert(row);
}

// All repetitions of a row come in one call, its aggregates in a second one.
void Results::ReportRuns(const std::vector<Run>& runs) {
  if (runs.empty()) {
    return;
  }
  std::vector<Run> kept = runs;
  for (Run& run : kept) {
    // Google Benchmark appends how a row is run to its name; that is the same for all of ours.
    run.run_name.iterations.clear();
    run.run_name.time_type.clear();
  }
  {
    const std::lock_guard lock(mutex_);
    const std::string row = kept.front().run_name.str();
    const bool left_out = left_out_.contains(row);
    if (!left_out && std::any_of(kept.begin(), kept.end(), error_of)) {
      failed_.insert(row);
    }
    const bool whole = !left_out && !failed_.contains(row);
    std::erase_if(kept, [&](const Run& run) {
      if (is_aggregate(run)) {
        // An aggregate of what is left of a row would not say so.
        return !whole || !std::isfinite(run.real_accumulated_time);
      }
      return error_of(run) ? left_out : whole && aggregates_only_ && run.repetitions > 1;
    });
    runs_.insert(runs_.end(), kept.begin(), kept.end());
  }
  if (!kept.empty()) {
    listener_(kept);
  }
}

bool Results::empty() const {
  const std::lock_guard lock(mutex_);
  return runs_.empty();
}

bool Results::failed() const {
  const std::lock_guard lock(mutex_);
  return !failed_.empty();
}

std::vector<SkippedRow> Results::skipped() const {
  const std::lock_guard lock(mutex_);
  return skipped_;
}

std::string Results::json(const ContextList& context) const {
  const std::lock_guard lock(mutex_);
  Json json;
  json["context"] = google_context();
  for (const auto& [key, value] : context) {
    json["context"].emplace(key, value);  // what Google Benchmark writes stays as it is
  }
  json["benchmarks"] = Json::array();
  for (const auto& run : runs_) {
    json["benchmarks"].push_back(json_of(run));
  }
  json["skipped"] = Json::array();
  for (const auto& row : skipped_) {
    json["skipped"].push_back({{"name", row.name}, {"reason", row.reason}});
  }
  json["specs"] = Json::object();
  for (const auto& [row, description] : descriptions_) {
    Json& described = json["specs"][row] = Json::object();
    if (description.arguments.empty()) {
      described = json_of(description.spec);
    }
    for (const auto& [name, value] : description.arguments) {
      described[name] = value;
    }
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// --- ResultFile ----------------------------------------------------------------------------------

ResultFile::ResultFile(const std::filesystem::path& path, const std::string& flag) {
  const auto refuse = [&](const std::string& why) {
    return UsageError("--" + flag + "=" + path.string() + ": cannot be written: " + why);
  };
  std::error_code error;
  if (path.empty()) {
    throw refuse("it has no name");
  }
  // Absolute: a relative name of a file that is not there yet would stay relative, and could not be
  // compared. A link is followed, so that the link stays.
  path_ = std::filesystem::absolute(path, error);
  if (!error) {
    path_ = std::filesystem::weakly_canonical(path_, error);
  }
  if (error) {
    throw refuse(error.message());
  }
  if (std::filesystem::is_symlink(path_, error)) {
    throw refuse("it is a link to nothing");
  }
  const auto status = std::filesystem::status(path_, error);
  if (std::filesystem::is_directory(status)) {
    throw refuse("it is a directory");
  }
  if (std::filesystem::exists(status)) {
    if (!std::filesystem::is_regular_file(status)) {
      throw refuse("it is not a regular file");
    }
    if (access(path_.c_str(), W_OK) != 0) {
      throw refuse(reason());
    }
  }
  // Beside the file, since a rename does not cross file systems; of its own name, since another
  // run may be writing the same file.
  temporary_ = path_;
  temporary_ += std::string(".").append(std::to_string(getpid())).append(".tmp");
  const File probe(std::fopen(temporary_.c_str(), "w"));
  if (probe == nullptr) {
    throw refuse(reason());
  }
  std::remove(temporary_.c_str());
}

void ResultFile::write(const std::string& text) const {
  write_by([&](const std::filesystem::path& path) {
    File file(std::fopen(path.c_str(), "w"));
    if (file == nullptr || std::fwrite(text.data(), 1, text.size(), file.get()) != text.size() ||
        std::fclose(file.release()) != 0) {
      throw Error(reason());
    }
  });
}

void ResultFile::write_by(
    const std::function<void(const std::filesystem::path& path)>& fill) const {
  try {
    fill(temporary_);
    const File file(std::fopen(temporary_.c_str(), "r+"));
    if (file == nullptr || fsync(fileno(file.get())) != 0 ||
        std::rename(temporary_.c_str(), path_.c_str()) != 0) {
      throw Error(reason());
    }
  } catch (const std::exception& error) {
    std::remove(temporary_.c_str());
    throw Error("the rows ran, but " + path_.string() + " could not be written: " + error.what());
  }
}

}  // namespace feedrate
