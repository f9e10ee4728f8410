"""MetaSchedule's cost model in TVM 0.19 and 0.27: what `tune_tir`, `tune_relay` and `tune_relax` take."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.errors import ArtefactError
from tvm_perfpass.cost_model import tvm_names
from tvm_perfpass.cost_model.candidates import Extractor
from tvm_perfpass.cost_model.hardware import Hardware, cores_of, detect
from tvm_perfpass.cost_model.ranking import Measured, Ranker, shipped
from tvm_perfpass.cost_model.records import read_records, seconds_of, task_key

_log = logging.getLogger("tvm_perfpass.cost_model")


def _define() -> type:
    """The class; made when it is first asked for, as its base class is TVM's."""
    base = tvm_names.meta_schedule().cost_model.PyCostModel

    @tvm_names.derived_object()
    class PerfpassModel(base):  # type: ignore[misc, valid-type]
        """Scores candidates from knowledge of the device, from earlier measurements and from those of this session."""

        def __init__(self, ranker: Ranker) -> None:
            super().__init__()
            self.ranker = ranker
            self.extractor = Extractor(ranker.hardware)
            self.problem = ""

        def load(self, path: str) -> None:
            """Replaces what the model knows by what `save` wrote. Raises ArtefactError."""
            self.ranker = Ranker.load(Path(path))
            self.extractor = Extractor(self.ranker.hardware)

        def save(self, path: str) -> None:
            """Writes a folder: manifest, measured candidates, trees. No pickle. Raises FileError."""
            self.ranker.save(Path(path))

        def update(self, context: Any, candidates: Sequence[Any], results: Sequence[Any]) -> None:
            """Takes measured candidates; failed builds and runs count as slower than everything that ran."""
            if not len(candidates):
                return
            features, hashes = self.extractor.extract(context, candidates)
            seconds = np.array([seconds_of(result) for result in results])
            self.ranker.learn(task_key(context.mod), features, seconds, hashes)

        def predict(self, context: Any, candidates: Sequence[Any]) -> np.ndarray:
            """Expected share of the fastest candidate's speed, above 0; float64 [candidates]."""
            if not len(candidates):
                return np.zeros(0)
            self.ranker.threads = max(1, int(context.num_threads))
            features, _ = self.extractor.extract(context, candidates)
            return np.exp2(self.ranker.score(features)).astype(np.float64)

        def __str__(self) -> str:
            """One line for TVM's log."""
            return f"PerfpassModel({self.ranker.size} measured here, {len(self.ranker.earlier)} earlier tasks)"

    return PerfpassModel


_CLASS: list[type] = []


def cost_model(
    *,
    target: Any = None,
    records: Sequence[str | Path] = (),
    load: str | Path | None = None,
    hardware: Hardware | None = None,
    roofline: Mapping[str, Any] | None = None,
    pretrained: bool = True,
    seed: int = 0,
) -> Any:
    """A cost model for MetaSchedule: ``tune_tir(..., cost_model=cost_model(target=target))``.

    It starts with what is known of this machine's CPU (``hardware``; ``roofline`` is the summary that ``perfpass
    roofline`` wrote and replaces computed rates by measured ones), with the candidates that came with the package
    (``pretrained``) and with ``records``: folders of MetaSchedule databases (database_workload.json,
    database_tuning_record.json) or of saved models. ``target`` says how many cores a task may use. ``load`` is a
    folder that the model's ``save`` wrote, in the place of all that. ``seed`` is that of the trees' samples.

    Raises ArgumentError, ArtefactError (a folder that is damaged or of another version), FileError, FormatError
    (records), DeviceError (the CPU cannot be read) and UnsupportedError (a TVM or an environment without what is
    needed).
    """
    if not _CLASS:
        _CLASS.append(_define())
    if load is not None:
        return _CLASS[0](Ranker.load(Path(load)))
    cores = cores_of(tvm_names.target(target)) if target is not None else None
    machine = hardware or detect(cores, roofline=roofline)
    earlier: dict[str, Measured] = {}
    if pretrained:
        try:
            earlier |= shipped()
        except ArtefactError as error:
            _log.warning("without the shipped measurements: %s", error)
    for path in records:
        earlier |= read_records(Path(path), machine)
    return _CLASS[0](Ranker(machine, earlier, seed=seed))
