#!/usr/bin/env bash
# Runs rows under nsys, one report a row, and sets what it saw beside our own figures.
#
#   scripts/nsys.sh ROW… [-- BENCH FLAG…]     ROW: as bench --benchmark_list_tests prints it
#
# The reports go to build/nsys (NSYS_OUT names another folder), each with its SQLite export, result
# file and timeline beside it. NSYS names the nsys to use, BENCH the bench. Exit status: 0, 1 if a
# row failed or differs by more than 5 %, 2 for wrong usage or without nsys.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bench=${BENCH:-$here/../build/bench} out=${NSYS_OUT:-$here/../build/nsys}

say() { printf 'nsys.sh: %s\n' "$*" >&2; }
die() {
  say "$*"
  exit 2
}

# Prints where nsys is.
find_nsys() {
  local candidate
  if [[ -n ${NSYS:-} ]]; then
    command -v "$NSYS" || die "NSYS=$NSYS is no program"
    return
  fi
  command -v nsys && return
  # Newer versions sort later.
  for candidate in $(printf '%s\n' /usr/local/cuda*/bin/nsys \
    /opt/nvidia/*/*/{host,target}-linux-*/nsys /opt/nvidia/*/*/bin/nsys | sort -rV); do
    [[ -x $candidate ]] && echo "$candidate" && return
  done
  die "there is no nsys here. It is NVIDIA Nsight Systems: in the CUDA toolkit as the package" \
    "cuda-nsight-systems-<version>, alone as nsight-systems or, without its window," \
    "nsight-systems-cli, in NVIDIA's package repositories. NSYS=… names one that is elsewhere"
}

# Prints the extended regular expression that matches just this row.
# shellcheck disable=SC2001
exactly() { printf '^%s$' "$(sed 's/[][\.*^$+?(){}|]/\\&/g' <<<"$1")"; }

# Prints what stands at the top of this file.
usage() { sed -n '2,/^[^#]/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; }

rows=()
while (($#)) && [[ $1 != -- ]]; do
  if [[ $1 == --help || $1 == -h ]]; then
    usage
    exit
  fi
  [[ $1 != -* ]] || die "$1: rows come first, and flags of bench behind --"
  rows+=("$1")
  shift
done
(($#)) && shift
((${#rows[@]})) || die "usage: scripts/nsys.sh ROW… [-- BENCH FLAG…]"
[[ -x $bench ]] || die "$bench is not there: scripts/run.sh builds it, and BENCH=… names another"
nsys=$(find_nsys)
for row in "${rows[@]}"; do
  listed=$("$bench" "$@" --benchmark_filter="$(exactly "$row")" --benchmark_list_tests) ||
    die "$row: bench has no such row; --benchmark_list_tests lists them"
  [[ $listed == "$row" ]] || die "$row: is no row but ${listed//$'\n'/, }"
done
mkdir -p "$out" || die "$out cannot be made"

status=0
for row in "${rows[@]}"; do
  base=$out/${row//[!A-Za-z0-9_.-]/-}
  rm -f "$base".{nsys-rep,sqlite,json,timeline.json,log}
  say "$row under nsys …"
  # --capture-range-end=stop: else nsys ends the program with the range, and no row is written.
  # Whoever ends this script, which then cannot end its child, ends it as well.
  if ! setpriv --pdeathsig TERM "$nsys" profile --capture-range=cudaProfilerApi --capture-range-end=stop \
    --trace=cuda,nvtx,osrt --force-overwrite=true --output="$base" \
    "$bench" "$@" --benchmark_filter="$(exactly "$row")" --capture \
    --benchmark_out="$base.json" --timeline="$base.timeline.json" >"$base.log" 2>&1; then
    tail -n 5 "$base.log" >&2
    say "$row failed (the whole output is in $base.log)"
    status=1
    continue
  fi
  if [[ ! -e $base.nsys-rep ]]; then
    say "$row ran, but nothing was captured: is there a GPU? (the whole output is in $base.log)"
    status=1
    continue
  fi
  if ! "$nsys" export --type=sqlite --force-overwrite=true --output="$base.sqlite" \
    "$base.nsys-rep" >>"$base.log" 2>&1; then
    tail -n 5 "$base.log" >&2
    say "$row: the report could not be exported (the whole output is in $base.log)"
    status=1
    continue
  fi
  python3 "$here/nsys_compare.py" "$base.sqlite" "$base.json" "$base.timeline.json" "$row" ||
    status=1
  echo
done
exit "$status"
