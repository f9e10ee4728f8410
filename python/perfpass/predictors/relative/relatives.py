"""Measured records as columns: what `nearest` compares a question with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from perfpass.devices import Device, device
from perfpass.errors import ArgumentError, DeviceError
from perfpass.predictors.relative import scope
from perfpass.predictors.relative.question import Question, plain
from perfpass.predictors.relative.work import WORK


@dataclass(frozen=True, eq=False)
class Coded:
    """A column of N texts: ``code`` [N] indexes ``values``."""

    values: tuple[str, ...]
    code: np.ndarray

    @classmethod
    def of(cls, texts: Sequence[str]) -> Coded:
        """From the texts themselves."""
        values, code = np.unique(np.asarray(texts, dtype=str), return_inverse=True)
        return cls(tuple(values.tolist()), code.ravel())

    def __getitem__(self, row: int) -> str:
        return self.values[self.code[row]]

    def __len__(self) -> int:
        return len(self.code)


@dataclass(frozen=True, eq=False)
class Relatives:
    """N measured records.

    ``texts``: columns by name; needed are kind (`question.KINDS`; others are never compared), device (an id, with a MIG
    profile after a colon), runtime, runtime_version, precision, layout, source, task, timing and memory_kind (`scope`),
    model and network (our name of the definition, or empty). ``numbers`` [N] each, NaN where unknown: batch, devices,
    processes, input_tokens, output_tokens, parameters, active_parameters, the figures that were measured, and those of
    `WORK`. ``network`` [N] indexes ``fingerprints`` [M, P], -1 where the record's network is not counted.
    """

    texts: Mapping[str, Coded]
    numbers: Mapping[str, np.ndarray]
    network: np.ndarray
    fingerprints: np.ndarray
    _devices: dict[str, Device | None] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.network)

    def device(self, name: str) -> Device | None:
        """The device of a record; None where the catalogue has none of that name."""
        if name not in self._devices:
            try:
                self._devices[name] = device(name)
            except (DeviceError, ArgumentError):
                self._devices[name] = None
        return self._devices[name]

    @cached_property
    def names(self) -> Coded:
        """Under which name each record's model is known: of its definition where there is one, as `plain` writes it."""
        network, model = self.texts["network"], self.texts["model"]
        of_network, of_model = ([plain(value) for value in column.values] for column in (network, model))
        every = sorted({*of_network, *of_model})
        place = {name: i for i, name in enumerate(every)}
        known = np.array([bool(name) for name in of_network], dtype=bool)[network.code]
        codes = [
            np.array([place[name] for name in names], dtype=np.int64)[column.code]
            for names, column in ((of_network, network), (of_model, model))
        ]
        used, code = np.unique(np.where(known, *codes), return_inverse=True)
        return Coded(tuple(every[i] for i in used.tolist()), code.ravel())

    def number(self, name: str, row: int) -> float:
        """One figure of one record."""
        return float(self.numbers[name][row])

    def question(self, row: int) -> Question:
        """The question that this record answers. Raises ArgumentError where its device is unknown."""
        target = self.device(self.texts["device"][row])
        if target is None:
            raise ArgumentError(f"record {row} was measured on a device that the catalogue does not have")
        at = {name: self.number(name, row) for name in (*WORK, "parameters", "active_parameters")}
        size = (at["parameters"], at["active_parameters"])
        print_ = int(self.network[row])
        devices, processes = self.number("devices", row), self.number("processes", row)
        return Question(
            kind=self.texts["kind"][row],
            device=target,
            runtime=self.texts["runtime"][row],
            version=self.texts["runtime_version"][row],
            precision=self.texts["precision"][row],
            layout=self.texts["layout"][row],
            batch=self.number("batch", row),
            devices=int(devices) if devices > 0 else 1,
            processes=int(processes) if processes > 0 else 1,
            input_tokens=self.number("input_tokens", row),
            output_tokens=self.number("output_tokens", row),
            names=frozenset({self.names[row]}),
            model=self.texts["model"][row],
            work={name: at[name] for name in WORK if np.isfinite(at[name])},
            size=size if np.isfinite(size[1]) else None,
            fingerprint=self.fingerprints[print_] if print_ >= 0 else None,
            timed=scope.of_timing(self.texts["timing"][row]) if self.texts["kind"][row] in scope.TIMED_KINDS else "",
            memory_kind=self.texts["memory_kind"][row],
        )
