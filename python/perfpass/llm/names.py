"""Names under which models are known -> shipped configurations (`names.toml`)."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfpass.bounded_file import exists
from perfpass.errors import FileError
from perfpass.importers.model_sources import CONFIGURATIONS
from perfpass.toml_table import parse


@functools.cache
def known() -> dict[str, str]:
    """Lower-case name -> name of the shipped configuration; both forms, with and without the owner."""
    content = parse((Path(__file__).parent / "names.toml").read_text(encoding="utf-8"))
    found = {path.stem: path.stem for path in sorted(CONFIGURATIONS.glob("*.json"))}
    for configuration, names in content["names"].items():
        for name in names:
            found[name.lower()] = configuration
            found.setdefault(name.rsplit("/", 1)[-1].lower(), configuration)
    return found


def resolve(config: str | os.PathLike[str] | Mapping[str, Any]) -> str | os.PathLike[str] | Mapping[str, Any]:
    """A name of `known` as that of its shipped configuration; files, folders and contents as they are.

    Raises FileError for a name that is neither known nor a file.
    """
    if isinstance(config, Mapping) or exists(Path(config)):
        return config
    found = known().get(str(config).lower())
    if found is None:
        raise FileError(
            f"{config}: neither a file nor a known model; pass its config.json, or one of the names in "
            "perfpass/llm/names.toml"
        )
    return found
