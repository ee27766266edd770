// Interrupt: Ctrl-C, SIGTERM and a terminal that closes (SIGHUP), as a flag that whoever runs looks
// at. Of the first and the last not one that is ignored: nohup and shells start a program so that
// is to outlive them.
//
// The signals are blocked in every thread and taken by one of our own, so that no handler and no
// global is needed. What runs cannot always look in time (a step of a large model on a slow host):
// if `finish()` has not been called within a second, or at a second signal, the watcher calls
// `give_up` itself and ends the process.
#pragma once

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <system_error>
#include <thread>
#include <utility>

namespace feedrate {

class Interrupt {
 public:
  static constexpr int kExitStatus = 130;

  // Make it before any other thread: threads and child processes inherit the blocked signals.
  // `give_up` runs on the watcher's thread, at most once, and not after finish().
  explicit Interrupt(std::function<void()> give_up) : give_up_(std::move(give_up)) {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGTERM);
    for (const int signal : {SIGINT, SIGHUP}) {
      struct sigaction as_inherited {};
      sigaction(signal, nullptr, &as_inherited);
      if (as_inherited.sa_handler != SIG_IGN) {
        sigaddset(&signals_, signal);
      }
    }
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
    watcher_ = std::thread([this] { watch(); });
  }
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  ~Interrupt() {
    finish();
    over_ = true;
    pthread_kill(watcher_.native_handle(), SIGTERM);
    watcher_.join();
  }

  const std::atomic<bool>& raised() const { return raised_; }

  // The caller writes the results from here on; the watcher leaves them alone. If the watcher has
  // begun to write them, does not return: the process is about to end.
  void finish() {
    if (finished_) {
      return;
    }
    finished_ = true;
    if (claimed_.exchange(true)) {
      std::this_thread::sleep_for(std::chrono::hours(1));
    }
  }

 private:
  void watch() {
    int signal = 0;
    sigwait(&signals_, &signal);
    if (over_) {
      return;
    }
    raised_ = true;
    const std::timespec patience{.tv_sec = 0, .tv_nsec = 800'000'000};
    sigtimedwait(&signals_, nullptr, &patience);
    if (!claimed_.exchange(true)) {
      give_up_();
      end_children();
      _exit(kExitStatus);
    }
    // The caller is writing, and will be done in a moment.
    while (!over_) {
      sigwait(&signals_, &signal);
    }
  }

  // Workers that still start would notice only later that nobody is there any more. The list is the
  // kernel's: the pool belongs to a thread that may be using it.
  static void end_children() {
    std::error_code error;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", error)) {
      std::ifstream children(task.path() / "children");
      for (pid_t child = 0; children >> child;) {
        kill(child, SIGKILL);
      }
    }
  }

  std::function<void()> give_up_;
  sigset_t signals_{};
  std::atomic<bool> raised_ = false;
  std::atomic<bool> claimed_ = false;
  std::atomic<bool> over_ = false;
  bool finished_ = false;  // the caller's
  std::thread watcher_;
};

}  // namespace feedrate
