"""The machine and the software of a measurement, and what the machine was measured to be capable of."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import perfpass
from perfpass.devices import device as catalogue_device
from perfpass.errors import DeviceError, PerfPassError, UnsupportedError
from perfpass.measure.configuration import digest
from perfpass.measure.nvml import Gpu

_PACKAGES = (
    ("torch", ("torch",)),
    ("torchvision", ("torchvision",)),
    ("timm", ("timm",)),
    ("transformers", ("transformers",)),
    ("onnxruntime", ("onnxruntime", "onnxruntime-gpu")),
    ("openvino", ("openvino",)),
    ("litert", ("ai-edge-litert",)),
    ("tvm", ("apache-tvm", "xtc-tvm-python-bindings")),
    ("triton", ("triton",)),
    ("numpy", ("numpy",)),
)
# Sides of the square matrices and sizes of the copies: large enough that one call takes some milliseconds.
_GEMM_SIDE = {"cpu": 2048, "cuda": 8192}
# A product of this side says first how long one may be: on a GPU large enough to take longer than a launch.
_SMALL_SIDE = {"cpu": 256, "cuda": 2048}
_COPY_BYTES = {"cpu": 2**28, "cuda": 2**31}
_CALIBRATION_S = 0.5


def software() -> dict[str, str]:
    """Versions of what runs models here, by distribution; what is not installed is left out."""
    found = {"python": platform.python_version(), "perfpass": perfpass.__version__}
    for name, distributions in _PACKAGES:
        for distribution in distributions:
            try:
                found[name] = metadata.version(distribution)
                break
            except metadata.PackageNotFoundError:
                continue
    return found


def gather(device: str) -> dict[str, Any]:
    """Facts of ``device`` (cpu, cuda, cuda:N) as they stay for a whole campaign; `id` is their digest.

    Raises UnsupportedError for a CUDA device that torch does not see.
    """
    if device == "cpu":
        return of_host(None)
    return of_host(_cuda(device), _cuda_software())


def of_host(device: dict[str, Any] | None, versions: dict[str, str] | None = None) -> dict[str, Any]:
    """Facts of a described ``device`` (None: the CPU) in this host; ``versions`` of what `software` does not list."""
    host = _host()
    facts: dict[str, Any] = {
        "host": host,
        "software": software() | (versions or {}),
        "device": device or {"kind": "cpu", "name": host["cpu"], "catalogue_id": "host-cpu"},
    }
    return facts | {"id": digest(facts)}


def _host() -> dict[str, Any]:
    names = [
        line.partition(":")[2].strip()
        for line in _read("/proc/cpuinfo").splitlines()
        if line.startswith(("model name", "Model\t"))
    ]
    limits = container_limits()
    return {
        "cpu": names[0] if names else platform.machine(),
        "logical_cpus": os.cpu_count(),
        "usable_cpus": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        **({"container_limits": limits} if limits else {}),
    }


def container_limits(root: Path = Path("/sys/fs/cgroup")) -> dict[str, float]:
    """Limits of the control group (cgroup v2): CPUs and bytes; empty outside a limited container."""
    found: dict[str, float] = {}
    quota, _, period = _read(root / "cpu.max").strip().partition(" ")
    if quota.isdigit() and period.isdigit():
        found["cpus"] = int(quota) / int(period)
    memory = _read(root / "memory.max").strip()
    if memory.isdigit():
        found["memory_bytes"] = float(memory)
    return found


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def _cuda(device: str) -> dict[str, Any]:
    import torch

    if not torch.cuda.is_available():
        raise UnsupportedError(f"device {device}: torch {torch.__version__} sees no CUDA device")
    index = torch.device(device).index or 0
    if index >= torch.cuda.device_count():
        raise UnsupportedError(f"device {device}: torch sees {torch.cuda.device_count()} CUDA devices")
    properties = torch.cuda.get_device_properties(index)
    found: dict[str, Any] = {
        "kind": "cuda",
        "name": properties.name,
        "compute_capability": f"{properties.major}.{properties.minor}",
        "sm_count": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
    }
    try:
        gpu = Gpu(cuda_uuid(device))
        found |= {name: value for name, value in gpu.facts().items() if name != "memory_bytes"}
        gpu.close()
    except DeviceError as error:
        found["nvml"] = f"unavailable: {error}"
    name = found.get("mig_name", found["name"])
    try:
        found["catalogue_id"] = catalogue_device(str(name)).id
    except PerfPassError:
        found["catalogue_id"] = None
    return found


def cuda_uuid(device: str) -> str:
    """The UUID under which NVML knows a CUDA device, a MIG instance included."""
    import torch

    index = torch.device(device).index or 0
    uuid = str(torch.cuda.get_device_properties(index).uuid)
    # A process that was given a MIG instance sees it as its only device.
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    if index < len(visible) and visible[index].startswith("MIG-"):
        return visible[index]
    return uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"


def _cuda_software() -> dict[str, str]:
    import torch

    found = {"cuda": str(torch.version.cuda)}
    cudnn = torch.backends.cudnn.version()
    return found | ({"cudnn": str(cudnn)} if cudnn else {})


def capability(device: str) -> dict[str, Any]:
    """Measured GEMM rate per precision (FLOP/s) and copy bandwidth (bytes read plus written, B/s). Some seconds.

    Square products of side 2,048 (CPU) or 8,192 (CUDA) on random numbers, smaller ones where these are slow (bf16 on
    a CPU without instructions for it: 18 s each); copies of 256 MiB or 2 GiB; medians.
    """
    import torch

    kind = torch.device(device).type
    from perfpass.measure.runners.torch import set_math

    size = _COPY_BYTES[kind]
    rates: dict[str, float] = {}
    precisions = {"fp32": torch.float32, "bf16": torch.bfloat16}
    if kind == "cuda":
        precisions |= {"tf32": torch.float32, "fp16": torch.float16}
    for precision, dtype in precisions.items():
        set_math(precision)
        least = _SMALL_SIDE[kind]
        small = torch.randn(least, least, device=device).to(dtype)
        small_s = min(_once_s(lambda small=small: torch.mm(small, small), kind) for _ in range(3))  # type: ignore[misc]
        side = _side(_GEMM_SIDE[kind], least, small_s)
        a = torch.randn(side, side, device=device).to(dtype)
        b = torch.randn(side, side, device=device).to(dtype)
        out = torch.empty_like(a)
        seconds = _median_s(lambda a=a, b=b, out=out: torch.mm(a, b, out=out), kind)  # type: ignore[misc]
        rates[precision] = 2.0 * side**3 / seconds
    source = torch.randn(size // 4, device=device)
    target = torch.empty_like(source)
    bandwidth = 2.0 * size / _median_s(lambda: target.copy_(source), kind)
    if kind == "cuda":
        del source, target, a, b, out
        torch.cuda.empty_cache()
    return {"gemm_flop_s": rates, "copy_bytes_s": bandwidth}


def _side(most: int, least: int, small_s: float) -> int:
    """``most``, halved until a product takes no longer than a calibration, by ``small_s`` of one of side ``least``."""
    side = most
    while side > least and small_s * (side / least) ** 3 > _CALIBRATION_S:
        side //= 2
    return side


def _once_s(call: Callable[[], Any], kind: str) -> float:
    import torch

    start = time.perf_counter()
    call()
    if kind == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def _median_s(call: Callable[[], Any], kind: str) -> float:
    _once_s(call, kind)
    times: list[float] = []
    end = time.monotonic() + _CALIBRATION_S
    while time.monotonic() < end or len(times) < 5:
        times.append(_once_s(call, kind))
    return statistics.median(times)
