"""Names under which models are known -> shipped configurations (`configuration_names.toml`, `catalogue.tsv`)."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfpass.bounded_file import exists
from perfpass.errors import FileError, shown
from perfpass.importers import catalogue
from perfpass.importers.model_sources import CONFIGURATIONS
from perfpass.text import nearest
from perfpass.toml_table import parse

PIPELINES = Path(__file__).with_name("pipelines")


@functools.cache
def _table() -> Mapping[str, Any]:
    return parse((Path(__file__).with_suffix(".toml")).read_text(encoding="utf-8"))


# Names of the catalogue that without their owner mean a model of timm; the tests hold that there are no others.
_OF_TIMM = frozenset({"poolformer_s12"})


@functools.cache
def known() -> dict[str, str]:
    """Lower-case name -> configuration, by the name of its file or of its entry in the catalogue.

    Both forms, with and without the owner; the name of a file comes before all others.
    """
    found: dict[str, str] = {}
    for first, every in catalogue.names().items():
        for name in every:
            found.setdefault(name.lower(), first)
    for first, every in catalogue.names().items():
        for name in every:
            if (plain := name.rsplit("/", 1)[-1].lower()) not in _OF_TIMM:
                found.setdefault(plain, first)
    for configuration, names in _table()["names"].items():
        for name in names:
            found[name.lower()] = configuration
            found[name.rsplit("/", 1)[-1].lower()] = configuration
    return found | {path.stem: path.stem for path in sorted(CONFIGURATIONS.glob("*.json"))}


def first() -> set[str]:
    """The configurations that names lead to, each once."""
    return set(known().values())


@functools.cache
def _publishers() -> dict[str, tuple[str, ...]]:
    """Lower-case owner -> how the names of its shipped configurations begin."""
    return {owner.lower(): tuple(begins) for owner, begins in _table()["publishers"].items()}


@functools.cache
def _packers() -> frozenset[str]:
    """Lower-case owners who publish models of others, packed or quantised, under the models' own names."""
    return frozenset(owner.lower() for owner in _table()["packers"]["owners"])


@functools.cache
def _owners() -> dict[str, set[str]]:
    """Configuration -> lower-case owners of the repositories that are known to have it."""
    found: dict[str, set[str]] = {}
    for name, configuration in known().items():
        if "/" in name:
            found.setdefault(configuration, set()).add(name.partition("/")[0])
    return found


@functools.cache
def _several() -> dict[str, str]:
    return {name.lower(): what for what, names in _table()["several"].items() for name in names}


def several(name: str) -> str:
    """What a repository of several networks holds, as words; "" for any other name."""
    return _several().get(name.lower(), "")


@functools.cache
def _parts() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for pipeline in _table()["pipelines"]:
        found |= dict.fromkeys((name.lower() for name in pipeline["names"]), pipeline["parts"])
    return found


def parts(name: str) -> Mapping[str, str]:
    """Of a pipeline of diffusers that is known by name: part -> the name of the network; empty for any other name."""
    return _parts().get(name.lower(), {})


@functools.cache
def _shipped_pipelines() -> dict[str, str]:
    return {
        name.lower(): folder for folder, names in _table()["shipped_pipelines"].items() for name in (folder, *names)
    }


def pipeline(name: str) -> Path | None:
    """The folder of a pipeline of diffusers that ships (indices and configurations, no weights); None where none has
    the name.
    """
    folder = _shipped_pipelines().get(name.lower())
    return PIPELINES / folder if folder else None


def towers(name: str) -> Mapping[str, Any]:
    """What the config.json of a name has beside its language model, where that alone ships; empty for other names."""
    own = name.rpartition("/")[2].lower()
    return next((parts for begin, parts in _table()["towers"].items() if own.startswith(begin)), {})


@functools.cache
def _networks() -> dict[str, str]:
    found: dict[str, str] = {}
    for name, others in _table()["torchvision"].items():
        found |= {one.lower(): name for one in (name, *others)}
    return found


def network(name: str) -> str:
    """The network of torchvision that a name without an owner means; "" for any other name."""
    return _networks().get(name.lower(), "")


def may_publish(owner: str, configuration: str) -> bool:
    """Whether a repository of ``owner`` whose name is like a configuration's has that configuration."""
    owner = owner.lower()
    begins = _publishers().get(owner, ("/",))
    return owner in _packers() or owner in _owners().get(configuration, ()) or configuration.startswith(begins)


def published(name: str) -> str | None:
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
    return known().get(name.lower()) or published(name)


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
