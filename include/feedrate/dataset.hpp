// Dataset: makes samples. Fingerprint: the number by which a batch is recognised later.
//
// A Dataset object belongs to one worker (a thread, a process, or the training loop) and is used by
// that one only; each has its own generator. Sample i is the same whichever object makes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "feedrate/spec.hpp"

namespace feedrate {

// The sum of the 64-bit words of `bytes` modulo 2^64. Precondition: bytes.size() % 8 == 0, data
// aligned to 8. Additive: the sum of a whole is the sum of its parts' sums.
std::uint64_t word_sum(std::span<const std::byte> bytes);

// The fingerprint of a batch of B images: sum over b of (2b + 1) * (word_sum(image b) + label b),
// modulo 2^64. It is exact, does not depend on the order of summation within an image, and changes
// when images are swapped. With random contents, a batch of which one word was overwritten by
// another batch's keeps its fingerprint with probability 2^-64 or so.
class Fingerprint {
 public:
  void add(std::uint64_t image_word_sum, std::int64_t label) {
    value_ += (2 * count_ + 1) * (image_word_sum + static_cast<std::uint64_t>(label));
    ++count_;
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0;
  std::uint64_t count_ = 0;
};

// The fingerprint of a batch that lies in memory: images, then labels, as BatchShape has them.
std::uint64_t fingerprint_of(const BatchShape& shape, std::span<const std::byte> images,
                             std::span<const std::byte> labels);

struct Sample {
  std::int64_t label = 0;
  std::uint64_t word_sum = 0;  // of the image's bytes, taken while they are in cache
};

class Dataset {
 public:
  Dataset() = default;
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;
  virtual ~Dataset() = default;

  // Told before each batch which memory its samples will be written to. What it holds need not be
  // kept. A dataset may do nothing.
  virtual void begin_batch(std::span<std::byte> /*images*/) {}

  // Writes sample `index` (0, 1, 2, …, without end) into `image`, shape().image_bytes() long and
  // aligned to 8. Throws what the source of samples throws.
  virtual Sample fill(std::int64_t index, std::span<std::byte> image) = 0;
};

// Where a Dataset object will be used.
enum class DatasetPlace {
  kTrainingLoop,  // the main process: intra-op threads stay as the library sets them
  kWorker,        // one of many workers: a single intra-op thread
};

// Datasets by name: what a loader, or a worker process that gets the name over its socket, makes
// its Dataset from. The functions may be called from several threads at once.
struct DatasetEntry {
  std::string name;
  std::function<std::unique_ptr<Dataset>(const BatchShape&, DatasetPlace)> make;
};
using DatasetTable = std::vector<DatasetEntry>;

// Makes the dataset of that name. Throws UsageError naming those there are.
std::unique_ptr<Dataset> make_dataset(const DatasetTable& table, std::string_view name,
                                      const BatchShape& shape, DatasetPlace place);

// "none": fills nothing, word_sum 0, label 0.
DatasetEntry empty_dataset();

// "replay" over another dataset: sample i is that one's sample i % distinct, made when it is first
// needed and copied from then on.
DatasetEntry replay_dataset(DatasetEntry source, int distinct);

// Makes batch `index` (samples index * B … index * B + B - 1) in `memory` (shape.bytes() long,
// images then labels) and returns its fingerprint.
std::uint64_t make_batch(Dataset& dataset, std::int64_t index, const BatchShape& shape,
                         std::span<std::byte> memory);

}  // namespace feedrate
