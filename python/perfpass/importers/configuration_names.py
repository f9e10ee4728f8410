"""Names under which models are known -> shipped configurations (`configuration_names.toml`)."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfpass.bounded_file import exists
from perfpass.errors import FileError, shown
from perfpass.importers.model_sources import CONFIGURATIONS
from perfpass.text import nearest
from perfpass.toml_table import parse


@functools.cache
def known() -> dict[str, str]:
    """Lower-case name -> name of the shipped configuration; both forms, with and without the owner."""
    content = parse((Path(__file__).with_suffix(".toml")).read_text(encoding="utf-8"))
    found = {path.stem: path.stem for path in sorted(CONFIGURATIONS.glob("*.json"))}
    for configuration, names in content["names"].items():
        for name in names:
            found[name.lower()] = configuration
            found.setdefault(name.rsplit("/", 1)[-1].lower(), configuration)
    return found


@functools.cache
def _publishers() -> dict[str, tuple[str, ...]]:
    """Lower-case owner -> how the names of its shipped configurations begin."""
    content = parse((Path(__file__).with_suffix(".toml")).read_text(encoding="utf-8"))
    return {owner.lower(): tuple(begins) for owner, begins in content["publishers"].items()}


def _published(name: str) -> str | None:
    """The shipped configuration of ``Owner/Name``, ``Owner/Name-hf`` or ``Owner/Name-chat-hf`` of its publisher."""
    owner, slash, own = name.lower().rpartition("/")
    shipped = own.removesuffix("-hf")
    for candidate in (own, shipped, shipped.removesuffix("-chat")):
        found = known().get(candidate)
        if found and (not slash or found.startswith(_publishers().get(owner, ("/",)))):
            return found
    return None


def shipped(name: str) -> str | None:
    """The shipped configuration of a name of `known`, or of a repository of its publisher; None for another."""
    return known().get(name.lower()) or _published(name)


def resolve(config: str | os.PathLike[str] | Mapping[str, Any]) -> str | os.PathLike[str] | Mapping[str, Any]:
    """A name of `known`, or of a repository of its publisher, as that of the shipped configuration; files, folders and
    contents as they are.

    Raises FileError for a name that is neither known nor a file.
    """
    if isinstance(config, Mapping) or exists(Path(config)):
        return config
    found = shipped(str(config))
    if found is None:
        raise FileError(
            f"{shown(config)}: neither a file nor a known model;{nearest(str(config), known())} Pass its "
            "config.json, its folder, or a name of perfpass/importers/configuration_names.toml"
        )
    return found
