"""Fitting one operator: efficiencies of software, then trees on what is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from perfpass.devices import device as find_device
from perfpass.predictors.kernels.efficiency import WIDTH, Efficiencies, level_keys
from perfpass.predictors.kernels.model import (
    PORTABLE_LEVEL,
    Software,
    features,
    known_features,
    relative,
    unseen_evidence,
)
from perfpass.training.kernels.data import Data

TREES: dict[str, Any] = {
    "objective": "reg:pseudohubererror",
    "huber_slope": 0.1,
    "grow_policy": "lossguide",
    "max_depth": 0,
    "max_leaves": 64,
    "eta": 0.15,
    "subsample": 0.7,
    "colsample_bytree": 0.5,
    "min_child_weight": 3.0,
    "reg_lambda": 2.0,
    "tree_method": "hist",
    "max_bin": 128,
    "nthread": 1,
}
ROUNDS = {"known": 250, "portable": 100}
# What people ask most gets larger trees; chosen on a fifth of the training rows of one random fold.
LARGE: dict[str, Any] = {"max_leaves": 192, "eta": 0.1, "subsample": 0.8, "colsample_bytree": 0.8}
LARGE_ROUNDS = 500
LARGE_OPERATORS = ("gemm", "prefill_attention", "decode_attention")
# Fewer rows need fewer trees, and the artefact stays small.
OWN_ROUNDS = {"collective": {"known": 100, "portable": 50}, "torch": {"known": 150, "portable": 60}}


@dataclass(frozen=True)
class Fitted:
    """Efficiencies and boosters; a booster that was not asked for is None."""

    efficiencies: Efficiencies
    portable: Any
    known: Any

    def predict(self, data: Data, *, portable: bool) -> np.ndarray:
        """Log seconds [N]."""
        import xgboost

        x, log_base, _ = inputs(self.efficiencies, data, portable=portable)
        booster = self.portable if portable else self.known
        return log_base + booster.predict(xgboost.DMatrix(x))

    def unseen(self, data: Data, measured: Sequence[Software]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Log seconds, log base [N], regime shares [N, 5] and evidence [N] of devices that were not ``measured``.

        As a user gets them: by the nearest measured relative where there is one, else by the portable model.
        """
        keys, near = carried(data, measured)
        log_s, base = np.zeros(len(data)), np.zeros(len(data))
        regimes = np.zeros((len(data), WIDTH))
        for rows, portable in ((np.flatnonzero(near == ""), True), (np.flatnonzero(near != ""), False)):
            if len(rows):
                part = replace(data.take(rows), keys=keys[rows])
                log_s[rows] = self.predict(part, portable=portable)
                _, base[rows], regimes[rows] = inputs(self.efficiencies, part, portable=portable)
        return log_s, base, regimes, evidence(data, measured)


def carried(data: Data, measured: Sequence[Software]) -> tuple[np.ndarray, np.ndarray]:
    """Keys [N, LEVELS] on the nearest measured relative of each row's device, and its name [N], empty for none."""
    keys, names = data.keys.copy(), np.full(len(data), "", dtype=object)
    for key in np.unique(data.keys[:, -1].astype(str)):
        rows = np.flatnonzero(data.keys[:, -1] == key)
        precision, runtime, kind, device, version = key.split("|")
        capability = str(data.keys[rows[0], 2]).rsplit("|", 1)[1]
        if near := relative(measured, find_device(device), capability, runtime, precision, kind):
            keys[rows] = level_keys([precision], [runtime], [kind], [capability], [near], [version])[0]
            names[rows] = near
    return keys, names


def evidence(data: Data, measured: Sequence[Software]) -> np.ndarray:
    """[N] of EVIDENCE, of rows of devices that were not ``measured``."""
    versions = {(s.runtime, s.version) for s in measured}
    out = np.empty(len(data), dtype=object)
    for key in np.unique(data.keys[:, -1].astype(str)):
        rows = np.flatnonzero(data.keys[:, -1] == key)
        precision, runtime, kind, _, version = key.split("|")
        capability = str(data.keys[rows[0], 2]).rsplit("|", 1)[1]
        out[rows] = unseen_evidence(
            measured, capability, runtime, precision, kind, version_known=(runtime, version) in versions
        )
    return out


def inputs(efficiencies: Efficiencies, data: Data, *, portable: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features [N, F], log base [N] and regime shares [N, 5] of one of the two models."""
    deepest = PORTABLE_LEVEL if portable else data.keys.shape[1] - 1
    values, _ = efficiencies.rows(data.keys, deepest)
    x, log_base, shares = features(data.terms, data.software, values)
    if not portable:
        x = known_features(x, data.figures, values)
    return x, log_base, shares


def fit(data: Data, *, portable: bool = True, known: bool = True, seed: int = 0) -> Fitted:
    """Both models (or one) from all rows of ``data``."""
    efficiencies = Efficiencies.fit(data.keys, data.seconds, data.terms.ramp, data.terms.work_s)
    boosters: dict[str, Any] = {}
    rounds = OWN_ROUNDS.get(data.operator, ROUNDS)
    for kind, wanted in (("portable", portable), ("known", known)):
        boosters[kind] = None
        if wanted:
            x, log_base, _ = inputs(efficiencies, data, portable=kind == "portable")
            large = kind == "known" and data.operator in LARGE_OPERATORS
            changes, count = (LARGE, LARGE_ROUNDS) if large else ({}, rounds[kind])
            boosters[kind] = boosted(x, np.log(data.seconds) - log_base, count, seed, **changes)
    return Fitted(efficiencies, boosters["portable"], boosters["known"])


def boosted(x: np.ndarray, target: np.ndarray, rounds: int, seed: int, **changes: Any) -> Any:
    """Trees for ``target`` [N]."""
    import xgboost

    settings = {**TREES, "seed": seed, "base_score": float(np.median(target)), **changes}
    return xgboost.train(settings, xgboost.DMatrix(x, target), rounds)
