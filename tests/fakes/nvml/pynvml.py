"""nvidia-ml-py as a machine with one GPU answers: the boundary of perfpass.measure.nvml, for machines without a GPU.

The board draws 300 W; its energy counter moves in steps of 20 ms, as real ones do. `GPU-limited` lacks the counter and
the memory per process, `MIG-...` is a slice, `GPU-partitioned` a board with one slice.
"""

from __future__ import annotations

import time
from types import SimpleNamespace

NVML_CLOCK_SM = 1
NVML_CLOCK_MEM = 2
NVML_TEMPERATURE_GPU = 0
POWER_W = 300.0
STEP_S = 0.02


class NVMLError(Exception):
    pass


def nvmlInit():
    pass


def nvmlShutdown():
    pass


def nvmlDeviceGetHandleByUUID(uuid):
    if not uuid.startswith(("GPU-", "MIG-")) or uuid == "GPU-absent":
        raise NVMLError("Not Found")
    return uuid


def nvmlDeviceGetHandleByIndex(index):
    return f"GPU-{index}"


def nvmlDeviceGetMigMode(handle):
    if handle != "GPU-partitioned":
        raise NVMLError("Not Supported")
    return [1, 1]


def nvmlDeviceGetMaxMigDeviceCount(handle):
    return 7


def nvmlDeviceGetMigDeviceHandleByIndex(handle, index):
    if index != 2:
        raise NVMLError("Not Found")
    return "MIG-third"


def nvmlDeviceGetUUID(handle):
    return handle


def nvmlDeviceIsMigDeviceHandle(handle):
    return handle.startswith("MIG-")


def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle):
    return "GPU-parent"


def nvmlDeviceGetTotalEnergyConsumption(handle):
    if handle == "GPU-limited":
        raise NVMLError("Not Supported")
    return int(time.monotonic() // STEP_S * STEP_S * POWER_W * 1e3)


def nvmlDeviceGetPowerUsage(handle):
    return int(POWER_W * 1e3)


def nvmlDeviceGetClockInfo(handle, clock):
    return 1980


def nvmlDeviceGetMaxClockInfo(handle, clock):
    return 1980 if clock == NVML_CLOCK_SM else 2619


def nvmlDeviceGetTemperature(handle, sensor):
    return 55


def nvmlDeviceGetMemoryInfo(handle):
    return SimpleNamespace(used=3 * 2**30, total=(10 if handle.startswith("MIG-") else 80) * 2**30)


def nvmlDeviceGetCurrentClocksEventReasons(handle):
    return 0x01 | 0x04


def nvmlDeviceGetComputeRunningProcesses(handle):
    if handle == "GPU-limited":
        return [SimpleNamespace(pid=1, usedGpuMemory=None)]
    return [SimpleNamespace(pid=1, usedGpuMemory=2**30)]


def nvmlDeviceGetEnforcedPowerLimit(handle):
    return 700_000


def nvmlDeviceGetName(handle):
    return b"NVIDIA H100 80GB HBM3 MIG 1g.10gb" if handle.startswith("MIG-") else "NVIDIA H100 80GB HBM3"


def nvmlSystemGetDriverVersion():
    return "580.159.04"
