"""The pictures of a result: `prediction.plot`, `sweep.plot` and those of a served language model."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from perfpass.errors import ArgumentError, UnsupportedError
from perfpass.prediction import Prediction
from perfpass.report import interval_charts, memory_charts, mig_charts, run_charts, snapshot, sweep_charts, traces
from perfpass.report.nodes import Nodes
from perfpass.report.picture import Picture
from perfpass.text import shown_value
from perfpass.whole_file import write_whole

if TYPE_CHECKING:
    from perfpass.deploy.sweep import Sweep
    from perfpass.predictors.serving.prediction import LlmPrediction


@dataclass(frozen=True, eq=False)
class RunPlots:
    """Pictures of one run. Those that need its nodes raise UnsupportedError for a prediction that was read."""

    prediction: Prediction

    @cached_property
    def nodes(self) -> Nodes:
        """The run node by node."""
        return Nodes.of(self.prediction)

    def roofline(self) -> Picture:
        """The operators under the roofs of the device."""
        return Picture("roofline", (run_charts.roofline(self.nodes),))

    def operators(self) -> Picture:
        """Time by class of operator."""
        return Picture("operators", (run_charts.operators(self.prediction),))

    def icicle(self) -> Picture:
        """Time by module of the source model, the whole at the top."""
        return Picture("icicle", (run_charts.icicle(self.nodes),))

    def flame(self) -> Picture:
        """The same with the whole at the bottom."""
        return Picture("flame", (run_charts.icicle(self.nodes, flame=True),))

    def memory(self) -> Picture:
        """Memory over time, what is alive at the peak, and what holds the memory in use."""
        over_time, at_peak = memory_charts.over_time(self.nodes), memory_charts.at_peak(self.nodes)
        return Picture("memory", (over_time, at_peak, memory_charts.holders(self.prediction)))

    def mig(self) -> Picture:
        """The MIG slices of the device, and whether the limits are kept in each. Raises UnsupportedError."""
        decision = self.prediction.decision
        if decision is None:
            raise UnsupportedError("this prediction has no decision by slice; predict it with limits=perfpass.Limits()")
        return Picture("mig", (mig_charts.slices(decision, run_charts.headline(self.prediction)),))

    def intervals(self) -> Picture:
        """The interval of each figure, with the measured records nearest to it."""
        p = self.prediction
        return Picture("intervals", interval_charts.intervals(p, run_charts.headline(p)))

    def speedscope(self, path: str | os.PathLike[str]) -> None:
        """A file for speedscope. Raises UnsupportedError, FileError."""
        write_whole(path, json.dumps(traces.speedscope(self.nodes), allow_nan=False) + "\n")

    def trace(self, path: str | os.PathLike[str]) -> None:
        """A file for Perfetto and chrome://tracing. Raises UnsupportedError, FileError."""
        write_whole(path, json.dumps(traces.chrome_trace(self.nodes), allow_nan=False) + "\n")

    def snapshot(self, path: str | os.PathLike[str]) -> None:
        """A file for PyTorch's `_memory_viz`. Raises UnsupportedError, FileError."""
        snapshot.write_snapshot(self.nodes, path)


@dataclass(frozen=True, eq=False)
class ServedPlots:
    """Pictures of a served language model."""

    prediction: LlmPrediction

    def intervals(self) -> Picture:
        """The interval of each figure, with the measured records nearest to it."""
        p = self.prediction
        s = p.serving
        line = f"{p.model['name']} on {s.gpus} x {p.device['name']}, {s.runtime}, {s.concurrency:g} in flight"
        return Picture("intervals", interval_charts.intervals(p, line))

    def memory(self) -> Picture:
        """Memory of each GPU by what holds it."""
        return Picture("memory", (memory_charts.holders_of_a_served_model(self.prediction),))


@dataclass(frozen=True, eq=False)
class SweepPlots:
    """Pictures of a sweep."""

    sweep: Sweep

    def pareto(self, x: str = "", y: str = "") -> Picture:
        """All points by two figures and the front of those that none is better than; time against money by default."""
        return Picture("pareto", (sweep_charts.pareto(self.sweep, x, y),))

    def batch(self) -> Picture:
        """Latency against batch, with its band."""
        return Picture("batch", (sweep_charts.against_batch(self.sweep),))

    def load(self) -> Picture:
        """First token and time per token by requests in flight, with their bands."""
        return Picture("load", sweep_charts.against_load(self.sweep))


@dataclass(frozen=True, eq=False)
class FleetPlots:
    """Pictures of a packed fleet, as `perfpass.deploy.pack.Layout.to_dict` has it."""

    layout: dict[str, Any]

    def fleet(self) -> Picture:
        """GPUs and what stands on their slices."""
        return Picture("fleet", (mig_charts.fleet(self.layout), mig_charts.fleet_times(self.layout)))


def plots_of(result: Any) -> Any:
    """The pictures of a Prediction, LlmPrediction, Sweep or Layout. Raises ArgumentError for anything else."""
    from perfpass.deploy.pack import Layout
    from perfpass.deploy.sweep import Sweep
    from perfpass.predictors.serving.prediction import LlmPrediction

    if isinstance(result, Prediction):
        return RunPlots(result)
    if isinstance(result, LlmPrediction):
        return ServedPlots(result)
    if isinstance(result, Sweep):
        return SweepPlots(result)
    if isinstance(result, Layout):
        return FleetPlots(result.to_dict())
    raise ArgumentError(f"no pictures of {shown_value(type(result).__name__)}; give a prediction, a sweep or a layout")
