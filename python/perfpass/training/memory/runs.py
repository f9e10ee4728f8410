"""Memory that several laboratories measured: what lies beside the planned tensors, fitted with every one alike.

The middle is the median over sources, each counting 1. The upper values are the largest of the sources' own 98th
percentiles: rows of one laboratory vouch for no other, and a new one may add a constant (its driver, its modules) and a
factor (its program keeps more). Graded with every source left out in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from perfpass.predictors.memory.allowance import Allowance, driver_bytes_of, group
from perfpass.records.location import data_directory
from perfpass.training.memory import measured_runs
from perfpass.training.memory.fit import HIGH, Contexts, weighted_quantile

_GIB = 2.0**30
LOW = 0.05
# Runs that hold so much beside their weights say what the share is; smaller ones what the constant is.
_LARGE_BYTES, _SMALL_BYTES = 2.0 * _GIB, 1.2 * _GIB
_ROUNDS = 4
_ROUNDING = 1e-9  # of the weights' sum: half of two sources is one of them
# What a laboratory that is not here may add to the share of all that are, or take from it. By hand: with it, each of
# those that are here, left out, has few rows above the bound of the others.
_NEXT_SOURCE = 1.1
# Where no run held much, and what another laboratory may differ by where one alone measured what lies beside: by hand.
_UNMEASURED_SHARE = (0.7, 1.0, 1.43)
_ALONE_BYTES = {"torch": 2.0 * _GIB, "onnxruntime": 1.35 * _GIB, "tensorrt": 2.25 * _GIB}
_NOTHING = (0.0, 0.0, _ALONE_BYTES["torch"])
_NO_STEPS = Contexts()
# Runtimes that lay memory out ahead, or whose arena is simulated to the byte: the middle share is 1, so every run says
# what lies beside it. TensorRT's engines may take a workspace of 1 GiB more (trt_max_workspace_size, the default).
_LAID_OUT = ("onnxruntime", "tensorrt")
# A transformer's cache and its fp32 logits are no part of the plan of its graph: such rows say what the context is.
_CONTEXT_ALONE = ("llama",)


@dataclass(frozen=True, eq=False)
class MeasuredRuns:
    """[N] columns, bytes. ``held`` is what the simulated allocator holds beside the weights; ``measured`` is in use
    where ``with_context`` holds, else reserved.
    """

    source: np.ndarray
    device: np.ndarray
    group: np.ndarray
    searches: np.ndarray
    with_context: np.ndarray
    driver: np.ndarray
    context_alone: np.ndarray
    convolves: np.ndarray
    measured: np.ndarray
    reserved: np.ndarray
    weights: np.ndarray
    activations: np.ndarray
    held: np.ndarray

    def __len__(self) -> int:
        return len(self.measured)

    def take(self, where: np.ndarray) -> MeasuredRuns:
        """Some of the rows."""
        return MeasuredRuns(*(getattr(self, name)[where] for name in self.__dataclass_fields__))


def load(folder: Path | None = None) -> MeasuredRuns:
    """The rows of inference in data/graphs/memory_runs.parquet. Raises FileError and FormatError."""
    base = Path(folder) if folder else data_directory()
    table = measured_runs.read(base / "graphs" / measured_runs.FILE)
    table = table[table["mode"] == "inference"]
    in_use, reserved = (table[name].to_numpy(float) for name in ("in_use", "reserved"))
    whole = (table.mig_profile == "").to_numpy() & table.with_driver.to_numpy(bool)
    return MeasuredRuns(
        source=table.source.to_numpy(str),
        device=table.device.to_numpy(str),
        group=np.array([group(name) for name in table.runtime]),
        searches=table.searches.to_numpy(bool),
        with_context=~np.isnan(in_use),
        driver=np.where(whole, [driver_bytes_of(name) for name in table.device], 0.0),
        context_alone=np.array([str(name).startswith(_CONTEXT_ALONE) for name in table.network]),
        convolves=table.convolutions.to_numpy(bool),
        measured=np.where(np.isnan(in_use), reserved, in_use),
        reserved=reserved,
        weights=table.weight_bytes.to_numpy(float),
        activations=table.activation_bytes.to_numpy(float),
        held=(table.planned_reserved - table.weight_bytes).to_numpy(float),
    )


def pooled(values: np.ndarray, source: np.ndarray, q: float) -> float:
    """The quantile of ``values`` [N] with every source counting 1."""
    _, inverse, count = np.unique(source, return_inverse=True, return_counts=True)
    return weighted_quantile(values, 1.0 / count[inverse], q - _ROUNDING)


def _largest(values: np.ndarray, source: np.ndarray) -> float:
    """The largest of the sources' own 98th percentiles."""
    return max(float(np.quantile(values[source == s], HIGH)) for s in np.unique(source))


def fit(rows: MeasuredRuns, contexts: Contexts = _NO_STEPS) -> Allowance:
    """The allowance of inference rows of one group; ``contexts``: those of steps that NVML measured."""
    rows = rows.take(~rows.searches)
    if len(rows) and str(rows.group[0]) in _LAID_OUT:
        return _laid_out(rows)
    plan = rows.take(~rows.context_alone)
    large = plan.take(plan.held >= _LARGE_BYTES)
    small = rows.take(rows.with_context & ((rows.held < _SMALL_BYTES) | rows.context_alone))
    steps = [(value - driver_bytes_of(name), kind) for kind, name, value in _by_kind(contexts)]
    known = np.array([value for value, _ in steps])
    source = np.concatenate([small.source, np.repeat("steps", len(known))])
    convolves = np.concatenate([small.convolves, np.array([kind for _, kind in steps], dtype=bool)])
    share, rest = 1.0, np.empty(0)
    besides = {False: _NOTHING, True: _NOTHING}
    for _ in range(_ROUNDS):
        held = np.where(small.context_alone, small.reserved - small.weights, share * small.held)
        rest = np.concatenate([small.measured - small.driver - small.weights - held, known])
        besides = {kind: _beside(rest, source, convolves == kind) for kind in besides}
        ratios = _ratios(large, np.where(large.convolves, besides[True][1], besides[False][1]))
        share = max(1.0, pooled(ratios, large.source, 0.5)) if len(large) else 1.0
    shares = _UNMEASURED_SHARE
    if len(large):
        least = pooled(ratios, large.source, LOW) / _NEXT_SOURCE
        # What cuDNN keeps and what a network needs of it are told apart by no run: the most is beside a plain context.
        above = _NEXT_SOURCE * _largest(_ratios(large, np.full(len(large), besides[False][1])), large.source)
        # A program may hold what is planned and no more, whatever those measured held beside.
        shares = (min(share, least, 1.0), share, max(share, above))
    plain, convolving = besides[False], besides[True]
    # cuDNN may keep next to nothing, as beside the steps of one laboratory.
    most = max(plain[2], convolving[2])
    return Allowance(shares, plain, convolving=(plain[0], max(plain[1], convolving[1]), most))


def _by_kind(contexts: Contexts) -> Iterator[tuple[bool, str, float]]:
    """Whether with convolutions, device and bytes."""
    for kind, of in ((False, contexts.plain), (True, contexts.convolving)):
        yield from ((kind, name, value) for name, value in of.items())


def _ratios(rows: MeasuredRuns, beside: np.ndarray) -> np.ndarray:
    """[N] what was measured beside the weights, and ``beside`` [N] bytes, over what the simulated allocator holds."""
    over = rows.measured - rows.weights - np.where(rows.with_context, beside + rows.driver, 0.0)
    return np.asarray(over / rows.held)


def _beside(rest: np.ndarray, source: np.ndarray, own: np.ndarray) -> tuple[float, float, float]:
    """Low, middle and high of ``rest`` [N] bytes where ``own`` [N]; of all of it where there is none.

    Where a laboratory alone measured one's own, the most of all bounds it from above.
    """
    own = own if own.any() else np.ones(len(rest), dtype=bool)
    if not len(rest):
        return _NOTHING
    middle = max(0.0, pooled(rest[own], source[own], 0.5))
    if len(np.unique(source)) == 1:
        return 0.0, middle, middle + _ALONE_BYTES["torch"]
    beyond = own if len(np.unique(source[own])) > 1 else np.ones(len(rest), dtype=bool)
    low = min(middle, max(0.0, pooled(rest[beyond], source[beyond], LOW)))
    return low, middle, max(middle, _largest(rest[beyond], source[beyond]))


def _laid_out(rows: MeasuredRuns) -> Allowance:
    """The allowance of a runtime of `_LAID_OUT`: the constant in the middle of its laboratories, then the upper share,
    then what lies above both.
    """
    over = rows.measured - rows.driver - rows.weights
    beside = max(0.0, pooled(over - rows.held, rows.source, 0.5))
    low, share, high = _UNMEASURED_SHARE
    large = rows.held >= _LARGE_BYTES
    if large.any():
        ratios = (over[large] - beside) / rows.held[large]
        low = min(share, pooled(ratios, rows.source[large], LOW))
        high = max(share, _NEXT_SOURCE * _largest(ratios, rows.source[large]))
    if len(np.unique(rows.source)) == 1:
        alone = _ALONE_BYTES[str(rows.group[0])]
        return Allowance((low, share, high), (max(0.0, beside - alone), beside, beside + alone))
    least = min(beside, max(0.0, pooled(over - rows.held, rows.source, LOW)))
    most = _largest(over - high * rows.held, rows.source)
    return Allowance((low, share, high), (least, beside, max(beside, _NEXT_SOURCE * most)))


def context_bytes(rows: MeasuredRuns, steps: Mapping[str, float], amd: float) -> dict[str, float]:
    """What lies beside PyTorch's allocator by device where NVML measured it on a whole GPU, and AMD's by vendor."""
    found = dict(steps)
    here = rows.take(rows.with_context & ~np.isnan(rows.reserved) & (rows.driver > 0) & (rows.group == "torch"))
    for name in map(str, np.unique(here.device)):
        mine = here.device == name
        found.setdefault(name, float(np.median((here.measured - here.reserved)[mine])))
    return {**found, "amd": amd}


@dataclass(frozen=True, eq=False)
class Judged:
    """[N] medians and bounds of rows that the fit did not see; bytes."""

    rows: MeasuredRuns
    median: np.ndarray
    low: np.ndarray
    high: np.ndarray


def of_inference(rows: MeasuredRuns) -> MeasuredRuns:
    """Rows that the plan of a graph speaks of: no search of algorithms."""
    return rows.take(~rows.context_alone & ~rows.searches)


def judge(rows: MeasuredRuns, groups: np.ndarray, fitted: Callable[[np.ndarray], Allowance]) -> Judged:
    """Every one of ``groups`` [N] judged by the allowance that ``fitted`` makes of the rows it is given [N]."""
    found = np.empty((3, len(rows)))
    for name in np.unique(groups):
        for of in np.unique(rows.group[groups == name]):
            here = (groups == name) & (rows.group == of)
            allowed = fitted((groups != name) & (rows.group == of))
            part = rows.take(here)
            for bound in range(3):
                besides = [allowed.beside_of(convolves=kind)[bound] for kind in part.convolves]
                beside = np.where(part.with_context, np.array(besides) + part.driver, 0.0)
                found[bound, here] = part.weights + allowed.share[bound] * part.held + beside
    return Judged(rows, found[1], found[0], found[2])
