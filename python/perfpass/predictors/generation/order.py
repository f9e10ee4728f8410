"""The sizes on which generation is put in order, and the order of devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from perfpass.devices import Device
from perfpass.devices import device as find_device
from perfpass.devices.order import no_better
from perfpass.llm.costs import lacking
from perfpass.prediction import Interval
from perfpass.predictors.generation.features import ONE_SEQUENCE, Batch, link_bytes_s, memory, peak_flops
from perfpass.predictors.learned.order import between, in_order

# Powers of two where they were measured; what lies beyond follows from physics.
TOKENS = (1, 4, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384, 65_536, 10**7)
BATCHES = (*(2**i for i in range(9)), 1024, 8192, 65_536)


def growing(runtime: str) -> tuple[int, ...]:
    """Which axes are work: input tokens, output tokens, and batches but where they are prompt tokens at a time."""
    return (0, 1) if runtime in ONE_SEQUENCE else (0, 1, 2)


def alike(batch: Batch) -> Batch:
    """What all sizes of a batch share."""
    return replace(batch, batch=1, input_tokens=1, output_tokens=1)


def ordered(batch: Batch, measured_on: Sequence[str], find: Callable[[Batch], Interval]) -> Interval:
    """What ``find`` says of a batch, in order with what it says of the devices of ``measured_on``.

    A device that is behind another in no figure of the catalogue takes no longer.
    """
    known = [replace(batch, device=find_device(name), stack="") for name in measured_on if name != batch.device.id]
    known = [b for b in known if memory(b).fits and not lacking(b.device.peak_flops, b.precision)]
    known = [b for b in known if _no_better(b, batch) or _no_better(batch, b)]
    if not known:
        return find(batch)
    if batch.device.id in measured_on:
        known.append(batch)
    order = [[_no_better(b, a) for b in known] for a in known]
    found = [find(b) for b in known]
    # None is better known than another; one sequence for all sizes keeps the order of sizes.
    names = sorted(b.device.id for b in known)
    values = in_order(found, order, [float(names.index(b.device.id)) for b in known])
    if batch.device.id in measured_on:
        return values[-1]
    upper, lower = [_no_better(b, batch) for b in known], [_no_better(batch, b) for b in known]
    return between(find(batch), values, upper.__getitem__, lower.__getitem__)


def _no_better(one: Batch, other: Batch) -> bool:
    def rate(device: Device) -> float:
        return peak_flops(device, one.precision)

    def link(device: Device) -> float:
        return link_bytes_s(device, one.devices)

    return no_better(one.device, other.device, rate, *((link,) if one.devices > 1 else ()))
