// Device: the one seam to hardware. Some twenty virtual functions over memory, streams, events,
// copies, named stages and the clock; behind them CUDA, the host itself, or nothing but time.
//
// Ownership: handles (Stream, Event, Buffer) are owned by whoever asked for them and must be
// destroyed before their Device. Functions take views; no stream is implied anywhere.
// Threads: record, wait, copy, enqueue and stage are called by one thread at a time for a given
// stream. synchronize(Event), done(Event), event(), record and now() may be called from any thread
// (a ring's slots are waited for by loader threads); a simulated device is used by one thread only.
// Order: work on a stream runs in the order in which it was enqueued; between two streams there is
// no order but that made by wait().
// Errors: DeviceError for what the device reports, OutOfMemory for refused memory, Unsupported for
// what it cannot do. To wait for, synchronize with or ask about an event that was never recorded is
// an Error, not a no-op.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "feedrate/spec.hpp"
#include "feedrate/time.hpp"

namespace feedrate {

// The named stages of a step: what a simulated device has a cost for, a profiler a range.
enum class Stage {
  kFetch,      // the training loop waits for the next batch
  kCopy,       // host to device
  kRelease,    // the host gives a batch's memory back
  kNormalize,  // uint8 images become normalised floats
  kCompute,    // the training step; enqueuing it costs the host the launch
  kCheck,      // the fingerprint of the batch that the step has used
  kSync,       // the host waits for the device
};

// A queue of device work. Move-only by way of unique_ptr.
class Stream {
 public:
  virtual ~Stream() = default;
};

// A point in a stream. May be recorded again and again; it then stands for the latest record.
class Event {
 public:
  virtual ~Event() = default;
};

// Holds a stream: what is enqueued behind it begins when it is opened, all at once. Destroying it
// opens it and waits until the stream has passed it.
class Gate {
 public:
  virtual ~Gate() = default;
  virtual void open() = 0;
};
// A device's queue has room for about a thousand operations; who waits for room behind a closed
// gate waits for ever. So no more than this between gate() and open().
inline constexpr int kMostBehindGate = 400;

// Memory with its owner. Move-only.
class Buffer {
 public:
  using Free = std::function<void(std::byte*, std::size_t)>;  // must not throw

  Buffer() = default;
  Buffer(std::byte* data, std::size_t bytes, Free free)
      : data_(data), bytes_(bytes), free_(std::move(free)) {}
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        free_(std::move(other.free_)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    if (this != &other) {
      reset();
      data_ = std::exchange(other.data_, nullptr);
      bytes_ = std::exchange(other.bytes_, 0);
      free_ = std::move(other.free_);
    }
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { reset(); }

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  std::span<std::byte> span() const { return {data_, bytes_}; }

 private:
  void reset() noexcept {
    if (data_ != nullptr && free_) {
      free_(data_, bytes_);
    }
    data_ = nullptr;
  }

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  Free free_;
};

// A batch on the device: views into a slot. images: float32 or uint8 [batch, 3, image, image], as
// shape.pixel says; labels: int64 [batch]. Null pointers when the shape is empty.
struct DeviceBatch {
  std::byte* images = nullptr;
  std::byte* labels = nullptr;
  BatchShape shape;
  std::int64_t index = 0;  // of the batch
};

enum class Direction { kH2d, kD2h };

// Fingerprints taken on a stream, to be read after the run. One for a run; index 0 … count - 1.
class FingerprintLog {
 public:
  virtual ~FingerprintLog() = default;

  // Enqueues, as stage kCheck: store the fingerprint (dataset.hpp) that `batch` has when the stream
  // gets there at `index`. An empty batch has fingerprint 0.
  virtual void take(Stream& stream, const DeviceBatch& batch, std::size_t index) = 0;

  // All fingerprints; waits for the device.
  virtual std::vector<std::uint64_t> read() = 0;
};

enum class DeviceType { kCuda, kCpu, kSim };

// Which device, and what a reader of its results must know.
struct DeviceInfo {
  std::string name;  // as the user would write it: "cuda:0", "cpu", "sim:l40s"
  DeviceType type = DeviceType::kCpu;
  int index = 0;           // cuda only
  bool simulated = false;  // times come from a profile
  int cores = 0;           // what kAllCores means for it: a profile's cores, 0: this process's
  Spec usual;              // batch, image and warmup that a row has here unless told otherwise
  double link_GBps = 0;    // pcie_GBps() of the link as it is now; 0: unknown, or no link
  int link_width = 0;      // lanes in use; 0: unknown, or no link
  int link_width_most = 0;
  int numa_node = -1;             // that the device is attached to; -1: unknown, or only one
  std::filesystem::path profile;  // the file that a simulated device's costs are from, if any
  // Further context for the result file: GPU, driver, link, profile and its source, …
  std::vector<std::pair<std::string, std::string>> context;
};

// What a PCIe link carries in one direction after line coding, 1e9 bytes a second; 0 for what is no
// link. Transfer rates a lane and codes are those of the PCI Express base specifications: 2.5 and
// 5 GT/s with 8b/10b, 8, 16 and 32 GT/s with 128b/130b, 64 GT/s in 256-byte flits of which 242 are
// packets. Packet headers are not subtracted: with payloads of 256 bytes some 8 to 10 % go to them.
double pcie_GBps(int generation, int width);

class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  // Context is read anew at each call where it changes (the link's generation under load).
  virtual DeviceInfo info() const = 0;

  // Told before each run what will run. A simulated device takes its stage costs from it; real ones
  // need not care. Throws Unsupported with the reason if the device cannot honour a choice.
  virtual void prepare(const Spec& spec) = 0;

  virtual Buffer host_buffer(std::size_t bytes, HostMemory kind) = 0;
  virtual Buffer device_buffer(std::size_t bytes) = 0;
  // Page-locks memory that the caller owns and keeps until the returned object is gone. A device
  // without page-locking returns an object that does nothing.
  virtual Buffer register_host(std::span<std::byte> memory) = 0;

  virtual std::unique_ptr<Stream> stream(const std::string& name) = 0;
  virtual std::unique_ptr<Event> event() = 0;

  virtual void record(Event& event, Stream& stream) = 0;
  // Work enqueued on `stream` from now on starts after what `event` stands for.
  virtual void wait(Stream& stream, Event& event) = 0;
  // The host waits.
  virtual void synchronize(Event& event) = 0;
  virtual void synchronize(Stream& stream) = 0;
  // Has what the event stands for been done? Never waits.
  virtual bool done(Event& event) = 0;
  // When that was, on the run's time axis. The event must be done.
  virtual TimeNs time(Event& event) = 0;

  // Copies `bytes`. `host_kind` is the kind of the host side. Blocking returns when the data is
  // there, async as soon as the device allows. Bytes 0 does nothing.
  virtual void copy(Stream& stream, Direction direction, std::byte* to, const std::byte* from,
                    std::size_t bytes, HostMemory host_kind, CopyMode mode) = 0;

  // Runs host work of the calling thread as a named stage (costed on a simulated device).
  virtual void stage(Stage stage, const std::function<void()>& work) = 0;

  // Device work as a named stage that reads `batch`. cuda: `work` runs now, with `stream` current,
  // and enqueues kernels. cpu: `work` runs on the stream's thread when its turn comes, and what it
  // throws surfaces at the next call for that stream or event. sim: `work` is not run; the host
  // pays the launch, the stream the stage's cost.
  virtual void enqueue(Stream& stream, Stage stage, const DeviceBatch& batch,
                       std::function<void()> work) = 0;

  // Device work that takes about `duration` and uses neither memory nor the link.
  virtual void busy(Stream& stream, TimeNs duration) = 0;

  // Puts a closed gate into the stream. Until it is open, nothing may be called for the stream that
  // waits for it: no synchronisation, no blocking copy, no copy from or to pageable memory. On a
  // simulated device the gate stands open: nothing there depends on when it was enqueued.
  virtual std::unique_ptr<Gate> gate(Stream& stream) = 0;

  // Device memory for work on `stream`, as LibTorch's caching allocator hands it out: once freed by
  // the host it may go, at once, to the next who asks for the same stream, whatever other streams
  // still do with it. Both used by the training loop's thread alone; must be freed before the
  // streams that it was used on. Throws OutOfMemory.
  virtual Buffer stream_buffer(Stream& stream, std::size_t bytes) = 0;
  // Tells the allocator that `buffer` (of stream_buffer) is used on `stream` too: freed, it is
  // handed out again when all that was enqueued there until then is done. As Tensor.record_stream.
  virtual void record_stream(const Buffer& buffer, Stream& stream) = 0;
  // The most device memory in use at once since prepare(), LibTorch's included.
  virtual std::size_t peak_device_bytes() const = 0;

  virtual std::unique_ptr<FingerprintLog> fingerprint_log(std::size_t count) = 0;

  // Brackets what a profiler records (cudaProfilerStart/Stop). Does nothing where there is none.
  virtual void profiler(bool on) = 0;

  virtual TimeNs now() const = 0;
};

// --device=NAME: "cuda", "cuda:1", "cpu", "sim", "sim:l40s", "sim:path/to/profile.json", "auto".
// A table entry makes the device of one kind from what stands behind the colon.
struct DeviceEntry {
  std::string name;
  std::string help;
  std::function<std::unique_ptr<Device>(const std::string& argument)> make;
};
using DeviceTable = std::vector<DeviceEntry>;

// Throws UsageError: unknown name (naming those there are), bad argument, no such device.
std::unique_ptr<Device> make_device(const DeviceTable& table, const std::string& name);

// The host itself: one real thread a stream.
DeviceEntry cpu_device();
// Time only, from a profile (profile.hpp).
DeviceEntry sim_device();
// CUDA runtime and LibTorch (feedrate_torch).
DeviceEntry cuda_device();

}  // namespace feedrate
