// Overlap: how much of a copy hides under compute, on one stream and on two.
//
// A pipeline of turns: a copy from page-locked memory into one of two device slots, then work that
// needs it. Turn i's work waits for its copy, its copy for the work of turn i - 2, which still
// reads the slot. On two streams that is all the order there is; on one stream everything waits for
// what was enqueued before it.
//
// Nothing is synchronised while it runs; times are of the device's events, seconds, per turn, in
// the steady state: from the end of one turn to the end of a later one. One thread uses it all.
// Everything is done when a function returns or throws. Throws what the device throws, and Error
// when a slot does not hold in the end what was copied there.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "feedrate/device.hpp"
#include "feedrate/transfer.hpp"

namespace feedrate {

// 1 when the shorter of copy and compute is hidden, turn = max(copy, compute); 0 when nothing is,
// turn = copy + compute.
double overlap_efficiency(double copy_s, double compute_s, double turn_s);

struct Turns {
  double turn_s = 0;              // mean over the window
  std::vector<double> turns_s{};  // each one
};

class OverlapPipeline {
 public:
  // Enqueues what one turn computes, on `stream`, over the slot at `slot`.
  using Work = std::function<void(Stream& stream, std::byte* slot)>;

  // `bytes` are those of a batch and of a slot. Throws OutOfMemory.
  OverlapPipeline(Device& device, std::size_t bytes);
  OverlapPipeline(const OverlapPipeline&) = delete;
  OverlapPipeline& operator=(const OverlapPipeline&) = delete;
  ~OverlapPipeline();

  // What is copied: page-locked, random bytes until someone writes others.
  std::span<std::byte> batch() const { return host_.span(); }

  // A turn's copy: `bytes` in all, in pieces of at most the batch; each batch in `chunks` equal
  // copies. The batch by default.
  struct Amount {
    std::size_t bytes = 0;
    int chunks = 1;
  };
  void set_amount(const Amount& amount);
  int copies_a_turn() const;

  Turns copy_alone(const Sampling& sampling);
  Turns work_alone(const Work& work, const Sampling& sampling);
  Turns both(const Work& work, bool two_streams, const Sampling& sampling);

 private:
  static constexpr std::size_t kSlots = 2;

  Turns run(const Work* work, bool copies, bool two_streams, const Sampling& sampling);
  void copy(Stream& stream, std::byte* slot);
  void check();

  Device& device_;
  bool simulated_;
  Buffer host_;
  Buffer check_;
  std::vector<Buffer> slots_;
  std::unique_ptr<Stream> copy_stream_;
  std::unique_ptr<Stream> compute_stream_;
  Amount amount_;
};

// How long a spin has to be asked for so that it takes `target_s`, as measured on this device.
TimeNs calibrated_spin(OverlapPipeline& pipeline, Device& device, double target_s);

}  // namespace feedrate
