#include "caching_memory.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

#include "device_sim.hpp"
#include "feedrate/error.hpp"
#include "recording_device.hpp"

namespace feedrate {
namespace {

constexpr std::size_t kBytes = 4096;

TEST(CachingMemory, KeepsWhatIsFreedUntilItIsCleared) {
  RecordingDevice device;
  const auto stream = device.stream("a");
  CachingMemory memory(device);
  const Buffer used = memory.allocate(*stream, kBytes);
  memory.allocate(*stream, kBytes);
  EXPECT_EQ(device.live_buffers, 2);
  memory.clear();
  EXPECT_EQ(device.live_buffers, 1) << "the one in use stays";
  EXPECT_NE(memory.allocate(*stream, kBytes).data(), used.data());
}

TEST(CachingMemory, GivesAnotherSizeOtherMemory) {
  RecordingDevice device;
  const auto stream = device.stream("a");
  CachingMemory memory(device);
  memory.allocate(*stream, kBytes);
  memory.allocate(*stream, 2 * kBytes);
  EXPECT_EQ(device.live_buffers, 2);
  memory.allocate(*stream, kBytes);
  memory.allocate(*stream, 2 * kBytes);
  EXPECT_EQ(device.live_buffers, 2);
}

TEST(CachingMemory, WaitsForEveryRecordedUser) {
  const auto device = make_device({sim_device()}, "sim:l40s");
  const auto home = device->stream("home");
  const auto first_user = device->stream("first");
  const auto second_user = device->stream("second");
  CachingMemory memory(*device);
  Buffer block = memory.allocate(*home, kBytes);
  std::byte* const data = block.data();
  device->busy(*first_user, 1000);
  device->busy(*second_user, 1000);  // the same engine: done at 2000
  for (const auto* user : {&second_user, &first_user, &second_user}) {
    memory.record(block, **user);
  }
  block = {};
  EXPECT_NE(memory.allocate(*home, kBytes).data(), data);
  device->synchronize(*first_user);
  const Buffer other = memory.allocate(*home, kBytes);
  EXPECT_NE(other.data(), data);
  device->synchronize(*second_user);
  block = memory.allocate(*home, kBytes);
  EXPECT_EQ(block.data(), data);
  // Its users are forgotten with it.
  device->busy(*first_user, 1000);
  block = {};
  EXPECT_EQ(memory.allocate(*home, kBytes).data(), data);
}

TEST(CachingMemory, WhoAsksForMoreThanThereIsWaitsForTheUsers) {
  const auto device = make_device({sim_device()}, "sim:l40s");  // 48 GB
  constexpr std::size_t kMostOfIt = 30'000'000'000;
  const auto home = device->stream("home");
  const auto user = device->stream("user");
  CachingMemory memory(*device);
  Buffer block = memory.allocate(*home, kMostOfIt);
  std::byte* const data = block.data();
  EXPECT_THROW(memory.allocate(*home, kMostOfIt), OutOfMemory) << "it is in use";
  device->busy(*user, 1000);
  memory.record(block, *user);
  block = {};
  const Buffer again = memory.allocate(*home, kMostOfIt);
  EXPECT_EQ(again.data(), data);
  EXPECT_EQ(device->now(), 1000);
}

TEST(CachingMemory, HandsNothingOutThatAFailedStreamMayStillUse) {
  const auto device = make_device({cpu_device()}, "cpu");
  const auto home = device->stream("home");
  const auto failed = device->stream("failed");
  device->prepare({});
  CachingMemory memory(*device);
  Buffer block = memory.allocate(*home, kBytes);
  std::byte* const data = block.data();
  memory.record(block, *failed);
  device->enqueue(*failed, Stage::kCompute, {}, [] { throw std::domain_error("failed"); });
  EXPECT_THROW(device->synchronize(*failed), std::domain_error);
  block = {};  // must not throw
  EXPECT_NE(memory.allocate(*home, kBytes).data(), data);
  memory.clear();
  const std::size_t before = device->peak_device_bytes();
  memory.allocate(*home, kBytes);
  EXPECT_EQ(device->peak_device_bytes(), before) << "the lost block has been given back";
}

}  // namespace
}  // namespace feedrate
