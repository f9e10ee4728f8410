"""A predictor of one or more quantities from one artefact of fitted components; an area adds what its runs are.

Median and spread come from `components.Fitted`, bounds from widths by causes (`component_widths`). NumPy alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from perfpass.errors import ArtefactError
from perfpass.prediction import Interval, Support, SupportLevel
from perfpass.predictors.learned import artefacts
from perfpass.predictors.learned.component_widths import lacks
from perfpass.predictors.learned.components import UNSEEN_MODEL, Fitted, Form, Rows
from perfpass.predictors.learned.spread import Spread
from perfpass.text import figure

# How far, in the (mostly logarithmic) units of a form, a number may leave the measured range and still count as inside.
_MARGIN = 0.05


@dataclass(frozen=True)
class Learned:
    """A learned figure: its interval and what stands behind it.

    ``evidence``: as `components.Fitted.evidence` has it. ``kind`` is "learned" (physics alone say "physics").
    """

    value: Interval
    support: Support
    evidence: str = ""
    kind: str = "learned"

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return {"value": self.value.to_dict(), "support": self.support.to_dict(), "kind": self.kind}


# What values are called in reasons, by the names of forms.
_WORDS = {
    "batch": "number of requests at once",
    "users": "number of requests at once",
    "devices": "number of devices",
    "input": "length of the prompt",
    "tokens": "length of the prompt",
    "output": "length of the answer",
    "held": "seconds of all devices per output token",
    "active": "active parameters",
    "cache": "elements of cache per token and layer",
    "vocabulary": "size of the vocabulary",
    "experts": "number of experts",
    "layers": "number of layers",
}


class ComponentPredictor:
    """Reads ``QUANTITIES`` (name: form and unit) from the artefact of ``AREA``.

    ``SUBJECT`` begins each reason of a support; ``OUTSIDE`` lists the evidence that makes it "outside".
    """

    AREA: ClassVar[str]
    QUANTITIES: ClassVar[Mapping[str, tuple[Form, str]]]
    SUBJECT: ClassVar[str] = ""
    OUTSIDE: ClassVar[tuple[str, ...]] = ()

    def __init__(self, folder: Path | str | None = None) -> None:
        """Reads the shipped artefact, or the one in ``folder``. Raises ArtefactError."""
        artefact = artefacts.Artefact(folder or artefacts.shipped(self.AREA))
        manifest, names = artefact.manifest, tuple(self.QUANTITIES)
        self.fitted = {name: Fitted.read(form, artefact, name) for name, (form, _) in self.QUANTITIES.items()}
        for name in names:
            if "spread" not in manifest[name]:
                raise ArtefactError(f"{artefact.folder}: {name} has no widths; run `perfpass train {self.AREA}`")
        self.spread = {name: Spread.from_dict(manifest[name]["spread"]) for name in names}
        self.ranges: dict[str, Any] = {name: manifest["ranges"][name] for name in names}
        self.corpus: dict[str, Any] = {name: manifest["corpus"][name] for name in names}

    def one(self, name: str, rows: Rows, more: Mapping[str, float] | None = None) -> Learned:
        """The quantity ``name`` of the first of ``rows``; ``more``: as `log_bounds` takes it."""
        beyond = self.beyond(name, rows)
        value, evidence = self.interval(name, rows, more)
        return Learned(value, self._support(evidence, beyond), evidence)

    def log_bounds(
        self,
        name: str,
        evidence: np.ndarray,
        spread: np.ndarray,
        more: Mapping[str, np.ndarray | float] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """[N] log bounds around medians: widths by causes, ``more`` of them as `component_widths.lacks` takes them."""
        widths = self.spread[name]
        return widths.bounds(lacks(self.fitted[name].form, evidence, spread, more, widths.causes))

    def interval(self, name: str, rows: Rows, more: Mapping[str, float] | None = None) -> tuple[Interval, str]:
        """The interval of the first of ``rows`` and its evidence; ``more`` as `log_bounds` takes it."""
        fitted = self.fitted[name]
        median, spread = fitted.predict(rows)
        evidence = fitted.evidence(rows)
        unknown = {"load": self.far(name, rows), **self.of_boards(rows, evidence), **(more or {})}
        low, high = self.log_bounds(name, evidence, spread, unknown)
        at, unit = float(median[0]), self.QUANTITIES[name][1]
        value = Interval(at, at * float(np.exp(low[0])), at * float(np.exp(high[0])), unit)
        return value, str(evidence[0])

    def around(
        self,
        name: str,
        rows: Rows,
        inside: Rows,
        place: np.ndarray,
        more: Mapping[str, np.ndarray | float] | None = None,
    ) -> tuple[np.ndarray, ...]:
        """Logarithms of low, median and high [N] of ``rows`` of one model, device and software.

        ``inside`` and ``place`` [N]: rows of measured sizes, and which of them is nearest to each of ``rows``. What is
        learned corrects the physics there; beyond them its correction holds. ``more`` as `log_bounds` takes it.
        """
        median, spread, evidence = self.middle(name, rows, inside, place)
        low, high = self.log_bounds(name, evidence, spread, {**self.of_boards(rows, evidence), **(more or {})})
        return median + low, median, median + high

    def middle(self, name: str, rows: Rows, inside: Rows, place: np.ndarray) -> tuple[np.ndarray, ...]:
        """Logarithms of the medians [N] of `around`, how far they spread [N], and their evidence [N]."""
        fitted = self.fitted[name]
        correction, spread = (values[place] for values in fitted.correction(inside))
        evidence = np.broadcast_to(fitted.evidence(inside.take(np.arange(1))), len(rows))
        return fitted.physics(rows) + correction, spread, evidence

    def of_boards(self, rows: Rows, evidence: np.ndarray) -> Mapping[str, np.ndarray | float]:
        """What N questions lack of their boards, beyond what ``evidence`` [N] says; nothing unless an area has more."""
        return {}

    def measured_on(self, name: str, software: str) -> list[str]:
        """Ids of the devices on which this software was measured; a device under two names counts by the first."""
        keys = [key.split("|") for key in self.fitted[name].factors[-1]]
        return sorted({device for runtime, *_, device in keys if runtime == software and " " not in device})

    def beyond(self, name: str, rows: Rows) -> list[str]:
        """What of the first of ``rows`` lies outside of all that was measured, as sentences."""
        form = self.QUANTITIES[name][0]
        labels = [*form.workload, *form.traits]
        values = np.concatenate([rows.workload[0], rows.traits[0]])
        return [
            f"{self.SUBJECT}{_outside(label, float(value), float(low), float(high))}"
            for label, value, (low, high), outside in zip(
                labels, values, self.ranges[name], self.outside(name, rows)[0], strict=True
            )
            if outside
        ]

    def outside(self, name: str, rows: Rows) -> np.ndarray:
        """[N, columns of workload and traits] which numbers lie outside of all that was measured."""
        low, high = np.array(self.ranges[name], dtype=np.float64).T
        values = np.concatenate([rows.workload, rows.traits], axis=1)
        return np.asarray((values < low - _MARGIN) | (values > high + _MARGIN))

    def far(self, name: str, rows: Rows) -> np.ndarray:
        """[N] how far all numbers together lie beyond those measured, in the (mostly logarithmic) units of the form."""
        low, high = np.array(self.ranges[name], dtype=np.float64).T
        values = np.concatenate([rows.workload, rows.traits], axis=1)
        return np.asarray((np.maximum(low - values, 0.0) + np.maximum(values - high, 0.0)).sum(axis=1))

    def _support(self, evidence: str, beyond: list[str]) -> Support:
        known = evidence.removesuffix(UNSEEN_MODEL)
        reasons = list(beyond)
        if known != "seen":
            reasons.append(f"{self.SUBJECT}{known}; carried over by physics from what was learned")
        if evidence.endswith(UNSEEN_MODEL):
            reasons.append(f"{self.SUBJECT}no model of this architecture was measured")
        level: SupportLevel = "near" if reasons else "in range"
        if beyond or known in self.OUTSIDE:
            level = "outside"
        return Support(level, tuple(reasons))


def _outside(label: str, value: float, low: float, high: float) -> str:
    """A sentence on a value, as its form has it (its logarithm), that lies beyond those measured."""
    scale, _, name = label.partition("_")
    words = _WORDS.get(name, name.replace("_", " "))
    base = {"log": np.e, "log2": 2.0}.get(scale)
    if base is None:
        return f"{words or label} is outside what was measured"
    shown = (figure(float(base**v)) for v in (value, low, high))
    return "{} {} is outside the measured {} to {}".format(words, *shown)
