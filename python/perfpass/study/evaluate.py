"""`perfpass evaluate --predictors ..`: fit what the journal lacks, then write the tables and pictures from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfpass.errors import ArgumentError, FileError
from perfpass.records.graph_cache import directory
from perfpass.study import present, table
from perfpass.training.tasks import methods, tasks

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

    ``devices``: at most so many unseen devices a task. ``fit`` False: tables alone. ``output``: a folder that gets the
    tables and pictures. Raises ArgumentError for an unknown predictor, task or split, FileError for a journal with
    nothing in it and for a disk that refuses.
    """
    if jobs < 1:
        raise ArgumentError(f"--jobs must be at least 1, got {jobs}")
    chosen = [*methods.METHODS] if ALL in predictors else list(predictors)
    kept = table.Journal(journal or default_journal())
    wanted = table.cells(chosen, task_names or tasks.EVERY_TASK, splits or table.SPLIT_KINDS, seed, devices)
    if fit:
        table.run(kept, wanted, adaptation=adaptation, jobs=jobs, quiet=quiet)
    found = Comparison(present.collect(kept, seed))
    if not found.content["cells"]:
        raise FileError(f"{kept.path}: holds no result for these rows and seed; leave out --tables-only to fit some")
    if output:
        try:
            present.write(found.content, Path(output))
        except OSError as error:
            raise FileError(f"{output}: {error.strerror}; what was fitted is kept in {kept.path}") from error
    return found
