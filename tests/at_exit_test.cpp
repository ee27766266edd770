#include "at_exit.hpp"

#include <gtest/gtest.h>

#include <cstdio>

namespace feedrate {
namespace {

TEST(AtExit, RunsWhenSomebodyElseEndsTheProcess) {
  EXPECT_EXIT(
      {
        const AtExit last([] { std::fputs("written at the end", stderr); });
        std::exit(7);
      },
      testing::ExitedWithCode(7), "written at the end");
}

TEST(AtExit, IsTheLatest) {
  EXPECT_EXIT(
      {
        const AtExit first([] { std::fputs("first", stderr); });
        {
          const AtExit over([] { std::fputs("over", stderr); });
        }
        const AtExit last([] { std::fputs("last", stderr); });
        std::exit(0);
      },
      testing::ExitedWithCode(0), "^last$");
}

TEST(AtExit, IsForgottenOnceItIsOver) {
  EXPECT_EXIT(
      {
        {
          const AtExit over([] { std::fputs("over", stderr); });
        }
        std::exit(0);
      },
      testing::ExitedWithCode(0), "^$");
}

}  // namespace
}  // namespace feedrate
