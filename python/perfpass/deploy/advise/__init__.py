"""What would run faster, cheaper or in less: changes proposed, predicted, and kept where that is sure enough."""

from __future__ import annotations

from perfpass.deploy.advise.result import Advice
from perfpass.deploy.advise.search import advise

__all__ = ["Advice", "advise", "result"]
