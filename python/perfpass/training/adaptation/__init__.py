"""Devices learned from few records (`perfpass.predictors.calibration`): priors, and how well it works."""

from __future__ import annotations

from perfpass.training.adaptation.evaluate import evaluate
from perfpass.training.adaptation.train import train

__all__ = ["evaluate", "train"]
