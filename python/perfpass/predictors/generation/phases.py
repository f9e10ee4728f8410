"""Prefill and decode time of language models, alone or on a loaded server, learned from second sources.

`perfpass llm` predicts current serving stacks on current boards. These records add older
boards (V100 to A10, T4), a server of 2023 under load, and accelerators of other vendors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.errors import ArgumentError
from perfpass.prediction import Interval, Support, SupportLevel
from perfpass.predictors.generation import phase_features as features
from perfpass.predictors.learned import artefacts
from perfpass.predictors.learned.components import UNSEEN_MODEL, Bounds, Fitted, Form, Rows

QUANTITIES: Mapping[str, Form] = {
    "prefill": features.ALONE,
    "decode": features.ALONE,
    "loaded_first_token": features.LOADED,
    "loaded_between_tokens": features.LOADED,
}
# Beyond measured ranges no held-out error speaks for the bounds: their logarithmic width grows so much. By hand.
BEYOND = 2.0


@dataclass(frozen=True)
class PhaseTime:
    """Milliseconds of one phase and what stands behind them."""

    latency_ms: Interval
    support: Support

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return {"latency_ms": self.latency_ms.to_dict(), "support": self.support.to_dict()}


class PhasePredictor:
    """The times of `QUANTITIES`, from a trained artefact; NumPy alone."""

    def __init__(self, folder: Path | str | None = None) -> None:
        """Reads the shipped artefact, or the one in ``folder``. Raises ArtefactError."""
        artefact = artefacts.Artefact(folder or artefacts.shipped("phases"))
        self._fitted = {name: Fitted.read(form, artefact, name) for name, form in QUANTITIES.items()}
        self._bounds = {
            name: Bounds({k: (v[0], v[1]) for k, v in artefact.manifest[name]["bounds"].items()}) for name in QUANTITIES
        }
        self._ranges: dict[str, list[list[float]]] = artefact.manifest["ranges"]
        self.corpus: dict[str, Any] = artefact.manifest["corpus"]

    @staticmethod
    @lru_cache(maxsize=1)
    def load() -> PhasePredictor:
        """The shipped predictor, read once per process."""
        return PhasePredictor()

    def predict(self, quantity: str, phase: features.Phase) -> PhaseTime:
        """``quantity``: "prefill" (all first tokens of a batch), "decode" (one step), "loaded_first_token" (queueing
        included) or "loaded_between_tokens" with ``batch`` users. Raises ArgumentError for another.
        """
        rows = self._rows(quantity, phase)
        fitted = self._fitted[quantity]
        median, spread = fitted.predict(rows)
        evidence = str(fitted.evidence(rows)[0])
        beyond = self._beyond(quantity, rows)
        seconds = self._bounds[quantity].interval(
            float(median[0]), float(spread[0]), evidence, "s", BEYOND if beyond else 1.0
        )
        return PhaseTime(seconds.scaled(1e3, "ms"), _support(evidence, beyond))

    def _rows(self, quantity: str, phase: features.Phase) -> Rows:
        if quantity == "prefill":
            return features.prefill_rows([phase])
        if quantity == "decode":
            return features.decode_rows([phase])
        if quantity in QUANTITIES:
            return features.loaded_rows([phase], first=quantity == "loaded_first_token")
        raise ArgumentError(f"quantity {quantity!r}; allowed are {', '.join(QUANTITIES)}")

    def _beyond(self, quantity: str, rows: Rows) -> list[str]:
        form = QUANTITIES[quantity]
        values = np.concatenate([rows.workload[0], rows.traits[0]])
        return [
            f"{label.split('_', 1)[-1]} is outside what was measured"
            for label, value, (low, high) in zip(
                [*form.workload, *form.traits], values, self._ranges[quantity], strict=True
            )
            if not low - 0.05 <= value <= high + 0.05
        ]


def _support(evidence: str, beyond: list[str]) -> Support:
    known = evidence.removesuffix(UNSEEN_MODEL)
    reasons = list(beyond)
    if known != "seen":
        reasons.append(f"{known}; carried over by physics from what was measured")
    if evidence.endswith(UNSEEN_MODEL):
        reasons.append("no model of this architecture was measured")
    level: SupportLevel = "near" if reasons else "in range"
    if beyond or known == "runtime unseen":
        level = "outside"
    return Support(level, tuple(reasons))
