"""What prices a step apart from its batch, the sizes that tables hold, shares of peaks where nothing was measured."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from perfpass.devices import Device
from perfpass.devices import device as find_device
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.costs import Parallelism, Quantization
from perfpass.predictors.kernels import predictor as kernels
from perfpass.predictors.kernels.network import CARD_BYTES_S
from perfpass.predictors.step_time.grid import doublings

# Sizes of the tables: beyond them times go on as between the last two nodes.
TOKENS, REQUESTS = doublings(17, halves=True), doublings(13, halves=True)
CHUNKS, ATTENDED = doublings(17), doublings(36)
DECODES, CONTEXT = doublings(12), doublings(32)
# Shares of peaks that well-tuned kernels reach, as the base of serving starts from them (`serving.base.SHARED`).
COMPUTE, MEMORY, MEMORY_EXPERTS, MEMORY_CACHE = 0.5, 0.7, 0.5, 0.6
WIRE, MESSAGE_S = 0.5, 10e-6
# What the best kernels reach of the peaks, and so what no part of a step takes less than; by hand: large products reach
# 0.7 to 0.8 of an H100's and B200's dense peak, copies 0.9 of the bandwidth.
BEST_COMPUTE, BEST_MEMORY = 0.8, 0.9
# GPUs that NVLink joins: 8 on an HGX board, 72 in a rack of GB200 or GB300 NVL72.
NVLINK_GPUS, NVLINK_GPUS_RACK = 8, 72
_IN_RACKS = ("gb200", "gb300")
# The B300's products run as the B200's, which served runs show (docs/research/serving.md), and so the GB300's as the
# GB200's; they have more memory.
_AS_MEASURED = {"b300-sxm-288gb", "gb300-279gb"}


@dataclass(frozen=True)
class Setup:
    """What prices a step apart from its batch: all that tables depend on."""

    model: LanguageModel
    device: Device
    split: Parallelism
    quantization: Quantization
    runtime: str
    version: str


@lru_cache(maxsize=1)
def kernel_boards() -> tuple[str, ...]:
    """Boards whose matrix products were measured in an engine, by name, and those that run them as fast."""
    measured = {s.device for s in kernels.load().model("gemm").software}
    return tuple(sorted(measured | _AS_MEASURED))


def runs_measured_kernels(device: Device) -> bool:
    """Whether kernels of a board's architecture were measured, on it or on another: it runs the same ones at its own
    rates, clocks and number of multiprocessors, which their predictor knows.
    """
    return device.architecture in _kernel_architectures()


@lru_cache(maxsize=1)
def _kernel_architectures() -> frozenset[str]:
    return frozenset(find_device(name).architecture for name in kernel_boards())


def joined_gpus(device: Device) -> int:
    """GPUs that one NVLink domain, or one node where there is none, has of a device."""
    if device.is_machine:
        return 1
    return NVLINK_GPUS_RACK if device.id.startswith(_IN_RACKS) else NVLINK_GPUS


def nodes_of(device: Device, gpus: int) -> int:
    """Nodes, or racks, that ``gpus`` stand in, as few as hold equally many of them."""
    nodes = -(-gpus // joined_gpus(device))
    while gpus % nodes:
        nodes += 1
    return nodes


def messages_bytes_s(device: Device, split: Parallelism) -> float:
    """Byte/s of one direction of a GPU at which what it sends to others of its pipeline stage goes (`llm.costs`); where
    no link is stated, the network's.

    Stages stand behind one another, so that all-reduces and tokens of experts leave a node only where a stage does.
    Tokens take the card of their GPU. A ring leaves a node once: with one for each card of a node, which is what NCCL
    builds, every GPU sends at the rate of all of them.
    """
    cards = 1 if split.sends_tokens else split.stage // nodes_of(device, split.stage)
    return _reaching(device, split.stage, split.stage, cards)


def hop_bytes_s(device: Device, split: Parallelism) -> float:
    """The same of what joins one pipeline stage to the next."""
    return _reaching(device, split.gpus, 2)


def _reaching(device: Device, gpus: int, together: int, cards: int = 1) -> float:
    """Of ``gpus``, of which ``together`` exchange: over links that join them all, as not any two share a bridge, or
    over ``cards`` of the network.
    """
    inside = min(map(device.link_bytes_s, (together, gpus))) or device.pcie_bandwidth_bytes_s or CARD_BYTES_S
    return inside if gpus <= joined_gpus(device) else min(inside, cards * CARD_BYTES_S)
