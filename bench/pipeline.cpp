#include "feedrate/schedule.hpp"
#include "harness.hpp"
#include "rows.hpp"
#include "rungs.hpp"

namespace feedrate {

// The model is warm before the workers start: what they had made until then would be a head start.
Report run_pipeline(Session& session, const Spec& spec) {
  Step& step = session.step(spec);
  const auto source = session.source(spec);
  return session.report(spec, run(spec, session.run_parts(source.get(), step)));
}

std::vector<BenchRow> pipeline_rows(const RowContext& /*context*/) {
  std::vector<BenchRow> rows;
  for (const auto& [name, spec] : rungs()) {
    std::vector<std::string_view> own;
    if (spec.dataset != Spec{}.dataset) {
      own.push_back("dataset");
    }
    if (spec.step != Spec{}.step) {
      own.push_back("step");
    }
    rows.push_back({.name = "Pipeline/" + name, .spec = spec, .own = own, .run = run_pipeline});
  }
  return rows;
}

}  // namespace feedrate
