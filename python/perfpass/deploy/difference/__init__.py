"""What changed from one model to another, and the ratio of every figure with an interval of its own."""

from __future__ import annotations

from perfpass.deploy.difference.compare import diff
from perfpass.deploy.difference.result import Difference

__all__ = ["Difference", "compare", "diff", "found", "git_file", "junit", "ratio", "result", "sarif"]
