// Loader: hands out batches in order. A pin thread behind it does the same, so both are Sources.
//
// A Source is used by one thread, the training loop. Its own workers never outlive it: the
// destructor stops and joins them, at any time, also while next() would block for ever.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "feedrate/dataset.hpp"
#include "feedrate/device.hpp"
#include "feedrate/spec.hpp"
#include "feedrate/staging.hpp"
#include "feedrate/time.hpp"

namespace feedrate {

// A batch in host memory, with the right to use that memory.
struct HostBatch {
  std::int64_t index = 0;
  std::span<std::byte> images;  // shape.images_bytes(), null when empty
  std::span<std::byte> labels;  // shape.labels_bytes()
  HostMemory memory = HostMemory::kPageable;
  std::uint64_t fingerprint = 0;
  Lease lease;
  int worker = -1;  // who made it, -1: the training loop
  Interval made;    // when its worker worked on it, waiting for memory excluded
  Interval pinned;  // when the pin thread worked on it: copy and release. Empty without one
};

class Source {
 public:
  Source() = default;
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;
  virtual ~Source() = default;

  // The next batch, 0, 1, 2, … without end. Blocks until it is there. Throws LoaderError when a
  // worker failed or died (also on every later call), Interrupted when `stop` was raised, and what
  // the memory throws.
  virtual HostBatch next() = 0;

  // Makes next() throw Interrupted soon, from now on, also where it waits already. Any thread. A
  // source whose next() never takes long may do nothing.
  virtual void stop() noexcept {}
};

// Worker processes, started once (before the first CUDA call) and reused by every row that loads
// with processes. Owns the processes: the destructor ends and reaps them. One loader at a time.
class WorkerPool {
 public:
  // `executable` is a program whose main() calls worker_main(). Starts nothing yet.
  explicit WorkerPool(std::string executable);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Makes sure that `count` workers are there and alive, replacing dead ones; starts no more once
  // `stop` is raised. Throws LoaderError; those that it had started are ended then.
  void ensure(int count, const std::atomic<bool>* stop = nullptr);
  // Process ids of the workers, for tests and messages.
  std::vector<int> pids() const;

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// The whole life of a worker process: serves the socket `socket_fd` until it closes or the parent
// dies. Returns the exit status. The executable gets the descriptor's number as its last argument.
int worker_main(int socket_fd, const DatasetTable& datasets);

struct SourceParts;

// A loader by its name in choices<LoaderKind>(). The Source may outlive the entry.
struct LoaderEntry {
  std::string_view name;
  std::function<std::unique_ptr<Source>(const Spec&, const SourceParts&)> make;
};

// What a Source is made from, besides the Spec. All must outlive the Source.
struct SourceParts {
  Device& device;
  const DatasetTable& datasets;
  WorkerPool* processes = nullptr;  // needed by loader processes
  const std::atomic<bool>* stop =
      nullptr;  // raised by Ctrl-C: next() throws Interrupted within 0.2 s
  std::span<const LoaderEntry> loaders = {};  // those that are not in the core
  std::string_view dataset = {};              // its name in `datasets`; empty: the spec's
};

// Host memory that a source for `spec` may hold at once, bytes: the loader's batches, begun or
// waiting, and a pin thread's ring.
std::size_t host_bytes(const Spec& spec);

// The source that `spec` asks for: its loader (on a simulated device the queueing model), and
// behind it a pin thread if pinning is thread. The table of the core's loaders is in loader.cpp;
// a loader that is neither there nor in parts.loaders is Unsupported.
// Memory: pinning none and thread: the loader writes pageable memory, fresh or ring; direct: it
// writes a ring of kind spec.memory. The pin thread's ring is of kind spec.memory.
// Ring sizes: loader worker_count * prefetch + slots + 1; pin thread slots + 2.
std::unique_ptr<Source> make_source(const Spec& spec, const SourceParts& parts);

}  // namespace feedrate
