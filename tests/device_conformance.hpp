// What every Device must do, whatever stands behind it. A test program that includes this once
// instantiates DeviceConformance for its devices:
//
//   INSTANTIATE_TEST_SUITE_P(Cpu, DeviceConformance, testing::Values(...), device_name);
//
// Of a simulated device's memory only the first eight bytes exist: the tests compare just those.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <ostream>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "feedrate/dataset.hpp"
#include "feedrate/device.hpp"
#include "feedrate/error.hpp"

namespace feedrate {

struct DeviceUnderTest {
  std::string name;
  std::function<std::unique_ptr<Device>()> make;
  // Enqueues work on the stream that is not done before the future is ready. A simulated device has
  // work that takes long instead: its clock stands still meanwhile.
  std::function<void(Device&, Stream&, std::shared_future<void>)> block;
  // How far the time of an event may lie off the host's clock.
  TimeNs clock_slack_ns = 0;
};

inline std::ostream& operator<<(std::ostream& out, const DeviceUnderTest& device) {
  return out << device.name;
}

inline std::string device_name(const testing::TestParamInfo<DeviceUnderTest>& info) {
  return info.param.name;
}

class DeviceConformance : public testing::TestWithParam<DeviceUnderTest> {
 protected:
  // A stream that does not get on until release(), which the destructor calls too: a failed test
  // must not hang.
  class Block {
   public:
    Block(Device& device, Stream& stream) {
      GetParam().block(device, stream, gate_.get_future().share());
    }
    ~Block() { release(); }
    void release() {
      if (!std::exchange(released_, true)) {
        gate_.set_value();
      }
    }

   private:
    std::promise<void> gate_;
    bool released_ = false;
  };

  // What exists of the contents of so many bytes.
  std::size_t kept(std::size_t bytes) const {
    return device_->info().simulated ? std::min<std::size_t>(bytes, 8) : bytes;
  }

  Buffer noise(std::size_t bytes, std::uint64_t seed) const {
    Buffer buffer = device_->host_buffer(bytes, HostMemory::kPinned);
    std::mt19937_64 random(seed);
    std::generate_n(buffer.data(), bytes, [&] { return static_cast<std::byte>(random()); });
    return buffer;
  }

  bool same(const Buffer& a, const Buffer& b) const {
    return a.bytes() == b.bytes() && std::memcmp(a.data(), b.data(), kept(a.bytes())) == 0;
  }

  void to_device(Stream& stream, const Buffer& to, const Buffer& from) const {
    device_->copy(stream, Direction::kH2d, to.data(), from.data(), from.bytes(),
                  HostMemory::kPinned, CopyMode::kAsync);
  }
  void to_host(Stream& stream, const Buffer& to, const Buffer& from) const {
    device_->copy(stream, Direction::kD2h, to.data(), from.data(), to.bytes(), HostMemory::kPinned,
                  CopyMode::kAsync);
  }

  DeviceBatch batch_in(const Buffer& memory) const {
    return {memory.data(), memory.data() + shape_.images_bytes(), shape_, 0};
  }
  // The fingerprint of a batch with the contents of that host buffer.
  std::uint64_t fingerprint(const Buffer& host) const {
    if (device_->info().simulated) {
      std::uint64_t first = 0;
      std::memcpy(&first, host.data(), sizeof first);
      return first;
    }
    return fingerprint_of(shape_, host.span().first(shape_.images_bytes()),
                          host.span().subspan(shape_.images_bytes()));
  }

  std::unique_ptr<Device> device_ = GetParam().make();
  const BatchShape shape_{.batch = 3, .image = 32};
};

TEST_P(DeviceConformance, CopiesBackWhatWasCopiedThere) {
  const auto stream = device_->stream("copy");
  for (const HostMemory kind : {HostMemory::kPageable, HostMemory::kPinned, HostMemory::kRegistered,
                                HostMemory::kWriteCombined}) {
    for (const CopyMode mode : {CopyMode::kBlocking, CopyMode::kAsync}) {
      for (const std::size_t bytes : {1, 7, 8, 4096, 4099, 1'000'003}) {
        SCOPED_TRACE(std::string(name_of(kind)) + " " + std::string(name_of(mode)) + " " +
                     std::to_string(bytes));
        const Buffer expected = noise(bytes, bytes);
        const Buffer from = device_->host_buffer(bytes, kind);
        const Buffer there = device_->device_buffer(bytes);
        const Buffer back = device_->host_buffer(bytes, kind);
        std::memcpy(from.data(), expected.data(), bytes);
        device_->copy(*stream, Direction::kH2d, there.data(), from.data(), bytes, kind, mode);
        device_->copy(*stream, Direction::kD2h, back.data(), there.data(), bytes, kind, mode);
        if (mode == CopyMode::kAsync) {
          device_->synchronize(*stream);
        }
        EXPECT_TRUE(same(back, expected));
      }
    }
  }
}

TEST_P(DeviceConformance, CopiesToAndFromOddAddresses) {
  const auto stream = device_->stream("copy");
  const Buffer from = noise(100, 1);
  const Buffer there = device_->device_buffer(100);
  const Buffer back = device_->host_buffer(100, HostMemory::kPinned);
  std::memset(back.data(), 0, back.bytes());
  constexpr std::size_t kBytes = 33;
  device_->copy(*stream, Direction::kH2d, there.data() + 5, from.data() + 3, kBytes,
                HostMemory::kPinned, CopyMode::kAsync);
  device_->copy(*stream, Direction::kD2h, back.data() + 11, there.data() + 5, kBytes,
                HostMemory::kPinned, CopyMode::kAsync);
  device_->synchronize(*stream);
  EXPECT_EQ(std::memcmp(back.data() + 11, from.data() + 3, kept(kBytes)), 0);
  EXPECT_EQ(back.data()[10], std::byte{0});
  EXPECT_EQ(back.data()[11 + kBytes], std::byte{0});
}

TEST_P(DeviceConformance, CopiesFromMemoryThatWasRegistered) {
  const auto stream = device_->stream("copy");
  const Buffer expected = noise(8192, 1);
  std::vector<std::byte> memory(expected.bytes());
  std::memcpy(memory.data(), expected.data(), memory.size());
  const Buffer registered = device_->register_host(memory);
  const Buffer there = device_->device_buffer(memory.size());
  const Buffer back = device_->host_buffer(memory.size(), HostMemory::kPinned);
  device_->copy(*stream, Direction::kH2d, there.data(), memory.data(), memory.size(),
                HostMemory::kRegistered, CopyMode::kAsync);
  to_host(*stream, back, there);
  device_->synchronize(*stream);
  EXPECT_TRUE(same(back, expected));
}

TEST_P(DeviceConformance, CopyingNothingDoesNothing) {
  const auto stream = device_->stream("copy");
  device_->copy(*stream, Direction::kH2d, nullptr, nullptr, 0, HostMemory::kPageable,
                CopyMode::kBlocking);
  EXPECT_EQ(device_->device_buffer(0).data(), nullptr);
  EXPECT_EQ(device_->host_buffer(0, HostMemory::kPinned).data(), nullptr);
}

TEST_P(DeviceConformance, AStreamKeepsTheOrderOfItsWork) {
  const auto stream = device_->stream("copy");
  const Buffer first = noise(1000, 1);
  const Buffer second = noise(1000, 2);
  const Buffer there = device_->device_buffer(1000);
  const Buffer back_first = device_->host_buffer(1000, HostMemory::kPinned);
  const Buffer back_second = device_->host_buffer(1000, HostMemory::kPinned);
  Block block(*device_, *stream);
  to_device(*stream, there, first);
  to_host(*stream, back_first, there);
  to_device(*stream, there, second);
  to_host(*stream, back_second, there);
  block.release();
  device_->synchronize(*stream);
  EXPECT_TRUE(same(back_first, first));
  EXPECT_TRUE(same(back_second, second));
}

TEST_P(DeviceConformance, ABlockedStreamHoldsUpNoOther) {
  const auto blocked = device_->stream("blocked");
  const auto other = device_->stream("other");
  const auto blocked_end = device_->event();
  const Buffer from = noise(1000, 1);
  const Buffer there = device_->device_buffer(1000);
  const Buffer back = device_->host_buffer(1000, HostMemory::kPinned);
  Block block(*device_, *blocked);
  device_->record(*blocked_end, *blocked);
  to_device(*other, there, from);
  to_host(*other, back, there);
  device_->synchronize(*other);
  EXPECT_TRUE(same(back, from));
  EXPECT_FALSE(device_->done(*blocked_end));
  block.release();
  device_->synchronize(*blocked);
  EXPECT_TRUE(device_->done(*blocked_end));
}

TEST_P(DeviceConformance, AStreamWaitsForAnotherOnesEvent) {
  const auto first = device_->stream("first");
  const auto second = device_->stream("second");
  const auto first_end = device_->event();
  const auto second_end = device_->event();
  Block block(*device_, *first);
  device_->record(*first_end, *first);
  device_->wait(*second, *first_end);
  device_->record(*second_end, *second);
  EXPECT_FALSE(device_->done(*second_end));
  block.release();
  device_->synchronize(*second);
  EXPECT_TRUE(device_->done(*first_end));
  EXPECT_GE(device_->time(*second_end), device_->time(*first_end));
}

TEST_P(DeviceConformance, AWaitIsForTheRecordThatWasTheLatest) {
  const auto blocked = device_->stream("blocked");
  const auto recorded = device_->stream("recorded");
  const auto waiting = device_->stream("waiting");
  const auto event = device_->event();
  const auto waiting_end = device_->event();
  Block block(*device_, *blocked);
  device_->record(*event, *recorded);
  device_->wait(*waiting, *event);
  device_->record(*event, *blocked);  // too late to hold up the wait
  device_->record(*waiting_end, *waiting);
  device_->synchronize(*waiting_end);
  EXPECT_FALSE(device_->done(*event));
  block.release();
  device_->synchronize(*event);
  EXPECT_GE(device_->time(*event), device_->time(*waiting_end));
}

TEST_P(DeviceConformance, AnEventStandsForItsLatestRecord) {
  const auto stream = device_->stream("stream");
  const auto event = device_->event();
  const auto between = device_->event();
  device_->record(*event, *stream);
  device_->synchronize(*event);
  device_->record(*between, *stream);
  Block block(*device_, *stream);
  device_->record(*event, *stream);
  EXPECT_FALSE(device_->done(*event));
  block.release();
  device_->synchronize(*event);
  EXPECT_TRUE(device_->done(*event));
  EXPECT_GE(device_->time(*event), device_->time(*between));
}

TEST_P(DeviceConformance, TheTimesOfAStreamNeverGoBack) {
  const auto stream = device_->stream("stream");
  const Buffer from = noise(10'000, 1);
  const Buffer there = device_->device_buffer(10'000);
  std::vector<std::unique_ptr<Event>> events;
  const TimeNs begin = device_->now();
  for (int i = 0; i < 50; ++i) {
    to_device(*stream, there, from);
    events.push_back(device_->event());
    device_->record(*events.back(), *stream);
  }
  device_->synchronize(*stream);
  const TimeNs end = device_->now();
  EXPECT_GE(device_->time(*events.front()), begin - GetParam().clock_slack_ns);
  EXPECT_LE(device_->time(*events.back()), end + GetParam().clock_slack_ns);
  for (std::size_t i = 1; i < events.size(); ++i) {
    EXPECT_GE(device_->time(*events[i]), device_->time(*events[i - 1])) << i;
  }
}

TEST_P(DeviceConformance, AnEventThatIsNotDoneHasNoTime) {
  const auto stream = device_->stream("stream");
  const auto event = device_->event();
  Block block(*device_, *stream);
  device_->record(*event, *stream);
  EXPECT_THROW(device_->time(*event), Error);
}

TEST_P(DeviceConformance, AnEventThatWasNeverRecordedIsAnError) {
  const auto stream = device_->stream("stream");
  const auto event = device_->event();
  EXPECT_THROW(device_->wait(*stream, *event), Error);
  EXPECT_THROW(device_->synchronize(*event), Error);
  EXPECT_THROW(device_->done(*event), Error);
  EXPECT_THROW(device_->time(*event), Error);
  device_->record(*event, *stream);
  device_->wait(*stream, *event);
  device_->synchronize(*event);
  EXPECT_TRUE(device_->done(*event));
}

TEST_P(DeviceConformance, AStreamWithoutWorkIsDone) {
  const auto stream = device_->stream("stream");
  const auto event = device_->event();
  device_->synchronize(*stream);
  device_->record(*event, *stream);
  device_->wait(*stream, *event);  // for itself
  device_->synchronize(*stream);
  EXPECT_TRUE(device_->done(*event));
}

TEST_P(DeviceConformance, FingerprintsAreThoseOfTheContentsAtTheirTurn) {
  const auto stream = device_->stream("stream");
  const Buffer first = noise(shape_.bytes(), 1);
  const Buffer second = noise(shape_.bytes(), 2);
  const Buffer there = device_->device_buffer(shape_.bytes());
  const auto log = device_->fingerprint_log(4);
  Block block(*device_, *stream);
  to_device(*stream, there, first);
  log->take(*stream, batch_in(there), 3);
  to_device(*stream, there, second);
  log->take(*stream, batch_in(there), 0);
  log->take(*stream, {.images = nullptr, .labels = nullptr, .shape = {.empty = true}}, 1);
  block.release();
  const std::vector<std::uint64_t> values = log->read();
  ASSERT_EQ(values.size(), 4u);
  EXPECT_EQ(values[3], fingerprint(first));
  EXPECT_EQ(values[0], fingerprint(second));
  EXPECT_EQ(values[1], 0u);
  EXPECT_NE(values[3], values[0]);
}

TEST_P(DeviceConformance, RefusedMemoryNamesTheBytes) {
  constexpr std::size_t kTooMuch = std::size_t{1} << 55;
  const auto refused = [&](const std::function<Buffer()>& get) {
    try {
      get();
    } catch (const OutOfMemory& error) {
      return std::string(error.what()).find(std::to_string(kTooMuch)) != std::string::npos;
    }
    return false;
  };
  for (const HostMemory kind : {HostMemory::kPageable, HostMemory::kPinned, HostMemory::kRegistered,
                                HostMemory::kWriteCombined}) {
    EXPECT_TRUE(refused([&] { return device_->host_buffer(kTooMuch, kind); })) << name_of(kind);
    EXPECT_NE(device_->host_buffer(4096, kind).data(), nullptr);
  }
  EXPECT_TRUE(refused([&] { return device_->device_buffer(kTooMuch); }));
  EXPECT_NE(device_->device_buffer(4096).data(), nullptr);
}

// Large enough for LibTorch's allocator to give each block a segment of its own.
constexpr std::size_t kBlockBytes = std::size_t{16} << 20;

TEST_P(DeviceConformance, FreedStreamMemoryGoesToTheNextWhoAsksAtOnce) {
  const auto stream = device_->stream("stream");
  Block block(*device_, *stream);  // what still uses it there is not waited for
  Buffer first = device_->stream_buffer(*stream, kBlockBytes);
  std::byte* const memory = first.data();
  ASSERT_NE(memory, nullptr);
  EXPECT_EQ(first.bytes(), kBlockBytes);
  EXPECT_NE(device_->stream_buffer(*stream, kBlockBytes).data(), memory) << "it is in use";
  first = {};
  const Buffer second = device_->stream_buffer(*stream, kBlockBytes);
  EXPECT_EQ(second.data(), memory);
}

TEST_P(DeviceConformance, FreedStreamMemoryGoesToNoOtherStream) {
  const auto home = device_->stream("home");
  const auto other = device_->stream("other");
  Buffer first = device_->stream_buffer(*home, kBlockBytes);
  std::byte* const memory = first.data();
  first = {};
  const Buffer second = device_->stream_buffer(*other, kBlockBytes);
  EXPECT_NE(second.data(), memory);
  EXPECT_EQ(device_->stream_buffer(*home, kBlockBytes).data(), memory);
}

TEST_P(DeviceConformance, RecordedStreamMemoryWaitsForItsOtherUser) {
  const auto home = device_->stream("home");
  const auto user = device_->stream("user");
  Buffer first = device_->stream_buffer(*home, kBlockBytes);
  std::byte* const memory = first.data();
  Block block(*device_, *user);
  device_->record_stream(first, *user);
  first = {};
  const Buffer second = device_->stream_buffer(*home, kBlockBytes);
  EXPECT_NE(second.data(), memory);
  block.release();
  device_->synchronize(*user);
  const Buffer third = device_->stream_buffer(*home, kBlockBytes);
  EXPECT_EQ(third.data(), memory);
}

TEST_P(DeviceConformance, StreamMemoryNeedNotBeRecordedForItsOwnStream) {
  const auto home = device_->stream("home");
  Buffer first = device_->stream_buffer(*home, kBlockBytes);
  std::byte* const memory = first.data();
  Block block(*device_, *home);
  device_->record_stream(first, *home);
  first = {};
  EXPECT_EQ(device_->stream_buffer(*home, kBlockBytes).data(), memory);
}

TEST_P(DeviceConformance, StreamMemoryOfNothingIsNothing) {
  const auto stream = device_->stream("stream");
  EXPECT_EQ(device_->stream_buffer(*stream, 0).data(), nullptr);
}

TEST_P(DeviceConformance, OnlyStreamMemoryCanBeRecorded) {
  const auto stream = device_->stream("stream");
  EXPECT_THROW(device_->record_stream(device_->device_buffer(4096), *stream), Error);
  EXPECT_THROW(device_->record_stream(Buffer(), *stream), Error);
}

TEST_P(DeviceConformance, RefusedStreamMemoryIsOutOfMemory) {
  const auto stream = device_->stream("stream");
  EXPECT_THROW(device_->stream_buffer(*stream, std::size_t{1} << 45), OutOfMemory);
  EXPECT_NE(device_->stream_buffer(*stream, 4096).data(), nullptr);
}

TEST_P(DeviceConformance, ThePeakIsOfWhatWasInUseAtOnceSinceTheDeviceWasPrepared) {
  constexpr std::size_t kRounding = std::size_t{2} << 20;  // of LibTorch's allocator
  const auto home = device_->stream("home");
  const auto user = device_->stream("user");
  const Spec spec;
  device_->prepare(spec);
  const std::size_t before = device_->peak_device_bytes();
  const auto expect_blocks = [&](std::size_t blocks) {
    EXPECT_GE(device_->peak_device_bytes(), before + blocks * kBlockBytes);
    EXPECT_LE(device_->peak_device_bytes(), before + blocks * (kBlockBytes + kRounding));
  };
  {
    const Buffer slot = device_->device_buffer(kBlockBytes);
    Buffer first = device_->stream_buffer(*home, kBlockBytes);
    expect_blocks(2);
    first = {};
    first = device_->stream_buffer(*home, kBlockBytes);  // the same again
    expect_blocks(2);
    Block block(*device_, *user);
    device_->record_stream(first, *user);
    first = {};  // still in use there
    first = device_->stream_buffer(*home, kBlockBytes);
    expect_blocks(3);
  }
  device_->synchronize(*user);
  expect_blocks(3);
  device_->stream_buffer(*home, kBlockBytes);  // an allocator looks at its events when it is asked
  device_->prepare(spec);
  EXPECT_LE(device_->peak_device_bytes(), before + kRounding);
}

TEST_P(DeviceConformance, AStageRunsOnceOnTheCallingThread) {
  std::vector<std::thread::id> ran;
  for (const Stage stage : {Stage::kFetch, Stage::kCopy, Stage::kRelease, Stage::kSync}) {
    device_->stage(stage, [&] { ran.push_back(std::this_thread::get_id()); });
  }
  EXPECT_EQ(ran, std::vector(4, std::this_thread::get_id()));
}

TEST_P(DeviceConformance, WorkRunsOnceUnlessSimulated) {
  const auto stream = device_->stream("stream");
  int runs = 0;
  device_->enqueue(*stream, Stage::kCompute, {}, [&] { ++runs; });
  device_->synchronize(*stream);
  EXPECT_EQ(runs, device_->info().simulated ? 0 : 1);
}

TEST_P(DeviceConformance, AnErrorOfWorkSurfaces) {
  const auto stream = device_->stream("stream");
  const auto run = [&] {
    device_->enqueue(*stream, Stage::kCompute, {}, [] { throw std::domain_error("no such loss"); });
    device_->synchronize(*stream);
  };
  if (device_->info().simulated) {
    EXPECT_NO_THROW(run());
  } else {
    EXPECT_THROW(run(), std::domain_error);
  }
}

TEST_P(DeviceConformance, DestroyingStreamsAndEventsWithWorkInFlightIsSafe) {
  const Buffer from = noise(1'000'000, 1);
  const Buffer there = device_->device_buffer(from.bytes());
  const Buffer back = device_->host_buffer(from.bytes(), HostMemory::kPinned);
  const auto last = device_->event();
  {
    const auto first = device_->stream("first");
    const auto second = device_->stream("second");
    const auto event = device_->event();
    for (int i = 0; i < 10; ++i) {
      to_device(*first, there, from);
    }
    device_->record(*event, *first);
    device_->wait(*second, *event);
    for (int i = 0; i < 10; ++i) {
      to_host(*second, back, there);
    }
    device_->record(*last, *second);
  }
  device_->synchronize(*last);
  EXPECT_TRUE(same(back, from));
}

TEST_P(DeviceConformance, NothingRunsBehindAClosedGate) {
  if (device_->info().simulated) {
    GTEST_SKIP() << "a simulated gate stands open";
  }
  const auto stream = device_->stream("stream");
  const auto other = device_->stream("other");
  const auto end = device_->event();
  const Buffer first = noise(1000, 1);
  const Buffer second = noise(1000, 2);
  const Buffer there = device_->device_buffer(1000);
  const Buffer others = device_->device_buffer(1000);
  const Buffer back = device_->host_buffer(1000, HostMemory::kPinned);
  const Buffer back_later = device_->host_buffer(1000, HostMemory::kPinned);
  std::memset(back.data(), 0, back.bytes());
  to_device(*stream, there, first);
  device_->synchronize(*stream);
  const auto gate = device_->gate(*stream);
  to_host(*stream, back, there);
  to_device(*stream, there, second);
  to_host(*stream, back_later, there);
  device_->record(*end, *stream);
  to_device(*other, others, second);
  device_->synchronize(*other);
  EXPECT_FALSE(device_->done(*end));
  EXPECT_EQ(std::count(back.data(), back.data() + back.bytes(), std::byte{0}), 1000);
  gate->open();
  device_->synchronize(*stream);
  EXPECT_TRUE(device_->done(*end));
  EXPECT_TRUE(same(back, first));
  EXPECT_TRUE(same(back_later, second));
}

TEST_P(DeviceConformance, WhatWaitsForAHeldStreamIsHeldToo) {
  if (device_->info().simulated) {
    GTEST_SKIP() << "a simulated gate stands open";
  }
  const auto held = device_->stream("held");
  const auto waiting = device_->stream("waiting");
  const auto start = device_->event();
  const auto end = device_->event();
  const auto gate = device_->gate(*held);
  device_->record(*start, *held);
  device_->wait(*waiting, *start);
  device_->record(*end, *waiting);
  EXPECT_FALSE(device_->done(*end));
  gate->open();
  device_->synchronize(*end);
  EXPECT_GE(device_->time(*end), device_->time(*start));
}

TEST_P(DeviceConformance, AGateHoldsAsMuchAsItPromises) {
  const auto stream = device_->stream("stream");
  const Buffer from = noise(64, 1);
  const Buffer there = device_->device_buffer(from.bytes());
  const Buffer back = device_->host_buffer(from.bytes(), HostMemory::kPinned);
  const auto end = device_->event();
  const auto gate = device_->gate(*stream);
  for (int i = 0; i + 4 <= kMostBehindGate; i += 2) {
    to_device(*stream, there, from);
    device_->record(*end, *stream);
  }
  to_host(*stream, back, there);
  gate->open();
  gate->open();  // does nothing more
  device_->synchronize(*stream);
  EXPECT_TRUE(same(back, from));
}

TEST_P(DeviceConformance, DestroyingAGateOpensIt) {
  const auto stream = device_->stream("stream");
  const auto end = device_->event();
  for (int turn = 0; turn < 3; ++turn) {
    {
      const auto gate = device_->gate(*stream);
      device_->record(*end, *stream);
    }
    device_->synchronize(*end);
    EXPECT_TRUE(device_->done(*end));
  }
}

TEST_P(DeviceConformance, BusyWorkDelaysItsStreamAndNoOther) {
  constexpr TimeNs kBusy = 300'000'000;
  const auto stream = device_->stream("stream");
  const auto other = device_->stream("other");
  const auto begin = device_->event();
  const auto end = device_->event();
  const Buffer from = noise(1000, 1);
  const Buffer there = device_->device_buffer(1000);
  const Buffer back = device_->host_buffer(1000, HostMemory::kPinned);
  device_->busy(*stream, 1000);  // a device may have to learn how long it takes
  device_->synchronize(*stream);
  device_->record(*begin, *stream);
  device_->busy(*stream, kBusy);
  device_->record(*end, *stream);
  to_device(*other, there, from);
  to_host(*other, back, there);
  device_->synchronize(*other);
  EXPECT_TRUE(same(back, from));
  EXPECT_FALSE(device_->done(*end));
  device_->synchronize(*stream);
  const TimeNs took = device_->time(*end) - device_->time(*begin);
  if (device_->info().simulated) {
    EXPECT_EQ(took, kBusy);
  } else {
    EXPECT_GE(took, kBusy / 10 * 9);
  }
}

TEST_P(DeviceConformance, SaysWhichDeviceItIs) {
  const DeviceInfo info = device_->info();
  EXPECT_FALSE(info.name.empty());
  EXPECT_EQ(info.simulated, info.type == DeviceType::kSim);
  for (const auto& [key, value] : info.context) {
    EXPECT_FALSE(key.empty());
    EXPECT_FALSE(value.empty()) << key;
  }
}

}  // namespace feedrate
