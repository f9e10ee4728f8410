"""Campaign files: a TOML table of sweeps -> configurations in a fixed order.

name = "cpu-small"

[protocol]                     # optional, fields of Protocol
measure_max_s = 3.0

[[sweep]]                      # every combination of the lists
model = ["timm:resnet18", "timm:vit_tiny_patch16_224"]
mode = ["inference", "training"]
batch = [1, 8]
repeats = 2                    # each combination measured twice
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import product
from pathlib import Path
from typing import Any

from perfpass.declared import Anything, Items, Named, Number, Table, Text
from perfpass.errors import ArgumentError, LimitError
from perfpass.measure.configuration import Configuration, Protocol
from perfpass.toml_table import read_toml

LARGEST_CAMPAIGN = 100_000  # configurations
# What each value may be, `Configuration` says, of one at a time.
_SWEEP = Table(
    {
        **{field.name: Anything() for field in fields(Configuration) if field.name != "repeat"},
        "repeats": Number(1, 1000, whole=True),
    },
    ("model",),
)
_FILE = Table(
    {
        "name": Text(),
        "protocol": Named(Anything()),
        "sweep": Items(Named(Anything()), LARGEST_CAMPAIGN, 1, " ([[sweep]] blocks)"),
    },
    ("sweep",),
    " ([[sweep]] blocks): nothing to measure",
)


@dataclass(frozen=True)
class Campaign:
    """A name, configurations in the file's order without repetitions, and the protocol of all of them."""

    name: str
    configurations: tuple[Configuration, ...]
    protocol: Protocol


def read_campaign(path: str | os.PathLike[str], **fixed: Any) -> Campaign:
    """The campaign of a TOML file; ``fixed`` fields (``device="cuda"``) replace those of every sweep.

    Raises FileError, FormatError for a file that is no TOML, ArgumentError (naming the sweep) for what it says,
    LimitError above 100,000 configurations.
    """
    path = Path(path)
    content = read_toml(path, "a campaign file")
    try:
        return campaign(content, default_name=path.stem, **fixed)
    except ArgumentError as error:
        raise ArgumentError(f"{path}: {error}") from error


def campaign(content: Mapping[str, Any], default_name: str = "campaign", **fixed: Any) -> Campaign:
    """The campaign of a parsed file (see the module's docstring)."""
    _FILE.take(content, "", ArgumentError)
    found: dict[Configuration, None] = {}
    for number, sweep in enumerate(content["sweep"], 1):
        try:
            found.update(dict.fromkeys(_expand(sweep | fixed)))
        except ArgumentError as error:
            raise ArgumentError(f"sweep {number}: {error}") from error
        if len(found) > LARGEST_CAMPAIGN:
            raise LimitError(f"over {LARGEST_CAMPAIGN} configurations; split the campaign")
    protocol = Protocol.from_dict(content.get("protocol", {}))
    return Campaign(content.get("name", default_name), tuple(found), protocol)


def _expand(sweep: Mapping[str, Any]) -> list[Configuration]:
    """Every combination of the sweep's lists, the model outermost, in the order written.

    ``optimizer`` is for its training steps only. A combination may come out twice; the caller drops repetitions.
    """
    _SWEEP.take(sweep, "", ArgumentError)
    allowed = [name for name in _SWEEP.keys if name != "repeats"]
    repeats = sweep.get("repeats", 1)
    axes = {name: _as_list(name, sweep[name]) for name in allowed if name in sweep}
    count = repeats
    for values in axes.values():
        count *= len(values)
    if count > LARGEST_CAMPAIGN:
        raise LimitError(f"{count} combinations; at most {LARGEST_CAMPAIGN} are allowed, split the campaign")
    found = []
    for combination in product(*axes.values()):
        chosen = dict(zip(axes, combination, strict=True))
        if chosen.get("mode", "inference") != "training" and "training" in axes.get("mode", ()):
            chosen.pop("optimizer", None)
        found += [Configuration(**chosen, repeat=repeat) for repeat in range(repeats)]
    return found


def _as_list(name: str, value: Any) -> list[Any]:
    values = value if isinstance(value, list) else [value]
    if not values:
        raise ArgumentError(f"{name} is an empty list")
    return values
