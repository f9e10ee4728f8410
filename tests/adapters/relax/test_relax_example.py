"""The example of the guide to TVM, run as it stands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).resolve().parents[3] / "examples" / "relax_example.py"


def test_the_relax_example_shows_the_prediction_before_and_after_the_build(tmp_path):
    run = subprocess.run([sys.executable, PROGRAM], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("median") == 2
    assert (tmp_path / "model.so.perfpass.json").exists()
