"""Flags of a serving engine for a stated load and targets, each with what it is expected to bring."""

from __future__ import annotations

from perfpass.deploy.tune.result import Brought, Tuning
from perfpass.deploy.tune.run import ENGINES, tune

__all__ = ["ENGINES", "Brought", "Tuning", "tune"]
