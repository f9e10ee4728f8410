"""MIG geometry: the profiles of a GPU, where instances may stand, and which combinations fit together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path

from perfpass.errors import ArgumentError, DeviceError
from perfpass.late import dataclass
from perfpass.toml_table import parse


@dataclass(frozen=True)
class Engines:
    """What ``nvidia-smi mig -lgip`` counts beside SMs: CE, DEC (NVDEC), ENC (NVENC), JPEG and OFA."""

    copy: int
    decoders: int
    encoders: int
    jpeg: int
    optical_flow: int

    @property
    def media(self) -> tuple[int, int, int, int]:
        """Those that a GPU has few of, which its instances divide among them; copy engines go with the slices."""
        return self.decoders, self.encoders, self.jpeg, self.optical_flow

    def to_dict(self) -> dict[str, int]:
        """Strict JSON."""
        return asdict(self)


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
    engines: Engines

    def mask(self, start: int) -> int:
        """The memory slices that an instance takes from ``start`` on, as a bit set."""
        return ((1 << self.memory_slices) - 1) << start


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

    @property
    def plain(self) -> tuple[MigProfile, ...]:
        """The profiles without graphics and with no more media engines than they must have, the smallest first."""
        names = {p.name: p for p in self.profiles if "+" not in p.name}
        kept = [
            p for p in names.values()
            if p.name.removesuffix("-me") == p.name
            or (other := names.get(p.name.removesuffix("-me"))) is None
            or other.max_instances < p.max_instances
        ]  # fmt: skip
        return tuple(sorted(kept, key=lambda p: (p.memory_bytes, p.compute_slices, -p.max_instances)))

    def place(
        self, names: Sequence[str], standing: Sequence[tuple[str, int]] = ()
    ) -> tuple[tuple[str, int], ...] | None:
        """First memory slice of each instance so that all stand together, or None where they do not fit.

        ``standing``: instances (profile, first memory slice) that are there already and stay where they are.

        Instances may not overlap in memory slices, may not need more compute slices or media engines than there are,
        and a profile may not occur more often than the driver allows (NVIDIA MIG user guide, "List GPU instance
        profiles"). Every instance needs at least one slice, so more names than slices never fit.
        """
        if not names:
            raise ArgumentError("an empty list of MIG profiles; give at least one")
        wanted = [self.profile(name) for name in names]
        there = [(self.profile(name), start) for name, start in standing]
        if len(wanted) > self.compute_slices or self._beyond([*wanted, *(p for p, _ in there)]):
            return None
        order = sorted(range(len(wanted)), key=lambda i: -wanted[i].memory_slices)
        taken = sum(profile.mask(start) for profile, start in there)
        starts = _search([wanted[i] for i in order], taken)
        if starts is None:
            return None
        placed = dict(zip(order, starts, strict=True))
        return tuple((wanted[i].name, placed[i]) for i in range(len(wanted)))

    def fault(self, placed: Sequence[tuple[str, int]]) -> str:
        """What keeps instances (profile, first memory slice) from standing together, in words; empty where they do.

        Raises DeviceError for a profile that the GPU does not have.
        """
        taken = 0
        for name, start in placed:
            profile = self.profile(name)
            if start not in profile.starts:
                return f"{profile.name} may not start at {start}, but at {', '.join(map(str, profile.starts))}"
            if taken & profile.mask(start):
                return f"{profile.name} at {start} stands where another instance does"
            taken |= profile.mask(start)
        return self._beyond([self.profile(name) for name, _ in placed])

    def _beyond(self, wanted: Sequence[MigProfile]) -> str:
        """What instances need more of than the GPU has, wherever they stand; empty where it is enough."""
        if (slices := sum(p.compute_slices for p in wanted)) > self.compute_slices:
            return f"they take {slices} compute slices of {self.compute_slices}"
        for profile in set(wanted):
            if sum(q is profile for q in wanted) > profile.max_instances:
                return f"more than {profile.max_instances} of {profile.name}"
        whole = max(self.profiles, key=lambda p: p.memory_slices).engines.media
        if any(sum(used) > there for *used, there in zip(*(p.engines.media for p in wanted), whole, strict=True)):
            return "they take more media engines than the GPU has"
        return ""


def _search(wanted: Sequence[MigProfile], taken: int) -> list[int] | None:
    """Backtracking over placements; ``taken`` is a bit set of memory slices. At most 7 instances of 7 starts."""
    if not wanted:
        return []
    first = wanted[0]
    for start in first.starts:
        if not taken & first.mask(start):
            rest = _search(wanted[1:], taken | first.mask(start))
            if rest is not None:
                return [start, *rest]
    return None


@cache
def _texts() -> dict[str, str]:
    """The TOML text of each geometry by its key: of mig.toml only what is asked for is parsed."""
    text = Path(__file__).with_name("mig.toml").read_text(encoding="utf-8")
    _, *found = re.split(r"^\[geometry\.(.+?)\].*$", text, flags=re.MULTILINE)
    return dict(zip(found[::2], found[1::2], strict=True))


@cache
def geometry(name: str) -> MigGeometry:
    """A geometry by its key in mig.toml. Raises DeviceError."""
    if name not in _texts():
        raise DeviceError(f"unknown MIG geometry {name!r}; known are {', '.join(geometry_names())}")
    row = parse(_texts()[name])
    return MigGeometry(
        id=name,
        compute_slices=row["compute_slices"],
        memory_slices=row["memory_slices"],
        listing=row["listing"],
        profiles=tuple(
            MigProfile(profile, compute, memory, sms, mib << 20, instances, tuple(starts), Engines(*engines))
            for profile, compute, memory, sms, mib, instances, starts, engines in row["profiles"]
        ),
    )


def geometry_names() -> tuple[str, ...]:
    """The keys of all known geometries."""
    return tuple(_texts())
