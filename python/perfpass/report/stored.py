"""Results as files: what `--json` of a command wrote, read back for a picture or a page."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from perfpass.decision import Decision
from perfpass.declared import Anything, Choice, Exactly, Items, Maybe, Named, Number, Table, Text
from perfpass.errors import FormatError, PerfPassError, shown
from perfpass.interval import Interval
from perfpass.json_text import read_json
from perfpass.prediction import (
    SCHEMA_VERSION,
    SUPPORT_LEVELS,
    MemoryFigures,
    MemoryVerdict,
    MigHint,
    Prediction,
    Support,
)

LARGEST_BYTES = 2**28
Kind = Literal["prediction", "sweep", "fleet", "diff", "fit", "choice", "served"]
# The keys that only a result of a kind has together.
_KEYS: dict[Kind, frozenset[str]] = {
    "prediction": frozenset({"workload", "latency_ms", "breakdown", "provenance"}),
    "served": frozenset({"serving", "ttft_ms", "tpot_ms"}),
    "sweep": frozenset({"settings", "figures", "points"}),
    "fleet": frozenset({"gpus", "status", "objective"}),
    "diff": frozenset({"old", "new", "exact", "changes"}),
    "fit": frozenset({"answers", "confidence", "runtime", "settings"}),
    "choice": frozenset({"decision", "options", "targets"}),
}
_WAY_OUT = "write it with --json of predict, llm, sweep, pack, diff, fit or choose"
_MOST = 1e30
_INTERVAL = Table(
    {**dict.fromkeys(("median", "low", "high"), Number(0, _MOST)), "unit": Text(20), "coverage": Number(0, 1)},
    ("median", "low", "high", "unit"),
)
_WORDS = Text(100_000, empty=True)
_ANYTHING = Table({}, others=Anything())
_DEVICE = Table({"id": Text(200), "name": Text(400)}, ("id", "name"), others=Anything())
_PREDICTION = Table(
    {
        "schema_version": Exactly(SCHEMA_VERSION),
        "workload": Table(
            {"batch": Number(1, 2**48), **dict.fromkeys(("device", "precision", "mode", "runtime", "layout"), Text())},
            ("device", "batch", "precision", "mode", "runtime", "layout"),
            others=Anything(),
        ),
        **dict.fromkeys(("latency_ms", "throughput_per_s", "energy_j", "power_w"), _INTERVAL),
        "memory": Table(
            {
                "in_use": _INTERVAL,
                **dict.fromkeys(("alive", "reserved"), Maybe(_INTERVAL)),
                "gradients_bytes": Maybe(Number(0, _MOST)),
            },
            ("in_use",),
        ),
        "mig": Table({"profile": Maybe(Text(40)), "instances_per_gpu": Number(0, 64), "reason": _WORDS}, ("profile",)),
        "support": Table({"level": Choice(SUPPORT_LEVELS), "reasons": Items(_WORDS, 1000)}, ("level", "reasons")),
        "breakdown": Table(
            {
                "latency_ms": Named(Number(0, _MOST), 1000),
                "memory_bytes": Named(Number(0, _MOST), 1000),
                "operators": Items(
                    Table(
                        {
                            **dict.fromkeys(("operator", "source_operator", "example"), _WORDS),
                            **dict.fromkeys(("count", "macs", "ms"), Number(0, _MOST)),
                            "output_shape": Items(Number(0, 2**62), 64),
                        },
                        ("operator", "example", "count", "ms", "output_shape"),
                    ),
                    1000,
                ),
                "peak": _ANYTHING,
            },
            ("latency_ms", "memory_bytes", "operators"),
            others=Anything(),
        ),
        "provenance": Table({"device": _DEVICE}, ("device",), others=Anything()),
        "memory_verdict": Maybe(
            Table(
                {
                    "fits": Choice(("yes", "perhaps", "no")),
                    "headline": _WORDS,
                    "holder": _WORDS,
                    **dict.fromkeys(("needed_bytes", "needed_high_bytes", "available_bytes"), Number(0, 2**62)),
                    "probability": Maybe(Number(0, 1)),
                    "remedies": Items(_WORDS, 100),
                },
                ("fits", "needed_bytes", "needed_high_bytes", "available_bytes", "remedies"),
            )
        ),
    },
    ("schema_version", "workload", "latency_ms", "throughput_per_s", "energy_j", "power_w", "memory", "mig", "support",
     "breakdown", "provenance"),
    others=Anything(),
)  # fmt: skip


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


def prediction_of(document: Mapping[str, Any], where: str = "the prediction") -> Prediction:
    """What `Prediction.to_dict` gave; it has no graph. Raises FormatError."""
    found = _PREDICTION.take(document, where)
    memory, mig, verdict = found["memory"], found["mig"], found.get("memory_verdict")
    try:
        return Prediction(
            **{name: Interval(**found[name]) for name in ("latency_ms", "throughput_per_s", "energy_j", "power_w")},
            memory=MemoryFigures(
                Interval(**memory["in_use"]),
                Interval(**memory["alive"]) if memory.get("alive") else None,
                Interval(**memory["reserved"]) if memory.get("reserved") else None,
                memory.get("gradients_bytes"),
            ),
            mig=MigHint(mig["profile"], int(mig.get("instances_per_gpu", 0)), mig.get("reason", "")),
            support=Support(found["support"]["level"], tuple(found["support"]["reasons"])),
            breakdown=found["breakdown"],
            provenance=found["provenance"],
            workload=found["workload"],
            memory_verdict=None if verdict is None else _verdict(verdict),
            decision=Decision.from_dict(document["decision"], where) if document.get("decision") else None,
        )
    except PerfPassError as error:
        raise FormatError(f"{where}: {error}") from error


def _verdict(found: Mapping[str, Any]) -> MemoryVerdict:
    needed, most, available = (int(found[n]) for n in ("needed_bytes", "needed_high_bytes", "available_bytes"))
    probability = found.get("probability")
    holder = found.get("holder", MemoryVerdict.holder)
    return MemoryVerdict(
        found["fits"], needed, most, available, tuple(found["remedies"]), probability=probability, holder=holder
    )
