"""Where the TVM that is installed keeps MetaSchedule: 0.19 and 0.27 name its parts differently."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from types import ModuleType
from typing import Any

from perfpass.errors import ArgumentError, UnsupportedError

_HOMES = ("tvm.meta_schedule", "tvm.s_tir.meta_schedule")
_DERIVED = ("tvm.meta_schedule.utils", "tvm.ir.utils")


@lru_cache(maxsize=1)
def meta_schedule() -> ModuleType:
    """The MetaSchedule package. Raises UnsupportedError where this TVM has none of a known name."""
    return _first(_HOMES, "MetaSchedule")


@lru_cache(maxsize=1)
def derived_object() -> Any:
    """The decorator that makes a Python class an object of TVM. Raises UnsupportedError."""
    for name in _DERIVED:
        try:
            return import_module(name).derived_object
        except (ImportError, AttributeError):
            continue
    raise UnsupportedError(f"this TVM has derived_object in none of {', '.join(_DERIVED)}; 0.19 and 0.27 are supported")


def schedule(mod: Any) -> Any:
    """A schedule of a module of TIR functions that does nothing yet."""
    for name in ("tvm.tir", "tvm.s_tir"):
        try:
            return import_module(name).Schedule(mod)
        except (ImportError, AttributeError):
            continue
    raise UnsupportedError("this TVM has Schedule in neither tvm.tir nor tvm.s_tir; 0.19 and 0.27 are supported")


def target(given: Any) -> Any:
    """A target of TVM from a target or from what makes one. Raises ArgumentError."""
    from tvm.target import Target

    if isinstance(given, Target):
        return given
    try:
        return Target(given)
    except Exception as error:  # TVM raises whatever its parser ran into
        raise ArgumentError(f"not a target of TVM: {given!r} ({' '.join(str(error).split())[-150:]})") from error


def structural_hash(mod: Any) -> int:
    """TVM's structural hash of a module, as a signed number of 64 bits (0.27 gives an unsigned one)."""
    import tvm

    home = tvm.ir if hasattr(tvm.ir, "structural_hash") else import_module("tvm_ffi")
    return (int(home.structural_hash(mod)) + (1 << 63)) % (1 << 64) - (1 << 63)


def _first(names: tuple[str, ...], what: str) -> ModuleType:
    reasons = []
    for name in names:
        try:
            return import_module(name)
        except ImportError as error:
            reasons.append(f"{name}: {error}")
    raise UnsupportedError(f"this TVM has no {what} ({'; '.join(reasons)}); 0.19 and 0.27 are supported")
