// TraceFile: every record of the rows that ran, as a trace that Perfetto and chrome://tracing open.
//
// The Trace Event Format's JSON: one process a row (and repetition), named tracks for the host,
// each worker, the pin thread, the copy and the compute stream; "X" events for intervals, a flow
// (s, t, f) a batch from the worker that made it to the step that used it. Times are microseconds
// from the begin of each row's first record. Colours are the published ones (batch blue, get batch
// red, copy batch yellow, compute green) where the viewer takes them: chrome://tracing does,
// Perfetto has its own. Used by the training loop's thread.
#pragma once

#include <string>

#include "feedrate/timeline.hpp"
#include "result_file.hpp"

namespace feedrate {

class TraceFile {
 public:
  // Sees whether `path` can be written. Throws UsageError naming `flag`.
  TraceFile(const std::string& flag, const std::string& path);

  // A row has run: `title` is its name, with the device and "simulated" where so.
  void add(const std::string& title, const Timeline& timeline);

  // All rows so far, whole or not at all. Throws Error.
  void write() const;

 private:
  ResultFile file_;
  std::string events_;  // JSON objects, separated by commas
  int rows_ = 0;
};

}  // namespace feedrate
