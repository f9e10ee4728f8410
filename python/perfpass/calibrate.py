"""`perfpass calibrate`: a device, or a new software version on it, learned from a few of its own measurements."""

from __future__ import annotations

import datetime
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from perfpass.devices import Device
from perfpass.devices import device as find_device
from perfpass.errors import ArgumentError
from perfpass.measure.configuration import Configuration
from perfpass.predictors import predict_graph
from perfpass.predictors.assemble import run_of
from perfpass.predictors.calibration import correction as calibrated
from perfpass.predictors.calibration import posterior as calibration
from perfpass.predictors.calibration import steps as learned_steps
from perfpass.predictors.calibration.posterior import MOST_POINTS, Calibration
from perfpass.predictors.calibration.steps import StepCalibration, StepPoint
from perfpass.predictors.lane import predictor_of
from perfpass.records import own_device

Progress = Callable[[int, int, str], None]
Row = TypeVar("Row")


@dataclass(frozen=True)
class Outcome:
    """A calibration, where it was written, and what it was made from: of inference, or of training steps.

    ``before_mape_pct``: error of the predictions without it; ``left_out_mape_pct``: of each measurement when predicted
    from the others (of training steps, by figure). ``steps``: the outcome of training steps, where the records hold
    inference too.
    """

    calibration: Calibration | StepCalibration
    path: Path
    points: int
    refused: dict[str, int]
    before_mape_pct: float
    left_out_mape_pct: float
    steps: Outcome | None = None

    def __str__(self) -> str:
        what = "training figures" if isinstance(self.calibration, StepCalibration) else "measurements"
        out = [
            f"{self.path}: {self.calibration.device} learned from {self.points} {what}",
            f"  error of the predictions before {self.before_mape_pct:.1f} %, "
            f"of each measurement predicted from the others {self.left_out_mape_pct:.1f} %",
        ]
        out += [f"  left out {count}: {reason}" for reason, count in sorted(self.refused.items())]
        return "\n".join([*out, *([] if self.steps is None else [str(self.steps)])])


def calibrate(
    device: str | Device,
    records: Path | str,
    output: Path | str | None = None,
    *,
    progress: Progress = lambda done, total, what: None,
) -> Outcome:
    """Learn ``device`` from the measurements in ``records`` and store it beside the user's device files.

    ``records``: a journal of `perfpass measure` or of training loops (`perfpass.torch`), or a Parquet table of records
    of kind "vision". Inference and training steps are learned apart, in a file each. ``output``: another folder
    (predictions look there when PERFPASS_DEVICES names it). At most MOST_POINTS measurements are used, evenly taken.
    Raises FileError, FormatError, LimitError, DeviceError, and ArgumentError where fewer than two measurements of
    inference, and no training step, are usable.
    """
    target = find_device(device)
    found = own_device.read(records, target)
    stepped = _steps(found, target, output, progress) if found.steps or found.training else None
    if stepped is not None and not found.rows:
        return stepped
    return _inference(found, target, records, output, progress, stepped)


def _evenly(rows: list[Row], refused: Counter[str]) -> list[Row]:
    """At most MOST_POINTS of them."""
    if len(rows) <= MOST_POINTS:
        return rows
    take = np.unique(np.linspace(0, len(rows) - 1, MOST_POINTS).astype(int))
    refused[f"beyond the {MOST_POINTS} measurements that are used"] += len(rows) - len(take)
    return [rows[i] for i in take]


def _steps(
    found: own_device.Measurements, target: Device, output: Path | str | None, progress: Progress
) -> Outcome | None:
    """Training steps learned; None where none is usable."""
    points: list[StepPoint] = []
    used: set[str] = set()

    def add(
        predictor: str, model: str, measured: Mapping[str, float], predicted: Mapping[str, float],
        shares: Mapping[str, Mapping[str, float]],
    ) -> None:  # fmt: skip
        used.add(predictor)
        for metric in learned_steps.METRICS:
            if measured.get(metric) and predicted.get(metric):
                ratio = math.log(measured[metric] / predicted[metric])
                points.append(StepPoint(predictor, metric, model, ratio, shares[metric]))

    for own in _evenly(found.steps, found.refused):
        if own.predictor not in learned_steps.PREDICTORS or own.digest != learned_steps.digest_of(own.predictor):
            found.refused["a step of a training loop that another version predicted"] += 1
            continue
        time, held = (learned_steps.shares_of(parts) for parts in (own.shares, own.held))
        shares = {"step_s": time, "power_w": time, "memory_bytes": held}
        add(own.predictor, own.model, own.measured, own.predicted, shares)
    rows = _evenly(found.training, found.refused)
    for done, (row, graph) in enumerate(own_device.graphs(rows, found.refused)):
        c = row.configuration
        how: dict[str, Any] = {"batch": c.batch, "precision": c.precision, "runtime": c.runtime, "layout": c.layout}
        optimizer = "momentum" if c.optimizer in (None, "sgd") else c.optimizer
        one = predict_graph(graph, target, mode="training", optimizer=optimizer, calibration=False, **how)
        time = learned_steps.shares_of(one.breakdown["latency_ms"])
        expected = {"step_s": one.latency_ms.median / 1e3, "power_w": one.power_w.median}
        measured = {"step_s": row.latency_ms / 1e3, "power_w": row.power_w or 0.0}
        add("training_step", "", measured, expected, dict.fromkeys(learned_steps.METRICS, time))
        progress(done + 1, len(rows), c.model)
    if not points:
        return None
    made = StepCalibration(
        target.id,
        {name: learned_steps.digest_of(name) for name in sorted(used)},
        tuple(points),
        _provenance(found),
    )
    kinds = {(p.predictor, p.metric) for p in points}
    left_out = np.concatenate([learned_steps.left_out(made.of(*kind)) for kind in sorted(kinds)])
    before = np.array([p.log_ratio for p in points])
    path = learned_steps.write(made, output)
    return Outcome(made, path, len(points), dict(found.refused), _mape(before), _mape(left_out))


def _mape(log_ratio: np.ndarray) -> float:
    return 100.0 * float(np.mean(np.abs(np.expm1(-log_ratio))))


def _provenance(found: own_device.Measurements) -> dict[str, Any]:
    return {
        "records": found.file,
        "records_sha256": found.sha256,
        "refused": dict(found.refused),
        "made_at": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }


def _inference(
    found: own_device.Measurements, target: Device, records: Path | str, output: Path | str | None, progress: Progress,
    stepped: Outcome | None,
) -> Outcome:  # fmt: skip
    rows = _evenly(found.rows, found.refused)
    points: list[calibrated.Point] = []
    measured: list[float] = []
    for done, (row, graph) in enumerate(own_device.graphs(rows, found.refused)):
        c = row.configuration
        run = run_of(graph, target, batch=c.batch, precision=c.precision, runtime=c.runtime, layout=c.layout)
        points.append(calibrated.point(predictor_of(run.way).estimate(run), run))
        measured.append(row.latency_ms)
        progress(done + 1, len(rows), c.model)
    log_ratio = np.log(np.array(measured)) - np.log([p.predicted_ms for p in points])
    counts = Counter(p.predictor for p in points)
    if stepped is not None and max(counts.values(), default=0) < calibration.LEAST_POINTS:
        return stepped
    if not counts or max(counts.values()) < calibration.LEAST_POINTS:
        why = "; ".join(f"{count} {reason}" for reason, count in found.refused.items())
        raise ArgumentError(
            f"{records}: {len(points)} usable measurements of {target.name}, at least {calibration.LEAST_POINTS} are "
            f"needed{': ' + why if why else ''}"
        )
    made = Calibration(
        device=target.id,
        kind=target.kind,
        predictors={name: calibrated.digest_of(name) for name in sorted(counts)},
        predictor=tuple(p.predictor for p in points),
        software=tuple(p.software for p in points),
        traits=np.stack([p.traits for p in points]),
        log_ratio=log_ratio,
        provenance=_provenance(found),
    )
    left_out = np.concatenate([p.left_out for name in counts if (p := made.posterior(name)) is not None])
    path = calibration.write(made, output)
    return Outcome(
        made,
        path,
        len(points),
        dict(found.refused),
        _mape(log_ratio),
        _mape(left_out),
        stepped,
    )


# What a plan chooses from: networks of every kind that installs with timm, small enough for any device.
_PLAN_MODELS = (
    *("resnet18", "resnet50", "vgg16", "densenet121", "mobilenetv2_100", "mobilenetv3_large_100", "efficientnet_b0"),
    *("regnety_032", "resnext50_32x4d", "convnext_tiny", "vit_tiny_patch16_224", "vit_base_patch16_224"),
    *("swin_tiny_patch4_window7_224", "mixer_s16_224", "poolformer_s12", "ghostnet_100", "inception_v3"),
    *("xception41", "hrnet_w18_small", "mobilevit_s"),
)
_PLAN_BATCHES = {"gpu": (1, 32, 256), "cpu": (1, 4, 16)}


def plan(
    device: str | Device,
    count: int,
    *,
    precision: str = "fp32",
    runtime: str = "torch",
    layout: str = "nchw",
    progress: Progress = lambda done, total, what: None,
) -> list[Configuration]:
    """The ``count`` configurations whose measurement tells most about a device, best first.

    Chosen among twenty timm networks at three batch sizes each, in one kind of software. Needs torch and timm. Raises
    ArgumentError, DeviceError.
    """
    target = find_device(device)
    candidates = [
        Configuration(
            model=f"timm:{name}",
            batch=batch,
            precision=precision,
            runtime=runtime,
            layout=layout,
            device="cpu" if target.kind == "cpu" else "cuda",
        )
        for name in _PLAN_MODELS
        for batch in _PLAN_BATCHES[target.kind]
    ]
    if not 1 <= count <= len(candidates):
        raise ArgumentError(f"a plan of {count} configurations; choose 1 to {len(candidates)}")
    points = []
    for done, c in enumerate(candidates):
        graph = own_device.graph_of(c)
        run = run_of(graph, target, batch=c.batch, precision=precision, runtime=runtime, layout=layout)
        points.append(calibrated.point(predictor_of(run.way).estimate(run), run))
        progress(done + 1, len(candidates), c.model)
    standard, priors = calibration.shipped()
    prior = priors[target.kind if points[0].predictor == "inference" else "other"]
    z = standard(np.stack([p.traits for p in points]))
    return [candidates[i] for i in calibration.plan(prior, z, [p.software for p in points], count)]
