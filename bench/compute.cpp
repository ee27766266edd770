#include "feedrate/schedule.hpp"
#include "harness.hpp"
#include "rows.hpp"

namespace feedrate {
namespace {

Report run_compute(Session& session, const Spec& spec) {
  Step& step = session.step(spec);
  const auto resident = session.resident(spec);
  return session.report(spec, run_resident(spec, session.run_parts(nullptr, step), resident.batch,
                                           resident.fingerprint));
}

}  // namespace

std::vector<BenchRow> compute_rows(const RowContext& /*context*/) {
  // Nothing is fetched or copied, so that only the shape, the window and its steps are left.
  const auto own = members_but(
      {"dataset", "batch", "image", "sync_every", "warmup", "steps", "cooldown", "window"});
  auto own_dataset = own;
  own_dataset.push_back("dataset");
  return {
      {.name = "Compute/resnet18", .spec = {}, .own = own, .run = run_compute},
      {.name = "Compute/resnet18_u8",
       .spec = {.dataset = DatasetKind::kNoiseU8},
       .own = own_dataset,
       .run = run_compute},
  };
}

}  // namespace feedrate
