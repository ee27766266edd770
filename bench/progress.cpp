#include "progress.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "text.hpp"

namespace feedrate {

// --- Progress ------------------------------------------------------------------------------------

Progress::Progress(int runs)
    : on_(isatty(STDERR_FILENO) != 0), runs_(runs), start_(monotonic_now()) {}

void Progress::begin(const std::string& row) {
  ++run_;
  row_ = row;
  next_ = 0;
  step(0, 0);
}

void Progress::step(int done, int total) {
  if (!on_) {
    return;
  }
  constexpr TimeNs kBetween = 100'000'000;
  const TimeNs now = monotonic_now();
  if (now < next_) {
    return;
  }
  next_ = now + kBetween;
  std::string line = "row " + std::to_string(run_) + " of " + std::to_string(runs_) + "  " + row_;
  if (total > 0) {
    line += "  step " + std::to_string(done) + " of " + std::to_string(total);
  }
  // Rows differ; by the share of those that are done is as good as it gets.
  const double share =
      (run_ - 1 + (total > 0 ? static_cast<double>(done) / total : 0)) / std::max(1, runs_);
  const double elapsed_s = to_s(now - start_);
  if (share > 0 && elapsed_s > 1) {
    line += "  about " + fixed(elapsed_s * (1 - share) / share, 0) + " s left";
  }
  winsize window{};  // asked each time: a terminal can be resized
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 1) {
    line.resize(std::min<std::size_t>(line.size(), window.ws_col - 1U));  // a longer one would wrap
  }
  std::fprintf(stderr, "\r%s\x1b[K", line.c_str());
  std::fflush(stderr);
  shown_ = true;
}

void Progress::clear() {
  if (shown_) {
    std::fputs("\r\x1b[K", stderr);
    std::fflush(stderr);
    shown_ = false;
  }
}

// --- Table ---------------------------------------------------------------------------------------

namespace {

std::string cell(const Column& column, const Run& run) {
  const bool share =
      run.run_type == Run::RT_Aggregate && run.aggregate_unit == benchmark::kPercentage;
  double value = 0;
  if (column.counter.empty()) {
    value = share
                ? run.real_accumulated_time
                : run.GetAdjustedRealTime() * 1e3 / benchmark::GetTimeUnitMultiplier(run.time_unit);
  } else {
    const auto found = run.counters.find(std::string(column.counter));
    if (found == run.counters.end()) {
      return "-";
    }
    value = found->second.value;
  }
  if (!std::isfinite(value)) {
    return "-";
  }
  return share ? fixed(value * 100, 2) + "%" : fixed(value, column.digits);
}

const Family& family_of(const std::string& row) {
  const auto& all = families();
  const std::string_view name = std::string_view(row).substr(0, row.find('/'));
  return *std::find_if(all.begin(), all.end() - 1,
                       [&](const Family& family) { return family.name == name; });
}

bool same_columns(const Family& a, const Family& b) {
  return std::equal(a.columns.begin(), a.columns.end(), b.columns.begin(), b.columns.end(),
                    [](const Column& x, const Column& y) {
                      return x.title == y.title && x.counter == y.counter;
                    });
}

void print(const std::string& line) { std::fprintf(stdout, "%s\n", line.c_str()); }

}  // namespace

void Table::header(const Family& family) const {
  std::string line = padded("row", name_width_);
  for (const auto& column : family.columns) {
    line += right(std::string(column.title), column.width);
  }
  print(line);
  print(std::string(line.size(), '-'));
}

void Table::rows(const std::vector<Run>& runs) {
  for (const auto& run : runs) {
    const std::string name = run.benchmark_name();
    const Family& family = family_of(name);
    if (family_ == nullptr || !same_columns(*family_, family)) {
      if (family_ != nullptr) {
        print("");
      }
      header(family);
    }
    family_ = &family;
    std::string line = padded(name, name_width_);
    if (const auto error = error_of(run)) {
      line += "  ERROR: " + *error;
    } else {
      for (const auto& column : family.columns) {
        line += right(cell(column, run), column.width);
      }
      line += run.report_label.empty() ? "" : "  " + run.report_label;
    }
    print(line);
  }
  std::fflush(stdout);
}

void Table::skipped(const std::vector<SkippedRow>& rows) const {
  for (const auto& row : rows) {
    print(padded(row.name, name_width_) + "  skipped: " + row.reason);
  }
  std::fflush(stdout);
}

}  // namespace feedrate
