"""Many graphs or configurations in, arrays out: scoring for architecture search and graph rewriting.

How to use it: docs/guides/architecture-search.md.

>>> scorer = Scorer("a100-80gb", precision="amp")
>>> scores = scorer.score(["a.onnx", "b.onnx", "damaged.onnx"], batch=32)
>>> scores.latency_ms.median, scores.peak_memory_bytes.high, scores.problems
"""

from __future__ import annotations

from perfpass.search.items import Candidate
from perfpass.search.scorer import Features, Scorer, Scores
from perfpass.search.template import Template

__all__ = ["Candidate", "Features", "Scorer", "Scores", "Template"]
