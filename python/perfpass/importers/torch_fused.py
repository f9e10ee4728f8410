"""Calls that the meta device would take apart and a GPU runs as one kernel: kept whole in a recorded forward pass.

These are scaled dot-product attention and the recurrent layers (cuDNN). And what asks for values without an operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from types import FunctionType
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from perfpass.errors import ShapeError
from perfpass.importers.torch_operators import Call, describe
from perfpass.importers.torch_recorder import Recorder

_HEADS = signature(functional.multi_head_attention_forward)
_GATES = {"lstm": "lstm", "gru": "gru", "rnn_tanh": "rnn", "rnn_relu": "rnn"}


class FusedCalls(TorchFunctionMode):
    """Keeps attention and recurrent layers whole: one node each, outputs by their documented shapes."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "scaled_dot_product_attention":
            return self._attention(*args, **kwargs)
        if func is functional.multi_head_attention_forward:
            return self._of_heads(*args, **kwargs)
        if func is torch.Tensor.tolist and args[0].device.type == "meta":
            return self._list(args[0])
        if (
            name in _GATES
            and func is getattr(torch, name, None)
            and len(args) == 9
            and isinstance(args[2], list | tuple)
        ):
            return self._recurrent(name, *args)
        return func(*args, **kwargs)

    def _of_heads(self, *args: Any, **kwargs: Any) -> Any:
        """torch.nn.MultiheadAttention: a mode does not see what a function of torch calls, here the attention.

        So a copy of the function runs that has globals of its own; torch's module, which other threads use, stays as
        it is.
        """
        given = _HEADS.bind(*args, **kwargs)
        given.apply_defaults()
        if _is_native(given.arguments):
            return self._native(given.arguments), None
        plain = functional.multi_head_attention_forward
        own = {"scaled_dot_product_attention": self._attention, "has_torch_function": lambda tensors: False}
        copied = FunctionType(plain.__code__, vars(functional) | own, plain.__name__, plain.__defaults__)
        copied.__kwdefaults__ = plain.__kwdefaults__
        return copied(*args, **kwargs)

    def _native(self, given: Mapping[str, Any]) -> torch.Tensor:
        weights = tuple(given[n] for n in ("in_proj_weight", "in_proj_bias", "out_proj_weight", "out_proj_bias"))
        source = given["query"].transpose(0, 1)
        return native_attention(source, given["num_heads"], weights, self._attention).transpose(0, 1)

    def _list(self, tensor: torch.Tensor) -> Any:
        """The values of a tensor, which `tolist` asks for without an operator. Raises UnsupportedError."""
        value = self.recorder.values.of(tensor)
        if value is None:
            raise self.recorder.needs_values("tolist")
        return value.tolist()

    def _attention(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        recorder = self.recorder
        if query.device.type != "meta":
            return torch._C._nn.scaled_dot_product_attention(
                query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
            )
        if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
            raise ShapeError(
                f"scaled_dot_product_attention got query {tuple(query.shape)}, key {tuple(key.shape)} and value "
                f"{tuple(value.shape)}; query and key must agree in the last axis, key and value in the one before"
            )
        recorder.paused = True
        try:
            shape = (*torch.broadcast_shapes(query.shape[:-3], value.shape[:-3]), *query.shape[-3:-1], value.shape[-1])
            if query.dim() == 4:
                # Fused kernels write [batch, length, heads, channels]; what follows is then a view, not a copy.
                b, h, length, channels = shape
                out = query.new_empty((b, length, h, channels)).transpose(1, 2)
            else:
                out = query.new_empty(shape)
        finally:
            recorder.paused = False
        arguments = {"query": query, "key": key, "value": value, "attn_mask": attn_mask, "is_causal": is_causal}
        description = describe(Call("scaled_dot_product_attention", arguments, [out]))
        recorder.record(
            description.kind, "aten.scaled_dot_product_attention", description.attributes, description.inputs, out
        )
        return out

    def _recurrent(
        self,
        name: str,
        source: torch.Tensor,
        state: Any,
        weights: Sequence[torch.Tensor],
        has_biases: bool,
        layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> Any:
        recorder = self.recorder
        directions = 2 if bidirectional else 1
        states = list(state) if isinstance(state, list | tuple) else [state]
        hidden, projected = weights[1].shape[0] // {"lstm": 4, "gru": 3}.get(name, 1), states[0].shape[-1]
        per_layer = len(weights) // layers
        current, final = source, []
        for layer in range(layers):
            recorder.paused = True
            try:
                out = current.new_empty((*source.shape[:-1], directions * projected))
                if layer == layers - 1:
                    # The final states are written by the last layer's kernel.
                    final = [torch.empty_like(s) for s in states]
            finally:
                recorder.paused = False
            attributes = {"hidden_size": hidden, "directions": directions}
            mine = weights[layer * per_layer : (layer + 1) * per_layer]
            recorder.record(_GATES[name], f"aten.{name}", attributes, [current, *mine, *states], [out, *final])
            current = out
        return (current, *final)


def native_attention(
    source: torch.Tensor,
    heads: int,
    weights: tuple[Any, Any, Any, Any],
    attention: Callable[..., torch.Tensor] = functional.scaled_dot_product_attention,
) -> torch.Tensor:
    """torch._native_multi_head_attention on CUDA: two linear layers around an attention, and no copies.

    ``source``: [batch, length, width]. ``weights``: weight and bias of the joint projection, and of that behind.
    """
    weight, bias, out_weight, out_bias = weights
    batch, length, width = source.shape
    projected = functional.linear(source, weight, bias)
    query, key, value = projected.view(batch, length, 3, heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
    attended = attention(query, key, value).transpose(1, 2).reshape(batch, length, width)
    return functional.linear(attended, out_weight, out_bias)


def _is_native(given: Mapping[str, Any]) -> bool:
    """Whether torch.nn.MultiheadAttention runs its own kernel on a GPU instead, which the meta device refuses.

    ``given``: the arguments of `multi_head_attention_forward`, which the layer calls otherwise, with its input turned
    around if that has the batch first. As in torch.nn.modules.activation of PyTorch 2.
    """
    query, heads = given["query"], given["num_heads"]
    if not (query is given["key"] is given["value"]) or query.dim() != 3 or heads % 2:
        return False
    length, _, width = query.shape
    absent = ("bias_k", "bias_v", "key_padding_mask", "attn_mask")
    other = ("training", "need_weights", "add_zero_attn", "use_separate_proj_weight")
    return (
        query.device.type == "meta"
        and query.stride() == (width, length * width, 1)
        and given["in_proj_bias"] is not None
        and not any(given[name] for name in other)
        and all(given[name] is None for name in absent)
    )
