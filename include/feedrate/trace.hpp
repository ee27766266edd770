// Trace: the ranges that a profiler shows, with the published names and colours. Costs nothing when
// off: the default Trace does nothing.
//
// batch, get batch and copy batch are nested ranges of the calling thread. compute is a start/end
// range of the process, since autograd launches the backward kernels from its own thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace feedrate {

enum class TraceRange {
  kBatch,      // blue: one turn of the training loop
  kGetBatch,   // red
  kCopyBatch,  // yellow
  kCompute,    // green
};

class Trace {
 public:
  virtual ~Trace() = default;
  virtual void push(TraceRange /*range*/, std::int64_t /*step*/) {}
  virtual void pop() {}
  virtual std::uint64_t start(TraceRange /*range*/, std::int64_t /*step*/) { return 0; }
  virtual void end(std::uint64_t /*id*/) {}
};

// A nested range for a scope.
class ScopedRange {
 public:
  ScopedRange(Trace& trace, TraceRange range, std::int64_t step) : trace_(trace) {
    trace_.push(range, step);
  }
  ScopedRange(const ScopedRange&) = delete;
  ScopedRange& operator=(const ScopedRange&) = delete;
  ~ScopedRange() { trace_.pop(); }

 private:
  Trace& trace_;
};

// A start/end range for a scope.
class ProcessRange {
 public:
  ProcessRange(Trace& trace, TraceRange range, std::int64_t step)
      : trace_(trace), id_(trace.start(range, step)) {}
  ProcessRange(const ProcessRange&) = delete;
  ProcessRange& operator=(const ProcessRange&) = delete;
  ~ProcessRange() { trace_.end(id_); }

 private:
  Trace& trace_;
  std::uint64_t id_;
};

// Shows each range to all of `traces`; to one of them, or to none, without a detour.
std::unique_ptr<Trace> make_trace_list(std::vector<std::unique_ptr<Trace>> traces);

// NVTX3 ranges in the domain "feedrate" (needs the header-only NVTX3; in feedrate_torch).
std::unique_ptr<Trace> make_nvtx_trace();

}  // namespace feedrate
