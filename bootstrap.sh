#!/usr/bin/env bash
# From a bare Debian 12 to a prediction, and to every check, one command each. `bash bootstrap.sh help` lists them.
# Installs only what is missing: system packages through apt, Python packages into .venv/. What is done already is
# skipped, so the second time is quick and needs no network.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export DEBIAN_FRONTEND=noninteractive PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONNOUSERSITE=1
unset PYTHONPATH PYTHONHOME

usage() {
  cat <<'TEXT'
usage: bash bootstrap.sh COMMAND

  demo        install what is missing, build, predict the models in examples/
  test        install everything, C++ tests under ASan and UBSan, then all Python tests (more arguments go to pytest)

  build       install what a prediction needs and build; no more
  sanitize    C++ tests under AddressSanitizer and UndefinedBehaviorSanitizer
  lint        ruff check, ruff format and clang-format, nothing changed
  format      the same, changing the files
  typecheck   mypy
  tidy        clang-tidy over the core
  benchmark   benchmarks/featurize.py and benchmarks/cold_start.py, results to benchmarks/results/
  figures     write the tables of the results into README.md
TEXT
}

die() { echo "bootstrap.sh: $*" >&2; exit 1; }
say() { echo "== $*"; }

# ---------------------------------------------------------------------------------------------- system packages

python_at_least_311() { "$1" -c 'import sys; sys.exit(not ((3, 11) <= sys.version_info[:2] <= (3, 14)))' 2>/dev/null; }

find_python() {
  local name
  for name in python3.11 python3 python3.12 python3.13 python3.14; do
    if command -v "$name" >/dev/null && python_at_least_311 "$name"; then command -v "$name"; return; fi
  done
  return 1
}

# Prints the Debian packages that are needed and missing.
missing_packages() {
  local python
  { command -v c++ && command -v cc; } >/dev/null || echo g++
  if python=$(find_python); then
    "$python" -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv
    "$python" -c 'import os, sysconfig; open(os.path.join(sysconfig.get_path("include"), "Python.h")).close()' \
      2>/dev/null || echo python3-dev
  else
    echo python3 python3-venv python3-dev
  fi
}

apt_install() {
  local as=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; } || die \
      "missing system packages ($*), and neither root nor sudo is at hand; ask an administrator for: apt-get install $*"
    as=(sudo env DEBIAN_FRONTEND=noninteractive)
  fi
  command -v apt-get >/dev/null || die "missing system packages ($*), and there is no apt-get here; install them by hand"
  say "installing system packages: $*"
  # A new machine has no package lists, an old one may have stale lists: install, and only if that fails update first.
  "${as[@]}" apt-get install -qq -y --no-install-recommends "$@" >/dev/null 2>&1 && return
  "${as[@]}" apt-get update -qq >/dev/null || die "apt-get update failed; is a Debian mirror configured and reachable?"
  "${as[@]}" apt-get install -qq -y --no-install-recommends "$@" >/dev/null || die "apt-get install $* failed"
}

system_packages() {
  local missing
  missing=$(missing_packages | tr '\n' ' ')
  if [ -n "$missing" ]; then
    # shellcheck disable=SC2086 # a list of package names
    apt_install $missing
    missing=$(missing_packages | tr '\n' ' ')
    [ -z "$missing" ] || die "still missing after the installation: $missing(python $(find_python || echo none))"
  fi
}

# ------------------------------------------------------------------------------------------------ Python packages

digest() { sha256sum | cut -d ' ' -f 1; }

# up_to_date STAMP DIGEST: whether the step that left the stamp saw the same inputs.
up_to_date() { [ -f ".venv/$1" ] && [ "$(cat ".venv/$1")" = "$2" ]; }

virtual_environment() {
  # A venv that was moved with its folder, or whose Python was replaced, is made anew.
  if [ ! -x .venv/bin/python ] || ! .venv/bin/python -c 'import pip' 2>/dev/null \
    || [ "$(cat .venv/.place 2>/dev/null)" != "$PWD" ]; then
    system_packages
    say "creating .venv"
    rm -rf .venv
    "$(find_python)" -m venv .venv
    echo "$PWD" >.venv/.place
  fi
}

# requirements NAME FILE...: installs the pinned requirements once per content.
requirements() {
  local stamp=".$1" wanted arguments=() file
  shift
  wanted=$(cat constraints.txt requirements*.txt | digest)
  up_to_date "$stamp" "$wanted" && return
  for file in "$@"; do arguments+=(-r "$file"); done
  say "installing Python packages: $*"
  .venv/bin/python -m pip install -qq -c constraints.txt "${arguments[@]}" \
    || die "pip could not install $*; is a package index configured and reachable?"
  echo "$wanted" >".venv/$stamp"
}

source_digest() {
  { find CMakeLists.txt pyproject.toml cpp_kernels/include cpp_kernels/src cpp_kernels/bindings python tvm_perfpass \
    -type f ! -name '*.py[co]' ! -name '*.so' -print0 2>/dev/null || true; } | LC_ALL=C sort -z | xargs -0 sha256sum | digest
}

package() {
  local wanted
  wanted=$(source_digest)
  up_to_date .package "$wanted" && return
  system_packages
  say "building perfpass"
  PATH="$PWD/.venv/bin:$PATH" .venv/bin/python -m pip install -qq --no-build-isolation --no-deps --force-reinstall . \
    || die "the build failed; the compiler's messages are above"
  echo "$wanted" >.venv/.package
}

prediction_environment() {
  virtual_environment
  requirements runtime requirements.txt requirements-build.txt
  package
}

full_environment() {
  virtual_environment
  requirements everything requirements-test.txt
  package
}

# ------------------------------------------------------------------------------------------------------- commands

# configure DIR OPTION...: a CMake build of the core and its tests, without Python.
configure() {
  local directory="$1"
  shift
  PATH="$PWD/.venv/bin:$PATH" cmake -S . -B "$directory" -G Ninja -DPERFPASS_PYTHON=OFF -DPERFPASS_TESTS=ON "$@" >/dev/null
}

sanitize() {
  say "C++ tests under AddressSanitizer and UndefinedBehaviorSanitizer"
  system_packages
  configure build/sanitize -DPERFPASS_SANITIZE=ON -DPERFPASS_FUZZ=ON -DCMAKE_BUILD_TYPE=None \
    -DCMAKE_CXX_FLAGS="-O1 -g1"
  PATH="$PWD/.venv/bin:$PATH" cmake --build build/sanitize
  ./build/sanitize/perfpass_tests
  # The hostile files of tests/, then ten seconds of damage done to them at random.
  PATH="$PWD/.venv/bin:$PATH" python tests/hostile_files.py build/sanitize/hostile
  ./build/sanitize/fuzz_onnx build/sanitize/hostile --mutate 10
}

cpp_files() { find cpp_kernels tvm_perfpass -name '*.cpp' -o -name '*.hpp'; }

show() { echo; echo "\$ perfpass $*"; .venv/bin/perfpass "$@"; }

demo() {
  prediction_environment
  say "the models in examples/: structure only, no weights"
  show predict examples/resnet50.onnx --device a100-80gb
  show predict examples/vit_base_patch16_224.onnx --device a100-80gb
  show predict examples/deberta_v3_large.onnx --device a100-80gb
  show predict examples/llama_1b_prefill.onnx --device a100-80gb --precision bf16
  echo
  echo "Next: source .venv/bin/activate && perfpass --help"
}

run_tests() {
  full_environment
  sanitize
  say "Python tests"
  export OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 TOPHUB_LOCATION=NONE TOKENIZERS_PARALLELISM=false
  if [ $# -eq 0 ]; then set -- -n 2; fi
  # Not python -m pytest: that puts this folder first, and tvm_perfpass here has no compiled module.
  .venv/bin/pytest "$@"
}

command="${1:-help}"
[ $# -eq 0 ] || shift
case "$command" in
  demo) demo ;;
  test) run_tests "$@" ;;
  build) prediction_environment ;;
  sanitize) virtual_environment; requirements runtime requirements.txt requirements-build.txt; sanitize ;;
  lint)
    full_environment
    .venv/bin/ruff check .
    .venv/bin/ruff format --check .
    cpp_files | xargs .venv/bin/clang-format --dry-run --Werror
    ;;
  format)
    full_environment
    .venv/bin/ruff check --fix .
    .venv/bin/ruff format .
    cpp_files | xargs .venv/bin/clang-format -i
    ;;
  typecheck) full_environment; .venv/bin/python -m mypy ;;
  tidy)
    full_environment
    configure build/tidy
    .venv/bin/clang-tidy -p build/tidy --quiet --warnings-as-errors='*' cpp_kernels/src/*.cpp
    ;;
  benchmark)
    full_environment
    mkdir -p benchmarks/results
    .venv/bin/python benchmarks/featurize.py --json benchmarks/results/featurize.json
    .venv/bin/python benchmarks/cold_start.py --json benchmarks/results/cold_start.json
    ;;
  figures) full_environment; .venv/bin/python benchmarks/figures.py ;;
  help | -h | --help) usage ;;
  *) usage >&2; die "unknown command '$command'" ;;
esac
