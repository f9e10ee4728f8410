"""What an artefact's corpus has of a device: which records its predictions use, and how many they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from perfpass.late import dataclass

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.predictors.way import Way

# Stands for the release of records that state none; their dates say 1.0 to 1.7.
UNSTATED_TORCH = "1.7"
# A leave that libraries may take in fp32, which no run that trees learn from states: with it nothing is slower.
FASTER_FP32 = "tf32"
# Of the batch sizes that were measured, one in the middle.
_USUAL_BATCH = 64


def learned_in(way: Way) -> Way:
    """The way whose runs speak of this one."""
    return replace(way, precision="fp32") if way.precision == FASTER_FP32 else way


def count(entries: Sequence[Mapping[str, Any]]) -> int:
    """Number of records."""
    return sum(entry["rows"] for entry in entries)


@dataclass(frozen=True)
class Recorded:
    """``measured``: by device, its entries by precision, runtime and layout, with the range of batch sizes of each.
    ``batch``: that range by kind of device. ``known_rows``: records from which on a device is known.
    """

    measured: Mapping[str, Sequence[dict[str, Any]]]
    batch: Mapping[str, tuple[int, int]]
    known_rows: int

    def of(self, way: Way) -> dict[str, Any] | None:
        """What the corpus has on this device at this precision, runtime and layout; None where it has nothing."""
        asked = (learned_in(way).precision, way.runtime, way.layout)
        for entry in self.entries(way.device):
            if (entry["precision"], entry["runtime"], entry["layout"]) == asked:
                return entry
        return None

    def batches(self, way: Way) -> tuple[int, int]:
        """The least and the largest batch measured in this way, or on any device of the kind."""
        found = self.of(way)
        least, most = found["batch"] if found else self.batch[way.device.kind]
        return least, most

    def rows(self, device: Device) -> int:
        """Number of records on the device that its predictions use."""
        return count(self.entries(device))

    def entries(self, device: Device) -> Sequence[dict[str, Any]]:
        """What the corpus has of the device, by precision, runtime and layout, as far as predictions use it."""
        entries = self.measured.get(device.id, ())
        return () if entries and self.as_twin(device) else entries

    def as_twin(self, device: Device) -> tuple[str, ...]:
        """Names of the boards that a device is answered as, whose few records it would have beside them; mostly none.

        Boards of one product have one chip. With too few records to be known, one of them would be answered by its
        laboratory's old release and single batch size, and the others by what ships: 34 ms beside 19 for ResNet-50.
        """
        if count(self.measured.get(device.id, ())) >= self.known_rows:
            return ()
        from perfpass.devices.product import twins

        return tuple(board.name for board in twins(device) if board.id not in self.measured)


def usual_batch(between: tuple[int, int]) -> int:
    """Of the batch sizes that were measured, one in the middle."""
    least, most = between
    return min(max(_USUAL_BATCH, least), most)
