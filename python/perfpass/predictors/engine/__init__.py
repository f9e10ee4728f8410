"""Engines that serve language models, event by event: continuous batching, paged caches, queues; and what users see."""

from __future__ import annotations

__all__ = [
    "arrivals",
    "cache",
    "events",
    "limits",
    "replica",
    "requests",
    "settings",
    "simulate",
    "tails",
    "traces",
]
