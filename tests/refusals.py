"""What a refusal is: one typed error of one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from perfpass.errors import PerfPassError


def refused(ask: Callable[[], Any]) -> str:
    """The text of the error that ``ask`` raises."""
    with pytest.raises(PerfPassError) as caught:
        ask()
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 700
    return str(caught.value)
