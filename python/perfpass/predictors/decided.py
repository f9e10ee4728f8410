"""A prediction with the decision that follows from it: which limits it keeps, and which slices of its GPU would."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from perfpass.decision import Decision, Limits, Place
from perfpass.devices import Device
from perfpass.errors import DeviceError, UnsupportedError
from perfpass.prediction import Prediction
from perfpass.predictors.judged import together
from perfpass.predictors.memory.allowance import driver_bytes


def decided(
    found: Prediction, device: Device, limits: Limits | None, on: Callable[[Device], Prediction] | None
) -> Prediction:
    """``found``, predicted on ``device``, with its `Decision` under ``limits``; as it is where those are None.

    ``on`` predicts the same on a MIG slice of the device; None: slices are not asked.
    """
    if limits is None:
        return found
    slices = () if on is None else tuple(_slices(device, on))
    return replace(found, decision=Decision(limits, place_of(found, device), slices))


def place_of(found: Prediction, device: Device, instances: int = 1) -> Place:
    """The figures of a prediction on a device, or on one of so many ``instances`` that a GPU has."""
    processes = int(found.workload.get("processes") or 1)
    return Place(
        device=device.id,
        profile=device.mig_profile,
        instances_per_gpu=instances,
        memory_bytes=together(found.memory.in_use, processes, driver_bytes(device)),
        available_bytes=device.usable_bytes,
        latency_ms=found.latency_ms,
        throughput_per_s=found.throughput_per_s,
        energy_j=found.energy_j,
        support=found.support.level,
    )


def _slices(device: Device, on: Callable[[Device], Prediction]) -> Iterator[Place]:
    if device.mig is None or device.mig_profile is not None:
        return
    for profile in device.mig.plain:
        instance = device.mig_slice(profile.name)
        try:
            yield place_of(on(instance), instance, profile.max_instances)
        except (DeviceError, UnsupportedError):
            continue  # what cannot be asked of a slice is no way to run there
