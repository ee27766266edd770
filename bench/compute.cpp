#include "feedrate/schedule.hpp"
#include "harness.hpp"
#include "rows.hpp"

namespace feedrate {
namespace {

Timeline run_compute(Session& session, const Spec& spec) {
  Step& step = session.step(spec);
  const auto resident = session.resident(spec);
  return run_resident(spec, session.run_parts(nullptr, step), resident.batch, resident.fingerprint);
}

}  // namespace

std::vector<BenchRow> compute_rows() {
  // Nothing is fetched or copied, so that only the shape, the window and its steps are left.
  const std::vector<std::string_view> own{"loader",  "workers", "prefetch",  "memory",
                                          "buffers", "pinning", "copy",      "schedule",
                                          "guard",   "slots",   "pop_first", "step"};
  return {
      {.name = "Compute/resnet18", .spec = {}, .own = own, .run = run_compute},
  };
}

}  // namespace feedrate
