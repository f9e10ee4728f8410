"""Replicas of a training step on several devices (PyTorch's DistributedDataParallel), from the step on one.

Every replica runs the step on its own samples; gradients are summed by ring all-reduces of buckets, as measured kernels
run them (`perfpass.predictors.kernels`), and each step waits for the slowest replica. With x the all-reduces over the
step alone and n the devices,

    step(n) / step(1) = 1 + exposed min(x, 0.18) + 0.561 max(x - 0.18, 0) + straggle log2(n).

DistributedDataParallel starts a bucket's all-reduce while the rest of the backward pass runs (arXiv:2006.15704, section
3.2), yet steps of NVIDIA's DeepLearningExamples grow by all of it: its kernels take units and bandwidth from those
beside them, and copies to the buckets come on top. Theirs are up to 0.18 of a step; of what longer ones (PCIe, a slow
network) have beyond that, as much is exposed as of language models' exchanges, some of which were measured there. The
lower bound lets the backward pass hide what it can, the upper one counts messages whole. Both constants and the spread
are fitted by `perfpass.training.data_parallel`, which grades them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from perfpass.errors import ArgumentError
from perfpass.interval import Interval
from perfpass.predictors.kernels import network
from perfpass.predictors.kernels.predictor import load
from perfpass.predictors.llm_training.constants import STEP
from perfpass.predictors.llm_training.step import fabric_bytes_s, nvlink_domain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perfpass.devices import Device
    from perfpass.predictors.kernels.predictor import KernelTimes

BUCKET_BYTES = 25 << 20  # DistributedDataParallel's bucket_cap_mb
_NODE = 8  # devices of a node that exchange by measured kernels
_MEASURED_SHARE = 0.18  # the most that all-reduces take of a step among the pairs of runs
# Of a step, that its backward pass is at least, behind which messages can hide.
_BACKWARD_SHARE = 0.5
# GiB that a communicator of NCCL holds on a device: low, median, high. By pairs of milabench's programs on one board
# and on all of a host's (ResNet-152): through the host 0.14 to 0.21 on an L40S (0.4 at its smallest batch), behind a
# switch that adds up itself (NVLink SHARP, of Hopper and newer) 1.1 to 1.5 on an H100 and H200. Others by hand.
_THROUGH_HOST, _ADDING_SWITCH, _OTHER_LINK = (0.1, 0.17, 0.5), (0.5, 1.3, 1.6), (0.2, 0.5, 1.6)
_ADDS_IN_SWITCH = ("hopper", "blackwell")


@dataclass(frozen=True)
class Constants:
    """``exposed`` and ``straggle`` as above; ``low`` and ``high``: log half-widths of the ratio that hold 90 in 100 of
    networks that are left out.
    """

    exposed: float
    straggle: float
    low: float
    high: float


SHIPPED = Constants(exposed=1.30, straggle=0.0174, low=0.074, high=0.368)


@dataclass(frozen=True)
class Exchange:
    """Seconds of the all-reduces of one step, low to high, and what makes them unsure."""

    seconds: float
    low_s: float
    high_s: float
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Replicated:
    """A step on n devices: seconds, and of the median what messages and the slowest replica add."""

    step_s: Interval
    exchange_s: float
    straggling_s: float
    reasons: tuple[str, ...]


def exchange(
    device: Device,
    devices: int,
    message_bytes: float,
    fabric: float = 0.0,
    *,
    operation: str = "all_reduce",
    bucket_bytes: float = BUCKET_BYTES,
) -> Exchange:
    """``operation`` on ``message_bytes`` (gradients, parameters) among ``devices``, in buckets.

    Up to 8 devices stand in one node (72 of a rack of GB200 or GB300), more in whole nodes; ``fabric``: byte/s of one
    direction between nodes for each device (0: as nodes of its generation are built). Raises ArgumentError for part of
    a node, DeviceError for a device without any link.
    """
    if devices == 1:
        return Exchange(0.0, 0.0, 0.0, ())
    buckets = max(message_bytes / bucket_bytes, 1.0)
    size = min(message_bytes, bucket_bytes)
    if devices <= max(nvlink_domain(device, devices), _NODE):
        found = _in_a_node(device, min(devices, _NODE), size, operation)
    elif devices % _NODE:
        raise ArgumentError(f"{devices} devices fill no whole nodes of {_NODE}; give a multiple of {_NODE}")
    else:
        found = _between_nodes(device, devices, size, fabric or fabric_bytes_s(device), operation)
    return Exchange(buckets * found.seconds, buckets * found.low_s, buckets * found.high_s, found.reasons)


def _in_a_node(device: Device, devices: int, size_bytes: float, operation: str) -> Exchange:
    elements = [size_bytes / 2]  # NCCL moves bytes; messages in halves stand in
    found = load().collective(device, operation, [devices], elements, "fp16", stack="nccl")
    middle, low, high = (float(v[0]) for v in (found.seconds, found.low_s, found.high_s))
    if (other := network.on_the_other_host(load(), device, devices, elements)) is not None:
        # All-reduces alone were measured there; rings move half as much for the others.
        ends = sorted((middle, float(other.seconds[0]) * (1.0 if operation == "all_reduce" else 0.5)))
        middle, low, high = math.sqrt(ends[0] * ends[1]), min(low, ends[0]), max(high, ends[1])
    return Exchange(middle, low, high, _said(found, operation))


def _between_nodes(device: Device, devices: int, size_bytes: float, rate: float, operation: str) -> Exchange:
    """The longer of what a node does inside, and of what its network carries, as `kernels.network` counts both."""
    nodes, inside = devices // _NODE, _in_a_node(device, _NODE, size_bytes, operation)
    elements = [size_bytes / 2]
    found = network.collective(load(), device, operation, devices, nodes, elements, "fp16", card_bytes_s=rate)
    carried = network.carried(operation, devices, nodes, np.array([size_bytes]))[0] / (rate * network.SHARE)
    middle = max(inside.seconds, float(carried)) + network.START_S
    least, most = min(inside.low_s, float(found.low_s[0])), max(inside.high_s, float(found.high_s[0]))
    return Exchange(middle, least, most, _said(found, operation))


def _said(found: KernelTimes, operation: str) -> tuple[str, ...]:
    what = "all-reduces" if operation == "all_reduce" else "messages"
    return tuple(f"{what}: {reason}" for reason in found.support.reasons)


def log_ratio(share: np.ndarray, devices: np.ndarray, constants: Constants = SHIPPED) -> np.ndarray:
    """[N] log of step(n) over step(1); ``share`` [N]: the all-reduces over the step on one device."""
    return np.asarray(np.log1p(_exposed(share, constants) + constants.straggle * np.log2(devices)))


def _exposed(share: np.ndarray, constants: Constants) -> np.ndarray:
    """[N] what all-reduces of ``share`` [N] of a step on one device add to it, over that step."""
    beyond = np.maximum(share - _MEASURED_SHARE, 0.0)
    return np.asarray(constants.exposed * np.minimum(share, _MEASURED_SHARE) + STEP.replicas * beyond)


def exposed(share: float, constants: Constants = SHIPPED) -> float:
    """The same of one step."""
    return float(_exposed(np.array(share), constants))


def replicated(
    step_s: Interval, alone_s: Interval, devices: int, messages: Exchange, constants: Constants = SHIPPED
) -> Replicated:
    """``step_s``: of one device, all micro-batches; ``alone_s``: of the last of them, whose backward pass the messages
    run beside (DistributedDataParallel's ``no_sync`` keeps the others quiet).
    """
    if devices == 1:
        return Replicated(step_s, 0.0, 0.0, ())
    waits = constants.straggle * math.log2(devices)
    waited = alone_s.median * exposed(messages.seconds / alone_s.median, constants)
    ratio = 1 + waited / step_s.median + waits
    hidden = max(messages.low_s - _BACKWARD_SHARE * alone_s.median, 0.0)
    least = 1 + hidden / step_s.median
    most = 1 + constants.exposed * messages.high_s / step_s.median + waits
    low = joined(math.log(step_s.median / step_s.low), math.log(ratio / least), constants.low)
    high = joined(math.log(step_s.high / step_s.median), math.log(most / ratio), constants.high)
    middle = step_s.median * ratio
    return Replicated(
        Interval(middle, middle * math.exp(-low), middle * math.exp(high), "s"),
        waited,
        waits * step_s.median,
        messages.reasons,
    )


def joined(*half_widths: float) -> float:
    """Of logarithms, whose squares add."""
    return math.sqrt(sum(max(w, 0.0) ** 2 for w in half_widths))


def communicator_bytes(device: Device, devices: int) -> tuple[float, float, float]:
    """Bytes that NCCL holds on each of so many devices that exchange gradients: low, median, high."""
    found = _OTHER_LINK
    if device.vendor == "NVIDIA" and not device.link_bytes_s(min(devices, _NODE)):
        found = _THROUGH_HOST
    elif device.architecture.lower().startswith(_ADDS_IN_SWITCH) and not (device.link_peers or device.link_group):
        found = _ADDING_SWITCH
    low, median, high = (gib * 2**30 for gib in found)
    return low, median, high


def held_bytes(device: Device, devices: int, gradient_bytes: float) -> Mapping[str, float]:
    """Bytes that a replica holds beside the step on one device: low, median, high.

    Gradients stand once more in the buckets (PyTorch's documentation of ``gradient_as_bucket_view``), which the upper
    two count, and NCCL holds buffers.
    """
    low, median, high = communicator_bytes(device, devices)
    return {"low": low, "median": median + gradient_bytes, "high": high + gradient_bytes}
