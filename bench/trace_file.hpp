// TraceFile: every record of the rows that ran, as a trace that Perfetto and chrome://tracing open.
//
// The Trace Event Format's JSON: one process a row (and repetition), named tracks for the host,
// each worker, the pin thread, the copies, the compute stream and the measured window; "X" events
// for intervals, a flow (s, t, f) a batch from the worker that made it to the step that used it.
// Events are in the order of time, and a longer one before a shorter one that begins with it, as
// viewers want them. Times are microseconds from the begin of each row's first record. Colours are
// the published ones (batch blue, get batch red, copy batch yellow, compute green) where the viewer
// takes them: chrome://tracing does, Perfetto has its own. Rows are added by the training loop's
// thread; any thread may write.
#pragma once

#include <filesystem>
#include <mutex>
#include <string>

#include "feedrate/spec.hpp"
#include "feedrate/timeline.hpp"
#include "result_file.hpp"

namespace feedrate {

class TraceFile {
 public:
  // Sees whether `path` can be written. Throws UsageError naming `flag`.
  TraceFile(const std::string& flag, const std::string& path);

  // A row has run: `title` is its name, with the device and "simulated" where so.
  void add(const std::string& title, const Spec& spec, const Timeline& timeline);

  bool empty() const;  // no row yet
  // All rows so far, whole or not at all. Throws Error.
  void write() const;

  const std::filesystem::path& path() const { return file_.path(); }

 private:
  ResultFile file_;
  mutable std::mutex mutex_;
  std::string events_;  // JSON objects, separated by commas
  int rows_ = 0;
};

}  // namespace feedrate
