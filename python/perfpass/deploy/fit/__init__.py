"""Whether a model fits a device, from headers alone: the decision, its figures, and what would change it."""

from __future__ import annotations

from perfpass.deploy.fit.answer import fit
from perfpass.deploy.fit.result import Change, DeviceFit, Fit, Largest

__all__ = ["Change", "DeviceFit", "Fit", "Largest", "fit"]
