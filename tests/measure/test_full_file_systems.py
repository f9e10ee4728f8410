"""A campaign and every writer on a small file system of its own that is full or read-only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from perfpass.errors import FileError

PROGRAM = Path(__file__).with_name("full_file_system.py")
NAMESPACE = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]


def cases(what: str, place: Path) -> list[dict]:
    """What the program tells of every case."""
    try:
        probe = [*NAMESPACE, "sh", "-c", 'mount -t tmpfs tmpfs "$0" && umount "$0"', str(place)]
        allowed = subprocess.run(probe, capture_output=True).returncode == 0
    except FileNotFoundError:
        allowed = False
    if not allowed:
        pytest.skip("no file system can be mounted here (unshare, mount)")
    command = [*NAMESPACE, sys.executable, str(PROGRAM), what, str(place)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_campaign_on_a_full_or_read_only_file_system_is_one_line_and_goes_on_with_room(tmp_path):
    found = cases("campaign", tmp_path)
    assert [case["case"] for case in found] == [*range(6), "read-only", "no names"]
    for case in found:
        assert case["code"] == (0 if case["case"] == 5 else FileError.exit_code)
        reason = "Read-only file system" if case["case"] == "read-only" else "No space left on device"
        if case["code"]:
            assert case["said"].count("\n") == 1 and reason in case["said"]
        assert (case["code_then"], case["said_then"]) == (0, "") and case["kept"] and case["torn_bytes"] == 0
        assert case["batches"] == list(range(1, 21)) and case["facts"] == 1, "lost or doubled"
        assert case["files"] == ["records.jsonl"]
    records = [case["records"] for case in found[:6]]
    assert records[0] == 0 and records == sorted(set(records)) and records[-1] == 20


def test_whatever_is_written_on_a_full_file_system_leaves_what_was_there(tmp_path):
    found = cases("writers", tmp_path)
    assert len(found) == 2 * 13
    for case in found:
        assert "No space left on device" in case["said"] and "\n" not in case["said"], case["case"]
        assert case["as_before"], (case["case"], case["differs"])
        assert not [name for name in case["then"] if name.startswith(".") or "partial" in name], case["case"]
