// Datasets for tests, the same in the test program and in its worker processes. "randn" is a ramp;
// "replay" is a ramp that misbehaves as told, worker processes by FEEDRATE_TEST_BEHAVIOUR.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

#include "feedrate/dataset.hpp"

namespace feedrate {

// Words that differ in every sample and place.
inline std::uint64_t ramp_word(std::int64_t sample, std::size_t place) {
  const std::uint64_t start = (static_cast<std::uint64_t>(sample) + 1) * 0x9e3779b97f4a7c15u;
  return start ^ (start >> 29) ^ (place * 0xbf58476d1ce4e5b9u);
}

class RampDataset : public Dataset {
 public:
  Sample fill(std::int64_t index, std::span<std::byte> image) override {
    for (std::size_t place = 0; place < image.size() / sizeof(std::uint64_t); ++place) {
      const std::uint64_t word = ramp_word(index, place);
      std::memcpy(image.data() + place * sizeof word, &word, sizeof word);
    }
    return {.label = index % 10, .word_sum = word_sum(image)};
  }
};

// "throws 9": from sample 9 on. "exits 9": ends the process at sample 9. "slow": 20 ms a sample.
// "stuck 9": never returns from sample 9. "refuses": cannot be made. "never starts": the making of
// the dataset does not end. "lies ABOUT": worker_main.cpp.
struct Behaviour {
  std::string what;
  std::int64_t sample = 0;

  static Behaviour parse(const std::string& text) {
    const std::size_t space = text.find(' ');
    if (space == std::string::npos || text.starts_with("lies") || text == "never starts") {
      return {text, 0};
    }
    return {text.substr(0, space), std::stoll(text.substr(space))};
  }
};

class MisbehavingDataset final : public RampDataset {
 public:
  explicit MisbehavingDataset(Behaviour behaviour) : behaviour_(std::move(behaviour)) {
    if (behaviour_.what == "refuses") {
      throw std::runtime_error("there are no samples");
    }
    while (behaviour_.what == "never starts") {
      pause();
    }
  }

  Sample fill(std::int64_t index, std::span<std::byte> image) override {
    if (behaviour_.what == "throws" && index >= behaviour_.sample) {
      throw std::runtime_error("a bad sample");
    }
    if (behaviour_.what == "exits" && index == behaviour_.sample) {
      _exit(7);
    }
    if (behaviour_.what == "slow") {
      usleep(20'000);
    }
    while (behaviour_.what == "stuck" && index == behaviour_.sample) {
      pause();
    }
    return RampDataset::fill(index, image);
  }

 private:
  Behaviour behaviour_;
};

inline DatasetTable test_datasets(const Behaviour& behaviour = {}) {
  return {
      {"randn", [](const BatchShape&, DatasetPlace) { return std::make_unique<RampDataset>(); }},
      {"replay",
       [behaviour](const BatchShape&, DatasetPlace) {
         return std::make_unique<MisbehavingDataset>(behaviour);
       }},
      empty_dataset(),
  };
}

}  // namespace feedrate
