"""A Hugging Face config.json -> LanguageModel: every field of the architecture read, none guessed.

Nothing is downloaded, built or run; a configuration that names code of its own is read like any other. The
conventions that a configuration does not state (norms, biases, gates) are those of the model type's public
implementation (`perfpass.llm.families`), checked against modules built without weights.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import groupby
from typing import Any

from perfpass.declared import shown_value
from perfpass.errors import UnsupportedError
from perfpass.importers.model_argument import understood
from perfpass.importers.model_sources import read_configuration
from perfpass.llm import families
from perfpass.llm.architecture import LanguageModel, Layer
from perfpass.llm.fields import Fields
from perfpass.llm.stored import stored

# Where wrappers (vision, speech) keep the language model.
_INNER = ("text_config", "llm_config", "language_config", "thinker_config")
_POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len")


def language_model(config: str | os.PathLike[str] | Mapping[str, Any], name: str | None = None) -> LanguageModel:
    """The architecture that a configuration describes.

    ``config``: a config.json, its folder, its content, the name of a shipped configuration, or a repository's name that
    `configuration_names` maps to one. ``name``: what to call it, else what the configuration was asked for by.

    Raises FileError, FormatError (not a configuration, or a needed field is missing or of the wrong type; the message
    names it), UnsupportedError for encoder-decoders and model types whose layers this reader does not know.
    """
    found = config if isinstance(config, Mapping) else understood(config).configuration("serving")
    content = read_configuration(found, run_code=False)
    if name is None:
        named = content.get("_name_or_path")
        name = str(config) if not isinstance(config, Mapping) else str(named or content["model_type"])
    return from_content(content, name)


def from_content(content: Mapping[str, Any], name: str) -> LanguageModel:
    """The same from a parsed config.json."""
    outer = content
    for key in _INNER:
        if isinstance(content.get(key), Mapping):
            inherited = {k: content[k] for k in ("tie_word_embeddings", "quantization_config") if k in content}
            content = {**inherited, **{k: v for k, v in content[key].items() if v is not None}}
            break
    kind = str(content.get("model_type") or outer.get("model_type"))
    if content.get("is_encoder_decoder"):
        raise UnsupportedError(f"{name} ({kind}) is an encoder-decoder; only decoders are served token by token here")
    reader = families.READERS.get(kind)
    if reader is None:
        raise UnsupportedError(
            f"model_type {shown_value(kind)} ({name}) is not known; known are {', '.join(sorted(families.READERS))}. "
            "A model with the layers of one of these can be read under its model_type"
        )
    # Readers ask for it too; a wrapper's inner part may leave it out.
    fields = Fields({**content, "model_type": kind}, name)
    body = reader(fields)
    layers = tuple((len(list(run)), layer) for layer, run in groupby(sorted(body.layers, key=_order)))
    dense, experts = stored(content.get("quantization_config"), name)
    return LanguageModel(
        name=name,
        model_type=kind,
        hidden=body.hidden,
        vocabulary=fields.count("vocab_size"),
        layers=layers,
        tied=body.tied,
        embedding_extra=body.embedding_extra,
        max_positions=next((found for key in _POSITIONS if (found := fields.count(key, default=0))), 0),
        stored_as=dense,
        experts_stored_as=experts,
    )


def _order(layer: Layer) -> str:
    return repr(layer)
