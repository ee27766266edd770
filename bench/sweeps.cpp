#include "feedrate/error.hpp"
#include "harness.hpp"
#include "rows.hpp"
#include "rungs.hpp"

namespace feedrate {
namespace {

// A sweep goes on where memory ends: a row that would not fit is skipped with the size it needs.
Report run_if_it_fits(Session& session, const Spec& spec) {
  try {
    return run_pipeline(session, spec);
  } catch (const OutOfMemory& error) {
    throw Unsupported(error.what());
  } catch (const LoaderError& error) {
    // A worker process hands its error on as text.
    if (std::string_view(error.what()).find("out of memory") != std::string_view::npos) {
      throw Unsupported(error.what());
    }
    throw;
  }
}

// There is no queue that they must outlast, and they are the longest of all.
constexpr int kInlineSteps = 10;

struct Sweep {
  std::string family;
  std::vector<std::string_view> rungs;
  std::string_view member;
  int Spec::*axis;
};

std::vector<BenchRow> rows_of(const Sweep& sweep, const std::set<int>& values) {
  std::vector<BenchRow> rows;
  for (const std::string_view name : sweep.rungs) {
    for (const int value : values) {
      Spec spec = rung(name);
      spec.*sweep.axis = value;
      if (spec.loader == LoaderKind::kInline) {
        spec.steps = kInlineSteps;
      }
      rows.push_back({.name = sweep.family + "/" + std::string(name) + "/" +
                              std::string(sweep.member) + ":" + std::to_string(value),
                      .spec = spec,
                      .own = {sweep.member},
                      .run = run_if_it_fits});
    }
  }
  return rows;
}

}  // namespace

std::set<int> sweep_axis(Bounds given, Bounds usual) {
  const Bounds bounds = given.most > 0 ? given : usual;
  std::set<int> values{bounds.least, bounds.most};
  for (long value = 1; value < bounds.most; value *= 2) {
    if (value > bounds.least) {
      values.insert(static_cast<int>(value));
    }
  }
  return values;
}

std::vector<BenchRow> workers_rows(const RowContext& context) {
  return rows_of({"Workers", {"workers", "pinned", "direct"}, "workers", &Spec::workers},
                 sweep_axis(context.sweep_workers, {1, context.cores}));
}

std::vector<BenchRow> batch_size_rows(const RowContext& context) {
  const Bounds usual = context.device == DeviceType::kCpu ? Bounds{2, 8} : Bounds{8, 256};
  return rows_of({"BatchSize", {"baseline", "streams", "direct"}, "batch", &Spec::batch},
                 sweep_axis(context.sweep_batch, usual));
}

std::vector<BenchRow> image_size_rows(const RowContext& context) {
  const Bounds usual = context.device == DeviceType::kCpu ? Bounds{32, 96} : Bounds{64, 1024};
  return rows_of({"ImageSize", {"baseline", "streams", "direct"}, "image", &Spec::image},
                 sweep_axis(context.sweep_image, usual));
}

}  // namespace feedrate
