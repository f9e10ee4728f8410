"""A Hugging Face config.json -> OpGraph, without weights: the architecture is built on the meta device and traced.

Only architectures that the installed transformers defines are built. A configuration that names code of its own
(`auto_map`) is refused: that code would have to be downloaded and run.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from perfpass.errors import ArgumentError, UnsupportedError, needs
from perfpass.graph import OpGraph, costs, single
from perfpass.graph.frozen import named
from perfpass.importers.huggingface_inputs import inputs, most_tokens, of_size, processed, tokens, values
from perfpass.importers.model_sources import huggingface as build
from perfpass.importers.model_sources import is_decoder, read_configuration
from perfpass.text import unknown

if TYPE_CHECKING:
    import torch

    from perfpass.graph.traced_step import TrainingGraph

DEFAULT_SEQUENCE_LENGTH = 128
MODES = ("prefill", "decode", "encoder")
_FEW = 0.02  # of all parameters


@contextlib.contextmanager
def _without_advice() -> Iterator[None]:
    """Without what transformers warns of when a network runs (faster kernels to install): nothing runs here."""
    logger = logging.getLogger("transformers")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


@_without_advice()
def trace_config(
    config: str | os.PathLike[str] | Mapping[str, Any],
    *,
    batch: int = 1,
    sequence_length: int | None = None,
    image_size: tuple[int, int] | None = None,
    mode: str | None = None,
    dtype: str = "float32",
    assume: Mapping[str, int] | None = None,
) -> OpGraph:
    """The operator graph of the model that a configuration describes.

    ``config``: a config.json, its folder, or its content. ``mode``: ``prefill`` (a decoder reads ``sequence_length``
    tokens and fills its cache), ``decode`` (it reads one token with ``sequence_length`` tokens in the cache) or
    ``encoder`` (no cache; encoder-decoder models read ``sequence_length`` tokens on both sides). Without it, decoders
    are traced as prefill and the rest as encoder. Vision models get images of ``image_size`` (height, width), else of
    the configuration's, or of what their image processor makes of a picture; speech models ``sequence_length`` frames
    (Whisper: its fixed window). Without it, 128. ``assume``: over how many
    experts a router's tokens are shared (`perfpass.graph.assumed`).

    Raises FileError, FormatError for a file that is no configuration, UnsupportedError for an architecture that the
    installed transformers lacks or that needs remote code, ArgumentError for a mode, or a ``sequence_length``, that the
    model does not have.
    """
    if mode is not None and mode not in MODES:
        raise ArgumentError(unknown("mode", mode, MODES))
    length = _length(batch, sequence_length)
    content = _content(config, image_size)
    model: Any = build(content, dtype=dtype, causal=mode in ("prefill", "decode"))
    _refuse_unread(model, sequence_length, image_size)
    decoder = is_decoder(model)
    mode = mode or ("prefill" if decoder else "encoder")
    if mode != "encoder" and not decoder:
        raise ArgumentError(f"{content['model_type']} is no decoder and has no {mode}; use mode='encoder'")
    with needs("transformers", "a Hugging Face configuration"):
        from perfpass.importers.torch import trace_owned

    if mode == "decode":
        cache, state = _filled_cache(model, batch, length)
        token = {model.main_input_name: (tokens(model, 1), "int64")}
        given = {"past_key_values": cache, "use_cache": True}
        how: dict[str, Any] = {"given": given, "given_tensors": state, "assume": assume}
        return _said(trace_owned(model, token, batch=batch, dtype=dtype, **how), model, sequence_length, image_size)
    given = values(model, batch, length) | ({"use_cache": mode == "prefill"} if decoder else {})
    graph = trace_owned(model, inputs(model, length), batch=batch, dtype=dtype, given=given, assume=assume)
    return _said(graph, model, sequence_length, image_size)


@_without_advice()
def trace_training(
    config: str | os.PathLike[str] | Mapping[str, Any],
    *,
    batch: int = 1,
    sequence_length: int | None = None,
    image_size: tuple[int, int] | None = None,
    optimizer: str = "adamw",
    dtype: str = "float32",
    frozen: Sequence[str] = (),
    assume: Mapping[str, int] | None = None,
) -> TrainingGraph:
    """One training step of the model that a configuration describes; decoders predict every next token.

    ``frozen``: names of parameters, or patterns, that are not trained. ``optimizer`` and what is raised: as
    `perfpass.importers.torch_training.trace_training`; ``assume`` and the rest as `trace_config`.
    """
    with needs("transformers", "a Hugging Face configuration"):
        from perfpass.importers.torch_training import trace_training_owned

    length = _length(batch, sequence_length)
    content = _content(config, image_size)
    model: Any = build(content, dtype=dtype, causal=False)
    if is_decoder(model):
        model = build(content, dtype=dtype, causal=True)
    _refuse_unread(model, sequence_length, image_size)
    given = values(model, batch, length) | ({"use_cache": False} if is_decoder(model) else {})
    held = named((name for name, _ in model.named_parameters()), frozen)
    how: dict[str, Any] = {"given": given, "frozen": held, "assume": assume}
    return trace_training_owned(model, inputs(model, length), batch=batch, dtype=dtype, optimizer=optimizer, **how)


def _content(
    config: str | os.PathLike[str] | Mapping[str, Any], image_size: tuple[int, int] | None
) -> Mapping[str, Any]:
    content = read_configuration(config)
    return of_size(content, *image_size) if image_size else content


def _said(graph: OpGraph, model: Any, sequence_length: int | None, image_size: tuple[int, int] | None) -> OpGraph:
    """``graph``, which says where its length or its pictures' size is one that nobody asked for, what of it
    transformers keeps in single precision, and how many of the model's parameters it does not meet.
    """
    left = {
        "sequence_length": sequence_length is None and _has_length(model),
        "image_size": image_size is None and processed(model.config),
    }
    unasked = tuple(name for name, assumed in left.items() if assumed)
    kept = single.weights_of(graph, getattr(model, "_keep_in_fp32_modules", None) or ())
    left_out = _unread(graph, model)
    return replace(graph, unasked=unasked, single=kept, unread=left_out) if unasked or kept or left_out else graph


def _unread(graph: OpGraph, model: Any) -> int:
    """Parameters of the model that no operator reads; 0 where they are few, as heads and positions are."""
    held = sum(weight.numel() for weight in model.parameters())
    left = held - int(costs.count(graph).parameters.sum())
    return left if left > _FEW * held else 0


def _has_length(model: Any) -> bool:
    """Whether an input of the model is as long as one asks, and not of a fixed shape."""
    return inputs(model, 1) != inputs(model, 4)  # 2: tokens of a square picture are as many as of one of 1


def _length(batch: int, sequence_length: int | None) -> int:
    length = DEFAULT_SEQUENCE_LENGTH if sequence_length is None else sequence_length
    if batch < 1 or length < 1:
        raise ArgumentError(f"batch and sequence_length must be at least 1, got {batch} and {length}")
    return length


def _refuse_unread(model: Any, sequence_length: int | None, image_size: tuple[int, int] | None = None) -> None:
    """Raises ArgumentError where a length, or a size of pictures, was asked for that no input of the model has."""
    kind, most = model.config.model_type, most_tokens(model.config)
    if image_size and inputs(model, 1).get("pixel_values", ((), ""))[0][-2:] != image_size:
        raise ArgumentError(f"{kind} has no image_size: it reads no pictures, or those of one size")
    if sequence_length is None:
        return
    if not _has_length(model):
        raise ArgumentError(f"{kind} has no sequence_length: its inputs are of fixed shapes")
    if most and sequence_length > most:
        raise ArgumentError(f"{kind} reads at most {most} tokens; sequence_length = {sequence_length}")


def _filled_cache(model: Any, batch: int, sequence_length: int) -> tuple[Any, dict[str, torch.Tensor]]:
    """A cache after `sequence_length` tokens, and its tensors by name. Shapes only: the model is on the meta device."""
    import torch

    from perfpass.importers.torch import meta_tensor, run
    from perfpass.importers.torch_recorder import Recorder

    kind = model.config.model_type
    if set(inputs(model, sequence_length)) != {model.main_input_name}:
        raise UnsupportedError(f"{kind} reads pictures beside tokens; its decode is that of its text_config: pass that")
    before = {model.main_input_name: meta_tensor((batch, *tokens(model, sequence_length)), torch.int64)}
    cache = run(model, Recorder(), **before, use_cache=True).get("past_key_values")
    layers = getattr(getattr(cache, "self_attention_cache", cache), "layers", None)
    if not layers:
        raise UnsupportedError(f"{kind} keeps no cache of keys and values; decode cannot be traced")
    state = {
        f"past.{index}.{name}": value
        for index, layer in enumerate(layers)
        for name, value in vars(layer).items()
        if isinstance(value, torch.Tensor) and value.numel() > 0
    }
    return cache, state
