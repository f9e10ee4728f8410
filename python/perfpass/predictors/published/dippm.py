"""DIPPM: a GraphSAGE network over the operator graph (docs/research/dippm.md, docs/predictors/published.md).

It says how long a run takes, and of a training step also the peak of memory, for that is what our records measured.
What it does not say stays that of our own predictor, and the support names it. NumPy alone is needed.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfpass import features
from perfpass.errors import ArtefactError
from perfpass.prediction import MigHint, Prediction
from perfpass.predictors.learned import artefacts
from perfpass.predictors.memory.allowance import in_a_slice
from perfpass.predictors.mig.profile import dippm_rule, hint
from perfpass.predictors.published import answer as graph_predictor
from perfpass.predictors.published.answer import Learned
from perfpass.predictors.published.graph_classes import classes
from perfpass.predictors.published.graph_network import GraphNetwork, Scaling, Spec
from perfpass.predictors.published.run_features import RUN_FEATURES

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.graph import OpGraph

# What an answer needs, the first of the network's outputs. Of energy and power it learned too few networks to be asked.
OUTPUTS = ("latency_ms", "peak_memory_bytes")
# The published rule knows one GPU.
_MIG_RULE_GPU = "a100-sxm4-40gb"


class DippmPredictor:
    """The network of an artefact, with its scalings and bounds."""

    def __init__(self, folder: Path | str | None = None) -> None:
        """Reads the shipped artefact, or the one in ``folder``. Raises ArtefactError."""
        artefact = artefacts.Artefact(folder or artefacts.shipped("dippm"))
        self.manifest = artefact.manifest
        arrays = graph_predictor.arrays(artefact, "dippm", {"schema": "dippm", "run_features": list(RUN_FEATURES)})
        try:
            if tuple(self.manifest["outputs"][: len(OUTPUTS)]) != OUTPUTS:
                raise ArtefactError(f"{artefact.folder}: outputs do not begin with {', '.join(OUTPUTS)}; train again")
            self.network = GraphNetwork(Spec.from_dict(self.manifest["spec"]), arrays)
            self._nodes = Scaling(True, arrays["nodes.mean"], arrays["nodes.factor"])
            self._statics = Scaling(False, arrays["statics.mean"], arrays["statics.factor"])
            self._targets = arrays["targets.mean"], arrays["targets.scale"]
            self.learned = Learned("DIPPM", self.manifest["tasks"])
        except KeyError as error:
            raise ArtefactError(f"{artefact.folder}: {error} is missing; run `perfpass train` again") from error

    @staticmethod
    @lru_cache(maxsize=1)
    def load() -> DippmPredictor:
        """The shipped predictor, read once per process."""
        return DippmPredictor()

    def outputs(self, graph: OpGraph, runs: np.ndarray) -> np.ndarray:
        """[R, O] what the network says of ``graph`` run in R ways, given by their run features [R, K].

        OUTPUTS come first. One embedding serves all.
        """
        found = features.extract(graph, "dippm")
        embedding = np.zeros((1, 0), dtype=np.float32)
        if self.network.spec.graph:
            on = classes(found.nodes, found.edge_index, self.network.spec.rounds)
            embedding = self.network.readout(replace(on, nodes=self._nodes(on.nodes)))
        statics = np.hstack([np.tile(np.log1p(np.maximum(found.statics, 0.0)), (len(runs), 1)), runs])
        raw = self.network.head(np.repeat(embedding, len(runs), axis=0), self._statics(statics))
        return graph_predictor.measured(raw, *self._targets)


def answer(found: Prediction, graph: OpGraph, device: Device) -> Prediction:
    """``found`` with what DIPPM says of the same workload in its place."""
    predictor = DippmPredictor.load()
    latency, memory, *_ = predictor.outputs(graph, graph_predictor.runs_of(found.workload, device))[0].tolist()
    said = graph_predictor.answered(found, predictor.learned, predictor.manifest, latency, memory)
    return replace(said, mig=_mig(said, device))


def _mig(found: Prediction, device: Device) -> MigHint:
    """The published rule on the GPU that it knows, ours elsewhere."""
    memory = found.peak_memory_bytes.median
    if device.id != _MIG_RULE_GPU:
        ours = hint(in_a_slice(found.peak_memory_bytes.high, device), device)
        return replace(ours, reason=f"{ours.reason}; by perfpass, as DIPPM's rule knows the A100 40 GB alone")
    profile = dippm_rule(memory)
    if profile is None:
        return MigHint(None, 0, f"DIPPM's rule has no profile for {memory / 2**30:.2f} GiB")
    assert device.mig is not None
    instances = device.mig.profile(profile).max_instances
    return MigHint(profile, instances, f"DIPPM's rule: {memory / 2**30:.2f} GiB is below the {profile} profile's size")
