"""How a language model is trained: the layout over devices, precision, optimizer, kernels, what is computed anew.

`perfpass.llm.training` counts the memory of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from perfpass.errors import ArgumentError
from perfpass.text import unknown

ATTENTIONS = ("flash", "unfused")
SHARDINGS = ("none", "zero1", "zero2", "zero3")
# "offloaded": as "full", what is kept of a layer (its input) waits in the host's memory.
RECOMPUTATIONS = ("none", "selective", "full", "offloaded")
# What waits in the host's memory: master copy and states of the optimizer, which runs there, while gradients stay in
# their buffers on the device (Megatron-LM's --optimizer-cpu-offload, megatron/core/optimizer/cpu_offloading, which
# copies a rank's share of them to the host in each step); gradients, too (ZeRO-Offload, arXiv:2101.06840); or weights
# too, fetched layer by layer (arXiv:2104.07857; FSDP's CPUOffload).
OFFLOADS = ("none", "states", "optimizer", "parameters")
# One forward, one backward (interleaved with chunks); zero-bubble schedules, which put gradients of weights where a
# stage would wait (arXiv:2401.10241).
SCHEDULES = ("1f1b", "zb_h1", "zb_h2")
# How the loss is computed, as bytes of an element of the logits at its peak: activations, and bytes beside. "parallel":
# Megatron-LM's, in place (the logits, and their single-precision copy, which becomes softmax and gradient); "eager":
# transformers' (the logits, which its output holds, and in single precision their log-softmax and two gradients);
# "shifted": its releases to 4.44, which copied them twice; "fused": in place (Liger, Transformer Engine); "scripted":
# Megatron-LM's native fusion, by what its runs measured.
LOSSES: dict[str, tuple[float, float]] = {
    "parallel": (1.0, 4.0),
    "scripted": (1.0, 8.0),
    "eager": (1.0, 12.0),
    "shifted": (1.0, 16.0),
    "fused": (1.0, 0.0),
}
# Of these, copies in single precision that there is no need of where the logits are in it.
COPIED = ("parallel", "scripted", "shifted")


@dataclass(frozen=True)
class States:
    """Bytes of a parameter: as it computes, its gradient, a master copy; ``casts``: bytes of a cached copy of matrices.

    ``moment``: bytes of an element of an optimizer's state, where the optimizer does not say. ``activation``: of an
    activation; ``saved_input``: of what a product keeps of its input; ``stream``: of the residual stream, where it is
    wider than an activation, and every product casts its input for itself.
    """

    weight: float
    gradient: float
    master: float
    moment: float = 4.0
    casts: float = 0.0
    activation: float = 2.0
    saved_input: float = 2.0
    stream: float = 0.0

    @property
    def residual(self) -> float:
        """Bytes of an element of the residual stream."""
        return self.stream or self.activation


# "bf16" and "fp16" keep a master copy in single precision, bf16 sums gradients in it (Megatron-LM's defaults); "amp" is
# torch.autocast; "bf16_true" keeps nothing in more than 16 bits; "fp8" quantizes products alone, whose weights and
# inputs are kept in both orders of 8 bits (Transformer Engine).
PRECISIONS: dict[str, States] = {
    "bf16": States(2, 4, 4),
    "fp16": States(2, 2, 4),
    "fp8": States(2, 4, 4, casts=2, saved_input=1),
    "amp": States(4, 4, 0, casts=2, stream=4),
    "bf16_true": States(2, 2, 0, moment=2),
    "fp32": States(4, 4, 0, activation=4, saved_input=4),
}
# Moments of an element, and bytes of one where the optimizer says it: 8 bits with a scale of 4 bytes for 256 elements
# (arXiv:2110.02861). Muon has one for matrices of layers (Adam's two for the rest); Adafactor's are vectors, left out.
OPTIMIZERS: dict[str, tuple[int, float | None]] = {
    "none": (0, None),
    "sgd": (0, None),
    "momentum": (1, None),
    "adam": (2, None),
    "adamw": (2, None),
    "adamw_bf16": (2, 2.0),
    "adamw_8bit": (2, 1 + 4 / 256),
    "lion": (1, None),
    "muon": (1, None),
    "adafactor": (0, None),
}
# Bytes of a frozen weight: NF4 in blocks of 64 with a scale of 4 bytes, or of one byte and a scale for 256 of them
# (QLoRA, arXiv:2305.14314, section 3).
FROZEN: dict[str, float] = {
    "none": 2.0,
    "int8": 1.0,
    "nf4": 0.5 + 4 / 64,
    "nf4_double": 0.5 + 1 / 64 + 4 / (64 * 256),
}
# What reads pictures or sound beside a language model while that is trained: not loaded, loaded, or trained with it.
TOWERS = ("none", "frozen", "trained")
TARGETS = ("query", "key", "value", "output", "gate", "up", "down")


@dataclass(frozen=True)
class Adapter:
    """Low-rank adapters (LoRA, arXiv:2106.09685) on ``targets`` of TARGETS; ``frozen``: what weights are kept in.

    ``decomposed``: with a magnitude of every output (DoRA, arXiv:2402.09353). ``single``: adapters, their gradients and
    states are in single precision whatever the model is in (peft's default). ``dropout``: on their input.
    ``inputs_kept``: of how many micro-batches quantized products keep their inputs, as bitsandbytes' first 4-bit ones
    did (its int8 ones keep those of one).
    ``head_frozen``: the head is quantized as well (transformers leaves it in 16 bits).
    """

    rank: int
    targets: tuple[str, ...] = ("query", "value")
    frozen: str = "none"
    decomposed: bool = False
    single: bool = False
    dropout: bool = False
    inputs_kept: int = 0
    head_frozen: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.rank <= 65536:
            raise ArgumentError(f"rank of an adapter must be from 1 to 65536, got {self.rank}")
        for name in self.targets:
            if name not in TARGETS:
                raise ArgumentError(unknown("target of an adapter", name, TARGETS))
        if self.frozen not in FROZEN:
            raise ArgumentError(unknown("precision of frozen weights", self.frozen, FROZEN))


@dataclass(frozen=True)
class Layout:
    """How a training run is split: ``tensor`` x ``context`` x ``pipeline`` x ``data`` devices.

    ``virtual``: chunks of layers of a stage (interleaved schedule); ``schedule`` of SCHEDULES. Experts are spread over
    ``expert`` groups of ``expert_tensor`` devices (0: ``tensor``), taken from those of ``data``, ``context`` and
    ``tensor``. ``sharding`` of SHARDINGS over ``sharding_group`` ranks (0: all of ``data`` x ``context``).
    ``sequence_parallel``: norms and residuals are split over ``tensor``.
    """

    tensor: int = 1
    pipeline: int = 1
    virtual: int = 1
    context: int = 1
    expert: int = 1
    expert_tensor: int = 0
    data: int = 1
    sharding: str = "none"
    sharding_group: int = 0
    sequence_parallel: bool = False
    schedule: str = "1f1b"

    def __post_init__(self) -> None:
        for name in ("tensor", "pipeline", "virtual", "context", "expert", "data"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 65536:
                raise ArgumentError(f"layout: {name} must be a whole number from 1 to 65536, got {value!r}")
        if self.sharding not in SHARDINGS:
            raise ArgumentError(unknown("sharding", self.sharding, SHARDINGS))
        if self.schedule not in SCHEDULES:
            raise ArgumentError(unknown("schedule of a pipeline", self.schedule, SCHEDULES))
        if self.virtual > 1 and self.schedule != "1f1b":
            raise ArgumentError(f"layout: {self.schedule} has one chunk a stage; leave {self.virtual} chunks to 1f1b")
        if self.expert_tensor < 0 or self.sharding_group < 0:
            raise ArgumentError("layout: expert_tensor and sharding_group must be at least 0")
        if self.virtual > 1 and self.pipeline == 1:
            raise ArgumentError(f"layout: {self.virtual} chunks of a stage need a pipeline of 2 stages or more")
        if self.tensor * self.context * self.data % (self.expert * self.experts_share):
            raise ArgumentError(
                f"layout: {self.expert} expert groups of {self.experts_share} do not divide the "
                f"{self.tensor * self.context * self.data} devices of a stage"
            )

    @property
    def devices(self) -> int:
        """All devices."""
        return self.tensor * self.pipeline * self.context * self.data

    @property
    def experts_share(self) -> int:
        """Devices that share an expert."""
        return self.expert_tensor or (self.tensor if self.expert == 1 else 1)

    @property
    def shards(self) -> int:
        """Ranks that what `sharding` names is spread over."""
        return self.sharding_group or self.data * self.context

    @property
    def expert_shards(self) -> int:
        """The same of experts, whose replicas are fewer."""
        replicas = self.tensor * self.context * self.data // (self.expert * self.experts_share)
        return max(1, replicas * self.shards // (self.data * self.context))


@dataclass(frozen=True)
class Kernels:
    """What computes a layer. ``attention``: "flash" keeps statistics, "unfused" the probabilities. ``dropout``: masks
    are kept (attention's own where unfused). ``fused_norms``: a norm keeps its input alone; else single-precision
    copies (transformers' RMSNorm). ``fused_gates``: a gate's activation is computed anew.
    """

    attention: str = "flash"
    dropout: bool = False
    fused_norms: bool = True
    fused_gates: bool = True

    def __post_init__(self) -> None:
        if self.attention not in ATTENTIONS:
            raise ArgumentError(unknown("attention", self.attention, ATTENTIONS))


@dataclass(frozen=True)
class Recipe:
    """How a model is trained: ``micro_batch`` sequences of ``sequence`` tokens at once, ``micro_batches`` in a step.

    ``precision`` of PRECISIONS, ``optimizer`` of OPTIMIZERS, ``recompute`` of RECOMPUTATIONS ("selective" is what
    attention keeps), ``loss`` of LOSSES in ``loss_chunks`` parts, ``offload`` of OFFLOADS. ``gradient_bytes``: of an
    element, where it is not the precision's. ``foreach``: the optimizer's step makes a copy of all it updates
    (torch.optim's default). ``gradient_buffers``: gradients have their place from step to step (Megatron-LM, DDP); else
    a step's exist from their own backward pass on (torch's zero_grad), where no micro-batch came before. ``towers`` of
    TOWERS: of the model's towers (`LanguageModel.beside`); beside adapters even "trained" ones are frozen.
    """

    micro_batch: int
    sequence: int
    micro_batches: int = 1
    precision: str = "bf16"
    optimizer: str = "adamw"
    recompute: str = "none"
    kernels: Kernels = field(default_factory=Kernels)
    loss: str = "parallel"
    loss_chunks: int = 1
    adapter: Adapter | None = None
    gradient_bytes: float | None = None
    foreach: bool = False
    gradient_buffers: bool = True
    offload: str = "none"
    towers: str = "none"
    workspace_bytes: float = 0.0

    def __post_init__(self) -> None:
        for name in ("micro_batch", "sequence", "micro_batches", "loss_chunks"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ArgumentError(f"{name} must be a whole number of at least 1, got {value!r}")
        for name, allowed in (
            ("precision", PRECISIONS),
            ("optimizer", OPTIMIZERS),
            ("recompute", RECOMPUTATIONS),
            ("loss", LOSSES),
            ("offload", OFFLOADS),
            ("towers", TOWERS),
        ):
            if getattr(self, name) not in allowed:
                raise ArgumentError(unknown(name, getattr(self, name), allowed))
