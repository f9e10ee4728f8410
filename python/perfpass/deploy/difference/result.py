"""A difference as text, JSON and the forms that tools read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perfpass.deploy.difference import junit, markdown, sarif, text
from perfpass.deploy.difference.found import Found

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Difference(Found):
    """What `perfpass.diff` found. ``print(difference)`` gives a table, ``to_dict()`` strict JSON."""

    @property
    def headline(self) -> str:
        """The answer in one sentence."""
        return text.headline(self)

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
        return markdown.markdown(self)

    def to_junit(self) -> str:
        """JUnit XML: a test case for each limit on each device."""
        return junit.junit([self])

    def to_sarif(self) -> dict[str, Any]:
        """SARIF 2.1.0: a result for each limit on each device."""
        return sarif.sarif([self])

    def __str__(self) -> str:
        return text.table(self)
