"""autotvm's cost model and tuner in TVM 0.19, on the same knowledge as MetaSchedule's.

A configuration becomes a loop nest by its template; the auto scheduler's extractor counts it as MetaSchedule's does.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tvm import tir
from tvm.auto_scheduler.feature import features_from_primfunc
from tvm.autotvm.env import GLOBAL_SCOPE
from tvm.autotvm.tuner.model_based_tuner import CostModel, ModelBasedTuner
from tvm.autotvm.tuner.sa_model_optimizer import SimulatedAnnealingOptimizer
from tvm.driver.build_module import schedule_to_module

from perfpass.bounded_file import open_regular
from perfpass.errors import ArgumentError, LimitError
from tvm_perfpass.cost_model.features import COUNT, candidate_features
from tvm_perfpass.cost_model.hardware import Hardware, cores_of, detect
from tvm_perfpass.cost_model.ranking import Measured, Ranker, shipped

# The search that proposes configurations; TVM's own default (500 steps of 128) counts 64,000 of them at 5 ms each.
_STEPS, _PARALLEL = 24, 32
_MAX_LOG_BYTES = 256 << 20


def loop_nest_counts(task: Any, config: Any, target: Any) -> np.ndarray:
    """TVM's rows of counts of a configuration, [stores, 164]; [0, 164] where the template cannot make it."""
    try:
        with target:
            schedule, arguments = task.instantiate(config)
        mod = tir.transform.Simplify()(tir.transform.StorageFlatten(64)(schedule_to_module(schedule, arguments)))
        return np.asarray(features_from_primfunc(mod["main"], log_scale=True))
    except Exception:  # a template rejects a configuration with whatever error it likes
        return np.zeros((0, 164))


class AutotvmCostModel(CostModel):
    """autotvm's cost-model interface: `fit` on what was measured, `predict` for indices of the configuration space."""

    def __init__(self, task: Any, ranker: Ranker) -> None:
        super().__init__()
        self.task, self.space, self.ranker = task, task.config_space, ranker
        self.key = hashlib.sha256(f"{task.name}{task.args}{task.target}".encode()).hexdigest()[:16]
        self._known: dict[int, np.ndarray] = {}

    def fit(self, xs: Sequence[int], ys: Sequence[float], plan_size: int) -> None:
        """``xs``: indices measured, ``ys``: FLOP per second that each reached, 0 for a failure."""
        speed = np.asarray(ys, dtype=np.float64)
        seconds = np.where(speed > 0, self.task.flop / np.maximum(speed, 1e-9), np.inf)
        self.ranker.learn(self.key, self._features(xs), seconds, [int(x) for x in xs])

    def fit_log(self, records: Iterable[Any], plan_size: int, min_seed_records: int = 500) -> bool:
        """Takes records (MeasureInput, MeasureResult) of any CPU task as earlier knowledge; False where none fits."""
        rows: dict[str, list[tuple[np.ndarray, float]]] = {}
        for given, result in records:
            counted = loop_nest_counts(given.task, given.config, given.target)
            seconds = float(np.mean([float(c) for c in result.costs])) if result.error_no == 0 else np.inf
            if counted.size:
                rows.setdefault(f"{given.task.name}{given.task.args}", []).append((counted, seconds))
        for key, pairs in rows.items():
            features, _ = candidate_features([row for row, _ in pairs], self.ranker.hardware)
            usable = np.isfinite(features).all(axis=1)
            measured = Measured()
            measured.add(features[usable], np.array([s for _, s in pairs])[usable], np.flatnonzero(usable).tolist())
            self.ranker.add_earlier(f"autotvm {key}", measured)
        return bool(rows)

    def predict(self, xs: Sequence[int], output_margin: bool = False) -> np.ndarray:
        """Expected share of the fastest configuration's speed for indices ``xs`` (its log2 with ``output_margin``)."""
        scores = self.ranker.score(self._features(xs))
        return scores if output_margin else np.exp2(scores)

    def load_basemodel(self, base_model: Any) -> None:
        """Takes over what another model of this kind knows."""
        for name, measured in {**base_model.ranker.earlier, **base_model.ranker.own}.items():
            self.ranker.add_earlier(name, measured)

    def spawn_base_model(self) -> AutotvmCostModel:
        """A model of the same task that has measured nothing yet."""
        return AutotvmCostModel(self.task, Ranker(self.ranker.hardware, self.ranker.earlier, seed=self.ranker.seed))

    def _features(self, xs: Sequence[int]) -> np.ndarray:
        missing = [int(x) for x in dict.fromkeys(xs) if int(x) not in self._known]
        if missing:
            before = GLOBAL_SCOPE.in_tuning
            GLOBAL_SCOPE.in_tuning = True  # templates leave their fallbacks alone then
            try:
                rows = [loop_nest_counts(self.task, self.space.get(x), self.task.target) for x in missing]
            finally:
                GLOBAL_SCOPE.in_tuning = before
            features, _ = candidate_features(rows, self.ranker.hardware, self.task.flop)
            self._known.update(zip(missing, features, strict=True))
        return np.stack([self._known[int(x)] for x in xs]) if len(xs) else np.zeros((0, COUNT), dtype=np.float32)


class PerfpassTuner(ModelBasedTuner):
    """autotvm's tuner with our cost model; its first plan comes from the model too, not from chance.

    ``records``: autotvm logs of earlier tuning; ``load``: a folder that `save` wrote; ``pretrained``: whether the
    measurements that came with the package count. Raises ArgumentError, ArtefactError, FileError, UnsupportedError.
    """

    trials: Any  # set by TVM's class

    def __init__(
        self,
        task: Any,
        plan_size: int = 16,
        *,
        records: Sequence[str | Path] = (),
        load: str | Path | None = None,
        hardware: Hardware | None = None,
        pretrained: bool = True,
        seed: int = 0,
    ) -> None:
        if plan_size < 1:
            raise ArgumentError(f"plan_size must be at least 1, got {plan_size}")
        machine = hardware or detect(cores_of(task.target))
        ranker = Ranker.load(Path(load)) if load else Ranker(machine, shipped() if pretrained else None, seed=seed)
        model = AutotvmCostModel(task, ranker)
        for path in records:
            model.fit_log(read_log(Path(path)), plan_size)
        optimizer = SimulatedAnnealingOptimizer(task, n_iter=_STEPS, parallel_size=_PARALLEL, log_interval=0)
        super().__init__(task, model, optimizer, plan_size)

    def next_batch(self, batch_size: int) -> list[Any]:
        """The configurations to measure next."""
        if not self.trials and not self.xs:
            self.trials = self.model_optimizer.find_maximums(self.cost_model, self.plan_size, self.visited)
        return super().next_batch(min(batch_size, len(self.space) - len(self.visited)))

    def save(self, folder: str | Path) -> None:
        """Writes the model as a folder without pickle. Raises FileError."""
        self.cost_model.ranker.save(Path(folder))


def read_log(path: Path) -> list[Any]:
    """Records of an autotvm log. Raises FileError; lines that this TVM cannot read are left out, as TVM does."""
    from tvm.autotvm.record import load_from_file

    file = open_regular(path, "a log of autotvm.callback.log_to_file")
    try:
        if os.fstat(file).st_size > _MAX_LOG_BYTES:
            raise LimitError(f"{path}: over {_MAX_LOG_BYTES} bytes; keep the records of the tasks that matter")
    finally:
        os.close(file)
    return list(load_from_file(str(path)))
