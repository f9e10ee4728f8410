"""Which devices hold a model, where none was asked: boards of the catalogue, the cheapest, and the nearest miss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from perfpass.deploy.fit.result import Board
from perfpass.deploy.money import price, read_prices
from perfpass.devices import Device
from perfpass.devices.larger import boards, nearest
from perfpass.errors import DeviceError

VENDOR = "h100-sxm5-80gb"  # whose vendor's devices are told first


@dataclass(frozen=True)
class Found:
    """``smallest``: the few with the least memory that hold it; ``boards``: all that do, the least memory first;
    ``below``: the largest board of the vendor told first that would run it, does not hold it and has less memory than
    they, else of another; None where there is none.
    """

    smallest: tuple[Device, ...]
    boards: tuple[Board, ...]
    below: Device | None


def anywhere(
    first: Device, holds: Callable[[Device], tuple[float, float] | None], runs: Callable[[Device], bool]
) -> Found:
    """Every board asked; ``holds`` gives the probability and the bytes where it fits, ``runs`` whether more memory is
    all that is missing. ``first``: of which vendor.
    """
    every = sorted(boards(first), key=lambda one: one.usable_bytes)
    held = {one.id: found for one in every if (found := holds(one)) is not None}
    smallest = tuple(one for one, _ in nearest(first, lambda one: held.get(one.id), 0))
    least = min((one.usable_bytes for one in smallest), default=float("inf"))
    less = [one for one in every if one.id not in held and one.usable_bytes < least]

    def order(one: Device) -> tuple[bool, int, float]:
        return one.vendor == first.vendor, one.usable_bytes, one.memory_bandwidth_bytes_s

    below = next((one for one in sorted(less, key=order, reverse=True) if runs(one)), None)
    prices = read_prices()
    known = []
    for one in every:
        if one.id in held:
            try:
                usd = price(one, prices).usd_per_hour
            except DeviceError:
                usd = None
            known.append(Board(one.id, one.usable_bytes, held[one.id][0], int(held[one.id][1]), usd))
    return Found(smallest, tuple(known), below)
