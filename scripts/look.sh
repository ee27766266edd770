#!/usr/bin/env bash
# Looks at result files: scripts/look.sh plots|report|compare|dashboard ARGS…
#
#   plots RESULTS… -o FOLDER        every plot, as SVG and PNG
#   report RESULTS… -o report.html  one page: what binds, what would help, all figures
#   compare BASE NEW                better, worse, same or can't tell; --fail-above 5% for CI
#   dashboard RESULT -o FILE        steps/s for github-action-benchmark, bigger is better
#
# Brings pandas, matplotlib and scipy into .venv the first time. Each command has --help.
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

case ${1:-} in
  plots | report | compare | dashboard) ;;
  *)
    trap - EXIT
    say "usage: scripts/look.sh plots|report|compare|dashboard ARGS… (--help after one of them)"
    exit 2
    ;;
esac
set_up_look
root=$PWD
cd "$OLDPWD" # setup.sh left it; paths among the arguments start there
exec "$root/.venv/bin/python" "$root/scripts/$1.py" "${@:2}"
