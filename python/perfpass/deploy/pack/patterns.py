"""What one GPU can be cut into: the largest sets of MIG profiles that stand together, and which profile replaces which.

Every set of instances that stands on a GPU is part of a largest one, so a number of GPUs by largest set says all that a
fleet has to know of placements; where each instance starts follows from its set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from perfpass.deploy.pack.fleet import WHOLE
from perfpass.devices import Device, MigGeometry, MigProfile
from perfpass.devices.mig import geometry

Pattern = Mapping[str, int]  # instances by profile


def patterns(device: Device, mode: str, wanted: Sequence[str]) -> tuple[Pattern, ...]:
    """The largest sets of ``wanted`` profiles that one GPU holds; the whole GPU alone is a set too.

    ``mode``: "mig" leaves the whole GPU out, "whole" the profiles, "any" neither.
    """
    found: list[Pattern] = []
    if mode != "mig" and WHOLE in wanted:
        found.append({WHOLE: 1})
    if mode != "whole" and device.mig_geometry is not None and (names := sorted(set(wanted) - {WHOLE})):
        found += beside(device.mig_geometry, tuple(names))
    return tuple(found)


def beside(key: str, names: tuple[str, ...], standing: tuple[tuple[str, int], ...] = ()) -> list[Pattern]:
    """The largest sets of ``names`` of a geometry that find places beside instances (profile, first memory slice)."""
    return [dict(one) for one in _largest(key, names, standing)]


@lru_cache(maxsize=4096)
def _largest(
    key: str, names: tuple[str, ...], standing: tuple[tuple[str, int], ...]
) -> tuple[tuple[tuple[str, int], ...], ...]:
    """The sets, each as (profile, instances); those that are part of no other."""
    cut = geometry(key)
    all_sets: set[tuple[int, ...]] = {(0,) * len(names)} if standing else set()

    def grow(counts: tuple[int, ...], first: int) -> None:
        for i in range(first, len(names)):
            more = (*counts[:i], counts[i] + 1, *counts[i + 1 :])
            if cut.place([n for n, c in zip(names, more, strict=True) for _ in range(c)], standing) is not None:
                all_sets.add(more)
                grow(more, i)

    grow((0,) * len(names), 0)
    bigger = {
        tuple(c - (k == i) for k, c in enumerate(one)) for one in all_sets for i in range(len(names)) if one[i]
    }  # fmt: skip
    return tuple(
        tuple((n, c) for n, c in zip(names, one, strict=True) if c) for one in sorted(all_sets - bigger, reverse=True)
    )


@lru_cache(maxsize=4096)
def _replaces(small: MigProfile, large: MigProfile) -> bool:
    """Whether ``small`` stands wherever ``large`` does, and leaves no less to others."""
    return (
        small.compute_slices <= large.compute_slices
        and small.memory_slices <= large.memory_slices
        and set(large.starts) <= set(small.starts)
        and all(a <= b for a, b in zip(small.engines.media, large.engines.media, strict=True))
    )


def replaces(cut: MigGeometry, small: str, large: str) -> bool:
    """Whether an instance of ``small`` can take the place of one of ``large`` in every set that the GPU holds.

    The driver's limit on instances of a profile may stand against it: it does not where ``small`` may occur as often
    as memory slices allow.
    """
    a, b = cut.profile(small), cut.profile(large)
    often = a.max_instances >= min(len(a.starts), cut.compute_slices // a.compute_slices)
    return a is b or (often and _replaces(a, b))
