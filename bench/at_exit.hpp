// AtExit: what is still to be done when somebody else ends the process. Libraries do: OpenMP's when
// it gets no thread, Google Benchmark when it cannot read a file of the kernel's.
//
// `action` runs on the thread that calls exit(), unless the object is gone by then. One object at a
// time. Not for _exit and not for signals (interrupt.hpp).
#pragma once

#include <cstdlib>
#include <functional>
#include <utility>

namespace feedrate {

class AtExit {
 public:
  explicit AtExit(std::function<void()> action) {
    action_ = std::move(action);
    [[maybe_unused]] static const int registered = std::atexit([] {
      if (const auto last = std::exchange(action_, nullptr)) {
        last();
      }
    });
  }
  AtExit(const AtExit&) = delete;
  AtExit& operator=(const AtExit&) = delete;
  ~AtExit() { action_ = nullptr; }

 private:
  static inline std::function<void()> action_;  // atexit's functions get no argument
};

}  // namespace feedrate
