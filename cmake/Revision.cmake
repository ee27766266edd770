# Writes the git revision of the source tree into a header, at every build, so that it cannot go
# stale; the header changes only when the revision does. Run with -DSOURCE_DIR=… -DOUTPUT=… -P.
execute_process(COMMAND git -C ${SOURCE_DIR} describe --always --dirty --abbrev=12 --exclude=*
                OUTPUT_VARIABLE revision OUTPUT_STRIP_TRAILING_WHITESPACE
                RESULT_VARIABLE status ERROR_QUIET)
if(NOT status EQUAL 0)
  set(revision "unknown")
endif()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT [[
#pragma once

#include <string_view>

namespace feedrate {
inline constexpr std::string_view kGitRevision = "@revision@";
}  // namespace feedrate
]])
