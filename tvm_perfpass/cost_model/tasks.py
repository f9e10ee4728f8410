"""Which tasks of a network are worth tuning: what each takes as it is against what no schedule goes below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfpass.errors import ArgumentError
from tvm_perfpass.cost_model import tvm_names
from tvm_perfpass.cost_model.candidates import Extractor
from tvm_perfpass.cost_model.features import bound_seconds, unscheduled_seconds
from tvm_perfpass.cost_model.hardware import Hardware, cores_of, detect


@dataclass(frozen=True)
class RankedTask:
    """One task of a network. Seconds are those of one run of the task; ``gain_s`` those of the network."""

    index: int  # in the list that was given
    name: str
    weight: float  # how often the network runs it
    untuned_s: float
    bound_s: float

    @property
    def gain_s(self) -> float:
        """Seconds of the network that tuning this task could save at most."""
        return self.weight * max(0.0, self.untuned_s - self.bound_s)


def rank_tasks(tasks: Sequence[Any], *, target: Any = None, hardware: Hardware | None = None) -> list[RankedTask]:
    """MetaSchedule's extracted tasks by what tuning them could save, most first.

    ``tasks`` are those of ``relay_integration.extract_tasks`` (0.19) or ``relax_integration.extract_tasks`` (0.27).
    ``untuned_s`` is what plain loops take (one core), ``bound_s`` the roofline of ``hardware`` (this machine's CPU if
    None, with the cores of ``target`` or of the tasks' own). Both are computed, nothing is compiled. A task that TVM
    cannot count has NaN in both and comes last. Raises ArgumentError (no tasks, or something else than tasks),
    DeviceError (the CPU cannot be read), UnsupportedError.
    """
    if not len(tasks):
        raise ArgumentError("no tasks to rank; extract_tasks of this TVM found none in the module")
    ranked = []
    for index, task in enumerate(tasks):
        try:
            mod, name, weight = task.dispatched[0], str(task.task_name), float(task.weight)
            aim = tvm_names.target(target if target is not None else task.target)
        except (AttributeError, IndexError, TypeError) as error:
            raise ArgumentError(f"task {index} is not what extract_tasks returns: {error}") from error
        cores = cores_of(aim)
        machine = hardware or detect(cores)
        rows = Extractor(machine).unscheduled(tvm_names.meta_schedule().TuneContext(mod=mod, target=aim, num_threads=1))
        if rows is None or not rows.size or not np.isfinite(rows).all():
            ranked.append(RankedTask(index, name, weight, float("nan"), float("nan")))
            continue
        untuned, bound = unscheduled_seconds(rows, machine), bound_seconds(rows, machine)
        ranked.append(RankedTask(index, name, weight, max(untuned, bound), bound))
    return sorted(ranked, key=lambda task: (np.isnan(task.gain_s), -task.gain_s if task.gain_s == task.gain_s else 0.0))


def allot(ranked: Sequence[RankedTask], trials: int, *, batch: int = 8) -> dict[int, int]:
    """Trials per task (by its index), in whole batches, that add up to at most ``trials``.

    Every next batch goes to the task that it is expected to save most: of what a task can gain, the first batch takes
    the greater part, and n of them leave 1 / (1 + n) of it. Tasks with nothing to gain get none. Raises ArgumentError.
    """
    if trials < 1 or batch < 1:
        raise ArgumentError(f"trials and batch must be at least 1, got {trials} and {batch}")
    given = {task.index: 0 for task in ranked}
    worth = {task.index: task.gain_s for task in ranked if task.gain_s > 0}
    for _ in range(trials // batch):
        if not worth:
            break
        # What batch n + 1 saves: gain / (1 + n) - gain / (2 + n).
        steps = {index: given[index] // batch for index in worth}
        best = max(worth, key=lambda index: worth[index] / ((1 + steps[index]) * (2 + steps[index])))
        given[best] += batch
    return given
