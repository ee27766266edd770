// A device that does nothing but write down what it was asked to, in order, one word each. Its
// clock ticks by one at every look.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "feedrate/device.hpp"
#include "feedrate/error.hpp"

namespace feedrate {

class RecordingDevice final : public Device {
 public:
  std::vector<std::string> log;
  int live_handles = 0;
  int live_buffers = 0;
  std::vector<std::span<std::byte>> registered;  // by register_host, ever
  int live_registrations = 0;
  std::string fail_at;  // the entry at which to throw

  struct NamedStream final : Stream {
    NamedStream(RecordingDevice& of, std::string called) : device(of), name(std::move(called)) {
      ++device.live_handles;
    }
    ~NamedStream() override { --device.live_handles; }
    RecordingDevice& device;
    std::string name;
  };
  struct Stamp final : Event {
    explicit Stamp(RecordingDevice& of) : device(of) { ++device.live_handles; }
    ~Stamp() override { --device.live_handles; }
    RecordingDevice& device;
    TimeNs time = -1;
  };

  DeviceInfo info() const override { return {.name = "recording"}; }
  void prepare(const Spec& /*spec*/) override {}
  Buffer host_buffer(std::size_t bytes, HostMemory /*kind*/) override { return heap(bytes); }
  Buffer device_buffer(std::size_t bytes) override { return heap(bytes); }
  Buffer register_host(std::span<std::byte> memory) override {
    registered.push_back(memory);
    ++live_registrations;
    return {memory.data(), memory.size(),
            [this](std::byte*, std::size_t) { --live_registrations; }};
  }
  std::unique_ptr<Stream> stream(const std::string& name) override {
    return std::make_unique<NamedStream>(*this, name);
  }
  std::unique_ptr<Event> event() override { return std::make_unique<Stamp>(*this); }
  void record(Event& event, Stream& /*stream*/) override {
    static_cast<Stamp&>(event).time = now();
  }
  void wait(Stream& stream, Event& event) override {
    recorded(event);
    note("wait:" + name_of_stream(stream));
  }
  void synchronize(Event& event) override {
    recorded(event);
    note("sync-event");
  }
  void synchronize(Stream& stream) override { note("sync:" + name_of_stream(stream)); }
  bool done(Event& /*event*/) override { return true; }
  TimeNs time(Event& event) override { return recorded(event).time; }
  void copy(Stream& stream, Direction /*direction*/, std::byte* to, const std::byte* from,
            std::size_t bytes, HostMemory /*kind*/, CopyMode mode) override {
    std::copy_n(from, bytes, to);
    if (bytes > 8) {  // the images, not the labels
      note("copy:" + name_of_stream(stream) + (mode == CopyMode::kBlocking ? ":blocking" : ""));
    }
  }
  void stage(Stage /*stage*/, const std::function<void()>& work) override { work(); }
  void enqueue(Stream& stream, Stage /*stage*/, const DeviceBatch& batch,
               std::function<void()> work) override {
    note("step" + std::to_string(batch.index) + ":" + name_of_stream(stream));
    work();
  }
  void busy(Stream& stream, TimeNs /*duration*/) override {
    note("busy:" + name_of_stream(stream));
  }
  std::unique_ptr<Gate> gate(Stream& stream) override {
    struct Noted final : Gate {
      explicit Noted(RecordingDevice& of) : device(of) {}
      void open() override { device.note("open"); }
      RecordingDevice& device;
    };
    note("gate:" + name_of_stream(stream));
    return std::make_unique<Noted>(*this);
  }
  Buffer stream_buffer(Stream& stream, std::size_t bytes) override {
    note("alloc:" + name_of_stream(stream));
    auto memory = std::make_shared<Buffer>(heap(bytes));
    std::byte* const data = memory->data();
    return {data, bytes, [this, memory = std::move(memory)](std::byte*, std::size_t) mutable {
              log.emplace_back("drop");
              memory.reset();
            }};
  }
  void record_stream(const Buffer& /*buffer*/, Stream& stream) override {
    note("record_stream:" + name_of_stream(stream));
  }
  std::size_t peak_device_bytes() const override { return 0; }
  std::unique_ptr<FingerprintLog> fingerprint_log(std::size_t count) override {
    struct Log final : FingerprintLog {
      std::vector<std::uint64_t> values;
      void take(Stream& /*stream*/, const DeviceBatch& batch, std::size_t index) override {
        values.at(index) = static_cast<std::uint64_t>(batch.images[0]);
      }
      std::vector<std::uint64_t> read() override { return values; }
    };
    auto made = std::make_unique<Log>();
    made->values.resize(count);
    return made;
  }
  void profiler(bool on) override { note(on ? "profiler-on" : "profiler-off"); }
  TimeNs now() const override { return ++clock_; }

  void note(const std::string& entry) {
    log.push_back(entry);
    if (entry == fail_at) {
      throw DeviceError("failed at " + entry);
    }
  }

 private:
  static const std::string& name_of_stream(Stream& stream) {
    return static_cast<NamedStream&>(stream).name;
  }
  static Stamp& recorded(Event& event) {
    auto& stamp = static_cast<Stamp&>(event);
    if (stamp.time < 0) {
      throw Error("an event that was never recorded");
    }
    return stamp;
  }
  Buffer heap(std::size_t bytes) {
    ++live_buffers;
    return {new std::byte[bytes](), bytes, [this](std::byte* data, std::size_t) {
              --live_buffers;
              delete[] data;
            }};
  }

  mutable TimeNs clock_ = 0;
};

}  // namespace feedrate
