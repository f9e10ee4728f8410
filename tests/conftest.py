"""Shared by all tests: the repository's folders, one thread per process, no network, GPU tests only with a GPU."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path

# Before torch, onnxruntime or TVM are imported: two workers share two cores, and nothing may look for a hub.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOPHUB_LOCATION", "NONE")
# Devices, calibrations and traced graphs of whoever runs the tests change nothing. Fonts may stay known.
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
os.environ.setdefault("MPLCONFIGDIR", str(CACHE / "matplotlib"))
os.environ.pop("PERFPASS_DEVICES", None)

# PyTorch's CUDA build brings Triton, which ends a process that has TVM unless this stands before both.
if find_spec("triton") is not None:
    import tvm_perfpass  # noqa: F401

import pytest
from hypothesis import HealthCheck, settings

from perfpass import scratch

pytest_plugins = ["browsers", "listed_skips", "longest_first", "pytester"]

ROOT = Path(__file__).resolve().parent.parent

# The same examples every time, with no database of earlier ones, and however long making or trying one takes.
settings.register_profile(
    "perfpass", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("perfpass")


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root folder."""
    return ROOT


@pytest.fixture(scope="session")
def examples(root: Path) -> Path:
    """The folder of the exported models, structure only."""
    return root / "examples"


def pytest_configure(config: pytest.Config) -> None:
    # Workers take the environment over, so that each network is traced once.
    if not hasattr(config, "workerinput"):
        check_that_triton_loads_beside_tvm()
        end_by_a_signal_as_by_the_keyboard()
        stack = contextlib.ExitStack()
        config.add_cleanup(stack.close)
        own = stack.enter_context(scratch.held("perfpass-tests-"))
        os.environ |= {"XDG_CACHE_HOME": str(own / "cache"), "XDG_CONFIG_HOME": str(own / "config")}


def end_by_a_signal_as_by_the_keyboard() -> None:
    """What tests and fixtures have made is removed after SIGTERM too."""
    own = os.getpid()

    def end(number: int, _: object) -> None:
        if os.getpid() == own:
            raise KeyboardInterrupt
        os._exit(128 + number)  # a fork that a test made

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, end)


def check_that_triton_loads_beside_tvm() -> None:
    """One sentence in place of workers that die without a word."""
    if find_spec("triton") is None or find_spec("tvm") is None:
        return
    program = [sys.executable, "-P", "-c", "import tvm_perfpass, tvm, triton._C.libtriton"]
    run = subprocess.run(program, capture_output=True, text=True, errors="replace", check=False)
    if run.returncode != 0:
        said = next(reversed(run.stderr.split("\n\n")[0].strip().splitlines()), "nothing was said")
        pytest.exit(
            f"Triton, which PyTorch's CUDA build brings, does not load in a process that has TVM (exit status "
            f"{run.returncode}: {said}), so tests would die without a word: put PyTorch's CPU build into "
            f"{sys.prefix} (CONTRIBUTING.md says how)",
            returncode=pytest.ExitCode.USAGE_ERROR,
        )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported while tests are collected (PyTorch, TVM, transformers) stays until the end, and is not searched
    for garbage again and again, neither then nor by the tests: a third of collecting was that, and a seventh of tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        gc.set_threshold(10_000)  # 700 by default: tests make more objects than most programs


def pytest_unconfigure() -> None:
    gc.unfreeze()  # what holds objects of the core is freed at exit, and nanobind reports no leaks


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    gpu_tests = [item for item in items if item.get_closest_marker("gpu")]
    if not gpu_tests:
        return
    import torch

    if not torch.cuda.is_available():
        for item in gpu_tests:
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))
