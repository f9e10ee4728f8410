"""What two runs do not share, from which the width of their ratio follows.

Errors of a prediction that both runs have (the laboratory, its host, the board, the release of the software) cancel in
the ratio. What is left lies in what differs: operators that one run has and the other has not, another mix of kinds of
operators (as far as either time is unknown), another share of the time that the host takes, and another batch,
precision, runtime, layout or release. Squares of half-widths add (`perfpass.predictors.learned.spread`); nothing
differs, nothing is wide. At most they are those of two times that share nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from perfpass.features import Tables
from perfpass.predictors.inference.operators import FAMILIES, OperatorTimes, families
from perfpass.predictors.workload import PRECISIONS

if TYPE_CHECKING:
    from perfpass.graph.table import OperatorColumns
    from perfpass.predictors.way import Way

# What may differ between two runs, by what makes the ratio of their times wide.
CAUSES = ("measurement", "operators", "kinds", "host", "batch", "precision", "runtime", "layout", "version")
# Of memory: the planned tensors; how they are held follows precision and runtime.
MEMORY_CAUSES = ("tensors", "precision", "runtime", "version")
# Columns that say which operator a row is, whatever the width of its numbers; beside them, whether it has weights.
_KEYS = (
    "op", "view", "macs", "b", "m", "n", "k", "kernel_area", "stride", "groups", "input_elements", "output_elements",
)  # fmt: skip
# Work alone tells operators apart: levels that were fitted are the same for both runs.
_TIMES = OperatorTimes({})
# Powers of two between batches from which on more of them add nothing.
_MOST_DOUBLINGS = 4.0
_HELD = "activations"
# The square of a time's half-width at which another mix of operators counts once, and the most that it counts.
_USUAL_SQUARE, _MOST_UNKNOWN = 0.5, 4.0
# Of squares of widths, what differs little: precisions of one rate (amp, fp16, bf16), runtimes of one framework. By
# hand, as the distances of `perfpass.predictors.relative`.
_SAME_RATE, _SAME_FRAMEWORK = 0.1, 0.25
_FRAMEWORKS = ("torch",)


@dataclass(frozen=True, eq=False)
class Part:
    """One graph's rows in one way of running: ``keys`` [R, K], ``seconds`` [R], seconds by family, the host's share."""

    keys: np.ndarray
    seconds: np.ndarray
    by_family: np.ndarray
    host: float

    @classmethod
    def of(cls, table: OperatorColumns, way: Way) -> Part:
        """From an operator table."""
        found = _TIMES.seconds(Tables.one(table), way)
        columns = [np.asarray(getattr(table, name), dtype=np.float64) for name in _KEYS]
        keys = np.column_stack([*columns, np.asarray(table.weight_bytes) > 0])
        by_family = np.bincount(families(table, way), found.row, len(FAMILIES))
        host, device = float(found.host[0]), float(found.device[0])
        return cls(keys, found.row, by_family, host / max(host + device, 1e-300))


@dataclass(frozen=True, eq=False)
class Question:
    """One side of a pair: the operator table of a graph at a batch, how it runs, and which release of the runtime.

    ``half_width``: that of the logarithm of its predicted time.
    """

    table: OperatorColumns
    batch: int
    way: Way
    half_width: float
    version: str = ""


def lacks(old: Question, new: Question) -> dict[str, float]:
    """What differs between two runs, by `CAUSES`, each from 0 on. The order of the two does not count."""
    ways = [old.way] if _alike(old.way, new.way) else [old.way, new.way]
    parts = [[Part.of(side.table, way) for way in ways] for side in (old, new)]
    pairs = list(zip(*parts, strict=True))
    operators = sum(_not_shared(a, b) for a, b in pairs) / len(ways)
    kinds = sum(_variation(a.by_family, b.by_family) for a, b in pairs) / len(ways)
    unknown = (old.half_width**2 + new.half_width**2) / (2.0 * _USUAL_SQUARE)
    doublings = abs(math.log2(new.batch) - math.log2(old.batch))
    found = {
        "operators": operators,
        "kinds": kinds * min(unknown, _MOST_UNKNOWN),
        "host": abs(parts[0][0].host - parts[1][-1].host),
        "batch": min(doublings, _MOST_DOUBLINGS) / _MOST_DOUBLINGS,
        "layout": float(old.way.layout != new.way.layout),
        **_software(old, new),
    }
    found["measurement"] = float(any(value > 0 for value in found.values()))
    return {cause: found[cause] for cause in CAUSES}


def memory_lacks(
    old: Question, new: Question, parts: tuple[Mapping[str, float], Mapping[str, float]]
) -> dict[str, float]:
    """The same of memory, by `MEMORY_CAUSES`; ``parts``: the bytes in use of both by what holds them."""
    return {
        "tensors": parts_changed(*parts),
        **_software(old, new),
    }


def parts_changed(old: Mapping[str, float], new: Mapping[str, float]) -> float:
    """The sum of what the parts differ by over the larger sum of all parts; 0 to 1.

    What the allocator holds beside the activations is one part with them.
    """
    sides = [
        {**part, _HELD: part.get(_HELD, 0.0) + part.get("allocator", 0.0), "allocator": 0.0} for part in (old, new)
    ]
    moved = sum(abs(sides[0].get(name, 0.0) - sides[1].get(name, 0.0)) for name in sorted({*old, *new, _HELD}))
    return min(1.0, moved / max(*(sum(side.values()) for side in sides), 1.0))


def _software(old: Question, new: Question) -> dict[str, float]:
    """How far apart the precisions, runtimes and releases are."""
    rates = {_rate(side.way) for side in (old, new)}
    # A captured graph is issued as no runtime issues its kernels: no pair of records says how much they share.
    runtimes = {side.way.runtime + " replayed" * side.way.cuda_graph for side in (old, new)}
    kin = old.way.cuda_graph == new.way.cuda_graph
    kin = kin and any(all(name.startswith(framework) for name in runtimes) for framework in _FRAMEWORKS)
    return {
        "precision": 0.0 if old.way.precision == new.way.precision else 1.0 if len(rates) > 1 else _SAME_RATE,
        "runtime": 0.0 if len(runtimes) == 1 else _SAME_FRAMEWORK if kin else 1.0,
        "version": float(old.version != new.version),
    }


def _rate(way: Way) -> str:
    """The rate of products; of a device that multiplies both types of 16 bits equally fast they have one."""
    rate, peaks = PRECISIONS[way.precision][1], way.device.peak_flops
    return "fp16" if rate == "bf16" and peaks.get("bf16") == peaks.get("fp16") else rate


def _alike(a: Way, b: Way) -> bool:
    return all(getattr(a, name) == getattr(b, name) for name in ("precision", "runtime", "layout", "cuda_graph"))


def _not_shared(a: Part, b: Part) -> float:
    """Share of the time of both that lies in operators which the other has not, or not as often; 0 to 1."""
    if a.keys.shape == b.keys.shape and (a.keys == b.keys).all() and (a.seconds == b.seconds).all():
        return 0.0
    _, row = np.unique(np.concatenate([a.keys, b.keys]), axis=0, return_inverse=True)
    row, count = row.ravel(), int(row.max(initial=-1)) + 1
    ours = np.bincount(row[: len(a.keys)], a.seconds, count)
    theirs = np.bincount(row[len(a.keys) :], b.seconds, count)
    total = float(ours.sum() + theirs.sum())
    return float(np.abs(ours - theirs).sum()) / total if total > 0 else 0.0


def _variation(a: np.ndarray, b: np.ndarray) -> float:
    """Half the sum of what the shares of the kinds differ by; 0 to 1."""
    shares = [v / max(float(v.sum()), 1e-300) for v in (a, b)]
    return 0.5 * float(np.abs(shares[0] - shares[1]).sum())
