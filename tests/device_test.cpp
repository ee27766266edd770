#include "feedrate/device.hpp"

#include <unistd.h>

#include <atomic>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "device_conformance.hpp"
#include "feedrate/error.hpp"

namespace feedrate {
namespace {

using testing::Values;

INSTANTIATE_TEST_SUITE_P(
    Core, DeviceConformance,
    Values(DeviceUnderTest{.name = "cpu",
                           .make = [] { return make_device({cpu_device()}, "cpu"); },
                           .block =
                               [](Device& device, Stream& stream, std::shared_future<void> gate) {
                                 device.enqueue(stream, Stage::kCompute, {},
                                                [gate] { gate.wait(); });
                               }},
           DeviceUnderTest{.name = "sim",
                           .make = [] { return make_device({sim_device()}, "sim"); },
                           .block =
                               [](Device& device, Stream& stream, std::shared_future<void>) {
                                 device.enqueue(stream, Stage::kCompute, {}, {});
                               }}),
    device_name);

std::string usage_error(const DeviceTable& table, const std::string& name) {
  try {
    make_device(table, name);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(MakeDevice, AnUnknownNameIsAnErrorThatNamesThoseThereAre) {
  EXPECT_EQ(usage_error({cpu_device(), sim_device()}, "tpu:1"),
            "unknown device 'tpu:1': there are cpu, sim");
  EXPECT_EQ(usage_error({cpu_device(), sim_device()}, ""), "unknown device '': there are cpu, sim");
}

TEST(MakeDevice, OnlyTheFirstColonSeparates) {
  std::string argument;
  const DeviceTable table = {{.name = "spy", .help = "", .make = [&](const std::string& given) {
                                argument = given;
                                return make_device({cpu_device()}, "cpu");
                              }}};
  make_device(table, "spy:a:b");
  EXPECT_EQ(argument, "a:b");
  make_device(table, "spy");
  EXPECT_EQ(argument, "");
}

TEST(MakeDevice, TheCpuTakesNoArgument) {
  EXPECT_EQ(usage_error({cpu_device()}, "cpu:1"),
            "device cpu takes nothing behind a colon: --device=cpu");
}

TEST(PcieRate, IsThatOfTheLanesWithoutTheirCode) {
  EXPECT_NEAR(pcie_GBps(5, 16), 63.0, 0.02);
  EXPECT_NEAR(pcie_GBps(4, 8), 15.75, 0.005);
  EXPECT_DOUBLE_EQ(pcie_GBps(1, 1), 0.25);
  EXPECT_DOUBLE_EQ(pcie_GBps(2, 16), 8);
  EXPECT_NEAR(pcie_GBps(6, 16), 121.0, 0.01);
}

TEST(PcieRate, OfWhatIsNoLinkIsZero) {
  for (const auto& [generation, width] :
       {std::pair{0, 16}, std::pair{7, 16}, std::pair{-1, 16}, std::pair{5, 0}, std::pair{5, -8}}) {
    EXPECT_EQ(pcie_GBps(generation, width), 0) << generation << " x" << width;
  }
}

class CpuDevice : public testing::Test {
 protected:
  const std::unique_ptr<Device> device_ = make_device({cpu_device()}, "cpu");
};

TEST_F(CpuDevice, SaysThatNothingIsPageLocked) {
  const DeviceInfo info = device_->info();
  EXPECT_EQ(info.name, "cpu");
  EXPECT_FALSE(info.simulated);
  ASSERT_EQ(info.context.size(), 1u);
  EXPECT_EQ(info.context[0].first, "page_locking");
}

TEST_F(CpuDevice, AlignsMemoryToPages) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const Buffer host = device_->host_buffer(10, HostMemory::kPinned);
  const Buffer device = device_->device_buffer(10);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(host.data()) % page, 0u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(device.data()) % page, 0u);
}

TEST_F(CpuDevice, DropsWhatFollowsAnErrorButCompletesItsEvents) {
  const auto failed = device_->stream("failed");
  const auto other = device_->stream("other");
  const auto before = device_->event();
  const auto after = device_->event();
  std::atomic<int> runs = 0;
  std::promise<void> gate;
  device_->record(*before, *failed);
  device_->enqueue(*failed, Stage::kCompute, {}, [&] { gate.get_future().wait(); });
  device_->enqueue(*failed, Stage::kCompute, {}, [] { throw std::domain_error("first"); });
  device_->enqueue(*failed, Stage::kCompute, {}, [&] { ++runs; });
  device_->enqueue(*failed, Stage::kCompute, {}, [] { throw std::domain_error("second"); });
  device_->record(*after, *failed);
  device_->wait(*other, *after);
  device_->enqueue(*other, Stage::kCompute, {}, [&] { runs += 10; });
  gate.set_value();
  EXPECT_NO_THROW(device_->synchronize(*other));
  EXPECT_EQ(runs, 10);
  EXPECT_NO_THROW(device_->synchronize(*before));
  EXPECT_NO_THROW(device_->time(*before));
  // The error stays, for whoever asks.
  for (int i = 0; i < 2; ++i) {
    EXPECT_THROW(device_->synchronize(*after), std::domain_error);
    EXPECT_THROW(device_->done(*after), std::domain_error);
    EXPECT_THROW(device_->time(*after), std::domain_error);
    EXPECT_THROW(device_->synchronize(*failed), std::domain_error);
    EXPECT_THROW(device_->record(*before, *failed), std::domain_error);
    EXPECT_THROW(device_->enqueue(*failed, Stage::kCompute, {}, [] {}), std::domain_error);
  }
  // A record that failed leaves the event as it was.
  EXPECT_NO_THROW(device_->synchronize(*before));
}

TEST_F(CpuDevice, AFingerprintThatWasDroppedIsAnError) {
  const auto stream = device_->stream("stream");
  const auto log = device_->fingerprint_log(1);
  std::promise<void> gate;
  device_->enqueue(*stream, Stage::kCompute, {}, [&] { gate.get_future().wait(); });
  device_->enqueue(*stream, Stage::kCompute, {}, [] { throw std::domain_error("lost"); });
  log->take(*stream, {.images = nullptr, .labels = nullptr, .shape = {.empty = true}}, 0);
  gate.set_value();
  EXPECT_THROW(log->read(), std::domain_error);
}

TEST_F(CpuDevice, ABlockingCopyIsThereWhenItReturns) {
  const auto stream = device_->stream("stream");
  const Buffer from = device_->host_buffer(100'000, HostMemory::kPageable);
  const Buffer to = device_->device_buffer(100'000);
  from.data()[99'999] = std::byte{7};
  device_->copy(*stream, Direction::kH2d, to.data(), from.data(), from.bytes(),
                HostMemory::kPageable, CopyMode::kBlocking);
  EXPECT_EQ(to.data()[99'999], std::byte{7});
}

TEST_F(CpuDevice, ADestroyedStreamHasDoneItsWork) {
  int runs = 0;
  {
    const auto stream = device_->stream("stream");
    for (int i = 0; i < 100; ++i) {
      device_->enqueue(*stream, Stage::kCompute, {}, [&] { ++runs; });
    }
  }
  EXPECT_EQ(runs, 100);
}

TEST_F(CpuDevice, AnyThreadMayWaitForAnEvent) {
  const auto stream = device_->stream("stream");
  const auto event = device_->event();
  std::promise<void> gate;
  int value = 0;
  device_->enqueue(*stream, Stage::kCompute, {}, [&] {
    gate.get_future().wait();
    value = 1;
  });
  device_->record(*event, *stream);
  std::vector<std::thread> waiting;
  std::atomic<int> seen = 0;
  for (int i = 0; i < 4; ++i) {
    waiting.emplace_back([&] {
      device_->synchronize(*event);
      seen += value;
    });
  }
  gate.set_value();
  for (auto& thread : waiting) {
    thread.join();
  }
  EXPECT_EQ(seen, 4);
}

// Two streams hand a plain counter to and fro, and the host reads it: the thread sanitizer sees
// whether events order what they should.
TEST_F(CpuDevice, EventsOrderMemoryBetweenStreams) {
  const auto ping = device_->stream("ping");
  const auto pong = device_->stream("pong");
  const auto ping_end = device_->event();
  const auto pong_end = device_->event();
  constexpr int kTurns = 2000;
  int counter = 0;
  int wrong = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    device_->enqueue(*ping, Stage::kCompute, {}, [&, turn] { wrong += counter++ != 2 * turn; });
    device_->record(*ping_end, *ping);
    device_->wait(*pong, *ping_end);
    device_->enqueue(*pong, Stage::kCompute, {}, [&, turn] { wrong += counter++ != 2 * turn + 1; });
    device_->record(*pong_end, *pong);
    device_->wait(*ping, *pong_end);
    if (turn % 100 == 0) {
      device_->synchronize(*pong_end);
      EXPECT_EQ(counter, 2 * turn + 2);
    }
  }
  device_->synchronize(*pong);
  EXPECT_EQ(counter, 2 * kTurns);
  EXPECT_EQ(wrong, 0);
}

TEST_F(CpuDevice, CountsMemoryThatWasNotTouchedYet) {
  // Each is granted by itself; together they are more than there is.
  std::vector<Buffer> buffers;
  std::ifstream file("/proc/meminfo");
  std::string key;
  std::size_t total_kib = 0;
  file >> key >> total_kib;
  ASSERT_EQ(key, "MemTotal:");
  const std::size_t tenth = total_kib * 1024 / 10;
  EXPECT_THROW(
      {
        for (int i = 0; i < 11; ++i) {
          buffers.push_back(device_->host_buffer(tenth, HostMemory::kPageable));
        }
      },
      OutOfMemory);
  buffers.clear();
  EXPECT_NO_THROW(device_->host_buffer(tenth / 10, HostMemory::kPageable));
}

}  // namespace
}  // namespace feedrate
