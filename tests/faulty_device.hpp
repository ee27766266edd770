// A device whose asynchronous copies to or from page-locked memory can go wrong; all else is the
// inner one's, which runs work (cpu).
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "feedrate/device.hpp"

namespace feedrate {

class FaultyDevice final : public Device {
 public:
  explicit FaultyDevice(std::unique_ptr<Device> inner) : inner_(std::move(inner)) {}

  // Numbers of the copies, from 0 on.
  int flip_in = -1;  // one bit of what it wrote changes behind it
  int lose = -1;     // it does not happen
  int copies = 0;    // so far

  DeviceInfo info() const override { return inner_->info(); }
  void prepare(const Spec& spec) override { inner_->prepare(spec); }
  Buffer host_buffer(std::size_t bytes, HostMemory kind) override {
    return inner_->host_buffer(bytes, kind);
  }
  Buffer device_buffer(std::size_t bytes) override { return inner_->device_buffer(bytes); }
  Buffer register_host(std::span<std::byte> memory) override {
    return inner_->register_host(memory);
  }
  std::unique_ptr<Stream> stream(const std::string& name) override { return inner_->stream(name); }
  std::unique_ptr<Event> event() override { return inner_->event(); }
  void record(Event& event, Stream& stream) override { inner_->record(event, stream); }
  void wait(Stream& stream, Event& event) override { inner_->wait(stream, event); }
  void synchronize(Event& event) override { inner_->synchronize(event); }
  void synchronize(Stream& stream) override { inner_->synchronize(stream); }
  bool done(Event& event) override { return inner_->done(event); }
  TimeNs time(Event& event) override { return inner_->time(event); }
  void copy(Stream& stream, Direction direction, std::byte* to, const std::byte* from,
            std::size_t bytes, HostMemory kind, CopyMode mode) override {
    const int number = mode == CopyMode::kAsync ? copies++ : -2;
    if (number == lose) {
      return;
    }
    inner_->copy(stream, direction, to, from, bytes, kind, mode);
    if (number == flip_in) {
      inner_->enqueue(stream, Stage::kCopy, {}, [to, bytes] { to[bytes - 1] ^= std::byte{4}; });
    }
  }
  void stage(Stage stage, const std::function<void()>& work) override {
    inner_->stage(stage, work);
  }
  void enqueue(Stream& stream, Stage stage, const DeviceBatch& batch,
               std::function<void()> work) override {
    inner_->enqueue(stream, stage, batch, std::move(work));
  }
  void busy(Stream& stream, TimeNs duration) override { inner_->busy(stream, duration); }
  std::unique_ptr<Gate> gate(Stream& stream) override { return inner_->gate(stream); }
  Buffer stream_buffer(Stream& stream, std::size_t bytes) override {
    return inner_->stream_buffer(stream, bytes);
  }
  void record_stream(const Buffer& buffer, Stream& stream) override {
    inner_->record_stream(buffer, stream);
  }
  std::size_t peak_device_bytes() const override { return inner_->peak_device_bytes(); }
  std::unique_ptr<FingerprintLog> fingerprint_log(std::size_t count) override {
    return inner_->fingerprint_log(count);
  }
  void profiler(bool on) override { inner_->profiler(on); }
  TimeNs now() const override { return inner_->now(); }

 private:
  std::unique_ptr<Device> inner_;
};

}  // namespace feedrate
