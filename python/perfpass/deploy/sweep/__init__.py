"""Every combination of devices, splits, precisions and loads for one model, as a table."""

from __future__ import annotations

from perfpass.deploy.sweep.result import Sweep
from perfpass.deploy.sweep.run import sweep

__all__ = ["Sweep", "sweep"]
