"""Whether a model fits a device, from headers alone: the decision, its figures, and what would change it."""

from __future__ import annotations

from perfpass.decision import Change
from perfpass.deploy.fit.answer import fit
from perfpass.deploy.fit.need import Need, need, shown_in_use
from perfpass.deploy.fit.result import DeviceFit, Fit, Largest
from perfpass.deploy.fit.settings import Load, Settings
from perfpass.deploy.fit.subject import Subject

__all__ = [
    "Change",
    "DeviceFit",
    "Fit",
    "Largest",
    "Load",
    "Need",
    "Settings",
    "Subject",
    "fit",
    "need",
    "shown_in_use",
]
