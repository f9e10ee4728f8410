#!/usr/bin/env bash
# From a bare Debian 12 to a prediction, and to every check, one command each. `bash bootstrap.sh help` lists them.
# Installs only what is missing: system packages through apt, Python packages into .venv/ (.venv-relax/ for the tests with
# today's TVM). What is done already is skipped, so the second time is quick and needs no network.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export DEBIAN_FRONTEND=noninteractive PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONNOUSERSITE=1
unset PYTHONPATH PYTHONHOME

usage() {
  cat <<'TEXT'
usage: bash bootstrap.sh COMMAND

  demo        install what is missing, build, predict the models in examples/
  test        install everything, C++ tests under ASan and UBSan, then all Python tests (more arguments go to pytest)
  check       before a commit, under a minute: ruff, and the quick Python tests that need neither TVM nor a training

  build       install what a prediction needs and build; no more
  sanitize    C++ tests under AddressSanitizer and UndefinedBehaviorSanitizer
  threads     C++ tests under ThreadSanitizer
  library     libperfpass_core for C and C++, installed into build/library/prefix, or `library PREFIX`
  lint        ruff check, ruff format and clang-format, nothing changed
  format      the same, changing the files
  typecheck   mypy
  tidy        clang-tidy over the core
  benchmark   benchmarks/featurize.py and benchmarks/cold_start.py, results to benchmarks/results/
  figures     write the tables of the results, and what commands print, into README.md and docs/
  wheel       a source archive and, from it, a wheel for this Python or for `wheel PYTHON`; checked, and tried without a compiler
  docs        build the site of docs/ into build/site (strict: a broken link fails)
TEXT
}

die() { echo "bootstrap.sh: $*" >&2; exit 1; }
say() { echo "== $*"; }

# ---------------------------------------------------------------------------------------------- system packages

# What the tests need; `wheel` builds for 3.10 too.
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
up_to_date() { [ -f "$1" ] && [ "$(cat "$1")" = "$2" ]; }

# virtual_environment VENV [PYTHON]
virtual_environment() {
  # A venv that was moved with its folder, or whose Python was replaced, is made anew.
  if [ ! -x "$1/bin/python" ] || ! "$1/bin/python" -c 'import pip' 2>/dev/null || [ "$(cat "$1/.place" 2>/dev/null)" != "$PWD" ]; then
    system_packages
    say "creating $1"
    rm -rf "$1"
    "${2:-$(find_python)}" -m venv "$1"
    echo "$PWD" >"$1/.place"
  fi
}

# requirements VENV STAMP CONSTRAINTS FILE...: installs the pinned requirements once per content.
requirements() {
  local venv="$1" stamp="$1/.$2" constraints="$3" wanted arguments=() file
  shift 3
  wanted=$(cat "$constraints" requirements*.txt | digest)
  up_to_date "$stamp" "$wanted" && return
  for file in "$@"; do arguments+=(-r "$file"); done
  say "installing Python packages: $*"
  "$venv/bin/python" -m pip install -qq -c "$constraints" "${arguments[@]}" \
    || die "pip could not install $*; is a package index configured and reachable?"
  echo "$wanted" >"$stamp"
}

source_digest() {
  { find CMakeLists.txt pyproject.toml cpp_kernels/include cpp_kernels/src cpp_kernels/bindings python tvm_perfpass ort_extension \
    -type f ! -name '*.py[co]' ! -name '*.so' -print0 2>/dev/null || true; } | LC_ALL=C sort -z | xargs -0 sha256sum | digest
}

# provider_headers: sets `headers` to the setting that builds the provider inside onnxruntime; empty if they cannot be had.
provider_headers() {
  headers=""
  if bash ort_extension/fetch_headers.sh build/onnxruntime-headers; then
    headers="cmake.define.PERFPASS_ORT_HEADERS=$PWD/build/onnxruntime-headers"
  else
    say "going on without the native provider of onnxruntime; ort_extension will read model files instead"
  fi
}

# install_package VENV: builds the wheel once per content of the sources, and installs it where it is not.
install_package() {
  # With perfpass.study, which the tests hold and no wheel for others has.
  local wanted options=(--config-settings "wheel.exclude=tvm_perfpass/native/**;ort_extension/provider/**")
  wanted=$(source_digest)
  up_to_date "$1/.package" "$wanted" && return
  if ! up_to_date build/wheel/.sources "$wanted"; then
    system_packages
    say "building perfpass"
    # The provider inside onnxruntime is built if its headers can be had.
    provider_headers
    [ -z "$headers" ] || options+=(--config-settings "$headers")
    rm -rf build/wheel
    PATH="$PWD/.venv/bin:$PATH" .venv/bin/python -m pip wheel -qq --no-build-isolation --no-deps -w build/wheel "${options[@]}" . \
      || die "the build failed; the compiler's messages are above"
    echo "$wanted" >build/wheel/.sources
  fi
  "$1/bin/python" -m pip install -qq --no-deps --no-index --force-reinstall build/wheel/*.whl
  echo "$wanted" >"$1/.package"
}

# What pip loads, and what that takes on disk, in MB: Linux x86-64, Python 3.11, the versions of constraints.txt. Wheels of
# .venv-relax that .venv has too are loaded once. PyTorch's CUDA build counts on top, on disk in each environment.
VENV_TO_LOAD_MB=1000 VENV_ON_DISK_MB=3800 RELAX_TO_LOAD_MB=110 RELAX_ON_DISK_MB=1500
CUDA_TO_LOAD_MB=2550 CUDA_ON_DISK_MB=3950

# pytorch_is_for_cpu PYTHON: whether pip will take PyTorch's CPU build, which it prefers wherever it sees one.
pytorch_is_for_cpu() {
  [ "$(uname -s)" != Linux ] \
    || "$1" -m pip index versions torch 2>/dev/null | grep -wF "$(sed -n 's/^torch==//p' requirements-test.txt)+cpu" >/dev/null
}

gigabytes() { echo "$(($1 / 1000)).$(($1 % 1000 / 100)) GB"; }

# announce VENV...: before anything is loaded, what it will be and roughly how much, of those that are not there.
announce() {
  local venv venvs=() load=0 disk=0
  for venv in "$@"; do
    [ -f "$venv/.everything" ] && [ -x "$venv/bin/python" ] && continue
    venvs+=("$venv")
    case "$venv" in
      .venv) load=$((load + VENV_TO_LOAD_MB)) disk=$((disk + VENV_ON_DISK_MB)) ;;
      *) load=$((load + RELAX_TO_LOAD_MB)) disk=$((disk + RELAX_ON_DISK_MB)) ;;
    esac
  done
  [ ${#venvs[@]} -gt 0 ] || return 0
  virtual_environment .venv
  if pytorch_is_for_cpu .venv/bin/python; then
    say "Python packages for ${venvs[*]}: about $(gigabytes $load) to load, $(gigabytes $disk) on disk; PyTorch is the CPU build"
    return
  fi
  load=$((load + CUDA_TO_LOAD_MB)) disk=$((disk + CUDA_ON_DISK_MB * ${#venvs[@]}))
  say "Python packages for ${venvs[*]}: about $(gigabytes $load) to load, $(gigabytes $disk) on disk;" \
    "PyTorch is the CUDA build, $(gigabytes $CUDA_TO_LOAD_MB) of it, which the tests do not need:" \
    "CONTRIBUTING.md says how pip finds the CPU build"
}

prediction_environment() {
  virtual_environment .venv
  requirements .venv runtime constraints.txt requirements.txt requirements-build.txt
  install_package .venv
}

full_environment() {
  announce .venv
  virtual_environment .venv
  requirements .venv everything constraints.txt requirements-test.txt
  install_package .venv
}

# Today's TVM has the same package name as the one with Relay.
relax_environment() {
  virtual_environment .venv-relax
  requirements .venv-relax everything constraints-relax.txt requirements-relax.txt
  install_package .venv-relax
}

# The site's builder reads sources and docstrings; it needs neither the compiled core nor what perfpass imports.
docs_environment() {
  virtual_environment .venv-docs
  requirements .venv-docs everything requirements-docs.txt requirements-docs.txt
}

# A browser for the tests of pages: Debian's, without a desktop (90 MB to load). Where there is none they are skipped and say so.
browser() {
  local name
  for name in chromium-headless-shell chromium chromium-browser google-chrome; do
    if command -v "$name" >/dev/null; then return; fi
  done
  (apt_install chromium-headless-shell) || say "going on without a browser; tests/reports/test_browser.py will be skipped"
}

# Other releases of onnxruntime, each in a folder of its own, for the tests of the provider.
onnxruntime_releases() {
  local release
  for release in 1.23.2 1.27.0; do
    [ ! -d "build/onnxruntime-$release/onnxruntime" ] || continue
    say "unpacking onnxruntime $release"
    .venv/bin/python -m pip install -qq --no-deps --target "build/onnxruntime-$release.part" "onnxruntime==$release" \
      || die "pip could not download onnxruntime $release; is a package index configured and reachable?"
    mv "build/onnxruntime-$release.part" "build/onnxruntime-$release"
  done
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
  configure build/sanitize -DPERFPASS_SANITIZE=address,undefined -DPERFPASS_FUZZ=ON -DCMAKE_BUILD_TYPE=None \
    -DCMAKE_CXX_FLAGS="-O1 -g1"
  PATH="$PWD/.venv/bin:$PATH" cmake --build build/sanitize
  ./build/sanitize/perfpass_tests
  # The hostile files of tests/, then ten seconds of damage done to them at random.
  PATH="$PWD/.venv/bin:$PATH" python tests/hostile_files.py build/sanitize/hostile
  ./build/sanitize/fuzz_onnx build/sanitize/hostile --mutate 10
  ./build/sanitize/fuzz_flatbuffer tests/importers/files/*.tflite tests/importers/files/*.pte --mutate 10
  ./build/sanitize/fuzz_stablehlo tests/importers/files/*.mlir --mutate 10
  ./build/sanitize/fuzz_message tests/importers/files/*.mlmodel --mutate 5
  ./build/sanitize/fuzz_openvino tests/importers/files/*.xml --mutate 5
}

# A race stops it: threads that read, count and predict at once are tests of their own.
threads() {
  say "C++ tests under ThreadSanitizer"
  system_packages
  configure build/threads -DPERFPASS_SANITIZE=thread -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS="-O1 -g1"
  PATH="$PWD/.venv/bin:$PATH" cmake --build build/threads
  # Addresses laid out at random: some kernels leave the sanitizer no place for its own.
  TSAN_OPTIONS="halt_on_error=1" setarch -R ./build/threads/perfpass_tests
}

# library [PREFIX]: the core without Python, as docs/guides/cpp.md has it.
library() {
  say "libperfpass_core"
  system_packages
  configure build/library -DPERFPASS_TESTS=OFF -DPERFPASS_LIBRARY=ON -DCMAKE_INSTALL_LIBDIR=lib
  PATH="$PWD/.venv/bin:$PATH" cmake --build build/library
  PATH="$PWD/.venv/bin:$PATH" cmake --install build/library --prefix "${1:-build/library/prefix}" >/dev/null
}

LARGEST_WHEEL_BYTES=30000000

# wheel [PYTHON]: dist/ gets the source archive and a wheel made from it, repaired to the manylinux tag that its symbols allow.
wheel() {
  local python venv archive built
  python=$(command -v "${1:-$(find_python)}") || die "no Python at '${1:-}'"
  venv=.venv-wheel-$("$python" -c 'import sys; print("{}.{}".format(*sys.version_info))')
  virtual_environment "$venv" "$python"
  requirements "$venv" tools requirements-wheel.txt requirements-wheel.txt
  system_packages
  provider_headers
  say "building the source archive, and a wheel from it"
  rm -rf build/unrepaired
  # `build` makes the wheel in a copy that it unpacks from the archive: what is missing there fails here.
  PATH="$PWD/$venv/bin:$PATH" "$venv/bin/python" -m build --no-isolation --outdir build/unrepaired ${headers:+-C "$headers"} >build/wheel.log 2>&1 \
    || { tail -n 30 build/wheel.log >&2; die "the build failed"; }
  archive=$(ls build/unrepaired/*.tar.gz)
  rm -rf build/repaired
  PATH="$PWD/$venv/bin:$PATH" "$venv/bin/auditwheel" repair -w build/repaired build/unrepaired/*.whl
  built=$(ls build/repaired/*.whl)
  "$venv/bin/twine" check --strict "$archive" "$built"
  "$venv/bin/check-wheel-contents" "$built"
  [ "$(stat -c %s "$built")" -le "$LARGEST_WHEEL_BYTES" ] || die "$built has more than $LARGEST_WHEEL_BYTES bytes"
  try_wheel "$built" "$python"
  mkdir -p dist
  cp "$archive" "$built" dist/
  ls -l "dist/$(basename "$archive")" "dist/$(basename "$built")"
}

# try_wheel WHEEL PYTHON: a new environment with what the wheel asks for and no more, where no compiler can be found.
try_wheel() {
  local place
  place=$(mktemp -d)
  say "trying $(basename "$1") with $("$2" --version)"
  "$2" -m venv "$place"
  "$place/bin/python" -m pip install -qq --only-binary :all: "$1"
  cp examples/resnet50.onnx tests/house/wheel_doors.py "$place"
  (cd "$place" && env -i HOME="$place" PATH="$place/bin" "$place/bin/python" wheel_doors.py resnet50.onnx) || die "the wheel does not work"
  rm -rf "$place"
}

cpp_files() { find cpp_kernels tvm_perfpass ort_extension -name '*.cpp' -o -name '*.hpp' -o -name '*.cc'; }

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

# One thread for each of two workers, and no network.
quiet_libraries() { export OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 TOPHUB_LOCATION=NONE TOKENIZERS_PARALLELISM=false; }

# The rooms of the fast lane: not those that compile with TVM, run ONNX Runtime, learn, or measure.
FAST_ROOMS=(annotation cli core deploy devices graph house importers llm predictors reports search)

check() {
  full_environment
  .venv/bin/ruff check .
  .venv/bin/ruff format --check .
  quiet_libraries
  .venv/bin/pytest -n 2 --dist loadscope --no-loadscope-reorder -m "not slow" "${FAST_ROOMS[@]/#/tests/}"
}

run_tests() {
  announce .venv .venv-relax
  full_environment
  relax_environment
  onnxruntime_releases
  browser
  sanitize
  library
  say "Python tests"
  quiet_libraries
  # Not python -m pytest: that puts this folder first, and tvm_perfpass here has no compiled module.
  if [ $# -gt 0 ]; then .venv/bin/pytest "$@"; return; fi
  # A module stays with one worker, so that what its tests share is made once; the longest come first (tests/longest_first.py).
  .venv/bin/pytest -n 2 --dist loadscope --no-loadscope-reorder
  say "Python tests with Relax"
  .venv-relax/bin/pytest tests/adapters/relax
}

command="${1:-help}"
[ $# -eq 0 ] || shift
case "$command" in
  demo) demo ;;
  test) run_tests "$@" ;;
  check) check ;;
  build) prediction_environment ;;
  sanitize) virtual_environment .venv; requirements .venv runtime constraints.txt requirements.txt requirements-build.txt; sanitize ;;
  threads) virtual_environment .venv; requirements .venv runtime constraints.txt requirements.txt requirements-build.txt; threads ;;
  library) virtual_environment .venv; requirements .venv runtime constraints.txt requirements.txt requirements-build.txt; library "$@" ;;
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
    find cpp_kernels/src -name '*.cpp' -print0 | xargs -0 .venv/bin/clang-tidy -p build/tidy --quiet --warnings-as-errors='*'
    ;;
  benchmark)
    full_environment
    mkdir -p benchmarks/results
    .venv/bin/python benchmarks/featurize.py --json benchmarks/results/featurize.json
    .venv/bin/python benchmarks/cold_start.py --json benchmarks/results/cold_start.json
    ;;
  wheel) wheel "$@" ;;
  figures)
    full_environment
    .venv/bin/python benchmarks/figures.py
    .venv/bin/python benchmarks/publish/cards.py
    .venv/bin/python benchmarks/publish/cli_reference.py
    .venv/bin/python benchmarks/publish/pictures.py
    .venv/bin/python benchmarks/publish/notebook.py
    ;;
  docs) docs_environment; NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict --quiet; say "the site is in build/site" ;;
  help | -h | --help) usage ;;
  *) usage >&2; die "unknown command '$command'" ;;
esac
