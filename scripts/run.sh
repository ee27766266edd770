#!/usr/bin/env bash
# The main job: sets up what is missing, builds, and runs the Pipeline rows. Flags go to the
# benchmark; a --benchmark_filter of yours wins.
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

set_up
build release bench
bench=$PWD/build/bench
cd "$OLDPWD" # setup.sh left it; paths among the flags start there
exec "$bench" --benchmark_filter=Pipeline "$@"
