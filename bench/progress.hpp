// What a person watches while rows run: Progress, one line on a terminal's stderr, and Table, the
// rows on stdout. Both are used by the training loop's thread only.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "feedrate/time.hpp"
#include "result_file.hpp"
#include "rows.hpp"

namespace feedrate {

// "row 3 of 7  Pipeline/pinned  step 12 of 41  about 9 s left", rewritten in place and erased at
// the end. Writes nothing when stderr is no terminal.
class Progress {
 public:
  explicit Progress(int runs);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { clear(); }

  void begin(const std::string& row);
  void step(int done, int total);
  void clear();

 private:
  const bool on_;
  const int runs_;
  int run_ = 0;
  std::string row_;
  TimeNs start_;
  TimeNs next_ = 0;  // not more often than a person can read
  bool shown_ = false;
};

// A line a run. Families have columns of their own, with a header where they change.
class Table {
 public:
  // `name_width` as the longest name needs.
  void set_name_width(std::size_t name_width) { name_width_ = name_width; }

  void rows(const std::vector<Run>& runs);
  void skipped(const std::vector<SkippedRow>& rows) const;

 private:
  void header(const Family& family) const;

  std::size_t name_width_ = 0;
  const Family* family_ = nullptr;  // of the last row
};

}  // namespace feedrate
