"""One NVIDIA GPU, or one MIG instance of it, as NVML tells of it. Units are converted here and nowhere else.

The library is nvidia-ml-py (`pynvml`), imported when a GPU is opened.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from perfpass.errors import DeviceError, missing_package

# Reasons that NVML names for clocks below the highest, and whether the run is then slower than the board can be.
# Source: nvml.h, nvmlClocksEventReason*.
_REASONS = {
    0x02: "clocks_setting",
    0x04: "power_cap",
    0x08: "hardware_slowdown",
    0x10: "sync_boost",
    0x20: "thermal_software",
    0x40: "thermal_hardware",
    0x80: "power_brake",
}


@dataclass(frozen=True)
class Sample:
    """One reading. NaN (or 0 for the reasons) where the board does not tell."""

    energy_j: float  # since the driver was loaded
    power_w: float
    sm_clock_hz: float
    temperature_c: float
    memory_used_bytes: float
    reasons: int


class Gpu:
    """An open GPU or MIG instance, by its UUID (``GPU-...`` or ``MIG-...``) or, without one, by its index.

    Energy and power belong to the whole board: for a MIG instance they are NaN, since no counter splits them.
    Raises DeviceError where nvidia-ml-py, the driver or the device is missing.
    """

    def __init__(self, uuid: str | None = None, index: int = 0) -> None:
        try:
            import pynvml
        except ImportError as error:
            raise DeviceError(str(missing_package(error, "measure", "reading energy and clocks"))) from error
        self._nvml: Any = pynvml
        try:
            pynvml.nvmlInit()
            if uuid is None:
                self._handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            else:
                self._handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        except pynvml.NVMLError as error:
            raise DeviceError(f"NVML cannot open GPU {uuid or index}: {error}") from error
        self.is_mig = bool(self._ask("nvmlDeviceIsMigDeviceHandle", default=False))
        self._board = self._ask("nvmlDeviceGetDeviceHandleFromMigDeviceHandle") if self.is_mig else self._handle

    def _ask(self, function: str, *arguments: Any, board: bool = False, default: Any = None) -> Any:
        """The library's answer, or ``default`` where this board or driver does not support the question."""
        call = getattr(self._nvml, function, None)
        if call is None:
            return default
        try:
            return call(self._board if board else self._handle, *arguments)
        except self._nvml.NVMLError:
            return default

    def sample(self) -> Sample:
        """What moves. Takes some tens of microseconds."""
        nvml = self._nvml
        energy_mj = None if self.is_mig else self._ask("nvmlDeviceGetTotalEnergyConsumption")
        power_mw = None if self.is_mig else self._ask("nvmlDeviceGetPowerUsage")
        clock_mhz = self._ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM, board=True)
        temperature = self._ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU, board=True)
        memory = self._ask("nvmlDeviceGetMemoryInfo")
        reasons = self._ask("nvmlDeviceGetCurrentClocksEventReasons", board=True)
        if reasons is None:
            reasons = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", board=True, default=0)
        return Sample(
            energy_j=math.nan if energy_mj is None else energy_mj / 1e3,
            power_w=math.nan if power_mw is None else power_mw / 1e3,
            sm_clock_hz=math.nan if clock_mhz is None else clock_mhz * 1e6,
            temperature_c=math.nan if temperature is None else float(temperature),
            memory_used_bytes=math.nan if memory is None else float(memory.used),
            reasons=int(reasons),
        )

    def process_memory_bytes(self, pid: int) -> int | None:
        """Device memory of one process as the driver accounts it; None where it does not (containers, often)."""
        for process in self._ask("nvmlDeviceGetComputeRunningProcesses", default=[]):
            if process.pid == pid and process.usedGpuMemory is not None:
                return int(process.usedGpuMemory)
        return None

    def facts(self) -> dict[str, Any]:
        """What stays: name, memory, limits, clocks, driver, MIG profile."""
        nvml = self._nvml
        memory = self._ask("nvmlDeviceGetMemoryInfo")
        limit_mw = self._ask("nvmlDeviceGetEnforcedPowerLimit", board=True)
        sm_mhz = self._ask("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_SM, board=True)
        memory_mhz = self._ask("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_MEM, board=True)
        facts = {
            "name": _text(self._ask("nvmlDeviceGetName", board=True, default="")),
            "mig_name": _text(self._ask("nvmlDeviceGetName", default="")) if self.is_mig else None,
            "memory_bytes": None if memory is None else int(memory.total),
            "power_limit_w": None if limit_mw is None else limit_mw / 1e3,
            "sm_clock_max_hz": None if sm_mhz is None else sm_mhz * 1e6,
            "memory_clock_max_hz": None if memory_mhz is None else memory_mhz * 1e6,
            "driver": _text(nvml.nvmlSystemGetDriverVersion()),
        }
        return {name: value for name, value in facts.items() if value is not None}

    def first_instance(self) -> str | None:
        """The UUID of a board's first MIG instance, which is all that CUDA shows of a board in MIG mode; else None."""
        mode = None if self.is_mig else self._ask("nvmlDeviceGetMigMode")
        if not mode or not mode[0]:
            return None
        for index in range(self._ask("nvmlDeviceGetMaxMigDeviceCount", default=0)):
            instance = self._ask("nvmlDeviceGetMigDeviceHandleByIndex", index)
            if instance is not None:
                return _text(self._nvml.nvmlDeviceGetUUID(instance))
        return None

    def close(self) -> None:
        """Gives the library back."""
        self._nvml.nvmlShutdown()


def reason_names(bits: int) -> list[str]:
    """The names of the reasons set in ``bits``, idle and the unknown ones left out."""
    return [name for bit, name in _REASONS.items() if bits & bit]


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
