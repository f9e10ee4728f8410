"""Shapes of what operators give on the meta device, each kind of call worked out once.

PyTorch decides most of them in Python, at a few hundred microseconds a call; layers and the steps of a recurrence
repeat the same calls thousands of times.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from perfpass.importers.torch_operators import tensors_in

_DEPEND_ON_VALUES = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}


class Shapes:
    """Runs operators on meta tensors; of calls that differ in no shape, stride, type or number only the first."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], tuple[torch.Size, tuple[int, ...], torch.dtype]] = {}

    def run(self, func: Any, args: tuple, kwargs: dict) -> Any:
        """``func(*args, **kwargs)``, of which at least one tensor is on the meta device. Raises as the operator."""
        key = _key((args, tuple(kwargs.items()))) if _makes_one_tensor(func) else None
        if key is None:
            return func(*args, **kwargs)
        known = self._known.get((func, key))
        if known is not None:
            shape, stride, dtype = known
            return torch.empty_strided(shape, stride, dtype=dtype, device="meta")
        out = func(*args, **kwargs)
        if type(out) is torch.Tensor and out.device.type == "meta" and not out.is_complex() and _is_new(out, args):
            self._known[func, key] = out.shape, out.stride(), out.dtype
        return out


@cache
def _makes_one_tensor(func: Any) -> bool:
    """Whether an operator's result is one new tensor: no view, nothing written, no size that values decide."""
    schema = func._schema
    alone = len(schema.returns) == 1 and isinstance(schema.returns[0].type, torch.TensorType)
    aliases = any(a.alias_info is not None for a in (*schema.arguments, *schema.returns))
    return alone and not aliases and not _DEPEND_ON_VALUES.intersection(func.tags)


def _is_new(out: torch.Tensor, args: tuple) -> bool:
    """Whether a result has memory of its own; `_unsafe_view` gives its input's, which its schema does not say."""
    return all(t.untyped_storage()._cdata != out.untyped_storage()._cdata for t in tensors_in(args))


def _key(value: Any) -> Any:
    """What a result's shape follows from, to be hashed; None where that is more than shapes and numbers."""
    if isinstance(value, torch.Tensor):
        if value.device.type != "meta" or value.is_complex():
            return None
        return value.shape, value.stride(), value.dtype
    if isinstance(value, list | tuple):
        found = tuple(map(_key, value))
        return None if None in found else found
    if value is None or isinstance(value, _PLAIN):
        return type(value), value  # 1 and True and 1.0 are one key, and three types
    return None


_PLAIN = (bool, int, float, str, torch.dtype, torch.device, torch.layout, torch.memory_format)
