#include "feedrate/step.hpp"

#include <ATen/Parallel.h>
#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "dataset_randn.hpp"
#include "feedrate/error.hpp"
#include "feedrate/loader.hpp"
#include "feedrate/schedule.hpp"
#include "one_intraop_thread.hpp"

namespace feedrate {
namespace {

using testing::Contains;
using testing::Not;

constexpr BatchShape kShape{.batch = 4, .image = 32};
const DeviceInfo kCpu{.name = "cpu", .type = DeviceType::kCpu};

// A batch of the original's dataset in host memory.
class Batch {
 public:
  explicit Batch(std::int64_t index) : index_(index) {
    const auto dataset =
        make_dataset(torch_datasets(), "randn", kShape, DatasetPlace::kTrainingLoop);
    make_batch(*dataset, index, kShape, memory_);
  }
  DeviceBatch view() {
    return {memory_.data(), memory_.data() + kShape.images_bytes(), kShape, index_};
  }

 private:
  std::int64_t index_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(kShape.bytes());
};

std::vector<float> losses_of_steps(Step& step, int count) {
  for (std::int64_t n = 0; n < count; ++n) {
    Batch batch(n);
    step.train(batch.view());
  }
  return step.losses();
}

class ResNet18StepOnCpu : public testing::Test {
  const OneIntraOpThread one_thread_;
};

TEST_F(ResNet18StepOnCpu, RepeatsItsLossesAfterReset) {
  const auto step = make_resnet18_step(kCpu);
  const std::vector<float> first = losses_of_steps(*step, 3);
  ASSERT_EQ(first.size(), 3u);
  EXPECT_NE(first[0], first[1]);
  step->reset();
  EXPECT_TRUE(step->losses().empty());
  EXPECT_EQ(losses_of_steps(*step, 3), first);
}

TEST_F(ResNet18StepOnCpu, StartsFromTheSameWeightsEachTime) {
  EXPECT_EQ(losses_of_steps(*make_resnet18_step(kCpu), 1),
            losses_of_steps(*make_resnet18_step(kCpu), 1));
}

TEST_F(ResNet18StepOnCpu, LearnsABatchThatItSeesAgainAndAgain) {
  const auto step = make_resnet18_step(kCpu);
  Batch batch(0);
  for (int i = 0; i < 6; ++i) {
    step->train(batch.view());
  }
  EXPECT_LT(step->losses().back(), 0.5f * step->losses().front());
}

TEST(ResNet18Step, LeavesTheIntraOpThreadsAlone) {
  const auto step = make_resnet18_step(kCpu);
  int usual = 0;
  int in_step = 0;
  int after = 0;
  std::thread([&] { usual = at::get_num_threads(); }).join();
  std::thread([&] {
    Batch batch(0);
    step->train(batch.view());
    in_step = at::get_num_threads();
  }).join();
  std::thread([&] { after = at::get_num_threads(); }).join();
  EXPECT_EQ(in_step, usual);
  EXPECT_EQ(after, usual);
}

// Operators by name, those that others call included, of all threads.
class Operators {
 public:
  Operators()
      : handle_(at::addGlobalCallback(
            at::RecordFunctionCallback([](const at::RecordFunction& function)
                                           -> std::unique_ptr<at::ObserverContext> {
              const std::lock_guard lock(mutex_);
              names_.insert(function.name());
              return nullptr;
            }).scopes({at::RecordScope::FUNCTION}))) {}
  ~Operators() {
    at::removeCallback(handle_);
    names_.clear();
  }
  std::set<std::string> names() const {
    const std::lock_guard lock(mutex_);
    return names_;
  }

 private:
  static inline std::mutex mutex_;
  static inline std::set<std::string> names_;
  at::CallbackHandle handle_;
};

// On a GPU each of these waits for the device.
TEST_F(ResNet18StepOnCpu, AsksForNoValueOfATensor) {
  const auto step = make_resnet18_step(kCpu);
  Batch batch(0);
  const Operators operators;
  step->train(batch.view());
  const std::set<std::string> names = operators.names();
  ASSERT_THAT(names, Contains("aten::cross_entropy_loss"));
  ASSERT_THAT(names, Contains("aten::_foreach_addcdiv_"));
  EXPECT_THAT(names,
              Not(Contains(testing::AnyOf("aten::item", "aten::_local_scalar_dense",
                                          "aten::is_nonzero", "aten::nonzero", "aten::equal"))));
}

TEST_F(ResNet18StepOnCpu, RefusesEmptyBatchesAndSimulatedDevices) {
  const auto step = make_resnet18_step(kCpu);
  EXPECT_THROW(step->train({.images = nullptr, .labels = nullptr, .shape = {.empty = true}}),
               Unsupported);
  EXPECT_THROW(make_resnet18_step({.name = "sim", .type = DeviceType::kSim}), Unsupported);
}

// Whatever order a schedule issues its work in, each step must train on the batch of its number.
class Schedules : public testing::Test {
 protected:
  std::vector<float> losses(Spec spec) {
    spec.batch = kShape.batch;
    spec.image = kShape.image;
    spec.workers = 2;
    spec.warmup = 1;
    spec.steps = 4;  // twice around the slots
    EXPECT_EQ(invalid(spec), std::nullopt);
    step_->reset();
    device_->prepare(spec);
    const auto source = make_source(spec, {.device = *device_, .datasets = datasets_});
    Trace trace;
    const Timeline timeline =
        run(spec, {.device = *device_, .source = source.get(), .step = *step_, .trace = trace});
    for (const StepRecord& record : timeline.steps) {
      EXPECT_EQ(record.fingerprint_used, record.fingerprint_made) << "batch " << record.index;
    }
    return step_->losses();
  }

  const OneIntraOpThread one_thread_;
  DatasetTable datasets_ = torch_datasets();
  std::unique_ptr<Device> device_ = make_device({cpu_device()}, "cpu");
  std::unique_ptr<Step> step_ = make_resnet18_step(kCpu);
};

TEST_F(Schedules, YieldTheSerialOnesLosses) {
  const std::vector<float> serial = losses({});
  ASSERT_EQ(serial.size(), 6u);
  EXPECT_EQ(std::set(serial.begin(), serial.end()).size(), serial.size());
  for (const auto& schedule : choices<ScheduleKind>()) {
    for (const bool pop_first : {false, true}) {
      const Spec direct{.loader = LoaderKind::kThreads,
                        .memory = HostMemory::kPinned,
                        .buffers = Buffers::kRing,
                        .pinning = Pinning::kDirect,
                        .copy = CopyMode::kAsync,
                        .schedule = schedule.value,
                        .pop_first = pop_first};
      EXPECT_EQ(losses(direct), serial) << describe(direct);
    }
  }
}

TEST_F(Schedules, YieldTheSerialOnesLossesFromFreshMemory) {
  const std::vector<float> serial = losses({});
  const Spec pageable{.copy = CopyMode::kAsync, .schedule = ScheduleKind::kTwoStreams};
  EXPECT_EQ(losses(pageable), serial);
  const Spec pinned{.loader = LoaderKind::kThreads,
                    .memory = HostMemory::kPinned,
                    .pinning = Pinning::kThread,
                    .copy = CopyMode::kAsync,
                    .schedule = ScheduleKind::kPrefetcher};
  EXPECT_EQ(losses(pinned), serial);
}

// Bytes trained on are the floats that they stand for.
TEST_F(Schedules, TrainOnBytesAsOnTheFloatsTheyStandFor) {
  Spec spec{.dataset = DatasetKind::kNoiseU8,
            .loader = LoaderKind::kThreads,
            .memory = HostMemory::kPinned,
            .buffers = Buffers::kRing,
            .pinning = Pinning::kDirect,
            .copy = CopyMode::kAsync,
            .schedule = ScheduleKind::kPrefetcher};
  const std::vector<float> trained = losses(spec);

  step_->reset();
  const BatchShape bytes_shape{kShape.batch, kShape.image, false, Pixel::kU8};
  const auto dataset = make_dataset(datasets_, "noise_u8", bytes_shape, DatasetPlace::kWorker);
  constexpr std::array kMean{0.485, 0.456, 0.406};
  constexpr std::array kDeviation{0.229, 0.224, 0.225};
  const auto area = static_cast<std::size_t>(kShape.image) * kShape.image;
  for (std::int64_t index = 0; index < static_cast<std::int64_t>(trained.size()); ++index) {
    std::vector<std::byte> bytes(bytes_shape.bytes());
    make_batch(*dataset, index, bytes_shape, bytes);
    std::vector<float> images(kShape.images_bytes() / sizeof(float));
    for (std::size_t at = 0; at < images.size(); ++at) {
      const std::size_t channel = at / area % kMean.size();
      const int byte = std::to_integer<int>(bytes[at]);
      // In the order in which it is done on the device, so that the floats are the same.
      images[at] = static_cast<float>(byte) * static_cast<float>(1 / (255 * kDeviation[channel])) +
                   static_cast<float>(-kMean[channel] / kDeviation[channel]);
      ASSERT_NEAR(images[at], (byte / 255.0 - kMean[channel]) / kDeviation[channel], 1e-5);
    }
    step_->train({reinterpret_cast<std::byte*>(images.data()),
                  bytes.data() + bytes_shape.images_bytes(), kShape, index});
  }
  const std::vector<float> expected = step_->losses();
  EXPECT_EQ(trained, expected);
  EXPECT_NE(trained.front(), trained.back());
}

}  // namespace
}  // namespace feedrate
