"""What `bootstrap.sh` says before it loads gigabytes."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PINNED = next(
    line.partition("==")[2]
    for line in (ROOT / "requirements-test.txt").read_text().split()
    if line.startswith("torch==")
)

# In place of Python: pip with an index that has these versions, and from which nothing can be loaded.
PYTHON = """#!/bin/sh
case "$*" in
  *"index versions torch"*) echo "Available versions: 99.0, {versions}, 1.0" ;;
  *"pip install"*) exit 1 ;;
esac
"""


def said(folder: Path, versions: str, command: str) -> str:
    for file in (ROOT / "bootstrap.sh", *ROOT.glob("requirements*.txt"), *ROOT.glob("constraints*.txt")):
        shutil.copy(file, folder)
    python = folder / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True, exist_ok=True)
    python.write_text(PYTHON.format(versions=versions))
    python.chmod(0o755)
    (folder / ".venv" / ".place").write_text(f"{folder}\n")
    run = subprocess.run(["bash", "bootstrap.sh", command], cwd=folder, capture_output=True, text=True, check=False)
    assert run.returncode == 1 and "pip could not install" in run.stderr, run.stderr
    return run.stdout.splitlines()[0]


@pytest.mark.skipif(platform.system() != "Linux", reason="PyTorch's CUDA build is Linux's default")
def test_bootstrap_says_first_how_much_it_will_load(tmp_path):
    cpu = said(tmp_path, f"{PINNED}+cpu, {PINNED}", "test")
    assert cpu == (
        "== Python packages for .venv .venv-relax: about 1.1 GB to load, 5.3 GB on disk; PyTorch is the CPU build"
    )
    cuda = said(tmp_path, PINNED, "test")
    assert cuda.startswith("== Python packages for .venv .venv-relax: about 3.6 GB to load, 13.2 GB on disk;")
    assert "PyTorch is the CUDA build" in cuda and "CONTRIBUTING.md" in cuda
    assert said(tmp_path, f"9{PINNED}+cpu, {PINNED}", "check").startswith("== Python packages for .venv: about 3.5 GB")


def test_bootstrap_says_nothing_of_what_is_there(tmp_path):
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / ".everything").write_text("of other pins\n")
    assert said(tmp_path, PINNED, "check").startswith("== installing Python packages")
