"""Our own design on the comparison's splits: physics with few fitted constants, and trees or a process on top.

What ships (`training.vision`, `steps`, `memory`), fitted on a split's training rows with their own settings; for power
and energy of a step also a fit that does not ship (`step_power`: what ships multiplies the two without one).
``adapted`` is what `perfpass calibrate` does where trees answer; the others are fitted again with the new rows.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from perfpass.errors import ArgumentError
from perfpass.predictors.calibration.posterior import TRAIT_COLUMNS, Posterior, Prior, Standard, learn
from perfpass.predictors.learned import components
from perfpass.predictors.learned.ratio_trees import LEAST_DEVICE_ROWS, fade
from perfpass.predictors.training_step.features import RATIOS
from perfpass.training.calibration.experiments import OTHER, PRIOR
from perfpass.training.components import fit as component_fit
from perfpass.training.energy import dataset as energy
from perfpass.training.inference import dataset as vision
from perfpass.training.inference import model as vision_model
from perfpass.training.memory import dataset as memory
from perfpass.training.memory import fit as memory_fit
from perfpass.training.ratio_trees import columns
from perfpass.training.tasks import step_power
from perfpass.training.tasks.graphs import Graphs
from perfpass.training.tasks.step_power import step_corpus
from perfpass.training.tasks.tasks import LANGUAGE_TASK, Split, Task
from perfpass.training.training_step import model as step_model

vision_data = lru_cache(maxsize=1)(vision.load)
memory_data = lru_cache(maxsize=1)(memory.load)
energy_data = lru_cache(maxsize=1)(energy.load)


@dataclass(frozen=True)
class Perfpass:
    """Our design as a method of the comparison."""

    name: str = "perfpass"

    def fit(self, task: Task, graphs: Graphs, split: Split, seed: int = 0) -> Any:
        """Learn from ``split.train`` alone; its settings were chosen elsewhere, so ``split.valid`` is not used."""
        if task.name == "latency":
            return _Calibrated(VisionTrees(task, split.train, seed))
        if task.name == "training_step":
            return _Calibrated(StepTrees(task, split, seed))
        if task.name == LANGUAGE_TASK:
            from perfpass.training.published.llm_trees.ours import Process as Generation

            # It learns from validation rows too where it is given some.
            return Generation().fit(task, graphs, replace(split, valid=split.valid[:0]), seed)
        if task.name == "memory":
            return Memory(task, split.train)
        return Process(task, graphs, split.train)


def method(name: str) -> Perfpass:
    """Ours. Raises ArgumentError for another name."""
    if name != "perfpass":
        raise ArgumentError(f"unknown predictor {name!r}; allowed is perfpass")
    return Perfpass()


def nodes_of(booster: Any) -> int:
    """Numbers that a booster holds: a threshold or a value in every node of its trees."""
    model = json.loads(bytes(booster.save_raw("json")))["learner"]["gradient_booster"]["model"]
    return sum(int(tree["tree_param"]["num_nodes"]) for tree in model["trees"])


def _standard(traits: np.ndarray) -> Standard:
    """Mean and deviation of the training rows' traits [N, T]; a trait that no row has is 0."""
    there = np.isfinite(traits)
    count = np.maximum(there.sum(axis=0), 1)
    mean = np.where(there, traits, 0.0).sum(axis=0) / count
    deviation = np.sqrt((np.where(there, traits - mean, 0.0) ** 2).sum(axis=0) / count)
    return Standard(mean, np.where(deviation > 1e-6, deviation, 1.0))


class _Trees(Protocol):
    task: Task
    train: np.ndarray
    prior: Prior
    parameters: int

    def predict(self, rows: np.ndarray) -> np.ndarray: ...

    def traits(self, rows: np.ndarray) -> np.ndarray: ...


@dataclass(frozen=True, eq=False)
class _Calibrated:
    """Trees, and after `adapted` the correction that a device's own records suggest."""

    trees: _Trees
    standard: Standard | None = None
    posterior: Posterior | None = None

    @property
    def parameters(self) -> int:
        """Numbers that were learned."""
        return self.trees.parameters

    def predict(self, rows: np.ndarray) -> np.ndarray:
        """[len(rows)] in the task's unit."""
        rows = np.asarray(rows)
        found = self.trees.predict(rows)
        if self.posterior is None or self.standard is None:
            return found
        mean, _ = self.posterior.predict(self.standard(self.trees.traits(rows)), self._software(rows))
        return np.asarray(found * np.exp(mean))

    def adapted(self, rows: np.ndarray, seed: int = 0) -> _Calibrated:
        """As `perfpass calibrate`: scale, software and traits, as far as the rows bear out."""
        trees = self.trees
        standard = _standard(trees.traits(trees.train))
        ratio = np.log(trees.task.value[rows] / trees.predict(rows))
        posterior = learn(trees.prior, standard(trees.traits(rows)), self._software(rows), ratio)
        return _Calibrated(trees, standard, posterior)

    def _software(self, rows: np.ndarray) -> np.ndarray:
        found = self.trees.task.rows.iloc[rows]
        return (found.precision + " " + found.runtime + " " + found.layout).to_numpy()


class VisionTrees:
    """Latency: an ensemble for well-measured devices, and a portable one for the others."""

    prior = PRIOR

    def __init__(self, task: Task, train: np.ndarray, seed: int) -> None:
        self.task, self.train = task, train
        self._record = task.rows.record.to_numpy()
        self._learned = self._record[train]
        dataset = vision_data()
        self._data = vision_model.arrays(dataset, vision_model.efficiency_of(dataset, self._learned), self._learned)
        self._trees = {
            portable: vision_model.fit(self._data, self._learned, portable=portable, seed=seed)
            for portable in (False, True)
        }
        counts = task.rows.device.iloc[train].value_counts()
        self._known = set(counts.index[counts >= LEAST_DEVICE_ROWS])
        self.parameters = sum(nodes_of(trees.booster) for trees in self._trees.values())

    def predict(self, rows: np.ndarray) -> np.ndarray:
        """[len(rows)] milliseconds."""
        known = self.task.rows.device.iloc[rows].isin(self._known).to_numpy()
        out = np.empty(len(rows))
        for portable, trees in self._trees.items():
            inside = known != portable
            if inside.any():
                asked = self._record[rows[inside]]
                out[inside] = 1e3 * vision_model.predict(self._data, trees, self._learned, asked)[0]
        return out

    def traits(self, rows: np.ndarray) -> np.ndarray:
        """[len(rows), T] what the time is made of."""
        return np.asarray(self._data.x[self._record[rows]][:, TRAIT_COLUMNS])


class StepTrees:
    """Training steps: a model for devices and software that were measured, a portable one for the others."""

    prior = OTHER

    def __init__(self, task: Task, split: Split, seed: int) -> None:
        self.task, self.train = task, split.train
        corpus = step_corpus()
        dataset = self._dataset = corpus.dataset
        self._record = task.rows.record.to_numpy()
        self._learned = self._record[split.train]
        others = np.setdiff1d(np.arange(len(dataset)), self._learned)
        self._base = corpus.vision.seconds(corpus.levels(others))
        self._software = self._software_of(task.rows)
        self._measured = set(self._software[split.train])
        devices, held = (set(task.rows.device.iloc[part]) for part in (split.train, split.test))
        known = step_model.Rows.of(dataset, self._base, self._learned)
        portable = known
        if held.isdisjoint(devices):
            # As what ships: what other devices are good at shows in records of inference. Where networks are held out
            # they are left out, since they are of the same networks.
            portable = known.beside(corpus.others, np.isin(corpus.others.device, sorted(devices)))
        self._models = {
            False: step_model.fit(known, portable=False, seed=seed),
            True: step_model.fit(portable, portable=True, seed=seed),
        }
        self._features = {name: dataset.features(model.efficiency)[0] for name, model in self._models.items()}
        self._precisions = set(task.rows.precision.iloc[split.train])
        self.parameters = sum(nodes_of(model.trees.booster) for model in self._models.values())

    @staticmethod
    def _software_of(rows: Any) -> np.ndarray:
        return np.asarray(rows.device + " " + rows.precision + " " + rows.runtime + " " + rows.layout)

    def predict(self, rows: np.ndarray) -> np.ndarray:
        """[len(rows)] milliseconds."""
        asked = self._record[rows]
        weight = fade(self._dataset.distances(self._learned, asked), step_model.TREES_FADE)
        # Trees have nothing to say of a precision that no record has.
        weight *= self.task.rows.precision.iloc[rows].isin(self._precisions).to_numpy()
        known = np.isin(self._software[rows], sorted(self._measured))
        out = np.empty(len(rows))
        for portable, model in self._models.items():
            inside = known != portable
            if inside.any():
                at = asked[inside]
                learned = weight[inside] * model.trees.predict(self._features[portable][at])
                out[inside] = 1e3 * self._base[at] * np.exp(learned)
        return out

    def traits(self, rows: np.ndarray) -> np.ndarray:
        """[len(rows), T] what the time is made of."""
        return np.asarray(self._features[True][np.ix_(self._record[rows], columns(RATIOS, portable=True))])


@dataclass(frozen=True, eq=False)
class Memory:
    """The simulated allocator, a runtime per device and a share of workspace per kind of program."""

    task: Task
    train: np.ndarray

    def __post_init__(self) -> None:
        rows = memory_data()[0]
        object.__setattr__(self, "_constants", memory_fit.fit(rows.take(self._record(self.train))))

    @property
    def parameters(self) -> int:
        """Numbers that were learned."""
        found: memory_fit.Constants = self._constants  # type: ignore[attr-defined]
        return len(found.runtime) + len(found.share)

    def predict(self, rows: np.ndarray) -> np.ndarray:
        """[len(rows)] bytes."""
        found: memory_fit.Constants = self._constants  # type: ignore[attr-defined]
        return found.predict(memory_data()[0].take(self._record(rows)))

    def coarse(self, rows: np.ndarray) -> np.ndarray:
        """[len(rows)] what trees may correct: the same."""
        return self.predict(rows)

    def adapted(self, rows: np.ndarray, seed: int = 0) -> Memory:
        """The constants again, from all rows."""
        return Memory(self.task, np.concatenate([self.train, rows]))

    def _record(self, rows: np.ndarray) -> np.ndarray:
        return self.task.rows.record.to_numpy()[rows]


@dataclass(frozen=True, eq=False)
class Process:
    """Watts or joules: few physical components with factors by group, and a Gaussian process on what they miss."""

    task: Task
    graphs: Graphs
    train: np.ndarray

    def __post_init__(self) -> None:
        known = energy_data()["training_power"].rows.take(self.task.rows.record.to_numpy())
        rows = step_power.rows_of(self.task, self.graphs, known)
        form = step_power.STEP_ENERGY if self.task.name == "energy" else step_power.STEP_POWER
        fitted = component_fit.fit(form, rows.take(self.train), self.task.value[self.train])
        object.__setattr__(self, "_rows", rows)
        object.__setattr__(self, "_fitted", fitted)

    @property
    def parameters(self) -> int:
        """Numbers that were learned: factors, and a weight for every remembered row."""
        found: components.Fitted = self._fitted  # type: ignore[attr-defined]
        return sum(len(f) for level in found.factors for f in level.values()) + int(found.known.weights.size)

    def predict(self, rows: np.ndarray) -> np.ndarray:
        """[len(rows)] in the task's unit."""
        asked: components.Rows = self._rows.take(np.asarray(rows))  # type: ignore[attr-defined]
        return np.asarray(self._fitted.predict(asked)[0])  # type: ignore[attr-defined]

    def coarse(self, rows: np.ndarray) -> np.ndarray:
        """[len(rows)] what trees may correct: the components with one factor each for all rows, without the process."""
        asked: components.Rows = self._rows.take(np.asarray(rows))  # type: ignore[attr-defined]
        return np.asarray(np.maximum(self._fitted.base(asked)[0][:, 0], 1e-30))  # type: ignore[attr-defined]

    def adapted(self, rows: np.ndarray, seed: int = 0) -> Process:
        """The process again, from all rows."""
        return Process(self.task, self.graphs, np.concatenate([self.train, rows]))
