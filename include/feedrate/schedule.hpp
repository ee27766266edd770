// Schedule: the training loop. The only place that holds the stages together.
//
// A schedule fetches, copies, launches in its own order, on the calling thread, and writes one
// record a step. Where batches lie on the device, and what keeps them whole, is the guard's
// (batch_memory.hpp). Everything that it starts on the device is done when run() returns or throws;
// the source is left to its owner.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "feedrate/device.hpp"
#include "feedrate/loader.hpp"
#include "feedrate/spec.hpp"
#include "feedrate/step.hpp"
#include "feedrate/timeline.hpp"
#include "feedrate/trace.hpp"

namespace feedrate {

struct RunParts {
  Device& device;  // prepared for this spec
  Source* source;  // null for run_resident
  Step& step;
  Trace& trace;
  const std::atomic<bool>* stop = nullptr;  // raised: the run throws Interrupted at the next step
  // Told true before the first measured step and false after the last one, or when an error ends
  // the run between them: for what records just those steps. The window is then synchronised on
  // both sides, as the published one is. May be empty.
  std::function<void(bool on)> record;
  std::function<void(int done, int total)> progress;  // after each launched step; may be empty
};

// Runs spec.warmup + step_count() + spec.cooldown steps under spec.schedule. The model must be
// warm. Throws what the stages throw; the device is idle then.
Timeline run(const Spec& spec, const RunParts& parts);

// The ceiling: the same number of steps over one batch that is on the device already. Nothing is
// fetched or copied; `fingerprint` is the one that the batch has.
Timeline run_resident(const Spec& spec, const RunParts& parts, const DeviceBatch& batch,
                      std::uint64_t fingerprint);

}  // namespace feedrate
