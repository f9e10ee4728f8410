"""Boards of one product: the same chip at the same clock, in another form or with other memory."""

from __future__ import annotations

import re
from functools import lru_cache

from perfpass.devices.shipped import shipped
from perfpass.devices.spec import Device

# How an id ends where a product has several boards: "a100" in "a100-sxm4-40gb" and "a100-pcie-80gb".
_BOARD = re.compile(r"-(?:sxm\d*|pcie|nvl|dgxs|fhhl)-\d+gb$")


def twins(found: Device) -> tuple[Device, ...]:
    """The other shipped boards of the product of ``found`` that have its chip: as many SMs at the same clock.

    They differ in memory, links and power limit. A board with the chip under another product's name (TITAN RTX and
    Quadro RTX 6000) is none, nor is a slice.
    """
    return _of_chip(found.id, _chip(found))


@lru_cache(maxsize=256)
def _of_chip(board: str, chip: tuple[str, int, float]) -> tuple[Device, ...]:
    return tuple(one for one in map(shipped().parse, _ids(board)) if _chip(one) == chip)


def _ids(board: str) -> tuple[str, ...]:
    end = _BOARD.search(board)
    if end is None:
        return ()
    product = board[: end.start()]
    return tuple(key for key in shipped().names if key != board and _BOARD.sub("", key) == product != key)


def same_chip(one: Device, other: Device) -> bool:
    """Whether two boards have as many SMs of one architecture at the same clock, whatever they are sold as."""
    return _chip(one) == _chip(other)


def _chip(board: Device) -> tuple[str, int, float]:
    return board.architecture, board.sm_count, board.clock_hz
