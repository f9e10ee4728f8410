"""What every predictor takes and gives: the boundary between counting and predicting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np

    from perfpass.costs import Costs
    from perfpass.devices import Device
    from perfpass.features import OperatorTable
    from perfpass.graph import OpGraph
    from perfpass.memory import MemoryPlan
    from perfpass.prediction import Interval, Support


@dataclass(frozen=True, eq=False, kw_only=True)
class Planned:
    """A graph whose memory is planned, and how it runs. ``float_as`` is the type that floating tensors count as."""

    graph: OpGraph
    plan: MemoryPlan
    device: Device
    batch: int
    precision: str
    runtime: str
    layout: str
    float_as: str | None


@dataclass(frozen=True, eq=False, kw_only=True)
class Inputs(Planned):
    """The same, its operators counted: what a prediction of time needs beside one of memory."""

    costs: Costs
    table: OperatorTable


@dataclass(frozen=True, eq=False)
class Estimate:
    """What a predictor says of one run.

    ``row_ms`` [R] is the time per row of the operator table, its count included; ``memory_bytes`` has the keys
    "weights", "activations", "workspace" and "runtime", and "allocator" where one was simulated.
    """

    latency_ms: Interval
    power_w: Interval
    peak_memory_bytes: Interval
    row_ms: np.ndarray
    memory_bytes: dict[str, float]
    support: Support
    provenance: dict[str, Any]


class Predictor(Protocol):
    """A predictor of latency, power and memory."""

    def memory(self, planned: Planned) -> tuple[dict[str, float], Interval]:
        """Bytes by part, as in `Estimate.memory_bytes`, and the peak."""
        ...

    def estimate(self, inputs: Inputs) -> Estimate:
        """The metrics of one run of ``inputs``."""
        ...
