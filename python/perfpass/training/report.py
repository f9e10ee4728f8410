"""`perfpass train` and `perfpass evaluate`: every area of `AREAS`, one after the other."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import perfpass
from perfpass.errors import ArgumentError, ArtefactError, FileError
from perfpass.predictors.learned import artefacts
from perfpass.records.location import data_directory
from perfpass.training import areas
from perfpass.training.section import Section
from perfpass.whole_file import write_whole

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
    resume: bool = False,
    quiet: bool = False,
) -> list[Path]:
    """Fit what ships in each area (default: all) from the folder ``records`` (default: the repository's data).

    ``output``: a folder in which each artefact gets a folder of its area's name (default: where it ships from). Every
    manifest says what it was made from (``made_from``: digests of the records, of the program, and the seed); with
    ``resume`` an area whose artefact was made from just that is left as it is, so an interrupted run goes on where it
    stopped. Returns the folders. Raises ArgumentError for an unknown area, or one without anything to train.
    """
    chosen = _chosen(names, "train")
    made_from = {**_digests(records), "seed": seed}
    written = []
    for name in chosen:
        started = time.monotonic()
        place = artefacts.shipped(name) if output is None else Path(output) / name
        if resume and _made_from(place) == made_from:
            _say(quiet, f"train {name}: up to date")
        else:
            artefacts.check_writable(place)
            areas.module(name).train(records, str(place), seed=seed, quiet=quiet)
            artefacts.annotate(place, {"made_from": made_from})
            _say(quiet, f"train {name}: {time.monotonic() - started:.0f} s")
        written.append(place)
    return written


def _say(quiet: bool, text: str) -> None:
    if not quiet:
        print(text, file=sys.stderr, flush=True)


_PROGRAM = ("*.py", "*.toml", "*.tsv", "configurations/*.json")


def _digests(records: str | None) -> dict[str, str]:
    """SHA-256 of the records and graphs, and of the program that learns from them."""
    data, package = Path(records) if records else data_directory(), Path(perfpass.__file__).parent
    # The results of evaluations lie beside the records and change nothing.
    files = {
        "records_sha256": [p for part in ("records", "graphs") for p in (data / part).rglob("*")],
        "program_sha256": [p for kind in _PROGRAM for p in package.rglob(kind)],
    }
    out = {}
    for name, paths in files.items():
        digest = hashlib.sha256()
        for path in sorted(p for p in paths if p.is_file()):
            digest.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
        out[name] = digest.hexdigest()
    return out


def _made_from(place: Path) -> Any:
    try:
        return artefacts.Artefact(place).manifest.get("made_from")
    except ArtefactError:
        return None


def evaluate(
    records: str | None = None,
    names: Sequence[str] | None = None,
    *,
    output: str | None = None,
    seed: int = 0,
    quiet: bool = False,
) -> Report:
    """Grade each area (default: all) on the folder ``records`` (default: the repository's data).

    ``output``: a folder that gets AREA.json, AREA.md and AREA.png as soon as an area is done. Raises ArgumentError for
    an unknown area, FileError where nothing can be written.
    """
    chosen = _chosen(names, "evaluate")
    if output:
        artefacts.check_writable(Path(output) / "tables")
    sections = []
    for name in chosen:
        started = time.monotonic()
        section = areas.module(name).evaluate(records, seed, quiet=quiet)
        sections.append(section)
        if output:
            _write(Path(output), section)
        _say(quiet, f"evaluate {name}: {time.monotonic() - started:.0f} s")
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

    text = json.dumps({"schema_version": SCHEMA_VERSION, **section.to_dict()}, indent=1, allow_nan=False)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / f"{section.area}.json", text + "\n")
        write_whole(folder / f"{section.area}.md", f"{section}\n")
        save_section(section, folder / f"{section.area}.png")
    except OSError as error:
        raise FileError(f"{folder}: {error.strerror}; the results of {section.area} could not be written") from error
