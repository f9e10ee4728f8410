"""Memory of one device as users see it: what is alive, what the runtime reserved, what is in use; and what is needed.

In use is what nvidia-smi shows: reserved memory, and the context with its libraries. Servers fill the device with cache
beforehand, whatever the load, so what is in use says nothing of what is needed: weights, the cache of the requests
that run, workspace and context. Both are said, by runtime:

- vLLM fills ``gpu_memory_utilization`` of the device (0.92, before 0.21 0.9; vllm/config). CUDA graphs come on top in
  releases before 0.21, which then began to count them (vllm-project/vllm#30515, #38284; logs there and in #11251 tell
  of 0.3 to 3 GiB).
- SGLang fills ``mem_fraction_static`` with weights and cache, by default what its guess of activations and graphs
  leaves (before 0.5 0.88 on one GPU to 0.79 on 16; sglang/srt/server_args.py); activations and graphs come on top.
- TensorRT-LLM fills 0.9 of what is free beside the loaded engine (``free_gpu_memory_fraction``, KvCacheConfig).
- llama.cpp takes what it needs: `perfpass.llm.llama_cpp`. transformers: `perfpass.llm.eager`.

No source measured what the servers fill; those are documented settings. Bounds: docs/predictors/memory.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perfpass.llm.versions import release
from perfpass.prediction import Interval
from perfpass.text import size

if TYPE_CHECKING:
    from perfpass.devices import Device

MEASURED, DOCUMENTED, UNKNOWN = "measured", "documented settings", "not known"
COVERAGE = 0.96  # of each interval: its upper bound is stated for 98 in 100
# Context and loaded libraries of PyTorch on an A100: 1,471 to 1,630 MB between NVML's figure and the allocator's
# (57 runs of huggingface/optimum-benchmark, torch 2.1).
CONTEXT_BYTES = 1.474e9
CONTEXT_SHARES = (0.3, 1.3)
# vLLM's documented share before 0.21 and since, SGLang's before 0.5 by the GPUs of a replica, TensorRT-LLM's of the
# free memory.
VLLM_SHARE, VLLM_SHARE_NOW, TRTLLM_FREE_SHARE = 0.9, 0.92, 0.9
SGLANG_SHARES = ((16, 0.79), (8, 0.81), (4, 0.85), (2, 0.87), (1, 0.88))
# Releases whose defaults are those of the newest.
SINCE = {"vllm": (0, 21), "sglang": (0, 5)}
# SGLang's settings by MiB of the board, the last without a bound: tokens of a prefill chunk, and the largest batch of
# its CUDA graphs on fewer than 4 tensor ranks and on more (`handle_gpu_memory_settings` of memory_hook.py in
# 0.5.23; at first, in sgl-project/sglang#10975, 2,048, 24 and 80 from 20 to 35 GiB).
_SGLANG_BY_MEMORY = (
    (20 * 1024, 2048, 8, 8),
    (35 * 1024, 4096, 48, 160),
    (60 * 1024, 4096, 32, 160),
    (160 * 1024, 8192, 256, 512),
    (float("inf"), 16384, 512, 512),
)
# CUDA graphs: usual, and the most of those logs.
GRAPH_BYTES, GRAPH_HIGH_BYTES = 0.5e9, 3.0e9
# The most that a deployment tuned by hand fills; of unified memory, what an operating system without a desktop holds.
# By hand: no source states them.
MOST_UTILIZATION = 0.97
SYSTEM_LOW_BYTES = 1e9
# As llama.cpp prints it: 10.67 of 16 GiB, 21,845 of 32,768 MiB; from 36 GiB on three quarters (27 of 36, 48 of 64), and
# on later systems more (107.5 of 128 GiB).
_METAL_SMALL, _METAL_SHARE, _METAL_LARGE_BYTES = 2 / 3, 3 / 4, 36 * 2**30
# The graphics translation table of the amdgpu driver is half of the system's memory (since Linux 5.19, "drm/amdgpu:
# Adjust logic around GTT size (v3)"), as boards of 128 GiB show some 62; what firmware sets aside beside is left out.
_GTT_SHARE = 1 / 2
# Those with an accounting of their own.
SERVERS = ("vllm", "sglang", "trtllm")
# How fast P(fits) falls below the least that is counted, and the rest above the most: by a third for each hundredth of
# it, by hand. Alike for all: by its own width an interval that grows wider with its load would rise there.
_FALL = 40.0
# A bound further above the median than this tells nobody anything; more is left to settings by hand.
MOST_ABOVE = 1.35


@dataclass(frozen=True)
class InUse:
    """``needed``: weights, cache of the requests that run, workspace, context; ``least``: the same for one request.

    ``basis``: what stands behind ``reserved`` and ``in_use``: "measured", "documented settings", "not known".
    """

    needed: Interval
    least: Interval
    alive: Interval
    reserved: Interval
    in_use: Interval
    basis: str

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        names = ("needed", "least", "alive", "reserved", "in_use")
        return {**{name: getattr(self, name).to_dict() for name in names}, "basis": self.basis}


@dataclass(frozen=True)
class Room:
    """What a server needs against ``limit_bytes``, what it may fill by its own accounting; ``binding`` names the limit.

    ``needed`` by its requests, ``least`` by one alone; ``probability`` that the former fit. ``possible``: whether their
    lower bound is within what a share of the memory set by hand may fill (`MOST_UTILIZATION`), or within the limit
    where a share was asked for.
    """

    needed: Interval
    least: Interval
    limit_bytes: float
    binding: str
    probability: float
    possible: bool

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return {name: v.to_dict() if isinstance(v, Interval) else v for name, v in vars(self).items()}


@dataclass(frozen=True)
class Parts:
    """Bytes on one device: ``cache`` of the requests that run, ``each`` of one. The others as `Interval` has them.

    ``certain``: of the weights those that are there whatever was measured of others (`held_whole`).
    """

    weights: tuple[float, float, float]  # low, median, high
    cache: float
    each: float
    workspace: tuple[float, float, float]
    runtime: tuple[float, float, float]
    certain: float = 0.0


def interval(low: float, median: float, high: float, most: float = float("inf")) -> Interval:
    """Bytes, in order, none above ``most``."""
    median = min(median, most)
    high = min(max(high, median), max(most, median))
    return Interval(median, max(0.0, min(low, median)), high, "byte", COVERAGE)


def needed(parts: Parts, cache: float, *, runtime: bool = True) -> Interval:
    """What the parts take together, with ``cache``."""
    beside = parts.runtime if runtime else (0.0, 0.0, 0.0)
    low, median, high = (
        w + cache + a + r for w, a, r in zip(parts.weights, parts.workspace, beside, strict=True)
    )  # fmt: skip
    return interval(low, median, min(high, MOST_ABOVE * median))


def chance(need: Interval, limit_bytes: float) -> float:
    """P that ``need`` is within the limit: what needs more, in its median and both bounds, never has more of it."""
    bound = min(max(limit_bytes, need.low), need.high)
    at = need.probability_fits(bound)
    if bound == limit_bytes or bound <= 0.0:
        return at
    if limit_bytes < bound:
        # Where the least is the median, half of P lies at the bound, and none below it.
        at = min(at, (1.0 - need.coverage) / 2.0)
        return at * (max(limit_bytes, 0.0) / bound) ** _FALL
    return 1.0 - (1.0 - at) * (bound / limit_bytes) ** _FALL


def filled_share(runtime: str, gpus: int) -> float:
    """The share of a device that servers filled by themselves when they were measured; of TensorRT-LLM, of what the
    engine leaves free.
    """
    if runtime == "sglang":
        return next(value for ranks, value in SGLANG_SHARES if gpus >= ranks)
    return TRTLLM_FREE_SHARE if runtime == "trtllm" else VLLM_SHARE


def default_share(runtime: str, device: Device, gpus: int, version: str = "") -> float:
    """The share of ``device`` that a server of a ``version``, or the newest, fills by itself on each of ``gpus``."""
    if runtime not in SINCE or release(version) < SINCE[runtime]:
        return filled_share(runtime, gpus)
    return VLLM_SHARE_NOW if runtime == "vllm" else _sglang_share(device.usable_bytes / 2**20, gpus)


def sglang_settings(mib: float) -> tuple[int, int, int]:
    """What SGLang takes by itself on a board of ``mib`` MiB: tokens of a chunk, and the largest batch of its CUDA
    graphs on fewer than 4 tensor ranks and on more.
    """
    return next(row[1:] for row in _SGLANG_BY_MEMORY if mib < row[0])


def _sglang_share(mib: float, gpus: int) -> float:
    """`mem_fraction_static` of memory_hook.py: what MiB for activations, graphs and communication leave."""
    chunk, *graphs = sglang_settings(mib)
    reserved = 512 + 1.5 * chunk + 2 * graphs[gpus >= 4] + 1024 * gpus / 8 + 8 * _pieces(chunk)
    if mib > 60 * 1024:
        reserved = max(reserved, 10 * 1024)
    return round(1 - reserved / mib, 3)


def _pieces(chunk: int) -> int:
    """Sizes of a prefill that have a CUDA graph of their own (`_generate_piecewise_cuda_graph_tokens`)."""
    steps = ((4, 32, 4), (48, 256, 16), (288, 512, 32), (576, 1024, 64), (1280, 4096, 256), (4608, chunk, 512))
    return sum(len(range(first, min(last, chunk) + 1, step)) for first, last, step in steps)


def whole_bytes(device: Device, share: float = 1.0) -> float:
    """The memory that a program can have of a device: a share, and of unified memory what the system leaves."""
    return share * device.usable_bytes - (SYSTEM_LOW_BYTES if device.unified_memory else 0.0)


@dataclass(frozen=True)
class Given:
    """What a program is given of a device unless somebody says otherwise: ``bytes``, by whose ``rule`` ("" for none),
    and ``more``, how to have the rest of `whole_bytes`.
    """

    bytes: float
    rule: str = ""
    more: str = ""

    @property
    def words(self) -> str:
        """The rule as a sentence's end; empty without one."""
        return f"{self.rule} gives a program {size(self.bytes)} of it, {self.more} more" if self.rule else ""


def given_by_default(device: Device) -> Given:
    """Of an Apple chip what Metal recommends as a working set (recommendedMaxWorkingSetSize), of an AMD processor's GPU
    what Linux maps for it (GTT), else `whole_bytes`.
    """
    if device.unified_memory and device.vendor == "Apple":
        share = _METAL_SMALL if device.usable_bytes < _METAL_LARGE_BYTES else _METAL_SHARE
        return Given(share * device.usable_bytes, "Metal's default", "sysctl iogpu.wired_limit_mb")
    if device.is_machine and device.vendor == "AMD":
        return Given(_GTT_SHARE * device.usable_bytes, "Linux's default", "ttm.pages_limit (amd-ttm --set)")
    return Given(whole_bytes(device))


def room(runtime: str, device: Device, gpus: int, parts: Parts, share: float | None = None, version: str = "") -> Room:
    """The room of a server on each of ``gpus``; ``share``: of the memory, as its setting says, else by default of a
    ``version`` (`default_share`).
    """
    whole, most = whole_bytes(device), whole_bytes(device, MOST_UTILIZATION)
    filled_to = default_share(runtime, device, gpus, version) if share is None else share
    asked, least = needed(parts, parts.cache), needed(parts, parts.each)
    possible, limit, binding = asked.low <= most, filled_to * whole, f"gpu_memory_utilization {filled_to:g}"
    if runtime == "trtllm":
        # The cache may take a share of what is free: the engine and 1 / share of the cache have to be there.
        asked, least = (needed(parts, size / filled_to) for size in (parts.cache, parts.each))
        limit, binding = most, f"free_gpu_memory_fraction {filled_to:g}"
    elif runtime == "sglang":
        limit, binding = whole, ""
    likely = chance(asked, limit)
    if runtime == "sglang":
        low, usual, high = parts.weights
        static, alone = (
            Interval(usual + cache, min(low, usual) + cache, high + cache, "byte", COVERAGE)
            for cache in (parts.cache, parts.each)
        )
        inside = chance(static, filled_to * whole)
        if inside < likely:
            likely, limit, binding = inside, filled_to * whole, f"mem_fraction_static {filled_to:g}"
            asked, least = static, alone
    return Room(asked, least, limit, binding, likely, possible if share is None else asked.low <= limit)


def filled(
    runtime: str, device: Device, gpus: int, parts: Parts, share: float | None = None, version: str = ""
) -> InUse:
    """A server, which fills the device beforehand. ``gpus``: of a replica. ``share``: what its setting says, else the
    default of a ``version`` (`default_share`).
    """
    whole = whole_bytes(device)
    need, least = needed(parts, parts.cache), needed(parts, parts.each)
    alive = needed(parts, parts.cache, runtime=False)
    if least.low > whole:  # what a larger device would hold
        return InUse(need, least, alive, alive, need, UNKNOWN)
    floor = min(least.median, whole)
    share = default_share(runtime, device, gpus, version) if share is None else share
    if runtime == "vllm":
        in_use = interval(share * whole * 0.95, share * whole, share * whole + GRAPH_HIGH_BYTES, whole)
    elif runtime == "sglang":
        low = share * whole
        in_use = interval(low, low + parts.workspace[1] + GRAPH_BYTES, whole, whole)
    elif runtime == "trtllm":
        engine = parts.weights[1] + parts.workspace[1] + parts.runtime[1]
        usual = engine + share * max(0.0, whole - engine)
        in_use = interval(share * usual, usual, whole, whole)
    else:
        in_use = interval(least.low, max(floor, min(need.median, whole)), whole, whole)
    if in_use.median < floor:  # by settings chosen by hand
        in_use = interval(min(floor, max(in_use.low, least.low)), floor, whole, whole)
    beside = [share * CONTEXT_BYTES for share in CONTEXT_SHARES]
    held = max(alive.low, in_use.median - CONTEXT_BYTES)
    reserved = interval(max(0.0, in_use.low - beside[1]), held, max(held, in_use.high - beside[0]))
    basis = DOCUMENTED if runtime in ("vllm", "sglang", "trtllm") else UNKNOWN
    return InUse(need, least, alive, reserved, in_use, basis)


# What llama.cpp (lhl/strix-halo-testing, one chip) was measured to take over the count: 96 in 100 rows below 1.10, 0.88
# at least. Above are AMD's Vulkan driver with gpt-oss-20b (2 GiB more than HIP: 1.14) and prompts of 8,192 tokens
# without flash attention (1.28). exllama took 0.93 to 1.03.
LLAMA_CPP_LOW, LLAMA_CPP_HIGH = 0.88, 1.10


def held_whole(parts: Parts) -> InUse:
    """llama.cpp, which takes what it needs, once."""

    def around(median: float) -> Interval:
        return interval(max(LLAMA_CPP_LOW * median, parts.certain), median, LLAMA_CPP_HIGH * median)

    total, one = needed(parts, parts.cache).median, needed(parts, parts.each).median
    tensors = needed(parts, parts.cache, runtime=False).median
    return InUse(around(total), around(one), around(tensors), around(tensors), around(total), MEASURED)
