"""ATen operators of the backward pass and the optimizer in perfpass's vocabulary.

Gradients of products are products: the gradient of a convolution's input is a transposed convolution by the same
weight, that of its weight a convolution of the input by the gradient, samples and channels exchanged. The other
backward operators count as their forward twins, over the tensors that they really read and write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from perfpass.importers.torch_fused import FusedCalls
from perfpass.importers.torch_operators import KIND_OF, Call, describe, tensors_in
from perfpass.importers.torch_recorder import Node, Recorder, source_name, storage

_KINDS = {
    "threshold_backward": "relu",
    "hardtanh_backward": "clip",
    "rrelu_with_noise_backward": "leaky_relu",
    "_prelu_kernel_backward": "prelu",
    "log_sigmoid_backward": "sigmoid",
    "hardsigmoid_backward": "hard_sigmoid",
    "hardswish_backward": "hard_swish",
    "_softmax_backward_data": "softmax",
    "_log_softmax_backward_data": "log_softmax",
    "native_batch_norm_backward": "batch_norm",
    "cudnn_batch_norm_backward": "batch_norm",
    "native_layer_norm_backward": "layer_norm",
    "native_group_norm_backward": "group_norm",
    "_fused_rms_norm_backward": "rms_norm",
    "embedding_dense_backward": "scatter",
    "slice_backward": "pad",
    "select_backward": "pad",
    "diagonal_backward": "pad",
    "unfold_backward": "fold",
    "nll_loss_backward": "loss",
    "nll_loss2d_backward": "loss",
    "native_dropout_backward": "dropout",
    "_weight_norm_interface_backward": "l2_norm",
    "_cdist_backward": "unknown",
}
# Pooling gradients spread what they read over a tensor that they write: the kind without a window of its own.
_POOLS = ("pool1d", "pool2d", "pool3d")


def backward_kind(name: str) -> str | None:
    """The canonical kind of an ATen operator of the backward pass; None where it is no such operator."""
    if name in _KINDS:
        return _KINDS[name]
    if not name.endswith("_backward") and not name.endswith("_backward_data"):
        return None
    stem = name.removesuffix("_data").removesuffix("_backward").removesuffix("_with_indices")
    if any(pool in stem for pool in _POOLS):
        return "max_unpool"
    if "upsample" in stem:
        return "resize"
    return KIND_OF.get(stem, "unknown")


class TrainingRecorder(Recorder):
    """Records a whole training step: knows autograd's saved tensors and the operators of the backward pass."""

    def __init__(self, assume: Mapping[str, int] | None = None) -> None:
        super().__init__(assume)
        self.phase = 0
        self.phase_of: dict[int, int] = {}  # position on the tape -> phase
        self._places: dict[tuple[Any, ...], int] = {}  # memory, shape, strides -> tensor on the tape
        self._last: dict[int, int] = {}  # storage -> a tensor on the tape that covers it

    def node(self, kind: str, source: str, attributes: dict[str, int], inputs: list[int], outputs: list[int]) -> None:
        self.phase_of[len(self.tape.nodes)] = self.phase
        super().node(kind, source, attributes, inputs, outputs)

    def remember(self, tensor: torch.Tensor, index: int) -> None:
        super().remember(tensor, index)
        self._places[_place(tensor)] = index
        self._last.setdefault(storage(tensor), index)

    def index_of(self, tensor: torch.Tensor) -> int:
        """As in a forward pass; a tensor that autograd saved comes back as another object over the same memory."""
        if id(tensor) not in self._known:
            index = self._places.get(_place(tensor))
            if index is None and (base := self._last.get(storage(tensor))) is not None:
                index = self.put(tensor)
                self.node("reshape", "alias", {"view": 1}, [base], [index])
            if index is not None:
                self.remember(tensor, index)
        return super().index_of(tensor)

    def shaped(self, like: torch.Tensor, shape: Sequence[int]) -> int:
        """A tensor on the tape that no framework object stands for."""
        return self.tape.tensor(self.tape.tensors[self.index_of(like)].dtype, map(int, shape))

    def _seen_as(self, tensor: torch.Tensor, shape: Sequence[int], source: str) -> int:
        """A view of a tensor with another order of axes; moves nothing."""
        index = self.shaped(tensor, shape)
        self.node("transpose", source, {"view": 1}, [self.index_of(tensor)], [index])
        return index

    def _output(self, tensor: torch.Tensor) -> int:
        index = self.put(tensor)
        self.remember(tensor, index)
        return index

    def _record_call(self, func: Any, name: str, args: tuple, kwargs: dict, results: list[torch.Tensor]) -> None:
        plain = name if name.startswith("__") else name.removesuffix("_")
        if name == "convolution_backward":
            schema = [a.name for a in func._schema.arguments]
            self._convolution(dict(zip(schema, args, strict=False)) | kwargs, results)
        elif name.startswith("_foreach_"):
            self._foreach(func, name, args, kwargs, results)
        elif (kind := backward_kind(plain)) is not None:
            inputs = list(dict.fromkeys(self.index_of(t) for t in tensors_in([args, kwargs])))
            made = [self._output(t) for t in results]
            self.node(kind, source_name(func), {}, inputs, made)
        else:
            super()._record_call(func, name, args, kwargs, results)

    def _convolution(self, given: dict[str, Any], results: list[torch.Tensor]) -> None:
        """``results`` are those of (input, weight, bias) whose gradient is asked for, in this order."""
        grad, x, weight = given["grad_output"], given["input"], given["weight"]
        groups, transposed = int(given["groups"]), bool(given["transposed"])
        forward = {"input": x, "weight": weight, "bias": None}
        forward |= {n: given[n] for n in ("stride", "padding", "dilation", "transposed", "groups")}
        attributes = describe(Call("convolution", forward, [grad])).attributes
        wanted = iter(results)
        source = "aten.convolution_backward"
        if given["output_mask"][0]:
            kind = "conv" if transposed else "conv_transpose"
            layout = {"weight_layout": 0 if transposed else 2}
            inputs = [self.index_of(grad), self.index_of(weight)]
            self.node(kind, f"{source}.input", attributes | layout, inputs, [self._output(next(wanted))])
        if given["output_mask"][1]:
            data, kernel = (grad, x) if transposed else (x, grad)
            # [N, G c, ...] convolved by [N, K, ...]: samples are what is summed over, the kernel's channels the result.
            samples, channels = data.shape[:2]
            folded = self._seen_as(data, (channels // groups, samples * groups, *data.shape[2:]), source)
            turned = self._seen_as(kernel, (kernel.shape[1], kernel.shape[0], *kernel.shape[2:]), source)
            summed = self.shaped(weight, (channels // groups, kernel.shape[1], *weight.shape[2:]))
            found = {"spatial_rank": weight.dim() - 2, "groups": groups}
            self.node("conv", f"{source}.weight", found, [folded, turned], [summed])
            self.node("transpose", source, {"view": 1}, [summed], [self._output(next(wanted))])
        if given["output_mask"][2]:
            self.node("reduce_sum", f"{source}.bias", {}, [self.index_of(grad)], [self._output(next(wanted))])

    def _foreach(self, func: Any, name: str, args: tuple, kwargs: dict, results: list[torch.Tensor]) -> None:
        """One node per tensor of the lists; what runs is one kernel for some hundred of them."""
        kind = KIND_OF.get(name.removeprefix("_foreach_").removesuffix("_"), "unknown")
        lists = [a for a in (*args, *kwargs.values()) if isinstance(a, list | tuple) and tensors_in(a)]
        in_place = name.endswith("_") and not results
        for i, first in enumerate(lists[0]):
            inputs = [self.index_of(column[i]) for column in lists if i < len(column)]
            attributes = {"in_place": 1} if in_place else {}
            if in_place:
                index = self.put(first)
                memory = storage(first)
                self._written[memory] = (self._written.get(memory, (0, 0))[0] + 1, index)
                self.remember(first, index)
            else:
                index = self._output(results[i])
            self.node(kind, source_name(func), attributes, inputs, [index])

    def phases(self, kept: list[Node]) -> list[int]:
        """The phase of each node that was kept."""
        position = {id(node): i for i, node in enumerate(self.tape.nodes)}
        return [self.phase_of[position[id(node)]] for node in kept]


def _place(tensor: torch.Tensor) -> tuple[Any, ...]:
    return storage(tensor), tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype


class _Attention(torch.autograd.Function):
    """scaled_dot_product_attention as one node forward and two backward, with shapes alone."""

    @staticmethod
    def forward(ctx: Any, calls: Any, given: dict[str, Any], query: Any, key: Any, value: Any) -> Any:
        out = calls.forward_attention(query, key, value, **given)
        ctx.save_for_backward(query, key, value, out)
        ctx.calls, ctx.mask = calls, given.get("attn_mask")
        return out

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        query, key, value, out = ctx.saved_tensors
        recorder: TrainingRecorder = ctx.calls.recorder
        heads = int(query.shape[-3]) if query.dim() >= 4 else 1
        kv_heads = int(key.shape[-3]) if key.dim() >= 4 else 1
        recorder.paused = True
        found = [torch.empty_like(t) for t in (query, key, value)]
        recorder.paused = False
        source = "aten.scaled_dot_product_attention_backward"
        attributes = {"num_heads": heads, "num_kv_heads": kv_heads}
        # Two products each: the gradients of probabilities and queries; of values and keys. The score that fused
        # kernels compute anew is not counted, as it is no arithmetic of the model.
        q, k, v, o, g = (recorder.index_of(t) for t in (query, key, value, out, grad))
        dq, dk, dv = (recorder._output(t) for t in found)
        recorder.node("attention", f"{source}.query", attributes, [q, k, v, -1, g, o], [dq])
        recorder.node("attention", f"{source}.key_value", attributes, [q, k, v, -1, g], [dk, -1, dv])
        return (None, None, *found)


class _Recurrent(torch.autograd.Function):
    """A recurrent layer forward, and twice its products backward."""

    @staticmethod
    def forward(ctx: Any, calls: Any, name: str, rest: tuple, state_count: int, *tensors: Any) -> Any:
        source, states, weights = tensors[0], tensors[1 : 1 + state_count], tensors[1 + state_count :]
        out = calls.forward_recurrent(name, source, states if state_count > 1 else states[0], list(weights), *rest)
        ctx.save_for_backward(*tensors)
        ctx.calls, ctx.name, ctx.states = calls, name, state_count
        return out

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor, *_: Any) -> Any:
        tensors = ctx.saved_tensors
        recorder: TrainingRecorder = ctx.calls.recorder
        recorder.paused = True
        found = [torch.empty_like(t) for t in tensors]
        recorder.paused = False
        weights = tensors[1 + ctx.states :]
        gates = {"lstm": 4, "gru": 3}.get(ctx.name, 1)
        attributes = {"hidden_size": int(weights[1].shape[0]) // gates}
        inputs = [recorder.index_of(t) for t in (tensors[0], *weights, grad)]
        kind = {"lstm": "lstm", "gru": "gru"}.get(ctx.name, "rnn")
        made = [recorder._output(t) for t in found]
        recorder.node(kind, f"aten.{ctx.name}_backward.data", attributes, inputs, made[: 1 + ctx.states])
        recorder.node(kind, f"aten.{ctx.name}_backward.weight", attributes, inputs, made[1 + ctx.states :])
        return (None, None, None, None, *found)


class TrainingCalls(FusedCalls):
    """Attention and recurrent layers whole, and part of autograd's graph."""

    recorder: TrainingRecorder

    def forward_attention(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **given: Any
    ) -> torch.Tensor:
        """The node of the forward pass."""
        return super()._attention(query, key, value, **given)

    def forward_recurrent(self, name: str, source: torch.Tensor, states: Any, weights: Any, *rest: Any) -> Any:
        """The nodes of the forward pass."""
        return super()._recurrent(name, source, states, weights, *rest)

    def _attention(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *args: Any, **given: Any) -> Any:
        if query.device.type != "meta":
            return super()._attention(query, key, value, *args, **given)
        names = ("attn_mask", "dropout_p", "is_causal")
        return _Attention.apply(self, dict(zip(names, args, strict=False)) | given, query, key, value)

    def _recurrent(self, name: str, source: Any, state: Any, weights: Any, *rest: Any) -> Any:
        states = list(state) if isinstance(state, list | tuple) else [state]
        return _Recurrent.apply(self, name, rest, len(states), source, *states, *weights)
