// Timeline: what happened in each step, on one time axis. Filled by the schedule during the run;
// read by the report afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "feedrate/spec.hpp"
#include "feedrate/time.hpp"

namespace feedrate {

// One step. Intervals that did not happen are empty. Host intervals are of the training loop.
struct StepRecord {
  std::int64_t index = 0;  // of the step and its batch, warm-up included
  // Before the loop has the batch.
  Interval made;    // a worker (or the loop itself, inline) makes the batch
  Interval pinned;  // the pin thread copies and releases it
  int worker = -1;
  // Host, in the training loop.
  Interval turn;     // of the loop: launches this step, and fetches whatever the schedule says
  Interval fetch;    // waits for the batch
  Interval wait;     // gets the batch's device memory: a slot whose last copy is done, or a block
  Interval submit;   // hands the copy to the device; a blocking copy ends here
  Interval release;  // gives the batch's memory back
  Interval launch;   // enqueues the step
  Interval sync;     // synchronises, if the spec says so
  // Device.
  Interval copy;
  Interval compute;       // normalisation, forced lag, step and check of its batch
  TimeNs normalized = 0;  // end of the normalisation; 0: there was none
  std::size_t bytes = 0;  // that the copy moved; 0: the batch was there already, or is empty
  TimeNs step_end = 0;    // end of the step proper, begin of the check
  // Integrity.
  std::uint64_t fingerprint_made = 0;
  std::uint64_t fingerprint_used = 0;
};

struct Timeline {
  std::vector<StepRecord> steps;  // all of them, in order: warm-up, measured, cool-down
  int first = 0;                  // the window is the steps [first, first + count)
  int count = 0;
  // The measured window. Steady: from the end of step first - 1's compute (the begin of step 0's
  // fetch if first is 0) to the end of step first + count - 1's. Published, or recorded by a
  // profiler: between the two synchronisations, on the host.
  Interval window;
  std::size_t peak_device_bytes = 0;  // the most device memory in use at once
};

}  // namespace feedrate
