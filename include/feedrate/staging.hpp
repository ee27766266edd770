// Staging: the host memory of batches, and how it comes back.
//
// A HostPool hands out memory for one batch at a time as a Lease. Fresh memory is mapped for each
// lease and unmapped when it comes back; a ring has a fixed number of slots that are reused. A
// lease given back "after a stream" comes back when all that was enqueued on the stream until then
// has been done, so an asynchronous copy may still be reading it. Nothing is copied here but by the
// pin thread (loader.hpp).
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "feedrate/device.hpp"
#include "feedrate/spec.hpp"

namespace feedrate {

// Takes leases back. Any thread. Must outlive its leases.
class LeaseHome {
 public:
  virtual void give_back(int slot) noexcept = 0;
  // Comes back once the work enqueued on `stream` so far is done. Throws DeviceError; the slot has
  // then been given back.
  virtual void give_back_after(int slot, Stream& stream) = 0;

 protected:
  ~LeaseHome() = default;
};

// The use of one batch's memory. Move-only; gives itself back when destroyed.
class Lease {
 public:
  Lease() = default;
  Lease(LeaseHome& home, int slot, std::span<std::byte> memory)
      : home_(&home), slot_(slot), memory_(memory) {}
  Lease(Lease&& other) noexcept
      : home_(std::exchange(other.home_, nullptr)), slot_(other.slot_), memory_(other.memory_) {}
  Lease& operator=(Lease&& other) noexcept {
    if (this != &other) {
      give_back();
      home_ = std::exchange(other.home_, nullptr);
      slot_ = other.slot_;
      memory_ = other.memory_;
    }
    return *this;
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  ~Lease() { give_back(); }

  explicit operator bool() const { return home_ != nullptr; }
  std::span<std::byte> memory() const { return memory_; }
  int slot() const { return slot_; }

  void give_back() noexcept {
    if (auto* home = std::exchange(home_, nullptr)) {
      home->give_back(slot_);
    }
  }
  void give_back_after(Stream& stream) {
    if (auto* home = std::exchange(home_, nullptr)) {
      home->give_back_after(slot_, stream);
    }
  }

 private:
  LeaseHome* home_ = nullptr;
  int slot_ = 0;
  std::span<std::byte> memory_;
};

// Hands out memory for batches. Any thread may call.
class HostPool : public LeaseHome {
 public:
  virtual ~HostPool() = default;

  // Memory for one batch. Blocks while all slots are out or their streams are not done. Returns an
  // empty lease once stopped. Throws OutOfMemory, DeviceError.
  virtual Lease acquire() = 0;

  // The same without waiting: an empty lease where acquire() would wait.
  virtual Lease try_acquire() = 0;

  // Wakes everyone who waits in acquire() and makes it return empty leases from now on.
  virtual void stop() noexcept = 0;

  // Leases that have not been given back.
  virtual int outstanding() const = 0;
};

// `slots` buffers of `bytes` of that kind, reused in the order in which they come back.
std::unique_ptr<HostPool> make_ring(Device& device, int slots, std::size_t bytes, HostMemory kind);

// The same over memory that the caller made (a worker process writes it too). At least one buffer.
std::unique_ptr<HostPool> make_ring(Device& device, std::vector<Buffer> buffers);

// Private pageable memory mapped for each lease, unmapped by whoever gives it back. The pages are
// not touched: the writer faults them in, 4 KiB at a time as the kernel decides.
std::unique_ptr<HostPool> make_fresh(Device& device, std::size_t bytes);

}  // namespace feedrate
