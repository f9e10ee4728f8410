"""A Hugging Face config.json -> LanguageModel: every field of the architecture read, none guessed.

Nothing is downloaded, built or run; a configuration that names code of its own is read like any other. The
conventions that a configuration does not state (norms, biases, gates) are those of the model type's public
implementation (`perfpass.llm.families`), checked against modules built without weights.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from perfpass.declared import shown_value
from perfpass.errors import UnsupportedError, about
from perfpass.importers import configuration_names, sound_models
from perfpass.importers.formats import is_gguf
from perfpass.importers.model_argument import understood
from perfpass.importers.model_sources import read_configuration
from perfpass.llm import (
    families,
    families_encoder_decoder,
    families_gemma,
    families_hybrid,
    families_kin,
    families_recurrent,
)
from perfpass.llm.architecture import LanguageModel, Layer
from perfpass.llm.costs import GGUF_BITS, PRECISIONS, listed, named_precision
from perfpass.llm.fields import Fields
from perfpass.llm.stored import cache_stored, stored
from perfpass.llm.stored_bytes import GROUPS_OF_128_BYTES, packed_bytes
from perfpass.llm.towers import beside, sight

if TYPE_CHECKING:
    from perfpass.importers.gguf import Header

# Where wrappers (vision, speech) keep the language model.
_INNER = ("text_config", "llm_config", "language_config", "thinker_config")
_POSITIONS = (
    *("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "max_sequence_length"),
    "model_max_length",
)
READERS = {
    **families.READERS,
    **families_kin.READERS,
    **families_gemma.READERS,
    **families_hybrid.READERS,
    **families_recurrent.READERS,
    **families_encoder_decoder.READERS,
}
_FILE_BITS = {**GGUF_BITS, "fp16": 16.0, "bf16": 16.0, "fp32": 32.0}
# Names of checkpoints that are published in groups of 128.
_PUBLISHED_GROUPS = re.compile(r"awq|gptq", re.IGNORECASE)
_COUNTS_DIFFER = 0.02  # of all parameters; heads that are not served stay below it in most models
# What the classes of transformers take where a wrapper's inner part is silent, which it may be on what equals them.
_INNER_DEFAULTS: dict[str, dict[str, Any]] = {
    "llama": {
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "vocab_size": 32000,
        "max_position_embeddings": 2048,
    },
    "mistral": {
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 32000,
    },
    "gemma3_text": {
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "vocab_size": 262208,
        "sliding_window": 4096,
        "max_position_embeddings": 131072,
    },
}


def language_model(config: str | os.PathLike[str] | Mapping[str, Any], name: str | None = None) -> LanguageModel:
    """The architecture that a configuration describes.

    ``config``: a config.json, its folder, its content, a GGUF file, or a name as
    `perfpass.importers.model_argument.understood` takes it: of a shipped configuration or of a repository. Where a name
    or a file says how the weights are stored ("Llama-2-7B-GPTQ", "llama-2-7b.Q4_K_M"), the model is stored so.
    ``name``: what to call it, else what the configuration was asked for by.

    Raises FileError, FormatError (not a configuration, or a needed field is missing or of the wrong type; the message
    names it), UnsupportedError for what does not write text, for encoder-decoders and model types whose layers this
    reader does not know, and for precisions of no known size.
    """
    if isinstance(config, Mapping):
        content = read_configuration(config, run_code=False)
        return from_content(content, name or str(content.get("_name_or_path") or content["model_type"]))
    found = understood(config)
    path = found.configuration("serving")
    called = name or str(config)
    if is_gguf(path):
        from perfpass.importers import gguf

        with about(path):
            return packed(gguf.read(path), called)
    asked = (str(config), found.name) if found.kind == "hf" else ()  # as it is spelt, then what it was read as
    beside_it = next(filter(None, map(configuration_names.towers, asked)), {})
    model = from_content({**beside_it, **read_configuration(path, run_code=False)}, called)
    if found.repository:
        model = _checked(model, found.repository)
    if found.stored:
        model = _stored_as(model, found.stored)
        if model.stored_as == "int4_wo" and _PUBLISHED_GROUPS.search(called):
            model = replace(model, packed_bytes=(("int4_wo", GROUPS_OF_128_BYTES),))
    return replace(model, notes=(*found.notes, *model.notes)) if found.notes else model


def _stored_as(model: LanguageModel, precision: str) -> LanguageModel:
    """The model with its weights in a precision by name. Raises UnsupportedError for one of no known size."""
    if precision not in PRECISIONS:
        raise UnsupportedError(
            f"{model.name}: how many bits {precision} takes is not known; ask for the model by its own name, and state "
            f"a precision ({listed(PRECISIONS)})"
        )
    dense, experts = named_precision(precision, mixture=model.is_mixture)
    if model.experts_stored_as == "mxfp4" and dense in ("fp16", "bf16"):
        experts = "mxfp4"  # files of 16 bits keep experts that were published in fewer
    return replace(model, stored_as=dense, experts_stored_as=experts)


def packed(header: Header, name: str) -> LanguageModel:
    """The model of a GGUF file, stored in the type that is nearest to the bytes of its tensors."""
    model = from_content(read_configuration(header.configuration, run_code=False), name)
    notes, kind = [], header.file_type
    if header.missing:
        notes.append(f"{header.missing} of the model's files are not there; its size is that of its type, {kind}")
    elif abs(header.elements / model.parameters - 1) > _COUNTS_DIFFER:
        notes.append(f"the file's tensors have {header.elements:,} parameters, {model.parameters:,} are counted here")
    bits = 8 * header.weight_bytes / max(header.elements, 1)
    if kind not in PRECISIONS:
        kind = min(_FILE_BITS, key=lambda one: abs(_FILE_BITS[one] - bits))
        notes.append(f"the file does not say of which type it is; its {bits:.3g} bits a weight are nearest to {kind}")
    stored = _stored_as(model, kind)
    whole = 0 if header.missing else header.weight_bytes
    return replace(stored, stored_bytes=whole, notes=tuple(notes))


def _checked(model: LanguageModel, repository: str) -> LanguageModel:
    """With a note where the headers of a repository's weights count other parameters than its configuration."""
    from perfpass.importers import hub

    stated, counted = hub.parameters(repository), model.parameters + model.beside
    if not stated or model.stored_as != "bf16" or abs(stated / counted - 1) <= _COUNTS_DIFFER:
        return model
    said = f"the weights of {repository} have {stated:,} parameters by their headers, {counted:,} are counted here"
    return replace(model, notes=(*model.notes, said))


def from_content(content: Mapping[str, Any], name: str) -> LanguageModel:
    """The same from a parsed config.json."""
    outer = content
    for key in _INNER:
        if isinstance(content.get(key), Mapping):
            inherited = {k: content[k] for k in ("tie_word_embeddings", "quantization_config") if k in content}
            silent = _INNER_DEFAULTS.get(str(content[key].get("model_type")), {})
            content = {**silent, **inherited, **{k: v for k, v in content[key].items() if v is not None}}
            break
    kind = str(content.get("model_type") or outer.get("model_type"))
    reader = READERS.get(kind)
    if reader is None and (why := sound_models.by_type(kind)):
        raise UnsupportedError(f"{name} ({kind}) {why}")
    if content.get("is_encoder_decoder") and kind not in families_encoder_decoder.READERS:
        raise families_encoder_decoder.unknown(kind, name)
    if reader is None:
        raise UnsupportedError(
            f"model_type {shown_value(outer.get('model_type') or kind)} ({name}) is none that is served token by token "
            f"here: `perfpass predict {name}` answers one pass of it, where transformers has it. Known are "
            f"{', '.join(sorted(READERS))}; a model with the layers of one of these can be read under its model_type"
        )
    # Readers ask for it too; a wrapper's inner part may leave it out.
    fields = Fields({**content, "model_type": kind}, name)
    vocabulary = fields.count("padded_vocab_size", default=0) or fields.count("vocab_size")
    body = reader(fields)
    layers = tuple((len(list(run)), layer) for layer, run in groupby(sorted(body.layers, key=_order)))
    dense, experts = stored(content.get("quantization_config"), name)
    towers, said = beside(outer)
    return LanguageModel(
        name=name,
        model_type=kind,
        hidden=body.hidden,
        vocabulary=vocabulary,
        layers=layers,
        tied=body.tied,
        embedding_extra=body.embedding_extra,
        unmet=body.unmet,
        beside=towers,
        sight=sight(outer),
        max_positions=_positions(fields, body.window),
        window=body.window,
        stored_as=dense,
        experts_stored_as=experts,
        cache_stored_as=cache_stored(content.get("quantization_config")),
        packed_bytes=tuple(packed_bytes(content.get("quantization_config")).items()),
        notes=(*body.notes, said) if said else body.notes,
    )


def _positions(fields: Fields, window: int) -> int:
    """Positions of prompt and answer together (of either, where an encoder reads prompts of any length); 0: unsaid."""
    if window:
        return window + fields.size("max_target_positions")
    return next((found for key in _POSITIONS if (found := fields.count(key, default=0))), 0)


def _order(layer: Layer) -> str:
    return repr(layer)
