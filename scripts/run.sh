#!/usr/bin/env bash
# The main job: the Pipeline rows. Flags go to the benchmark; a --benchmark_filter of yours wins.
# Sets up what is missing first, and builds.
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

set_up
build release bench
exec build/bench --benchmark_filter=Pipeline "$@"
