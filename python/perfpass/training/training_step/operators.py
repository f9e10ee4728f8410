"""Fits the levels of `perfpass.predictors.training_step.operators`, from steps of all laboratories.

As for inference (perfpass.training.inference.operators): logarithms of measured times, linear in the levels after each
step of Gauss and Newton; every level has a normal prior around what is known beforehand, laboratories and their hosts
have effects of their own that ship nothing, and residuals have tails (Huber's weights).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.graph.step import PARTS, Steps
from perfpass.predictors.roofline import smooth_maximum
from perfpass.predictors.training_step.operators import (
    AMD_BATCH_NORM,
    GROUPS,
    LARGE_DEPTHWISE,
    SMOOTHNESS,
    WIDENED,
    Base,
)
from perfpass.training.training_step.questions import OTHER_FRAMEWORKS, Question

if TYPE_CHECKING:
    from perfpass.predictors.way import Way
    from perfpass.training.training_step.dataset import Dataset

Levels = Mapping[str, Mapping[str, float]]
# The parameters, as (level, name): those that ship, then laboratories and hosts.
PARAMETERS: tuple[tuple[str, str], ...] = (
    ("step", ""),
    *(("group", name) for name in GROUPS),
    *(("autocast", name) for name in WIDENED),
    *(("host", name) for name in PARTS),
)
_AT = {level: [i for i, (of, _) in enumerate(PARAMETERS) if of == level] for level, _ in PARAMETERS}
# A normalization over the batch reads its input once more in training, for the statistics; backward reads input and
# gradient twice. Others keep a row in registers, and sum the gradients of their weights in a kernel of their own.
_KNOWN = {"norm, data": 5 / 3}
_KNOWN |= {f"{kind}, forward": 3 / 2 for kind in ("batch_norm", AMD_BATCH_NORM)}
_KNOWN |= {f"{kind}, data": 5 / 3 for kind in ("batch_norm", AMD_BATCH_NORM)}
# Log deviations of levels around that, of laboratories, their boards and hosts, and of single measurements. Forward
# operators are those of inference; the step and its host may be off by as much as a laboratory and its host. Of a CPU's
# step, inference's constants tell less: caches hold what was just written. What is said of cuDNN's large depthwise
# kernels is that of others, and of AMD's normalizations over the batch that of NVIDIA's.
_SPREAD: dict[str, dict[str, float]] = {
    "gpu": {"step": 0.3, "forward": 0.04, "group": 0.15, "optimizer": 0.3, "autocast": 0.5, "host": 0.5, "large": 0.5},
    "cpu": {"step": 0.2, "forward": 0.15, "group": 0.3, "optimizer": 0.5, "autocast": 0.01, "host": 0.5, "large": 0.3},
}
_LABORATORY, _BOARD, _HOST, _NOISE, _HUBER, _STEPS = 0.3, 0.1, 0.5, 0.12, 1.5, 20
# A host is slow or fast in all parts of a step; its parts differ from that by so much.
_HOST_PART = 0.15
_EACH = 40  # rows of each laboratory, device and precision
_WHOLE = 12  # rows of a group that count whole; of more, their root does
_SEED = 17
_NINE_IN_TEN = 1.645 / 0.6745  # of a normal distribution: what holds 90 % over what holds half


@dataclass(frozen=True, eq=False)
class Rows:
    """N measured steps of one kind of device, as sums: ``device_s`` [N, widened + 1, groups], ``host_s`` [N, parts].

    ``fixed_s`` and ``call_s`` [N] as in `Work`. ``names``: columns source, host, device, precision, domain, family,
    group (what is balanced).
    """

    kind: str
    names: Any
    measured_s: np.ndarray
    device_s: np.ndarray
    host_s: np.ndarray
    fixed_s: np.ndarray
    call_s: np.ndarray

    def __len__(self) -> int:
        return len(self.measured_s)

    def take(self, kept: np.ndarray) -> Rows:
        """Some of them."""
        arrays = {f.name: getattr(self, f.name)[kept] for f in fields(self) if f.name not in ("names", "kind")}
        return Rows(self.kind, self.names.iloc[kept].reset_index(drop=True), **arrays)

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> Rows:
        """All parts in a row."""
        import pandas

        names = [f.name for f in fields(cls) if f.name not in ("names", "kind")]
        arrays = {name: np.concatenate([getattr(p, name) for p in parts]) for name in names}
        return cls(parts[0].kind, pandas.concat([p.names for p in parts], ignore_index=True), **arrays)

    def thinned(self) -> Rows:
        """A few of each laboratory, device and precision."""
        generator, names = np.random.default_rng(_SEED), self.names
        key = (names.source + "/" + names.device + "/" + names.precision + "/" + names.domain).to_numpy(dtype=str)
        kept = [generator.permutation(np.flatnonzero(key == value))[:_EACH] for value in np.unique(key)]
        return self.take(np.sort(np.concatenate(kept)))

    def parts(self, theta: np.ndarray, own: np.ndarray | float = 0.0, host: np.ndarray | float = 0.0) -> _Parts:
        """What the time is made of under ``theta`` [PARAMETERS]; ``own`` and ``host`` [N]: of the laboratory."""
        group, widened = theta[_AT["group"]] + theta[0], np.append(theta[_AT["autocast"]], 0.0)
        level = group[None, None, :] + widened[None, :, None] + np.reshape(own, (-1, 1, 1))
        device = self.device_s * np.exp(level)
        issued = self.host_s * np.exp(theta[_AT["host"]] + np.reshape(host, (-1, 1)))
        busy, issue = device.sum(axis=(1, 2)) + self.fixed_s, issued.sum(axis=1) + self.call_s
        total = busy + issue if self.kind == "cpu" else smooth_maximum(busy, issue, SMOOTHNESS)
        return _Parts(device, issued, busy, issue, total)

    def seconds(self, levels: Levels, *, there: bool = False) -> np.ndarray:
        """[N] seconds under the levels of the rows' kind of device; ``there``: with those of their laboratories."""
        theta = np.array([levels.get(level, {}).get(name, 0.0) for level, name in PARAMETERS])
        if not there:
            return self.parts(theta).total
        own, host, board = (
            self.names[of].map(levels[f"of {effect}"]).fillna(0.0).to_numpy()
            for of, effect in (("source", "source"), ("host", "host"), ("host", "board"))
        )
        return self.parts(theta, own + board, host).total


@dataclass(frozen=True, eq=False)
class _Parts:
    device: np.ndarray
    issued: np.ndarray
    busy: np.ndarray
    issue: np.ndarray
    total: np.ndarray


def of_steps(
    asked: Iterable[tuple[Steps, int, Way, float]], kind: str, names: Any, measured_s: np.ndarray, base: Base
) -> Rows:
    """The sums of steps (each: the step, its batch, how it ran, the scale of its bytes) under the prices ``base``."""
    device, host, fixed, call = [], [], [], []
    for steps, batch, way, byte_scale in asked:
        done = base.work(steps, np.array([batch]), way, byte_scale)
        sums = np.zeros((len(WIDENED) + 1, len(GROUPS)))
        np.add.at(sums, (done.widened, done.group), done.device_s)
        device.append(sums)
        host.append(np.bincount(steps.columns.part, done.host_s, len(PARTS)))
        fixed.append(done.fixed_s[0])
        call.append(done.call_s)
    return Rows(
        kind, names.reset_index(drop=True), np.asarray(measured_s, dtype=np.float64),
        np.reshape(device, (-1, len(WIDENED) + 1, len(GROUPS))), np.reshape(host, (-1, len(PARTS))),
        np.array(fixed), np.array(call),
    )  # fmt: skip


def of_dataset(dataset: Dataset, base: Base) -> Rows:
    """Every record of the vision corpora."""
    rows = dataset.rows
    host = rows.source + ("/" + rows.device).where(rows.source != "timm", "")
    names = rows[["source", "device", "precision", "family"]].assign(host=host, domain="vision", group=rows.source)
    steps = (Steps.one(step) for step in dataset.steps)
    asked = zip(steps, rows.batch, dataset.ways, dataset.byte_scale, strict=True)
    return of_steps(asked, "gpu", names, dataset.measured_s, base)


def of_questions(asked: Sequence[Question], kind: str, base: Base) -> Rows:
    """Those of a kind of device whose time was measured."""
    import pandas

    kept = [q for q in asked if q.way.device.kind == kind and np.isfinite(q.measured_s)]
    names = pandas.DataFrame(
        {
            "source": [q.source for q in kept],
            "device": [q.way.device.parent or q.way.device.id for q in kept],
            "precision": [q.way.precision for q in kept],
            "family": [q.model for q in kept],
            "host": [f"{q.source}/{q.way.device.parent or q.way.device.id}" for q in kept],
            "domain": [q.domain for q in kept],
            "group": [f"{q.source}/{q.domain}" for q in kept],
        }
    )
    return of_steps(
        ((q.steps, q.batch, q.way, 1.0) for q in kept), kind, names, np.array([q.measured_s for q in kept]), base
    )  # fmt: skip


def learned(
    dataset: Dataset, vision: Rows | None, asked: Sequence[Question], base: Base
) -> tuple[Rows, np.ndarray]:  # fmt: skip
    """What the levels of GPUs are fitted to, and [N] the row of the dataset that each is (-1: none).

    ``vision``: all of the dataset under ``base``, where that is at hand.
    """
    found = vision or of_dataset(dataset, base)
    usual = np.flatnonzero((dataset.rows.layout == "nchw") & (dataset.rows.precision != "fp64"))
    found = found.take(usual)
    found = Rows(found.kind, found.names.assign(at=usual), *_arrays(found))
    others = of_questions([q for q in asked if q.source not in OTHER_FRAMEWORKS], "gpu", base)
    others = Rows(others.kind, others.names.assign(at=-1), *_arrays(others))
    both = Rows.joined([found, others]).thinned()
    return both, both.names["at"].to_numpy()


def _arrays(rows: Rows) -> list[np.ndarray]:
    return [getattr(rows, f.name) for f in fields(rows) if f.name not in ("names", "kind")]


def fit(rows: Rows) -> dict[str, dict[str, float]]:
    """The levels that ship, of the rows' kind of device; none where there is no row.

    Beside them, as "of source", "of host" and "of board" (named as its host), the effects of laboratories, of their
    hosts and of their boards, which ship nothing.
    """
    count = len(PARAMETERS)
    laboratories, own = np.unique(rows.names.source.to_numpy(dtype=str), return_inverse=True)
    hosts, host = np.unique(rows.names.host.to_numpy(dtype=str), return_inverse=True)
    spread = _SPREAD[rows.kind]
    deviation = [_deviation(spread, *parameter) for parameter in PARAMETERS]
    # One laboratory alone has no effect of its own.
    alone = 1e-3 if len(laboratories) < 2 else 1.0
    # A laboratory's boards differ on the device, too: what is off there must not be its host's.
    deviation += [_LABORATORY * alone] * len(laboratories)
    deviation += [_HOST * alone] * len(hosts) + [_BOARD * alone] * len(hosts)
    apart = np.array(deviation)
    mean = np.zeros(len(apart))
    if rows.kind == "gpu":
        mean[:count] = [np.log(_KNOWN.get(name, 1.0)) for _, name in PARAMETERS]
    theta, target, every = mean.copy(), np.log(rows.measured_s), np.arange(len(rows))
    size = rows.names.groupby("group").group.transform("size").to_numpy(np.float64)
    base = np.sqrt(_WHOLE / np.maximum(size, _WHOLE))
    shipped = np.arange(len(apart)) < count
    parts = len(PARTS)
    of_host = np.linalg.inv(spread["host"] ** 2 * np.ones((parts, parts)) + _HOST_PART**2 * np.eye(parts))
    at_own, at_host = count + own, count + len(laboratories) + host
    at_board = at_host + len(hosts)
    for _ in range(_STEPS if len(rows) else 0):
        found = rows.parts(theta[:count], theta[at_own] + theta[at_board], theta[at_host])
        on_device, on_host = _slopes(rows.kind, found)
        jacobian = np.zeros((len(rows), len(apart)))
        jacobian[:, _AT["group"]] = found.device.sum(axis=1) * on_device[:, None]
        jacobian[:, _AT["autocast"]] = found.device.sum(axis=2)[:, : len(WIDENED)] * on_device[:, None]
        jacobian[:, _AT["host"]] = found.issued * on_host[:, None]
        jacobian[:, 0] = found.device.sum(axis=(1, 2)) * on_device
        jacobian[every, at_own] = jacobian[every, at_board] = jacobian[:, 0]
        jacobian[every, at_host] = found.issued.sum(axis=1) * on_host
        residual = (target - np.log(found.total)) / _NOISE
        weight = base * np.minimum(1.0, _HUBER / np.maximum(np.abs(residual), 1e-9)) / _NOISE**2
        # Laboratories have tails, too.
        tail = np.where(shipped, 1.0, np.minimum(1.0, apart / np.maximum(np.abs(theta), 1e-9)))
        prior = np.diag(tail / apart**2)
        prior[np.ix_(_AT["host"], _AT["host"])] = of_host
        left = (jacobian * weight[:, None]).T @ jacobian + prior
        step = np.linalg.solve(left, jacobian.T @ (weight * residual * _NOISE) - prior @ (theta - mean))
        theta = theta + np.clip(step, -0.5, 0.5)
        if np.abs(step).max() < 1e-4:
            break
    levels: dict[str, dict[str, float]] = {level: {} for level in _AT}
    for (level, name), value in zip(PARAMETERS, theta[:count].tolist(), strict=True):
        levels[level][name] = value
    effects = np.split(theta[count:], np.cumsum([len(laboratories), len(hosts)]))
    for of, names, values in zip(("source", "host", "board"), (laboratories, hosts, hosts), effects, strict=True):
        levels[f"of {of}"] = dict(zip(names.tolist(), values.tolist(), strict=True))
    return levels


def least_widths(levels: Levels) -> dict[str, float]:
    """Log half-width, either side, that holds nine in ten hosts by how far those of ``levels`` lie from what ships.

    A host is one draw, however many of its rows wait for it: errors of steps, of which few do, make that too narrow.
    From the middle of the distances, as of a normal distribution, since hosts have tails.
    """
    apart = np.abs(list(levels["of host"].values()))
    return {"host": _NINE_IN_TEN * float(np.median(apart)) if len(apart) > 1 else 0.0}


def _deviation(spread: Mapping[str, float], level: str, name: str) -> float:
    special = "optimizer" if name == "optimizer" else "forward" if name.endswith(", forward") else level
    special = "large" if name.startswith((LARGE_DEPTHWISE, AMD_BATCH_NORM)) else special
    known = (name in _KNOWN and not name.startswith(AMD_BATCH_NORM)) or level != "group"
    return spread[level if known else special]


def _slopes(kind: str, found: _Parts) -> tuple[np.ndarray, np.ndarray]:
    """[N] of the logarithm of the total by the seconds of the device, and by those of the host."""
    if kind == "cpu":
        return 1.0 / found.total, 1.0 / found.total
    return tuple((part / found.total) ** SMOOTHNESS / part for part in (found.busy, found.issue))
