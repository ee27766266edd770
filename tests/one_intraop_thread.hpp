// For tests of what a step computes: on a machine whose cores are busy, intra-op threads that wait
// for each other make a small step take seconds.
#pragma once

#include <ATen/Parallel.h>

namespace feedrate {

// LibTorch computes on the calling thread alone, in this thread and in those that start meanwhile.
class OneIntraOpThread {
 public:
  OneIntraOpThread() { at::set_num_threads(1); }
  OneIntraOpThread(const OneIntraOpThread&) = delete;
  OneIntraOpThread& operator=(const OneIntraOpThread&) = delete;
  ~OneIntraOpThread() { at::set_num_threads(usual_); }

 private:
  int usual_ = at::get_num_threads();
};

}  // namespace feedrate
