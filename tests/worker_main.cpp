// The worker process of the tests. `test_worker FD` serves a loader; `test_worker parent FD` is a
// program with two busy workers that writes their process ids to descriptor FD and waits.
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "../fixtures/host_memory.hpp"
#include "../fixtures/worker_wire.hpp"
#include "feedrate/device.hpp"
#include "feedrate/loader.hpp"
#include "test_datasets.hpp"

namespace feedrate {
namespace {

// Sends something wrong from within the worker, instead of the batch that was asked for.
class LyingDataset final : public RampDataset {
 public:
  LyingDataset(int socket, std::string about, const BatchShape& shape)
      : socket_(socket), about_(std::move(about)), bytes_(shape.bytes()) {}

  Sample fill(std::int64_t index, std::span<std::byte> image) override {
    if (index == 0) {
      lie();
    }
    return RampDataset::fill(index, image);
  }

 private:
  void lie() {
    Message message;
    message.kind = MessageKind::kMade;
    Fd memory = make_memory_file(bytes_);
    if (about_ == "length") {
      send(socket_, &message, sizeof message / 2, MSG_NOSIGNAL);
      return;
    }
    if (about_ == "more length") {
      std::array<char, 2 * sizeof message> long_one{};
      std::memcpy(long_one.data(), &message, sizeof message);
      send(socket_, long_one.data(), long_one.size(), MSG_NOSIGNAL);
      return;
    }
    if (about_ == "magic") {
      message.magic = 1;
    } else if (about_ == "kind") {
      message.kind = MessageKind::kOpen;
    } else if (about_ == "index") {
      message.index = 1'000'000;
    } else if (about_ == "slot") {
      message.slot = -1;
    } else if (about_ == "size") {
      memory = make_memory_file(bytes_ / 2);
    } else if (about_ == "seals") {
      memory = Fd(memfd_create("unsealed", MFD_CLOEXEC));
      if (ftruncate(memory.get(), static_cast<off_t>(bytes_)) != 0) {
        std::abort();
      }
    } else if (about_ == "memory") {
      memory.close();
    }
    send_message(socket_, message, memory.get(), 0);
  }

  int socket_;
  std::string about_;
  std::size_t bytes_;
};

DatasetTable worker_datasets(int socket) {
  const char* told = std::getenv("FEEDRATE_TEST_BEHAVIOUR");
  const Behaviour behaviour = Behaviour::parse(told == nullptr ? "" : told);
  DatasetTable table = test_datasets(behaviour);
  const std::string lies = "lies ";
  if (behaviour.what.starts_with(lies)) {
    table[1].make = [socket, about = behaviour.what.substr(lies.size())](const BatchShape& shape,
                                                                         DatasetPlace) {
      return std::make_unique<LyingDataset>(socket, about, shape);
    };
  }
  return table;
}

int be_parent(const std::string& self, int answer) {
  const auto device = make_device({cpu_device()}, "cpu");
  WorkerPool pool(self);
  const DatasetTable datasets = test_datasets();
  const auto source = make_source({.dataset = DatasetKind::kReplay,
                                   .batch = 2,
                                   .image = 32,
                                   .loader = LoaderKind::kProcesses,
                                   .workers = 2},
                                  {.device = *device, .datasets = datasets, .processes = &pool});
  source->next();
  for (const int pid : pool.pids()) {
    dprintf(answer, "%d\n", pid);
  }
  for (;;) {
    pause();
  }
}

}  // namespace
}  // namespace feedrate

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "parent") {
    return feedrate::be_parent(argv[0], std::atoi(argv[2]));
  }
  const int socket = argc == 2 ? std::atoi(argv[1]) : -1;
  return feedrate::worker_main(socket, feedrate::worker_datasets(socket));
}
