"""Grading of memory in use, reserved and alive, with every laboratory or device left out in turn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from perfpass.training.memory import runs
from perfpass.training.memory import steps as training_steps
from perfpass.training.memory.fit import Contexts
from perfpass.training.memory.runs import Judged, MeasuredRuns
from perfpass.training.section import Section

_MIB = 2.0**20
_FIGURES = ("memory in use, inference (MiB)", "memory reserved, inference (MiB)")


def add(section: Section, steps: Contexts, folder: Path | None = None) -> None:
    """Lines and notes of inference, and of live tensors in training; ``steps``: contexts that NVML measured."""
    rows = runs.load(folder)
    section.corpus["rows of other laboratories"] = len(rows)
    inference = runs.of_inference(rows)

    def fitted(known: MeasuredRuns, mask: np.ndarray) -> runs.Allowance:
        part = known.take(mask)
        torch = not len(part) or str(part.group[0]) == "torch"
        return runs.fit(part, steps if torch else Contexts())

    several = [of for of in np.unique(inference.group) if len(np.unique(inference.source[inference.group == of])) > 1]
    alone = sorted(map(str, set(inference.group) - set(several)))
    section.notes.append(f"Measured by one laboratory alone, so not graded: {', '.join(alone) or 'none'}.")
    inference = inference.take(np.isin(inference.group, several))
    for split, groups in (("source", inference.source), ("device", inference.device)):
        found = runs.judge(inference, groups, lambda mask: fitted(inference, mask))
        _add(section, split, found, groups)
    training_steps.add(section, folder)
    left = rows.take(rows.searches)
    section.notes.append(
        f"Not graded: {len(left)} runs of onnxruntime's Stable Diffusion that hold what a search of algorithms took "
        "(torch 1.13 with cudnn.benchmark)."
    )


def _parts(rows: MeasuredRuns) -> Iterator[tuple[str, str, np.ndarray]]:
    """Figure, what it is judged on, and the rows [N]."""
    figure = np.where(rows.with_context, 0, 1)
    for number, name in enumerate(_FIGURES):
        for of in map(str, np.unique(rows.group[figure == number])):
            for source in map(str, np.unique(rows.source[(figure == number) & (rows.group == of)])):
                yield name, f"{of}, {source}", (figure == number) & (rows.group == of) & (rows.source == source)


def _add(section: Section, split: str, found: Judged, groups: np.ndarray) -> None:
    base = _baselines(found.rows, groups)
    for metric, judged_on, where in _parts(found.rows):
        measured = found.rows.measured[where] / _MIB
        low, median, high = (v[where] / _MIB for v in (found.low, found.median, found.high))
        section.add(metric, split, "perfpass", judged_on, median, measured, low, high)
        section.notes.append(
            f"{metric}, {judged_on}, {split} left out: {100 * float(np.mean(measured > high)):.1f} % of "
            f"{len(measured)} rows above the bound, the bound {float(np.median(high / median)):.2f} of the median."
        )
        for method, predicted in base.items():
            section.add(metric, split, method, judged_on, predicted[where] / _MIB, measured)


def _baselines(rows: MeasuredRuns, groups: np.ndarray) -> dict[str, np.ndarray]:
    """Live tensors alone; the weights times what the others need of them; the nearest of the others, copied."""
    times, nearest = np.empty(len(rows)), np.empty(len(rows))
    size = np.log(np.column_stack([rows.weights, rows.weights + rows.held]))
    for name in np.unique(groups):
        test, known = groups == name, np.flatnonzero(groups != name)
        times[test] = rows.weights[test] * float(np.median(rows.measured[known] / rows.weights[known]))
        for row in np.flatnonzero(test):
            nearest[row] = rows.measured[known[np.argmin(np.abs(size[known] - size[row]).sum(axis=1))]]
    return {
        "live tensors alone": rows.weights + rows.activations,
        "weights times a constant": times,
        "nearest, copied": nearest,
    }
