"""Answers for other programs: over HTTP (`perfpass serve`), to agents (`perfpass mcp`), and the client of the first."""

from __future__ import annotations

__all__ = [
    "agents",
    "app",
    "client",
    "kinds",
    "names",
    "observed",
    "problems",
    "process",
    "questions",
    "rooted",
    "settings",
    "uploads",
]
