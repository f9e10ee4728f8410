"""Step times for simulators of serving: what each reads of the time of an engine's batch."""

from __future__ import annotations

from perfpass.simulators.deployed import Deployed
from perfpass.simulators.sglang import InferTime
from perfpass.simulators.written import SIMULATORS, files

__all__ = ["SIMULATORS", "Deployed", "InferTime", "files"]
