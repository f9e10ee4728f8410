"""What to run a model on: the cheapest deployment that keeps targets with a stated probability."""

from __future__ import annotations

from perfpass.deploy.choose.result import Choice, Option
from perfpass.deploy.choose.run import choose
from perfpass.deploy.choose.targets import Targets

__all__ = ["Choice", "Option", "Targets", "choose", "targets"]
