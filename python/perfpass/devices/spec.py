"""Device: what one accelerator or CPU can do at most, every figure in SI units."""

from __future__ import annotations

from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from perfpass.errors import DeviceError
from perfpass.late import dataclass

if TYPE_CHECKING:
    from perfpass.devices.mig import MigGeometry

PRECISIONS: tuple[str, ...] = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4")

# Share of the power limit that a device draws while a program holds it and does nothing. No vendor publishes it. It is
# below the lowest mean power of any measured run, which is 13 % (P100, V100), 16 % (GB200), 17 % (A100 40 GB), 18 %
# (H200), 21 % (Quadro RTX 6000) and 23 % (B200) of the limit in the records of Zeus, MISO and aiconfigurator.
IDLE_SHARE_GPU = 0.12
IDLE_SHARE_CPU = 0.25

# What ECC takes of GDDR, which has no room of its own for check bits: nvidia-smi shows 15,360 of 16,384 MiB of a T4,
# 46,068 of 49,152 MiB of an L40S. What PyTorch calls total capacity when it runs out is this less the driver's share
# (14.56 GiB of a T4, 44.4 of an L40S, 21.99 of an A10G, 22.38 of a P40, 11.17 of half a K80).
INLINE_ECC_SHARE = 1 / 16

# Bytes of memory a cycle that one core of a CPU can ask for, however many channels there are.
CORE_BYTES_PER_CYCLE = 8.0

# How the title of a source begins where none was opened: the figure is from general knowledge.
UNREAD = "not read again"


@dataclass(frozen=True)
class Device:
    """One accelerator, one slice of it, one CPU, or some of its cores.

    ``peak_flops`` maps a precision of ``PRECISIONS`` to dense FLOP/s (OP/s for int8) at boost clock, of the tensor
    cores where the device has them, accumulating in fp32. ``sm_count`` counts streaming multiprocessors, compute units
    (AMD) or cores (CPU). ``pcie_bandwidth_bytes_s`` is one direction, ``nvlink_bandwidth_bytes_s`` both directions of
    all links (NVLink, Infinity Fabric, ports of Ethernet), as vendors state them; 0 where there is none.
    ``link_peers``: others that these lead to, a share to each; 0 where a switch gives any two of them all.
    ``link_group``: devices that a bridge joins, with nothing but PCIe beyond it; 0 where all of a node are joined.
    ``unified_memory``: it is the CPU's memory as well. ``inline_ecc``: check bits lie in the memory itself, and ECC is
    on as the board is sold.
    ``sources`` maps a figure to the title of its source; ``estimated`` names the figures that are not from a source,
    with the reason in ``notes``. ``read_as`` says what was understood where the name asked for was not the device's
    own: the instance type of a cloud, a number of devices; ``others`` are the ids of further devices that a name asked
    for could mean.
    """

    id: str
    name: str
    kind: str
    vendor: str
    architecture: str
    peak_flops: dict[str, float] = field(hash=False)
    memory_bytes: int
    memory_type: str
    memory_bandwidth_bytes_s: float
    l2_bytes: int
    sm_count: int
    clock_hz: float
    base_clock_hz: float
    power_limit_w: float
    idle_power_w: float
    pcie_bandwidth_bytes_s: float
    nvlink_bandwidth_bytes_s: float = 0.0
    link_peers: int = 0
    link_group: int = 0
    l3_bytes: int = 0
    launch_date: str | None = None
    compute_capability: tuple[int, int] | None = None
    registers_per_sm: int = 0
    shared_memory_per_sm_bytes: int = 0
    shared_memory_per_block_bytes: int = 0
    max_threads_per_sm: int = 0
    mig_geometry: str | None = None
    parent: str | None = None
    mig_profile: str | None = None
    unified_memory: bool = False
    inline_ecc: bool = False
    aliases: tuple[str, ...] = ()
    sources: dict[str, str] = field(default_factory=dict, hash=False)
    estimated: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    read_as: str = ""
    others: tuple[str, ...] = ()

    @property
    def mig(self) -> MigGeometry | None:
        """How the device can be partitioned; None where it cannot, and for a slice."""
        if self.mig_geometry is None:
            return None
        from perfpass.devices.mig import geometry

        return geometry(self.mig_geometry)

    @property
    def usable_bytes(self) -> int:
        """The memory without check bits that lie in it: one byte in 16 (`INLINE_ECC_SHARE`)."""
        return self.memory_bytes - int(INLINE_ECC_SHARE * self.memory_bytes) * self.inline_ecc

    @cached_property
    def unread(self) -> str:
        """Which figures were read in no source, as a reason for less support; empty where all were or are derived."""
        figures = [figure for figure, title in self.sources.items() if title.startswith(UNREAD)]
        return f"figures of {self.id} that were read in no source: {', '.join(figures)}" if figures else ""

    @property
    def is_gpu(self) -> bool:
        """Whether this is an accelerator (or a slice of one) and not a CPU."""
        return self.kind == "gpu"

    @property
    def has_link(self) -> bool:
        """Whether several of it can exchange what they work out; instances of MIG reach none of each other."""
        return self.mig_profile is None and (self.nvlink_bandwidth_bytes_s or self.pcie_bandwidth_bytes_s) > 0

    @property
    def is_machine(self) -> bool:
        """Whether it is a machine by itself, as a chip is that shares its memory with its CPU: others are reached over
        the network alone. Packages with stacked memory are not: a node has several.
        """
        return self.unified_memory and not self.memory_type.startswith("HBM")

    def peak(self, precision: str) -> float:
        """Dense peak FLOP/s in a precision. Raises DeviceError where the device does not have it."""
        try:
            return self.peak_flops[precision]
        except KeyError:
            raise DeviceError(
                f"{self.name} has no {precision} rate; choose one of {', '.join(self.peak_flops)}"
            ) from None

    def link_bytes_s(self, devices: int) -> float:
        """One direction of the links among ``devices`` of a node that work together; 0 where there is no link.

        More devices than a bridge joins have none: a ring through all of them goes at the pace of its slowest link.
        """
        if self.link_group and devices > self.link_group:
            return 0.0
        share = min(1.0, (devices - 1) / self.link_peers) if self.link_peers and devices > 1 else 1.0
        return share * self.nvlink_bandwidth_bytes_s / 2

    def mig_slice(self, profile: str) -> Device:
        """One MIG instance as a device: its share of SMs, memory, bandwidth and L2. Raises DeviceError.

        SMs and memory are what the driver lists for the profile; bandwidth and L2 go with the memory slices and PCIe
        with the compute slices (NVIDIA MIG user guide, "Concepts"). Power has no limit per instance: its share of SMs
        is taken and flagged as estimated. Instances see no NVLink.
        """
        geometry = self.mig
        if geometry is None:
            reason = f"it is the slice {self.mig_profile} already" if self.mig_profile else "it does not support MIG"
            raise DeviceError(f"{self.name} cannot be partitioned: {reason}; ask for the device without a profile")
        found = geometry.profile(profile)
        compute = found.sm_count / self.sm_count
        memory = found.memory_slices / geometry.memory_slices
        return replace(
            self,
            id=f"{self.id}:{found.name}",
            name=f"{self.name} MIG {found.name}",
            peak_flops={p: rate * compute for p, rate in self.peak_flops.items()},
            memory_bytes=found.memory_bytes,
            inline_ecc=False,  # the driver lists what a program sees
            memory_bandwidth_bytes_s=self.memory_bandwidth_bytes_s * memory,
            l2_bytes=int(self.l2_bytes * memory),
            sm_count=found.sm_count,
            power_limit_w=self.power_limit_w * compute,
            idle_power_w=self.idle_power_w * compute,
            pcie_bandwidth_bytes_s=self.pcie_bandwidth_bytes_s * found.compute_slices / geometry.compute_slices,
            nvlink_bandwidth_bytes_s=0.0,
            link_group=0,
            mig_geometry=None,
            parent=self.id,
            mig_profile=found.name,
            aliases=(),
            estimated=tuple(dict.fromkeys((*self.estimated, "power_limit_w", "idle_power_w"))),
            notes=(*self.notes, "power figures are the slice's share of SMs; the driver has no limit per instance"),
        )

    def of_threads(self, threads: int) -> Device:
        """The CPU as a runtime of so many threads has it, each on a core of its own; itself where all have one.

        Peaks, second caches and the power above idle are the cores' share, memory's bandwidth what they can ask for;
        the last cache is all theirs. Raises DeviceError for a GPU, and for no thread or more than cores.
        """
        if self.is_gpu:
            raise DeviceError(f"{self.name} is a GPU: a number of threads is of CPUs; leave {threads} out")
        if not 1 <= threads <= self.sm_count:
            raise DeviceError(
                f"{self.name} has {self.sm_count} cores, got {threads} threads; two threads of a core share its units: "
                f"ask for 1 to {self.sm_count}"
            )
        if threads == self.sm_count:
            return self
        share, clock = threads / self.sm_count, self.base_clock_hz or self.clock_hz
        asked = threads * CORE_BYTES_PER_CYCLE * clock or self.memory_bandwidth_bytes_s
        one = "1 thread on 1" if threads == 1 else f"{threads} threads on {threads}"
        return replace(
            self,
            id=f"{self.id}:{threads}",
            peak_flops={p: rate * share for p, rate in self.peak_flops.items()},
            memory_bandwidth_bytes_s=min(self.memory_bandwidth_bytes_s, asked),
            l2_bytes=int(self.l2_bytes * share),
            sm_count=threads,
            power_limit_w=self.idle_power_w + (self.power_limit_w - self.idle_power_w) * share,
            parent=self.id,
            aliases=(),
            estimated=tuple(dict.fromkeys((*self.estimated, "power_limit_w"))),
            read_as=f"{self.read_as or self.name}, {one} of its {self.sm_count} cores",
        )

    def to_dict(self) -> dict[str, Any]:
        """Every figure, as JSON types."""
        return {
            "id": self.id,
            "name": self.name,
            "kind": self.kind,
            "vendor": self.vendor,
            "architecture": self.architecture,
            "compute_capability": list(self.compute_capability) if self.compute_capability else None,
            "peak_flops": dict(self.peak_flops),
            "memory_bytes": self.memory_bytes,
            "memory_type": self.memory_type,
            "unified_memory": self.unified_memory,
            "inline_ecc": self.inline_ecc,
            "memory_bandwidth_bytes_s": self.memory_bandwidth_bytes_s,
            "l2_bytes": self.l2_bytes,
            "l3_bytes": self.l3_bytes,
            "sm_count": self.sm_count,
            "clock_hz": self.clock_hz,
            "base_clock_hz": self.base_clock_hz,
            "power_limit_w": self.power_limit_w,
            "idle_power_w": self.idle_power_w,
            "pcie_bandwidth_bytes_s": self.pcie_bandwidth_bytes_s,
            "nvlink_bandwidth_bytes_s": self.nvlink_bandwidth_bytes_s,
            "link_peers": self.link_peers,
            "link_group": self.link_group,
            "registers_per_sm": self.registers_per_sm,
            "shared_memory_per_sm_bytes": self.shared_memory_per_sm_bytes,
            "shared_memory_per_block_bytes": self.shared_memory_per_block_bytes,
            "max_threads_per_sm": self.max_threads_per_sm,
            "launch_date": self.launch_date,
            "mig_geometry": self.mig_geometry,
            "mig_profiles": [p.name for p in self.mig.profiles] if self.mig else [],
            "parent": self.parent,
            "mig_profile": self.mig_profile,
            "aliases": list(self.aliases),
            "sources": dict(self.sources),
            "estimated": list(self.estimated),
            "notes": list(self.notes),
            "read_as": self.read_as,
            "others": list(self.others),
        }
