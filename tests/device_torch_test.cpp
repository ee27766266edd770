// The CUDA device. Without a GPU only what it says then.
#include <gtest/gtest.h>

#ifdef FEEDRATE_CUDA

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dataset_randn.hpp"
#include "device_conformance.hpp"
#include "device_cuda.hpp"
#include "feedrate/device.hpp"
#include "feedrate/error.hpp"
#include "feedrate/step.hpp"

namespace feedrate {
namespace {

std::unique_ptr<Device> cuda(const std::string& name = "cuda") {
  return make_device({cuda_device()}, name);
}

void CUDART_CB wait_for_gate(void* gate) {
  const std::unique_ptr<std::shared_future<void>> owned(
      static_cast<std::shared_future<void>*>(gate));
  owned->wait();
}

std::vector<DeviceUnderTest> devices() {
  if (cuda_device_count() == 0) {
    return {};
  }
  return {{.name = "cuda",
           .make = [] { return cuda(); },
           .block =
               [](Device& device, Stream& stream, std::shared_future<void> gate) {
                 device.enqueue(stream, Stage::kCompute, {}, [&] {
                   auto held = std::make_unique<std::shared_future<void>>(std::move(gate));
                   ASSERT_EQ(cudaLaunchHostFunc(c10::cuda::getCurrentCUDAStream(), wait_for_gate,
                                                held.get()),
                             cudaSuccess);
                   held.release();
                 });
               },
           .clock_slack_ns = 100'000}};
}

// Empty without a GPU; the tests of CudaDevice then say so.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceConformance);
INSTANTIATE_TEST_SUITE_P(Cuda, DeviceConformance, testing::ValuesIn(devices()), device_name);

std::string refusal(const std::string& name) {
  try {
    cuda(name);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(CudaDeviceName, MustBeANumber) {
  for (const std::string name : {"cuda:x", "cuda:-1", "cuda:1x", "cuda: 1", "cuda:99999999999"}) {
    const std::string message = refusal(name);
    EXPECT_NE(message.find("not '" + name.substr(5) + "'"), std::string::npos) << message;
    EXPECT_NE(message.find("--device=cuda:0"), std::string::npos) << message;
  }
}

TEST(CudaDeviceName, OfAGpuThatIsNotThereSaysWhatThereIs) {
  const int count = cuda_device_count();
  const std::string message = refusal("cuda:" + std::to_string(count));
  if (count == 0) {
    EXPECT_NE(message.find("--device=sim or --device=cpu"), std::string::npos) << message;
  } else {
    EXPECT_NE(message.find("cuda:" + std::to_string(count - 1)), std::string::npos) << message;
  }
}

class CudaDevice : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) {
      GTEST_SKIP() << refusal("cuda");
    }
    device_ = cuda();
  }

  // Batch `index` of randn, on the device by way of pinned memory.
  Buffer batch_on_device(Stream& stream, std::int64_t index, const BatchShape& shape) {
    const Buffer host = device_->host_buffer(shape.bytes(), HostMemory::kPinned);
    Buffer there = device_->device_buffer(shape.bytes());
    const auto dataset =
        make_dataset(torch_datasets(), "randn", shape, DatasetPlace::kTrainingLoop);
    fingerprint_ = make_batch(*dataset, index, shape, host.span());
    device_->copy(stream, Direction::kH2d, there.data(), host.data(), shape.bytes(),
                  HostMemory::kPinned, CopyMode::kBlocking);
    return there;
  }
  static DeviceBatch view(const Buffer& memory, const BatchShape& shape) {
    return {memory.data(), memory.data() + shape.images_bytes(), shape, 0};
  }
  std::vector<float> losses(Step& step, Stream& stream, const DeviceBatch& batch, int steps) {
    for (int i = 0; i < steps; ++i) {
      device_->enqueue(stream, Stage::kCompute, batch, [&] { step.train(batch); });
    }
    device_->synchronize(stream);
    return step.losses();
  }

  std::unique_ptr<Device> device_;
  std::uint64_t fingerprint_ = 0;  // of the latest batch
};

TEST_F(CudaDevice, FingerprintsOfBatchesOfAnyShapeAreTheHosts) {
  const auto stream = device_->stream("compute");
  for (const BatchShape shape :
       {BatchShape{.batch = 1, .image = 32}, BatchShape{.batch = 7, .image = 36},
        BatchShape{.batch = 300, .image = 32}, BatchShape{.batch = 64, .image = 512}}) {
    const Buffer memory = batch_on_device(*stream, 3, shape);
    const auto log = device_->fingerprint_log(1);
    log->take(*stream, view(memory, shape), 0);
    EXPECT_EQ(log->read(), std::vector{fingerprint_})
        << shape.batch << " images of " << shape.image;
  }
}

TEST_F(CudaDevice, AStreamComesBackToWhoeverAsksForItsNameNext) {
  const auto handle_of = [&](Stream& stream) {
    cudaStream_t handle = nullptr;
    device_->enqueue(stream, Stage::kCompute, {},
                     [&] { handle = c10::cuda::getCurrentCUDAStream(); });
    return handle;
  };
  auto first = device_->stream("compute");
  const auto other = device_->stream("compute");
  const cudaStream_t handle = handle_of(*first);
  EXPECT_NE(handle, handle_of(*other));
  first.reset();
  EXPECT_NE(handle, handle_of(*device_->stream("copy")));
  EXPECT_EQ(handle, handle_of(*device_->stream("compute")));
}

TEST_F(CudaDevice, TimesOfEventsLieBetweenTheHostsOwn) {
  const auto stream = device_->stream("compute");
  constexpr TimeNs kSlack_ns = 100'000;
  device_->prepare({});
  for (int second = 0; second < 3; ++second) {  // past the life of an anchor
    const auto event = device_->event();
    const TimeNs begin = device_->now();
    device_->record(*event, *stream);
    device_->synchronize(*event);
    const TimeNs end = device_->now();
    EXPECT_GE(device_->time(*event), begin - kSlack_ns);
    EXPECT_LE(device_->time(*event), end + kSlack_ns);
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
  }
}

TEST_F(CudaDevice, SaysWhichGpuBehindWhichLink) {
  const auto info = device_->info();
  EXPECT_EQ(info.name, "cuda:0");
  for (const std::string key : {"gpu", "gpu_memory_GB", "cuda", "cudnn", "libtorch", "driver",
                                "pcie_generation", "pcie_width"}) {
    EXPECT_TRUE(std::any_of(info.context.begin(), info.context.end(), [&](const auto& entry) {
      return entry.first == key;
    })) << key;
  }
}

TEST_F(CudaDevice, TrainsAsTheCpuDoes) {
  constexpr BatchShape kShape{.batch = 8, .image = 64};
  const auto stream = device_->stream("compute");
  const Buffer memory = batch_on_device(*stream, 0, kShape);
  const auto step = make_resnet18_step(device_->info());
  const std::vector<float> here = losses(*step, *stream, view(memory, kShape), 1);

  std::vector<std::byte> host(kShape.bytes());
  make_batch(*make_dataset(torch_datasets(), "randn", kShape, DatasetPlace::kTrainingLoop), 0,
             kShape, host);
  const auto on_host = make_resnet18_step({.name = "cpu", .type = DeviceType::kCpu});
  on_host->train({host.data(), host.data() + kShape.images_bytes(), kShape, 0});
  ASSERT_EQ(here.size(), 1u);
  EXPECT_NEAR(here[0], on_host->losses()[0], 0.02f);  // convolutions may use TF32
}

TEST_F(CudaDevice, TrainsFromTheSameWeightsAfterReset) {
  constexpr BatchShape kShape{.batch = 8, .image = 64};
  const auto stream = device_->stream("compute");
  const Buffer memory = batch_on_device(*stream, 0, kShape);
  const auto step = make_resnet18_step(device_->info());
  const std::vector<float> first = losses(*step, *stream, view(memory, kShape), 3);
  step->reset();
  const std::vector<float> second = losses(*step, *stream, view(memory, kShape), 3);
  ASSERT_EQ(first.size(), 3u);
  ASSERT_EQ(second.size(), 3u);
  EXPECT_NE(first[0], first[1]);
  EXPECT_NEAR(second[0], first[0], 1e-5f);  // later ones: gradients are summed in any order
}

TEST_F(CudaDevice, AStepAndItsCheckWaitForNothing) {
  constexpr BatchShape kShape{.batch = 8, .image = 64};
  const auto stream = device_->stream("compute");
  const Buffer memory = batch_on_device(*stream, 0, kShape);
  const auto step = make_resnet18_step(device_->info());
  const auto log = device_->fingerprint_log(2);
  const auto train = [&](std::size_t index) {
    const DeviceBatch batch = view(memory, kShape);
    device_->enqueue(*stream, Stage::kCompute, batch, [&] { step->train(batch); });
    log->take(*stream, batch, index);
  };
  train(0);
  // LibTorch then throws where it waits for the device.
  c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_ERROR);
  EXPECT_NO_THROW(train(1));
  c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_DISABLED);
  device_->synchronize(*stream);
}

TEST_F(CudaDevice, GetsMemoryBackThatLibTorchKeeps) {
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  ASSERT_EQ(cudaMemGetInfo(&free_bytes, &total_bytes), cudaSuccess);
  const auto most = static_cast<std::int64_t>(free_bytes / 10 * 8);
  const auto stream = device_->stream("compute");
  device_->enqueue(*stream, Stage::kCompute, {}, [&] {
    at::empty({most}, at::TensorOptions(at::kByte).device(at::kCUDA));  // freed, and kept
  });
  device_->synchronize(*stream);
  EXPECT_NE(device_->device_buffer(static_cast<std::size_t>(most)).data(), nullptr);
}

}  // namespace
}  // namespace feedrate

#else

TEST(CudaDevice, IsMissing) { GTEST_SKIP() << "the LibTorch of this build has no CUDA"; }

#endif
