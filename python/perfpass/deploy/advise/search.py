"""The loop: each change is predicted beside what is; what is surely better is kept, until nothing is."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from perfpass.decision import Limits
from perfpass.deploy import money
from perfpass.deploy.advise.files import Files, check_folder, write
from perfpass.deploy.advise.outputs import ROUNDING, Sizes
from perfpass.deploy.advise.result import FIGURES, Advice, Change, percent
from perfpass.deploy.advise.state import TARGETS, Allowed, Move, State, moves
from perfpass.deploy.difference.compare import Run, ratios
from perfpass.deploy.difference.ratio import Ratio
from perfpass.devices import Device
from perfpass.devices import device as find_device
from perfpass.errors import ArgumentError, PerfPassError
from perfpass.graph import OpGraph
from perfpass.importers import load, named_shapes
from perfpass.importers.model_argument import understood
from perfpass.predictors.decided import place_of
from perfpass.predictors.workload import RUNTIMES, check, leading_dim
from perfpass.text import shown_value, unknown

# Less than this is no advice; figures this near are alike, and the simpler change is taken. By hand.
_WORTH, _ALIKE = 0.01, 0.02
_MOST_STEPS = 8
TOLERANCE = 0.05
_KEPT = 1e-9  # of a probability


def advise(
    model: Any,
    device: str | Device | Sequence[str | Device],
    *,
    target: str = "latency",
    batch: int | None = None,
    precision: str = "fp32",
    runtime: str | Sequence[str] | None = None,
    layout: str = "nchw",
    mode: str = "inference",
    optimizer: str | None = None,
    dims: Mapping[str, int] | None = None,
    input_shape: Any = None,
    assume: Mapping[str, int] | None = None,
    slices: bool = False,
    keep_precision: bool = False,
    keep_batch: bool = False,
    limits: Limits | None = None,
    tolerance: float = TOLERANCE,
    rewrites: bool = True,
    output: str | os.PathLike[str] | None = None,
    calibration: bool = True,
) -> Advice:
    """Changes to a model and to how it runs that surely better the ``target`` (`TARGETS`), one after another.

    Each change is predicted beside what is, with the ratio's own interval (`perfpass.diff`); of those that better the
    target with the confidence of ``limits`` (0.9 if not stated), and keep its limits, the largest gain is taken, and so
    on. ``device`` and ``runtime``: the first is where it runs now, others may be changed to; without a runtime, ONNX
    files run in ONNX Runtime and all others in torch, and any that the device has may be changed to. ``slices``: MIG
    slices too. ``keep_precision``: nothing that changes numbers beyond rounding; ``keep_batch``: as many samples at
    once. The other arguments are those of `perfpass.predict`.

    ONNX files with their weights are also rewritten by the tools of ONNX Runtime, unless ``rewrites`` is False. Each
    rewrite is run beside the original; outputs may be off by rounding alone, or where it changes numbers by
    ``tolerance`` (root mean square, relative). ``output``: the folder for the rewritten file; none is replaced.

    Raises ArgumentError, DeviceError, UnsupportedError, FileError and what reading a model raises.
    """
    if target not in TARGETS:
        raise ArgumentError(unknown("target", target, TARGETS))
    if isinstance(tolerance, bool) or not isinstance(tolerance, (int, float)) or not 0.0 <= tolerance <= 1.0:
        raise ArgumentError(f"tolerance must be from 0 to 1, got {shown_value(tolerance)}")
    devices = _devices(device, slices)
    path = _onnx_path(model)
    is_onnx = (
        path is not None or isinstance(model, (bytes, bytearray, memoryview)) or hasattr(model, "SerializeToString")
    )
    runtimes = _runtimes(runtime, is_onnx, mode, devices)
    check(  # before a model is read
        devices[0], batch=batch, precision=precision, mode=mode, runtime=runtimes[0], layout=layout, optimizer=optimizer
    )
    if output is not None:
        if path is None:
            raise ArgumentError("only ONNX files are rewritten; leave the folder for rewritten files out")
        if not rewrites or mode != "inference":
            raise ArgumentError("nothing is rewritten for training or without rewrites; leave the folder out")
        check_folder(path, Path(output))
    asked = {"dims": dims, "input_shape": input_shape, "assume": assume}
    graph = load(model, batch=batch, **asked)
    samples = leading_dim(graph) if batch is None else batch
    start = State(devices[0], samples, precision, runtimes[0], layout)
    with TemporaryDirectory(prefix="perfpass-advise-") as folder:
        wanted = rewrites and path is not None and mode == "inference"
        sizes = Sizes(samples, dims or {}, named_shapes(input_shape) or {}) if wanted else None
        files = Files(path, Path(folder), sizes)
        allowed = Allowed(
            target=target,
            devices=devices,
            runtimes=runtimes,
            mode=mode,
            precision=not keep_precision,
            batch=not keep_batch and not isinstance(model, OpGraph),
            file=files.usable,
        )
        limits = Limits() if limits is None else limits
        rest = {"mode": mode, "optimizer": optimizer}
        runs = _Runs(model, {(None, samples): graph}, asked, rest, calibration, files)
        search = _Search(runs, allowed, limits, tolerance)
        found = search.run(start, _name(model))
        if output is None:
            return found
        if not search.state.rewrites:
            return replace(found, notes=(*found.notes, "no rewrite brings anything; nothing was written"))
        return replace(found, file=write(files, search.state.rewrites, Path(output)))


class _Runs:
    """Predictions of states, each made once."""

    def __init__(
        self, model: Any, graphs: dict[tuple[Path | None, int], OpGraph], asked: Mapping[str, Any],
        rest: Mapping[str, Any], calibration: bool, files: Files,
    ) -> None:  # fmt: skip
        self._model, self._asked, self._rest = model, asked, rest
        self._own = {"calibration": calibration, "processes": None}
        self._graphs = graphs
        self._runs: dict[State, Run] = {}
        self.files = files

    def of(self, state: State) -> Run:
        """Raises PerfPassError where it cannot run so, or is not predicted."""
        if state not in self._runs:
            how = {**state.how, **self._rest}
            check(state.device, **how)
            self._runs[state] = Run.of(self._graph(state), state.device, how, self._own)
        return self._runs[state]

    def _graph(self, state: State) -> OpGraph:
        """As the runtime runs it, where that is known."""
        path = self.files.loaded(state) if self.files.usable else None
        key = (path, state.batch)
        if key not in self._graphs:
            self._graphs[key] = load(self._model if path is None else path, batch=state.batch, **self._asked)
        return self._graphs[key]


@dataclass(eq=False)
class _Search:
    runs: _Runs
    allowed: Allowed
    limits: Limits
    tolerance: float

    def run(self, start: State, name: str) -> Advice:
        """The whole path."""
        self.state = start
        first, steps, alone = self.runs.of(start), list[Change](), tuple[Change, ...]()
        declined: dict[str, Change] = {}
        left: set[tuple[str, Any]] = set()
        while len(steps) < _MOST_STEPS:
            tried = [(move, self._tried(move)) for move in moves(self.state, self.allowed) if not move.undoes(left)]
            alone = alone or tuple(change for _, change in tried)
            declined |= {change.words: change for _, change in tried if change.why}
            sure = [(move, change) for move, change in tried if not change.why]
            if not sure:
                break
            best = min(_worse(change.ratio) for _, change in sure)
            move, change = next(pair for pair in sure if _worse(pair[1].ratio) <= best * (1 + _ALIKE))
            left |= {(name, value) for name, value in self.state.settings.items() if name in move.changes}
            self.state = move.to
            steps.append(change)
        taken = {step.words for step in steps}
        notes = [*self.runs.files.notes, *self._of_prices()]
        return Advice(
            model=name,
            target=self.allowed.target,
            confidence=self.limits.confidence,
            asked=first.prediction,
            start=self._ratio(start, start),
            steps=tuple(steps),
            alone=alone,
            declined=_shortened([change for words, change in declined.items() if words not in taken]),
            total=self._ratio(start, self.state),
            settings={**self.state.settings, "rewrites": list(self.state.rewrites)},
            notes=tuple(notes),
        )

    def _tried(self, move: Move) -> Change:
        """A change from where the path is, with the reason where it is not to be taken."""
        change = Change(move.words, move.changes, move.changes_numbers)
        files = self.runs.files
        try:
            if move.is_rewrite:
                change = replace(change, nodes=files.nodes(move.to.rewrites), error=files.error(move.to.rewrites))
            run = self.runs.of(move.to)
        except PerfPassError as error:
            return replace(change, why=str(error))
        figures = {name: getattr(run.prediction, name) for name in FIGURES}
        change = replace(change, figures=figures, support=run.prediction.support)
        change = replace(change, ratio=self._ratio(self.state, move.to))
        return replace(change, why=self._why_not(move, change))

    def _why_not(self, move: Move, change: Change) -> str:
        assert change.ratio is not None and change.probability is not None
        ratio = _worse(change.ratio)
        if change.error is not None:
            most = self.tolerance if move.to.numbers_changed else ROUNDING
            if not change.error <= most:
                return f"outputs are off by {100 * change.error:.2g} %, over the {100 * most:g} % allowed"
        if abs(ratio - 1.0) < _WORTH:
            if move.is_rewrite and change.nodes and not move.changes_numbers:
                return (
                    f"no gain when it runs: {move.to.runtime} does the same as it loads the file "
                    f"({change.nodes[0]} nodes would become {change.nodes[1]})"
                )
            return "no gain"
        if ratio > 1.0:
            return f"{self.allowed.target} {percent(_stated(change.ratio))}"
        if change.probability < self.limits.confidence:
            return (
                f"{self.allowed.target} {percent(_stated(change.ratio))}, but P(better) is {change.probability:.2f}, "
                f"under {self.limits.confidence:g}"
            )
        before, after = (self._kept(state) for state in (self.state, move.to))
        if after < self.limits.confidence and after < before - _KEPT:
            return f"P(limits kept) would be {after:.2f}, under {self.limits.confidence:g}"
        return ""

    def _kept(self, state: State) -> float:
        """The probability that the limits and the device's memory are kept."""
        found = self.runs.of(state).prediction
        return place_of(found, state.device).probability(self.limits) or 0.0

    def _ratio(self, old: State, new: State) -> Ratio:
        """Of the target's figure."""
        sides = self.runs.of(old), self.runs.of(new)
        found = {ratio.metric: ratio for ratio in ratios(*sides)}
        target = self.allowed.target
        if target in ("latency", "throughput", "memory"):
            return found[target]
        (before, after), (a, b) = sides, (old, new)
        if target == "energy":
            joules = before.prediction.energy_j.median / a.batch, after.prediction.energy_j.median / b.batch
            return Ratio.of("energy", joules[0], joules[1], found["energy"].log_half_width, found["energy"].causes)
        usd = self._usd(before, a), self._usd(after, b)
        return Ratio.of("price", usd[0], usd[1], found["latency"].log_half_width, found["latency"].causes)

    @staticmethod
    def _usd(run: Run, state: State) -> float:
        found = money.per_million(run.prediction.latency_ms.median, state.batch, money.price(state.device))
        assert isinstance(found, float)
        return found

    def _of_prices(self) -> list[str]:
        if self.allowed.target != "price":
            return []
        return [
            f"{device.id}: {money.price(device)}"
            for device in dict.fromkeys((self.allowed.devices[0], self.state.device))
        ]


def _shortened(declined: list[Change]) -> tuple[Change, ...]:
    """Of batches that are not advised, the one with the most gain alone."""
    batches = [one for one in declined if "batch" in one.changes]
    best = min(batches, key=lambda one: _worse(one.ratio) if one.ratio else float("inf"), default=None)
    return tuple(one for one in declined if one is best or "batch" not in one.changes)


def _worse(ratio: Ratio | None) -> float:
    """The ratio with less being better."""
    assert ratio is not None
    found = (ratio.inverted if ratio.metric == "throughput" else ratio).interval
    return float("inf") if found is None else found.median


def _stated(ratio: Ratio) -> float:
    return ratio.new / ratio.old if ratio.old > 0 else float("inf")


def _devices(asked: str | Device | Sequence[str | Device], slices: bool) -> tuple[Device, ...]:
    found = [find_device(one) for one in ([asked] if isinstance(asked, (str, Device)) else asked)]
    if not found:
        raise ArgumentError("name the device that it runs on")
    if slices:
        found += [d.mig_slice(p.name) for d in list(found) if d.mig is not None for p in d.mig.plain]
    return tuple(dict.fromkeys(found))


def _runtimes(
    asked: str | Sequence[str] | None, is_onnx: bool, mode: str, devices: Sequence[Device]
) -> tuple[str, ...]:  # fmt: skip
    if asked is not None:
        named = (asked,) if isinstance(asked, str) else tuple(asked)
        for name in named:
            if name not in RUNTIMES:
                raise ArgumentError(unknown("runtime", name, RUNTIMES))
        if not named:
            raise ArgumentError(f"name a runtime, or leave it out; there are {', '.join(RUNTIMES)}")
        return tuple(dict.fromkeys(named))
    if mode == "training":
        return ("torch", "torch.compile")
    engines = ("tensorrt",) if all(d.vendor == "NVIDIA" for d in devices) else ()
    return ("onnxruntime", *engines) if is_onnx else ("torch", "torch.compile", "onnxruntime", *engines)


def _onnx_path(model: Any) -> Path | None:
    if not isinstance(model, (str, os.PathLike)):
        return None
    found = understood(model)
    return Path(found.name) if found.kind == "onnx" else None


def _name(model: Any) -> str:
    return os.path.basename(os.fsdecode(model)) if isinstance(model, (str, os.PathLike)) else type(model).__name__
