"""Least times of single kernels on a device, and the ratios that trees read.

Every function takes columns of N kernels and gives ``Terms``: a base time from physics (compute with the waves of tiles
over the SMs, bytes over the bandwidth that the busy SMs can draw, links, launch), and features that are ratios or sizes
and never a device's own figures, so that a device without records is no extrapolation. Williams, Waterman, Patterson:
Roofline, CACM 52(4), 2009; waves: NVIDIA, Matrix multiplication background user's guide, "Wave quantization".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from perfpass.predictors.kernels.software import PRECISIONS
from perfpass.predictors.roofline import FLOP_JOULES

if TYPE_CHECKING:
    from perfpass.devices import Device

# A launch in a CUDA graph, for scale: the least time of any measured kernel is 1.6 us (GB200) to 2.7 us (A100).
LAUNCH_S = 2.0e-6
# What a launch and the ramps of a kernel take scales with the clock: 3,500 (B200) to 5,100 (H100, L40S) cycles.
REFERENCE_HZ = 1.8e9
# Cycles per reduced element where one tile waits for the next slice of its operands (bf16 products of 16 rows on A100,
# H100, H200, B200, L40S: 2.2 to 3.1), until libraries split the reduction.
CHAIN_CYCLES = 2.4
SPLIT_FROM = 3072.0
# Cycles per block of 64 keys in attention where blocks follow each other: 128 queries at prefill, the heads of a group
# at decode (fitted efficiencies are near 1 with these).
PREFILL_BLOCK_CYCLES = 2000.0
DECODE_BLOCK_CYCLES = 30.0
# Query heads that one decode block takes together.
BLOCK_HEADS = 32.0
# An SM draws at most about this multiple of its even share of the bandwidth, so few tiles cannot fill the memory.
SM_BANDWIDTH = 2.5
# The L2 cache serves what it holds at about 16 bytes per SM and cycle. The collections run some six copies of an
# operator in turn, so that it holds a sixth of what its size says (L40S: products of up to 16 MB run above the memory's
# rate, of 20 MB below it). The large HBM boards' cache is in two halves, each of which holds what its own SMs read
# (NVIDIA Ampere architecture whitepaper, "A100 L2 cache"), so that shared data count twice.
L2_BYTES_PER_CYCLE = 16.0
PARTITIONED = ((8, 0), (9, 0), (10, 0), (10, 3))
PARTITIONS = 2
COPIES = {"gemm": 6.0, "attention": 1.0, "moe": 1.0}
# Under a power law of tokens over experts, the rate at which routed tokens wake experts, against an independent choice.
WAKING = 0.7
# Cycles of a wave of attention blocks beyond its steps, and blocks that share an SM.
WAVE_CYCLES = 2500.0
RESIDENT_BLOCKS = 2.0
_TILES = ((256, 128), (128, 256), (128, 128), (64, 128), (128, 64), (64, 64))
_SPLITS = (1, 4)
_WIDTH = np.array([PRECISIONS[p][:2] for p in PRECISIONS])
_RATES = tuple(PRECISIONS[p][2] for p in PRECISIONS)
# Energy of a FLOP falls with the width of its operands, about as the square root (measured power of fp8 and fp4
# products on H200, B200 and GB200 at the limit).
_BITS = {"fp32": 32, "fp16": 16, "bf16": 16, "fp8": 8, "int8": 8, "fp4": 4}


@dataclass(frozen=True)
class Figures:
    """A device's figures as columns of N rows, or of one row for all."""

    rate: np.ndarray  # [N, precisions] FLOP/s that power allows
    bandwidth: np.ndarray
    l2: np.ndarray
    sms: np.ndarray
    clock: np.ndarray
    nvlink: np.ndarray
    link_peers: np.ndarray
    link_group: np.ndarray
    pcie: np.ndarray
    generation: np.ndarray
    throttle: np.ndarray
    power_limit: np.ndarray

    @classmethod
    def of(cls, devices: Sequence[Device], rows: np.ndarray | None = None) -> Figures:
        """Of ``devices[rows[i]]`` for each row i; of the only device for all rows where ``rows`` is None."""
        table = [_figures(d) for d in devices]
        take = np.zeros(1, dtype=np.int64) if rows is None else rows
        return cls(*(np.stack([np.asarray(t[i], dtype=np.float64) for t in table])[take] for i in range(len(table[0]))))


@lru_cache(maxsize=256)
def figures_of(device: Device) -> Figures:
    """Of one device, for all rows."""
    return Figures.of([device])


def _figures(device: Device) -> tuple[object, ...]:
    capability = device.compute_capability or (0, 0)
    rates = np.array([_rate(device, rate) for rate in _RATES])
    peaks = np.array([_peak(device, rate) for rate in _RATES])
    return (
        rates,
        device.memory_bandwidth_bytes_s,
        max(device.l2_bytes / (PARTITIONS if capability in PARTITIONED else 1), 1),
        device.sm_count,
        device.clock_hz,
        device.nvlink_bandwidth_bytes_s,
        device.link_peers,
        device.link_group,
        device.pcie_bandwidth_bytes_s,
        min(capability[0], 10),
        float(rates[0] / peaks[0]),
        device.power_limit_w,
    )


def _peak(device: Device, rate: str) -> float:
    """Dense FLOP/s; narrower types without a rate of their own are widened to the next one, as kernels do."""
    fp32 = device.peak_flops["fp32"]
    order = {"fp4": ("fp4", "fp8", "bf16", "fp16"), "fp8": ("fp8", "bf16", "fp16"), "int8": ("int8", "fp16")}
    for name in order.get(rate, (rate, "fp16")):
        if name in device.peak_flops:
            return max(device.peak_flops[name], fp32)
    return fp32


def _rate(device: Device, rate: str) -> float:
    """Peak, or what the power limit feeds (docs/predictors/kernels.md)."""
    peak = _peak(device, rate)
    if device.kind == "cpu" or device.power_limit_w <= device.idle_power_w or rate == "fp32":
        return peak
    kind = "hbm" if device.memory_type.upper().startswith("HBM") else "gddr"
    if kind == "hbm" and (device.compute_capability or (0, 0))[0] == 10:
        kind = "hbm blackwell"
    joules = FLOP_JOULES[kind] * (_BITS[rate] / 16) ** 0.5
    return float(min(peak, (device.power_limit_w - device.idle_power_w) / joules))


@dataclass(frozen=True)
class Terms:
    """What N kernels have to do, in seconds at full speed.

    ``work_s`` [N, 4] compute in whole waves of tiles, bytes as the busy SMs draw them, the longest chain of dependent
    steps, and what runs before or after; ``ramp`` [N] the relative length of a launch; ``features`` [N, F];
    ``compute_s`` and ``memory_s`` [N] the plain roofline.
    """

    ramp: np.ndarray
    work_s: np.ndarray
    features: np.ndarray
    compute_s: np.ndarray
    memory_s: np.ndarray


def _bandwidth(d: Figures, moved: np.ndarray, busy: np.ndarray | float, operator: str) -> np.ndarray:
    """Byte/s for ``moved`` bytes: the memory's, or the cache's for what it holds, as far as ``busy`` SMs can draw."""
    cached = np.clip(3.0 - 2.5 * COPIES[operator] * moved / d.l2, 0.0, 1.0)
    cache = np.maximum(d.bandwidth, L2_BYTES_PER_CYCLE * d.sms * d.clock)
    return d.bandwidth ** (1 - cached) * cache**cached * busy


def _ramp(d: Figures, rows: int) -> np.ndarray:
    return np.broadcast_to(REFERENCE_HZ / d.clock, (rows,))


def _log(x: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(x, 1e-12))


def _columns(rows: int, *values: np.ndarray | float) -> np.ndarray:
    return np.stack([np.broadcast_to(np.asarray(v, dtype=np.float32), (rows,)) for v in values], axis=1)


def _row_rate(d: Figures, precision: np.ndarray) -> np.ndarray:
    if len(d.rate) == 1:
        return d.rate[0][precision]
    return d.rate[np.arange(len(precision)), precision]


def element_bytes(precision: str) -> float:
    """Bytes of one element of a message."""
    return PRECISIONS[precision][0]


def _alignment(x: np.ndarray) -> np.ndarray:
    """The largest power of two up to 256 that divides x, as its exponent."""
    whole = x.astype(np.int64)
    return np.log2(np.minimum(whole & -whole, 256).astype(np.float64))


GEMM_FEATURES: tuple[str, ...] = (
    "log_compute_over_memory", "log_work_over_launch", "log_bytes_over_l2", "log_weights_over_l2",
    "log_waves_128", "wave_fill_128", "log_waves_256", "wave_fill_256", "log_tiles_over_sms", "log_m", "log_n", "log_k",
    "log_intensity_over_ridge", "align_m", "align_n", "align_k", "log_k_steps_over_waves", "generation",
    "log_sm_bytes",
)  # fmt: skip


def gemm(d: Figures, m: np.ndarray, n: np.ndarray, k: np.ndarray, precision: np.ndarray) -> Terms:
    """[m, k] x [k, n]; ``precision`` [N] codes of kernel_software."""
    rows = len(m)
    activation, weight = _WIDTH[precision, 0], _WIDTH[precision, 1]
    out = np.where(activation == 4.0, 4.0, 2.0)
    weights = n * k * weight
    moved = m * k * activation + weights + m * n * out
    rate = _row_rate(d, precision)
    sm_rate = rate / d.sms
    compute = np.full(rows, np.inf)
    for tile_m, tile_n in _TILES:
        tiles = np.ceil(m / tile_m) * np.ceil(n / tile_n)
        # Operands of a small tile are fetched more often per FLOP: its share of the rate falls with its area.
        share = min(1.0, (tile_m * tile_n / 16384) ** 0.3)
        per_tile = 2.0 * tile_m * tile_n * k / (sm_rate * share)
        for split in _SPLITS:
            cost = np.ceil(tiles * split / d.sms) * per_tile / split * (1.0 if split == 1 else 1.05)
            compute = np.minimum(compute, cost)
    tiles = np.ceil(m / 128) * np.ceil(n / 128)
    big = np.ceil(m / 256) * np.ceil(n / 128)
    busy = np.minimum(1.0, SM_BANDWIDTH * np.ceil(m / 64) * np.ceil(n / 64) * np.clip(k / 512, 1, 8) / d.sms)
    memory = moved / _bandwidth(d, moved, busy, "gemm")
    small = np.ceil(m / 64) * np.ceil(n / 128)
    # Dynamic scaling of the activations before the product (fp8, fp4): one pass over them.
    scaled = np.where(activation < 2.0, m * k * 3.0, 0.0)
    serial = scaled / _bandwidth(d, scaled, 1.0, "moe")
    parts = np.clip((k / SPLIT_FROM) ** 0.75, 1.0, np.maximum(d.sms / small, 1.0))
    chain = k / parts * (activation / 2.0) ** 0.5 * CHAIN_CYCLES / d.clock
    waves, waves_256 = tiles / d.sms, big / d.sms
    flops = 2.0 * m * n * k
    features = _columns(
        rows, _log(compute) - _log(memory), _log(compute + memory) - np.log(LAUNCH_S), _log(moved / d.l2),
        _log(weights / d.l2), _log(np.ceil(waves)), waves / np.ceil(waves), _log(np.ceil(waves_256)),
        waves_256 / np.ceil(waves_256), _log(waves), _log(m), _log(n), _log(k),
        _log(flops / moved) - _log(rate / d.bandwidth), _alignment(m), _alignment(n), _alignment(k),
        _log(k / 64) - _log(np.ceil(waves)), d.generation, _log(moved / d.sms),
    )  # fmt: skip
    return Terms(
        _ramp(d, rows), np.stack([compute, memory, chain, serial], axis=1), features, flops / rate, moved / d.bandwidth
    )


ATTENTION_FEATURES: tuple[str, ...] = (
    "log_compute_over_memory", "log_work_over_launch", "log_bytes_over_l2", "log_blocks_over_sms",
    "block_fill", "log_batch", "log_tokens", "log_heads", "log_kv_heads", "log_group", "head_dim", "window_share",
    "log_kv_bytes_over_l2", "log_kv_splits_over_sms", "kv_width", "log_steps", "generation",
)  # fmt: skip


def attention(
    d: Figures,
    batch: np.ndarray,
    tokens: np.ndarray,
    heads: np.ndarray,
    kv_heads: np.ndarray,
    head_dim: np.ndarray,
    window: np.ndarray,
    precision: np.ndarray,
    kv_precision: np.ndarray,
    *,
    decode: bool,
) -> Terms:
    """Causal attention over ``tokens`` new tokens, or of one new token over a cache of ``tokens`` (``decode``).

    ``window`` 0 means all tokens. The cache is read (and at prefill written) at the width of ``kv_precision``.
    """
    rows = len(batch)
    seen = np.where(window > 0, np.minimum(window, tokens), tokens).astype(np.float64)
    kv_width, width = _WIDTH[kv_precision, 0], _WIDTH[precision, 0]
    if decode:
        pairs, queries = seen, np.ones(rows)
        cache = 2.0 * batch * kv_heads * head_dim * seen * kv_width
        blocks = batch * kv_heads * np.maximum(heads / kv_heads / BLOCK_HEADS, 1.0)
        splits = blocks * np.ceil(seen / 256)
    else:
        pairs = seen * (tokens - seen) + seen * (seen + 1) / 2
        queries = tokens.astype(np.float64)
        cache = 2.0 * batch * kv_heads * head_dim * tokens * (kv_width + 2.0)
        blocks = batch * heads * np.ceil(tokens / 128)
        splits = blocks
    moved = cache + 2.0 * batch * heads * head_dim * queries * 2.0
    flops = 4.0 * batch * heads * head_dim * pairs
    rate = _row_rate(d, precision)
    # A block works on 128 queries (decode: on the heads of a group, padded to 16); the tensor cores count the padding.
    if decode:
        padded = flops * np.maximum(16.0 / (heads / kv_heads), 1.0)
        spread = np.clip(d.sms / blocks, 1.0, np.maximum(seen / 256, 1.0))
    else:
        per_block = 4.0 * 128 * head_dim * np.minimum(seen + 64, tokens * 0.5 + 64)
        padded = np.ceil(blocks / d.sms) * d.sms * per_block
        spread = np.ones(rows)
    compute = padded / rate
    steps = np.ceil(seen / 64)
    busy = np.minimum(1.0, SM_BANDWIDTH * splits / d.sms)
    memory = moved / _bandwidth(d, moved, busy, "attention")
    rounds = np.maximum(blocks / (RESIDENT_BLOCKS * d.sms), 1.0)
    chain = steps / spread * (DECODE_BLOCK_CYCLES if decode else PREFILL_BLOCK_CYCLES) / d.clock
    serial = rounds * WAVE_CYCLES / d.clock
    waves = blocks / d.sms
    features = _columns(
        rows, _log(compute) - _log(memory), _log(compute + memory) - np.log(LAUNCH_S), _log(moved / d.l2),
        _log(waves), waves / np.ceil(waves), _log(batch), _log(tokens), _log(heads), _log(kv_heads),
        _log(heads / kv_heads), head_dim, seen / tokens, _log(cache / d.l2), _log(splits / d.sms),
        kv_width + 10 * width,        _log(steps), d.generation
    )  # fmt: skip
    return Terms(
        _ramp(d, rows), np.stack([compute, memory, chain, serial], axis=1), features, flops / rate, moved / d.bandwidth
    )


MOE_FEATURES: tuple[str, ...] = (
    "log_compute_over_memory", "log_work_over_launch", "log_bytes_over_l2", "log_tokens", "log_hidden",
    "log_inner", "log_experts", "top_k", "log_local_experts", "log_tokens_per_expert", "log_active_share", "skew",
    "log_expert_parallel", "log_tensor_parallel", "log_tiles_over_sms", "tile_fill", "log_weights_over_l2",
    "log_local_inner", "generation",
)  # fmt: skip


def moe(
    d: Figures,
    tokens: np.ndarray,
    hidden: np.ndarray,
    inner: np.ndarray,
    experts: np.ndarray,
    top_k: np.ndarray,
    tensor_parallel: np.ndarray,
    expert_parallel: np.ndarray,
    skew: np.ndarray,
    precision: np.ndarray,
    gated: np.ndarray,
) -> Terms:
    """The experts of one rank, for all tokens that the expert-parallel group routes.

    ``skew`` is 0 for a balanced choice of experts, else the exponent of the power law; ``gated`` experts hold three
    matrices, others two.
    """
    rows = len(tokens)
    activation, weight = _WIDTH[precision, 0], _WIDTH[precision, 1]
    local = np.maximum(experts / expert_parallel, 1.0)
    width = inner / tensor_parallel
    # An even choice is exactly even: every expert has a token as soon as there are as many. Under a power law the
    # busiest rank counts: its share of the tokens falls slower than the ranks grow, and fewer experts wake (exponents
    # and rate read off H200 rows of one model; the sources pick the busiest rank).
    share = np.where(skew > 0, expert_parallel ** -np.clip(1.2 - 0.5 * skew, 0.2, 1.0), 1.0 / expert_parallel)
    routed = np.minimum(tokens * top_k * share, tokens * np.minimum(top_k, local))
    woken = local * (1.0 - np.exp(-WAKING * routed / local))
    active = np.where(skew > 0, woken, np.minimum(local, routed))
    active = np.maximum(active, np.minimum(local, 1.0))
    matrices = np.where(gated, 3.0, 2.0)
    flops = 2.0 * matrices * routed * hidden * width
    weights = active * matrices * hidden * width * weight
    moved = weights + routed * (2.0 * hidden * activation + 3.0 * width * 2.0)
    per_expert = routed / np.maximum(active, 1e-9)
    rate = _row_rate(d, precision)
    padded = np.where(skew > 0, routed + 32 * active, np.ceil(per_expert / 64) * 64 * active)
    tiles = padded / 64 * np.ceil(2 * width / 128)
    waves = tiles / d.sms
    compute = 2.0 * matrices * padded * hidden * width / (rate) * np.ceil(waves) / waves
    memory = moved / _bandwidth(d, moved, 1.0, "moe")
    chain = (hidden + width) * CHAIN_CYCLES / d.clock
    # Kernels around the products: tokens in and out, copies of them to and from their experts.
    around = (tokens * (4.0 + 2.0 * top_k) + 4.0 * routed) * hidden
    serial = around / _bandwidth(d, around, 1.0, "moe")
    features = _columns(
        rows, _log(compute) - _log(memory), _log(compute + memory) - np.log(LAUNCH_S), _log(moved / d.l2),
        _log(tokens), _log(hidden), _log(inner), _log(experts), top_k, _log(local), _log(per_expert),
        _log(active / local), skew, _log(expert_parallel), _log(tensor_parallel), _log(waves),
        waves / np.ceil(waves), _log(weights / d.l2), _log(width), d.generation
    )  # fmt: skip
    return Terms(
        _ramp(d, rows), np.stack([compute, memory, chain, serial], axis=1), features, flops / rate, moved / d.bandwidth
    )


TORCH_FEATURES: tuple[str, ...] = (
    "log_compute_over_memory", "log_work_over_launch", "log_bytes_over_l2", "log_waves_128", "wave_fill_128",
    "log_waves_64", "wave_fill_64", "log_batch", "log_m", "log_n", "log_k", "align_m", "align_n", "align_k",
    "log_intensity_over_ridge", "kernel_size", "stride", "log_sm_elements", "generation",
)  # fmt: skip
# How many sizes an operator takes; two where it is not named.
TORCH_SIZES = {"bmm": 4, "linear": 4, "conv": 7}
# fp32 products run on the vector units: their tiles are smaller than those of the matrix units.
_VECTOR_TILES = ((128, 128), (128, 64), (64, 64), (64, 32), (32, 32))
# Passes over the data beyond one read of each input and one write: softmax and layer norm read theirs twice.
_PASSES = {"ln": 2.0, "softmax": 2.0}
_INPUTS = {"add": 2.0, "div": 2.0, "mul": 2.0, "pow": 2.0}


def torch_operator(d: Figures, operator: str, sizes: np.ndarray) -> Terms:
    """One PyTorch operator in fp32 (TF32 off). ``sizes`` [N, D] in the order of NeuSight's dimensions.

    bmm: b, m, n, k: (b, m, n) x (b, n, k); linear: input (b, m, n), weight (k, n); conv: b, in and out channels, kernel
    size, input size, stride, padding (square); all others: b, h, with ln and softmax over h.
    """
    rows = len(sizes)
    one = np.ones(rows)
    kernel_size = stride = one
    if operator in ("bmm", "linear"):
        batch, m, k, n = sizes.T
        weights = batch * k * n if operator == "bmm" else k * n
        read = batch * m * k + weights
        if operator == "linear":
            batch, m = one, batch * m
    elif operator == "conv":
        images, k_in, n, kernel_size, side, stride, padding = sizes.T
        out = np.maximum(np.floor((side + 2 * padding - kernel_size) / stride) + 1, 1.0)
        batch, m, k = one, images * out**2, k_in * kernel_size**2
        read = images * k_in * side**2 + n * k
    else:
        batch, (m, n), k = one, sizes.T, one
        read = m * n * _INPUTS.get(operator, 1.0) * _PASSES.get(operator, 1.0)
    product = operator in ("bmm", "linear", "conv")
    flops = 2.0 * batch * m * n * k if product else m * n
    moved = 4.0 * (read + batch * m * n)
    rate = _row_rate(d, np.full(rows, _RATES.index("fp32")))
    compute = np.full(rows, np.inf)
    for tile_m, tile_n in _VECTOR_TILES if product else ((1, 1024),):
        tiles = batch * np.ceil(m / tile_m) * np.ceil(n / tile_n)
        share = min(1.0, (tile_m * tile_n / 16384) ** 0.2)
        one_tile = 2.0 * tile_m * tile_n * k / (rate / d.sms * share)
        compute = np.minimum(compute, np.ceil(tiles / d.sms) * one_tile)
    memory = moved / _bandwidth(d, moved, 1.0, "moe")
    chain = (k if product else n / 1024) * CHAIN_CYCLES / d.clock
    waves = batch * np.ceil(m / 128) * np.ceil(n / 128) / d.sms
    waves_64 = batch * np.ceil(m / 64) * np.ceil(n / 64) / d.sms
    features = _columns(
        rows, _log(compute) - _log(memory), _log(compute + memory) - np.log(LAUNCH_S), _log(moved / d.l2),
        _log(np.ceil(waves)), waves / np.ceil(waves), _log(np.ceil(waves_64)), waves_64 / np.ceil(waves_64),
        _log(batch), _log(m), _log(n), _log(k), _alignment(m), _alignment(n), _alignment(k),
        _log(flops / moved) - _log(rate / d.bandwidth), kernel_size, stride, _log(batch * m * n / d.sms), d.generation,
    )  # fmt: skip
    work = np.stack([compute, memory, chain, np.zeros(rows)], axis=1)
    return Terms(_ramp(d, rows), work, features, flops / rate, moved / d.bandwidth)


COLLECTIVES: tuple[str, ...] = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
COLLECTIVE_FEATURES: tuple[str, ...] = (
    "log_work_over_launch", "log_bytes", "n_devices", "collective", "linked", "log_bytes_over_l2",
    "generation",
)  # fmt: skip


def collective(d: Figures, kind: np.ndarray, n_devices: np.ndarray, size_bytes: np.ndarray) -> Terms:
    """Collectives inside one node; ``kind`` [N] places in ``COLLECTIVES``, ``size_bytes`` the whole message.

    Ring bounds (NCCL, doc/PERFORMANCE.md of nccl-tests): all_reduce moves 2 (n - 1) / n of the message over each link,
    the others (n - 1) / n. NVLink's figure is both directions; without NVLink it goes through PCIe and the host,
    and so it does among more devices than a bridge joins.
    """
    rows = len(size_bytes)
    share = (n_devices - 1) / n_devices * np.where(kind == 0, 2.0, 1.0)
    among = np.where(d.link_peers > 0, np.minimum(1.0, (n_devices - 1) / np.maximum(d.link_peers, 1.0)), 1.0)
    joined = (d.nvlink > 0) & ((d.link_group == 0) | (n_devices <= d.link_group))
    link = np.where(joined, d.nvlink / 2 * among * 0.8, d.pcie * 0.4)
    wire = size_bytes * share / link
    linked = np.broadcast_to(joined, (rows,)).astype(np.float64)
    features = _columns(
        rows, _log(wire) - np.log(LAUNCH_S), _log(size_bytes), n_devices, kind, linked,
        _log(size_bytes / d.l2), d.generation,
    )  # fmt: skip
    chain = n_devices * LAUNCH_S
    serial = (n_devices - 2) * LAUNCH_S / 4
    return Terms(
        _ramp(d, rows), np.stack([np.zeros(rows), wire, chain, serial], axis=1), features, np.zeros(rows), wire
    )
