"""Pairs of measured records that differ in one thing, and what is predicted of the ratio of the two.

Networks of other laboratories (`networks.parquet`) and of timm (`vision.parquet`): the same board, laboratory and
conditions on both sides but for the network, its size, the batch, the precision, the runtime, the layout or the release
of the software. Predictions are those that no record of the source has seen, and of timm none of the family.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.predictors.difference.unlike import CAUSES, Question, lacks
from perfpass.predictors.inference.predictor import InferencePredictor
from perfpass.predictors.learned.time_lacks import CAUSES as CAUSES_OF_TIME
from perfpass.predictors.way import Way
from perfpass.predictors.workload import PRECISIONS
from perfpass.records import schema, tables
from perfpass.records.location import data_directory
from perfpass.training.inference import calibrate, operators
from perfpass.training.inference import dataset as vision
from perfpass.training.spread import Errors
from perfpass.training.tasks import named

if TYPE_CHECKING:
    import pandas

    from perfpass.records.tables import RecordedTables
    from perfpass.training.inference.dataset import Dataset

FOLDS = 5
# Pairs of one group of like records, and of one source (of timm: of one family) that differ in the same thing.
_MOST_OF_GROUP, _MOST_OF_FAMILY, _MOST_OF_SOURCE = 30, 12, 120
# What is the same on both sides, beside what differs.
_CONDITIONS = (
    "source", "mode", "device", "device_as_reported", "asked_runtime", "runtime", "runtime_version", "cuda_version",
    "precision_stated", "precision", "batch", "optimizer", "variant", "percentile", "timing", "padding_removed",
    "caveats", "batch_scope", "throughput_unit",
)  # fmt: skip
_NETWORK = ("network", "table_source", "table_model", "table_size")
# What differs, and the columns that may differ with it; pairs differ in the first.
DIFFERS: dict[str, tuple[str, ...]] = {
    "network": ("table_model", "network", "table_source", "table_size"),
    "size of the input": ("table_size",),
    "batch": ("batch",),
    "precision": ("precision_stated", "precision", "caveats"),
    "runtime": ("asked_runtime", "runtime", "runtime_version", "cuda_version", "variant", "caveats", "table_model"),
    "version": ("runtime_version", "cuda_version", "caveats"),
}  # fmt: skip
VARIANT, ACROSS = "variant of a network", "network of another family"
# Every row of these is another laboratory's; what lies around the network is timed too; releases of cuDNN and code
# without it stand in one column.
_NOT_ONE_LABORATORY, _PIPELINES, _NO_RELEASES = ("sd_benchmark",), ("co2_inference",), ("vision_pages",)
_VISION_CONDITIONS = ("run", "device", "runtime", "precision", "layout", "runtime_version", "batch")
_VISION_DIFFERS: dict[str, tuple[str, ...]] = {
    "precision": ("precision",), "runtime": ("runtime",), "layout": ("layout",), "version": ("runtime_version",)
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Pairs:
    """N pairs: what differs, the source, its ``name`` for leaving out, the kind of device; logarithms of new over old,
    measured and predicted; ``lacks`` [N, causes]; ``divided`` [N] the half-width that dividing two intervals has,
    ``apart`` [N] that of two figures that share nothing.
    """

    causes: tuple[str, ...]
    what: np.ndarray
    source: np.ndarray
    name: np.ndarray
    kind: np.ndarray
    measured: np.ndarray
    predicted: np.ndarray
    lacks: np.ndarray
    divided: np.ndarray
    apart: np.ndarray

    def __len__(self) -> int:
        return len(self.measured)

    def take(self, kept: np.ndarray) -> Pairs:
        """Some of them."""
        arrays = (getattr(self, f.name)[kept] for f in fields(self) if f.name != "causes")
        return Pairs(self.causes, *arrays)

    @classmethod
    def joined(cls, parts: Sequence[Pairs]) -> Pairs:
        """All parts in a row."""
        arrays = (np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls) if f.name != "causes")
        return cls(parts[0].causes, *arrays)

    @property
    def errors(self) -> Errors:
        """For the fit of widths."""
        return Errors(self.causes, self.measured - self.predicted, self.lacks, self.name)


def latency(folder: Path | None = None, *, seed: int = 0, say: Callable[[str], None] = lambda text: None) -> Pairs:
    """Pairs of times, of networks by name and of timm."""
    found = [of_networks(folder, seed=seed)]
    say("pairs of networks by name")
    return Pairs.joined([*found, of_vision(folder, seed=seed, say=say)])


def of_networks(folder: Path | None = None, *, seed: int = 0) -> Pairs:
    """Pairs of the records of networks, by predictions without their source."""
    frame, _ = named.residuals(folder, operators.left_out(folder))
    data = folder or data_directory()
    raw = schema.read(data / "records" / "networks.parquet", "network").loc[frame.index]
    for column in (*_CONDITIONS, *_NETWORK):
        if column not in frame:
            frame[column] = raw[column]
    left = (*_NOT_ONE_LABORATORY, *_PIPELINES)
    frame = frame[named.of_the_runtime(frame) & ~frame.above_peak & ~frame.source.isin(left)]
    found = list(_pairs(frame, seed))
    return _of_frame(frame, found, tables.load(data / "graphs", "networks"))


def _pairs(frame: pandas.DataFrame, seed: int) -> Iterator[tuple[str, Any, Any]]:
    """What differs, and the index of either row; of records of equal conditions the one in the middle."""
    rng = np.random.default_rng(seed)
    for what, free in DIFFERS.items():
        kept = frame[~frame.source.isin(_NO_RELEASES)] if what == "version" else frame
        same = [c for c in (*_CONDITIONS, *_NETWORK) if c not in free]
        groups: dict[str, list[tuple[Any, Any]]] = {}
        for _, part in kept.groupby(same, dropna=False, sort=True):
            rows = [middle(rows, "measured_s") for _, rows in part.groupby(free[0], dropna=False, sort=True)]
            pairs = list(itertools.combinations(rows, 2))
            groups.setdefault(str(part.source.iloc[0]), []).extend(_some(pairs, _MOST_OF_GROUP, rng))
        for pairs in groups.values():
            for pair in _some(pairs, _MOST_OF_SOURCE, rng):
                yield (what, *(pair if rng.random() < 0.5 else pair[::-1]))


def middle(rows: pandas.DataFrame, column: str) -> Any:
    """The index of the row whose ``column`` is in the middle."""
    return rows.sort_values(column, kind="stable").index[len(rows) // 2]


def _some(pairs: list[Any], most: int, rng: np.random.Generator) -> list[Any]:
    if len(pairs) <= most:
        return pairs
    return [pairs[i] for i in np.sort(rng.choice(len(pairs), most, replace=False))]


def _of_frame(frame: pandas.DataFrame, found: list[tuple[str, Any, Any]], known: RecordedTables) -> Pairs:
    used = frame.loc[sorted({i for _, *pair in found for i in pair})]
    ways = {index: way for way, part in named.ways(used) for index in part.index}

    def question(index: Any, what: str, side: int) -> Question:
        row, way = used.loc[index], ways[index]
        bits = named.WIDTHS[PRECISIONS[way.precision][0]]
        table = known.table(row.table_source, row.table_model, row.table_size, row.batch, bits)
        half = 0.5 * float(np.log(row.high_s / row.low_s))
        return Question(table, int(row.batch), way, half, str(side) if what == "version" else "")

    lack, values = [], []
    for what, a, b in found:
        sides = question(a, what, 0), question(b, what, 1)
        lack.append(list(lacks(*sides).values()))
        old, new = used.loc[a], used.loc[b]
        halves = [side.half_width for side in sides]
        values.append((new.measured_s / old.measured_s, new.median_s / old.median_s, sum(halves), math.hypot(*halves)))
    measured, predicted, divided, apart = np.array(values, dtype=np.float64).reshape(-1, 4).T
    first = used.loc[[a for _, a, _ in found]]
    kinds = [ways[a].device.kind for _, a, _ in found]
    return Pairs(
        CAUSES,
        np.array([what for what, *_ in found], dtype=object),
        first.source.to_numpy(dtype=object),
        ("source:" + first.source).to_numpy(dtype=object),
        np.array(kinds, dtype=object),
        np.log(measured),
        np.log(predicted),
        np.array(lack, dtype=np.float64).reshape(-1, len(CAUSES)),
        divided,
        apart,
    )


def of_vision(folder: Path | None = None, *, seed: int = 0, say: Callable[[str], None] = lambda text: None) -> Pairs:
    """Pairs of timm's records of inference, by predictions without the family of the network."""
    data = vision.load(str(folder) if folder else None)
    held = calibrate.unseen_networks(data, "family", FOLDS, seed=seed, say=say)
    rows = data.rows.assign(predicted_s=held.predicted_s, measured_s=data.measured_s)[data.well_measured]
    half = np.full(len(data), np.nan)
    own = calibrate.of_networks(data, held.residuals)
    asked = dict(zip(CAUSES_OF_TIME, own.lacks.T, strict=True)) | {"laboratory": np.ones(len(own))}
    kind = calibrate.kinds(data)
    for name in np.unique(kind):
        device = next(d for d in data.devices.values() if d.kind == name)
        low, high = InferencePredictor.load().spread(device).bounds(asked)
        of = kind[held.residuals.row] == name
        half[held.residuals.row[of]] = 0.5 * (high - low)[of]
    found = list(_vision_pairs(rows, seed))
    return _of_vision(data, rows, found, half, kind)


def _vision_pairs(rows: pandas.DataFrame, seed: int) -> Iterator[tuple[str, str, int, int]]:
    """What differs, the family, and the two rows; networks within their family and across families."""
    rng = np.random.default_rng(seed)
    groups: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for _, part in rows.groupby(list(_VISION_CONDITIONS), sort=True):
        for family, members in part.groupby("family", sort=True):
            pairs = list(itertools.combinations(members.index.tolist(), 2))
            groups.setdefault((VARIANT, str(family)), []).extend(_some(pairs, _MOST_OF_GROUP, rng))
        mixed = rng.permutation(part.index.to_numpy())
        for a, b in zip(mixed[::2].tolist(), mixed[1::2].tolist(), strict=False):
            if rows.family[a] != rows.family[b]:
                groups.setdefault((ACROSS, str(rows.family[a])), []).append((a, b))
    for what, free in _VISION_DIFFERS.items():
        same = [c for c in (*_VISION_CONDITIONS, "model", "img_size") if c not in (*free, "run")]
        for _, part in rows.groupby(same, sort=True):
            each = [middle(found, "measured_s") for _, found in part.groupby(free[0], sort=True)]
            groups.setdefault((what, str(part.family.iloc[0])), []).extend(itertools.combinations(each, 2))
    for (what, family), pairs in groups.items():
        for a, b in _some(pairs, _MOST_OF_FAMILY, rng):
            yield (what, family, *((a, b) if rng.random() < 0.5 else (b, a)))


def _of_vision(
    data: Dataset, rows: pandas.DataFrame, found: list[tuple[str, str, int, int]], half: np.ndarray, kind: np.ndarray
) -> Pairs:  # fmt: skip
    def question(row: int, what: str, side: int) -> Question:
        way: Way = data.ways[row]
        version = str(side) if what == "version" else ""
        return Question(data.tables[row], int(rows.batch[row]), way, float(half[row]), version)

    lack = [list(lacks(question(a, what, 0), question(b, what, 1)).values()) for what, _, a, b in found]
    what = np.array([f[0] for f in found], dtype=object)
    old, new = (np.array([f[i] for f in found], dtype=int) for i in (2, 3))
    predicted = np.log(rows.predicted_s.loc[new].to_numpy() / rows.predicted_s.loc[old].to_numpy())
    # No user is asked for a release of the runtime: the same is said of all.
    predicted = np.where(what == "version", 0.0, predicted)
    return Pairs(
        CAUSES,
        what,
        np.array(["timm"] * len(found), dtype=object),
        np.array([f"family:{f[1]}" for f in found], dtype=object),
        kind[old],
        np.log(rows.measured_s.loc[new].to_numpy() / rows.measured_s.loc[old].to_numpy()),
        predicted,
        np.array(lack, dtype=np.float64).reshape(-1, len(CAUSES)),
        half[old] + half[new],
        np.hypot(half[old], half[new]),
    )
