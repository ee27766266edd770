// What the rows about copies have in common: sizes, what a device can copy, samples.
#pragma once

#include <cstddef>

#include "feedrate/device.hpp"
#include "feedrate/transfer.hpp"
#include "harness.hpp"
#include "rows.hpp"

namespace feedrate {

inline constexpr std::size_t kMostCpuBytes = std::size_t{64} << 20;

// The images of a batch.
std::size_t batch_bytes(const RowContext& context);

// Throw Unsupported with the reason: memory that the device does not tell from others, a copy that
// takes it too long.
void require_kind(const DeviceInfo& device, HostMemory kind);
void require_size(const DeviceInfo& device, std::size_t bytes);

// What copies of that size go round in: past the last-level cache.
std::size_t footprint_bytes(const DeviceInfo& device, std::size_t copy_bytes);

// The row's samples, told to the session.
Sampling sampling(Session& session, const Spec& spec);

double GBps(double bytes, double seconds);

}  // namespace feedrate
