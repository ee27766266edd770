// Profile: what each stage costs on some machine. A simulated device runs on it.
//
// A JSON file; units are in the names. Values are for one batch shape and scale from there. Each
// value says whether it was published, measured, fitted or assumed.
#pragma once

#include <array>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "feedrate/spec.hpp"

namespace feedrate {

enum class Origin { kPublished, kMeasured, kFitted, kAssumed };

// How a cost grows from the profile's shape to another.
enum class Scaling { kConstant, kBytes, kImages, kPixels };

template <>
constexpr auto choices<Origin>() {
  return std::to_array<Choice<Origin>>({
      {"published", Origin::kPublished, "stands in the source, or follows from what does"},
      {"measured", Origin::kMeasured, "measured by this suite on that machine"},
      {"fitted", Origin::kFitted, "makes the model give a published or measured rate"},
      {"assumed", Origin::kAssumed, "neither"},
  });
}
template <>
constexpr auto choices<Scaling>() {
  return std::to_array<Choice<Scaling>>({
      {"constant", Scaling::kConstant, "the same for every shape"},
      {"bytes", Scaling::kBytes, "with the batch's bytes"},
      {"images", Scaling::kImages, "with the number of images"},
      {"pixels", Scaling::kPixels, "with images * height * width"},
  });
}

struct Cost {
  double ms = 0;
  Origin origin = Origin::kAssumed;
  Scaling scaling = Scaling::kBytes;
};

// All costs of a step, by the letters of EXPERIMENTS' model. Times in ms for `shape`.
struct Profile {
  std::string name;
  std::string source;  // where the figures come from, one line
  std::string gpu;
  std::filesystem::path file;  // that it was read from; empty: built in
  BatchShape shape;
  int cores = 1;                // V: workers beyond it share
  double device_memory_GB = 0;  // 1e9 bytes
  Cost make;                    // F: one producer makes a batch
  Cost make_u8;                 // the same for a batch of bytes; a profile without it takes make's
  Cost handoff;                 // g: the loop takes a finished batch from workers or a pin thread
  Cost pin;                     // P: the pin thread copies a batch into pinned memory
  Cost copy_pageable;           // Hp: blocking, from pageable memory
  Cost copy_pinned;             // H
  Cost release_private;         // U: unmap a fresh batch made by inline or threads
  Cost release_shared;          // U: unmap a fresh batch made by a process
  Cost launch;                  // L: the host enqueues a step
  Cost normalize;               // bytes become floats on the device; a profile without it takes 0
  Cost compute;                 // C
  Cost check;                   // the fingerprint, part of compute in the counters

  double scaled_ms(const Cost& cost, const BatchShape& to) const;
};

// The costs by their keys in the file.
struct NamedCost {
  std::string_view key;
  Cost Profile::*cost;
  bool optional = false;
};
std::span<const NamedCost> profile_costs();

// Reads and checks a profile. Throws UsageError with the file, the key and what would be right: not
// there, not JSON, a value missing, of the wrong type, negative or not finite, an unknown key.
Profile read_profile(const std::filesystem::path& file);
Profile parse_profile(const std::string& text, const std::string& name);

// Profiles compiled in; "l40s" is the published experiment's machine.
struct BuiltinProfile {
  std::string_view name;
  std::string_view json;
};
const std::vector<BuiltinProfile>& builtin_profiles();

}  // namespace feedrate
