#include "feedrate/trace.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace feedrate {
namespace {

using ::testing::ElementsAre;

// Writes down what it is told; its ids are its own.
class NotingTrace final : public Trace {
 public:
  NotingTrace(std::string name, std::uint64_t first_id, std::vector<std::string>& log)
      : name_(std::move(name)), next_id_(first_id), log_(log) {}

  void push(TraceRange, std::int64_t step) override { note("push", step); }
  void pop() override { log_.push_back(name_ + " pop"); }
  std::uint64_t start(TraceRange, std::int64_t step) override {
    note("start", step);
    return next_id_++;
  }
  void end(std::uint64_t id) override { note("end", static_cast<std::int64_t>(id)); }

 private:
  void note(const std::string& what, std::int64_t number) {
    log_.push_back(name_ + " " + what + " " + std::to_string(number));
  }

  std::string name_;
  std::uint64_t next_id_;
  std::vector<std::string>& log_;
};

TEST(TraceList, EachIsToldAllAndMeetsItsOwnIdsAgain) {
  std::vector<std::string> log;
  std::vector<std::unique_ptr<Trace>> traces;
  traces.push_back(std::make_unique<NotingTrace>("a", 10, log));
  traces.push_back(std::make_unique<NotingTrace>("b", 70, log));
  const auto list = make_trace_list(std::move(traces));
  {
    const ScopedRange batch(*list, TraceRange::kBatch, 3);
    const auto first = list->start(TraceRange::kCompute, 3);
    const auto second = list->start(TraceRange::kCompute, 4);
    list->end(first);  // ranges of the process need not nest
    list->end(second);
  }
  EXPECT_THAT(
      log, ElementsAre("a push 3", "b push 3", "a start 3", "b start 3", "a start 4", "b start 4",
                       "b end 70", "a end 10", "b end 71", "a end 11", "b pop", "a pop"));
}

TEST(TraceList, OneIsItselfAndNoneIsSilent) {
  std::vector<std::string> log;
  std::vector<std::unique_ptr<Trace>> traces;
  traces.push_back(std::make_unique<NotingTrace>("a", 10, log));
  Trace* const only = traces.front().get();
  EXPECT_EQ(make_trace_list(std::move(traces)).get(), only);
  const auto none = make_trace_list({});
  const ProcessRange range(*none, TraceRange::kCompute, 0);
  EXPECT_TRUE(log.empty());
}

}  // namespace
}  // namespace feedrate
