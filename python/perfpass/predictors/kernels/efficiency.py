"""How well software uses a device: a floor and three efficiencies per piece of software, learned with shrinkage.

    seconds = floor x ramp + ((compute / e_c)^4 + (memory / e_m)^4 + (chain / e_l)^4)^(1/4) + serial / e_s

with ramp, compute, memory, chain and serial from physics (kernel_physics). The five logarithms are fitted at five
levels, each drawn to the one above, so that what was measured little, or not at all (a new version, a new device), has
its parent's values: precision; software (stack, family of kernels, precision); software on one compute capability; on
one device; that in one version.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

SMOOTH = 4.0
START = (np.log(3e-6), np.log(0.7), np.log(0.8), np.log(1.0), np.log(1.0))
WIDTH = len(START)
# Standard deviations: of a level's values around those of the level above, and of a row around its level's curve.
LEVEL_SPREAD = (2.0, 0.8, 0.4, 0.2, 0.2)
ROW_SPREAD = 0.3
_STEPS = 12
LEVELS = len(LEVEL_SPREAD)


def curve(values: np.ndarray, ramp: np.ndarray, work_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log seconds [N] and their slopes [N, 5] along ``values`` [N, 5] or [5], the logs of floor and efficiencies.

    ``ramp`` [N], ``work_s`` [N, 4].
    """
    serial = np.stack([ramp, work_s[:, 3]], axis=1) * np.exp(values[..., [0, 4]] * (1.0, -1.0))
    parts = np.maximum(work_s[:, :3], 1e-12) * np.exp(-values[..., 1:4])
    largest = parts.max(axis=1)
    powers = (parts / largest[:, None]) ** SMOOTH
    total_power = powers.sum(axis=1)
    work = largest * total_power ** (1 / SMOOTH)
    total = serial.sum(axis=1) + work
    slopes = np.empty((len(ramp), WIDTH))
    slopes[:, 0] = serial[:, 0] / total
    slopes[:, 1:4] = -(work / total / total_power)[:, None] * powers
    slopes[:, 4] = -serial[:, 1] / total
    return np.log(total), slopes


def fit_group(
    measured_log_s: np.ndarray, ramp: np.ndarray, work_s: np.ndarray, prior: np.ndarray, spread: float
) -> np.ndarray:
    """[5] values of one group: the posterior mode with Huber weights, by damped Gauss-Newton steps from the prior."""
    values = prior.copy()
    weight_prior = (ROW_SPREAD / spread) ** 2
    for _ in range(_STEPS):
        predicted, slopes = curve(values, ramp, work_s)
        off = measured_log_s - predicted
        weight = np.minimum(1.0, ROW_SPREAD / np.maximum(np.abs(off), 1e-9))
        weighted = slopes * weight[:, None]
        left = weighted.T @ slopes + weight_prior * np.eye(WIDTH)
        right = weighted.T @ off + weight_prior * (prior - values)
        step = np.clip(np.linalg.solve(left, right), -0.7, 0.7)
        values = values + step
        if np.abs(step).max() < 1e-4:
            break
    return values


@dataclass
class Efficiencies:
    """Values by level and key; ``keys(...)`` makes a row's key at each level."""

    values: tuple[dict[str, np.ndarray], ...] = field(default_factory=lambda: tuple({} for _ in LEVEL_SPREAD))

    @classmethod
    def fit(cls, keys: np.ndarray, measured_s: np.ndarray, ramp: np.ndarray, work_s: np.ndarray) -> Efficiencies:
        """From N measured rows; ``keys`` [N, LEVELS] as `level_keys` makes them."""
        found, target = cls(), np.log(measured_s)
        for level, spread in enumerate(LEVEL_SPREAD):
            order = np.argsort(keys[:, level], kind="stable")
            names, first = np.unique(keys[order, level], return_index=True)
            for name, rows in zip(names, np.split(order, first[1:]), strict=True):
                prior = np.array(START) if level == 0 else found.at(keys[rows[0]], level - 1)
                found.values[level][str(name)] = fit_group(target[rows], ramp[rows], work_s[rows], prior, spread)
        return found

    def at(self, keys: Sequence[str], deepest: int = LEVELS - 1) -> np.ndarray:
        """[5] values of one row's keys, from the deepest level that is known and no deeper than ``deepest``."""
        for level in range(deepest, -1, -1):
            if (found := self.values[level].get(str(keys[level]))) is not None:
                return found
        return np.array(START)

    def rows(self, keys: np.ndarray, deepest: int = LEVELS - 1) -> tuple[np.ndarray, np.ndarray]:
        """[N, 5] values of the rows of ``keys`` [N, LEVELS], and the level [N] they come from (-1: none)."""
        joined = keys[:, LEVELS - 1]
        names, first, inverse = np.unique(joined, return_index=True, return_inverse=True)
        table = np.stack([self.at(keys[i], deepest) for i in first]) if len(names) else np.zeros((0, WIDTH))
        depth = np.array([self.depth(keys[i], deepest) for i in first])
        return table[inverse], depth[inverse]

    def depth(self, keys: Sequence[str], deepest: int = LEVELS - 1) -> int:
        """The deepest known level of one row's keys, -1 where not even its precision is known."""
        return next((i for i in range(deepest, -1, -1) if str(keys[i]) in self.values[i]), -1)

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return {"levels": [{k: [round(float(x), 4) for x in v] for k, v in level.items()} for level in self.values]}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Efficiencies:
        """The inverse of `to_dict`."""
        return cls(tuple({k: np.array(v) for k, v in level.items()} for level in values["levels"]))


def level_keys(
    precision: Sequence[str],
    runtime: Sequence[str],
    family: Sequence[str],
    capability: Sequence[str],
    device: Sequence[str],
    version: Sequence[str],
) -> np.ndarray:
    """[N, LEVELS] keys, from the general to the special."""
    out = []
    for p, r, f, c, d, v in zip(precision, runtime, family, capability, device, version, strict=True):
        software = f"{p}|{r}|{f}"
        out.append((str(p), software, f"{software}|{c}", f"{software}|{d}", f"{software}|{d}|{v}"))
    return np.array(out, dtype=object).reshape(-1, LEVELS)
