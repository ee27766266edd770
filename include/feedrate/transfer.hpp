// Transfer: what copies between host and device take, each kind measured alone.
//
// TransferMemory owns what is copied: host memory of one kind and device memory of the same size,
// both full of random bytes. Copies go round in it: from slot to slot, and on to the next slot at
// the next measurement, so that no cache holds what a copy reads as long as the memory is larger
// than the caches. What a slot received is compared with what was sent when a measurement is over;
// until then the slot holds something else, and what it receives differs from turn to turn.
//
// Clocks. Asynchronous copies of page-locked memory are timed by events around each, behind a gate
// until all of a group are queued: what the device takes. All others are timed by the wall, until
// the host knows that the data is there: what the host waits.
//
// Times are seconds, sizes bytes, a multiple of 8 each. One thread uses it all. Everything that a
// measurement starts is done when it returns or throws. Throws what the device throws, and Error
// for a copy that did not arrive as it was sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "feedrate/device.hpp"
#include "feedrate/spec.hpp"

namespace feedrate {

enum class CopyClock { kEvents, kWall };

// One kind of copy.
struct CopyKind {
  Direction direction = Direction::kH2d;
  HostMemory memory = HostMemory::kPinned;
  CopyMode mode = CopyMode::kAsync;
  std::size_t bytes = 0;
  // How it is done, if not by Device::copy. Timed by the wall.
  std::function<void(Stream& stream, std::byte* to, const std::byte* from)> by = {};

  CopyClock clock() const;
};

// How often something is measured. `done` is told how many samples are done, those before the first
// that counts included, once with 0 at the begin; samples of one group are done together. It may
// throw, which ends the measurement.
struct Sampling {
  int warmup = 0;
  int samples = 1;
  std::function<void(int done)> done = [](int) {};
};

class TransferMemory {
 public:
  // `bytes` on either side. Throws OutOfMemory.
  TransferMemory(Device& device, HostMemory kind, std::size_t bytes);
  TransferMemory(const TransferMemory&) = delete;
  TransferMemory& operator=(const TransferMemory&) = delete;

  HostMemory kind() const { return kind_; }
  std::size_t bytes() const { return bytes_; }

 private:
  friend class CopyRun;

  std::byte* base(Direction direction, bool source) const;
  void fill_host();
  void fill_device();
  void to_device(std::byte* to, const std::byte* from, std::size_t bytes, HostMemory kind);
  void to_host(std::byte* to, const std::byte* from, std::size_t bytes);

  Device& device_;
  HostMemory kind_;
  std::size_t bytes_;
  bool simulated_;  // of a buffer only the first word exists
  Buffer host_;
  Buffer there_;
  Buffer check_;    // page-locked, what is compared
  Buffer scratch_;  // on the device: the way to memory that the host is slow to read
  std::unique_ptr<Stream> stream_;
  bool host_filled_ = false;
  bool device_filled_ = false;
  std::size_t cursor_ = 0;  // where the next measurement begins
};

// `count` copies of one size in one direction: where each reads and writes.
class CopyRun {
 public:
  // Fills the sources if need be and overwrites the destinations. The device must be idle.
  CopyRun(TransferMemory& memory, Direction direction, std::size_t bytes, int count);

  struct Ends {
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
  };
  // Of the next copy.
  Ends next();

  // Compares each destination with what was sent there last. The device must be idle.
  void verify();

 private:
  struct Written {
    std::size_t to = 0;    // slots
    std::size_t from = 0;  //
  };

  std::byte* slot(bool source, std::size_t number) const;
  void overwrite(std::size_t number);
  void check(const Written& written);

  TransferMemory& memory_;
  Direction direction_;
  std::size_t bytes_;
  std::size_t stride_;
  std::size_t sources_;       // slots
  std::size_t destinations_;  // one fewer, so that every turn brings other contents
  std::size_t next_;
  std::size_t end_;
  std::vector<Written> written_;
};

// Seconds of each copy, in the order of time. Copies of up to 1 MiB that are asynchronous by name
// and timed by the wall are a burst of `kBurst` a sample, synchronised at its end.
inline constexpr int kBurst = 16;
std::vector<double> measure_copies(Device& device, TransferMemory& memory, const CopyKind& kind,
                                   const Sampling& sampling);

// One direction while the other one is copying all the time: each copy of the direction `timed` by
// events, on one stream, while another stream has copies queued that began before and end after
// all of them. Memory is page-locked, `memory` the timed direction's.
struct DuplexSamples {
  std::vector<double> timed_s;
  std::vector<double> other_s;  // of the other direction's copies within the same time
};
DuplexSamples measure_while_other(Device& device, TransferMemory& memory, TransferMemory& other,
                                  Direction timed, std::size_t bytes, const Sampling& sampling);

// The same number of copies in both directions at once, on two streams: seconds from their common
// begin to the last one's end.
std::vector<double> measure_both(Device& device, TransferMemory& h2d, TransferMemory& d2h,
                                 std::size_t bytes, int copies, const Sampling& sampling);

// What one copy to the device costs the host.
struct HostCost {
  std::vector<double> return_s;  // from the call to its return
  std::vector<double> done_s;    // from the call until the host knows that the data is there
  std::vector<double> busy_s;    // the work that was queued on the stream before, by events
  int waited = 0;  // samples in which the call returned only when that work was done; of busy_s
};
// `busy` 0: the stream is empty.
HostCost measure_host_cost(Device& device, TransferMemory& memory, const CopyKind& kind,
                           TimeNs busy, const Sampling& sampling);

}  // namespace feedrate
