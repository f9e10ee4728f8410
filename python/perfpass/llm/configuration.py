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

from perfpass.errors import UnsupportedError
from perfpass.importers.model_sources import read_configuration
from perfpass.llm import families
from perfpass.llm.architecture import LanguageModel, Layer
from perfpass.llm.fields import Fields

# Where wrappers (vision, speech) keep the language model.
_INNER = ("text_config", "llm_config", "language_config", "thinker_config")
# How checkpoints name the precision of what they store, by `quant_method` of quantization_config.
_STORED = {"fp8": "fp8_block", "mxfp4": "mxfp4", "fbgemm_fp8": "fp8", "gptq": "int4_wo", "awq": "int4_wo"}


def language_model(config: str | os.PathLike[str] | Mapping[str, Any], name: str | None = None) -> LanguageModel:
    """The architecture that a configuration describes.

    ``config``: a config.json, its folder, its content, the name of a shipped configuration, or a repository's name that
    `perfpass.llm.names` maps to one. ``name``: what to call it, else what the configuration was asked for by.

    Raises FileError, FormatError (not a configuration, or a needed field is missing or of the wrong type; the message
    names it), UnsupportedError for encoder-decoders and model types whose layers this reader does not know.
    """
    from perfpass.llm.names import resolve

    content = read_configuration(resolve(config), run_code=False)
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
            f"model_type {kind!r} ({name}) is not known; known are {', '.join(sorted(families.READERS))}. "
            "A model with the layers of one of these can be read under its model_type"
        )
    fields = Fields(content, name)
    body = reader(fields)
    layers = tuple((len(list(run)), layer) for layer, run in groupby(sorted(body.layers, key=_order)))
    stored, experts_stored, notes = _stored(content.get("quantization_config"))
    return LanguageModel(
        name=name,
        model_type=kind,
        hidden=body.hidden,
        vocabulary=fields.count("vocab_size"),
        layers=layers,
        tied=body.tied,
        embedding_extra=body.embedding_extra,
        max_positions=fields.count("max_position_embeddings", "n_positions", "max_seq_len", default=0),
        stored_as=stored,
        experts_stored_as=experts_stored,
        notes=notes,
    )


def _order(layer: Layer) -> str:
    return repr(layer)


def _stored(quantization: Any) -> tuple[str, str, tuple[str, ...]]:
    """Precision of matrices and of experts as stored, and what could not be told."""
    if not isinstance(quantization, Mapping):
        return "bf16", "bf16", ()
    method = str(quantization.get("quant_method") or quantization.get("quant_algo") or "")
    text = str(quantization).lower()
    if method == "mxfp4":  # gpt-oss: only the experts are quantized
        return "bf16", "mxfp4", ()
    if method in _STORED:
        if method in ("gptq", "awq") and quantization.get("bits") == 8:
            return "int8", "int8", ()
        return _STORED[method], _STORED[method], ()
    if method == "compressed-tensors" and "'num_bits': 4" in text:
        experts_only = "self_attn" in text
        return ("bf16" if experts_only else "int4_wo"), "int4_wo", ()
    if method in ("modelopt", "nvfp4", "compressed-tensors"):
        if "fp4" in text:
            return "nvfp4", "nvfp4", ()
        if "fp8" in text or "'num_bits': 8" in text:
            return "fp8", "fp8", ()
    return "bf16", "bf16", (f"quantization {method or 'without a method'} not known; counted as bf16",)
