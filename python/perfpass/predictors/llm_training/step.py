"""Time of a training step of a language model in a layout, from what each device computes, moves and waits for.

A micro-batch passes its stage in the time of its products and its attention (each as the fastest measured kernels run
it: `perfpass.predictors.llm_training.reach`), what it reads and writes beside, and the part of its messages that
nothing hides; a step is so many of them, the pipeline's
bubble ((p - 1) / (v m) of them: arXiv:2104.04473, section 2.2), the gradients' exchange and the optimizer. Messages are
those of ring algorithms: two all-reduces of tensor parallelism in either direction (arXiv:1909.08053), a dispatch and a
combine of experts, keys and values around a ring of context ranks (arXiv:2310.01889), gradients and parameters of
sharded replicas (arXiv:1910.02054, section 7; FSDP gathers and reduces for every micro-batch). Zero-bubble schedules
leave (p - 1)(F + B - W) of the bubble or (p - 1)(F + B - 2 W), with W the gradients of weights and B the rest of the
backward pass (arXiv:2401.10241, table 2). What waits on the host crosses the link to it while the device computes; the
optimizer's step there (ZeRO-Offload, arXiv:2101.06840) and its weights' way back are waited for. Kernels are issued by
the host one by one, whatever they compute, so that few tokens take as long as it does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.errors import DeviceError
from perfpass.llm.recipe import FROZEN
from perfpass.llm.training import parameters_of_a_device, stage_layers
from perfpass.predictors.llm_training.reach import reach
from perfpass.predictors.roofline import smooth_maximum

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.llm.architecture import LanguageModel, Layer
    from perfpass.llm.recipe import Layout, Recipe

Number = Any  # a float, or an array [N] of them
# One direction of the network of a device between hosts, as cloud and DGX nodes of its generation are built: 8 x 200,
# 8 x 400 and 8 x 800 Gb/s (DGX A100, H100, B300 user guides; Azure's ND MI300X v5: 8 x 400); Gaudi's own three ports
# (docs.habana.ai, Network Configuration).
_FABRIC_BYTES_S = {"ampere-ga100": 25e9, "hopper": 50e9, "blackwell": 50e9, "blackwell-ultra": 100e9}
_FABRIC_BYTES_S |= {"cdna3": 50e9, "cdna4": 50e9, "gaudi": 37.5e9}
_DEFAULT_FABRIC_BYTES_S = 12.5e9
_HOST_GPUS, _RACK_GPUS = 8, 72  # that NVLink joins: in a host; in a rack of GB200 or GB300 (NVL72)
# A backward pass of FlashAttention takes 2.5 times the products of the forward pass (arXiv:2307.08691, section 4.1).
BACKWARD_ATTENTION = 2.5
# AdamW reads and writes a master copy and two moments in single precision, reads a gradient, writes a weight.
_UPDATE_BYTES = 34.0
# What Adam reaches of a host's memory, for each of its devices: half of eight channels of DDR4-3200, for four devices.
HOST_BYTES_S = 25e9
# Gradients of weights that fill the bubble of a stage: 1F1B's F + B + W less 2 W, less 3 W.
_FILLED = {"1f1b": 0.0, "zb_h1": 2.0, "zb_h2": 3.0}
# FlashAttention 2 has no kernels for boards after Ampere: on an H100 it reaches 35 % of the peak where its successor
# and cuDNN reach 75 (arXiv:2407.08608, abstract).
_WRITTEN_FOR_AMPERE = 35 / 75
_LATER = ("hopper", "blackwell", "blackwell-ultra")
# Bytes over two of a score that is written out: the product's, the softmax's and the dropout's passes over it.
_SCORE_ELEMENTS = 6.5
_A100_FLOPS = 312e12
# Seconds in which the host issues the kernels of a layer, forward and backward, and the forward pass' part of them (as
# hosts of other steps: 51 us an operator, and 33 for each of two behind it). LitGPT's steps of 16 and 32 layers with
# adapters beside them take 44 to 109 ms on an A100; Megatron-LM's tests of narrow networks 4 to 8 ms a layer, those of
# experts 1.5 times that, but no more than 4 where NVIDIA tuned it. A matrix with an adapter has five kernels more
# (dropout, two products, scale, sum) beside the 33 of a layer.
_ISSUE_S, _ISSUED_FORWARD, _ISSUED_EXPERTS, _ISSUED_ADAPTER = 2.8e-3, 0.44, 1.5, 0.15
# Share of the bandwidth that kernels reach which unpack frozen weights into 16 bits: LitGPT's steps of 3 to 7 x 10^9
# parameters in NF4 take 38 to 86 ms longer, for two passes (A100), although they wait for their host.
_UNPACKED = 0.26
_TAUGHT = 0.01  # of a model's parameters, in adapters of common ranks


@dataclass(frozen=True)
class Constants:
    """Shares of the measured kernels' pace that products in 16, 8 and 4 bits and attention reach, of the bandwidth that
    the rest does, and shares of messages that nothing hides: of tensor (and context) ranks, of replicas, of experts;
    ``grouped``: products of experts beside others; ``straggle``: what a step takes longer for each doubling of the
    devices. Fitted by `perfpass.training.llm_training.fit`.
    """

    products_16: float = 0.9
    products_8: float = 0.9
    products_4: float = 0.9
    attention: float = 0.8
    memory: float = 0.75
    tensor: float = 0.7
    replicas: float = 0.3
    experts: float = 0.6
    grouped: float = 0.7
    straggle: float = 0.005


@dataclass(frozen=True)
class Work:
    """What a device does in a step: seconds at the pace of measured kernels, summed over micro-batches; numbers, or
    arrays [N].

    ``head``, ``dense``, ``experts``: products of one pass, ``attention`` forward, ``memory`` forward at the device's
    bandwidth; ``speed_up``: the peak of ``bits`` over that of 16; ``passes``: forward and backward, with ``anew`` of
    products and ``attended_anew`` of attention computed again.
    ``messages_*`` at the link's rate, ``exchange`` of replicas in a step; it hides behind ``behind`` of the step.
    ``issued``: what the host issues it in; ``unpacked``: frozen weights at the device's bandwidth.
    ``bubble``: of the busy time, less ``filled`` of the products; ``streamed``: seconds on the link to the host while
    the device computes, ``host``: those that it waits for; ``relative_peak``: the device's 16-bit peak over an A100's.
    """

    head: Number
    dense: Number
    experts: Number
    attention: Number
    memory: Number
    bits: Number
    speed_up: Number
    passes: Number
    anew: Number
    attended_anew: Number
    messages_tensor: Number
    messages_context: Number
    messages_experts: Number
    exchange: Number
    behind: Number
    issued: Number
    unpacked: Number
    update: Number
    bubble: Number
    filled: Number
    streamed: Number
    host: Number
    doublings: Number
    relative_peak: Number
    model_flops: Number


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step by cause; numbers, or arrays [N]. ``issuing``: what the device waits for its host's kernels."""

    products: Number
    attention: Number
    elementwise: Number
    recomputation: Number
    tensor: Number
    context: Number
    experts: Number
    issuing: Number
    unpacking: Number
    bubble: Number
    replicas: Number
    update: Number
    offload: Number
    straggling: Number

    @property
    def working(self) -> Number:
        """What a device computes and sends of its micro-batches while its host issues them."""
        computed = self.products + self.attention + self.elementwise + self.recomputation
        return computed + self.tensor + self.context + self.experts

    @property
    def seconds(self) -> Number:
        """The whole step."""
        total: Number = sum(getattr(self, f.name) for f in fields(self))
        return total


def timed(work: Work, constants: Constants) -> StepTime:
    """The time of ``work`` at the shares of the peaks that ``constants`` say."""
    c = constants
    share = np.where(work.bits == 16, c.products_16, np.where(work.bits == 8, c.products_8, c.products_4))
    body = (work.dense + work.experts / c.grouped) / share
    head = work.head / c.products_16
    attending, beside = work.attention / c.attention, work.memory / c.memory
    products, elementwise = work.passes * (body + head), 3 * beside
    attention = (1 + BACKWARD_ATTENTION) * attending
    anew = work.anew * (body + beside) + work.attended_anew * attending
    tensor, context = c.tensor * work.messages_tensor, c.tensor * work.messages_context
    experts = c.experts * work.messages_experts
    working = products + attention + elementwise + anew + tensor + context + experts
    unpacking, waited = work.unpacked / _UNPACKED, smooth_maximum(working, work.issued)
    busy = waited + unpacking
    bubble = np.maximum(busy - work.filled * products, 0.0) * work.bubble
    hidden = np.maximum((1 - c.replicas) * work.exchange - busy * work.behind, 0.0)
    replicas, update = c.replicas * work.exchange + hidden, work.update / c.memory
    offload = work.host + np.maximum(work.streamed - busy, 0.0)
    straggling = c.straggle * work.doublings * (busy + bubble + replicas + update + offload)
    return StepTime(
        *(products, attention, elementwise, anew, tensor, context, experts),
        *(waited - working, unpacking, bubble, replicas, update, offload, straggling),
    )


def fabric_bytes_s(device: Device) -> float:
    """One direction of a device's share of the network between hosts, where it is not said."""
    return _FABRIC_BYTES_S.get(device.architecture, _DEFAULT_FABRIC_BYTES_S)


def nvlink_domain(device: Device, ranks: int) -> int:
    """Devices that NVLink joins where ``ranks`` exchange; 1 where there is none, or a bridge that joins fewer."""
    if not device.link_bytes_s(ranks):
        return 1
    return _RACK_GPUS if device.id.startswith("gb") else _HOST_GPUS


@dataclass(frozen=True)
class _Layers:
    """Of one token through some layers, forward: multiply-adds in matrices, in experts, in attention; elements beside.

    ``whole``: those of norms and residuals, which only sequence parallelism splits over tensor ranks.
    """

    dense: float = 0.0
    experts: float = 0.0
    attention: float = 0.0
    elements: float = 0.0
    whole: float = 0.0
    keys: float = 0.0
    routed: float = 0.0
    count: int = 0


def _of(model: LanguageModel, layers: tuple[Layer, ...], sequence: int) -> _Layers:
    dense = experts = attention = elements = whole = keys = routed = 0.0
    for layer in layers:
        whole += 12 * model.hidden
        if layer.attention:
            a = layer.attention
            dense += a.matrices(model.hidden)
            seen = min(sequence, 2 * a.window) if a.window else sequence
            attention += a.heads * (a.head_dim + a.value_dim) * seen / 2
            keys += a.cache_elements
            elements += 2 * a.heads * (a.head_dim + a.value_dim)
        if layer.dense:
            dense += layer.dense.matrices * model.hidden * layer.dense.width
            elements += 2 * layer.dense.matrices * layer.dense.width
        if layer.experts:
            e = layer.experts
            experts += e.active * e.expert_elements
            dense += e.matrices * model.hidden * e.shared_width + e.latent_projection + e.count * model.hidden
            elements += 2 * e.active * (e.matrices * e.width + 2 * e.model_width) + 4 * e.count
            routed += e.active * e.model_width
    return _Layers(dense, experts, attention, elements, whole, keys, routed, len(layers))


def _unit(device: Device, precision: str) -> tuple[int, float]:
    """Bits of the products and their peak over that of 16 bits. Raises DeviceError where the device lacks the unit."""
    unit, bits = {"fp8": ("fp8", 8), "nvfp4": ("fp4", 4), "fp32": ("tf32", 16)}.get(precision, ("bf16", 16))
    if unit == "tf32" and unit not in device.peak_flops:
        unit = "fp32"
    if unit == "bf16":
        if precision.startswith("bf16") and unit not in device.peak_flops:
            raise DeviceError(f"{device.name} has no bf16 arithmetic, which precision {precision!r} needs; take fp16")
        return bits, 1.0
    if unit not in device.peak_flops:
        raise DeviceError(f"{device.name} has no {unit} rate; choose another precision")
    return bits, device.peak(unit) / peak_16(device)


def peak_16(device: Device) -> float:
    """FLOP/s of products in 16 bits. Raises DeviceError where there are none."""
    found = next((name for name in ("bf16", "fp16") if name in device.peak_flops), None)
    if found is None:
        raise DeviceError(
            f"{device.name} has no arithmetic in 16 bits, by which training of language models is predicted in every "
            "precision; choose another device"
        )
    return device.peak(found)


def work(
    model: LanguageModel,
    device: Device,
    layout: Layout,
    recipe: Recipe,
    *,
    product_precision: str = "",
    fabric: float = 0.0,
    host_bytes_s: float = HOST_BYTES_S,
    flash_2: bool = False,
) -> Work:
    """The work of a step; ``product_precision``: of matrices, where it is not the recipe's ("fp8", "nvfp4").

    ``fabric``: bytes/s of one direction between hosts for each device (0: `fabric_bytes_s`); ``host_bytes_s``: of its
    share of the host's memory; ``flash_2``: attention is FlashAttention 2's. Raises ArgumentError for what cannot be
    laid out, DeviceError for a precision that the device lacks, or a link to the host where it is asked for.
    """
    layers = tuple(layer for stage in stage_layers(model, layout.pipeline) for layer in stage)
    found = _of(model, layers, recipe.sequence)
    m, p, t, c = recipe.micro_batches, layout.pipeline, layout.tensor, layout.context
    tokens = m * recipe.micro_batch * recipe.sequence / c  # of a step, on one context rank
    share = tokens / (t * p)  # of a token's work that one device has in a step
    peak, bandwidth = peak_16(device), device.memory_bandwidth_bytes_s
    bits, speed_up = _unit(device, product_precision or recipe.precision)
    old = flash_2 and device.architecture in _LATER
    reached, backward = reach(model, device, layout, recipe, bits), 1 if recipe.adapter else 2
    full, selective = recipe.recompute in ("full", "offloaded"), recipe.recompute != "none"
    beside = found.elements + found.whole * (1 if layout.sequence_parallel else t) + model.vocabulary * 5.0 / 3
    if recipe.kernels.attention == "unfused":
        heads = max((layer.attention.heads for layer in layers if layer.attention), default=0)
        beside += found.count * heads * recipe.sequence * _SCORE_ELEMENTS
    fabric = fabric or fabric_bytes_s(device)

    def speed(ranks: int, *, ring: bool = False) -> float:
        linked, joined = max(device.link_bytes_s(ranks), device.pcie_bandwidth_bytes_s), nvlink_domain(device, ranks)
        if ranks <= joined:
            return linked
        # All-reduces between hosts go round by every network card of a host, as those of replicas do.
        return max(fabric, min(linked, fabric * joined)) if ring else fabric

    e, among = layout.expert, layout.expert * layout.experts_share
    near = nvlink_domain(device, among) // layout.experts_share
    dispatched = (4 + full) * 2.0 * share * found.routed * _sent(model, e, near)
    ring = 2 * (t - 1) / t * (4 + 2 * full) * found.count / p
    link = max(device.link_bytes_s(layout.devices), device.pcie_bandwidth_bytes_s)
    domain = nvlink_domain(device, layout.devices)
    exchange, update = _replicas(model, layout, recipe, link, fabric, domain)
    streamed, host = _host(model, device, layout, recipe, host_bytes_s)
    macs = found.dense + found.experts + found.attention + model.hidden * model.vocabulary
    return Work(
        head=2 * share * model.hidden * model.vocabulary / (peak * reached.head),
        dense=2 * share * found.dense / (peak * speed_up * reached.dense),
        experts=2 * share * found.experts / (peak * speed_up * reached.experts),
        attention=2 * share * found.attention / (peak * reached.attention * (_WRITTEN_FOR_AMPERE if old else 1)),
        memory=2.0 * share * beside / bandwidth,
        bits=bits,
        speed_up=speed_up,
        passes=1 + backward,
        anew=float(full),
        attended_anew=float(selective),
        messages_tensor=ring * 2.0 * tokens * model.hidden / speed(t, ring=True),
        messages_context=3 * (c - 1) / c * 2.0 * share * found.keys / speed(t * c),
        messages_experts=dispatched / speed(among),
        exchange=exchange,
        behind=1.0 if layout.sharding == "zero3" else 1.0 / m,
        issued=m / p * _issued_s(layers, recipe),
        unpacked=_unpacked_bytes(model, layout, recipe) / bandwidth,
        update=0.0 if recipe.offload != "none" else update / bandwidth,
        bubble=(p - 1) / (layout.virtual * m),
        filled=_FILLED[layout.schedule] / (1 + backward) if backward == 2 else 0.0,
        streamed=streamed,
        host=host,
        doublings=math.log2(layout.devices),
        relative_peak=peak / _A100_FLOPS,
        model_flops=2 * (1 + backward) * share * macs,
    )


def _issued_s(layers: tuple[Layer, ...], recipe: Recipe) -> float:
    """Seconds in which the host issues all ``layers`` for a micro-batch."""
    count = sum(_ISSUED_EXPERTS if layer.experts else 1.0 for layer in layers)
    again = _ISSUED_FORWARD if recipe.recompute in ("full", "offloaded") else 0.0
    adapted = _ISSUED_ADAPTER * len(recipe.adapter.targets) if recipe.adapter else 0.0
    return _ISSUE_S * count * (1.0 + again) * (1.0 + adapted)


def _unpacked_bytes(model: LanguageModel, layout: Layout, recipe: Recipe) -> float:
    """Bytes that a step reads and writes to have a device's frozen weights in 16 bits, for each pass over them."""
    if not recipe.adapter or recipe.adapter.frozen == "none":
        return 0.0
    passes = 3 if recipe.recompute in ("full", "offloaded") else 2
    moved = FROZEN[recipe.adapter.frozen] + FROZEN["none"]
    return parameters_of_a_device(model, layout) * moved * passes * recipe.micro_batches


def _sent(model: LanguageModel, groups: int, near: int) -> float:
    """Share of the tokens to experts that are sent through the slowest link: within a host all that go to other groups;
    between hosts one copy for each host with experts that a token wants (as DeepEP and Megatron-LM's flexible dispatch
    do).
    """
    active = max((layer.experts.active for _, layer in model.layers if layer.experts), default=0)
    if groups <= max(near, 1) or not active:
        return (groups - 1) / groups
    hosts = groups / max(near, 1)
    return float(hosts * (1 - (1 - 1 / hosts) ** active) / active * (hosts - 1) / hosts)


def _replicas(
    model: LanguageModel, layout: Layout, recipe: Recipe, link: float, fabric: float, domain: int
) -> tuple[float, float]:
    """Seconds of the replicas' exchange in a step, at the rates of the links; bytes of the optimizer's step."""
    held = parameters_of_a_device(model, layout)
    taught = _TAUGHT * held if recipe.adapter else held
    group = layout.data * layout.context
    update = taught / (layout.shards if layout.sharding != "none" else 1) * _UPDATE_BYTES
    if group == 1:
        return 0.0, update
    # Rings between hosts use the network of all devices of the group that stand in one host (or rack).
    near = max(1, max(domain, _HOST_GPUS) // layout.tensor)
    rate = link if layout.devices <= domain else min(link, fabric * near)
    if layout.sharding != "zero3":
        return 4.0 * taught * (group - 1) / group / rate, update
    moved = (4 * held + 2 * taught) * recipe.micro_batches * (layout.shards - 1) / layout.shards
    return moved / rate, update


def _host(
    model: LanguageModel, device: Device, layout: Layout, recipe: Recipe, host_bytes_s: float
) -> tuple[float, float]:
    """Seconds of a step on the link to the host while the device computes, and of what it waits for.

    Gradients leave and weights come back in 16 bits; gradients that stay on the device leave once, in single precision,
    when the optimizer waits for them; weights that wait on the host come in for either pass; the input of a layer
    leaves in one and comes back in the other.
    """
    if recipe.offload == "none" and recipe.recompute != "offloaded":
        return 0.0, 0.0
    link = device.pcie_bandwidth_bytes_s
    if not link:
        raise DeviceError(f"{device.name}: no link to the host's memory is stated; leave the offloading out")
    held = parameters_of_a_device(model, layout)
    taught = _TAUGHT * held if recipe.adapter else held
    of_optimizer = layout.shards if layout.sharding != "none" else 1
    of_weights = layout.shards if layout.sharding == "zero3" else 1
    tokens = recipe.micro_batches * recipe.micro_batch * recipe.sequence / layout.context
    moved, host = 0.0, 0.0
    if recipe.offload != "none":
        leaving = 4.0 if recipe.offload == "states" else 0.0
        moved += 0.0 if leaving else 2.0 * taught * recipe.micro_batches / of_optimizer
        host = taught / of_optimizer * (_UPDATE_BYTES / host_bytes_s + (leaving + 2.0) / link)
    if recipe.offload == "parameters":
        moved += 2 * 2.0 * held * recipe.micro_batches / of_weights
    if recipe.recompute == "offloaded":
        split = layout.tensor if layout.sequence_parallel else 1
        moved += 2 * 2.0 * tokens * model.hidden / split * model.layer_count / layout.pipeline
    return moved / link, host
