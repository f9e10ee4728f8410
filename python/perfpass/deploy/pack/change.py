"""From today's layout to another one: what is drained and repartitioned, in an order that keeps models served.

A copy is started on its new instance before an old one of its model is drained, wherever there is room for both. Where
there is none, draining comes first and the step says how many copies are left meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfpass.deploy.pack.fleet import WHOLE, Fleet, Standing
from perfpass.devices import MigGeometry

Actual = tuple[str, int, str, int]  # profile, first memory slice, model ("" for none), processes


@dataclass(frozen=True)
class Step:
    """One step: ``action`` is "start", "drain", "create", "destroy", "enable MIG" or "disable MIG".

    ``left``: copies of the model that run once it is drained, where they are fewer than the fleet asks for.
    """

    action: str
    gpu: str
    profile: str = ""
    start: int = 0
    model: str = ""
    left: int | None = None

    def __str__(self) -> str:
        what = (
            f"{self.profile} at slice {self.start}" if self.profile not in ("", WHOLE) else self.profile and "the GPU"
        )
        if self.action in ("enable MIG", "disable MIG"):
            return f"{self.gpu}: {self.action}"
        text = f"{self.gpu}: {self.action} {self.model + ' on ' if self.model else ''}{what}"
        return text if self.left is None else f"{text} (only {self.left} of its copies run until it is started anew)"

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return {**vars(self)}


def steps(fleet: Fleet, wanted: Mapping[str, Sequence[Actual]]) -> tuple[Step, ...]:
    """What leads from the fleet's layout of today to ``wanted``, instances by GPU; none where nothing stands today."""
    if not fleet.today:
        return ()
    return tuple(_Change(fleet, wanted).steps())


class _Change:
    def __init__(self, fleet: Fleet, wanted: Mapping[str, Sequence[Actual]]) -> None:
        self._cut = {name: pool.device.mig for pool in fleet.pools for name, _, _ in pool.gpus()}
        self._needs = {m.name: m.copies for m in fleet.models}
        self._now: dict[str, list[Actual]] = {name: [] for name in self._cut}
        for name, standing in fleet.today.items():
            self._now[name] = [_actual(s) for s in standing]
        self._wanted = {name: list(instances) for name, instances in wanted.items()}
        self._in_mig = {name: any(i[0] != WHOLE for i in now) for name, now in self._now.items()}
        self._runs: dict[str, int] = {}
        for now in self._now.values():
            for _, _, model, processes in now:
                self._runs[model] = self._runs.get(model, 0) + processes
        self._done: list[Step] = []

    def steps(self) -> list[Step]:
        self._relabel()
        while True:
            self._create()
            leaving = [(gpu, i) for gpu in self._now for i in self._now[gpu] if i not in self._wanted.get(gpu, [])]
            if not leaving:
                return self._done
            # What runs nothing goes first, then what its model can spare, then what makes room for most.
            gpu, instance = min(leaving, key=lambda one: self._loss(one[1]))
            self._drain(gpu, instance)

    def _relabel(self) -> None:
        """Instances that stay and change what runs in them are no repartitioning: their model is drained alone."""
        for gpu, wanted in self._wanted.items():
            for new in wanted:
                old = next((i for i in self._now[gpu] if i[:2] == new[:2] and i != new), None)
                if old is not None and not old[2]:
                    self._now[gpu].remove(old)
                    self._start(gpu, new)

    def _loss(self, instance: Actual) -> tuple[int, int]:
        _, _, model, processes = instance
        if not model:
            return 0, 0
        left = self._runs[model] - processes
        return (1, 0) if left >= self._needs.get(model, 0) else (2, self._needs.get(model, 0) - left)

    def _drain(self, gpu: str, instance: Actual) -> None:
        profile, start, model, processes = instance
        if model:
            self._runs[model] -= processes
            short = self._runs[model] if self._runs[model] < self._needs.get(model, 0) else None
            self._done.append(Step("drain", gpu, profile, start, model, short))
        self._now[gpu].remove(instance)
        same = next((i for i in self._wanted.get(gpu, []) if i[:2] == instance[:2] and i not in self._now[gpu]), None)
        if same is not None:  # the instance stays, another model comes
            self._start(gpu, same)
        elif profile != WHOLE:
            self._done.append(Step("destroy", gpu, profile, start))

    def _create(self) -> None:
        for gpu, wanted in self._wanted.items():
            for instance in wanted:
                if instance not in self._now[gpu] and self._room(gpu, instance):
                    self._mode(gpu, instance[0] != WHOLE)
                    if instance[0] != WHOLE:
                        self._done.append(Step("create", gpu, instance[0], instance[1]))
                    self._start(gpu, instance)
        for gpu, now in self._now.items():
            if not now and not self._wanted.get(gpu) and self._in_mig[gpu]:
                self._in_mig[gpu] = False  # nothing is left on it: it may stay in MIG mode

    def _room(self, gpu: str, instance: Actual) -> bool:
        now = self._now[gpu]
        cut: MigGeometry | None = self._cut[gpu]
        if instance[0] == WHOLE or cut is None or any(i[0] == WHOLE for i in now):
            return not now
        return not cut.fault([*((i[0], i[1]) for i in now), (instance[0], instance[1])])

    def _mode(self, gpu: str, mig: bool) -> None:
        if self._cut[gpu] is not None and self._in_mig[gpu] != mig:
            self._done.append(Step("enable MIG" if mig else "disable MIG", gpu))
            self._in_mig[gpu] = mig

    def _start(self, gpu: str, instance: Actual) -> None:
        profile, start, model, processes = instance
        self._now[gpu].append(instance)
        self._runs[model] = self._runs.get(model, 0) + processes
        self._done.append(Step("start", gpu, profile, start, model))


def _actual(standing: Standing) -> Actual:
    return standing.profile, standing.start, standing.model, standing.processes
