"""`perfpass evaluate --predictors ..`: fit what the journal lacks, then write the tables and pictures from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfpass.errors import ArgumentError
from perfpass.records.graph_cache import directory
from perfpass.records.location import data_directory
from perfpass.training.comparison import methods, present, table, tasks

ALL = "all"


@dataclass(frozen=True)
class Comparison:
    """The content of table.json; prints as predictors.md."""

    content: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return self.content

    def __str__(self) -> str:
        return present.markdown(self.content)


def default_journal() -> Path:
    """Beside the caches of this user."""
    return directory().parent / "comparison" / "journal.jsonl"


def results() -> Path:
    """Where the tables of the repository lie."""
    return data_directory() / "results" / "comparison"


def evaluate(
    predictors: Sequence[str],
    *,
    task_names: Sequence[str] | None = None,
    splits: Sequence[str] | None = None,
    devices: int | None = None,
    journal: Path | str | None = None,
    output: Path | str | None = None,
    seed: int = 0,
    jobs: int = 1,
    adaptation: bool = False,
    fit: bool = True,
    quiet: bool = False,
) -> Comparison:
    """Every one of ``predictors`` ("all": all) on the splits of the tasks, and tables of all that the journal holds.

    ``devices``: at most so many unseen devices a task. ``fit`` False: tables alone. ``output``: a folder for the tables
    (default: those of the repository). Raises ArgumentError for an unknown predictor, task or split.
    """
    if jobs < 1:
        raise ArgumentError(f"--jobs must be at least 1, got {jobs}")
    chosen = [*methods.METHODS] if ALL in predictors else list(predictors)
    kept = table.Journal(journal or default_journal())
    wanted = table.cells(chosen, task_names or tasks.EVERY_TASK, splits or table.SPLIT_KINDS, seed, devices)
    if fit:
        kept.path.parent.mkdir(parents=True, exist_ok=True)
        table.run(kept, wanted, adaptation=adaptation, jobs=jobs, quiet=quiet)
    found = Comparison(present.collect(kept, seed))
    present.write(found.content, Path(output) if output else results())
    return found
