"""Earlier tuning records as measured candidates: MetaSchedule's JSON databases and models that were saved."""

from __future__ import annotations

import logging
import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.bounded_file import open_regular, reason
from perfpass.errors import FileError, FormatError, LimitError
from perfpass.json_text import parse
from perfpass.predictors.learned.artefacts import MANIFEST
from tvm_perfpass.cost_model import tvm_names
from tvm_perfpass.cost_model.candidates import Extractor
from tvm_perfpass.cost_model.hardware import Hardware
from tvm_perfpass.cost_model.ranking import Measured, Ranker

_log = logging.getLogger("tvm_perfpass.cost_model")
WORKLOADS, RECORDS = "database_workload.json", "database_tuning_record.json"
# Replaying a record's trace takes TVM some ten milliseconds; what a task's slower half says is soon known.
PER_TASK = 256
_MAX_BYTES = 256 << 20
# What MetaSchedule's and the runners' own "did not run" looks like in seconds.
_FAILED_S = 1e9


def seconds_of(result: Any) -> float:
    """The median run of a RunnerResult or a record in seconds; infinite where it failed or is no time."""
    runs = [float(s) for s in result.run_secs or ()]
    value = float(np.median(runs)) if runs else math.inf
    return value if 0 < value < _FAILED_S else math.inf


def task_key(mod: Any) -> str:
    """What tells tasks apart in records and in saved models."""
    return format(tvm_names.structural_hash(mod) & 0xFFFFFFFFFFFFFFFF, "016x")


def read_records(folder: Path, hardware: Hardware) -> dict[str, Measured]:
    """Measured candidates by task from a folder: a MetaSchedule database, or a model that `save` wrote.

    Of a task with more than PER_TASK records the best quarter and an even sample of the others are taken. A record
    that this TVM cannot replay is left out, with a line in the log. Raises FileError (no such folder), FormatError (not
    JSON, not a database), LimitError (over 256 MiB) and ArtefactError (a damaged saved model).
    """
    if (folder / MANIFEST).exists():
        saved = Ranker.load(folder)
        return {**saved.earlier, **saved.own}
    return _measured(list(open_database(folder).get_all_tuning_records()), hardware)


def open_database(folder: Path) -> Any:
    """A MetaSchedule database that was written to ``folder``. Raises FileError, FormatError, LimitError."""
    for name in (WORKLOADS, RECORDS):
        _check(folder / name)
    measure = tvm_names.meta_schedule()
    try:
        database = measure.database.JSONDatabase(str(folder / WORKLOADS), str(folder / RECORDS))
        database.get_all_tuning_records()
    except Exception as error:  # TVM has an error of its own for every way in which a database can be wrong
        raise FormatError(
            f"{folder}: TVM cannot read it as a MetaSchedule database ({' '.join(str(error).split())[-200:]}); "
            "was it written by another release of TVM?"
        ) from error
    return database


def _measured(records: list[Any], hardware: Hardware) -> dict[str, Measured]:
    by_task: dict[str, list[tuple[float, Any]]] = {}
    for record in records:
        by_task.setdefault(task_key(record.workload.mod), []).append((seconds_of(record), record))
    found: dict[str, Measured] = {}
    extractor, left_out = Extractor(hardware), 0
    for key, pairs in by_task.items():
        pairs.sort(key=lambda pair: pair[0])
        candidates, seconds = [], []
        for value, record in _sample(pairs):
            try:
                candidates.append(record.as_measure_candidate())
                seconds.append(value)
            except Exception:  # a trace of another release, or of a rule that is not registered here
                left_out += 1
        if not candidates:
            continue
        first = pairs[0][1]
        context = tvm_names.meta_schedule().TuneContext(mod=first.workload.mod, target=first.target, num_threads=1)
        features, hashes = extractor.extract(context, candidates)
        usable = np.isfinite(features).all(axis=1)
        keys = [key for key, keep in zip(hashes, usable, strict=True) if keep]
        found[key] = Measured()
        found[key].add(features[usable], np.array(seconds)[usable], keys)
    if left_out:
        _log.warning("%d of %d records could not be replayed by this TVM and are left out", left_out, len(records))
    return found


def _sample(pairs: list[tuple[float, Any]]) -> list[tuple[float, Any]]:
    if len(pairs) <= PER_TASK:
        return pairs
    best = pairs[: PER_TASK // 4]
    rest = pairs[PER_TASK // 4 :]
    places = np.linspace(0, len(rest) - 1, PER_TASK - len(best)).astype(int)
    return best + [rest[i] for i in places]


def _check(path: Path) -> None:
    """A database is a file of JSON lines; what is none is told here, before TVM aborts on it."""
    try:
        with os.fdopen(open_regular(path, "a MetaSchedule database"), "rb") as lines:
            if os.fstat(lines.fileno()).st_size > _MAX_BYTES:
                raise LimitError(f"{path}: over {_MAX_BYTES} bytes; keep the records of the tasks that matter")
            for number, line in enumerate(lines, 1):
                if line.strip():
                    where = f"{path}, line {number}"
                    parse(line, where, any_number=True, way_out="was its writing cut off, or is it no JSON lines?")
    except OSError as error:
        found = str(error) if isinstance(error, FileError) else f"{path}: {reason(error)}"
        raise FileError(f"{found}; give the folder of a MetaSchedule database") from error
