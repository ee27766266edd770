// Spec: all that decides one row, read in the order of the flow.
//
// A plain struct with defaults; a row of a table fills it with designated initialisers, a flag
// overrides one member for every row. Each enum has one table of names, from which flags, --help,
// labels and tests are made.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace feedrate {

enum class DatasetKind { kRandn, kNoiseU8, kReplay, kNone };
enum class Pixel { kF32, kU8 };  // what an image's values are: it follows from the dataset
enum class LoaderKind { kInline, kThreads, kProcesses, kLibtorch };
enum class HostMemory { kPageable, kPinned, kRegistered, kWriteCombined };
enum class Buffers { kFresh, kRing };
enum class Pinning { kNone, kThread, kDirect };
enum class CopyMode { kBlocking, kAsync };
enum class ScheduleKind { kSerial, kTwoStreams, kPrefetcher };
enum class Guard { kSlots, kRecord, kNone };
enum class StepKind { kResnet18, kNull };
enum class Window { kSteady, kPublished };

// A choice as the user writes it, with one line for --help.
template <typename Enum>
struct Choice {
  std::string_view name;
  Enum value;
  std::string_view help;
};

// The table of an enum's choices; the first one is the default.
template <typename Enum>
constexpr auto choices();

template <>
constexpr auto choices<DatasetKind>() {
  return std::to_array<Choice<DatasetKind>>({
      {"randn", DatasetKind::kRandn, "float32 normal noise made for every batch, as the original"},
      {"noise_u8", DatasetKind::kNoiseU8, "bytes, made floats and normalised on the device"},
      {"replay", DatasetKind::kReplay, "randn made once and copied: a loader that keeps up"},
      {"none", DatasetKind::kNone, "empty batches: nothing is made and nothing copied"},
  });
}
template <>
constexpr auto choices<LoaderKind>() {
  return std::to_array<Choice<LoaderKind>>({
      {"inline", LoaderKind::kInline, "the training loop makes each batch itself"},
      {"threads", LoaderKind::kThreads, "worker threads"},
      {"processes", LoaderKind::kProcesses, "worker processes that share memory"},
      {"libtorch", LoaderKind::kLibtorch, "torch::data::make_data_loader and its worker threads"},
  });
}
template <>
constexpr auto choices<HostMemory>() {
  return std::to_array<Choice<HostMemory>>({
      {"pageable", HostMemory::kPageable, "plain memory"},
      {"pinned", HostMemory::kPinned, "page-locked by the driver's allocator"},
      {"registered", HostMemory::kRegistered, "plain memory, page-locked afterwards"},
      {"write_combined", HostMemory::kWriteCombined, "pinned, not cached by the host"},
  });
}
template <>
constexpr auto choices<Buffers>() {
  return std::to_array<Choice<Buffers>>({
      {"fresh", Buffers::kFresh, "mapped, faulted in and unmapped for each batch"},
      {"ring", Buffers::kRing, "mapped once and reused"},
  });
}
template <>
constexpr auto choices<Pinning>() {
  return std::to_array<Choice<Pinning>>({
      {"none", Pinning::kNone, "the copy reads what the loader wrote"},
      {"thread", Pinning::kThread, "a pin thread copies each batch into a page-locked ring"},
      {"direct", Pinning::kDirect, "workers write into the page-locked ring"},
  });
}
template <>
constexpr auto choices<CopyMode>() {
  return std::to_array<Choice<CopyMode>>({
      {"blocking", CopyMode::kBlocking, "the host waits for the copy"},
      {"async", CopyMode::kAsync, "the host goes on"},
  });
}
template <>
constexpr auto choices<ScheduleKind>() {
  return std::to_array<Choice<ScheduleKind>>({
      {"serial", ScheduleKind::kSerial, "one stream"},
      {"two_streams", ScheduleKind::kTwoStreams, "batch N+1 is copied while step N computes"},
      {"prefetcher", ScheduleKind::kPrefetcher, "the same behind an iterator of device batches"},
  });
}
template <>
constexpr auto choices<Guard>() {
  return std::to_array<Choice<Guard>>({
      {"slots", Guard::kSlots, "fixed device slots; a copy waits for its slot's last reader"},
      {"record", Guard::kRecord, "LibTorch's memory, told by record_stream who reads it"},
      {"none", Guard::kNone, "LibTorch's memory as published: copies overtake readers"},
  });
}
template <>
constexpr auto choices<StepKind>() {
  return std::to_array<Choice<StepKind>>({
      {"resnet18", StepKind::kResnet18, "ResNet-18, Adam, float32"},
      {"null", StepKind::kNull, "nothing"},
  });
}
template <>
constexpr auto choices<Window>() {
  return std::to_array<Choice<Window>>({
      {"steady", Window::kSteady, "from one step's end to the N-th after it, no synchronisation"},
      {"published", Window::kPublished, "synchronise, steps, synchronise, as the original"},
  });
}

// The name of a choice, e.g. name_of(LoaderKind::kThreads) == "threads".
template <typename Enum>
constexpr std::string_view name_of(Enum value) {
  for (const auto& choice : choices<Enum>()) {
    if (choice.value == value) {
      return choice.name;
    }
  }
  return "?";
}

// The choice of that name, or nothing.
template <typename Enum>
constexpr std::optional<Enum> choice_named(std::string_view name) {
  for (const auto& choice : choices<Enum>()) {
    if (choice.name == name) {
      return choice.value;
    }
  }
  return std::nullopt;
}

inline constexpr int kAllCores = 0;   // workers: one for each core this process may run on
inline constexpr int kAutoSteps = 0;  // steps: chosen so that the window outlasts every queue

// A batch's shape. Images are float32 or uint8, NCHW with 3 channels, labels int64; one buffer
// holds the images and, right behind them, the labels. A dataset of kind none has zero bytes.
struct BatchShape {
  int batch = 64;   // images
  int image = 512;  // height and width, pixels; a multiple of 4, so that an image is whole words
  bool empty = false;
  Pixel pixel = Pixel::kF32;

  constexpr std::size_t image_bytes() const {
    const auto side = static_cast<std::size_t>(image);
    return empty ? 0 : 3 * side * side * (pixel == Pixel::kU8 ? 1 : sizeof(float));
  }
  constexpr std::size_t images_bytes() const {
    return static_cast<std::size_t>(batch) * image_bytes();
  }
  constexpr std::size_t labels_bytes() const {
    return empty ? 0 : static_cast<std::size_t>(batch) * sizeof(std::int64_t);
  }
  constexpr std::size_t bytes() const { return images_bytes() + labels_bytes(); }
};

// The cores that this process may run on: what kAllCores means where nobody says otherwise.
int usable_cores();

struct Spec {
  DatasetKind dataset = DatasetKind::kRandn;
  int batch = 64;
  int image = 512;
  LoaderKind loader = LoaderKind::kInline;
  int workers = kAllCores;                    // threads or processes; inline has none
  int prefetch = 2;                           // batches a worker may have begun and not handed over
  HostMemory memory = HostMemory::kPageable;  // what the copy reads from
  Buffers buffers = Buffers::kFresh;          // the loader's own memory
  Pinning pinning = Pinning::kNone;           // who brings a batch into page-locked memory
  CopyMode copy = CopyMode::kBlocking;
  ScheduleKind schedule = ScheduleKind::kSerial;
  Guard guard = Guard::kSlots;
  int lag_ms = 0;          // before each step the device is busy that long; part of its compute
  int slots = 2;           // device slots of the schedules with two streams; serial uses one
  int sync_every = 0;      // synchronise after every that many steps, 0: never
  bool pop_first = false;  // fetch and submit batch N+1 before step N is launched
  StepKind step = StepKind::kResnet18;
  int warmup = 10;  // steps before the window
  int steps = kAutoSteps;
  int cooldown = 1;  // steps after the window
  Window window = Window::kSteady;

  BatchShape shape() const {
    return {batch, image, dataset == DatasetKind::kNone,
            dataset == DatasetKind::kNoiseU8 ? Pixel::kU8 : Pixel::kF32};
  }
  // Workers as a number: 0 for inline, all cores this process may use for kAllCores.
  int worker_count() const;
  // Batches that can wait between the loader and the training loop, queues and slots together.
  int queue_batches() const;
  // Steps as a number: kAutoSteps becomes at least 20 and more than queue_batches().
  int step_count() const;
};

// Which numbers a member takes.
struct Range {
  int least = 0;
  int most = 0;
  int multiple_of = 1;
  std::string_view zero = {};  // how the user writes 0 where 0 is a choice and no number
};

// Visits the members of Spec in the order of the flow: visit(name, pointer, help), and a Range
// behind it for numbers. Flags, --help, invalid() and describe() are made from it.
template <typename Visit>
constexpr void for_each_member(Visit&& visit) {
  constexpr int kMostSteps = 1'000'000;
  visit("dataset", &Spec::dataset, "what a batch holds");
  visit("batch", &Spec::batch, "images in a batch", Range{1, 65536});
  visit("image", &Spec::image, "height and width of an image, pixels", Range{32, 8192, 4});
  visit("loader", &Spec::loader, "who makes the batches");
  visit("workers", &Spec::workers, "threads or processes of the loader", Range{1, 4096, 1, "all"});
  visit("prefetch", &Spec::prefetch, "batches that a worker may be ahead", Range{1, 1024});
  visit("memory", &Spec::memory, "what the copy reads from");
  visit("buffers", &Spec::buffers, "the memory that the loader writes");
  visit("pinning", &Spec::pinning, "who brings a batch into page-locked memory");
  visit("copy", &Spec::copy, "whether the host waits for a copy");
  visit("schedule", &Spec::schedule, "the order of the training loop");
  visit("guard", &Spec::guard, "what keeps a batch whole while it is used");
  visit("lag_ms", &Spec::lag_ms, "forced lag: keeps the device busy before each step, ms",
        Range{0, 10'000});
  visit("slots", &Spec::slots, "device slots of a schedule with two streams", Range{2, 64});
  visit("sync_every", &Spec::sync_every, "synchronise after every that many steps, 0: never",
        Range{0, kMostSteps});
  visit("pop_first", &Spec::pop_first, "fetch and copy batch N+1 before step N is launched");
  visit("step", &Spec::step, "the training step");
  visit("warmup", &Spec::warmup, "steps before the window", Range{0, kMostSteps});
  visit("steps", &Spec::steps, "measured steps", Range{1, kMostSteps, 1, "auto"});
  visit("cooldown", &Spec::cooldown, "steps after the window", Range{0, kMostSteps});
  visit("window", &Spec::window, "what is timed");
}

// What `range` takes, in words: "a whole number from 32 to 8192, a multiple of 4".
std::string describe(const Range& range);

// Why this combination makes no sense on any device (e.g. pinning none with memory pinned), in one
// line that says what would be right; nothing if it is sound.
std::optional<std::string> invalid(const Spec& spec);

// The spec in one line, members that differ from the default only: "loader=threads copy=async".
std::string describe(const Spec& spec);

}  // namespace feedrate
