"""Deployment advice derived from predictions."""

from __future__ import annotations

__all__ = [
    "advise",
    "autoscale",
    "choose",
    "cost",
    "difference",
    "money",
    "outputs",
    "pack",
    "sweep",
    "train_advice",
    "train_answer",
    "train_cost",
    "train_network",
    "train_network_advice",
    "training_files",
    "training_run",
    "tune",
]
