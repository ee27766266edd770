#!/usr/bin/env bash
# Every test: all of the release build's, plots and report and compare, the core's under the
# sanitizers, and the benchmark once simulated and once on the processor. With CI set, format and lint come first and warnings are
# errors.
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

jobs=$(nproc)

sources() { # NAME…: our files of these names
  local names=() name
  for name in "$@"; do names+=(-o -name "$name"); done
  find include fixtures bench tests scripts \( "${names[@]:1}" \) -print0
}

check_format() {
  say "checking format and scripts"
  sources '*.hpp' '*.cpp' | xargs -0 "$tools/clang-format" --dry-run --Werror
  sources '*.sh' | xargs -0 "$tools/shellcheck" --external-sources .ci/run
  "$tools/ruff" check --quiet --no-cache --line-length 100 --select E,F,W,B scripts tests
}

# The core only: a file that includes Torch takes most of a minute.
check_tidy() {
  say "checking the core with clang-tidy"
  grep -oP '"file": "\K.*/fixtures/.*(?=")' build-asan/compile_commands.json |
    xargs -P "$jobs" -n 1 "$tools/clang-tidy" --quiet -p build-asan 2>>"$log" # its counts
}

run_tests() { # PRESET [COMMAND…]: COMMAND starts ctest
  local preset=$1
  shift
  say "testing $preset"
  "$@" ctest --preset "$preset" --parallel "$jobs"
}

# The thread sanitizer of older compilers cannot live with many random bits in addresses.
fixed_addresses=()
if setarch -R true 2>/dev/null; then fixed_addresses=(setarch -R); fi

run_bench() { # DEVICE
  local result=build/test-$1.json
  say "running the benchmark on $1"
  build/bench --device="$1" --benchmark_filter=Pipeline --benchmark_out="$result"
  "$python" scripts/check_result.py "$result"
}

# They need libraries that the build does not: .venv's Python has them.
test_look() {
  say "testing plots, report, compare and profile"
  FEEDRATE_BENCH=$PWD/build/bench .venv/bin/python -m unittest discover -s tests/look
}

preset=release
set_up
set_up_look
set_up_hta
set_up_browser
if [[ -n ${CI:-} ]]; then
  preset=ci
  set_up_lint
  check_format
fi
build "$preset"
run_tests "$preset"
test_look
build asan all all_verify_interface_header_sets
if [[ -n ${CI:-} ]]; then check_tidy; fi
run_tests asan
build tsan
run_tests tsan "${fixed_addresses[@]}"
run_bench sim
run_bench cpu
say "all passed"
