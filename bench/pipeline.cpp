#include "feedrate/schedule.hpp"
#include "harness.hpp"
#include "rows.hpp"
#include "rungs.hpp"

namespace feedrate {
namespace {

// The model is warm before the workers start: what they had made until then would be a head start.
Report run_pipeline(Session& session, const Spec& spec) {
  Step& step = session.step(spec);
  const auto source = session.source(spec);
  return report(spec, run(spec, session.run_parts(source.get(), step)));
}

}  // namespace

std::vector<BenchRow> pipeline_rows(const RowContext& /*context*/) {
  std::vector<BenchRow> rows;
  for (const auto& [name, spec] : rungs()) {
    const bool floor = spec.dataset == DatasetKind::kNone;
    rows.push_back({.name = "Pipeline/" + name,
                    .spec = spec,
                    .own = floor ? std::vector<std::string_view>{"dataset", "step"}
                                 : std::vector<std::string_view>{},
                    .run = run_pipeline});
  }
  return rows;
}

}  // namespace feedrate
