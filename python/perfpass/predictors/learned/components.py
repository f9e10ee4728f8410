"""Few-parameter physics plus a Gaussian process on what it misses: the form of the generation and energy predictors.

A quantity (seconds, joules) is a sum of physical components (time to read the weights, joules per byte, ...), each
times a factor that is not negative. Factors are fitted per group of rows, from coarse groups to fine ones, each
drawn to the coarser one's; a row takes the finest group that was measured. A Gaussian process on log(measured /
sum) (Rasmussen and Williams, 2006, chapter 2) corrects it from similar rows. Kernels are products of
exp(-distance), so far from all records the correction fades and the physics stay. Scoring needs NumPy alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from perfpass.errors import ArtefactError
from perfpass.predictors.learned import artefacts
from perfpass.predictors.learned.intervals import distinct

_CHUNK = 256  # rows whose covariance with some thousand measured ones takes 10 MB
_MANY = 64  # rows from which on to look for equal measured ones takes less than it saves
UNSEEN_MODEL = ", model unseen"


@dataclass(frozen=True)
class Term:
    """One term of the kernel: ``amplitude`` times the products asked for, where the ``equal`` categories agree."""

    amplitude: float
    equal: tuple[str, ...] = ()
    workload: bool = True
    traits: bool = True


@dataclass(frozen=True)
class Form:
    """What a predictor of this kind is made of.

    ``components``: names of the physical terms. ``workload`` and ``traits``: length scale of each numeric column, in
    its own (mostly logarithmic) unit. ``levels``: categories that make the groups, coarse to fine; ``support``: what is
    known where a level is the finest measured, in words. ``averaged``: levels whose corrected predictions are averaged
    (geometrically) for rows whose finest group was measured; other rows take the finest measured level alone.
    ``given``: factors of components that other records taught, of all groups.
    """

    components: tuple[str, ...]
    workload: Mapping[str, float]
    traits: Mapping[str, float]
    categories: tuple[str, ...]
    levels: tuple[tuple[str, ...], ...]
    averaged: tuple[int, ...]
    terms: tuple[Term, ...]
    noise: float
    support: tuple[str, ...]
    given: tuple[tuple[str, float], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON; an artefact keeps it to tell whether it fits this version."""
        return {
            "components": list(self.components),
            "workload": dict(self.workload),
            "traits": dict(self.traits),
            "categories": list(self.categories),
            "levels": [list(level) for level in self.levels],
            "averaged": list(self.averaged),
            "terms": [[t.amplitude, list(t.equal), t.workload, t.traits] for t in self.terms],
            "noise": self.noise,
            "support": list(self.support),
            **({"given": dict(self.given)} if self.given else {}),
        }


@dataclass(frozen=True)
class Rows:
    """N workloads as a predictor sees them.

    ``components`` [N, K] >= 0, ``workload`` [N, P], ``traits`` [N, Q] (both in the units of the form's length scales),
    ``categories`` [N, C] of text. ``apart`` [N]: rows that only groups of their own may learn from.
    """

    components: np.ndarray
    workload: np.ndarray
    traits: np.ndarray
    categories: np.ndarray
    apart: np.ndarray

    def __len__(self) -> int:
        return len(self.components)

    def take(self, index: np.ndarray) -> Rows:
        """Some of the rows."""
        return Rows(*(getattr(self, name)[index] for name in self.__dataclass_fields__))

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> Rows:
        """All parts in a row."""
        return cls(*(np.concatenate([getattr(p, name) for p in parts]) for name in cls.__dataclass_fields__))


def key_of(values: Sequence[str]) -> str:
    """A group's name in an artefact."""
    return "|".join(values)


@dataclass(frozen=True)
class Known:
    """Measured rows that the process remembers: scaled numbers, codes of categories, and weights [M, len(levels)]."""

    workload: np.ndarray
    traits: np.ndarray
    codes: np.ndarray
    weights: np.ndarray


@dataclass(frozen=True)
class Fitted:
    """A fitted predictor of one quantity. ``factors[level][group]`` [K]; ``names[c]``: the texts behind the codes."""

    form: Form
    factors: tuple[dict[str, np.ndarray], ...]
    names: tuple[tuple[str, ...], ...]
    known: Known

    @cached_property
    def _known_traits(self) -> frozenset[bytes]:
        """Traits of measured models."""
        return frozenset(t.tobytes() for t in self.known.traits.astype(np.float32))

    def base(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        """Uncorrected predictions [N, len(levels)] (NaN where the group was not measured), and the finest level [N]."""
        columns = {name: i for i, name in enumerate(self.form.categories)}
        out = np.full((len(rows), len(self.form.levels)), np.nan)
        texts, place = _texts(rows)
        for number, level in enumerate(self.form.levels):
            groups = self.factors[number]
            index = [columns[name] for name in level]
            keys = [key_of([row[i] for i in index]) for row in texts]
            for key in set(keys) & groups.keys():
                inside = np.array([one == key for one in keys])[place]
                out[inside, number] = rows.components[inside] @ groups[key]
        finest = np.where(np.isfinite(out), np.arange(len(self.form.levels)), -1).max(axis=1)
        return out, finest

    def predict(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        """Median [N], and how unlike the measured rows each is [N] > 0, in logarithms (one standard deviation)."""
        correction, spread = self.correction(rows)
        return np.exp(self.physics(rows) + correction), spread

    def physics(self, rows: Rows) -> np.ndarray:
        """Logarithms [N] of medians before their correction: sums of components, which never fall with them."""
        base, finest = self.base(rows)
        return self._own(np.log(np.maximum(base, 1e-30)), finest)

    def correction(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        """What is added to `physics` [N], and the spread [N] as `predict` gives it."""
        correction, spread = self._process(rows)
        return self._own(correction, self.base(rows)[1]), spread

    def _own(self, values: np.ndarray, finest: np.ndarray) -> np.ndarray:
        own = values[np.arange(len(values)), finest]
        complete = finest == len(self.form.levels) - 1
        if self.form.averaged and complete.any():
            own[complete] = values[complete][:, list(self.form.averaged)].mean(axis=1)
        return np.asarray(own)

    def groups(self, rows: Rows) -> list[str]:
        """Per row the finest measured group, as "level:key"."""
        columns = {name: i for i, name in enumerate(self.form.categories)}
        out = []
        for row, level in zip(rows.categories, self.base(rows)[1], strict=True):
            out.append(f"{level}:{key_of([row[columns[name]] for name in self.form.levels[level]])}")
        return out

    def evidence(self, rows: Rows) -> np.ndarray:
        """[N] what stands behind each row: the form's ``support``, and `UNSEEN_MODEL` for traits never measured."""
        finest = self.base(rows)[1]
        traits = scaled(self.form, rows, self.names)[1].astype(np.float32)
        unseen = [UNSEEN_MODEL if t.tobytes() not in self._known_traits else "" for t in traits]
        return np.array([self.form.support[f] + u for f, u in zip(finest, unseen, strict=True)], dtype=object)

    def _process(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        workload, traits, codes = scaled(self.form, rows, self.names)
        correction = np.zeros((len(rows), len(self.form.levels)))
        nearest = np.zeros(len(rows))
        known = (self.known.workload, self.known.traits, self.known.codes)
        covariance = _covariance(self.form, (workload, traits, codes), known)
        for start in range(0, len(rows), _CHUNK):
            part = slice(start, start + _CHUNK)
            values = covariance(part)
            correction[part] = values @ self.known.weights
            nearest[part] = values.max(axis=1)
        variance = sum(t.amplitude for t in self.form.terms)
        # What is left of the variance when the most similar row alone is known.
        left = variance - nearest**2 / (variance + self.form.noise)
        return correction, np.sqrt(np.maximum(left, 0.0) + self.form.noise)

    def files(self, name: str) -> tuple[dict[str, Any], dict[str, bytes]]:
        """The manifest's entry, and the files of the artefact."""
        entry = {
            "form": self.form.to_dict(),
            "factors": [{g: [float(f"{v:.6g}") for v in f] for g, f in level.items()} for level in self.factors],
            "names": [list(names) for names in self.names],
        }
        numbers = np.concatenate([self.known.workload, self.known.traits], axis=1)
        return entry, {
            f"{name}_rows.npy": artefacts.array_bytes(numbers.astype(np.float32)),
            f"{name}_codes.npy": artefacts.array_bytes(self.known.codes.astype(np.int16)),
            f"{name}_weights.npy": artefacts.array_bytes(self.known.weights.astype(np.float32)),
        }

    @classmethod
    def read(cls, form: Form, artefact: artefacts.Artefact, name: str) -> Fitted:
        """The inverse of `files`. Raises ArtefactError where the artefact was made for another form."""
        entry = artefact.manifest.get(name, {})
        if entry.get("form") != form.to_dict():
            raise ArtefactError(
                f"{artefact.folder}: {name} is not of the form that this version computes; run `perfpass train`"
            )
        numbers = artefact.array(f"{name}_rows.npy").astype(np.float64)
        codes = artefact.array(f"{name}_codes.npy").astype(np.int64)
        weights = artefact.array(f"{name}_weights.npy").astype(np.float64)
        width = len(form.workload) + len(form.traits)
        if numbers.shape != (len(codes), width) or weights.shape != (len(codes), len(form.levels)):
            raise ArtefactError(f"{artefact.folder}: {name} has arrays of {numbers.shape} and {weights.shape}")
        split = len(form.workload)
        return cls(
            form,
            tuple({g: np.array(f) for g, f in level.items()} for level in entry["factors"]),
            tuple(tuple(names) for names in entry["names"]),
            Known(numbers[:, :split], numbers[:, split:], codes, weights),
        )


@dataclass(frozen=True)
class Adaptation:
    """What a few measurements tell about a device or software stack that has none.

    ``factors``: new factors of the groups (`Fitted.groups`) with enough of them; a second, small process corrects what
    is left everywhere. Made by `perfpass.training.components.fit.adapt`.
    """

    form: Form
    names: tuple[tuple[str, ...], ...]
    numbers: tuple[np.ndarray, np.ndarray, np.ndarray]
    weights: np.ndarray
    factors: Mapping[str, np.ndarray]

    def predict(self, fitted: Fitted, rows: Rows) -> np.ndarray:
        """Corrected medians [N]."""
        correction = kernel(self.form, scaled(self.form, rows, self.names), self.numbers) @ self.weights
        return np.asarray(self.start(fitted, rows, self.factors) * np.exp(correction))

    @staticmethod
    def start(fitted: Fitted, rows: Rows, factors: Mapping[str, np.ndarray]) -> np.ndarray:
        """Medians [N] before the second process."""
        median = fitted.predict(rows)[0]
        for i, group in enumerate(fitted.groups(rows)):
            if group in factors:
                median[i] = max(float(rows.components[i] @ factors[group]), 1e-30)
        return median


def scaled(form: Form, rows: Rows, names: tuple[tuple[str, ...], ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers in units of their length scales, and codes of categories (-1: not among ``names``)."""
    workload = rows.workload / np.array(list(form.workload.values()), dtype=np.float64)
    traits = rows.traits / np.array(list(form.traits.values()), dtype=np.float64)
    texts, place = _texts(rows)
    codes = np.full((len(texts), len(form.categories)), -1, dtype=np.int64)
    for c, known in enumerate(names):
        code = {text: i for i, text in enumerate(known)}
        codes[:, c] = [code.get(row[c], -1) for row in texts]
    return workload, traits, codes[place]


def _texts(rows: Rows) -> tuple[list[tuple[str, ...]], np.ndarray]:
    """Different rows of categories, and [N] which of them each row has: one for all sizes of a deployment."""
    categories = rows.categories
    if len(rows) and (categories == categories[0]).all():
        return [tuple(categories[0])], np.zeros(len(rows), dtype=np.intp)
    found: dict[tuple[str, ...], int] = {}
    place = [found.setdefault(tuple(row), len(found)) for row in categories.tolist()]
    return list(found), np.array(place, dtype=np.intp)


_Scaled = tuple[np.ndarray, np.ndarray, np.ndarray]


def kernel(form: Form, a: _Scaled, b: _Scaled) -> np.ndarray:
    """[N, M] covariance between rows, each given as `scaled` gives them. An unknown category equals nothing."""
    return _covariance(form, a, b)(slice(None))


def _covariance(form: Form, a: _Scaled, b: _Scaled) -> Callable[[slice], np.ndarray]:
    """`kernel` of some of the rows ``a``. Those of one lattice of sizes have their traits and categories in common, and
    measured ones are of few sizes and fewer models: what pairs have in common is worked out once.
    """
    columns = {name: i for i, name in enumerate(form.categories)}
    near = {(True, False): _near(a[0], b[0]), (False, True): _near(a[1], b[1])}

    def of(part: slice) -> np.ndarray:
        codes = a[2][part]
        if (codes == codes[:1]).all():
            codes = codes[:1]
        same = {}
        for name in {n for t in form.terms for n in t.equal}:
            c = columns[name]
            same[name] = (codes[:, c][:, None] == b[2][:, c]) & (codes[:, c][:, None] >= 0)
        # Amplitudes are summed by what they multiply: each large product is then taken once.
        sums: dict[tuple[bool, bool], np.ndarray] = {}
        for term in form.terms:
            amplitude = sums.setdefault((term.workload, term.traits), np.zeros((len(codes), len(b[0]))))
            equal = [same[name] for name in term.equal]
            amplitude += term.amplitude * np.logical_and.reduce(equal) if equal else term.amplitude
        workload, traits = (near[which](part) for which in near)
        out = np.zeros((len(a[0][part]), len(b[0])))
        for (use_workload, use_traits), amplitude in sums.items():
            if use_workload:
                amplitude = amplitude * workload
            if use_traits:
                amplitude = amplitude * traits
            out += amplitude
        return out

    return of


def _near(a: np.ndarray, b: np.ndarray) -> Callable[[slice], np.ndarray]:
    """[n, M] exp(-distance) of some of the rows ``a`` to ``b`` [M, K]; [1, M] where all of them are one."""
    if len(a) < _MANY:
        plain = np.exp(-_distance(a, b))
        return lambda part: plain[part]
    (rows, row), (columns, column) = distinct(a), distinct(b)
    near = np.exp(-_distance(a[rows], b[columns]))
    if len(rows) == 1:
        one = near[:, column]
        return lambda part: one
    return lambda part: near[row[part]][:, column]


def _distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    squares = (a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1) - 2.0 * a @ b.T
    return np.sqrt(np.maximum(squares, 0.0))
