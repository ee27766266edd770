#include "randn_rate.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

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
  for (std::int64_t& samples : made) {
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
  }
  while (ready < threads) {
    std::this_thread::yield();
  }
  end = monotonic_now() + kDuration;
  double samples = 0;
  for (std::size_t i = 0; i < pool.size(); ++i) {
    pool[i].join();
    samples += static_cast<double>(made[i]);
  }
  return samples * static_cast<double>(kInCache.image_bytes()) / to_s(kDuration) * 1e-9;
}

}  // namespace feedrate
