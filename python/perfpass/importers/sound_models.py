"""Models of sound: those that are no single network (`sound_models.toml`), and language models over its tokens."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

from perfpass.toml_table import read_toml

# Configurations of language models whose tokens are sound -> what follows them and is not counted.
_SOUNDING = {
    "canopylabs/orpheus-3b-0.1-ft": "its tokens are sound, 7 to a frame of SNAC, 82 to a second; SNAC's decoder, which "
    "makes sound of them, is not counted",
    "coqui/XTTS-v2": "its tokens are sound, 21.5 to a second; the encoder of the voice, the rows of text and the "
    "decoder that makes sound of them (HiFi-GAN) are not counted",
}


@functools.cache
def refused(key: str) -> Mapping[str, str]:
    """Lower-case names (``key`` "names"), or model types ("types"), -> why none is read and what to ask instead."""
    found: dict[str, str] = {}
    for entry in read_toml(Path(__file__).with_suffix(".toml"), "a table of models of sound")["sound"]:
        why = f"makes sound: {entry['is']}, and is no single network that is read here; instead: {entry['instead']}"
        found |= dict.fromkeys((name.lower() for name in entry.get(key, ())), why)
    return found


def by_name(name: str) -> str:
    """Why a model that makes sound is not read, and what can be asked instead, as words; "" for any other name."""
    return refused("names").get(name.lower(), "")


def by_type(kind: str) -> str:
    """The same of a model type that no command answers."""
    return refused("types").get(kind, "")


def follows(configuration: str) -> tuple[str, ...]:
    """Of a language model whose tokens are sound: a sentence on what follows them and is not counted."""
    said = _SOUNDING.get(configuration)
    return (said,) if said else ()
