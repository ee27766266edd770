// The C++ ResNet-18 against the values that scripts/reference.py --record took from torchvision's.
// resnet18.json says how weights and images are made. Each number stands there with its tolerance
// in float32 and in float64.
#include "resnet18.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "adam.hpp"
#include "one_intraop_thread.hpp"

namespace feedrate {
namespace {

using nlohmann::json;

const json& recorded() {
  static const json values =
      json::parse(std::ifstream(FEEDRATE_SOURCE_DIR "/tests/data/resnet18.json"));
  return values;
}

double uniform(std::uint32_t stream, std::int64_t element) {
  std::uint32_t h = static_cast<std::uint32_t>(element) * 2654435761u + stream * 40503u + 12345u;
  h ^= h >> 16;
  h *= 0x85ebca6bu;
  h ^= h >> 13;
  h *= 0xc2b2ae35u;
  h ^= h >> 16;
  return static_cast<double>(h) * 0x1p-32;
}

// offset + scale * (u - 0.5) in each element.
at::Tensor by_formula(std::uint32_t stream, at::IntArrayRef sizes, double offset, double scale) {
  at::Tensor values = at::empty(sizes, at::kDouble);
  double* data = values.mutable_data_ptr<double>();
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    data[i] = offset + scale * (uniform(stream, i) - 0.5);
  }
  return values;
}

ResNet18 network_by_formula(at::ScalarType type) {
  ResNet18 network;
  network->to(type);
  const at::NoGradGuard no_grad;
  std::uint32_t number = 0;
  for (at::Tensor& parameter : network->parameters()) {
    const json& of = recorded()["parameters"].at(number);
    parameter.copy_(by_formula(number++, parameter.sizes(), of["offset"], of["scale"]));
  }
  return network;
}

struct Batch {
  at::Tensor images;
  at::Tensor labels;
};

Batch batch_of_step(std::uint32_t step, at::ScalarType type) {
  const std::int64_t side = recorded()["image"];
  return {by_formula(recorded()["image_stream"].get<std::uint32_t>() + step,
                     {recorded()["batch"], 3, side, side}, 0, recorded()["image_scale"])
              .to(type),
          at::tensor(recorded()["labels"].at(step).get<std::vector<std::int64_t>>())};
}

// `number` holds, from place `at` on: the value, its tolerance in float32, and in float64.
void expect_near(const json& number, std::size_t at, at::ScalarType type, double value,
                 const std::string& what) {
  const std::size_t tolerance = type == at::kFloat ? at + 1 : at + 2;
  EXPECT_NEAR(value, number.at(at).get<double>(), number.at(tolerance).get<double>()) << what;
}

// A tensor against its digest; `number` is its place among the parameters, 0 for others.
void expect_digest(const json& digest, const at::Tensor& tensor, std::uint32_t number,
                   const std::string& what) {
  const at::ScalarType type = tensor.scalar_type();
  const at::Tensor wide = tensor.detach().to(at::kDouble).contiguous();
  const double* values = wide.const_data_ptr<double>();
  const std::uint32_t projection = recorded()["projection_stream"].get<std::uint32_t>() + number;
  double sum = 0;
  double squares = 0;
  double dot = 0;
  for (std::int64_t i = 0; i < wide.numel(); ++i) {
    sum += values[i];
    squares += values[i] * values[i];
    dot += values[i] * (uniform(projection, i) - 0.5);
  }
  expect_near(digest["sum"], 0, type, sum, what + " sum");
  expect_near(digest["l2"], 0, type, std::sqrt(squares), what + " l2");
  expect_near(digest["dot"], 0, type, dot, what + " dot");
  for (const json& element : digest["elements"]) {
    const auto place = element.at(0).get<std::int64_t>();
    expect_near(element, 1, type, values[place], what + " element " + std::to_string(place));
  }
}

void expect_digests(const json& digests, const std::vector<at::Tensor>& tensors,
                    const std::string& what) {
  ASSERT_EQ(digests.size(), tensors.size());
  for (std::uint32_t i = 0; i < tensors.size(); ++i) {
    const std::string name = recorded()["parameters"].at(i)["name"];
    expect_digest(digests.at(name), tensors[i], i, what + " of " + name);
  }
}

std::vector<at::Tensor> copies(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> made;
  for (const at::Tensor& tensor : tensors) {
    made.push_back(tensor.detach().clone());
  }
  return made;
}

class ResNet18Equals : public testing::TestWithParam<at::ScalarType> {
  const OneIntraOpThread one_thread_;
};

TEST_P(ResNet18Equals, Torchvisions) {
  const json& expected = recorded();
  const at::ScalarType type = GetParam();
  const ResNet18 network = network_by_formula(type);
  const std::vector<at::Tensor> initial = copies(network->parameters());
  Adam optimizer(network->parameters());
  const auto forward = [&](std::uint32_t step, at::Tensor* logits) {
    const Batch batch = batch_of_step(step, type);
    *logits = ResNet18(network)->forward(batch.images);
    return at::cross_entropy_loss(*logits, batch.labels);
  };
  for (std::uint32_t step = 0; step < 3; ++step) {
    if (step == 2) {
      std::vector<at::Tensor> moved;
      for (std::size_t i = 0; i < initial.size(); ++i) {
        moved.push_back(network->parameters()[i].detach() - initial[i]);
      }
      expect_digests(expected["weights"], network->parameters(), "weights");
      expect_digests(expected["moved"], moved, "change");
      std::size_t statistics = 0;
      for (const auto& buffer : network->named_buffers()) {
        if (expected["batch_norm"].contains(buffer.key())) {
          expect_digest(expected["batch_norm"][buffer.key()], buffer.value(), 0, buffer.key());
          ++statistics;
        }
      }
      EXPECT_EQ(statistics, expected["batch_norm"].size());
    }
    at::Tensor logits;
    const at::Tensor loss = forward(step, &logits);
    expect_near(expected["losses"].at(step), 0, type, loss.item<double>(),
                "loss of step " + std::to_string(step));
    loss.backward();
    if (step == 0) {
      expect_digest(expected["logits"], logits, 0, "logits");
      std::vector<at::Tensor> gradients;
      for (const at::Tensor& parameter : network->parameters()) {
        gradients.push_back(parameter.grad());
      }
      expect_digests(expected["gradients"], gradients, "gradient");
    }
    optimizer.step();
    optimizer.zero_grad();
  }
}

INSTANTIATE_TEST_SUITE_P(In, ResNet18Equals, testing::Values(at::kFloat, at::kDouble),
                         [](const auto& type) { return std::string(c10::toString(type.param)); });

TEST(ResNet18, HasTorchvisionsParametersByNameOrderAndShape) {
  const ResNet18 network;
  std::int64_t count = 0;
  std::size_t number = 0;
  for (const auto& parameter : network->named_parameters()) {
    ASSERT_LT(number, recorded()["parameters"].size());
    const json& expected = recorded()["parameters"].at(number++);
    EXPECT_EQ(parameter.key(), expected["name"].get<std::string>());
    EXPECT_EQ(parameter.value().sizes().vec(), expected["shape"].get<std::vector<std::int64_t>>());
    count += parameter.value().numel();
  }
  EXPECT_EQ(number, recorded()["parameters"].size());
  EXPECT_EQ(count, 11'689'512);
}

TEST(ResNet18, StartsConvolutionsByFanOutAndNormsAtOne) {
  const ResNet18 network;
  for (const auto& parameter : network->named_parameters()) {
    const at::Tensor& value = parameter.value();
    if (value.dim() == 4) {
      const double fan_out = static_cast<double>(value.size(0) * value.size(2) * value.size(3));
      const double deviation = value.square().mean().sqrt().item<double>();
      EXPECT_NEAR(deviation * std::sqrt(fan_out / 2), 1, 0.05) << parameter.key();
    } else if (parameter.key().find("bn") != std::string::npos) {
      const bool is_weight = parameter.key().ends_with("weight");
      EXPECT_TRUE(value.eq(is_weight ? 1 : 0).all().item<bool>()) << parameter.key();
    }
  }
}

// What is timed is what is compared above.
TEST(ResNet18Step, TrainsAsTheComparedNetworkDoes) {
  const OneIntraOpThread one_thread;
  const ResNet18 network = network_by_formula(at::kFloat);
  const auto step = make_resnet18_step({.name = "cpu", .type = DeviceType::kCpu}, network);
  std::vector<Batch> batches;
  for (std::uint32_t s = 0; s < 3; ++s) {
    batches.push_back(batch_of_step(s, at::kFloat));
    const Batch& batch = batches.back();
    const BatchShape shape{recorded()["batch"], recorded()["image"]};
    step->train({static_cast<std::byte*>(batch.images.mutable_data_ptr()),
                 static_cast<std::byte*>(batch.labels.mutable_data_ptr()), shape, s});
    if (s == 1) {
      expect_digests(recorded()["weights"], network->parameters(), "weights");
    }
  }
  const std::vector<float> losses = step->losses();
  ASSERT_EQ(losses.size(), 3u);
  for (std::size_t s = 0; s < 3; ++s) {
    expect_near(recorded()["losses"].at(s), 0, at::kFloat, losses[s],
                "loss of step " + std::to_string(s));
  }
}

}  // namespace
}  // namespace feedrate
