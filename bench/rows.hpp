// Rows: the tables of what can be run, one function a family. A new row is a line in its family's
// table, a new family a file like pipeline.cpp and a line in main.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "feedrate/spec.hpp"
#include "feedrate/timeline.hpp"

namespace feedrate {

class Session;

struct BenchRow {
  std::string name;  // "Pipeline/streams": ASCII, stable
  Spec spec;
  // Members of the spec that make the row what its name says: flags leave them alone.
  std::vector<std::string_view> own;
  Timeline (*run)(Session& session, const Spec& spec);
};

// The whole flow: the floor, the published rungs, and direct.
std::vector<BenchRow> pipeline_rows();
// The step alone: the ceiling.
std::vector<BenchRow> compute_rows();

}  // namespace feedrate
