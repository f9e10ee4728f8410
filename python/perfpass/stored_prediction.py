"""A prediction read back from what `Prediction.to_dict` gave: a file of `--json`, a server's answer.

What is read has its declared type and bounds; a key that is not known is passed over, as later versions add some.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfpass.decision import Decision
from perfpass.declared import Anything, Choice, Exactly, Items, Maybe, Named, Number, Table, Text
from perfpass.errors import FormatError, PerfPassError
from perfpass.interval import Interval
from perfpass.prediction import (
    SCHEMA_VERSION,
    SUPPORT_LEVELS,
    MemoryFigures,
    MemoryVerdict,
    MigHint,
    Prediction,
    Support,
)

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
            others=Anything(),
        ),
        "mig": Table(
            {"profile": Maybe(Text(40)), "instances_per_gpu": Number(0, 64), "reason": _WORDS},
            ("profile",),
            others=Anything(),
        ),
        "support": Table(
            {"level": Choice(SUPPORT_LEVELS), "reasons": Items(_WORDS, 1000)}, ("level", "reasons"), others=Anything()
        ),
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
                others=Anything(),
            )
        ),
    },
    ("schema_version", "workload", "latency_ms", "throughput_per_s", "energy_j", "power_w", "memory", "mig", "support",
     "breakdown", "provenance"),
    others=Anything(),
)  # fmt: skip


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
