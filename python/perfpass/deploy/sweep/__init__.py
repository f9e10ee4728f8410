"""Every combination of devices, splits, precisions and loads for one model, as a table."""

from __future__ import annotations

from perfpass.deploy.sweep.result import Sweep
from perfpass.deploy.sweep.run import served_model, sweep

__all__ = ["Sweep", "served", "served_model", "splits", "sweep"]
