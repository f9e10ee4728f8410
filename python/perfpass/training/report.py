"""`perfpass train` and `perfpass evaluate`: every area of `AREAS`, one after the other."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfpass.errors import ArgumentError
from perfpass.training import areas
from perfpass.training.section import Section

SCHEMA_VERSION = 2


@dataclass(frozen=True)
class Report:
    """What `evaluate` found; prints as Markdown."""

    sections: tuple[Section, ...]

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return {"schema_version": SCHEMA_VERSION, "areas": {s.area: s.to_dict() for s in self.sections}}

    def __str__(self) -> str:
        return "\n\n".join(str(s) for s in self.sections)


def train(
    records: str | None = None,
    output: str | None = None,
    names: Sequence[str] | None = None,
    *,
    seed: int = 0,
    quiet: bool = False,
) -> list[Path]:
    """Fit what ships in each area (default: all) from the folder ``records`` (default: the repository's data).

    ``output``: a folder in which each artefact gets a folder of its area's name (default: where it ships from). An
    area whose artefact is written stays written when a later one fails or is interrupted; name the rest to go on.
    Returns the folders. Raises ArgumentError for an unknown area, or one without anything to train.
    """
    chosen = _chosen(names, "train")
    written = []
    for name in chosen:
        started = time.monotonic()
        place = None if output is None else str(Path(output) / name)
        written.append(areas.module(name).train(records, place, seed=seed, quiet=quiet))
        if not quiet:
            print(f"train {name}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    return written


def evaluate(
    records: str | None = None,
    names: Sequence[str] | None = None,
    *,
    output: str | None = None,
    seed: int = 0,
    quiet: bool = False,
) -> Report:
    """Grade each area (default: all) on the folder ``records`` (default: the repository's data).

    ``output``: a folder that gets AREA.json, AREA.md and AREA.svg as soon as an area is done. Raises ArgumentError for
    an unknown area.
    """
    chosen = _chosen(names, "evaluate")
    sections = []
    for name in chosen:
        started = time.monotonic()
        section = areas.module(name).evaluate(records, seed, quiet=quiet)
        sections.append(section)
        if output:
            _write(Path(output), section)
        if not quiet:
            print(f"evaluate {name}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    return Report(tuple(sections))


def _chosen(names: Sequence[str] | None, what: str) -> list[str]:
    able = [name for name in areas.AREAS if hasattr(areas.module(name), what)]
    for name in names or ():
        areas.module(name)
        if name not in able:
            raise ArgumentError(f"nothing to {what} in the area {name!r}; allowed are {', '.join(able)}")
    return list(names or able)


def _write(folder: Path, section: Section) -> None:
    """One area's table, its figures as JSON, and its picture."""
    from perfpass.training.pictures import save_section

    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"schema_version": SCHEMA_VERSION, **section.to_dict()}, indent=1, allow_nan=False)
    (folder / f"{section.area}.json").write_text(text + "\n", encoding="utf-8")
    (folder / f"{section.area}.md").write_text(f"{section}\n", encoding="utf-8")
    save_section(section, folder / f"{section.area}.svg")
