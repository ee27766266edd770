#include "feedrate/samples.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace feedrate {
namespace {

TEST(Samples, PercentilesLieBetweenTheOrderStatistics) {
  const std::vector<double> samples{40, 10, 30, 20};
  EXPECT_DOUBLE_EQ(percentile(samples, 0), 10);
  EXPECT_DOUBLE_EQ(percentile(samples, 1), 40);
  EXPECT_DOUBLE_EQ(median(samples), 25);
  EXPECT_DOUBLE_EQ(percentile(samples, 0.9), 37);
  EXPECT_TRUE(std::isnan(median({})));
}

TEST(Samples, SpreadIsAShareOfTheMedian) {
  std::vector<double> samples;
  for (int i = 0; i <= 100; ++i) {
    samples.push_back(100 + i);
  }
  EXPECT_DOUBLE_EQ(spread(samples), 50.0 / 150.0);
  EXPECT_EQ(spread(std::vector<double>{5, 5, 5}), 0);
  EXPECT_EQ(spread(std::vector<double>{5}), 0);
}

TEST(Samples, AreUnsteadyWhenTheHalvesDifferByMoreThanFivePercent) {
  EXPECT_FALSE(unsteady(std::vector<double>{100, 100, 104.9, 104.9}));
  EXPECT_TRUE(unsteady(std::vector<double>{100, 100, 105.1, 105.1}));
  EXPECT_TRUE(unsteady(std::vector<double>{105.1, 105.1, 100, 100}));
}

TEST(Samples, AreNotUnsteadyForASingleSlowOneInMany) {
  std::vector<double> samples(100, 10.0);
  samples[70] = 30;
  EXPECT_FALSE(unsteady(samples));
}

TEST(Samples, TooFewToBeCalledUnsteady) { EXPECT_FALSE(unsteady(std::vector<double>{1, 2, 3})); }

}  // namespace
}  // namespace feedrate
