// Results: the rows of a run, as Google Benchmark reports them. ResultFile: where they go.
//
// Results is a reporter that only collects: Google's JSON reporter writes while rows run, so that
// an interrupted run leaves half a file, and writes numbers that are no JSON. The text is made at
// the end, from all rows and a context that is then complete, and put into place by renaming. Rows
// are added by the training loop's thread; any thread may read.
#pragma once

#include <benchmark/benchmark.h>

#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "feedrate/spec.hpp"

namespace feedrate {

using Run = benchmark::BenchmarkReporter::Run;  // one repetition of a row, or an aggregate
using ContextList = std::vector<std::pair<std::string, std::string>>;

// What went wrong with a run. Google Benchmark 1.8 renamed the members that say so.
std::optional<std::string> error_of(const Run& run);

struct SkippedRow {
  std::string name;
  std::string reason;
};

class Results final : public benchmark::BenchmarkReporter {
 public:
  // Is told of each row's runs as they come in, names as in the result file.
  using Listener = std::function<void(const std::vector<Run>&)>;
  // `aggregates_only`: single repetitions are left out, but for those of a row that failed.
  Results(Listener listener, bool aggregates_only)
      : listener_(std::move(listener)), aggregates_only_(aggregates_only) {}

  // What a row was, kept beside its figures: its arguments, or its spec member by member if it has
  // none.
  void describe(const std::string& row, const Spec& spec,
                const std::vector<std::pair<std::string, std::string>>& arguments);
  // The row is none: it stands in a list of its own with the reason.
  void skip(const std::string& row, const std::string& reason);
  // From now on failed runs of the row are not reported: it was interrupted.
  void leave_out_failures(const std::string& row);

  bool ReportContext(const Context& /*context*/) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override;

  bool empty() const;   // no run, failed or not
  bool failed() const;  // some run failed
  std::vector<SkippedRow> skipped() const;

  // The result file: Google Benchmark's schema, `context` added to its own. Strict JSON, whatever
  // the locale: values that are not finite are left out.
  std::string json(const ContextList& context) const;

 private:
  Listener listener_;
  bool aggregates_only_;
  mutable std::mutex mutex_;
  std::vector<Run> runs_;
  std::vector<SkippedRow> skipped_;
  struct Description {
    Spec spec;
    std::vector<std::pair<std::string, std::string>> arguments;
  };
  std::map<std::string, Description> descriptions_;
  std::set<std::string> left_out_;
  std::set<std::string> failed_;
};

// A file that is there whole or not at all.
class ResultFile {
 public:
  // Sees whether `path` can be written, and leaves what is there as it is. Throws UsageError that
  // names `flag`.
  ResultFile(const std::filesystem::path& path, const std::string& flag);

  // Replaces the file. Throws Error; the old one is still there then.
  void write(const std::string& text) const;
  // The same with what `fill` writes to the path that it is given, and throws if it cannot.
  void write_by(const std::function<void(const std::filesystem::path& path)>& fill) const;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
};

}  // namespace feedrate
