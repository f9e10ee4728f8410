"""Every predictor on every split of every task, kept in a journal from which an interrupted run goes on.

A cell is one predictor on one split. Its predictions go into an .npz beside the journal, then its line is appended; a
line that a kill cut short is not read, and its cell is fitted again. Tables are made from the journal alone
(`perfpass.study.present`).
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import platform
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from perfpass import npz
from perfpass.errors import ArgumentError, FileError, FormatError, LimitError, PerfPassError, UnsupportedError
from perfpass.training.section import grade
from perfpass.training.tasks import methods, tasks
from perfpass.training.tasks.graphs import Graphs
from perfpass.training.tasks.tasks import Split, Task
from perfpass.whole_file import append_line, replacing, whole_lines

# From quick to slow, so that the table has whole rows early.
TASK_ORDER = ("training_step", "memory", "power", "energy", tasks.LANGUAGE_TASK, "latency")
SPLIT_KINDS = ("random", "architecture", "family", "device")
# Devices of the adaptation curves: enough rows of other networks remain to judge on after 128 were drawn.
ADAPTATION_DEVICES: dict[str, tuple[str, ...]] = {
    "latency": ("rtx-3090", "rtx-4090", "rtx-pro-6000-blackwell-max-q", "core-i9-10940x", "core-i7-12700h"),
    "training_step": ("rtx-3090",),
    tasks.LANGUAGE_TASK: (
        *("a100-sxm4-40gb", "h100-sxm5-80gb", "gh200-96gb", "mi250-module", "mi300x", "gaudi2-96gb", "max-1550"),
    ),
}
WORST = 3
_MOST_PREDICTED_BYTES = 2**28


@dataclass(frozen=True)
class Cell:
    """One predictor on one split of a task."""

    predictor: str
    task: str
    split: str
    seed: int = 0

    @property
    def name(self) -> str:
        """What it is called in the journal and on disk."""
        return f"{self.predictor} {self.task} {self.split} {self.seed}".replace(" ", "_").replace("/", "_")

    @property
    def device(self) -> str:
        """The device held out, or nothing."""
        return self.split.removeprefix("device ") if self.split.startswith("device ") else ""


class Journal:
    """Lines of JSON, one per cell, the last of a cell counts; predictions in a folder of the same name."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.folder = self.path.with_name(self.path.name + ".predictions")

    def entries(self) -> dict[Cell, dict[str, Any]]:
        """What is there, by cell. A damaged line (of a kill, or a full disk) is passed over. Raises FileError."""
        found: dict[Cell, dict[str, Any]] = {}
        for line in whole_lines(self.path):
            try:
                entry = json.loads(line)
                named = [entry[name] for name in ("predictor", "task", "split", "seed")]
            except (ValueError, KeyError, TypeError, RecursionError):
                continue
            if [type(part) for part in named] == [str, str, str, int]:
                found[Cell(*named)] = entry
        return found

    def open(self) -> None:
        """Make the place where cells are kept, before any is fitted. Raises FileError."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.path.touch()
        except OSError as error:
            raise FileError(f"{self.path}: a journal cannot be kept there: {error.strerror}") from error

    def add(self, cell: Cell, entry: dict[str, Any], predictions: dict[str, np.ndarray]) -> None:
        """Keep a cell: first its predictions, then its line, each whole or not at all. Raises FileError."""
        with replacing(self.folder / f"{cell.name}.npz", f"the cells before {cell.name} are kept") as file:
            np.savez(file, **predictions)  # type: ignore[arg-type]
        append_line(self.path, json.dumps({**asdict(cell), **entry}, allow_nan=False))

    def predictions(self, cell: Cell) -> dict[str, np.ndarray] | None:
        """``valid`` and ``test`` of a cell, None where they are not there."""
        try:
            with (self.folder / f"{cell.name}.npz").open("rb") as file:
                return npz.arrays(file, _MOST_PREDICTED_BYTES, {"valid": "f", "test": "f"})
        except (OSError, FormatError, LimitError):
            return None


@lru_cache(maxsize=1)
def graphs() -> Graphs:
    """The graphs of this process."""
    return Graphs()


@lru_cache(maxsize=len(tasks.EVERY_TASK))
def task_of(name: str) -> Task:
    """A task's rows whose network can be traced."""
    return tasks.load(name).traced(graphs(), quiet=True)


@cache
def method_of(name: str) -> Any:
    """A method; one object serves all splits."""
    return methods.method(name)


@cache
def splits_of(task: str, seed: int) -> dict[str, Split]:
    """The splits of a task by name."""
    return {split.name: split for split in task_of(task).splits(seed)}


def cells(
    predictors: Sequence[str], task_names: Sequence[str], kinds: Sequence[str], seed: int, devices: int | None = None
) -> list[Cell]:
    """The cells asked for, in the order in which they are fitted: every task's held-out networks, then its devices.

    ``devices``: at most so many unseen devices of a task, those with most rows. Raises ArgumentError for an unknown
    predictor, task or split.
    """
    for what, asked, allowed in (
        ("predictor", predictors, [*methods.METHODS]),
        ("task", task_names, [*tasks.EVERY_TASK]),
        ("split", kinds, [*SPLIT_KINDS]),
    ):
        for name in asked:
            if name not in allowed:
                raise ArgumentError(f"unknown {what} {name!r}; allowed are {', '.join(allowed)}")
    found = []
    for task in [t for t in TASK_ORDER if t in task_names]:
        by_kind: dict[str, list[str]] = {kind: [] for kind in SPLIT_KINDS}
        for name in splits_of(task, seed):
            by_kind[name.partition(" ")[0]].append(name)
        rows = task_of(task).rows.device.value_counts()
        by_kind["device"] = sorted(by_kind["device"], key=lambda name: -rows[name.removeprefix("device ")])[:devices]
        for predictor in [p for p in methods.METHODS if p in predictors and methods.made_for(p, task)]:
            found += [Cell(predictor, task, name, seed) for kind in kinds for name in by_kind[kind]]
    return sorted(found, key=lambda cell: bool(cell.device))


def rows_digest(task: Task, split: Split) -> str:
    """What a cell was fitted and judged on; another one is another cell's result."""
    digest = hashlib.sha256(task.value.tobytes())
    for part in (split.train, split.valid, split.test):
        digest.update(np.asarray(part, dtype=np.int64).tobytes())
    return digest.hexdigest()[:16]


def run_cell(cell: Cell, adaptation: bool) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Fit, predict and grade one cell: its line of the journal, and its predictions."""
    task, split = task_of(cell.task), splits_of(cell.task, cell.seed)[cell.split]
    started = time.process_time()
    given = replace(split, valid=split.valid[:0]) if cell.predictor in methods.WITHOUT_VALIDATION else split
    fitted = method_of(cell.predictor).fit(task, graphs(), given, cell.seed)
    between = time.process_time()
    test = np.asarray(fitted.predict(split.test), dtype=np.float64)
    done = time.process_time()
    valid = np.asarray(fitted.predict(split.valid), dtype=np.float64)
    if not (np.isfinite(test).all() and np.isfinite(valid).all()):
        raise UnsupportedError("predicts values that are not finite; there is nothing to grade")
    entry: dict[str, Any] = {
        **graded(test, task.value[split.test]),
        "valid_mape_pct": 100.0 * float(np.mean(np.abs(valid / task.value[split.valid] - 1.0))),
        "fit_s": between - started,
        "predict_ms_per_row": 1e3 * (done - between) / len(test),
        "parameters": int(fitted.parameters),
        "rows_digest": rows_digest(task, split),
        "worst_cases": worst_cases(task, split.test, test),
        "machine": machine(),
    }
    if adaptation and cell.device in ADAPTATION_DEVICES.get(cell.task, ()):
        entry["adaptation"] = adaptation_curve(task, cell.device, fitted, cell.seed)
    return entry, {"valid": valid, "test": test}


def graded(predicted: np.ndarray, measured: np.ndarray) -> dict[str, Any]:
    """The metrics of a cell."""
    found = grade(predicted, measured)
    names = ("rows", "mape_pct", "median_ape_pct", "p90_ape_pct", "within_10_pct", "rmse", "kendall_tau")
    return {name: getattr(found, name) for name in names}


def adaptation_curve(task: Task, device: str, fitted: Any, seed: int) -> list[dict[str, Any]]:
    """Errors on one set of the device's rows, before and after learning from 8 to 128 others, of other networks."""
    found = []
    for size in tasks.ADAPTATION_SIZES:
        split = task.adaptation(device, size, seed)
        started = time.process_time()
        now = fitted.adapted(split.train[-size:], seed) if size else fitted
        seconds = time.process_time() - started
        errors = graded(np.asarray(now.predict(split.test)), task.value[split.test])
        found.append({"size": size, "adapt_s": seconds, **errors})
    return found


def worst_cases(task: Task, rows: np.ndarray, predicted: np.ndarray) -> list[dict[str, Any]]:
    """The rows that are furthest off by ratio."""
    measured = task.value[rows]
    found = []
    for i in np.argsort(-np.abs(np.log(np.maximum(predicted, 1e-300) / measured)))[:WORST]:
        r = task.rows.iloc[rows[i]]
        case = f"{r.model} {r.img_size}, {r.device}, {r.precision} {r.layout} {r.runtime}, batch {r.batch}"
        found.append({"case": case, "measured": float(measured[i]), "predicted": float(predicted[i])})
    return found


def machine() -> str:
    """What times were taken on."""
    model = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    return f"{model}, one thread"


def missing(journal: Journal, wanted: Iterable[Cell], adaptation: bool) -> Iterator[Cell]:
    """The cells that the journal does not have, of these rows."""
    have = journal.entries()
    for cell in wanted:
        entry = have.get(cell)
        task, split = task_of(cell.task), splits_of(cell.task, cell.seed)[cell.split]
        curve = adaptation and cell.device in ADAPTATION_DEVICES.get(cell.task, ())
        if (
            entry is None
            or entry.get("rows_digest") != rows_digest(task, split)
            or (curve and "adaptation" not in entry)
        ):
            yield cell


def run(
    journal: Journal, wanted: Sequence[Cell], *, adaptation: bool = False, jobs: int = 1, quiet: bool = False
) -> None:
    """Fit what the journal lacks. A predictor that fails on a cell is reported and left out; the others go on.

    Raises FileError where the journal cannot be kept.
    """
    journal.open()
    todo = list(missing(journal, wanted, adaptation))
    if jobs == 1 or len(todo) < 2:
        for cell in todo:
            _one(journal, cell, adaptation, quiet)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(jobs, _quiet_worker) as pool:
        arguments = [(journal, cell, adaptation, quiet) for cell in todo]
        for _ in pool.imap_unordered(_one_of, arguments, chunksize=1):
            pass


def _quiet_worker() -> None:
    try:
        import torch

        torch.set_num_threads(1)
    except ModuleNotFoundError:
        pass  # predictors without networks need none


def _one_of(arguments: tuple[Journal, Cell, bool, bool]) -> None:
    _one(*arguments)


def _one(journal: Journal, cell: Cell, adaptation: bool, quiet: bool) -> None:
    try:
        entry, predictions = run_cell(cell, adaptation)
    except PerfPassError as error:
        print(f"evaluate: {cell.name}: {error}", file=sys.stderr, flush=True)
        return
    journal.add(cell, entry, predictions)
    if not quiet:
        print(f"evaluate: {cell.name}: {entry['mape_pct']:.1f} %, {entry['fit_s']:.0f} s", file=sys.stderr, flush=True)
