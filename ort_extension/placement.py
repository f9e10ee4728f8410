"""Where a session will run, and which device of the catalogue that is: NVML for NVIDIA's providers, else this CPU."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from perfpass.devices import Device
from perfpass.devices import device as find_device
from perfpass.errors import DeviceError
from perfpass.measure.facts import container_limits
from perfpass.measure.nvml import Gpu

CPU = "CPUExecutionProvider"
# Providers that run on an NVIDIA GPU, and the runtime that perfpass predicts them as.
GPU_RUNTIMES = {
    "TensorrtExecutionProvider": "tensorrt",
    "NvTensorRTRTXExecutionProvider": "tensorrt",
    "CUDAExecutionProvider": "onnxruntime",
}


@dataclass(frozen=True)
class Placement:
    """The device that is predicted for. ``how`` says in a sentence where its name comes from.

    ``memory_bytes``: what a program can have of it, a container's limit included. ``runtime``: as `perfpass.predict`
    calls it.
    """

    device: Device
    how: str
    memory_bytes: int
    runtime: str


def asked_providers(
    providers: Any, provider_options: Any, available: Sequence[str]
) -> list[tuple[str, dict[str, Any]]]:
    """(name, options) of the providers that a session is given, those that onnxruntime has; what is odd is left out."""
    given = list(providers) if isinstance(providers, Sequence) else []
    options = list(provider_options) if isinstance(provider_options, Sequence) else []
    found: list[tuple[str, dict[str, Any]]] = []
    for index, entry in enumerate(given):
        name, own = entry if isinstance(entry, tuple) and len(entry) == 2 else (entry, {})
        if not own and index < len(options):
            own = options[index]
        if isinstance(name, str) and name in available:
            found.append((name, dict(own) if isinstance(own, dict) else {}))
    return found


def place(named: str | Device | None, asked: Sequence[tuple[str, dict[str, Any]]]) -> Placement:
    """The device to predict for: ``named``, or the one that the ``asked`` providers run on.

    Raises DeviceError for an unknown name, and for a GPU that NVML or the catalogue does not know.
    """
    first, options = asked[0] if asked else (CPU, {})
    runtime = GPU_RUNTIMES.get(first, "onnxruntime")
    if named is not None:
        device = find_device(named)
        how = f"{device.name}, as named"
        if device.id == "host-cpu":
            return _host(device, runtime, how)
        return Placement(device, how, device.usable_bytes, runtime)
    if first in GPU_RUNTIMES:
        facts, uuid = gpu_facts(gpu_index(options))
        device = in_catalogue(facts)
        part = f", MIG slice {device.mig_profile}" if device.mig_profile else ""
        return Placement(device, f"{device.name}, detected by NVML ({uuid}{part})", device.usable_bytes, runtime)
    device = _this_cpu()
    return _host(device, runtime, f"{device.name}, this machine's CPU ({device.sm_count} cores), detected")


@cache
def _this_cpu() -> Device:
    """Found once: it takes as long as reading a small model."""
    return find_device("cpu")


@cache
def _container_bytes() -> float | None:
    return container_limits().get("memory_bytes")


def _host(device: Device, runtime: str, how: str) -> Placement:
    limit = _container_bytes()
    if limit is not None and limit < device.usable_bytes:
        return Placement(device, f"{how}, in a container of {limit / 2**30:.2f} GiB", int(limit), runtime)
    return Placement(device, how, device.usable_bytes, runtime)


def gpu_index(options: dict[str, Any]) -> int:
    """CUDA's number of the GPU in a provider's options; 0 where they do not say."""
    with contextlib.suppress(TypeError, ValueError):
        return max(0, int(options.get("device_id", 0)))
    return 0


def gpu_facts(index: int) -> tuple[dict[str, Any], str]:
    """What NVML tells of the GPU that CUDA calls ``index``, and under which name it was asked.

    CUDA_VISIBLE_DEVICES is followed; without it NVML's order is taken for CUDA's, which holds where all GPUs are alike
    or CUDA_DEVICE_ORDER is PCI_BUS_ID. Raises DeviceError.
    """
    visible = [entry.strip() for entry in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if entry.strip()]
    entry = visible[index] if index < len(visible) else str(index)
    if visible and index >= len(visible):
        raise DeviceError(
            f"the session asks for GPU {index}, but CUDA_VISIBLE_DEVICES has {len(visible)}; change either"
        )
    gpu = Gpu(index=int(entry)) if entry.isdigit() else Gpu(entry)
    try:
        instance = gpu.first_instance()
        if instance is None:
            return gpu.facts(), f"GPU {entry}"
    finally:
        gpu.close()
    gpu = Gpu(instance)
    try:
        return gpu.facts(), f"GPU {entry}, instance {instance}"
    finally:
        gpu.close()


def in_catalogue(facts: dict[str, Any]) -> Device:
    """The device that NVML's ``facts`` describe. Raises DeviceError where the catalogue lacks it."""
    name = str(facts.get("mig_name") or facts.get("name", ""))
    try:
        return find_device(name)
    except DeviceError as error:
        raise DeviceError(f"NVML found {name!r}: {error}; or name the device of the session with device=") from error


def unlike(placement: Placement, providers: Sequence[str], gpu: int, threads: int, calibrated: bool) -> str | None:
    """Why runs of a session on ``providers`` cannot be compared with a prediction for ``placement``; None if they can.

    ``gpu``: CUDA's number of the GPU that the session uses. ``threads``: intra-op threads of the session, 0 for all. A
    ``calibrated`` prediction was learned from runs as they are, so its number of threads is that of the records.
    """
    device = placement.device
    runs_on = next((name for name in providers if name in GPU_RUNTIMES or name == CPU), None)
    if runs_on is None:
        return f"perfpass has no device for the providers {', '.join(providers)}"
    if runs_on == CPU:
        host = _this_cpu()
        if device.kind != "cpu":
            return f"the session runs on {host.name}; predicted is {device.name}"
        if device.id != host.id and not _is_named(device, host.name):
            return f"the session runs on {host.name}; predicted is {device.name}"
        if 0 < threads < host.sm_count and not calibrated:
            return f"the session uses {threads} of {host.sm_count} cores; predicted is the whole CPU"
        return None
    try:
        actual = in_catalogue(gpu_facts(gpu)[0])
    except DeviceError as error:
        return f"the GPU that the session runs on cannot be told: {error}"
    return None if actual.id == device.id else f"the session runs on {actual.name}; predicted is {device.name}"


def _is_named(device: Device, name: str) -> bool:
    try:
        return find_device(name).id == device.id
    except DeviceError:
        return False
