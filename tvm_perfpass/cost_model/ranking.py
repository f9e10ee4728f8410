"""Which candidate is faster: gradient-boosted trees on measured candidates of earlier tasks and of this one.

The target is log2 of a candidate's speed over the fastest of its task, clipped: what is 32 times too slow is no better
than what is 16 times. Candidates of other tasks (the shipped pool, records that were handed over) count once,
candidates of the tasks in this session more, so that the trees start as general knowledge and turn into knowledge of
the task as it is measured. Three ensembles, each on its own sample of rows and features, disagree where little is
known; a share of that disagreement is added to the score, so that the search looks there too.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from perfpass import npz
from perfpass.errors import ArgumentError, ArtefactError, FormatError, LimitError, needs
from perfpass.predictors.learned import artefacts
from tvm_perfpass.cost_model import features as counted
from tvm_perfpass.cost_model.hardware import Hardware

POOL = "pool.npz"
# Log2 of speed over the fastest below which candidates are all alike, and where a failed one lies. Chosen, like all
# constants here, by replays with each workload of the pool left out (docs/research/autotuning.md).
FLOOR, FAILED = -4.0, -5.0
OWN_WEIGHT = 4.0
ANALYTIC_SHARE = 0.3
CURIOSITY = 1.0
MEMBERS = 3
ROUNDS = 100
_TREES = {
    "objective": "reg:squarederror",
    "base_score": 0.0,
    "max_depth": 5,
    "eta": 0.08,
    "subsample": 0.7,
    "colsample_bytree": 0.4,
    "min_child_weight": 3,
    "tree_method": "hist",
}
_MAX_POOL_BYTES = 512 << 20
_MAX_ROWS = 1 << 20


@dataclass
class Measured:
    """Candidates of one task: features [n, COUNT] float32, seconds [n] (infinite where it failed), hashes [n]."""

    features: np.ndarray = field(default_factory=lambda: np.zeros((0, counted.COUNT), dtype=np.float32))
    seconds: np.ndarray = field(default_factory=lambda: np.zeros(0))
    hashes: list[int] = field(default_factory=list)

    def add(self, features: np.ndarray, seconds: np.ndarray, hashes: Iterable[int]) -> None:
        """Appends what was measured; of a candidate measured twice the faster measurement counts."""
        place = {key: i for i, key in enumerate(self.hashes)}
        fresh: list[int] = []
        for i, key in enumerate(hashes):
            if key in place and place[key] < len(self.seconds):
                self.seconds[place[key]] = min(self.seconds[place[key]], seconds[i])
            elif key not in place:
                place[key] = len(self.hashes)
                self.hashes.append(key)
                fresh.append(i)
            else:
                first = fresh[place[key] - len(self.seconds)]
                seconds[first] = min(seconds[first], seconds[i])
        self.features = np.concatenate([self.features, features[fresh]])
        self.seconds = np.concatenate([self.seconds, seconds[fresh]])

    def target(self) -> np.ndarray:
        """Log2 of speed over the fastest, clipped at FLOOR; FAILED for what did not run."""
        ran = np.isfinite(self.seconds)
        if not ran.any():
            return np.full(len(self.seconds), FAILED)
        best = self.seconds[ran].min()
        ratio = np.log2(best / np.where(ran, self.seconds, best))
        return np.where(ran, np.maximum(ratio, FLOOR), FAILED)


class Ranker:
    """Scores candidates of any task: log2 of the share of the fastest candidate's speed, higher is better."""

    def __init__(self, hardware: Hardware, earlier: Mapping[str, Measured] | None = None, *, seed: int = 0) -> None:
        """``earlier``: measured candidates by task that are not those of this session; ``seed`` of the samples."""
        self.hardware, self.seed = hardware, seed
        self.earlier: dict[str, Measured] = dict(earlier or {})
        self.own: dict[str, Measured] = {}
        self.threads = 1
        self._members: list[Any] = []
        self._trained_on = -1

    @property
    def size(self) -> int:
        """Measured candidates of this session."""
        return sum(len(task.seconds) for task in self.own.values())

    def score(self, features: np.ndarray) -> np.ndarray:
        """Log2 scores, float64 [n], of features [n, COUNT]; FAILED for a row that is no numbers.

        Without anything measured, earlier or now, the score is the analytic bound alone.
        """
        scores = np.full(len(features), FAILED)
        usable = np.isfinite(features).all(axis=1)
        if not usable.any():
            return scores
        rows = np.ascontiguousarray(features[usable], dtype=np.float32)
        self._train()
        if not self._members:
            scores[usable] = np.maximum(rows[:, counted.ANALYTIC], FAILED)
            return scores
        margin = _margin(rows)
        each = np.stack([member.inplace_predict(rows, base_margin=margin) for member in self._members])
        scores[usable] = np.clip(each.mean(axis=0) + CURIOSITY * each.std(axis=0), FAILED, 2.0)
        return scores

    def learn(self, task: str, features: np.ndarray, seconds: np.ndarray, hashes: Iterable[int]) -> None:
        """Takes measured candidates of a task; the trees are grown anew when the next score is asked for."""
        usable = np.isfinite(features).all(axis=1)
        keys = [key for key, keep in zip(hashes, usable, strict=True) if keep]
        values = np.where(np.isfinite(seconds) & (seconds > 0), seconds, np.inf)
        self.own.setdefault(task, Measured()).add(features[usable], values[usable], keys)

    def add_earlier(self, task: str, measured: Measured) -> None:
        """Takes candidates of another session as earlier knowledge."""
        self.earlier[task] = measured
        self._members = []

    def _train(self) -> None:
        # Many candidates learn little from a few more: a tenth of what there was is worth growing trees for.
        if self._members and self.size - self._trained_on <= max(0, self._trained_on) // 10:
            return
        parts = [(task, 1.0) for task in self.earlier.values()]
        # A task of which nothing has run yet has no fastest candidate to compare with.
        parts += [(task, OWN_WEIGHT) for task in self.own.values() if np.isfinite(task.seconds).any()]
        if not any(len(task.seconds) for task, _ in parts):
            return
        xgboost = _xgboost()
        rows = np.concatenate([task.features for task, _ in parts])
        matrix = xgboost.DMatrix(
            rows,
            base_margin=_margin(rows),
            label=np.concatenate([task.target() for task, _ in parts]),
            weight=np.concatenate([np.full(len(task.seconds), weight) for task, weight in parts]),
            nthread=self.threads,
        )
        settings = {**_TREES, "nthread": self.threads}
        self._members = [
            xgboost.train({**settings, "seed": self.seed * MEMBERS + i}, matrix, ROUNDS) for i in range(MEMBERS)
        ]
        self._trained_on = self.size

    # --------------------------------------------------------------------------------------------- files

    def save(self, folder: Path, notes: Mapping[str, Any] | None = None, *, trees: bool = True) -> None:
        """Writes ``folder`` in one step: a manifest, the pool, and the trees if wanted (else `load` grows them).

        Raises FileError.
        """
        if trees:
            self._train()
        members = self._members if trees else []
        files = {POOL: _pool_bytes([*self.earlier.values(), *self.own.values()])}
        for i, member in enumerate(members):
            files[f"trees{i}.ubj"] = bytes(member.save_raw("ubj"))
        manifest = {
            "kind": "tuning cost model",
            "features": list(counted.NAMES),
            "feature_version": counted.SCHEMA_VERSION,
            "hardware": self.hardware.to_dict(),
            "seed": self.seed,
            "members": len(members),
            "trained_on": self._trained_on if trees else -1,
            "earlier": list(self.earlier),
            "own": list(self.own),
            **(notes or {}),
        }
        artefacts.write(folder, manifest, files)

    @staticmethod
    def load(folder: Path) -> Ranker:
        """What `save` wrote. Raises ArtefactError for a folder that is damaged or of another version."""
        artefact = artefacts.Artefact(folder)
        manifest = artefact.manifest
        expected = {"features": list(counted.NAMES), "feature_version": counted.SCHEMA_VERSION}
        for name, value in expected.items():
            if manifest.get(name) != value:
                raise ArtefactError(f"{folder}: {name} is not what this version computes; tune again and save anew")
        try:
            hardware = Hardware.from_dict(manifest["hardware"])
            earlier, own = [str(x) for x in manifest["earlier"]], [str(x) for x in manifest["own"]]
            seed, members = int(manifest["seed"]), int(manifest["members"])
            trained_on = int(manifest["trained_on"])
        except (ArgumentError, KeyError, TypeError, ValueError) as error:
            raise ArtefactError(f"{folder}: the manifest lacks or garbles {error}") from error
        groups = _pool(artefact.read(POOL), folder, len(earlier) + len(own))
        ranker = Ranker(hardware, dict(zip(earlier, groups, strict=False)), seed=seed)
        ranker.own = dict(zip(own, groups[len(earlier) :], strict=True))
        if members:
            xgboost = _xgboost()
            for i in range(min(members, MEMBERS)):
                booster = xgboost.Booster()
                try:
                    booster.load_model(bytearray(artefact.read(f"trees{i}.ubj")))
                except xgboost.core.XGBoostError as error:
                    raise ArtefactError(f"{folder}: trees{i}.ubj is no XGBoost model ({str(error)[:200]})") from error
                if booster.num_features() != counted.COUNT:
                    raise ArtefactError(f"{folder}: trees{i}.ubj is of {booster.num_features()} features")
                ranker._members.append(booster)
            ranker._trained_on = trained_on
        return ranker


def _margin(rows: np.ndarray) -> np.ndarray:
    """Where the trees start: a share of the analytic bound, in log2."""
    return np.maximum(ANALYTIC_SHARE * rows[:, counted.ANALYTIC], FAILED).astype(np.float32)


def shipped() -> dict[str, Measured]:
    """The measured candidates that come with the package (docs/research/autotuning.md says of what and where)."""
    return Ranker.load(Path(__file__).parent / "pool").earlier


def _pool_bytes(groups: list[Measured]) -> bytes:
    # Features are of half precision to begin with; columns lie together, as that packs best.
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        features=np.concatenate([g.features for g in groups] or [Measured().features]).astype(np.float16).T,
        seconds=np.concatenate([g.seconds for g in groups] or [np.zeros(0)]),
        sizes=np.array([len(g.seconds) for g in groups], dtype=np.int64),
        hashes=np.array([h for g in groups for h in g.hashes], dtype=np.int64),
    )
    return buffer.getvalue()


_POOL_ARRAYS = {"features": "f", "seconds": "f", "sizes": "i", "hashes": "iu"}


def _pool(content: bytes, folder: Path, groups: int) -> list[Measured]:
    try:
        file = npz.arrays(io.BytesIO(content), _MAX_POOL_BYTES, _POOL_ARRAYS)
    except (FormatError, LimitError) as error:
        raise ArtefactError(f"{folder}/{POOL}: not a pool of measured candidates ({error})") from error
    features, seconds = file["features"].T.astype(np.float32), file["seconds"].astype(np.float64)
    sizes, hashes = file["sizes"].astype(int), file["hashes"].astype(np.int64)
    n = len(seconds)
    consistent = (
        features.shape == (n, counted.COUNT)
        and len(hashes) == n <= _MAX_ROWS
        and len(sizes) == groups
        and (sizes >= 0).all()
        and sizes.sum() == n
        and np.isfinite(features).all()
        and not np.isnan(seconds).any()
        and (seconds > 0).all()
    )
    if not consistent:
        raise ArtefactError(f"{folder}/{POOL}: arrays that do not fit together; tune again and save anew")
    ends = np.cumsum(sizes)
    return [
        Measured(features[end - size : end], seconds[end - size : end], [int(h) for h in hashes[end - size : end]])
        for size, end in zip(sizes, ends, strict=True)
    ]


def _xgboost() -> Any:
    with needs("tune", "the cost model"):
        import xgboost
    return xgboost
