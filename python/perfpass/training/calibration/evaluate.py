"""`perfpass evaluate --area calibration`: devices left out, then learned from 10 and 32 of their own records."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import numpy as np

from perfpass.predictors.calibration.posterior import Prior
from perfpass.training.calibration.experiments import (
    DRAWS,
    SIZES,
    Draw,
    Unseen,
    draw,
    prior_of,
    standard_of,
    unseen_devices,
)
from perfpass.training.inference.dataset import load
from perfpass.training.metrics import absolute_percentage_errors
from perfpass.training.section import Section

_METRIC, _UNIT = "latency", "ms"
_AFTER_10 = 5.0
_ZERO_SHOT = 10.0
_LARGE = 1000
_INTRO = """Each device is left out of training, predicted, and then learned from 10 or 32 of its own records, drawn at
random ten times (every draw counts in the line; the spread over draws is below the table) or planned
(`perfpass calibrate --plan`). The bounds come from the *other* devices of its kind and from families that no line
grades. "scale only": the same records, one factor (their median). Networks are those that other devices ran."""


def evaluate(folder: str | None = None, seed: int = 0, *, quiet: bool = False) -> Section:
    """Grade calibrations on every device of the vision records in ``folder`` (default: the repository's)."""

    def say(text: str) -> None:
        if not quiet:
            print(f"evaluate calibration: {text}", file=sys.stderr, flush=True)

    dataset = load(folder)
    devices = unseen_devices(dataset, standard_of(dataset), seed=seed, say=say)
    section = Section("calibration", "A device learned from few records", _INTRO)
    section.corpus = {"records": len(dataset), "devices": len(devices)}
    spread: list[str] = []
    for device in devices:
        prior = prior_of([d for d in devices if d.device != device.device], device.kind)
        _grade(section, device, prior, spread, seed)
        say(device.device)
    section.notes.append("MAPE of single draws, least to largest: " + "; ".join(spread) + ".")
    return section


def _grade(section: Section, device: Unseen, prior: Prior, spread: list[str], seed: int) -> None:
    at = device.graded
    gpu_aim = device.kind == "gpu" and len(at) >= _LARGE
    section.add(
        _METRIC, "device, zero-shot", "perfpass", device.device, 1e3 * device.predicted_s[at],
        1e3 * device.measured_s[at], aim_pct=_ZERO_SHOT if gpu_aim else None,
    )  # fmt: skip
    for size in SIZES:
        draws = [draw(device, prior, size, 1000 * (seed + 1) + i) for i in range(DRAWS)]
        scaled = [_scaled(device, found) for found in draws]
        aim = _AFTER_10 if size == SIZES[0] and gpu_aim else None
        _add(section, f"device, {size} records", "scale only", device, draws, scaled, None, None)
        errors = _add(
            section, f"device, {size} records", "perfpass", device, draws, [d.mean for d in draws], prior, aim
        )
        spread.append(f"{device.device}, {size} records {min(errors):.1f} to {max(errors):.1f} %")
    if len(at) >= _LARGE:
        planned = [draw(device, prior, SIZES[0], 1000 * (seed + 1) + i, planned=True) for i in range(DRAWS)]
        split = f"device, {SIZES[0]} planned records"
        errors = _add(section, split, "perfpass", device, planned, [d.mean for d in planned], prior, None)
        spread.append(f"{device.device}, {SIZES[0]} planned {min(errors):.1f} to {max(errors):.1f} %")


def _scaled(device: Unseen, found: Draw) -> np.ndarray:
    return np.full(len(found.asked), float(np.median(device.log_ratio[found.seen])))


def _add(
    section: Section, split: str, method: str, device: Unseen, draws: Sequence[Draw], factors: Sequence[np.ndarray],
    prior: Prior | None, aim: float | None,
) -> list[float]:  # fmt: skip
    """One line over all draws; the MAPE of each in percent."""
    parts: list[tuple[np.ndarray, ...]] = []
    for found, factor in zip(draws, factors, strict=True):
        kept = device.graded[found.asked]
        rows = found.asked[kept]
        at = 1e3 * device.predicted_s[rows] * np.exp(factor[kept])
        width = np.exp((prior.bound if prior else 0.0) * found.deviation[kept])
        parts.append((at, 1e3 * device.measured_s[rows], at / width, at * width))
    columns: Callable[[int], np.ndarray] = lambda i: np.concatenate([p[i] for p in parts])  # noqa: E731
    bounds = (columns(2), columns(3)) if prior else (None, None)
    section.add(_METRIC, split, method, device.device, columns(0), columns(1), *bounds, aim_pct=aim)
    if prior and split == f"device, {SIZES[0]} records":
        section.add_points(_METRIC, _UNIT, split, [device.device] * len(parts[0][0]), parts[0][0], parts[0][1])
    return [100.0 * float(absolute_percentage_errors(p[0], p[1]).mean()) for p in parts]
