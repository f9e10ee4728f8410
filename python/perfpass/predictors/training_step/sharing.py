"""Time of a training step whose replicas share parameters, gradients or states, and of what waits on the host.

No record shows such a step of a network that is no language model. Messages are those of measured kernels
(`perfpass.predictors.kernels`); of a message as much is exposed as of replicas' (`replicas`), and the interval is as
much wider as that of a language model in a framework that was not measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perfpass.errors import DeviceError
from perfpass.interval import Interval
from perfpass.predictors.llm_training.constants import SPREAD
from perfpass.predictors.training_step import replicas

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.graph.optimizers import Optimizer
    from perfpass.predictors.training_step.sharded import Parameters, Rank

_STATE_BYTES = 4.0  # of a parameter, a gradient or a state where the host's optimizer steps them
UNMEASURED = "no step of such a network whose states are shared or wait on the host was measured: the interval is wider"


@dataclass(frozen=True)
class Messages:
    """Of one step. ``each``: beside the passes of a micro-batch, ``times`` of these; ``after_s``: what the optimizer's
    results take to reach all ranks, which nothing hides.
    """

    each: replicas.Exchange
    times: int
    after_s: float = 0.0


def messages(
    device: Device, devices: int, found: Parameters, sharding: str, micro_batches: int, fabric: float = 0.0
) -> Messages:
    """What ranks exchange; ``fabric`` as of `replicas.exchange`, whose errors it raises.

    "none" and "zero1" sum gradients once a step (``no_sync`` keeps other micro-batches quiet), and ZeRO's first stage
    sends each rank's new parameters to the others. "zero2" gathers parameters and scatters gradients for every
    micro-batch, "zero3" gathers them for the backward pass again; each block is a message.
    """

    def moved(operation: str, size: float) -> replicas.Exchange:
        return replicas.exchange(device, devices, found.bytes, fabric, operation=operation, bucket_bytes=size)

    if sharding in ("none", "zero1"):
        after = moved("all_gather", replicas.BUCKET_BYTES).seconds if sharding == "zero1" else 0.0
        return Messages(replicas.exchange(device, devices, found.bytes, fabric), 1, after)
    unit = float(found.units[found.units > 0].mean())
    gathered, scattered = moved("all_gather", unit), moved("reduce_scatter", unit)
    count = 2 if sharding == "zero3" else 1
    middle, low, high = (count * getattr(gathered, n) + getattr(scattered, n) for n in ("seconds", "low_s", "high_s"))
    return Messages(replicas.Exchange(middle, low, high, gathered.reasons), micro_batches)


@dataclass(frozen=True)
class HostTime:
    """Seconds of a step on the link to the host beside the passes, and of what the device waits for."""

    streamed_s: float = 0.0
    waited_s: float = 0.0

    def added_s(self, busy_s: float) -> float:
        """To a step that computes for ``busy_s``."""
        return self.waited_s + max(self.streamed_s - busy_s, 0.0)


def host_time(
    device: Device, held: Rank, found: Parameters, offload: str, optimizer: Optimizer, micro_batches: int, host: float
) -> HostTime:
    """``host``: byte/s of the host's memory for each device. Raises DeviceError where no link to the host is stated.

    Gradients leave while the backward pass runs, the optimizer steps what the rank owns at the memory's rate, and new
    weights come back; weights that wait on the host come in for either pass.
    """
    if offload == "none":
        return HostTime()
    link = device.pcie_bandwidth_bytes_s
    if not link:
        raise DeviceError(f"{device.name}: no link to the host's memory is stated; leave the offloading out")
    own = held.owned / found.element_bytes
    touched = (optimizer.fused_read + optimizer.fused_written) * _STATE_BYTES
    streamed = held.owned * micro_batches
    if offload == "parameters":
        streamed += 2 * held.owned * micro_batches
    return HostTime(streamed / link, own * touched / host + held.owned / link)


def shared(
    step_s: Interval,
    alone_s: Interval,
    devices: int,
    sent: Messages,
    host: HostTime,
    constants: replicas.Constants = replicas.SHIPPED,
) -> replicas.Replicated:
    """As `replicas.replicated`, of ranks that share: every pass may hide messages, as far as the lower bound goes."""
    waits = constants.straggle * math.log2(devices)
    share = sent.each.seconds / alone_s.median
    exposed = sent.times * alone_s.median * replicas.exposed(share, constants) + sent.after_s
    added = host.added_s(step_s.median) / step_s.median
    ratio = 1 + exposed / step_s.median + waits + added
    least = 1 + added + sent.times * max(sent.each.low_s - alone_s.median, 0.0) / step_s.median
    most = sent.times * sent.each.high_s + sent.after_s * sent.each.high_s / max(sent.each.seconds, 1e-12)
    most = 1 + constants.exposed * most / step_s.median + waits + added + host.streamed_s / step_s.median
    unmeasured = tuple(float(side[SPREAD.causes.index("framework")]) for side in (SPREAD.low, SPREAD.high))
    low = replicas.joined(math.log(step_s.median / step_s.low), math.log(ratio / least), constants.low, unmeasured[0])
    high = replicas.joined(math.log(step_s.high / step_s.median), math.log(most / ratio), constants.high, unmeasured[1])
    middle = step_s.median * ratio
    return replicas.Replicated(
        Interval(middle, middle * math.exp(-low), middle * math.exp(high), "s"),
        exposed,
        waits * step_s.median,
        (UNMEASURED, *sent.each.reasons),
    )
