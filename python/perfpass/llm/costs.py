"""The work of one serving step on one GPU: FLOPs, bytes and messages per component, under parallelism and quantization.

A step is a set of tokens that pass the layers together: a chunk of a prefill, a decode step of a batch, or both mixed.
Everything takes NumPy arrays as well as numbers and broadcasts, so a table of workloads is counted in one go.

Sources: FLOPs and bytes of a decoder follow from its matrices; latent attention in its absorbed form (DeepSeek-V2,
arXiv:2405.04434, section 2.1.2) in decode, unabsorbed in prefill; tensor parallelism needs two all-reduces a layer
(Megatron-LM, arXiv:1909.08053); expert parallelism a dispatch and a combine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from perfpass.errors import ArgumentError
from perfpass.llm.architecture import Attention, Experts, LanguageModel, Layer, Mlp, Recurrence
from perfpass.llm.stored_bytes import GROUPS_OF_128_BYTES, NF4_BYTES, NF4_TWICE_BYTES
from perfpass.text import unknown

# Imported where arrays are: whether a model fits is counted in numbers, and numpy is a quarter of the time it takes.
if TYPE_CHECKING:
    import numpy as np

Number: TypeAlias = "float | np.ndarray"

# Bits of a weight in files of llama.cpp, by file type: the file over the model's parameters, tables included, as
# llama.cpp states them for Llama-3.1-8B (tools/quantize/README.md; q3_k_m, q4_0, q4_1, q5_0 and q5_1 from the sizes in
# the help of llama-quantize). Files of other models are 3 % smaller to 6 % larger (lhl/strix-halo-testing).
GGUF_BITS: dict[str, float] = {
    "iq1_s": 2.0042,
    "iq1_m": 2.1460,
    "iq2_xxs": 2.3824,
    "iq2_xs": 2.5882,
    "iq2_s": 2.7403,
    "iq2_m": 2.9294,
    "iq3_xxs": 3.2548,
    "iq3_xs": 3.4977,
    "iq3_s": 3.6606,
    "iq3_m": 3.7628,
    "iq4_xs": 4.4597,
    "iq4_nl": 4.6818,
    "q2_k_s": 2.9697,
    "q2_k": 3.1593,
    "q3_k_s": 3.6429,
    "q3_k_m": 4.0008,
    "q3_k_l": 4.2979,
    "q4_0": 4.6426,
    "q4_1": 5.1133,
    "q4_k_s": 4.6672,
    "q4_k_m": 4.8944,
    "q5_0": 5.5733,
    "q5_1": 6.0440,
    "q5_k_s": 5.5704,
    "q5_k_m": 5.7036,
    "q6_k": 6.5633,
    "q8_0": 8.5008,
}
# Bits of llama.cpp's types that pack 256 elements of a row, and of what takes the place of each where a row is no
# multiple of them (llama-quant.cpp, "using fallback quantization": q5_0, q5_1, q8_0, else iq4_nl).
_PACKS = 256
_FALLBACKS = {
    "q6_k": (6.5625, 8.5),
    "q5_k": (5.5, 6.0),
    "q4_k": (4.5, 5.5),
    "q3_k": (3.4375, 4.5),
    "q2_k": (2.625, 4.5),
    "iq4_xs": (4.25, 4.5),
    "iq3_s": (3.4375, 4.5),
    "iq3_xxs": (3.0625, 4.5),
    "iq2_s": (2.5625, 4.5),
    "iq2_xs": (2.3125, 4.5),
    "iq2_xxs": (2.0625, 4.5),
    "iq1_m": (1.75, 4.5),
    "iq1_s": (1.5625, 4.5),
}
# Of a file type: that of most matrices, and those of the last matrices of blocks, each of as many of them.
_ROW_TYPES: dict[str, tuple[str, tuple[str, ...]]] = {
    **{name: (name, (name,)) for name in _FALLBACKS},
    "q4_k_m": ("q4_k", ("q4_k", "q6_k")),
    "q4_k_s": ("q4_k", ("q4_k",)),
    "q5_k_m": ("q5_k", ("q5_k", "q6_k")),
    "q5_k_s": ("q5_k", ("q5_k",)),
    "q3_k_l": ("q3_k", ("q5_k",)),
    "q3_k_m": ("q3_k", ("q4_k",)),
    "q3_k_s": ("q3_k", ("q3_k",)),
    "q2_k": ("q2_k", ("q3_k",)),
    "q2_k_s": ("q2_k", ("q2_k",)),
    "iq3_m": ("iq3_s", ("q4_k",)),
    "iq3_xs": ("iq3_xxs", ("iq3_s",)),
    "iq2_m": ("iq2_s", ("iq3_s",)),
}
# Bytes of an element as stored, block scales included: fp8 blocks of 128 x 128 carry an fp32 scale, nvfp4 blocks of 16
# an fp8 one, mxfp4 blocks of 32 an 8-bit one (OCP Microscaling 1.0), integers below 8 bits in groups of 32 a 16-bit
# one, int8 in groups of 128; ternary weights (arXiv:2402.17764) are packed in 2 bits, with one scale a matrix. "_wo":
# only the weights are so, and are multiplied in 16 bits.
ELEMENT_BYTES: dict[str, float] = {
    "fp32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "fp8_block": 1.0 + 4 / 128**2,
    "int8": 1.0,
    "nvfp4": 0.5 + 1 / 16,
    "mxfp4": 0.5 + 1 / 32,
    "int4_wo": 0.5 + 2 / 32,
    "fp8_wo": 1.0,
    "nvfp4_wo": 0.5 + 1 / 16,
    "int8_wo": 1.0 + 2 / 128,
    "int3_wo": 3 / 8 + 2 / 32,
    "int2_wo": 0.25 + 2 / 32,
    "ternary_wo": 0.25,
    **{name: bits / 8 for name, bits in GGUF_BITS.items()},
}
# What a precision takes at least, where its common forms differ: integers with a 16-bit scale and a zero of their own
# width in groups of 128 (GPTQ and AWQ as they are published, arXiv:2210.17323, arXiv:2306.00978), int8 by channel.
LEAST_BYTES: dict[str, float] = {
    **ELEMENT_BYTES,
    "int4_wo": 4 / 8 + (2 + 4 / 8) / 128,
    "int3_wo": 3 / 8 + (2 + 3 / 8) / 128,
    "int2_wo": 2 / 8 + (2 + 2 / 8) / 128,
    "int8_wo": 1.0,
}
# The unit that multiplies matrices of each kind; where a device lacks it, they are expanded to the next wider one.
_16_BITS = ("bf16", "fp16")
UNITS: dict[str, tuple[str, ...]] = {
    **{name: _16_BITS for name in ELEMENT_BYTES if name.endswith("_wo") or name in GGUF_BITS},
    "fp32": ("fp32",),
    "bf16": ("bf16", "fp16"),
    "fp16": ("fp16", "bf16"),
    "fp8": ("fp8", *_16_BITS),
    "fp8_block": ("fp8", *_16_BITS),
    "int8": ("int8", *_16_BITS),
    "nvfp4": ("fp4", *_16_BITS),
    "mxfp4": ("fp4", *_16_BITS),
}
# What remains of a precision where its unit is lacking and the weights alone are kept in it.
WEIGHTS_ALONE = {"fp8": "fp8_wo", "fp8_block": "fp8_wo", "nvfp4": "nvfp4_wo"}
# Precisions of matrices and experts that a name of the command line stands for.
PRECISIONS: dict[str, tuple[str, str]] = {
    "bf16": ("bf16", "bf16"),
    "fp16": ("fp16", "fp16"),
    "fp32": ("fp32", "fp32"),
    "fp8": ("fp8", "fp8"),
    "fp8_block": ("fp8_block", "fp8_block"),
    "fp8_wo": ("fp8_wo", "fp8_wo"),
    "nvfp4": ("nvfp4", "nvfp4"),
    "fp4": ("nvfp4", "nvfp4"),
    "nvfp4_wo": ("nvfp4_wo", "nvfp4_wo"),
    "mxfp4": ("bf16", "mxfp4"),
    "int4": ("int4_wo", "int4_wo"),
    "int8": ("int8", "int8"),
    "int8_wo": ("int8_wo", "int8_wo"),
    **{name: (name, name) for name in GGUF_BITS},
}

# Formats beside PRECISIONS: the precision that they are counted in, and bytes of an element as the method packs them.
FORMATS: dict[str, tuple[str, float]] = {
    "awq": ("int4_wo", GROUPS_OF_128_BYTES),
    "gptq": ("int4_wo", GROUPS_OF_128_BYTES),
    "w4a16": ("int4_wo", GROUPS_OF_128_BYTES),
    "w8a8": ("int8", ELEMENT_BYTES["int8"]),
    "nf4": ("int4_wo", NF4_BYTES),
    "nf4_double": ("int4_wo", NF4_TWICE_BYTES),
}
# Further spellings of PRECISIONS and FORMATS.
_SPELT = {
    "w8a16": "int8_wo",
    **dict.fromkeys(("gptq_int8", "gptq_8bit"), "int8_wo"),
    **{f"{method}_{bits}": method for method in ("awq", "gptq") for bits in ("int4", "4bit")},
    **dict.fromkeys(("bnb_4bit", "bnb_nf4", "bitsandbytes_4bit"), "nf4"),
}


def _spelt(name: object) -> str:
    known = name.lower().replace("-", "_") if isinstance(name, str) else ""
    return _SPELT.get(known, known)


def packed_format(name: object) -> tuple[str, float] | None:
    """What FORMATS has of a name; None for one of a precision, or of none."""
    return FORMATS.get(_spelt(name))


def in_format(model: LanguageModel, name: object) -> LanguageModel:
    """The model with the bytes of an element that a name of FORMATS gives its matrices, which its notes say; as it is
    for other names.
    """
    packed = packed_format(name)
    if packed is None:
        return model
    kind, size = packed
    said = f"{8 * size:.3g} bits a weight as it packs them, at the pace of {kind.removesuffix('_wo')}"
    return replace(
        model, packed_bytes=(*model.packed_bytes, packed), notes=(*model.notes, f"precision {_spelt(name)}: {said}")
    )


def named_precision(name: str, *, mixture: bool = True) -> tuple[str, str]:
    """Precisions of matrices and of experts that a name of PRECISIONS, FORMATS or ELEMENT_BYTES stands for; file types
    also as Q4_K_M.

    Of a model that is no ``mixture`` all matrices are in what is otherwise one of the experts alone (mxfp4).

    Raises ArgumentError for a name that is none.
    """
    known, packed = _spelt(name), packed_format(name)
    known = packed[0] if packed else known
    found = PRECISIONS.get(known) or ((known, known) if known in ELEMENT_BYTES else None)
    if found is None:
        names = (*PRECISIONS, *FORMATS)
        raise ArgumentError(unknown("precision", name, names, listed(names)))
    return found if mixture else (found[1], found[1])


def experts_in_file(published: str, precision: str) -> str:
    """The precision of a mixture's experts in a file of ``precision``, where they were ``published`` in another: files
    of llama.cpp keep those in mxfp4, whatever their type (of gpt-oss Q8_0 is what llama.cpp calls MXFP4_MOE).
    """
    return published if precision in GGUF_BITS and published == "mxfp4" else precision


def file_type(stored: str, experts: str) -> str | None:
    """The type of llama.cpp's file of a checkpoint that is ``stored`` so, its ``experts`` so, where nobody asks for
    one; None: no other than is stored. Of experts published in mxfp4 it is what llama.cpp calls MXFP4_MOE (ggml-org's
    files of gpt-oss: 11.27 and 59.02 GiB by llama-bench, 12.83 and 60.87 with all but the experts in 16 bits).
    """
    return "q8_0" if experts == "mxfp4" and stored == "bf16" else None


def listed(names: Iterable[str]) -> str:
    """Names of precisions for a sentence; of the file types one stands for all."""
    found = list(names)
    own = [name for name in found if name not in GGUF_BITS]
    packed = ["the file types of llama.cpp, as q4_k_m"] if len(own) < len(found) else []
    return ", ".join((*own, *packed))


COMPONENTS = (
    "projections",
    "attention",
    "recurrence",
    "dense_mlp",
    "experts",
    "shared_experts",
    "logits",
    "elementwise",
    "collectives",
)


@dataclass(frozen=True)
class Quantization:
    """Precision of the matrices (attention and dense), of the experts' matrices and of the cache, of ELEMENT_BYTES."""

    gemm: str = "bf16"
    moe: str = "bf16"
    kv_cache: str = "bf16"

    def __post_init__(self) -> None:
        for part in (self.gemm, self.moe, self.kv_cache):
            if part not in ELEMENT_BYTES:
                raise ArgumentError(f"precision {part!r}; allowed are {listed(ELEMENT_BYTES)}")

    @property
    def activations(self) -> str:
        """Precision of activations, norms and tables: 16 bits, but fp32 where the matrices are."""
        return "fp32" if self.gemm == "fp32" else "bf16"

    @property
    def activation_bytes(self) -> float:
        """Bytes of an element of `activations`."""
        return ELEMENT_BYTES[self.activations]

    @property
    def is_narrow(self) -> bool:
        """Whether matrices or the cache have fewer bits than activations."""
        parts = (self.gemm, self.moe, self.kv_cache)
        return min(ELEMENT_BYTES[part] for part in parts) < self.activation_bytes

    @property
    def table_bytes(self) -> float:
        """Bytes of an element of embedding and head: those of `activations`; a file of llama.cpp packs them as well."""
        return ELEMENT_BYTES[self.gemm] if self.gemm in GGUF_BITS else self.activation_bytes


def peak_flops(peaks: Mapping[str, float], precision: str) -> float:
    """FLOP/s at which a device of these ``peaks`` multiplies matrices of a precision: that of the first unit of UNITS
    that it has, but never below fp32, which runtimes take where 16 bits are emulated (Pascal boards but the P100).
    """
    single = peaks.get("fp32", 0.0)
    for unit in UNITS[precision]:
        if unit in peaks:
            return max(peaks[unit], single)
    return single or max(peaks.values())


def lacking(peaks: Mapping[str, float], precision: str) -> str:
    """The unit that a precision computes in and a device of these ``peaks`` lacks, else "".

    Weights alone need none: 4-bit ones are expanded to 16 bits, and mxfp4 is served so where there is no fp4.
    """
    unit = UNITS[precision][0]
    alone = precision.endswith("_wo") or precision in GGUF_BITS or precision == "mxfp4"
    return "" if unit in peaks or alone else unit


@dataclass(frozen=True)
class Parallelism:
    """How one replica is split over GPUs.

    ``tensor`` GPUs share each attention layer, ``attention_data`` such groups serve different requests and meet in
    the experts, which are split over ``expert`` groups of ``expert_tensor`` GPUs; ``pipeline`` stages of layers.
    """

    tensor: int = 1
    pipeline: int = 1
    attention_data: int = 1
    expert_tensor: int = 1
    expert: int = 1

    def __post_init__(self) -> None:
        for name in ("tensor", "pipeline", "attention_data", "expert_tensor", "expert"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 4096:
                raise ArgumentError(f"parallelism: {name} must be a whole number from 1 to 4096, got {value!r}")

    @classmethod
    def of(cls, tensor: int = 1, pipeline: int = 1, attention_data: int = 1, expert: int = 1) -> Parallelism:
        """With the experts' tensor split worked out: ``tensor`` x ``attention_data`` GPUs over ``expert`` groups."""
        plain = cls(tensor, pipeline, attention_data, 1, expert)
        stage = tensor * attention_data
        if stage % expert:
            raise ArgumentError(f"{expert} expert groups do not divide the {stage} GPUs of a stage")
        return cls(plain.tensor, plain.pipeline, plain.attention_data, stage // expert, expert)

    @property
    def stage(self) -> int:
        """GPUs of one pipeline stage."""
        return self.tensor * self.attention_data

    @property
    def gpus(self) -> int:
        """GPUs of one replica."""
        return self.stage * self.pipeline

    @property
    def sends_tokens(self) -> bool:
        """Whether tokens are sent to the groups that have their experts, and back; otherwise every group has all tokens
        and results are reduced.
        """
        return self.expert > 1 and self.attention_data > 1


# Experts are chosen by a power law of this exponent, as measured kernels of them were loaded (aiconfigurator's
# collector takes 1.01). Steps of gpt-oss-120b on B200 agree: with 32 requests they take 7.3 ms, in which what even
# routing touches (64 %) could not be read even at peak beside all else; by this law it is 40 %.
ROUTING_SKEW = 1.01


@dataclass(frozen=True)
class Step:
    """What passes the layers together, on one attention-data rank.

    ``tokens``: new tokens; ``sequences``: requests among them whose next token is drawn; ``attended``: summed over the
    new tokens, the tokens that each attends to; ``cached``: summed over sequences, the cached tokens that are
    read; ``requests``: all requests with tokens in the step. ``decode``: one token per sequence (latent attention runs
    absorbed). ``routing_skew``: exponent of the power law by which tokens choose experts; 0 is evenly.
    """

    tokens: Number
    sequences: Number
    attended: Number
    cached: Number
    requests: Number
    decode: bool
    routing_skew: float = ROUTING_SKEW

    @classmethod
    def of_decode(cls, batch: Number, context: Number) -> Step:
        """``batch`` sequences take one token each, with ``context`` tokens in the cache on average."""
        import numpy as np

        batch, context = np.asarray(batch, float), np.asarray(context, float)
        return cls(batch, batch, batch * context, batch * context, batch, True)

    @classmethod
    def of_prefill(cls, requests: Number, length: Number, past: Number = 0.0) -> Step:
        """``requests`` prompts of ``length`` tokens each, after ``past`` cached tokens, causally."""
        import numpy as np

        requests, length, past = (np.asarray(v, float) for v in (requests, length, past))
        attended = requests * length * (past + (length + 1) / 2)
        return cls(requests * length, requests, attended, requests * past, requests, False)


@dataclass
class Work:
    """What one component does on one GPU in one step; bytes are those of device memory."""

    flops: Number = 0.0
    weight_bytes: Number = 0.0
    cache_bytes: Number = 0.0
    activation_bytes: Number = 0.0
    message_bytes: Number = 0.0
    messages: float = 0.0
    launches: float = 0.0
    precision: str = "bf16"

    @property
    def memory_bytes(self) -> Number:
        """All device memory traffic."""
        return self.weight_bytes + self.cache_bytes + self.activation_bytes

    def add(self, count: float, **amounts: Number) -> None:
        """Adds ``count`` times each amount."""
        for name, amount in amounts.items():
            setattr(self, name, getattr(self, name) + count * amount)


@dataclass
class StepCosts:
    """Work by component of COMPONENTS, for one pipeline stage's share of the layers on one GPU."""

    parts: dict[str, Work] = field(default_factory=dict)

    def total(self, amount: str) -> Number:
        """The sum over components of one amount of Work."""
        import numpy as np

        return sum((getattr(work, amount) for work in self.parts.values()), np.float64(0.0))


def step_costs(model: LanguageModel, parallelism: Parallelism, quantization: Quantization, step: Step) -> StepCosts:
    """The work of one step on one GPU, all pipeline stages together (divide by ``pipeline`` for one stage).

    A token of a request passes every stage, so the sum over stages is what its latency is made of.
    """
    precisions = {"projections": quantization.gemm, "dense_mlp": quantization.gemm, "recurrence": quantization.gemm}
    precisions |= {"shared_experts": quantization.gemm, "experts": quantization.moe}
    costs = StepCosts({name: Work(precision=precisions.get(name, quantization.activations)) for name in COMPONENTS})
    for count, layer in model.layers:
        _layer(costs.parts, model.hidden, count, layer, parallelism, quantization, step)
    logits = costs.parts["logits"]
    # The head is split like attention; embeddings are looked up, one row per token.
    head = model.hidden * model.vocabulary / parallelism.tensor
    logits.add(1, flops=2 * head * step.sequences, weight_bytes=head * quantization.table_bytes, launches=3)
    logits.add(1, activation_bytes=step.sequences * model.vocabulary / parallelism.tensor * 4)
    if parallelism.pipeline > 1:
        hops = parallelism.pipeline - 1
        size = step.tokens * model.hidden * quantization.activation_bytes
        costs.parts["collectives"].add(hops, message_bytes=size, messages=1, launches=1)
    return costs


def _layer(
    parts: dict[str, Work],
    hidden: int,
    count: int,
    layer: Layer,
    parallelism: Parallelism,
    quantization: Quantization,
    step: Step,
) -> None:
    tensor = parallelism.tensor
    if layer.encoder:
        if step.decode:
            return  # it has read the prompt before
        # Every token attends to all of the prompt, not to those before it alone.
        step = replace(step, attended=2 * step.attended)
    elif layer.cross:
        _across(parts, hidden, count, layer.cross, tensor, quantization, step)
        if not step.decode:  # the decoder begins with one token, whatever the prompt
            step = replace(step, tokens=step.sequences, attended=step.sequences, cached=0.0)
    row = step.tokens * hidden * quantization.activation_bytes
    if layer.attention:
        _attention(parts, hidden, count, layer.attention, tensor, quantization, step)
    if layer.recurrence:
        _recurrence(parts["recurrence"], count, layer.recurrence, tensor, quantization, step)
    if (layer.attention or layer.recurrence) and tensor > 1:
        # A ring all-reduce moves 2 (n - 1) / n of the message through every GPU.
        share = 2 * (tensor - 1) / tensor
        parts["collectives"].add(count, message_bytes=row * share, messages=1, launches=1)
    if layer.dense:
        _dense(parts["dense_mlp"], hidden, count, layer.dense, tensor, quantization, step)
    if layer.experts:
        _experts(parts, hidden, count, layer.experts, parallelism, quantization, step)
    elif layer.dense and tensor > 1:
        share = 2 * (tensor - 1) / tensor
        parts["collectives"].add(count, message_bytes=row * share, messages=1, launches=1)
    # Two norms with residuals a layer: read and write the stream.
    parts["elementwise"].add(count, activation_bytes=6 * row, launches=2)


def _across(
    parts: dict[str, Work], hidden: int, count: int, a: Attention, tensor: int, quantization: Quantization, step: Step
) -> None:
    """The projections of a decoder's attention to the encoder's tokens; what it reads is in the cache's tokens."""
    queries = 2 * hidden * a.heads * a.head_dim / tensor  # of the query and the output, for every token written
    keys = hidden * a.kv_heads * (a.head_dim + a.value_dim) / tensor  # once, for every token of the prompt
    size = ELEMENT_BYTES[quantization.gemm]
    if step.decode:
        flops, elements = 2 * queries * step.tokens, queries
    else:
        flops, elements = 2 * queries * step.sequences + 2 * keys * step.tokens, queries + keys
    parts["projections"].add(count, flops=flops, weight_bytes=elements * size, launches=2)


def _attention(
    parts: dict[str, Work], hidden: int, count: int, a: Attention, tensor: int, quantization: Quantization, step: Step
) -> None:
    import numpy as np

    projections, attention = parts["projections"], parts["attention"]
    elements = a.matrices(hidden) / tensor
    size = ELEMENT_BYTES[quantization.gemm]
    projections.add(
        count, flops=2 * elements * step.tokens, weight_bytes=elements * size, launches=3 if a.q_rank else 2
    )
    width = a.heads * (a.head_dim + a.value_dim) / tensor
    projections.add(count, activation_bytes=step.tokens * (2 * hidden + 2 * width) * quantization.activation_bytes)
    attended, cached = step.attended, step.cached
    limit = min(filter(None, (a.window, a.top_k or None)), default=None)
    if limit:
        attended = np.minimum(attended, step.tokens * limit)
        if step.decode or a.window:
            cached = np.minimum(cached, step.requests * limit)
    if a.is_latent and step.decode:
        pairs = a.heads * (2 * a.kv_rank + a.rope_dim)
    else:
        pairs = a.heads * (a.head_dim + a.value_dim)
    kv_size = ELEMENT_BYTES[quantization.kv_cache]
    # Latents are the same for all heads, so every GPU of a tensor group reads them all.
    per_token = a.cache_elements * kv_size / (1 if a.is_latent else min(tensor, a.kv_heads))
    attention.add(
        count, flops=2 * pairs * attended / tensor, cache_bytes=per_token * (cached + step.tokens), launches=2
    )
    attention.add(count, activation_bytes=step.tokens * width * quantization.activation_bytes)
    if a.top_k:
        attention.add(count, flops=2 * a.index_heads * a.index_dim * step.attended, launches=4)
        attention.add(count, cache_bytes=a.index_dim * kv_size * (step.cached + step.tokens))


def _recurrence(work: Work, count: int, r: Recurrence, tensor: int, quantization: Quantization, step: Step) -> None:
    elements, state = r.projections / tensor, r.state / tensor
    kept = r.state_bytes(quantization.activation_bytes) / tensor
    # Each token scales, adds to and reads the state: three multiply-adds per element.
    work.add(
        count, flops=(2 * elements + 6 * state) * step.tokens, weight_bytes=elements * ELEMENT_BYTES[quantization.gemm]
    )
    work.add(count, cache_bytes=2 * kept * step.requests, launches=6)


def _dense(work: Work, hidden: int, count: int, mlp: Mlp, tensor: int, quantization: Quantization, step: Step) -> None:
    elements = mlp.matrices * hidden * mlp.width / tensor
    size = ELEMENT_BYTES[quantization.gemm]
    work.add(count, flops=2 * elements * step.tokens, weight_bytes=elements * size, launches=3)
    work.add(
        count,
        activation_bytes=step.tokens
        * (2 * hidden + 2 * mlp.matrices * mlp.width / tensor)
        * quantization.activation_bytes,
    )


def _experts(
    parts: dict[str, Work],
    hidden: int,
    count: int,
    e: Experts,
    parallelism: Parallelism,
    quantization: Quantization,
    step: Step,
) -> None:
    work, shared = parts["experts"], parts["shared_experts"]
    # The experts see the tokens of all attention-data ranks.
    tokens = step.tokens * parallelism.attention_data
    per_group = e.count / parallelism.expert
    touched = per_group * expected_share(e, tokens, step.routing_skew)
    elements = e.expert_elements / parallelism.expert_tensor
    visits = tokens * e.active / parallelism.expert
    work.add(count, flops=2 * elements * visits, weight_bytes=touched * elements * ELEMENT_BYTES[quantization.moe])
    moved = 2 * e.model_width + 2 * e.matrices * e.width / parallelism.expert_tensor
    work.add(count, activation_bytes=visits * moved * quantization.activation_bytes, launches=5)
    beside = e.matrices * hidden * e.shared_width / parallelism.tensor
    router = e.count * hidden + e.latent_projection
    shared.add(count, flops=2 * (beside + router) * step.tokens, launches=3)
    shared.add(count, weight_bytes=beside * ELEMENT_BYTES[quantization.gemm] + router * quantization.activation_bytes)
    stage = parallelism.stage
    if stage == 1:
        return
    row = e.model_width * quantization.activation_bytes
    if parallelism.sends_tokens:
        # Dispatch and combine: each token goes to at most `active` other groups, and comes back.
        reached = min(e.active, parallelism.expert) * (parallelism.expert - 1) / parallelism.expert
        parts["collectives"].add(count, message_bytes=2 * step.tokens * row * reached, messages=2, launches=2)
    else:
        share = 2 * (stage - 1) / stage
        parts["collectives"].add(count, message_bytes=tokens * row * share, messages=1, launches=1)


def expected_share(e: Experts, tokens: Number, skew: float = ROUTING_SKEW) -> Number:
    """Share of the experts that ``tokens`` tokens touch, each routed by itself, by a power law of exponent ``skew``."""
    import numpy as np

    missed = 1 - _chosen(e.count, e.active, skew)
    return (1 - missed ** np.asarray(tokens, float)[..., None]).mean(axis=-1)


@lru_cache(maxsize=256)
def _chosen(count: int, active: int, skew: float) -> np.ndarray:
    """[count] the chance that a token goes to each of ``count`` experts, in order; their sum is ``active``, none is
    above 1.
    """
    import numpy as np

    weights = np.arange(1, count + 1) ** -skew
    certain = 0
    while True:  # those that every token goes to leave the rest to the others
        factor = (active - certain) / weights[certain:].sum() if certain < count else 0.0
        if certain >= active or certain == count or factor * weights[certain] <= 1:
            break
        certain += 1
    found = np.minimum(factor * weights, 1.0)
    found[:certain] = 1.0
    return found


# What takes a file's own bytes in another unit: the other 16 bits, and weights alone.
_SAME_BYTES = {"fp16": "bf16", "fp8_wo": "fp8", "fp8_block": "fp8", "nvfp4_wo": "nvfp4"}


def is_as_stored(model: LanguageModel, quantization: Quantization) -> bool:
    """Whether matrices and experts take the bytes that the checkpoint's file has, whatever multiplies them."""
    pairs = (quantization.gemm, model.stored_as), (quantization.moe, model.experts_stored_as)
    return all(_SAME_BYTES.get(now, now) == _SAME_BYTES.get(then, then) for now, then in pairs)


def weight_bytes(
    model: LanguageModel,
    parallelism: Parallelism,
    quantization: Quantization,
    *,
    sizes: Mapping[str, float] = ELEMENT_BYTES,
    tables: int | None = None,
    towers: bool = True,
) -> float:
    """Bytes of the weights on one GPU: matrices split, embeddings and head split over tensor, the rest copied.

    ``sizes``: bytes of an element by precision, before which those go that the model's method of packing states.
    ``tables``: of vocabulary times width; None: one where they are tied, else two. ``towers``: whether those beside the
    language model are loaded, in the type of activations, split over tensor, on the first stage. Where the model's file
    states its bytes and is asked for as it is stored, they are shared out alike.
    """
    if sizes is ELEMENT_BYTES and model.packed_bytes:
        sizes = {**sizes, **dict(model.packed_bytes)}
    counted = _weight_bytes(model, parallelism, quantization, sizes, tables)
    if not model.stored_bytes or not is_as_stored(model, quantization):
        return counted + towers * model.beside * quantization.activation_bytes / parallelism.tensor
    return counted * model.stored_bytes / _weight_bytes(model, Parallelism(), quantization, sizes, None)


def _wider_bytes(precision: str, columns: int, *, last: bool = False) -> float:
    """What an element of a row of ``columns`` takes more in a file type of llama.cpp than where 256 divides them.

    ``last``: of the last matrix of a block, which types of mixed widths keep more exactly.
    """
    if precision not in _ROW_TYPES or columns % _PACKS == 0:
        return 0.0
    most, of_last = _ROW_TYPES[precision]
    packed = [_FALLBACKS[name] for name in (of_last if last else (most,))]
    return sum(instead - bits for bits, instead in packed) / len(packed) / 8


def _mlp_bytes(matrices: int, hidden: int, width: int, precision: str, sizes: Mapping[str, float]) -> float:
    """Bytes of ``matrices`` between ``hidden`` and ``width``, of which the last one's rows are ``width`` long."""
    wider = (matrices - 1) * _wider_bytes(precision, hidden) + _wider_bytes(precision, width, last=True)
    return hidden * width * (matrices * sizes[precision] + wider)


def routed_bytes(layer: Layer, precision: str, sizes: Mapping[str, float] = ELEMENT_BYTES) -> float:
    """Bytes of a layer's experts that tokens are routed to, without biases; 0 where it has none."""
    e = layer.experts
    return e.count * _mlp_bytes(e.matrices, e.model_width, e.width, precision, sizes) if e else 0.0


def _weight_bytes(
    model: LanguageModel,
    parallelism: Parallelism,
    quantization: Quantization,
    sizes: Mapping[str, float],
    tables: int | None,
) -> float:
    total = 0.0
    gemm = sizes[quantization.gemm] + _wider_bytes(quantization.gemm, model.hidden)
    for count, layer in model.layers:
        size = layer.norms * quantization.activation_bytes
        if layer.attention:
            a = layer.attention
            size += a.matrices(model.hidden) / parallelism.tensor * gemm + a.extra * quantization.activation_bytes
        if layer.cross:
            a = layer.cross
            size += a.matrices(model.hidden) / parallelism.tensor * gemm + a.extra * quantization.activation_bytes
        if layer.recurrence:
            size += (
                layer.recurrence.projections * gemm + layer.recurrence.extra * quantization.activation_bytes
            ) / parallelism.tensor
        if layer.dense:
            d = layer.dense
            size += _mlp_bytes(d.matrices, model.hidden, d.width, quantization.gemm, sizes) / parallelism.tensor
            size += d.extra * quantization.activation_bytes / parallelism.tensor
        if layer.experts:
            e = layer.experts
            routed = routed_bytes(layer, quantization.moe, sizes)
            routed += e.count * e.expert_extra * quantization.activation_bytes
            size += routed / (parallelism.expert * parallelism.expert_tensor)
            shared = _mlp_bytes(e.matrices, model.hidden, e.shared_width, quantization.gemm, sizes)
            size += shared / parallelism.tensor
            size += (e.count * model.hidden + e.latent_projection + e.extra) * quantization.activation_bytes
        total += count * size
    kept = (1 if model.tied else 2) if tables is None else tables
    elements = kept * model.vocabulary * model.hidden
    outside = (
        elements * quantization.table_bytes / parallelism.tensor
        + (model.embedding_extra + model.unmet) * quantization.activation_bytes
    )
    # The fullest stage holds its share of the layers and, at either end, a table.
    return total / parallelism.pipeline + outside / min(2, parallelism.pipeline)


def cache_bytes(
    model: LanguageModel, parallelism: Parallelism, quantization: Quantization, context: Number, sequences: Number = 1.0
) -> Number:
    """Bytes of cache and states on one GPU for ``sequences`` of ``context`` tokens on one attention-data rank."""
    import numpy as np

    size, total = ELEMENT_BYTES[quantization.kv_cache], np.float64(0.0)
    for count, layer in model.layers:
        if layer.keeps:
            a = layer.keeps
            seen = np.minimum(context, a.window) if a.window else context
            split = 1 if a.is_latent else min(parallelism.tensor, a.kv_heads)
            total += count * seen * (a.served_bytes(size) / split + a.indexer_bytes)
        if layer.recurrence:
            total += count * layer.recurrence.kept_bytes(quantization.activation_bytes) / parallelism.tensor
    return total * sequences / parallelism.pipeline
