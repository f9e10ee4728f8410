"""Flags of a serving engine for a stated load and targets, each with what it is expected to bring."""

from __future__ import annotations

from perfpass.deploy.tune.result import Brought, Tuning
from perfpass.deploy.tune.run import ENGINES, tune
from perfpass.deploy.tune.settings import split_words
from perfpass.deploy.tune.slots import SlotTuning, tune_slots

__all__ = ["ENGINES", "Brought", "SlotTuning", "Tuning", "split_words", "tune", "tune_slots"]
