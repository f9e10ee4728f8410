"""What `diff` found: the ratios, what changed, and whether the limits hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from perfpass.deploy.difference.ratio import Ratio, Verdict
from perfpass.graph.changes import Changes
from perfpass.prediction import Support

Answer = Literal["held", "broken", "cannot say"]
EXIT = {"held": 0, "broken": 1, "cannot say": 2}


@dataclass(frozen=True)
class OnDevice:
    """Both models on one device: the ratios, and milliseconds by class of operator, old and new.

    ``support``: how far measurements stand behind either prediction. ``same_classes``: where operators differ and both
    models run alike, the classes of which none does, whose times are told otherwise by what stands beside them.
    """

    device: str
    name: str
    batch: int
    ratios: tuple[Ratio, ...]
    by_class: dict[str, tuple[float, float]] = field(hash=False)
    support: Support
    same_classes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return {
            "device": self.device,
            "name": self.name,
            "batch": self.batch,
            "ratios": {ratio.metric: ratio.to_dict() for ratio in self.ratios},
            "latency_ms_by_class": {
                name: {"old": old, "new": new} for name, (old, new) in self.by_class.items()
            },
            "same_classes": list(self.same_classes),
            "support": self.support.to_dict(),
        }  # fmt: skip


@dataclass(frozen=True)
class Found:
    """From one model to another.

    ``workload`` is how both run, ``change`` what is otherwise for the new one. ``exact``: ratios of what is counted;
    ``devices``: those of what is predicted. ``verdicts``: a limit each, on each device.
    """

    old: str
    new: str
    workload: dict[str, Any] = field(hash=False)
    change: dict[str, Any] = field(hash=False)
    changes: Changes
    exact: tuple[Ratio, ...]
    devices: tuple[OnDevice, ...]
    verdicts: tuple[Verdict, ...]

    @property
    def answer(self) -> Answer:
        """Broken where one limit is, else what cannot be said where one cannot; held otherwise, and without limits."""
        found = {verdict.answer for verdict in self.verdicts}
        return "broken" if "broken" in found else "cannot say" if "cannot say" in found else "held"

    @property
    def exit_status(self) -> int:
        """0 within limits, 1 a limit broken, 2 cannot say."""
        return EXIT[self.answer]

    @property
    def same(self) -> bool:
        """Whether nothing changed that costs anything."""
        ratios = [*self.exact, *(ratio for on in self.devices for ratio in on.ratios)]
        return not self.changes and all(ratio.exact and ratio.log_ratio == 0.0 for ratio in ratios)
