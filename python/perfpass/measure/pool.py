"""What a campaign asks of workers, be they processes of this machine (`local`) or actors of a Ray cluster
(`cluster`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from perfpass.measure import configuration


@dataclass(frozen=True)
class Measured:
    """A worker has measured; ``record`` may also tell of a failure of the configuration."""

    worker: str
    record: dict[str, Any]


@dataclass(frozen=True)
class Died:
    """A worker ended in the middle of a measurement."""

    worker: str
    reason: str


@dataclass(frozen=True)
class TimedOut:
    """A measurement took longer than the protocol allows; its worker was killed."""

    worker: str


Answer = Measured | Died | TimedOut


class Pool(Protocol):
    """Workers by name. A worker measures one configuration at a time; one that died is replaced under its name."""

    def facts(self) -> dict[str, dict[str, Any]]:
        """What every worker runs on; ``id`` is equal for workers whose records are interchangeable."""

    def describe(self, name: str) -> dict[str, Any]:
        """The facts of a worker with its measured capability."""

    def submit(self, name: str, configuration: configuration.Configuration, protocol: configuration.Protocol) -> None:
        """Starts a measurement on an idle worker."""

    def collect(self) -> list[Answer]:
        """Waits for at least one answer."""

    def close(self) -> None:
        """Ends all workers."""
