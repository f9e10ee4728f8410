"""Memory of one GPU that serves a language model: weights, paged cache, states, workspace, and how many sequences fit.

The cache is counted in blocks as paged attention hands them out (Kwon et al., SOSP 2023): every sequence rounds each
layer up to whole blocks. Grouped keys and values are split over tensor ranks down to one head, copied beyond; latents
(multi-head latent attention) are copied to every rank; a window keeps its own tokens and one block more; recurrent
layers keep one state per sequence, whatever its length. Of pipeline stages the fullest counts.

Whether a model fits is not a matter of a runtime's defaults: what ran must fit. So it is asked of the least that its
weights, one request, a short step and the context take, in the most that is filled by hand; the defaults say how many
requests fit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from perfpass.errors import ArgumentError
from perfpass.llm.costs import (
    ELEMENT_BYTES,
    LEAST_BYTES,
    Number,
    Parallelism,
    Quantization,
    cache_bytes,
    weight_bytes,
)
from perfpass.llm.in_use import (
    MOST_UTILIZATION,
    SERVERS,
    Parts,
    default_share,
    filled,
    filled_share,
    room,
    whole_bytes,
)
from perfpass.llm.serving import MemoryFit
from perfpass.llm.versions import release
from perfpass.text import size

if TYPE_CHECKING:
    import numpy as np

    from perfpass.devices import Device
    from perfpass.llm.architecture import LanguageModel
    from perfpass.llm.serving import Serving

# vLLM's defaults (vllm/config): share of a GPU that it fills, tokens of a block, tokens of a prefill step.
UTILIZATION = 0.9
BLOCK_TOKENS = 16
CHUNK_TOKENS = 8192
# CUDA context, libraries, graphs and communication buffers of one rank: 1.3 GB on an H100 (training_memory records,
# torch alone), up to 4 GB with CUDA graphs. The second figure is what the safe count uses; the third of several GPUs:
# NCCL adds 0.3 to 1.8 GiB, and vLLM 0.26 logs 1.0 of it and 4.1 of graphs for GLM-5.2 on four.
RUNTIME_BYTES = 2.0e9
RUNTIME_HIGH_BYTES, RUNTIME_HIGH_BYTES_OF_SEVERAL = 4.0e9, 6.0e9
# What vLLM counts of it against its share on one GPU: 0.02 to 0.3 GiB "non-torch", and since 0.21 graphs of 0.2 to 0.8;
# the context lies outside the share (its startup logs of 0.7 to 0.31).
VLLM_RUNTIME_BYTES = 1.0e9
# What settings chosen by hand bring them down to: a context without CUDA graphs, short prefill steps; no source states
# them.
RUNTIME_LOW_BYTES = 0.5e9
CHUNK_LOW_TOKENS = 256
# The least that the context of a deployment tuned by hand takes.
_LEAST_RUNTIME_BYTES = 1e9
# Workspaces of fused kernels beside the tensors of a layer, as a share of these.
_WORKSPACE_HIGH = 1.0
# Of what settings chosen by hand hold, what finds room where the defaults leave nothing. By hand: DeepSeek-V3 in 8 bits
# served 32 requests of 9,216 tokens on four B200s, whose weights alone are above SGLang's default share (InferenceX
# sets 0.95). It fades as the defaults leave more, by less than that is more, so that more memory never holds fewer.
_TUNED_SHARE, _FADING = 2 / 3, 0.7
# What kernels pad their packed weights by, at most; by hand.
_PADDING = 0.02
_LOGIT_BYTES = 4.0
# Requests that vLLM runs at once by itself (`max_num_seqs`; its arguments of 0.10 to 0.12), and on boards of 70 GiB and
# more that are no A100.
VLLM_SEQUENCES, VLLM_SEQUENCES_ON_LARGE, VLLM_LARGE_BYTES = 256, 1024, 70 * 2**30
VLLM_FIRST_UNTIL = (0, 8)  # before it vLLM's first engine is the default, which runs as many on any board
# What vLLM's sampler holds while memory is profiled, for each of them and every entry of the vocabulary, on each rank:
# logits in 16 and in 32 bits; their sort, with values and places in 64 bits, keys and twice a place with its row
# (PyTorch's segmented_sort_pairs_by_full_sort). Published logs have 38 to 42: docs/predictors/memory.md. It was the
# default but for some months of 2025 (vllm-project/vllm#26859), until kernels that sort nothing became it in 0.17
# (Triton's, #33538; FlashInfer's in 0.21, #40376).
_SORTED_BYTES, _SORTED_UNTIL = 2 + 4 + 4 + 8 + 4 + 2 * 8, (0, 17)
# What it holds since: logits in 16 and in 32 bits, what is left of them, its probabilities, and the step's states
# beside. Published logs at default settings have 15.6 and 16.0; on ROCm, with soft-capped logits, 22.4.
_SAMPLED_BYTES, _SAMPLED_HIGH_BYTES = 16, 24
# Keys that vLLM gathers for an indexer, for every token of the longest context (`get_max_prefill_buffer_size` of
# vllm/v1/attention/backends/mla/indexer.py), and scores beside them (VLLM_SPARSE_INDEXER_MAX_LOGITS_MB).
_GATHERED, _SCORE_BYTES = 40, 512 * 2**20
# What servers round the widths of mxfp4 experts up to (vLLM's and SGLang's quantization/mxfp4.py): the hidden size to
# 256, the width on a rank to 256 where FlashInfer or AITER multiplies (Blackwell, AMD), to 128 by Marlin's kernels.
# vLLM 0.10.1 loaded 65.97 GiB of gpt-oss-120b on an H100 (vllm-project/vllm#23278), whose file has 60.8.
_HIDDEN_MULTIPLE, _WIDTH_MULTIPLE, _MARLIN_WIDTH_MULTIPLE = 256, 256, 128


@dataclass(frozen=True)
class Beside:
    """Bytes on one GPU beside a model and its cache: held always (draft models, adapters), and for each sequence;
    ``towers``: whether requests pass the model's own, so that no setting leaves them out.
    """

    weights_bytes: float = 0.0
    sequence_bytes: float = 0.0
    towers: bool = False

    def __add__(self, other: Beside) -> Beside:
        return Beside(
            self.weights_bytes + other.weights_bytes,
            self.sequence_bytes + other.sequence_bytes,
            self.towers or other.towers,
        )


NOTHING = Beside()


@dataclass(frozen=True)
class ServingMemory:
    """Bytes on the fullest GPU. ``cache_per_sequence_bytes`` is for one sequence of the asked context.

    ``most_sequences`` fit at once beside the rest; ``safe_sequences`` still fit where runtime and workspace take what
    they take at most; ``tuned_sequences`` fit with settings chosen by hand, beside ``least_bytes`` of weights,
    workspace and runtime in ``whole_bytes``. 0: none does.
    """

    weights_bytes: float
    cache_per_sequence_bytes: float
    workspace_bytes: float
    runtime_bytes: float
    usable_bytes: float
    most_sequences: int
    safe_sequences: int
    tuned_sequences: int
    least_bytes: float
    whole_bytes: float
    least_weights_bytes: float
    utilization: float

    @property
    def fits(self) -> bool:
        """Whether one sequence fits at all."""
        return self.tuned_sequences >= 1

    @property
    def fits_by_default(self) -> bool:
        """Whether one sequence fits with the settings that a runtime has by itself."""
        return self.most_sequences >= 1

    @property
    def surely_fits(self) -> bool:
        """Whether one sequence fits by the careful count."""
        return self.safe_sequences >= 1


def sequence_bytes(
    model: LanguageModel,
    split: Parallelism,
    quantization: Quantization,
    context: int,
    *,
    block_tokens: int = BLOCK_TOKENS,
) -> float:
    """Bytes of cache and states that one sequence of ``context`` tokens holds on a GPU of the fullest stage.

    Raises ArgumentError for a context or block below 1.
    """
    if context < 1 or block_tokens < 1:
        raise ArgumentError(f"context and block_tokens must be at least 1, got {context} and {block_tokens}")
    element, total = ELEMENT_BYTES[quantization.kv_cache], 0.0
    for count, layer in model.layers:
        if layer.keeps:
            a = layer.keeps
            tokens = context
            if a.window and a.window < context:
                tokens = min(context, a.window + block_tokens)
            paged = math.ceil(tokens / block_tokens) * block_tokens
            per_token = a.served_bytes(element)
            if not a.is_latent:
                per_token *= math.ceil(a.kv_heads / split.tensor) / a.kv_heads
            total += count * paged * (per_token + a.indexer_bytes)
        if layer.recurrence:
            total += count * layer.recurrence.kept_bytes(quantization.activation_bytes) / split.tensor
    return total * math.ceil(model.layer_count / split.pipeline) / model.layer_count


def padding_bytes(model: LanguageModel, split: Parallelism, quantization: Quantization, device: Device) -> float:
    """What servers' kernels add on one GPU to experts in mxfp4 by rounding their widths up; 0 in other precisions."""
    if quantization.moe != "mxfp4":
        return 0.0
    marlin = device.vendor == "NVIDIA" and "fp4" not in device.peak_flops
    multiple, total = _MARLIN_WIDTH_MULTIPLE if marlin else _WIDTH_MULTIPLE, 0.0
    for count, layer in model.layers:
        if e := layer.experts:
            width = e.width / split.expert_tensor
            padded = _up(e.model_width, _HIDDEN_MULTIPLE) * _up(width, multiple) - e.model_width * width
            total += count * e.count / split.expert * e.matrices * padded
    return total * ELEMENT_BYTES["mxfp4"] / split.pipeline


def vllm_sequences(device: Device, version: str = "") -> int:
    """Requests that vLLM, of a ``version`` or the newest, runs at once by itself."""
    large = device.usable_bytes >= VLLM_LARGE_BYTES and not device.id.startswith("a100")
    return VLLM_SEQUENCES_ON_LARGE if large and release(version) >= VLLM_FIRST_UNTIL else VLLM_SEQUENCES


def server_workspace_bytes(
    model: LanguageModel,
    device: Device,
    runtime: str,
    step: float,
    version: str = "",
    sequences: int | None = None,
    context: int = 0,
) -> tuple[float, float]:
    """What a server's workspace takes usually and at most: a step's ``step`` bytes, or vLLM's sampler after it.

    ``version``: of the runtime; empty is the newest. ``sequences``: that vLLM is told to run at most (--max-num-seqs),
    None for `vllm_sequences`. ``context``: the longest, which an indexer's workspace of vLLM is as long as.
    """
    most = (1 + _WORKSPACE_HIGH) * step
    if runtime != "vllm":
        return step, most
    entries = float((sequences or vllm_sequences(device, version)) * model.vocabulary)
    sorts = release(version) < _SORTED_UNTIL
    usual, high = (_SORTED_BYTES, _SORTED_BYTES) if sorts else (_SAMPLED_BYTES, _SAMPLED_HIGH_BYTES)
    kept = max((layer.keeps.indexer_bytes for _, layer in model.layers if layer.keeps), default=0.0)
    scores, gathered = (_SCORE_BYTES, _GATHERED * context * kept) if kept else (0.0, 0.0)
    seen = seen_bytes(model)
    return (
        gathered + max(step + scores, usual * entries, seen),
        gathered + max(most + scores, high * entries, (1 + _WORKSPACE_HIGH) * seen),
    )


def seen_bytes(model: LanguageModel) -> float:
    """What a tower of pictures holds while vLLM profiles memory: pictures of the largest size, as many as a step has
    tokens, at least one (`MultiModalBudget` of vllm/v1/worker/utils.py).
    """
    if model.sight is None:
        return 0.0
    most = model.sight.most_tokens
    tokens = most * max(1, CHUNK_TOKENS // most)
    return tokens * (model.sight.elements + model.hidden) * ELEMENT_BYTES["bf16"]


def server_runtime_bytes(split: Parallelism, runtime: str) -> tuple[float, float, float]:
    """What context, libraries, graphs and communication of a rank take of a server's share: low, usual and at most."""
    alone = split.gpus == 1
    usual = VLLM_RUNTIME_BYTES if alone and runtime == "vllm" else RUNTIME_BYTES
    return RUNTIME_LOW_BYTES, usual, RUNTIME_HIGH_BYTES if alone else RUNTIME_HIGH_BYTES_OF_SEVERAL


def _up(size: float, multiple: int) -> int:
    return math.ceil(size / multiple) * multiple


def workspace_bytes(
    model: LanguageModel, split: Parallelism, tokens: int, sequences: int = 1, *, element_bytes: float = 2.0
) -> float:
    """Largest sum of live activations of one layer for ``tokens`` tokens at once, and the logits of ``sequences``.

    ``element_bytes``: of an activation.
    """
    widest = 0.0
    for _, layer in model.layers:
        if layer.attention:
            a = layer.attention
            projected = a.heads * a.head_dim + a.kv_heads * (a.head_dim + a.value_dim) + a.heads * a.value_dim
            widest = max(widest, projected / split.tensor)
        if layer.dense:
            widest = max(widest, layer.dense.matrices * layer.dense.width / split.tensor)
        if layer.experts:
            e = layer.experts
            routed = e.active * (e.matrices * e.width / split.expert_tensor + 2 * e.model_width) / split.expert
            widest = max(widest, routed + e.matrices * e.shared_width / split.tensor)
    stream = 2 * model.hidden  # the residual and its normalised copy
    logits = sequences * model.vocabulary * _LOGIT_BYTES / split.tensor
    return tokens * (stream + widest) * element_bytes + logits


def plan(
    model: LanguageModel,
    device: Device,
    split: Parallelism,
    quantization: Quantization,
    *,
    context: int,
    chunk_tokens: int = CHUNK_TOKENS,
    utilization: float = UTILIZATION,
    block_tokens: int = BLOCK_TOKENS,
    beside: Beside = NOTHING,
) -> ServingMemory:
    """The memory of a replica's fullest GPU and the sequences of ``context`` tokens that it holds at once.

    ``utilization``: share of the GPU that the stack fills by default. ``beside``: what else it holds. Raises
    ArgumentError for arguments out of range.
    """
    if not 0 < utilization <= 1:
        raise ArgumentError(f"utilization must be above 0 and at most 1, got {utilization!r}")
    if chunk_tokens < 1:
        raise ArgumentError(f"chunk_tokens must be at least 1, got {chunk_tokens}")
    weights = weight_bytes(model, split, quantization) + padding_bytes(model, split, quantization, device)
    weights += beside.weights_bytes
    each = sequence_bytes(model, split, quantization, context, block_tokens=block_tokens) + beside.sequence_bytes
    tokens = min(chunk_tokens, max(context, 1))
    workspace = workspace_bytes(model, split, tokens, element_bytes=quantization.activation_bytes)
    usable = utilization * whole_bytes(device)

    def room(extra: float, runtime: float) -> int:
        return max(0, math.floor((usable - weights - workspace * (1 + extra) - runtime) / max(each, 1.0)))

    short = min(CHUNK_LOW_TOKENS, tokens)
    # A server can be told to leave towers out (vLLM's --language-model-only).
    least_weights = weight_bytes(model, split, quantization, sizes=LEAST_BYTES, towers=beside.towers)
    least_weights += beside.weights_bytes
    least = least_weights + RUNTIME_LOW_BYTES
    least += workspace_bytes(model, split, short, element_bytes=quantization.activation_bytes)
    whole = whole_bytes(device, MOST_UTILIZATION)
    return ServingMemory(
        weights_bytes=weights,
        cache_per_sequence_bytes=each,
        workspace_bytes=workspace,
        runtime_bytes=RUNTIME_BYTES,
        usable_bytes=usable,
        most_sequences=room(0.0, RUNTIME_BYTES),
        safe_sequences=room(_WORKSPACE_HIGH, RUNTIME_HIGH_BYTES),
        tuned_sequences=max(0, math.floor((whole - least) / max(each, 1.0))),
        least_bytes=least,
        whole_bytes=whole,
        least_weights_bytes=least_weights,
        utilization=utilization,
    )


def served(
    model: LanguageModel,
    device: Device,
    serving: Serving,
    beside: Beside = NOTHING,
    sequences: int | None = None,
) -> MemoryFit:
    """The memory of one GPU that decodes (and prefills, where aggregated), under the load that is asked.

    ``beside``: what it holds beside the model and its cache. ``sequences``: that vLLM is told to run at most
    (--max-num-seqs), None for `vllm_sequences`.
    """
    split = serving.parallelism
    length = serving.input_length + serving.output_length
    share = _share(serving.runtime, device, split.gpus, serving.runtime_version)
    found = plan(model, device, split, serving.quantization, context=length, utilization=share, beside=beside)
    ranks = serving.workers * split.attention_data
    wanted = math.ceil(serving.decoded / split.attention_data)
    fit = _fit(found, wanted, ranks, length, serving.quantization)
    return _with_use(
        fit, found, model, device, split, serving.runtime, length, serving.runtime_version, sequences=sequences
    )


def with_room(model: LanguageModel, device: Device, serving: Serving) -> Device:
    """``device`` with memory for all requests in flight, where it has less: what times are of that it cannot have."""
    length = serving.input_length + serving.output_length
    found = plan(model, device, serving.parallelism, serving.quantization, context=length)
    wanted = math.ceil(serving.decoded / serving.parallelism.attention_data)
    held = found.weights_bytes + found.workspace_bytes + found.runtime_bytes + wanted * found.cache_per_sequence_bytes
    least = math.ceil(held / UTILIZATION + device.usable_bytes - whole_bytes(device))
    return device if least <= device.usable_bytes else replace(device, memory_bytes=least, inline_ecc=False)


def alone(
    model: LanguageModel,
    device: Device,
    devices: int,
    quantization: Quantization,
    *,
    context: int,
    sequences: int = 1,
    runtime: str = "vllm",
    version: str = "",
) -> MemoryFit:
    """The memory of each of ``devices`` that hold a model by tensor parallelism and run one batch without a server.

    ``version``: the runtime's; empty is the newest.
    """
    split = Parallelism.of(devices)
    share = _share(runtime, device, split.gpus, version)
    found = plan(model, device, split, quantization, context=context, utilization=share)
    fit = _fit(found, sequences, 1, context, quantization)
    return _with_use(fit, found, model, device, split, runtime, context, version)


def _share(runtime: str, device: Device, gpus: int, version: str = "") -> float:
    """The share of a board that a plan's sequences may fill: vLLM's own default, of the others `UTILIZATION`."""
    return default_share(runtime, device, gpus, version) if runtime == "vllm" else UTILIZATION


def _with_use(
    fit: MemoryFit,
    found: ServingMemory,
    model: LanguageModel,
    device: Device,
    split: Parallelism,
    runtime: str,
    context: int,
    version: str = "",
    sequences: int | None = None,
) -> MemoryFit:
    """``fit`` with the intervals of what is needed, alive, reserved and in use."""
    usual, most = server_workspace_bytes(model, device, runtime, found.workspace_bytes, version, sequences, context)
    beside = server_runtime_bytes(split, runtime)
    parts = Parts(
        weights=(found.least_weights_bytes, found.weights_bytes, (1 + _PADDING) * found.weights_bytes),
        cache=fit.cache_bytes,
        each=found.cache_per_sequence_bytes,
        workspace=(found.least_bytes - found.least_weights_bytes - RUNTIME_LOW_BYTES, usual, most),
        runtime=beside,
    )
    intervals = vars(filled(runtime, device, split.gpus, parts, version=version))
    use = replace(fit, activation_bytes=int(usual), runtime_bytes=int(beside[1]), **intervals)
    if runtime in SERVERS:
        use = replace(use, room=room(runtime, device, split.gpus, replace(parts, cache=parts.each), version=version))
    by_hand = not found.fits_by_default and (use.room is None or use.room.least.median > use.room.limit_bytes)
    if use.answer != "perhaps" or by_hand:
        return use
    usually = "no more than" if use.needed and use.needed.median <= use.limit_bytes else "less than is"
    return replace(use, reason=f"it fits only where runtime and workspaces take {usually} usual")


def _fit(found: ServingMemory, wanted: int, ranks: int, length: int, quantization: Quantization) -> MemoryFit:
    most, each = found.most_sequences or found.tuned_sequences, found.cache_per_sequence_bytes
    free = found.usable_bytes - found.weights_bytes - found.workspace_bytes - found.runtime_bytes
    return MemoryFit(
        weights_bytes=int(found.weights_bytes),
        # Requests that wait leave no room empty: those that run fill it with their blocks.
        cache_bytes=int(min(each * wanted, max(free, each * max(most, 1)))),
        activation_bytes=int(found.workspace_bytes),
        runtime_bytes=int(found.runtime_bytes),
        usable_bytes=int(found.usable_bytes),
        most_requests=most * ranks,
        fits=found.fits,
        reason=_reason(found, wanted, length, quantization),
    )


def _reason(found: ServingMemory, wanted: int, length: int, quantization: Quantization) -> str:
    if not found.fits:
        left, whole = found.whole_bytes - found.least_bytes, size(found.whole_bytes)
        if left < 0:
            return f"weights of {size(found.weights_bytes)} leave no room in {whole}; split over more GPUs"
        each = size(found.cache_per_sequence_bytes)
        return f"one request of {length} tokens needs {each} of cache, {size(left)} of {whole} are left"
    if not found.fits_by_default:
        packed = any(LEAST_BYTES[part] < ELEMENT_BYTES[part] for part in (quantization.gemm, quantization.moe))
        return (
            f"it fits only with settings chosen by hand: over {found.utilization:.0%} of the memory, short prefill "
            "steps, no CUDA graphs" + (", weights quantized in groups of 128" if packed else "")
        )
    if found.most_sequences < wanted:
        return f"of {wanted} requests per rank {found.most_sequences} fit at once; the others wait"
    return ""


def likely_sequences(
    model: LanguageModel, device: Device, serving: Serving, context: Number, whole: Number
) -> np.ndarray:
    """Sequences that a stack holds at once on a rank, of ``context`` tokens on average and of ``whole`` in the end.

    What it fills is its documented default (`in_use`), without reserves: of TensorRT-LLM a share of what the engine
    leaves, of SGLang one of the memory with activations beside it, of vLLM one with all in it. TensorRT-LLM starts a
    request where all of it finds room (GUARANTEED_NO_EVICT), the others where its prompt does. Where weights leave next
    to nothing by default somebody has set the share by hand.
    """
    return bounded_sequences(model, device, serving, context, whole)[1]


def bounded_sequences(
    model: LanguageModel, device: Device, serving: Serving, context: Number, whole: Number
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The least, the likely (`likely_sequences`) and the most: with all that context, graphs and communication take at
    most, and with a share of the memory set as high as any is.
    """
    import numpy as np

    split, quantization, runtime = serving.parallelism, serving.quantization, serving.runtime
    held = whole if runtime == "trtllm" else context
    of_token = workspace_bytes(model, split, 1, sequences=0, element_bytes=quantization.activation_bytes)
    activations = of_token * np.minimum(CHUNK_TOKENS, whole)
    weights = weight_bytes(model, split, quantization) + padding_bytes(model, split, quantization, device)
    # Of vLLM as the plan has it; the others filled so when they were measured.
    own = runtime == "vllm"
    share = _share(runtime, device, split.gpus, serving.runtime_version) if own else filled_share(runtime, split.gpus)
    free: Number
    if runtime == "sglang":
        free = whole_bytes(device, share) - weights
    elif runtime == "trtllm":
        free = share * (whole_bytes(device) - weights - activations - _LEAST_RUNTIME_BYTES)
    else:
        free = whole_bytes(device, share) - weights - activations - _LEAST_RUNTIME_BYTES
    tuned = whole_bytes(device, MOST_UTILIZATION) - weights - _LEAST_RUNTIME_BYTES
    more = server_runtime_bytes(split, runtime)[2] - _LEAST_RUNTIME_BYTES
    least, likely = (
        np.maximum(free - taken, _TUNED_SHARE * (tuned - taken) - _FADING * np.maximum(free - taken, 0.0))
        for taken in (more, 0.0)
    )
    each = np.maximum(cache_bytes(model, split, quantization, held), 1.0)
    few, usual, many = (np.maximum(0.0, room / each) for room in (least, likely, np.maximum(tuned, likely)))
    return few, usual, many
