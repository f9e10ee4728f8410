"""What intervals are made from: held-out errors on networks, on devices, and on devices with their software.

Used by `train` for what ships and by `evaluate` for what is graded, so that both are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from perfpass.predictors.inference.features import FEATURES
from perfpass.predictors.inference.predictor import as_it_waits, assumed_host, counted_distance, evidence_key
from perfpass.predictors.learned.intervals import EVIDENCE
from perfpass.predictors.learned.ratio_trees import LEAST_DEVICE_ROWS
from perfpass.predictors.learned.spread import Spread
from perfpass.predictors.roofline import generations_before_ampere
from perfpass.training import time_widths
from perfpass.training.inference import model
from perfpass.training.inference.dataset import Dataset
from perfpass.training.ratio_trees import HeldOut, Residuals, Split, hold_out
from perfpass.training.spread import Errors
from perfpass.training.tasks.splits import Fold

COMMON, RARE, UNMEASURED = range(len(EVIDENCE))
_LOG_ISSUE = FEATURES.index("log_issue")


@dataclass(frozen=True, eq=False)
class Experiment:
    """Rows of one device (or several) that a predictor answered for without having seen the device.

    ``evidence`` [n] indexes EVIDENCE: what the training rows held of each row's software, on other devices;
    ``generation`` [n] of each row's board; ``issue`` [n]: the time of the host that is assumed over the device's.
    """

    devices: frozenset[str]
    kind: str
    rows: np.ndarray
    predicted_s: np.ndarray
    base_s: np.ndarray
    residual: np.ndarray
    issue: np.ndarray
    evidence: np.ndarray
    generation: np.ndarray

    @property
    def errors(self) -> Errors:
        """For the fit of widths."""
        name = " and ".join(sorted(self.devices))
        found = time_widths.of_devices(self.residual, self.issue, self.evidence, self.generation, name)
        return _as_asked(found, self.issue, self.kind == "gpu")


# A user is another laboratory: these count as much as networks and devices left out together. Chosen with the coverage
# of sources left out in sight, as is what a network lacks (`as_it_waits`).
TIMES: Mapping[str, float] = {"source": 2.0}


def fit(parts: Iterable[Errors]) -> Spread:
    """The widths that ship, from all parts."""
    return time_widths.fit(parts, times=TIMES)


def bounds(parts: Iterable[Errors], asked: Errors) -> tuple[np.ndarray, np.ndarray]:
    """[N] log bounds of what is ``asked``, as those that ship, but from ``parts`` alone."""
    return time_widths.bounds(parts, asked, times=TIMES)


def of_networks(dataset: Dataset, found: Residuals) -> Errors:
    """Errors on networks held out, on devices that are known, for the fit of widths."""
    of = time_widths.of_networks(dataset, found)
    issue = found.issue * _hosts(dataset, found.row)
    return _as_asked(of, issue, kinds(dataset)[found.row] == "gpu")


def _hosts(dataset: Dataset, rows: np.ndarray) -> np.ndarray:
    """[len(rows)] `assumed_host` of each."""
    return np.array([assumed_host(dataset.ways[i]) for i in rows.tolist()])


def _as_asked(errors: Errors, issue: np.ndarray, gpu: np.ndarray | bool) -> Errors:
    """With lacks as those of a question (`InferencePredictor`); ``issue``, ``gpu`` [N]."""
    lacks = dict(zip(errors.causes, errors.lacks.T, strict=True))
    named = as_it_waits(lacks | {"network": counted_distance(lacks["network"])}, issue)
    works = np.column_stack([named[cause] for cause in errors.causes])
    return replace(errors, lacks=np.where(np.reshape(gpu, (-1, 1)), works, errors.lacks))


def unseen_networks(
    dataset: Dataset, split: str, folds: int, *, seed: int, rounds: int | None = None, **more: Any
) -> Split:
    """Every row held out once by ``split``, as one on a known device; ``more`` of `ratio_trees.hold_out`.

    Devices with few records are not predicted as known ones, so their errors do not count.
    """

    def held_out(fold: Fold) -> HeldOut:
        return model.held_out(dataset, fold.train, fold.test, portable=False, seed=seed, rounds=rounds)

    return hold_out(dataset, split, folds, seed, held_out, counted=dataset.well_measured, **more)


def kinds(dataset: Dataset) -> np.ndarray:
    """[N] the kind of each row's device, which has bounds of its own."""
    return np.array([dataset.devices[name].kind for name in dataset.rows.device])


def evidence_table(dataset: Dataset) -> dict[str, dict[str, str]]:
    """By kind of device: how well each software (`evidence_key`) is measured; what is absent is not measured at all.

    "common": by LEAST_DEVICE_ROWS rows on devices that have as many, else "rare".
    """
    rows = dataset.rows
    counts = rows.device.value_counts()
    found: dict[str, dict[str, int]] = {}
    for device, way in zip(rows.device, dataset.ways, strict=True):
        kind = found.setdefault(way.device.kind, {})
        key = evidence_key(way)
        kind[key] = kind.get(key, 0) + int(counts[device] >= LEAST_DEVICE_ROWS)
    return {
        kind: {key: EVIDENCE[COMMON if n >= LEAST_DEVICE_ROWS else RARE] for key, n in sorted(keys.items())}
        for kind, keys in sorted(found.items())
    }


def well_measured(dataset: Dataset) -> list[str]:
    """Devices with LEAST_DEVICE_ROWS rows or more."""
    return sorted(set(dataset.rows.device[dataset.well_measured]))


def unseen_devices(
    dataset: Dataset, *, seed: int, rounds: int | None = None, say: Callable[[str], None] = lambda text: None
) -> list[Experiment]:
    """Every device left out alone, by rising name."""
    table = evidence_table(dataset)
    keys = [table[way.device.kind][evidence_key(way)] for way in dataset.ways]
    level = np.array([EVIDENCE.index(key) for key in keys])
    device = dataset.rows.device.to_numpy()
    out = []
    for name in sorted(dataset.devices):
        test = device == name
        if not test.all():
            out.append(_experiment(dataset, ~test, test, level, seed, rounds))
            say(f"unseen device {name}")
    return out


def unseen_software(
    dataset: Dataset, *, seed: int, rounds: int | None = None, say: Callable[[str], None] = lambda text: None
) -> list[Experiment]:
    """GPUs together with what they ran: nothing in the training rows is of that device or that kind of software.

    One experiment for each well measured GPU and kind of software, without the GPUs that have few records; and one for
    those, all left out together, because their precisions were measured nowhere else.
    """
    device = dataset.rows.device.to_numpy()
    gpu = kinds(dataset) == "gpu"
    known = dataset.well_measured
    level = np.full(len(dataset), UNMEASURED)
    out = []
    for name in sorted(set(device[gpu & known])):
        for s in np.unique(dataset.software[device == name]):
            test, software = (device == name) & (dataset.software == s), dataset.software == s
            train = known & (device != name) & ~software
            if (gpu & train).any():
                out.append(_experiment(dataset, train, test, level, seed, rounds))
    few = gpu & ~known
    if few.any() and known.any():
        out.append(_experiment(dataset, known, few, level, seed, rounds))
    say("unseen devices with unseen software")
    return out


def _experiment(
    dataset: Dataset, train: np.ndarray, test: np.ndarray, level: np.ndarray, seed: int, rounds: int | None
) -> Experiment:
    learned, asked = np.flatnonzero(train), np.flatnonzero(test)
    found = model.held_out(dataset, learned, asked, portable=True, seed=seed, rounds=rounds)
    names = frozenset(dataset.rows.device.to_numpy()[asked])
    return Experiment(
        devices=names,
        kind=dataset.devices[next(iter(names))].kind,
        rows=asked,
        predicted_s=found.predicted_s,
        base_s=found.base_s[asked],
        residual=np.log(dataset.measured_s[asked] / found.predicted_s),
        issue=np.exp(found.x[asked, _LOG_ISSUE].astype(np.float64)) * _hosts(dataset, asked),
        evidence=level[asked],
        generation=np.array([generations_before_ampere(dataset.ways[i].device) for i in asked.tolist()]),
    )
