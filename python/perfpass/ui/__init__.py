"""The web page: a model, a question, and its answer as a report (`perfpass ui`)."""

from __future__ import annotations

__all__ = ["process"]
