"""Bombs of every container that models come in are refused, in a moment and with little memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import bombs
import pytest

MOST_SECONDS = 5.0  # of the processor; the slowest takes half a second, and importing torch more
MOST_MIB = 400.0  # over what the process had; packed and unpacked, the largest files have 100


@pytest.fixture(scope="module")
def ended() -> dict[str, Any]:
    """How each bomb ended, in a process of its own: memory is measured by the most that a process ever had."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    program = Path(bombs.__file__)
    run = subprocess.run([sys.executable, program], check=True, capture_output=True, text=True, env=environment)
    return {row["bomb"]: row for row in map(json.loads, run.stdout.splitlines())}


@pytest.mark.parametrize("bomb", bombs.BOMBS)
def test_a_bomb_is_refused_in_a_moment_and_with_little_memory(ended: dict[str, Any], bomb: str) -> None:
    found = ended[bomb]
    assert found["ended"] in bombs.BOMBS[bomb][2].split(), found["said"]
    assert found["seconds"] < MOST_SECONDS and found["grown_mib"] < MOST_MIB
