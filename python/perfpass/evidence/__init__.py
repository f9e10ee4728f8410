"""Evidence one can look at: the measured records nearest to a question, and what each would say."""

from __future__ import annotations

__all__ = ["table"]
