#!/usr/bin/env bash
# Measures a machine whole: every family of rows, and from them the effects of the factorial and the
# profile for --device=sim.
#
#   scripts/measure.sh FOLDER [BENCH FLAG…]
#
# A file that FOLDER holds already, whole and of the same revision, is not measured again: a run that
# was cut off goes on where it ended. One folder is for one machine and one set of flags. BENCH names
# the bench; without it, it is set up and built. Exit status: 0, 1 if a row failed, 2 for wrong
# usage, 130 after Ctrl-C.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

tell() { printf 'measure.sh: %s\n' "$*" >&2; }
wrong() {
  tell "$*"
  exit 2
}

if ((!$#)) || [[ $1 == -* ]]; then wrong "usage: scripts/measure.sh FOLDER [BENCH FLAG…]"; fi
folder=$1
shift
for flag in "$@"; do
  case ${flag//-/_} in
    __benchmark_filter* | __benchmark_out* | __benchmark_list_tests*)
      wrong "$flag: is set here; scripts/run.sh takes it" ;;
  esac
done
if ! mkdir -p "$folder" 2>/dev/null || [[ ! -w $folder ]]; then wrong "$folder: cannot be written"; fi

if [[ -z ${BENCH:-} ]]; then
  # In a shell of its own: it goes to the repository.
  bash -c 'source "$1/setup.sh"; set_up; build release bench' - "$here"
  BENCH=$here/../build/bench
fi
[[ -x $BENCH ]] || wrong "BENCH=$BENCH is no program"
revision=$("$BENCH" --version)
revision=${revision##*(} revision=${revision%)*}

# Whether the file holds a whole run of this revision.
is_done() {
  grep -qs '"feedrate.interrupted": "false"' "$1" &&
    grep -qs "\"feedrate.git_revision\": \"$revision\"" "$1"
}

status=0
measure() { # NAME FILTER [FLAG…]
  local file=$folder/$1.json result=0
  if is_done "$file"; then
    tell "$file is there"
    return
  fi
  tell "$file …"
  # Whoever ends this script, which then cannot end its child, ends it as well.
  setpriv --pdeathsig TERM "$BENCH" "--benchmark_filter=$2" "--benchmark_out=$file" "${@:3}" ||
    result=$?
  ((result < 2)) || exit "$result"
  ((result == 0)) || status=1
}

derive() { # WHAT COMMAND…
  tell "$1 …"
  python3 "${@:2}" || status=1
}

measure ladder '^(Pipeline|Compute)/' "$@"
measure factors '-^(Pipeline|Compute|Factorial|Workers|BatchSize|ImageSize)/' "$@"
measure factorial '^Factorial/' "$@"
measure workers '^Workers/' "$@"
measure batch '^BatchSize/' "$@"
measure image '^ImageSize/' "$@"
derive "$folder/effects.json" "$here/effects.py" "$folder/factorial.json" --json "$folder/effects.json"
if ! grep -q '"feedrate.simulated": "true"' "$folder/ladder.json"; then
  derive "$folder/profile.json" "$here/make_profile.py" "$folder/ladder.json" \
    -o "$folder/profile.json" --name "$(basename "$(realpath "$folder")")"
fi
tell "done; to look at it: scripts/look.sh report $folder -o report.html"
exit "$status"
