"""`perfpass calibrate`: a device, or a new software version on it, learned from a few of its own measurements."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from perfpass.devices import Device
from perfpass.devices import device as find_device
from perfpass.errors import ArgumentError
from perfpass.measure.configuration import Configuration
from perfpass.predictors.assemble import inputs_of
from perfpass.predictors.calibration import correction as calibrated
from perfpass.predictors.calibration import posterior as calibration
from perfpass.predictors.calibration.posterior import MOST_POINTS, Calibration
from perfpass.predictors.lane import predictor_of
from perfpass.records import own_device

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Outcome:
    """A calibration, where it was written, and what it was made from.

    ``before_mape_pct``: error of the predictions without it; ``left_out_mape_pct``: of each measurement when predicted
    from the others.
    """

    calibration: Calibration
    path: Path
    points: int
    refused: dict[str, int]
    before_mape_pct: float
    left_out_mape_pct: float

    def __str__(self) -> str:
        out = [
            f"{self.path}: {self.calibration.device} learned from {self.points} measurements",
            f"  error of the predictions before {self.before_mape_pct:.1f} %, "
            f"of each measurement predicted from the others {self.left_out_mape_pct:.1f} %",
        ]
        out += [f"  left out {count}: {reason}" for reason, count in sorted(self.refused.items())]
        return "\n".join(out)


def calibrate(
    device: str | Device,
    records: Path | str,
    output: Path | str | None = None,
    *,
    progress: Progress = lambda done, total, what: None,
) -> Outcome:
    """Learn ``device`` from the measurements in ``records`` and store it beside the user's device files.

    ``records``: a journal of `perfpass measure`, or a Parquet table of records of kind "vision". ``output``: another
    folder (predictions look there when PERFPASS_DEVICES names it). At most MOST_POINTS measurements are used, evenly
    taken. Raises FileError, FormatError, LimitError, DeviceError, and ArgumentError where fewer than two measurements
    are usable.
    """
    target = find_device(device)
    found = own_device.read(records, target)
    rows = found.rows
    if len(rows) > MOST_POINTS:
        take = np.unique(np.linspace(0, len(rows) - 1, MOST_POINTS).astype(int))
        found.refused[f"beyond the {MOST_POINTS} measurements that are used"] += len(rows) - len(take)
        rows = [rows[i] for i in take]
    points: list[calibrated.Point] = []
    measured: list[float] = []
    for done, (row, graph) in enumerate(own_device.graphs(rows, found.refused)):
        c = row.configuration
        inputs = inputs_of(graph, target, batch=c.batch, precision=c.precision, runtime=c.runtime, layout=c.layout)
        points.append(calibrated.point(predictor_of(inputs).estimate(inputs), inputs))
        measured.append(row.latency_ms)
        progress(done + 1, len(rows), c.model)
    log_ratio = np.log(np.array(measured)) - np.log([p.predicted_ms for p in points])
    counts = Counter(p.predictor for p in points)
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
        provenance={
            "records": found.file,
            "records_sha256": found.sha256,
            "refused": dict(found.refused),
            "made_at": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        },
    )
    left_out = np.concatenate([p.left_out for name in counts if (p := made.posterior(name)) is not None])
    path = calibration.write(made, output)
    return Outcome(
        made,
        path,
        len(points),
        dict(found.refused),
        100.0 * float(np.mean(np.abs(np.expm1(-log_ratio)))),
        100.0 * float(np.mean(np.abs(np.expm1(-left_out)))),
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
        inputs = inputs_of(graph, target, batch=c.batch, precision=precision, runtime=runtime, layout=layout)
        points.append(calibrated.point(predictor_of(inputs).estimate(inputs), inputs))
        progress(done + 1, len(candidates), c.model)
    standard, priors = calibration.shipped()
    prior = priors[target.kind if points[0].predictor == "inference" else "other"]
    z = standard(np.stack([p.traits for p in points]))
    return [candidates[i] for i in calibration.plan(prior, z, [p.software for p in points], count)]
