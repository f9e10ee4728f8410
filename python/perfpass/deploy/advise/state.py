"""How a model may run: settings and rewrites of its file, and which changes of these there are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from perfpass.deploy.advise.rewrites import REWRITES
from perfpass.devices import Device
from perfpass.predictors.workload import MAX_BATCH

TARGETS = ("latency", "throughput", "memory", "energy", "price")
# Of which more samples at once may bring more; memory wants fewer.
_PER_SAMPLE = ("throughput", "energy", "price")
_FACTORS = (2, 4, 8, 16, 32, 64)
# Narrower precisions that each runtime is asked for, by a setting of its own.
_AUTOCAST = ("amp", "amp_bf16")
_NARROWER = {
    "torch": ("tf32", *_AUTOCAST, "fp16", "bf16"),
    "torch.compile": ("tf32", *_AUTOCAST, "fp16", "bf16"),
    "onnxruntime": ("fp16",),
    "tensorrt": ("fp16", "bf16", "int8", "fp8"),
}
_WORDS = {"tf32": "TF32 products", "amp": "16 bits by autocast", "amp_bf16": "bfloat16 by autocast"}
_WIDE = ("fp64", "fp32", "tf32")
_TRAINED = ("torch", "torch.compile")
TIDY = "tidy"


@dataclass(frozen=True)
class State:
    """Settings of a run, and the names of the rewrites that its file has been through."""

    device: Device
    batch: int
    precision: str
    runtime: str
    layout: str
    rewrites: tuple[str, ...] = ()

    @property
    def settings(self) -> dict[str, Any]:
        """By name, the device by its own."""
        return {"device": self.device.id, **self.how}

    @property
    def numbers_changed(self) -> bool:
        """Whether a rewrite of the file changed them by more than rounding."""
        return any(rewrite.changes_numbers for rewrite in REWRITES if rewrite.name in self.rewrites)

    @property
    def how(self) -> dict[str, Any]:
        """As `perfpass.predict` takes it, but for the device."""
        return {"batch": self.batch, "precision": self.precision, "runtime": self.runtime, "layout": self.layout}


@dataclass(frozen=True)
class Move:
    """A change to what is: in words, what it leads to, and what is asked for otherwise then."""

    words: str
    to: State
    changes: dict[str, Any]
    changes_numbers: bool = False

    def undoes(self, left: set[tuple[str, Any]]) -> bool:
        """Whether it goes back to a setting that a step has ``left``, by name and value."""
        return any((name, value) in left for name, value in self.changes.items())

    @property
    def is_rewrite(self) -> bool:
        """Whether the file changes."""
        return "rewrite" in self.changes


@dataclass(frozen=True)
class Allowed:
    """What may be changed. ``file``: whether there is one that can be rewritten."""

    target: str
    devices: tuple[Device, ...]
    runtimes: tuple[str, ...]
    mode: str
    precision: bool
    batch: bool
    file: bool


def moves(now: State, allowed: Allowed) -> Iterator[Move]:
    """All single changes; those that keep the numbers come first, and small batches before large ones."""
    if allowed.file:
        yield from _rewrites(now, allowed)
    for runtime in allowed.runtimes:
        if runtime != now.runtime and (now.rewrites in ((), (TIDY,))):
            yield Move(f"run in {runtime}", replace(now, runtime=runtime), {"runtime": runtime})
    if now.runtime.startswith("torch") and now.layout == "nchw" and now.device.is_gpu:
        yield Move("channels last", replace(now, layout="nhwc"), {"layout": "nhwc"})
    for device in allowed.devices:
        if device != now.device:
            yield Move(f"on {device.id}", replace(now, device=device), {"device": device.id})
    if allowed.batch:
        for batch in _batches(now.batch, allowed.target):
            yield Move(f"batch {batch}", replace(now, batch=batch), {"batch": batch})
    if allowed.precision:
        yield from _precisions(now, allowed)


def _batches(now: int, target: str) -> list[int]:
    if target == "memory":
        return [b for b in (now // 2, now // 4, 1) if 1 <= b < now]
    return [now * f for f in _FACTORS if now * f <= MAX_BATCH] if target in _PER_SAMPLE else []


def _rewrites(now: State, allowed: Allowed) -> Iterator[Move]:
    narrow = now.precision not in _WIDE or now.numbers_changed
    for rewrite in REWRITES:
        fits = now.runtime in rewrite.runtimes and now.device.kind in rewrite.kinds
        if rewrite.name in now.rewrites or not fits or (rewrite.changes_numbers and (narrow or not allowed.precision)):
            continue
        before = now.rewrites or ((TIDY,) if rewrite.name != TIDY else ())
        # A CPU has no arithmetic of 16 bits in ONNX Runtime, which casts around each operator.
        precision = "fp16" if rewrite.name == "fp16" and now.device.is_gpu else now.precision
        to = replace(now, rewrites=(*before, rewrite.name), precision=precision)
        yield Move(rewrite.words, to, {"rewrite": rewrite.name}, rewrite.changes_numbers)


def _precisions(now: State, allowed: Allowed) -> Iterator[Move]:
    if now.precision not in _WIDE:
        return
    narrower = _NARROWER.get(now.runtime, ())
    for precision in narrower:
        by_file = allowed.file and precision in ("fp16", "bf16")
        if precision == now.precision or by_file or (not now.device.is_gpu and now.runtime not in _TRAINED):
            continue
        words = _WORDS.get(precision, f"{precision} throughout")
        yield Move(words, replace(now, precision=precision), {"precision": precision}, changes_numbers=True)
