"""What fitting and grading of inference and of training steps share, as `RatioTrees` is one predictor of both."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from perfpass.devices import Device, device
from perfpass.graph import OPERATORS
from perfpass.predictors.learned import artefacts, packed_trees
from perfpass.predictors.learned.intervals import nearest
from perfpass.predictors.learned.ratio_trees import LEAST_DEVICE_ROWS, Settings
from perfpass.predictors.learned.ratios import DEVICE_FEATURES, RatioFeatures, Sums, fingerprint
from perfpass.predictors.learned.recorded import UNSTATED_TORCH
from perfpass.predictors.roofline import SOFTWARE, software_index
from perfpass.predictors.way import Way
from perfpass.training.constants import POWER
from perfpass.training.tasks.splits import Fold, folds_of

if TYPE_CHECKING:
    from perfpass.records.tables import RecordedTable, RecordedTables

# Of all trees; an area adds depth, columns, rounds and leaves.
TREES: Mapping[str, Any] = {
    "objective": "reg:pseudohubererror",
    "huber_slope": 0.1,
    "eta": 0.05,
    "subsample": 0.7,
    "reg_lambda": 2.0,
    "tree_method": "hist",
    "max_bin": 128,
    "nthread": 1,
}
# An efficiency group without rows stays at this many times its roofline.
PRIOR_FACTOR = 1.5
_LEAST_FACTOR = 0.02
# Distances beyond which a network has no close relative, or none at all, among the measured: quantiles of what families
# keep from each other (docs/predictors/inference.md).
DISTANCES = {"near": 0.2, "far": 0.5}
SOURCES = {
    "timm": "huggingface/pytorch-image-models results, Apache-2.0",
    "torchvision": "ryujaehun/pytorch-gpu-benchmark, MIT",
}
_Kind = TypeVar("_Kind", bound="Dataset")


@dataclass(frozen=True, eq=False)
class Dataset(ABC):
    """N records of one mode. ``rows`` is the pandas table, ``tables`` [N] forward, ``measured_s`` [N] the time.

    ``fingerprints`` [N, P]; ``byte_scale`` [N] corrects a table that was counted at another width; ``missing`` records
    have no table.
    """

    rows: Any
    tables: list[RecordedTable]
    ways: list[Way]
    devices: dict[str, Device]
    measured_s: np.ndarray
    fingerprints: np.ndarray
    byte_scale: np.ndarray
    missing: int

    mode: ClassVar[str]
    ratios: ClassVar[RatioFeatures]

    def __len__(self) -> int:
        return len(self.measured_s)

    @classmethod
    def load(cls: type[_Kind], folder: Path | str | None = None) -> _Kind:
        """The records on one device that have an operator table (data/records, data/graphs). Raises FileError."""
        rows, known, missing = recorded(folder, cls.mode)
        tables, prints, ways = [], [], []
        devices = {name: device(name) for name in rows.device.unique()}
        seen: dict[tuple[Any, ...], tuple[RecordedTable, np.ndarray]] = {}
        for row in rows.itertuples():
            key = (row.source, row.model, row.img_size, row.batch, bits_of(row.precision))
            if key not in seen:
                table = known.table(*key)
                seen[key] = table, fingerprint(table, row.batch)
            tables.append(seen[key][0])
            prints.append(seen[key][1])
            ways.append(way_of(row, seen[key][0], devices[row.device]))
        return cls(
            rows,
            tables,
            ways,
            devices,
            rows.latency_ms.to_numpy(np.float64) * 1e-3,
            np.stack(prints),
            np.array([byte_scale_of(precision) for precision in rows.precision]),
            missing,
        )

    @property
    @abstractmethod
    def sums(self) -> Sums:
        """What no efficiency changes, stacked [N]; the features of any efficiencies follow in a second."""

    @cached_property
    def software(self) -> np.ndarray:
        """[N] row of SOFTWARE that applies."""
        return np.array([software_index(way) for way in self.ways])

    @cached_property
    def well_measured(self) -> np.ndarray:
        """[N] whether a row's device has LEAST_DEVICE_ROWS rows or more."""
        return np.asarray(self.rows.device.map(self.rows.device.value_counts()) >= LEAST_DEVICE_ROWS)

    @cached_property
    def macs(self) -> np.ndarray:
        """[N] of the forward pass."""
        return np.array([float(np.dot(t.macs, t.count)) for t in self.tables])

    def features(self, efficiency: np.ndarray, host: np.ndarray | float = 1.0) -> tuple[np.ndarray, np.ndarray]:
        """[N, F] float32 and the roofline time with learned efficiencies, [N] seconds.

        ``host`` [N]: what issuing takes over what is assumed.
        """
        return self.ratios.of(replace(self.sums, issue_s=self.sums.issue_s * host), efficiency[self.software])

    def distances(self, train: np.ndarray, test: np.ndarray) -> np.ndarray:
        """[len(test)] distance of each row's network to the nearest of the training rows."""
        known = np.unique(self.fingerprints[train], axis=0)
        prints, inverse = np.unique(self.fingerprints[test], axis=0, return_inverse=True)
        return nearest(prints, known)[inverse.ravel()]


def in_one_way(ways: Sequence[Way], precisions: Sequence[str], most: int = 64) -> Iterator[list[int]]:
    """Places of rows that can be asked at once: of equal ways and precisions, at most ``most``."""
    alike: dict[tuple[Any, ...], list[int]] = {}
    for i, (way, precision) in enumerate(zip(ways, precisions, strict=True)):
        alike.setdefault((*vars(way).values(), precision), []).append(i)
    for rows in alike.values():
        yield from (rows[first : first + most] for first in range(0, len(rows), most))


def recorded(folder: Path | str | None, mode: str) -> tuple[Any, RecordedTables, int]:
    """Records of vision models of a mode on one device with an operator table, all tables, and how many have none."""
    from perfpass.records import tables, vision

    root = Path(folder) if folder else None
    rows = vision.load(root / "records" / "vision.parquet" if root else None)
    known = tables.load(root / "graphs" if root else None)
    rows = rows[(rows["mode"] == mode) & (rows.n_devices == 1)]
    has_table = np.array([key in known for key in zip(rows.source, rows.model, rows.img_size, strict=True)])
    return rows[has_table].reset_index(drop=True), known, int((~has_table).sum())


def bits_of(precision: str) -> int:
    """The width at which a record's table is counted."""
    return 32 if precision in ("fp32", "fp64") else 16


def byte_scale_of(precision: str) -> float:
    """The record's width over that of its table."""
    return 2.0 if precision == "fp64" else 1.0


def way_of(row: Any, table: RecordedTable, on: Device) -> Way:
    """How a record ran; input that the timed region copied from the host counts in the network's own type."""
    width = bits_of(row.precision) / 8 * byte_scale_of(row.precision)
    copied = table.statics["input_elements_per_sample"] * row.batch * width * (row.timing != "device_only")
    version = row.runtime_version or UNSTATED_TORCH
    return Way(on, row.precision, row.runtime, row.layout, torch_version=version, copied_bytes=copied)


def factors(
    seconds: np.ndarray, measured_s: np.ndarray, weight: np.ndarray, prior: np.ndarray, strength: float,
    kept: np.ndarray | bool = True,
) -> np.ndarray:  # fmt: skip
    """[G] factors on roofline seconds [N, G] that minimise the squared relative error of the sum, by ``weight`` [N].

    They are drawn to ``prior`` [G] with the weight of ``strength`` of the rows. Rows not ``kept`` do not count.
    """
    from scipy.optimize import nnls

    relative = seconds / measured_s[:, None]
    # Rows far from the roofline are bound by something else (issue, copies) and must not bend the factors.
    total = relative.sum(axis=1)
    usable = (total > np.median(total) / 4) & kept
    relative, root = relative[usable], np.sqrt(weight[usable])
    pull = np.sqrt(strength * max(len(relative), 1))
    stacked = np.concatenate([relative * root[:, None], pull * np.eye(len(prior))])
    return np.maximum(nnls(stacked, np.concatenate([root, pull * prior]))[0], _LEAST_FACTOR)


def columns(ratios: RatioFeatures, portable: bool) -> np.ndarray:
    """Indices of the features that trees see; portable trees do not see which device it is."""
    return np.array([i for i, name in enumerate(ratios.names) if not (portable and name in DEVICE_FEATURES)])


@dataclass(frozen=True)
class Trees:
    """One booster for log(measured / base) and the feature columns it reads."""

    booster: Any
    columns: np.ndarray

    def predict(self, x: np.ndarray) -> np.ndarray:
        """[N] log of measured over base."""
        import xgboost

        return self.booster.predict(xgboost.DMatrix(x[:, self.columns]))


def fit_trees(
    ratios: RatioFeatures, x: np.ndarray, target: np.ndarray, weight: np.ndarray, settings: Mapping[str, Any],
    rounds: int, *, portable: bool, seed: int = 0,
) -> Trees:  # fmt: skip
    """Trees for ``target`` [N] = log(measured / base) on the features ``x`` [N, F] that they may see."""
    import xgboost

    seen = columns(ratios, portable)
    data = xgboost.DMatrix(x[:, seen], target, weight=weight)
    return Trees(xgboost.train({**TREES, **settings, "seed": seed}, data, rounds), seen)


@dataclass(frozen=True, eq=False)
class HeldOut:
    """What a model made of rows it had not seen: their times in seconds, and distances to the training networks.

    ``x`` [N, F] and ``base_s`` [N]: every row of the dataset under the model's efficiencies.
    """

    x: np.ndarray
    base_s: np.ndarray
    predicted_s: np.ndarray
    distance: np.ndarray


@dataclass(frozen=True, eq=False)
class Residuals:
    """Held-out errors: log(measured / predicted), network distance, time of the host over the device's, row of each."""

    residual: np.ndarray
    distance: np.ndarray
    issue: np.ndarray
    row: np.ndarray

    @classmethod
    def joined(cls, parts: Iterable[Residuals]) -> Residuals:
        """All parts in a row."""
        every = zip(*((p.residual, p.distance, p.issue, p.row) for p in parts), strict=True)
        return cls(*(np.concatenate(c) for c in every))

    def take(self, kept: np.ndarray) -> Residuals:
        """Some of them."""
        return Residuals(self.residual[kept], self.distance[kept], self.issue[kept], self.row[kept])


@dataclass(frozen=True, eq=False)
class Split:
    """Every row of one split when held out: [N] seconds and distances, what simpler methods said, and the errors."""

    folds: list[Fold]
    predicted_s: np.ndarray
    distance: np.ndarray
    baselines: dict[str, np.ndarray]
    residuals: Residuals


def hold_out(
    dataset: Dataset, split: str, folds: int, seed: int, held_out: Callable[[Fold], HeldOut], *,
    counted: np.ndarray | None = None, simpler: Callable[[Fold, HeldOut], dict[str, np.ndarray]] | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Split:  # fmt: skip
    """Every row held out once by ``split``. ``counted`` [N]: rows whose errors count (default: all)."""
    rows, n = dataset.rows, len(dataset)
    every = list(folds_of(split, rows.architecture, rows.family, rows.device, folds, seed))
    predicted, distance, issue = np.empty(n), np.empty(n), np.empty(n)
    at = dataset.ratios.names.index("log_issue")
    baselines: dict[str, np.ndarray] = {}
    for fold in every:
        found = held_out(fold)
        predicted[fold.test], distance[fold.test] = found.predicted_s, found.distance
        issue[fold.test] = np.exp(found.x[fold.test, at].astype(np.float64))
        for name, values in (simpler(fold, found) if simpler else {}).items():
            baselines.setdefault(name, np.empty(n))[fold.test] = values
        say(f"{split}, {fold.held_out}")
    order = np.concatenate([fold.test for fold in every])
    if counted is not None:
        order = order[counted[order]]
    residuals = Residuals(np.log(dataset.measured_s / predicted)[order], distance[order], issue[order], order)
    return Split(every, predicted, distance, baselines, residuals)


def baselines(
    dataset: Dataset, held: HeldOut, fold: Fold, settings: Mapping[str, Any], rounds: int, seed: int
) -> dict[str, np.ndarray]:
    """What simpler methods make of the same rows: one rate per device and software, the roofline, trees without it."""
    import xgboost

    rows, y, ratios = dataset.rows, dataset.measured_s, dataset.ratios
    macs, base = np.maximum(dataset.macs, 1), held.base_s
    key = (rows.device + rows.precision + rows.runtime + rows.layout).to_numpy()
    by_macs, by_roof = np.empty(len(fold.test)), np.empty(len(fold.test))
    for name in np.unique(key[fold.test]):
        inside, known = key[fold.test] == name, fold.train[key[fold.train] == name]
        known = known if len(known) else fold.train
        by_macs[inside] = macs[fold.test][inside] * np.median(y[known] / macs[known])
        by_roof[inside] = base[fold.test][inside] * np.median(y[known] / base[known])
    counts = (name for name in ratios.own if name.startswith("kernels_"))
    names = ("log_kernels", "log_batch", ratios.weights, *counts, *ratios.software, *DEVICE_FEATURES)
    x = np.column_stack([held.x[:, [ratios.names.index(n) for n in names]], np.log(macs)])
    # The predictor's own settings on other features, of which they need more in each tree.
    target = np.log(y[fold.train])
    own = {**TREES, **settings, "colsample_bytree": 0.6, "seed": seed, "base_score": float(np.median(target))}
    static = xgboost.train(own, xgboost.DMatrix(x[fold.train], target), rounds)
    return {
        "MACs only": by_macs,
        "roofline only": by_roof,
        "trees on static features": np.exp(static.predict(xgboost.DMatrix(x[fold.test]))),
    }


def graded_corpus(dataset: Dataset, aside: np.ndarray) -> dict[str, int]:
    """What a grading is made from; ``aside`` [N] rows of families on which settings were chosen."""
    return {
        "rows": len(dataset),
        "rows_without_table": dataset.missing,
        **_groups(dataset),
        "devices": len(dataset.devices),
        "rows_set_aside": int(aside.sum()),
    }


def _groups(dataset: Dataset) -> dict[str, int]:
    names = {"models": "model", "architectures": "architecture", "families": "family"}
    return {name: int(dataset.rows[column].nunique()) for name, column in names.items()}


def write(
    area: Settings, dataset: Dataset, boosters: Mapping[str, Sequence[Any]], output: str | None,
    fitted: Mapping[str, Any], *, corpus: Mapping[str, Any], support: Mapping[str, Any] | None = None,
) -> tuple[Path, int]:  # fmt: skip
    """Write the artefact of an area to ``output`` (default: the place of the shipped one): its folder, and its bytes.

    ``boosters`` of the ensembles "known" and "portable", whose mean counts; ``fitted``, ``corpus`` and ``support`` are
    what the area adds to the manifest. Raises FileError.
    """
    place = Path(output) if output else artefacts.shipped(area.area)
    files = {
        f"{name}.trees": packed_trees.pack([bytes(booster.save_raw("json")) for booster in found])
        for name, found in boosters.items()
    }
    # To 1/256, far below the distances that matter: most batch sizes of a network then share a fingerprint.
    prints = np.unique(np.round(dataset.fingerprints * 256), axis=0) / 256
    files["fingerprints.npy"] = artefacts.array_bytes(prints.astype(np.float16))
    ranges = describe(dataset)
    manifest: dict[str, Any] = {
        "predictor": area.area,
        "feature_version": area.feature_version,
        "features": list(area.ratios.names),
        "groups": list(area.ratios.groups),
        "software": list(SOFTWARE),
        "columns": {name: columns(area.ratios, name == "portable").tolist() for name in boosters},
        **fitted,
        "power": POWER,
        "measured": ranges["measured"],
        "support": {**ranges["support"], **(support or {})},
        "corpus": {
            "rows": len(dataset), **_groups(dataset), "devices": sorted(dataset.devices), "sources": SOURCES, **corpus
        },
    }  # fmt: skip
    artefacts.write(place, manifest, files)
    return place, sum(map(len, files.values()))


def rounded(efficiency: np.ndarray) -> list[list[float]]:
    """As an artefact keeps it."""
    return [[round(float(v), 5) for v in row] for row in efficiency]


def describe(dataset: Dataset) -> dict[str, Any]:
    """What every manifest says of the records: per device the workloads, the ranges of networks and batches."""
    rows = dataset.rows
    measured: dict[str, list[dict[str, Any]]] = {}
    for (name, precision, runtime, layout), group in rows.groupby(["device", "precision", "runtime", "layout"]):
        versions = sorted(set(group.runtime_version) - {""}, key=lambda v: tuple(int(p) for p in v.split(".")))
        measured.setdefault(name, []).append(
            {
                "precision": precision,
                "runtime": runtime,
                "layout": layout,
                "torch_version": versions[-1] if versions else UNSTATED_TORCH,
                "batch": [int(group.batch.min()), int(group.batch.max())],
                "rows": len(group),
            }
        )
    every = rows.batch.to_numpy()
    kind = np.array([dataset.devices[name].kind for name in rows.device])
    batch = {name: every[kind == name] if (kind == name).any() else every for name in ("gpu", "cpu")}
    macs = dataset.macs / every
    return {
        "measured": measured,
        "support": {
            "operators": sorted(OPERATORS[i] for i in {int(i) for t in dataset.tables for i in np.unique(t.op)}),
            "macs_per_sample": [float(macs.min()), float(macs.max())],
            "batch": {name: [int(found.min()), int(found.max())] for name, found in batch.items()},
            "distance": DISTANCES,
        },
    }
