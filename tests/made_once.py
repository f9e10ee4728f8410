"""What takes long to make, and tests of both workers ask for, is made by the first of them and read by the other."""

from __future__ import annotations

import fcntl
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

_Made = TypeVar("_Made")

# The session's own (`conftest.pytest_configure`); looked up before any test changes the environment.
FOLDER = Path(os.environ["XDG_CACHE_HOME"]) / "made-once"


def made_once(name: str, make: Callable[[], _Made], folder: Path = FOLDER) -> _Made:
    """What ``make`` gives, of the first process that asks for ``name``; whoever asks meanwhile waits for it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.pickle"
    with open(folder / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until the file is closed
        if path.exists():
            found: _Made = pickle.loads(path.read_bytes())
            return found
        made, half = make(), path.with_suffix(".half")
        half.write_bytes(pickle.dumps(made, pickle.HIGHEST_PROTOCOL))
        half.replace(path)  # whole, or not there: a worker that is ended here leaves the lock and no pickle
        return made
