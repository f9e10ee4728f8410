"""TVM's counts of candidates, taken once per candidate: by MetaSchedule's extractor, in its own threads."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

from tvm_perfpass.cost_model import tvm_names
from tvm_perfpass.cost_model.features import candidate_features, total_flops
from tvm_perfpass.cost_model.hardware import Hardware

# A search of the default size looks at 2,560 candidates a round, of which the fittest come back; 148 floats each.
_CACHE = 20_000


class Extractor:
    """Features of MetaSchedule's candidates, remembered by the structural hash of their program."""

    def __init__(self, hardware: Hardware) -> None:
        self.hardware = hardware
        self._counts = tvm_names.meta_schedule().feature_extractor.PerStoreFeature()
        self._known: OrderedDict[int, np.ndarray] = OrderedDict()
        self._least: dict[int, float | None] = {}

    def extract(self, context: Any, candidates: Sequence[Any]) -> tuple[np.ndarray, list[int]]:
        """Features [n, COUNT] and hashes [n] of the candidates of one task."""
        hashes = [tvm_names.structural_hash(candidate.sch.mod) for candidate in candidates]
        fresh = {key: candidate for key, candidate in zip(hashes, candidates, strict=True) if key not in self._known}
        if fresh:
            features, _ = candidate_features(
                self._rows(context, list(fresh.values())), self.hardware, self.task_flops(context)
            )
            self._known.update(zip(fresh, features, strict=True))
        found = np.stack([self._known[key] for key in hashes])
        for key in hashes:
            self._known.move_to_end(key)
        while len(self._known) > _CACHE:
            self._known.popitem(last=False)
        return found, hashes

    def task_flops(self, context: Any) -> float | None:
        """Weighted operations of the task's own, unscheduled program; None where TVM cannot count it."""
        key = tvm_names.structural_hash(context.mod)
        if key not in self._least:
            self._least[key] = None
            rows = self.unscheduled(context)
            if rows is not None:
                self._least[key] = total_flops(rows) or None
        return self._least[key]

    def unscheduled(self, context: Any) -> np.ndarray | None:
        """TVM's counts of the task's program as it came; None where it cannot be scheduled at all."""
        measure = tvm_names.meta_schedule()
        candidate_type = getattr(measure, "MeasureCandidate", None) or measure.search_strategy.MeasureCandidate
        try:
            candidate = candidate_type(tvm_names.schedule(context.mod), [])
            return self._rows(context, [candidate])[0]
        except Exception:  # whatever TVM raises for a program that it cannot schedule; nothing depends on it
            return None

    def _rows(self, context: Any, candidates: list[Any]) -> list[np.ndarray]:
        return [np.asarray(tensor.numpy()) for tensor in self._counts.extract_from(context, candidates)]
