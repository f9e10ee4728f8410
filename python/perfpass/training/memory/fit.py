"""Fitting: one runtime per device, one workspace share per kind of program, both by relative absolute error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from perfpass.predictors.memory.predictor import FLOOR_BYTES
from perfpass.predictors.memory.step import LEFT_AGAIN
from perfpass.training.memory.dataset import Rows

_ROUNDS = 12
_MIOPEN = "amd convolutions"
# Of the interval's ten per cent outside, two lie above: memory that runs out is a crash.
LOW, HIGH = 0.08, 0.98
# Above so much reserved, what convolutions keep in the allocator hides the context of a step. By hand.
_SMALL_BYTES = 8.0 * 2**30
_OF_SEVERAL = "-gpus"  # benchmarks whose collectives hold buffers of their own


def weighted_quantile(values: np.ndarray, weights: np.ndarray, q: float) -> float:
    """The smallest value at which the weights up to it reach ``q`` of all."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(reached, q * reached[-1])])


def family_weights(rows: Rows) -> np.ndarray:
    """[N] every pair of family and device counts alike."""
    _, inverse, count = np.unique(
        np.char.add(rows.family.astype(str), rows.device.astype(str)), return_inverse=True, return_counts=True
    )
    return np.asarray(1.0 / count[inverse])


@dataclass(frozen=True)
class Constants:
    """``runtime`` by device id, ``unseen`` by vendor (with the spread over its devices), ``share`` by kind."""

    runtime: dict[str, float]
    unseen: dict[str, tuple[float, float]]
    share: dict[str, float]

    def planned(self, rows: Rows) -> np.ndarray:
        """[N] bytes of a program that takes no workspaces."""
        runtime = [
            self.runtime.get(d, self.unseen[k.split()[0]][0]) for d, k in zip(rows.device, rows.kind, strict=True)
        ]
        return np.asarray(np.array(runtime) + rows.reserved)

    def predict(self, rows: Rows) -> np.ndarray:
        """[N] bytes; of convolutions on AMD's boards by the rule of planned steps, where none was measured."""
        share = np.array([self.share.get(k, 0.0) for k in rows.kind])
        return np.asarray(self.planned(rows) + share * rows.reserved + LEFT_AGAIN * self.strange(rows))

    def strange(self, rows: Rows) -> np.ndarray:
        """[N] bytes of activations that MIOpen's workspaces may hold again, where they were not measured; else 0."""
        unmeasured = (rows.kind == _MIOPEN) & (_MIOPEN not in self.share)
        return np.where(unmeasured, rows.activations, 0.0)


def fit(rows: Rows) -> Constants:
    """The constants that minimise the weighted sum of |measured - predicted| / measured, by turns.

    Runtimes come from the programs of a device that take least workspace (matrix products), where it has some: the
    two kinds of constants are told apart by the smallest batches, and a convolution library's workspace is no context.
    """
    weight = family_weights(rows)
    share: dict[str, float] = dict.fromkeys(map(str, np.unique(rows.kind)), 0.0)
    runtime: dict[str, float] = {}
    matrix = np.array([k.endswith("products") for k in rows.kind])
    for _ in range(_ROUNDS):
        for name in map(str, np.unique(rows.device)):
            here = rows.device == name
            here = here & matrix if (here & matrix).any() else here
            rest = rows.measured[here] - rows.reserved[here] * np.array([1.0 + share[k] for k in rows.kind[here]])
            found = weighted_quantile(rest, weight[here] / rows.measured[here], 0.5)
            runtime[name] = max(found, 0.0)
        for name in share:
            here = rows.kind == name
            rest = rows.measured[here] - np.array([runtime[d] for d in rows.device[here]])
            relative = weight[here] * rows.reserved[here] / rows.measured[here]
            share[name] = max(weighted_quantile(rest / rows.reserved[here] - 1.0, relative, 0.5), 0.0)
    return Constants(runtime, _unseen(rows, runtime), share)


def _unseen(rows: Rows, runtime: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    """By vendor the runtime of a device that nobody measured, and how far devices lie apart.

    What is not known of a vendor is that of the other: one device has a middle and no spread.
    """
    of = {vendor: [runtime[d] for d in sorted(set(rows.device[_is_of(rows, vendor)]))] for vendor in ("nvidia", "amd")}
    most = max(of.values(), key=len)
    return {
        vendor: (float(np.median(found or most)), float(np.ptp(found if len(found) > 1 else most)))
        for vendor, found in of.items()
    }


def _is_of(rows: Rows, vendor: str) -> np.ndarray:
    return np.array([kind.startswith(vendor) for kind in rows.kind])


@dataclass(frozen=True)
class Contexts:
    """Bytes beside PyTorch's allocator on whole NVIDIA GPUs by id: of matrix products, and of convolutions."""

    plain: Mapping[str, float] = field(default_factory=dict)
    convolving: Mapping[str, float] = field(default_factory=dict)


def nvidia_contexts(rows: Rows, constants: Constants) -> Contexts:
    """Those that steps say. With convolutions: of each family its smallest run, the middle of the families."""
    nvidia = _is_of(rows, "nvidia")
    small = nvidia & (rows.reserved < _SMALL_BYTES) & ~np.char.endswith(rows.bench.astype(str), _OF_SEVERAL)
    convolving: dict[str, float] = {}
    for name in map(str, np.unique(rows.device[nvidia])):
        here = rows.take(np.flatnonzero(small & (rows.device == name) & (rows.kind == "nvidia convolutions")))
        rest = here.measured - here.reserved
        least = [rest[here.family == f][np.argmin(here.reserved[here.family == f])] for f in np.unique(here.family)]
        if least:
            convolving[name] = float(np.median(least))
    return Contexts({name: constants.runtime[name] for name in map(str, np.unique(rows.device[nvidia]))}, convolving)


def bounds(predicted: np.ndarray, planned: np.ndarray, rows: Rows) -> tuple[float, float]:
    """What bounds allow for, as shares of (prediction + `FLOOR_BYTES`), by [N] predictions of networks held out.

    The upper one, above ``predicted``, is by the networks' own 98th percentiles on the device where each needs most,
    since a network is off as a whole, so that rows of one vouch for no other, and boards take workspaces of their own:
    as far above the largest of them as that is above the next (Robson and Whitlock, Biometrika 51, 1964: the end of a
    distribution by its two largest values). The lower one is below ``planned``, what a program without workspaces has,
    since they only add: it holds 92 in 100 rows, every network and device counting alike.
    """
    width = predicted + FLOOR_BYTES
    off = (rows.measured - predicted) / width
    ends = sorted(
        max(float(np.quantile(off[here & (rows.device == d)], HIGH)) for d in np.unique(rows.device[here]))
        for here in (rows.family == f for f in np.unique(rows.family))
    )
    most = ends[-1] + (ends[-1] - ends[-2] if len(ends) > 1 else 0.0)
    least = weighted_quantile((rows.measured - planned) / width, family_weights(rows), LOW)
    return min(0.0, least), max(0.0, most)


def bound_groups(rows: Rows) -> np.ndarray:
    """[N] what bounds are made for: programs of convolutions by vendor, whose libraries take workspaces, and others."""
    return np.array(["matrix products" if k.endswith("products") else k for k in rows.kind])
