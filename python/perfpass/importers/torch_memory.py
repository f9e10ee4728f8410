"""What a PyTorch program allocates on a CUDA device, step by step, recorded without a device and without data.

The model runs on fake tensors: shapes, types and storages are real, memory is not. Every storage is noted when it
appears and when it dies, so views, in-place updates, tensors saved for the backward pass and the optimizer's
temporaries are what PyTorch itself keeps alive. Where the CPU build would run another kernel than CUDA does, the CUDA
one's outputs are taken: autocast casts by CUDA's lists, attention is fused, dropout keeps a byte mask.
"""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch._subclasses import FakeTensorMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from perfpass.errors import ArgumentError, UnsupportedError
from perfpass.graph.allocators import FREE, USES, Events

_WEIGHTS, _INPUTS, _ACTIVATIONS, _GRADIENTS, _OPTIMIZER, _TEMPORARIES = range(len(USES))
AUTOCAST = {"amp": torch.float16, "amp_bf16": torch.bfloat16}
PARAMETERS = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
PARAMETERS |= dict.fromkeys(AUTOCAST, torch.float32)
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, foreach=True),
    "sgd_momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=True),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-3, foreach=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3, foreach=True),
    "adamw_fused": lambda p: torch.optim.AdamW(p, lr=1e-3, foreach=False),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3, foreach=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-3, foreach=True),
}
ZERO_GRAD = ("none", "zeros", "never")

# at::autocast's lists for CUDA (aten/src/ATen/autocast_mode.h, AT_FORALL_FP32 and AT_FORALL_FP32_SET_OPT_DTYPE): what
# CPU autocast leaves alone and CUDA runs in fp32.
_FP32 = [
    "acos",
    "asin",
    "cosh",
    "erfinv",
    "exp",
    "expm1",
    "log",
    "log10",
    "log2",
    "log1p",
    "reciprocal",
    "rsqrt",
    "sinh",
    "tan",
    "pow.Tensor_Scalar",
    "pow.Tensor_Tensor",
    "pow.Scalar",
    "softplus",
    "layer_norm",
    "native_layer_norm",
    "group_norm",
    "frobenius_norm.dim",
    "nuclear_norm",
    "cosine_similarity",
    "poisson_nll_loss",
    "cosine_embedding_loss",
    "nll_loss",
    "nll_loss2d",
    "hinge_embedding_loss",
    "kl_div",
    "l1_loss",
    "smooth_l1_loss",
    "huber_loss",
    "mse_loss",
    "margin_ranking_loss",
    "multilabel_margin_loss",
    "soft_margin_loss",
    "triplet_margin_loss",
    "multi_margin_loss",
    "binary_cross_entropy_with_logits",
    "dist",
    "pdist",
    "cdist",
    "renorm",
    "logsumexp",
]
_FP32_BY_ARGUMENT = ["cumprod", "cumsum", "linalg_vector_norm", "sum", "sum.dim_IntList"]


@dataclass(frozen=True)
class Recorded:
    """``events`` of all steps; ``step_ends`` [S] counts the events up to the end of the set-up and each step."""

    events: Events
    step_ends: tuple[int, ...]


# What forward passes ask of values: whether anything is padded or infinite (the usual input has neither), and whether a
# random number is below the rate at which a layer is dropped.
_ASSUMED = {torch.ops.aten.any: False, torch.ops.aten.all: True, torch.ops.aten.lt: False}


def _holders(tensor: Any) -> tuple[int, int]:
    return tensor._use_count(), torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)


def _is_sole(tensor: torch.Tensor) -> bool:
    """Whether autograd adds into this gradient where it lies: nobody else holds it (input_buffer.cpp, accumulate).

    It never does so for tensors that a mode sees, so a recording has to. How many holders "nobody else" is from inside
    a mode is read off two gradients that have no other.
    """
    dense = tensor.is_contiguous() or torch.ops.aten.is_non_overlapping_and_dense(tensor)
    return dense and all(a <= b for a, b in zip(_holders(tensor), _sole_holders(), strict=True))


@lru_cache(maxsize=1)
def _sole_holders() -> tuple[int, int]:
    seen: list[tuple[int, int]] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
            if func is torch.ops.aten.add.Tensor:
                seen.append(_holders(args[0]))
            return func(*args, **(kwargs or {}))

    with FakeTensorMode(), torch.enable_grad():
        weight = torch.nn.Parameter(torch.empty(2, 2))
        source = torch.empty(2, 2) @ weight
        loss = ((source * 2.0) * (source * 3.0)).sum()
        with Watch():
            loss.backward()
    return seen[0]


class _Storages(TorchDispatchMode):
    """Notes when storages appear and die."""

    def __init__(self) -> None:
        super().__init__()
        self.block: list[int] = []
        self.bytes: list[int] = []
        self.use: list[int] = []
        self.phase = _WEIGHTS
        self._of: dict[int, int] = {}  # id of a live storage -> its block
        self._made: list[int] = []  # event that allocated each block
        self._references: dict[int, weakref.ref[Any]] = {}
        self._assumed: dict[int, tuple[torch.Tensor, bool]] = {}  # id(answer) -> the answer, what it is taken to be

    def see(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._of:
            return
        block = len(self._made)
        self._of[key] = block
        self._made.append(len(self.block))
        self.block.append(block)
        self.bytes.append(storage.nbytes())
        self.use.append(self.phase)
        self._references[block] = weakref.ref(storage, lambda _: self._gone(key, block))

    def _gone(self, key: int, block: int) -> None:
        self.block.append(block)
        self.bytes.append(FREE)
        self.use.append(self.use[self._made[block]])
        del self._of[key], self._references[block]

    def hold(self, size: int, use: int, each: int = 25 << 20) -> None:
        """Allocate ``size`` bytes for good, in blocks of ``each`` (DDP's bucket_cap_mb)."""
        while size > 0:
            block = len(self._made)
            self._made.append(len(self.block))
            self.block.append(block)
            self.bytes.append(min(size, each))
            self.use.append(use)
            size -= each

    def is_use(self, tensors: Sequence[torch.Tensor], use: int) -> None:
        """These tensors' storages hold ``use``, whatever was going on when they were made."""
        for tensor in tensors:
            block = self._of.get(tensor.untyped_storage()._cdata)
            if block is not None:
                self.use[self._made[block]] = use

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if self.phase == _TEMPORARIES and func is torch.ops.aten.add.Tensor and _is_sole(args[0]):
            func = torch.ops.aten.add_.Tensor
        if func is torch.ops.aten._local_scalar_dense.default and id(args[0]) in self._assumed:
            return self._assumed[id(args[0])][1]
        out = func(*args, **(kwargs or {}))
        for value in pytree.tree_leaves(out):
            if isinstance(value, torch.Tensor):
                self.see(value)
        if func.overloadpacket in _ASSUMED and out.numel() == 1:
            self._assumed[id(out)] = (out, _ASSUMED[func.overloadpacket])
        return out

    def events(self) -> Events:
        """Frees without an allocation between them stand by block: autocast's cache dies in the order of a hash map."""
        block, size = np.array(self.block, np.int32), np.array(self.bytes, np.int64)
        group = np.cumsum(np.concatenate([[True], (size[1:] != FREE) | (size[:-1] != FREE)]))
        order = np.lexsort((np.where(size == FREE, block, 0), group))
        return Events.from_columns(block[order], size[order], np.array(self.use)[order])


class _Attention(torch.autograd.Function):
    """What fused attention allocates and keeps: flash for 16-bit types without a mask, else memory-efficient.

    aten/src/ATen/native/transformers/cuda/{flash_attn/flash_api.cpp,attention_backward.cu}.
    """

    @staticmethod
    def forward(ctx: Any, query: Any, key: Any, value: Any, mask: Any) -> Any:
        b, h, length, _ = query.shape
        flash = mask is None and query.dtype != torch.float32
        out = query.new_empty((b, length, h, value.shape[-1])).transpose(1, 2)
        rows = length if flash else -(-length // 32) * 32
        sums = query.new_empty((b, h, rows), dtype=torch.float32)
        ctx.flash = flash
        ctx.save_for_backward(query, key, value, mask, out, sums)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        query, key, value, mask, _, _ = ctx.saved_tensors
        b, h, length, channels = query.shape

        def like(t: Any) -> Any:
            return t.new_empty((t.shape[0], t.shape[2], t.shape[1], t.shape[3])).transpose(1, 2)

        rows = -(-length // 128) * 128 if ctx.flash else length
        made = [like(query), like(key), like(value)]
        delta = query.new_empty((b, h, rows), dtype=torch.float32)
        wide = 32 if channels <= 32 else -(-channels // 64) * 64
        accumulated = query.new_empty((b, rows, h, wide), dtype=torch.float32) if query.dtype != torch.float32 else None
        bias = torch.empty_like(mask) if ctx.needs_input_grad[3] else None
        del delta, accumulated
        return (*made, bias)


@contextlib.contextmanager
def _as_on_cuda() -> Iterator[None]:
    """While it lasts, fake CPU tensors take the ways that CUDA tensors take."""
    key = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)

    def is_half(value: Any) -> bool:
        return isinstance(value, torch.Tensor) and value.dtype in (torch.float16, torch.bfloat16)

    def to_float(value: Any) -> Any:
        return value.float() if is_half(value) else value

    def in_float(overload: Any) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            with torch._C._ExcludeDispatchKeyGuard(key):
                return overload(*pytree.tree_map(to_float, args), **pytree.tree_map(to_float, kwargs))

        return run

    def into_float(overload: Any) -> Callable[..., Any]:
        def run(source: Any, *args: Any, **kwargs: Any) -> Any:
            with torch._C._ExcludeDispatchKeyGuard(key):
                return overload(source, *args, **(kwargs | {"dtype": torch.float32} if is_half(source) else kwargs))

        return run

    def softmax(operator: Any) -> Callable[..., Any]:
        def run(source: Any, dim: int, dtype: Any = None) -> Any:
            with torch._C._ExcludeDispatchKeyGuard(key):
                if source.dtype == torch.float16 and dtype in (None, torch.float32):
                    return operator(source, dim, True)  # reads fp16, writes fp32, in one kernel
                return operator(to_float(source) if dtype is None else source.to(dtype), dim, False)

        return run

    def dropout(source: torch.Tensor, p: float, train: bool) -> torch.Tensor:
        return torch.native_dropout(source, p, train)[0] if train and p > 0 else source

    def attention(
        query: Any,
        key: Any,
        value: Any,
        mask: Any = None,
        p: float = 0.0,
        causal: bool = False,
        *rest: Any,
        **more: Any,
    ) -> Any:
        if key.shape[-3] != query.shape[-3]:  # enable_gqa
            times = query.shape[-3] // key.shape[-3]
            key, value = (t.repeat_interleave(times, -3) for t in (key, value))
        if query.dim() != 4:
            parts = [t.reshape(-1, 1, *t.shape[-2:]) for t in (query, key, value)]
            return _Attention.apply(*parts, None).reshape(*query.shape[:-1], value.shape[-1])
        if mask is not None and mask.dtype == torch.bool:
            mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(mask.logical_not(), float("-inf"))
        elif mask is not None:
            mask = mask.to(query.dtype)
        return _Attention.apply(query, key, value, mask)

    with torch.library._scoped_library("aten", "IMPL") as library, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Warning only once for all operators")
        library.impl("dropout", dropout, "AutogradCPU")
        library.impl("scaled_dot_product_attention", attention, "AutogradCPU")
        loss = torch.ops.aten.cross_entropy_loss.default
        library.impl("cross_entropy_loss", loss.decompose, "AutocastCPU", allow_override=True)
        library.impl("softmax.int", softmax(torch.ops.aten._softmax.default), "AutocastCPU")
        library.impl("log_softmax.int", softmax(torch.ops.aten._log_softmax.default), "AutocastCPU")
        for name in (*_FP32, *_FP32_BY_ARGUMENT):
            operator, _, variant = name.partition(".")
            if torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "AutocastCPU"):
                continue  # on the CPU's own list
            overload = getattr(getattr(torch.ops.aten, operator), variant or "default")
            library.impl(name, (in_float if name in _FP32 else into_float)(overload), "AutocastCPU")
        yield


def _fake(module: torch.nn.Module, mode: FakeTensorMode, dtype: torch.dtype, storages: _Storages) -> None:
    """Replace parameters and buffers by fake ones, in the order in which `module.to(device)` copies them."""
    made: dict[int, Any] = {}

    def twin(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in made:
            kind = dtype if tensor.is_floating_point() else tensor.dtype
            with mode, torch.no_grad():
                fresh = torch.empty_strided(tensor.shape, tensor.stride(), dtype=kind, device="cpu")
            storages.see(fresh)
            if isinstance(tensor, torch.nn.Parameter):
                fresh = torch.nn.Parameter(fresh, requires_grad=tensor.requires_grad and kind.is_floating_point)
            made[id(tensor)] = fresh
        return made[id(tensor)]

    for part in module.modules():
        stores: tuple[dict[str, Any], ...] = (part._parameters, part._buffers)
        for store in stores:
            for name, tensor in store.items():
                if tensor is not None:
                    store[name] = twin(tensor)


def record(
    module: torch.nn.Module,
    inputs: Callable[[], dict[str, Any] | tuple[Any, ...]],
    *,
    precision: str = "fp32",
    optimizer: str | None = None,
    loss: Callable[[Any], torch.Tensor] | None = None,
    zero_grad: str = "none",
    steps: int = 2,
    gradients: bool = True,
    loop: bool = True,
    buckets: bool = False,
    before: Callable[[], Any] | None = None,
    first: Callable[[torch.nn.Module], Any] | None = None,
) -> Recorded:
    """The allocations of ``steps`` steps of ``module``, which is taken over and left with fake weights.

    ``module``: on the meta device (nothing is computed, weights are never read). ``inputs``: makes one batch, as
    positional (tuple) or keyword (dict) arguments, from ``torch.empty`` and the like. With ``loss`` (of the module's
    output, a scalar) a step is forward and backward, with ``optimizer`` (a name of `OPTIMIZERS`) an update too; without
    ``loss`` it is a forward pass, with autograd's saved tensors where ``gradients`` and without them where not.
    ``precision``: fp32, tf32, fp16, bf16 (parameters of that type), amp, amp_bf16 (autocast over fp32 parameters).
    ``zero_grad``: "none" drops gradients before the forward pass, "zeros" keeps their buffers, "never" accumulates.
    ``loop``: the names of a step live until the next step assigns them, as in a training loop; else they end with it.
    ``buckets``: DistributedDataParallel keeps a second copy of the gradients for its collectives.
    ``before`` runs at the start of every step (a frozen encoder, say), ``first`` once before them, on the module.

    Raises ArgumentError for unknown names, UnsupportedError where the program reads values of tensors.
    """
    if precision not in PARAMETERS:
        raise ArgumentError(f"unknown precision {precision!r}; allowed are {', '.join(PARAMETERS)}")
    if optimizer is not None and optimizer not in OPTIMIZERS:
        raise ArgumentError(f"unknown optimizer {optimizer!r}; allowed are {', '.join(OPTIMIZERS)}")
    if zero_grad not in ZERO_GRAD:
        raise ArgumentError(f"unknown zero_grad {zero_grad!r}; allowed are {', '.join(ZERO_GRAD)}")
    if optimizer is not None and loss is None:
        raise ArgumentError("an optimizer needs a loss")
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    _sole_holders()
    storages = _Storages()
    _fake(module, mode, PARAMETERS[precision], storages)
    module.train(loss is not None)
    if buckets:
        storages.hold(sum(p.numel() * p.element_size() for p in module.parameters() if p.requires_grad), _GRADIENTS)
    update = OPTIMIZERS[optimizer]([p for p in module.parameters() if p.requires_grad]) if optimizer else None
    ends = [len(storages.block)]
    try:
        with mode, _as_on_cuda(), storages, torch.set_grad_enabled(loss is not None or gradients):
            if first is not None:
                storages.phase = _TEMPORARIES
                first(module)
            names: dict[str, Any] = {}
            for _ in range(steps):
                _step(module, inputs, precision, update, loss, zero_grad, before, storages, names)
                if not loop:
                    names.clear()
                ends.append(len(storages.block))
            names.clear()
    except (torch._subclasses.fake_tensor.DataDependentOutputException, NotImplementedError) as error:
        raise UnsupportedError(
            f"{type(module).__name__} reads values of tensors, which a recording lacks: {error}"
        ) from error
    return Recorded(storages.events(), tuple(ends))


def _step(
    module: torch.nn.Module,
    inputs: Callable[[], Any],
    precision: str,
    update: torch.optim.Optimizer | None,
    loss: Callable[[Any], torch.Tensor] | None,
    zero_grad: str,
    before: Callable[[], Any] | None,
    storages: _Storages,
    names: dict[str, Any],
) -> None:
    """One step. ``names`` are the variables of the loop's body: what they hold lives until they are assigned again."""
    storages.phase = _INPUTS
    names["inputs"] = given = inputs()
    storages.phase = _ACTIVATIONS
    names["before"] = before() if before else None
    if loss is not None and zero_grad != "never":
        module.zero_grad(set_to_none=zero_grad == "none")
    half = AUTOCAST.get(precision)
    with torch.autocast("cpu", dtype=half or torch.bfloat16, enabled=half is not None):
        names["output"] = module(**given) if isinstance(given, dict) else module(*given)
        names["loss"] = loss(names["output"]) if loss is not None else None
    if names["loss"] is not None:
        storages.phase = _TEMPORARIES
        names["loss"].backward()
        storages.is_use([p.grad for p in module.parameters() if p.grad is not None], _GRADIENTS)
    if update is not None:
        update.step()
        kept = [t for state in update.state.values() for t in state.values() if isinstance(t, torch.Tensor)]
        storages.is_use(kept, _OPTIMIZER)
