"""What an engine makes of a step's work: the shares of the peaks that its kernels reach, and what it adds by itself.

One form for all engines that run without a server. The device takes the bytes and FLOPs at the engine's shares of the
peaks, and a little for every kernel and message; the host takes so long for every layer, every packed matrix, every
step. An eager engine issues kernels while the device works, so the longer of the two counts; a short step is as long as
the host takes, whatever the model's width. Fitted constants: `perfpass.training.generation.engines`. NumPy alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from typing import Any

import numpy as np

from perfpass.devices import Device
from perfpass.errors import ArtefactError
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.costs import (
    ELEMENT_BYTES,
    Number,
    Parallelism,
    Quantization,
    Step,
    experts_in_file,
    peak_flops,
    step_costs,
)
from perfpass.predictors.generation.features import link_bytes_s

_SIXTEEN_BITS = 2.0
# Of routing, ggml and eager PyTorch issue the parts one by one, about so many for each that fused kernels take.
_ROUTING_LAUNCHES = 3.0
# Tokens choose experts evenly: llama-bench and the engines' own benchmarks ask with random tokens.
_ROUTING_SKEW = 0.0
# A board's rate of integers over that of 16 bits, from which on it is one of those that sum in 16 bits twice as fast.
_GEFORCE = 3.9
# Tokens of a step from which on llama.cpp sends weights of the host to the device (ggml-cuda, min_batch_size).
_STREAMED_TOKENS = 32.0
# How sharply the longer of device and host counts: where they are alike, each waits for the other now and then.
_OVERLAP = 4.0
# An attention whose scores are kept writes and reads them so often, in elements of 16 bits: product, mask, softmax in
# fp32, product.
_SCORE_PASSES = 8.0


# Fields of Habits that are shares; the others are factors and seconds.
SHARES = ("weights", "packed", "cache", "flops", "packed_flops", "link", "host", "streamed")


@dataclass(frozen=True)
class Habits:
    """Of one engine.

    Shares (0 to 1) of the bandwidth: ``weights`` of 16 and 32 bits, ``packed`` ones, ``cache``; of the matrix peak:
    ``flops``, ``packed_flops`` of packed matrices; of the link between devices: ``link``; of the host's memory, for
    what is left to it: ``host``; of the link to the host: ``streamed``.

    ``again``: how many times more a step of many tokens reads its packed weights (they are unpacked). ``activations``:
    how many times the activations pass memory. ``host_intensity``: FLOPs of the host by byte of its bandwidth.

    Seconds: ``kernel_s`` and ``message_s`` on the device; ``layer_s``, ``packed_s`` (a packed matrix), ``experts_s`` (a
    layer with experts) and ``step_s`` on the host, ``request_s`` once a prompt.
    """

    weights: float
    packed: float
    cache: float
    flops: float
    packed_flops: float
    link: float
    host: float
    streamed: float
    again: float
    activations: float
    host_intensity: float
    kernel_s: float
    message_s: float
    layer_s: float
    packed_s: float
    experts_s: float
    step_s: float
    request_s: float

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Habits:
        """Raises ArtefactError for shares that are none."""
        found = cls(*(float(values[f.name]) for f in fields(cls)))
        if not all(0 < getattr(found, name) <= 1 for name in SHARES) or not all(0 <= v < 1e3 for v in astuple(found)):
            raise ArtefactError("an artefact's habits of an engine are no shares and times; run `perfpass train` again")
        return found

    def to_dict(self) -> dict[str, float]:
        """Strict JSON, in four digits."""
        return {name: float(f"{value:.4g}") for name, value in vars(self).items()}


# What fits are drawn to, by kind of engine. By hand, from what such software does: an eager layer issues some 40
# kernels at 15 to 20 us of Python each; native and ggml kernels follow each other in 3 to 5 us; offloaded weights cross
# PCIe at about half of its rate (FlexLLMGen's page: 0.3 to 0.57).
KINDS_OF_ENGINES: Mapping[str, Habits] = {
    "eager": Habits(
        weights=0.75, packed=0.5, cache=0.4, flops=0.5, packed_flops=0.4, link=0.5, host=0.4, streamed=0.5, again=3.0,
        activations=2.0, host_intensity=8.0, kernel_s=1e-6, message_s=1.5e-5, layer_s=7.5e-4, packed_s=2e-5,
        experts_s=2e-3, step_s=1e-3, request_s=3e-3,
    ),
    # A server's eager model with fused attention: half of the kernels, and requests that arrive by the network.
    "server": Habits(
        weights=0.75, packed=0.5, cache=0.4, flops=0.5, packed_flops=0.4, link=0.5, host=0.4, streamed=0.5, again=3.0,
        activations=2.0, host_intensity=8.0, kernel_s=1e-6, message_s=1.5e-5, layer_s=4e-4, packed_s=2e-5,
        experts_s=2e-3, step_s=1e-3, request_s=1e-2,
    ),
    "native": Habits(
        weights=0.8, packed=0.7, cache=0.6, flops=0.5, packed_flops=0.4, link=0.5, host=0.4, streamed=0.5, again=2.0,
        activations=1.0, host_intensity=8.0, kernel_s=4e-6, message_s=1.5e-5, layer_s=3e-5, packed_s=1e-6,
        experts_s=2e-4, step_s=5e-4, request_s=1e-3,
    ),
    "ggml": Habits(
        weights=0.7, packed=0.7, cache=0.5, flops=0.4, packed_flops=0.15, link=0.5, host=0.5, streamed=0.5, again=1.0,
        activations=2.0, host_intensity=8.0, kernel_s=4e-6, message_s=1e-5, layer_s=1e-5, packed_s=1e-6,
        experts_s=1e-5, step_s=3e-4, request_s=1e-4,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Arithmetic:
    """Which units an engine multiplies in beside the usual one.

    ``half_sums``: products of 16 bits are summed in 16 bits, which boards whose integers run at four times the rate of
    16 bits (GeForce) do twice as fast. ``integers``: packed matrices meet activations of 8 bits, where that is faster.
    ``scores_kept``: attention writes its scores to memory.
    """

    half_sums: bool = False
    integers: bool = False
    scores_kept: bool = False

    def peak(self, device: Device, precision: str) -> float:
        """FLOP/s of the unit that multiplies matrices of ``precision``."""
        peaks = device.peak_flops
        plain = peak_flops(peaks, precision)
        if precision == "fp32":
            return plain
        if self.integers and ELEMENT_BYTES[precision] < _SIXTEEN_BITS:
            return max(plain, peaks.get("int8", 0.0))
        return 2.0 * plain if self.half_sums and peaks.get("int8", 0.0) >= _GEFORCE * plain else plain


@dataclass(frozen=True)
class Parts:
    """The work of N steps, numbers or arrays [N]: seconds at the peak rates, and counts.

    ``unpacked``: packed weights of steps of more than one token; ``flops`` and ``packed_flops``: of all tokens but one
    (that one hides behind the weights); ``all_flops``: of all; ``linked``: of messages over links. ``layers``,
    ``matrices`` (packed), ``mixtures`` and ``prompts``: what the host issues. Of what is left to the host: ``hosted``
    (bytes of its memory), ``streamed`` (over the link), ``hosted_flops`` (FLOPs over the bytes a second of its memory).
    """

    weights: Number
    packed: Number
    unpacked: Number
    cache: Number
    flops: Number
    packed_flops: Number
    all_flops: Number
    activations: Number
    scores: Number
    linked: Number
    kernels: Number
    messages: Number
    layers: Number
    matrices: Number
    mixtures: Number
    prompts: Number
    hosted: Number
    streamed: Number
    hosted_flops: Number

    @classmethod
    def joined(cls, parts: Sequence[Parts]) -> Parts:
        """Steps in a row, [N]."""
        return cls(*np.array([astuple(p) for p in parts], dtype=np.float64).reshape(-1, len(fields(cls))).T)

    def seconds(self, h: Habits) -> Number:
        """Seconds of each step."""
        device = self.weights / h.weights + (self.packed + h.again * self.unpacked) / h.packed + self.cache / h.cache
        device = device + self.flops / h.flops + self.packed_flops / h.packed_flops + self.linked / h.link
        device = device + h.activations * self.activations + self.scores
        device = device + h.kernel_s * self.kernels + h.message_s * self.messages
        device = device + self.hosted / h.host + self.streamed / h.streamed + self.hosted_flops / h.host_intensity
        host = h.layer_s * self.layers + h.packed_s * self.matrices + h.experts_s * self.mixtures + h.step_s
        return (device**_OVERLAP + host**_OVERLAP) ** (1.0 / _OVERLAP) + h.request_s * self.prompts

    def least(self) -> Number:
        """Seconds that no software goes below: all read at the full bandwidth, all multiplied at the peak."""
        return np.maximum(self.weights + self.packed + self.cache, self.all_flops) + self.hosted + self.streamed


def stored_as(model: LanguageModel, precision: str) -> Quantization:
    """How a file stores a model: mxfp4 files keep all but the experts in 16 bits."""
    beside = "bf16" if precision == "mxfp4" and model.expert_parameters else precision
    experts = experts_in_file(model.experts_stored_as, precision)
    return Quantization(beside, experts, "fp32" if precision == "fp32" else "fp16")


@dataclass(frozen=True)
class Host:
    """What is left to the host: shares (0 to 1) of the layers and of the layers' experts, in memory of so many bytes a
    second. ``streams``: steps of many tokens are multiplied on the device, and the weights sent there.
    """

    layers: float
    experts: float
    bandwidth_bytes_s: float
    streams: bool

    def share(self, part: str) -> float:
        """Of a component of `step_costs`."""
        if part == "logits":
            return float(self.layers >= 1.0)
        return max(self.layers, self.experts) if part == "experts" else self.layers


NOTHING = Host(0.0, 0.0, 1.0, streams=False)


def parts_of(
    model: LanguageModel, device: Device, split: Parallelism, precision: str, step: Step, arithmetic: Arithmetic,
    host: Host = NOTHING,
) -> Parts:  # fmt: skip
    """The work of a step, or of N steps of one model, over ``split`` devices; the stages of a pipeline add up."""
    stored = stored_as(model, precision)
    work = step_costs(model, split, stored, replace(step, routing_skew=_ROUTING_SKEW))
    bandwidth = device.memory_bandwidth_bytes_s
    packs = {name for name, w in work.parts.items() if ELEMENT_BYTES[w.precision] < _SIXTEEN_BITS}
    head = {"logits"} if stored.table_bytes < _SIXTEEN_BITS else set()  # files of llama.cpp pack it as well

    tokens = np.maximum(np.asarray(step.tokens, dtype=np.float64), 1.0)
    many = 1.0 - 1.0 / tokens
    sent = host.streams & (tokens >= _STREAMED_TOKENS)

    def weights(names: Collection[str]) -> Number:
        return sum((work.parts[n].weight_bytes * (1.0 - host.share(n)) for n in sorted(names)), 0.0) / bandwidth

    def flops(names: Collection[str]) -> Number:
        peaks = {n: arithmetic.peak(device, work.parts[n].precision) for n in sorted(names)}
        return sum((work.parts[n].flops * np.where(sent, 1.0, 1.0 - host.share(n)) / p for n, p in peaks.items()), 0.0)

    plain, packed = flops(work.parts.keys() - packs), flops(packs)
    left = {n: host.share(n) for n in sorted(work.parts) if host.share(n)}
    moved = sum((work.parts[n].weight_bytes * s for n, s in left.items()), 0.0)
    kept = work.total("cache_bytes") * host.layers
    apart = sum((work.parts[n].flops * s for n, s in left.items()), 0.0) / host.bandwidth_bytes_s
    heads = model.scoring_heads(decode=step.decode)
    passes = _SCORE_PASSES if arithmetic.scores_kept else 0.0
    scores = heads / split.tensor * np.asarray(step.attended, dtype=np.float64) * _SIXTEEN_BITS * passes
    routing = sum(work.parts[name].launches for name in ("experts", "shared_experts"))
    exchange = work.parts["collectives"]
    ones = np.ones_like(tokens)
    return Parts(
        weights=weights(work.parts.keys() - packs - head) * ones,
        packed=weights(packs | head) * ones,
        unpacked=weights(packs | head) * many,
        cache=work.total("cache_bytes") * (1.0 - host.layers) / bandwidth * ones,
        flops=plain * many,
        packed_flops=packed * many,
        all_flops=(plain + packed) * ones,
        activations=work.total("activation_bytes") / bandwidth * ones,
        scores=scores / bandwidth * ones,
        linked=exchange.message_bytes / link_bytes_s(device, split.gpus) * ones,
        kernels=(float(work.total("launches")) + (_ROUTING_LAUNCHES - 1.0) * routing) * ones,
        messages=exchange.messages * ones,
        layers=model.passed_layers(decode=step.decode) * ones,
        matrices=sum(work.parts[n].launches for n in packs) * ones,
        mixtures=sum(count for count, layer in model.layers if layer.experts) * ones,
        prompts=ones * (not step.decode),
        hosted=(np.where(sent, 0.0, moved) + kept) / host.bandwidth_bytes_s * ones,
        streamed=np.where(sent, moved, 0.0) / device.pcie_bandwidth_bytes_s if host.streams else 0.0 * ones,
        hosted_flops=np.where(sent, 0.0, apart) * many,
    )
