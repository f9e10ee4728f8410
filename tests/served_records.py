"""Records of serving as workloads, described once a session: for all tests that look at them."""

from __future__ import annotations

from functools import lru_cache

from made_once import made_once
from perfpass.training.serving import dataset


@lru_cache(maxsize=1)
def served() -> dataset.Dataset:
    """The dataset that training reads. The tests share it: change a copy alone."""
    return made_once("served", dataset.load)
