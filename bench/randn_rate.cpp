#include "randn_rate.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "feedrate/error.hpp"
#include "feedrate/time.hpp"

namespace feedrate {

double randn_GBps(const DatasetTable& datasets, int threads) {
  // Nearly what a dataset draws at a time (dataset_randn.cpp): smaller ones would pay for each
  // call.
  constexpr BatchShape kInCache{.batch = 1, .image = 144};
  constexpr TimeNs kDuration = 50'000'000;
  std::atomic<int> ready = 0;
  std::atomic<TimeNs> end = 0;  // set to let them go
  std::vector<std::int64_t> made(static_cast<std::size_t>(threads));
  std::vector<std::thread> pool;
  const auto join = [&] {
    for (std::thread& thread : pool) {
      thread.join();
    }
  };
  const auto start = [&](std::int64_t& samples) {
    pool.emplace_back([&] {
      const auto dataset = make_dataset(datasets, "randn", kInCache, DatasetPlace::kWorker);
      std::vector<std::uint64_t> words(kInCache.image_bytes() / sizeof(std::uint64_t));
      const auto image = std::as_writable_bytes(std::span(words));
      dataset->fill(0, image);
      ++ready;
      while (end == 0) {
        std::this_thread::yield();
      }
      // All of them against one clock: of more threads than cores some wait while others run.
      std::int64_t done = 0;
      for (dataset->fill(1, image); monotonic_now() < end; dataset->fill(done + 1, image)) {
        ++done;
      }
      samples = done;
    });
  };
  try {
    for (std::int64_t& samples : made) {
      start(samples);
    }
  } catch (const std::system_error& error) {
    end = 1;  // long ago: lets go of those that wait
    join();
    throw Error("thread " + std::to_string(pool.size() + 1) + " of " + std::to_string(threads) +
                " could not be started: " + refusal(error.code().value()));
  }
  while (ready < threads) {
    std::this_thread::yield();
  }
  end = monotonic_now() + kDuration;
  join();
  double samples = 0;
  for (const std::int64_t count : made) {
    samples += static_cast<double>(count);
  }
  return samples * static_cast<double>(kInCache.image_bytes()) / to_s(kDuration) * 1e-9;
}

}  // namespace feedrate
