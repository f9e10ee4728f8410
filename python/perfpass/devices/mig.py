"""MIG geometry: the profiles of a GPU, where instances may stand, and which combinations fit together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from perfpass.errors import ArgumentError, DeviceError
from perfpass.toml_table import parse


@dataclass(frozen=True)
class MigProfile:
    """One row of ``nvidia-smi mig -lgip``; ``memory_bytes`` is what a program sees, ``starts`` are memory slices."""

    name: str
    compute_slices: int
    memory_slices: int
    sm_count: int
    memory_bytes: int
    max_instances: int
    starts: tuple[int, ...]


@dataclass(frozen=True)
class MigGeometry:
    """The profiles of one GPU. ``listing`` says where SMs and memory come from ("by-rule": estimated, see mig.toml)."""

    id: str
    compute_slices: int
    memory_slices: int
    listing: str
    profiles: tuple[MigProfile, ...]

    def profile(self, name: str) -> MigProfile:
        """The profile of a name ("1g.10gb", "MIG 1g.10gb"). Raises DeviceError."""
        wanted = name.strip().lower().removeprefix("mig").strip(" -")
        for profile in self.profiles:
            if profile.name == wanted:
                return profile
        known = ", ".join(p.name for p in self.profiles)
        raise DeviceError(f"unknown MIG profile {name!r}; this GPU has {known}")

    def place(self, names: Sequence[str]) -> tuple[tuple[str, int], ...] | None:
        """First memory slice of each instance so that all stand together, or None where they do not fit.

        Instances may not overlap in memory slices, may not need more compute slices than there are, and a profile may
        not occur more often than the driver allows (NVIDIA MIG user guide, "List GPU instance profiles"). Every
        instance needs at least one slice, so more names than slices never fit.
        """
        if not names:
            raise ArgumentError("an empty list of MIG profiles; give at least one")
        wanted = [self.profile(name) for name in names]
        if len(wanted) > self.compute_slices or sum(p.compute_slices for p in wanted) > self.compute_slices:
            return None
        if any(sum(q is p for q in wanted) > p.max_instances for p in wanted):
            return None
        # Media engines are one set: a single instance of all "+me" profiles together can hold it.
        if sum(p.name.endswith("+me") for p in wanted) > 1:
            return None
        order = sorted(range(len(wanted)), key=lambda i: -wanted[i].memory_slices)
        starts = _search([wanted[i] for i in order], 0)
        if starts is None:
            return None
        placed = dict(zip(order, starts, strict=True))
        return tuple((wanted[i].name, placed[i]) for i in range(len(wanted)))


def _search(wanted: Sequence[MigProfile], taken: int) -> list[int] | None:
    """Backtracking over placements; ``taken`` is a bit set of memory slices. At most 7 instances of 7 starts."""
    if not wanted:
        return []
    first = wanted[0]
    width = (1 << first.memory_slices) - 1
    for start in first.starts:
        if not taken & (width << start):
            rest = _search(wanted[1:], taken | (width << start))
            if rest is not None:
                return [start, *rest]
    return None


@cache
def _geometries() -> dict[str, MigGeometry]:
    document = parse(Path(__file__).with_name("mig.toml").read_text(encoding="utf-8"))
    return {
        key: MigGeometry(
            id=key,
            compute_slices=row["compute_slices"],
            memory_slices=row["memory_slices"],
            listing=row["listing"],
            profiles=tuple(
                MigProfile(name, compute, memory, sms, mib << 20, instances, tuple(starts))
                for name, compute, memory, sms, mib, instances, starts in row["profiles"]
            ),
        )
        for key, row in document["geometry"].items()
    }


def geometry(name: str) -> MigGeometry:
    """A geometry by its key in mig.toml. Raises DeviceError."""
    try:
        return _geometries()[name]
    except KeyError:
        raise DeviceError(f"unknown MIG geometry {name!r}; known are {', '.join(geometry_names())}") from None


def geometry_names() -> tuple[str, ...]:
    """The keys of all known geometries."""
    return tuple(_geometries())
