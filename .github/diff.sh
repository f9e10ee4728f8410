#!/usr/bin/env bash
# The step of action.yml: compares the models that changed since DIFF_BASE, and leaves what it found in RUNNER_TEMP.
# Inputs come by the environment, so that nothing of a pull request is ever part of a command.
set -euo pipefail

lines() { # name: the lines of a variable, without empty ones, into the array `found`
  found=()
  while IFS= read -r line; do
    if [[ -n "${line//[[:space:]]/}" ]]; then found+=("$line"); fi
  done <<<"${!1:-}"
}

out="${RUNNER_TEMP:?}/perfpass-diff"
rm -rf "$out" && mkdir -p "$out"
: "${GITHUB_OUTPUT:?}"

# A branch's first push has no commit before: nothing to compare with.
if [[ -z "${DIFF_BASE:-}" || "$DIFF_BASE" =~ ^0+$ ]]; then
  echo "status=0" >>"$GITHUB_OUTPUT"
  echo "perfpass diff: no commit to compare with"
  exit 0
fi
git rev-parse --verify --quiet --end-of-options "$DIFF_BASE^{commit}" >/dev/null || {
  echo "::error::perfpass diff: commit $DIFF_BASE is not here; check out with fetch-depth: 0"
  exit 2
}

# What the branch changed, not what the base has changed since the two parted.
base=$(git merge-base "$DIFF_BASE" HEAD)
lines DIFF_MODELS
mapfile -d '' -t models < <(git diff --name-only -z --no-renames --diff-filter=AMT "$base" HEAD -- "${found[@]:-*.onnx}")
if ((${#models[@]} == 0)); then
  echo "status=0" >>"$GITHUB_OUTPUT"
  echo "No model changed." | tee -a "${GITHUB_STEP_SUMMARY:-/dev/null}"
  exit 0
fi

arguments=(--base "$base" --confidence "${DIFF_CONFIDENCE:-0.5}")
lines DIFF_DEVICE && for each in "${found[@]}"; do arguments+=(--device "$each"); done
lines DIFF_FAIL && for each in "${found[@]}"; do arguments+=(--fail "$each"); done
lines DIFF_OPTIONS && arguments+=("${found[@]}")
for form in markdown junit sarif; do arguments+=(--write "$form=$out/diff.$form"); done

status=0
"${DIFF_PYTHON:-python3}" -m perfpass diff "${arguments[@]}" -- "${models[@]}" || status=$?
for form in markdown junit sarif; do
  if [[ -f "$out/diff.$form" ]]; then echo "$form=$out/diff.$form" >>"$GITHUB_OUTPUT"; fi
done
if [[ -f "$out/diff.markdown" ]]; then cat "$out/diff.markdown" >>"${GITHUB_STEP_SUMMARY:-/dev/null}"; fi
echo "status=$status" >>"$GITHUB_OUTPUT"
case $status in
  1) echo "::error::perfpass diff: a limit is broken; the summary of this job has the figures" ;;
  2) if [[ "${DIFF_CANNOT_SAY:-fail}" == pass && -f "$out/diff.sarif" ]]; then
       echo "::warning::perfpass diff: it cannot be said whether the limits hold"
       status=0
     fi ;;
esac
exit "$status"
