"""One runner per runtime: it makes a model ready and gives a lap, one timed iteration."""

from __future__ import annotations

from perfpass.measure.runners.session import Session, open_session

__all__ = [
    "Session",
    "open_session",
    "prepared",
    "session",
    "torch",
]
