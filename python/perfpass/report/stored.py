"""Results as files: what `--json` of a command wrote, read back for a picture or a page."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from perfpass.errors import FormatError, PerfPassError, shown
from perfpass.json_text import read_json

LARGEST_BYTES = 2**28
Kind = Literal["prediction", "sweep", "fleet", "diff", "fit", "choice", "served", "training", "layouts"]
# The keys that only a result of a kind has together.
_KEYS: dict[Kind, frozenset[str]] = {
    "prediction": frozenset({"workload", "latency_ms", "breakdown", "provenance"}),
    "served": frozenset({"serving", "ttft_ms", "tpot_ms"}),
    "sweep": frozenset({"settings", "figures", "points"}),
    "fleet": frozenset({"gpus", "status", "objective"}),
    "diff": frozenset({"old", "new", "exact", "changes"}),
    "fit": frozenset({"answers", "confidence", "runtime", "settings"}),
    "choice": frozenset({"decision", "options", "targets"}),
    "training": frozenset({"recipe", "layout", "stages", "step_parts_s"}),
    "layouts": frozenset({"tried", "best", "do_not_fit"}),
}
_WAY_OUT = "write it with --json of predict, llm, sweep, pack, diff, fit, choose or train-cost"


@dataclass(frozen=True)
class Stored:
    """One result of a file: its kind, and the document as it was written."""

    kind: Kind
    document: dict[str, Any]
    path: str


def kind_of(document: Any) -> Kind | None:
    """What a document is a result of; None where it is none."""
    if not isinstance(document, Mapping):
        return None
    return next((kind for kind, keys in _KEYS.items() if keys <= document.keys()), None)


def is_stored(path: Any) -> bool:
    """Whether a path names a JSON file that holds a result, and not a model's configuration."""
    if not (isinstance(path, (str, os.PathLike)) and os.fspath(path).endswith(".json") and os.path.isfile(path)):
        return False
    try:
        document = read_json(path, "a result", LARGEST_BYTES, way_out=_WAY_OUT)
    except PerfPassError:
        return False
    return kind_of(document[0] if isinstance(document, list) and document else document) is not None


def read(path: str | os.PathLike[str]) -> list[Stored]:
    """The results of a file. Raises FileError, FormatError, LimitError."""
    document = read_json(path, "a result", LARGEST_BYTES, way_out=_WAY_OUT)
    found = []
    for one in document if isinstance(document, list) else [document]:
        kind = kind_of(one)
        if kind is None:
            raise FormatError(f"{shown(path)} holds no result that can be shown; {_WAY_OUT}")
        found.append(Stored(kind, one, os.fspath(path)))
    return found
