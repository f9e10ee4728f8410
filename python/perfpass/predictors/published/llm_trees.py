"""Trees on the LLM feature table: offline generation by language models, from a configuration and a device.

XGBoost on a table of model, workload and hardware (Panner Selvam and Brorsson, ARC-LG workshop at ISCA 2024), trained
on the records of offline generation. `perfpass.predictors.generation.predictor` is the default for this workload: it
errs less (docs/research/llm-trees.md). Scoring needs NumPy and the compiled core.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.errors import ArtefactError, UnsupportedError
from perfpass.llm import table as llm_table
from perfpass.prediction import Interval, Support
from perfpass.predictors.generation.features import RUNTIMES, Batch
from perfpass.predictors.generation.prediction import Offline, costs_of
from perfpass.predictors.generation.predictor import beyond_measured, check_fits
from perfpass.predictors.learned import artefacts

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.graph import OpGraph
    from perfpass.prediction import Prediction

# What follows the table's columns.
RUN_COLUMNS = (*(f"runtime {r}" for r in RUNTIMES), "second stack")
# Log widths grow so where neither the device nor the runtime was measured. By hand, as of the generation predictor.
_BEYOND = 2.0


def columns() -> tuple[str, ...]:
    """The columns that the trees read: all of the table that no traced graph is needed for, then RUN_COLUMNS."""
    return (*(c for c in llm_table.COLUMNS if c not in llm_table.TRACED), *RUN_COLUMNS)


def table_row(b: Batch, nodes: float = np.nan, edges: float = np.nan) -> np.ndarray:
    """[len(llm_table.COLUMNS)] of a batch; ``nodes`` and ``edges`` of the traced graph, where there is one."""
    return llm_table.row(
        b.model,
        b.device,
        batch=b.batch,
        input_tokens=b.input_tokens,
        output_tokens=b.output_tokens,
        precision=b.precision,
        devices=b.devices,
        nodes=nodes,
        edges=edges,
    )


def matrix(batches: list[Batch]) -> np.ndarray:
    """[N, len(columns())] float32."""
    places = [i for i, c in enumerate(llm_table.COLUMNS) if c not in llm_table.TRACED]
    rows = []
    for b in batches:
        rows.append([*table_row(b)[places], *(b.runtime == r for r in RUNTIMES), bool(b.stack)])
    return np.array(rows, dtype=np.float32).reshape(-1, len(columns()))


class LlmTreesPredictor:
    """Latency of one batch of equal requests."""

    def __init__(self, folder: Path | str | None = None) -> None:
        """Reads the shipped artefact, or the one in ``folder``. Raises ArtefactError."""
        artefact = artefacts.Artefact(folder or artefacts.shipped("llm-trees"))
        self.manifest: dict[str, Any] = artefact.manifest
        expected = {"columns": list(columns()), "table_version": llm_table.VERSION}
        for name, value in expected.items():
            if self.manifest.get(name) != value:
                raise ArtefactError(
                    f"{artefact.folder}: {name} is not what this version computes; train llm-trees again"
                )
        self._trees = artefact.trees("latency")
        self._bounds: dict[str, list[float]] = self.manifest["bounds"]

    @staticmethod
    @lru_cache(maxsize=1)
    def load() -> LlmTreesPredictor:
        """The shipped predictor, read once per process."""
        return LlmTreesPredictor()

    def log_latency(self, batches: list[Batch]) -> np.ndarray:
        """[N] log of seconds."""
        return np.asarray(self._trees.predict(matrix(batches)), dtype=np.float64)

    def predict(self, batch: Batch) -> tuple[Interval, Support]:
        """Seconds, first prompt token to last output token of the whole batch, and how far records stand behind."""
        measured = self.manifest["measured"]
        reasons = []
        if batch.device.id not in measured["devices"]:
            reasons.append(f"no run on {batch.device.name} to learn from")
        elif [batch.device.id, batch.runtime] not in measured["runtimes"]:
            reasons.append(f"no run of {batch.runtime} on {batch.device.name} to learn from")
        evidence = "device unseen" if reasons else "seen"
        if batch.model.parameters not in measured["parameters"]:
            reasons.append("no run of this model to learn from")
            evidence = evidence if evidence != "seen" else "model unseen"
        low, high = self._bounds[evidence]
        beyond = beyond_measured(batch, self.manifest["ranges"])
        runtimes = {r for _, r in measured["runtimes"]}
        if batch.runtime not in runtimes:
            beyond.append(f"no run of {batch.runtime} to learn from")
        if beyond:
            low, high = low * _BEYOND, high * _BEYOND
        median, least, most = self._seconds(batch)
        level: Any = {"seen": "in range", "model unseen": "near"}.get(evidence, "outside") if not beyond else "outside"
        return Interval(median, least * float(np.exp(low)), most * float(np.exp(high)), "s"), Support(
            level, (*reasons, *beyond)
        )

    def _seconds(self, batch: Batch) -> tuple[float, float, float]:
        """Median, least and most. Trees cannot tell lengths apart that never differed: where they do, the median is
        that of a prompt as long as the answer, which takes most of the time; prompt and answer bound the rest.
        """
        lengths = (batch.output_tokens, *sorted((batch.input_tokens, batch.output_tokens)))
        equal = [replace(batch, input_tokens=n, output_tokens=n) for n in lengths]
        median, least, most = np.exp(self.log_latency(equal)).tolist()
        return median, min(least, median), max(most, median)


def offline(batch: Batch) -> Offline:
    """What the shipped trees say of a batch. Raises ArgumentError where the weights do not fit into memory."""
    check_fits(batch)
    predictor = LlmTreesPredictor.load()
    latency, support = predictor.predict(batch)
    provenance = {"kind": "learned", "predictor": "llm-trees", "corpus": predictor.manifest["corpus"]}
    return costs_of(batch, latency, support, provenance)


def answer(found: Prediction, graph: OpGraph, device: Device) -> Prediction:
    """Nothing: trees read a configuration. Raises UnsupportedError, which says where they answer."""
    raise UnsupportedError(
        "llm-trees answers offline generation by a language model from its configuration, not an operator graph: "
        "`perfpass llm MODEL --predictor llm-trees --input-length N --output-length N --concurrency N`"
    )
