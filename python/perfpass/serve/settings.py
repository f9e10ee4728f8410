"""What a server bounds: sizes, times, how much at once. Every limit is of one worker."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from perfpass.errors import ArgumentError
from perfpass.text import shown_value

_MIB = 1 << 20
LEAST_TOKEN = 16  # characters; a shorter one is guessed


@dataclass(frozen=True)
class Settings:
    """Limits of a server, and who may ask.

    ``body_mib``: the largest body, ``bodies_mib``: all that are held at once. ``question_seconds``: until an answer is
    there, waiting included; ``body_seconds``: until a body has come, or an answer has gone; ``head_seconds``: until the
    headers have; ``idle_seconds``: that a connection may be silent between requests. ``queue``: questions that wait for
    a thread; ``connections``: that are open. ``cache_mib`` of answers are kept. ``drain_seconds``: after SIGTERM, in
    which new connections are still answered; ``stop_seconds``: after these, in which the accepted ones are. ``token``:
    what `Authorization: Bearer` must carry, "" where anybody may ask.
    """

    body_mib: int = 128
    bodies_mib: int = 512
    question_seconds: float = 30.0
    body_seconds: float = 30.0
    head_seconds: float = 10.0
    idle_seconds: float = 30.0
    queue: int = 64
    connections: int = 1024
    cache_mib: int = 64
    drain_seconds: float = 1.0
    stop_seconds: float = 40.0
    token: str = ""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "token":
                continue
            least, most = _RANGE.get(field.name, (1, 1 << 20))
            whole = isinstance(field.default, int)
            if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
                raise ArgumentError(f"{field.name} {shown_value(value)}; it is a {'whole ' * whole}number")
            if not least <= value <= most:
                raise ArgumentError(f"{field.name} {shown_value(value)}; it must be from {least:g} to {most:,}")
        if self.token and (len(self.token) < LEAST_TOKEN or not self.token.isascii() or not self.token.isprintable()):
            raise ArgumentError(f"the token has {len(self.token)} characters; take {LEAST_TOKEN} or more, printable")

    @property
    def most_body_bytes(self) -> int:
        """Of one body."""
        return self.body_mib * _MIB

    @property
    def most_bodies_bytes(self) -> int:
        """Of all bodies together."""
        return self.bodies_mib * _MIB

    @property
    def most_cache_bytes(self) -> int:
        """Of the answers that are kept."""
        return self.cache_mib * _MIB


_RANGE: dict[str, tuple[float, Any]] = {
    "cache_mib": (0, 1 << 20),
    "question_seconds": (0.1, 86400),
    "body_seconds": (0.1, 86400),
    "head_seconds": (0.1, 86400),
    "idle_seconds": (0.1, 86400),
    "drain_seconds": (0, 3600),
    "stop_seconds": (0, 3600),
}
