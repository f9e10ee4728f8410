"""Widths of times of kernels: errors of rows, shapes, versions and devices that were held out."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from perfpass.predictors.kernels.model import CAUSES, lacks
from perfpass.predictors.learned.spread import Spread
from perfpass.training import spread
from perfpass.training.kernels.data import Data
from perfpass.training.kernels.experiments import Found
from perfpass.training.spread import Errors

# Log half-widths that fits are drawn to, and those of what no error shows. By hand: another laboratory as in inference;
# a factor of e beyond measured sizes; a precision that the device has no rate for, so that another kernel runs.
PRIOR: Mapping[str, float] = {
    "measurement": 0.05, "laboratory": 0.12, "shape": 0.1, "version": 0.3, "software": 0.4, "device": 0.3,
    "generation": 0.4, "load": 0.8, "rate": 0.8,
}  # fmt: skip
# A part with more rows is thinned, evenly: its error as a whole is what counts.
_MOST_ROWS = 60


def errors_of(found: Found) -> Errors:
    """Errors of a split's rows; a release counts alike, or a device in a precision."""
    precision, device = (v.astype(str).astype(object) for v in (found.data.precision, found.data.device))
    if found.split == "version":
        source = "version:" + found.data.release.astype(str).astype(object)
    elif found.split == "device":
        source = "device:" + device + "/" + precision
    else:
        source = f"{found.split}:" + device + " " + precision + " " + found.fold.astype(str).astype(object)
    return Errors.of(found.residual, lacks(found.evidence, shape=float(found.split == "shape")), source)


def fit(parts: list[Errors]) -> Spread:
    """The widths that ship, of one operator; a handful of devices vouches for another."""
    return spread.fit(Errors.joined([p.thinned(_MOST_ROWS) for p in parts if len(p)]), PRIOR, few=True)


def learn(found: Mapping[str, Found]) -> Spread:
    """`fit` on all that was held out."""
    return fit([errors_of(one) for one in found.values()])


def graded(found: Mapping[str, Found], split: str) -> tuple[np.ndarray, np.ndarray]:
    """[N] log bounds of a split's rows, as those that ship, but from errors that know nothing of what is judged.

    That is the fold itself, and in every split the rows of its devices or versions where these were held out.
    """
    own, errors = found[split], errors_of(found[split])
    low, high = np.zeros(len(errors)), np.zeros(len(errors))
    every = {name: (errors_of(one), one.data) for name, one in found.items()}

    def hidden_by(data: Data) -> np.ndarray:
        return {"device": data.device, "version": data.release}.get(split, np.zeros(len(data)))

    for fold in np.unique(own.fold):
        inside = own.fold == fold
        judged = np.unique(hidden_by(own.data)[inside]) if split in ("device", "version") else np.zeros(0)
        others = []
        for name, (other, data) in every.items():
            hidden = np.isin(hidden_by(data), judged)
            others.append(other.take(~(hidden | inside) if name == split else ~hidden))
        low[inside], high[inside] = fit(others).bounds(dict(zip(CAUSES, errors.lacks[inside].T, strict=True)))
    return low, high


def adapted(residual: np.ndarray, device: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[N] log bounds of devices corrected by a few of their records, each from the errors of the others."""
    source = "device:" + device.astype(str).astype(object)
    errors = Errors.of(residual, {"measurement": 1.0}, source)
    low, high = np.zeros(len(errors)), np.zeros(len(errors))
    for name in np.unique(device):
        own = device == name
        widths = spread.fit(errors.take(~own).thinned(5 * _MOST_ROWS), PRIOR, few=True)
        low[own], high[own] = widths.bounds({"measurement": np.ones(own.sum())})
    return low, high
