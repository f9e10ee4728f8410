"""How long one step of an engine's batch takes: any mix of prefill chunks and decodes."""

from __future__ import annotations

__all__ = ["overheads", "parts", "prediction", "setup", "steps"]
