"""Records of networks as questions, read and asked once a session: it takes seconds."""

from __future__ import annotations

from functools import cache
from typing import Any

from made_once import made_once
from perfpass.training.tasks import named


@cache
def measured() -> tuple[Any, Any, Any]:
    """As `perfpass.training.tasks.named.measured`; for looking at alone."""
    return made_once("networks", named.measured)
