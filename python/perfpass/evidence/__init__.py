"""Evidence one can look at: the measured records nearest to a question, and what each would say."""

from __future__ import annotations

from perfpass.evidence.answer import Evidence, Part
from perfpass.evidence.asked import by_name, of, question_of
from perfpass.evidence.table import load, path

__all__ = ["Evidence", "Part", "by_name", "load", "of", "path", "question_of"]
