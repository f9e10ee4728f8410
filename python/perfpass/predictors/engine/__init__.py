"""Engines that serve language models, event by event: continuous batching, paged caches, queues; and what users see."""

from __future__ import annotations

__all__ = [
    "arrivals",
    "cache",
    "deployment",
    "events",
    "limits",
    "queueing",
    "replica",
    "requests",
    "settings",
    "simulate",
    "tails",
    "traces",
]
