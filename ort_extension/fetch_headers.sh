#!/usr/bin/env bash
# fetch_headers.sh DIR: unpacks the headers of onnxruntime into DIR. No wheel carries them; Debian's libonnxruntime-dev does, in suites
# newer than the one that this machine may run, so the package is downloaded from the machine's own mirror and never installed.
set -euo pipefail
target="$1"
[ ! -f "$target/onnxruntime_c_api.h" ] || exit 0
die() { echo "fetch_headers.sh: $*" >&2; exit 1; }
command -v apt-get >/dev/null || die "no apt-get here; put onnxruntime's C headers (1.23 or later) into $target by hand"
# Read from the configuration itself: apt lists no mirror before its first update.
mirror=$(grep -rhoE '^[^#]*[a-z]+://[^ ]+/debian/?( |$)' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null \
  | grep -oE '[a-z]+://[^ ]+' | head -n 1) || true
[ -n "$mirror" ] || die "apt names no Debian mirror; put onnxruntime's C headers (1.23 or later) into $target by hand"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/state/lists/partial" "$work/cache/archives/partial"
options=(-qq -o "Dir::State=$work/state" -o "Dir::Cache=$work/cache" -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=-
  -o Acquire::Languages=none -o APT::Sandbox::User=root)
for suite in forky sid; do
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >"$work/sources.list"
  if apt-get "${options[@]}" update >"$work/log" 2>&1 \
    && (cd "$work" && apt-get "${options[@]}" download libonnxruntime-dev >>log 2>&1); then
    dpkg-deb -x "$work"/libonnxruntime-dev_*.deb "$work/unpacked"
    mkdir -p "$(dirname "$target")"
    rm -rf "$target"
    cp -r "$work/unpacked/usr/include/onnxruntime" "$target"
    exit 0
  fi
done
die "libonnxruntime-dev could not be downloaded from $mirror: $(tail -n 1 "$work/log")"
