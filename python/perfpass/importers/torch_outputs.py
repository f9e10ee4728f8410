"""What a forward pass gives back: tensors in tuples, mappings and model outputs, and those that a cache holds.

A cache of keys and values (transformers' `DynamicCache` and its kin) is an object, no container that PyTorch takes
apart: what it holds lives as long as the output does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from perfpass.graph.kept_outputs import CACHE, FLOAT_LOGITS

if TYPE_CHECKING:
    from perfpass.importers.torch_recorder import Recorder

_DEEPEST = 6  # an encoder-decoder cache: the cache, a cache of its own, its layers, a layer, its states
# Models whose forward pass ends with `logits.float()` in transformers 4.35.2, 4.44.2 or 4.46.3, read in the
# modeling_*.py of these releases; in the newest one nearly all have lost it.
_CAST_LOGITS = frozenset(
    {
        *("chameleon", "codegen", "cohere", "gemma", "gemma2", "gpt_neo", "gptj", "granite", "granitemoe", "idefics2"),
        *("idefics3", "jamba", "jetmoe", "llama", "mistral", "mixtral", "moshi", "nemotron", "olmo", "paligemma"),
        *("phi", "phi3", "qwen2", "qwen2_moe", "qwen2_vl", "recurrent_gemma", "starcoder2"),
    }
)


def output_tensors(out: Any, recorder: Recorder, module: torch.nn.Module, *, cache: bool = True) -> list[torch.Tensor]:
    """The tensors that live on in ``out``, named on the recorder's tape where a name says what they are.

    ``cache``: whether those of a cache count; not where the cache was given, whose inputs stand for it.
    """
    found = [t for t in pytree.tree_leaves(out) if isinstance(t, torch.Tensor)]
    given = out if isinstance(out, Mapping) else vars(out) if hasattr(out, "__dict__") and not found else {}
    found = found or [t for value in given.values() for t in pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]
    logits = given.get("logits")
    if isinstance(logits, torch.Tensor) and logits.dim() == 3 and _casts_logits(module):
        recorder.name(logits, FLOAT_LOGITS)
    held = _named_cache(out) if cache else []
    for name, tensor in held:
        recorder.name(tensor, name)
    return [*found, *(tensor for _, tensor in held)]


def _casts_logits(module: torch.nn.Module) -> bool:
    return getattr(getattr(module, "config", None), "model_type", None) in _CAST_LOGITS


def _named_cache(out: Any) -> list[tuple[str, torch.Tensor]]:
    """Tensors of the caches in ``out`` that an operator made, by names that begin with `CACHE`."""
    held: dict[int, tuple[str, torch.Tensor]] = {}
    for leaf in pytree.tree_leaves(out):
        for path, tensor in _inside(leaf, 0):
            if tensor.numel() and tensor.device.type == "meta":
                held.setdefault(id(tensor), (".".join((CACHE, *path)), tensor))
    return list(held.values())


def _inside(value: Any, depth: int) -> Iterator[tuple[tuple[str, ...], torch.Tensor]]:
    """Tensors in the attributes of an object of a model's own library, with the path to each."""
    if depth > _DEEPEST or isinstance(value, torch.Tensor | torch.nn.Module | type):
        return
    if not _is_cache(value):
        return
    for name, attribute in vars(value).items():
        leaves = pytree.tree_leaves(attribute)
        for i, leaf in enumerate(leaves):
            path = (name, str(i)) if len(leaves) > 1 else (name,)
            if isinstance(leaf, torch.Tensor):
                yield path, leaf
            else:
                for rest, tensor in _inside(leaf, depth + 1):
                    yield (*path, *rest), tensor


def _is_cache(value: Any) -> bool:
    """An object of a class that is called a cache or a layer of one (transformers: DynamicCache, DynamicLayer)."""
    names = [base.__name__ for base in type(value).__mro__]
    return hasattr(value, "__dict__") and any("Cache" in name for name in names)
