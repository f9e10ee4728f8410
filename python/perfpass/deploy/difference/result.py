"""What `diff` found: the ratios, what changed, whether the limits hold; as text, JSON and the forms that tools read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from perfpass.deploy.difference.ratio import Ratio, Verdict
from perfpass.graph.changes import Changes
from perfpass.prediction import Support

SCHEMA_VERSION = 1
Answer = Literal["held", "broken", "cannot say"]
EXIT = {"held": 0, "broken": 1, "cannot say": 2}


@dataclass(frozen=True)
class OnDevice:
    """Both models on one device: the ratios, and milliseconds by class of operator, old and new.

    ``support``: how far measurements stand behind either prediction.
    """

    device: str
    name: str
    batch: int
    ratios: tuple[Ratio, ...]
    by_class: dict[str, tuple[float, float]] = field(hash=False)
    support: Support

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
            "support": self.support.to_dict(),
        }  # fmt: skip


@dataclass(frozen=True)
class Difference:
    """From one model to another. ``print(difference)`` gives a table, ``to_dict()`` strict JSON.

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

    @property
    def headline(self) -> str:
        """The answer in one sentence."""
        from perfpass.deploy.difference.text import headline

        return headline(self)

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON, with its ``schema_version``."""
        return {
            "schema_version": SCHEMA_VERSION,
            "old": self.old,
            "new": self.new,
            "headline": self.headline,
            "answer": self.answer,
            "same": self.same,
            "workload": self.workload,
            "change": self.change,
            "exact": {ratio.metric: ratio.to_dict() for ratio in self.exact},
            "devices": [on.to_dict() for on in self.devices],
            "limits": [verdict.to_dict() for verdict in self.verdicts],
            "changes": self.changes.to_dict(),
        }

    def to_markdown(self) -> str:
        """For a comment on a pull request, or a job's summary."""
        from perfpass.deploy.difference.markdown import markdown

        return markdown(self)

    def to_junit(self) -> str:
        """JUnit XML: a test case for each limit on each device."""
        from perfpass.deploy.difference.junit import junit

        return junit([self])

    def to_sarif(self) -> dict[str, Any]:
        """SARIF 2.1.0: a result for each limit on each device."""
        from perfpass.deploy.difference.sarif import sarif

        return sarif([self])

    def __str__(self) -> str:
        from perfpass.deploy.difference.text import table

        return table(self)
