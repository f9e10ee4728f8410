"""Whether a predicted run fits into its device, and what would help where it does not."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from perfpass.decision import FitAnswer, fits
from perfpass.devices import Device
from perfpass.prediction import Interval, MemoryVerdict, Prediction, Support
from perfpass.predictors.memory.allowance import driver_bytes

if TYPE_CHECKING:
    from perfpass.predictors.relative.question import Asked
    from perfpass.predictors.remedies import MemoryOf


def judged(found: Prediction, device: Device, memory: MemoryOf, *, batch_is_free: bool, asked: Asked) -> Prediction:
    """``found`` with its verdict on the memory of the device, and what was ``asked``.

    ``memory`` gives what one process has in use with one thing changed; it is asked only where the run may not fit,
    and of another batch only where ``batch_is_free`` to set.
    """
    processes = found.workload.get("processes") or 1
    peak = together(found.peak_memory_bytes, processes, driver_bytes(device))
    answer = fits(peak, device.usable_bytes)
    verdict = MemoryVerdict(
        fits=answer,
        needed_bytes=int(peak.median),
        needed_high_bytes=int(peak.high),
        available_bytes=device.usable_bytes,
        remedies=() if answer == "yes" else _remedies(found, processes, device, memory, batch_is_free),
        probability=peak.probability_fits(device.usable_bytes),
    )
    support = found.support
    if answer != "yes":
        support = Support(support.level, (*support.reasons, _reason(answer)))
    if device.unread:
        support = support.at_most("near", device.unread)
    return replace(found, memory_verdict=verdict, support=support, asked=asked)


def together(one: Interval, processes: int, driver: float) -> Interval:
    """Memory in use of all processes: what the driver keeps for itself is there once."""
    more = (processes - 1) * driver
    low, median, high = (processes * value - more for value in (one.low, one.median, one.high))
    return Interval(median, min(max(low, 0.0), median), high, one.unit, one.coverage)


def _reason(answer: FitAnswer) -> str:
    if answer == "no":
        return "it does not fit: the figures are those of the device with enough memory"
    return "it may not fit into the memory of the device"


def _remedies(
    found: Prediction, processes: int, device: Device, memory: MemoryOf, batch_is_free: bool
) -> tuple[str, ...]:
    # Imported here: most questions fit.
    from perfpass.predictors import remedies

    on, workload = device, found.workload

    @cache
    def here(batch: int | None, precision: str | None) -> Interval:
        """Asked once each: to record a step of training takes seconds."""
        return memory(batch=batch, precision=precision)

    def of_all(*, device: Device | None = None, batch: int | None = None, precision: str | None = None) -> Interval:
        one = here(batch, precision) if device is None else memory(device=device, batch=batch, precision=precision)
        return together(one, processes, driver_bytes(device or on))

    trains = workload["mode"] == "training"
    asked = remedies.Question(
        of_all,
        device,
        int(workload["batch"]) if batch_is_free else None,
        workload["precision"],
        training=trains,
        slow=trains,
    )
    fewer = next((n for n in range(processes - 1, 0, -1) if _fit_together(found, n, device)), None)
    said = (f"{fewer} process{'es' * (fewer > 1)}",) if fewer is not None else ()
    return (*said, *remedies.in_words(remedies.changes(asked)))


def _fit_together(found: Prediction, processes: int, device: Device) -> bool:
    return fits(together(found.peak_memory_bytes, processes, driver_bytes(device)), device.usable_bytes) == "yes"
