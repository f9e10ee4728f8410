"""Fitting and grading the host memory of CPU processes to our own measurements.

python -m perfpass.training.memory.host          fits, writes the artefact, prints errors of families left out
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfpass.measure.configuration import Configuration
from perfpass.measure.journal import read
from perfpass.predictors.learned import artefacts
from perfpass.predictors.memory.host import Constants
from perfpass.records.measured import journals
from perfpass.training.memory import host_plans

if TYPE_CHECKING:
    import pandas

# Of the interval's ten per cent outside, two lie above.
LOW, HIGH = 0.08, 0.98
_ROUNDS = 40
_LEAST_ROWS = 30  # of a runtime, to be fitted
_LEAST_SHARE = 1e-3
_DOMAINS = {
    "speech": "wav2vec2 hubert wavlm data2vec_audio sew unispeech audio_spectrogram_transformer whisper deepspeech "
    "quartznet hifigan",
    "detection": "retinanet fcos faster_rcnn mask_rcnn ssd ssdlite yolos detr conditional_detr deformable_detr rt_detr",
    "segmentation and depth": "fcn deeplabv3 lraspp segformer upernet dpt glpn unet temperature",
    "video": "resnet3d s3d r3d mc3",
    "image and text": "clip siglip chinese_clip",
    "recommendation": "dlrm wide-and-deep deepfm neumf deep-and-cross dssm two autorec ratings",
    "text": "text averaged char words topics lstm gru",
    "images": "beit convnextv2 cvt deit dinov2 levit mgp_str mobilenet_v2 mobilevit poolformer pvt regnet resnet swin "
    "swinv2 vit vit_mae "
    "lenet lenet5 all-cnn network-in-network wide-resnet-16-4 wide-resnet-10-8 alexnet-head vgg-head",
    "other": "tcn edsr espcn cyclegan dcgan pointnet mlp swin2sr",
}
_OF = {family: domain for domain, families in _DOMAINS.items() for family in families.split()}


@dataclass(frozen=True)
class Rows:
    """N measured processes of one runtime; bytes. ``beside``: what the allocator holds beyond live tensors."""

    model: np.ndarray
    family: np.ndarray
    domain: np.ndarray
    measured: np.ndarray
    weights: np.ndarray
    activations: np.ndarray
    beside: np.ndarray

    def __len__(self) -> int:
        return len(self.measured)

    def take(self, index: np.ndarray) -> Rows:
        """The rows of ``index``."""
        return Rows(**{name: values[index] for name, values in vars(self).items()})


def domain_of(model: str, family: str) -> str:
    """What ``SOURCE:NAME`` of a ``family`` is made for."""
    source, _, name = model.partition(":")
    if source == "timm":
        return "images"
    found = _OF.get(name) or _OF.get("-".join(name.split("-")[:3])) or _OF.get(name.split("_")[0]) or _OF.get(family)
    return found or {"hf": "text", "net": "other"}.get(source, "images")  # of transformers' definitions most read text


def measurements() -> pandas.DataFrame:
    """A row for every process of its own that was measured, bytes by stage. Raises FileError, FormatError."""
    import pandas

    rows = []
    for path in journals():
        for record in read(path).records:
            if not record["configuration"].get("own_process") or record["status"] != "ok":
                continue
            configuration = Configuration.from_dict(record["configuration"])
            stages = {name: values["rss"] for name, values in record["stages"].items()}
            rows.append(
                dict(zip(host_plans.SIZES, host_plans.size_of(configuration), strict=True))
                | {"runtime": record["ran"].get("dialect", configuration.runtime)}
                | {f"{name}_bytes": stages.get(name) for name in ("interpreter", "runtime", "definitions", "loaded")}
                | {
                    "baseline_bytes": record["memory"]["host_baseline_rss_bytes"],
                    "opening_bytes": record["memory"]["host_opening_peak_rss_bytes"],
                    "running_bytes": record["memory"]["host_peak_rss_bytes"],
                    "measured_bytes": record["memory"]["host_whole_peak_rss_bytes"],
                    "latency_ms": record["latency_ms"]["median"],
                    "file_bytes": record["ran"].get("model_file_bytes"),
                }
            )
    return pandas.DataFrame(rows)


def load() -> dict[str, Rows]:
    """The measurements that a plan stands beside, by runtime. Raises FileError, FormatError."""
    table = measurements().merge(host_plans.load(), on=[*host_plans.SIZES, "runtime"])
    table["domain"] = [domain_of(model, family) for model, family in zip(table.model, table.family, strict=True)]
    found = {}
    for runtime, part in table.groupby("runtime"):
        if len(part) < _LEAST_ROWS:
            continue
        # Random weights are made, not read, so PyTorch's peak while opening is not that of loading a model.
        peak = part.running_bytes if runtime == "torch" else part.measured_bytes
        bytes_of = {name: part[f"{name}_bytes"].to_numpy(float) for name in ("weight", "activation", "reserved")}
        found[str(runtime)] = Rows(
            part.model.to_numpy(),
            part.family.to_numpy(),
            part.domain.to_numpy(),
            peak.to_numpy(float),
            bytes_of["weight"],
            bytes_of["activation"],
            np.maximum(0.0, bytes_of["reserved"] - bytes_of["weight"] - bytes_of["activation"]),
        )
    return found


def family_weights(rows: Rows) -> np.ndarray:
    """[N] every family counts by the root of its rows: neither the largest decides nor a single row."""
    _, inverse, count = np.unique(rows.family.astype(str), return_inverse=True, return_counts=True)
    return np.asarray(1.0 / np.sqrt(count[inverse]))


def fit(rows: Rows) -> Constants:
    """Constants from 0 on that minimise the weighted sum of |measured - predicted| / measured.

    Least squares with weights that make them least absolute deviations (Schlossmacher, 1973).
    """
    from scipy.optimize import nnls

    design = np.column_stack([np.ones(len(rows)), rows.weights, rows.activations, rows.beside])
    scale = np.maximum(np.abs(design).max(0), 1.0)
    relative = design / scale / rows.measured[:, None]
    weight = family_weights(rows)
    found = np.zeros(design.shape[1])
    for _ in range(_ROUNDS):
        error = np.maximum(np.abs(1.0 - relative @ found), _LEAST_SHARE) if found.any() else np.ones(len(rows))
        root = np.sqrt(weight / error)
        found, _ = nnls(relative * root[:, None], root)
    return Constants(*(float(value) for value in found / scale))


def with_bounds(constants: Constants, rows: Rows, held_out: np.ndarray) -> Constants:
    """The same with the quantiles of the errors of predictions [N] made without each row's family."""
    errors = np.sort((rows.measured - held_out) / constants.spread(held_out))
    count = len(errors)
    low = errors[max(0, int(np.floor(LOW * (count + 1))) - 1)]
    high = errors[min(count - 1, int(np.ceil(HIGH * (count + 1))) - 1)]
    return Constants(
        constants.runtime, constants.weights, constants.activations, constants.allocator, float(low), float(high)
    )


def by_family(rows: Rows) -> np.ndarray:
    """[N] predictions with each row's family left out."""
    found = np.zeros(len(rows))
    for family in np.unique(rows.family):
        test = rows.family == family
        constants, left = fit(rows.take(~test)), rows.take(test)
        found[test] = constants.peak(left.weights, left.activations, left.beside)
    return found


def bounded_by_family(rows: Rows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """[N] predictions and both bounds, neither of which has seen the row's family."""
    held_out = by_family(rows)
    low, high = np.zeros(len(rows)), np.zeros(len(rows))
    for family in np.unique(rows.family):
        test = rows.family == family
        of = with_bounds(fit(rows.take(~test)), rows.take(~test), held_out[~test])
        bounds = of.bounds(held_out[test])
        low[test], high[test] = bounds.low, bounds.high
    return held_out, low, high


def train(output: Path | None = None) -> dict[str, Constants]:
    """Fits every runtime and writes the artefact. Raises FileError, FormatError."""
    found, corpus = {}, {}
    for runtime, rows in load().items():
        found[runtime] = with_bounds(fit(rows), rows, by_family(rows))
        corpus[runtime] = {
            "rows": len(rows),
            "networks": len(np.unique(rows.model)),
            "families": len(np.unique(rows.family)),
        }
    manifest = {
        "runtimes": {name: vars(constants) for name, constants in found.items()},
        "corpus": {"name": "our own measurements of CPU processes, fp32, one thread", **corpus},
    }
    artefacts.write(output or artefacts.shipped("host-memory"), manifest, {})
    return found


def plain(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """[N] peaks and upper bounds without measurements: the tensors and 200 MiB, a quarter more of them and 500 MiB."""
    planned = rows.weights + rows.activations
    return planned + 200 * 2.0**20, 1.25 * planned + 500 * 2.0**20


def graded() -> list[str]:
    """Lines of a table: errors by runtime with families left out, and where the measured peaks lie."""
    lines = [
        "| runtime | rows | networks | families | way | median error % | mean % | MiB | above the bound % "
        "| below the lower % | bound over median |",
        "|---|---:|---:|---:|---|---:|---:|---:|---:|---:|---:|",
    ]
    for runtime, rows in load().items():
        predicted, low, high = bounded_by_family(rows)
        ways = {
            "tensors and 200 MiB": (plain(rows)[0], None, plain(rows)[1]),
            "families left out": (predicted, low, high),
        }
        for way, (median, lower, upper) in ways.items():
            error = np.abs(median / rows.measured - 1.0)
            below = "" if lower is None else f"{100 * np.mean(rows.measured < lower):.1f}"
            lines.append(
                f"| {runtime} | {len(rows)} | {len(np.unique(rows.model))} | {len(np.unique(rows.family))} | {way} "
                f"| {100 * np.median(error):.1f} | {100 * error.mean():.1f} "
                f"| {np.median(np.abs(median - rows.measured)) / 2**20:.0f} "
                f"| {100 * np.mean(rows.measured > upper):.1f} | {below} | {np.median(upper / median):.2f} |"
            )
    return lines


def main() -> None:
    """Trains and prints."""
    for runtime, constants in train().items():
        print(runtime, {name: round(value, 3) for name, value in vars(constants).items()})
    for line in graded():
        print(line)


if __name__ == "__main__":
    main()
