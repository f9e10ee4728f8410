"""TraPPM: a frozen graph autoencoder beside a GraphSAGE regressor.

Its card and what was tried: docs/predictors/published.md, docs/research/trappm.md.

It says how long a run takes, and of a training step also the peak of memory, for that is what our records measured; one
regressor for each. What it does not say stays that of our own predictor, and the support names it. NumPy alone is
needed.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass import features
from perfpass.errors import ArtefactError
from perfpass.prediction import Prediction
from perfpass.predictors.learned import artefacts
from perfpass.predictors.memory.allowance import in_a_slice
from perfpass.predictors.mig.profile import hint
from perfpass.predictors.published import answer as graph_predictor
from perfpass.predictors.published.answer import Learned
from perfpass.predictors.published.graph_classes import Classes, classes, first_rounds
from perfpass.predictors.published.graph_network import GraphNetwork, Scaling, Spec
from perfpass.predictors.published.run_features import RUN_FEATURES

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.graph import OpGraph

SCHEMA = "trappm"


class Regressor:
    """The network of one task, with its scalings."""

    def __init__(self, spec: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Raises ArtefactError, or KeyError where an array is missing."""
        self.network = GraphNetwork(Spec.from_dict(spec), arrays)
        self._nodes = Scaling(True, arrays["nodes.mean"], arrays["nodes.factor"])
        self._statics = Scaling(False, arrays["statics.mean"], arrays["statics.factor"])
        self._targets = arrays["targets.mean"], arrays["targets.scale"]

    def __call__(self, on: Classes, statics: np.ndarray) -> np.ndarray:
        """[R] in the task's unit, of ``statics`` [R, S] in logarithms."""
        embedding = self.network.readout(replace(on, nodes=self._nodes(on.nodes)))
        raw = self.network.head(np.repeat(embedding, len(statics), axis=0), self._statics(statics))
        return graph_predictor.measured(raw, *self._targets)[:, 0]


class TrappmPredictor:
    """The encoder and the regressors of an artefact, with their bounds."""

    def __init__(self, folder: Path | str | None = None) -> None:
        """Reads the shipped artefact, or the one in ``folder``. Raises ArtefactError."""
        artefact = artefacts.Artefact(folder or artefacts.shipped("trappm"))
        self.manifest = artefact.manifest
        expected = {"schema": SCHEMA, "run_features": list(RUN_FEATURES)}
        arrays = graph_predictor.arrays(artefact, "trappm", expected)

        def under(prefix: str) -> dict[str, np.ndarray]:
            return {n.removeprefix(f"{prefix}."): v for n, v in arrays.items() if n.startswith(f"{prefix}.")}

        try:
            encoder = under("encoder")
            self.encoder = GraphNetwork(Spec.from_dict(self.manifest["encoder"]), encoder)
            self._nodes = Scaling(True, encoder["nodes.mean"], encoder["nodes.factor"])
            self.learned = Learned("TraPPM", self.manifest["tasks"])
            spec = self.manifest["regressor"]
            self.regressors = {task: Regressor(spec, under(task)) for task in self.learned.tasks}
        except KeyError as error:
            raise ArtefactError(f"{artefact.folder}: {error} is missing; run `perfpass train` again") from error

    @staticmethod
    @lru_cache(maxsize=1)
    def load() -> TrappmPredictor:
        """The shipped predictor, read once per process."""
        return TrappmPredictor()

    def embedding(self, on: Classes) -> np.ndarray:
        """[L] the frozen embedding of one graph's classes after the encoder's rounds: the sum over its nodes."""
        found: np.ndarray = self.encoder.readout(replace(on, nodes=self._nodes(on.nodes)))[0]
        return found

    def outputs(self, graph: OpGraph, runs: np.ndarray, tasks: tuple[str, ...]) -> dict[str, np.ndarray]:
        """[R] of each task for ``graph`` run in R ways (run features [R, K]); one embedding serves all."""
        found = features.extract(graph, SCHEMA)
        on = classes(found.nodes, found.edge_index, self.encoder.spec.rounds)
        of_graph = np.log1p(np.maximum(np.concatenate([found.statics, self.embedding(on)]), 0.0))
        statics = np.hstack([np.tile(of_graph, (len(runs), 1)), runs]).astype(np.float32)
        return {
            task: self.regressors[task](first_rounds(on, self.regressors[task].network.spec.rounds), statics)
            for task in tasks
        }


def answer(found: Prediction, graph: OpGraph, device: Device) -> Prediction:
    """``found`` with what TraPPM says of the same workload in its place."""
    predictor = TrappmPredictor.load()
    training = found.workload["mode"] == "training"
    time = "training_step" if training else "latency"
    runs = graph_predictor.runs_of(found.workload, device)
    said = predictor.outputs(graph, runs, (time, "memory") if training else (time,))
    memory = float(said["memory"][0]) if training else None
    answered = graph_predictor.answered(found, predictor.learned, predictor.manifest, float(said[time][0]), memory)
    return (
        replace(answered, mig=hint(in_a_slice(answered.peak_memory_bytes.high, device), device))
        if training
        else answered
    )
