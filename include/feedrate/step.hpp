// Step: the training step on a batch that is on the device.
//
// Made once for a device and shape and reused by many rows. train() is called inside
// Device::enqueue: on the calling thread with the stream current (cuda) or on the stream's thread
// (cpu), never twice at once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "feedrate/device.hpp"
#include "feedrate/spec.hpp"

namespace feedrate {

class Step {
 public:
  Step() = default;
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;
  virtual ~Step() = default;

  // Enqueues what makes normalised floats of a batch of bytes, (x / 255 - mean) / deviation with
  // ImageNet's means and deviations of each channel, as torchvision's transforms have them. train()
  // of the same batch then uses the floats. Called before each train() of such a batch.
  virtual void normalize(const DeviceBatch& /*batch*/) {}

  // Enqueues forward, loss, backward, optimiser and zero_grad over `batch`. Does not synchronise.
  virtual void train(const DeviceBatch& batch) = 0;

  // Puts weights, buffers and the optimiser's state back to the initial ones, so that each run
  // starts from the same model, and forgets the losses. The device must be idle.
  virtual void reset() = 0;

  // The losses of all steps since reset(), in order. The device must be idle.
  virtual std::vector<float> losses() = 0;
};

// A step that does nothing.
std::unique_ptr<Step> make_null_step();

// ResNet-18 as torchvision defines it (1000 classes, train mode, float32), cross-entropy on the
// logits, Adam with default settings (feedrate_torch). `device` must be a cuda or cpu device.
std::unique_ptr<Step> make_resnet18_step(const DeviceInfo& device);

}  // namespace feedrate
