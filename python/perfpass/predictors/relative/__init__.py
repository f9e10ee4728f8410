"""The nearest measured relatives of a question, copied and scaled by physics."""

from __future__ import annotations

__all__ = ["nearest", "question", "relatives", "work"]
