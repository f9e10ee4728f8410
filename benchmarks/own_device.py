"""A device learned from its own measurements: the error of the predictor before and after, by split.

    python benchmarks/own_device.py [RECORDS ...] [--json FILE]

Takes inference records of images and of encoders in torch and onnxruntime (default: those in data/records/measured),
predicts each run from its graph (traced without weights), and corrects the prediction as `perfpass calibrate` does with
10, with 32 and with all records of the training side. Splits: random halves, and five folds in which no
architecture is on both sides. The 10 and the 32 are drawn twenty times with fixed seeds; the table shows means over
the draws.
"""

from __future__ import annotations

import argparse
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from report import publish, table

from perfpass.devices import device as find_device
from perfpass.errors import PerfPassError
from perfpass.importers import model_sources
from perfpass.importers import torch as torch_importer
from perfpass.importers.huggingface import trace_config
from perfpass.measure.journal import read
from perfpass.predictors.assemble import run_of
from perfpass.predictors.calibration.correction import Point, point
from perfpass.predictors.calibration.posterior import Calibration, shipped
from perfpass.predictors.lane import predictor_of
from perfpass.records import measured

DRAWS = 20
FOLDS = 5
SIZES = (10, 32)


@cache
def graph(model: str, batch: int, image_size: int | None, length: int | None) -> Any:
    source, _, name = model.partition(":")
    if source == "hf":
        return trace_config(_configuration(name), batch=batch, sequence_length=length or 128, mode="encoder")
    if source == "unet":
        import torch

        from perfpass.measure import unet

        with torch.device("meta"):
            module: Any = unet.UNet(unet.NAMES[name]).eval()
        return torch_importer.trace(module, (unet.CHANNELS, unet.HEIGHT, unet.WIDTH), batch=batch)
    module = model_sources.timm(name) if source == "timm" else model_sources.torchvision(name)
    return torch_importer.trace(module, (3, image_size, image_size), batch=batch)


def _configuration(name: str) -> dict[str, Any]:
    return model_sources.read_configuration(name)


def device_of(facts: dict[str, Any]) -> Any:
    """The device as a prediction without any record of it sees it."""
    return find_device("cpu" if facts["device"]["kind"] == "cpu" else facts["device"]["catalogue_id"])


def predicted(rows: Any, facts: dict[str, dict[str, Any]]) -> tuple[list[Point], np.ndarray, np.ndarray]:
    """Without any record of the device: the N points of a calibration, which of the M rows have one [M], and whether
    the interval holds the measured time [N].
    """
    points, has, covered = [], [], []
    for row in rows.itertuples():
        size = None if np.isnan(row.ran_image_size) else int(row.ran_image_size)
        length = None if np.isnan(row.ran_sequence_length) else int(row.ran_sequence_length)
        try:
            run = run_of(
                graph(row.model, row.batch, size, length),
                device_of(facts[row.environment]),
                batch=row.batch,
                precision=row.precision,
                runtime=row.runtime,
                layout=row.layout,
            )
        except PerfPassError as error:
            print(f"left out: {row.model} {row.runtime} {row.precision}: {error}")
            has.append(False)
            continue
        estimate = predictor_of(run.way).estimate(run)
        has.append(True)
        points.append(point(estimate, run))
        covered.append(estimate.latency_ms.low <= row.latency_ms <= estimate.latency_ms.high)
    return points, np.array(has), np.array(covered)


def errors(estimate: np.ndarray, truth: np.ndarray) -> np.ndarray:
    return np.asarray(np.abs(estimate / truth - 1.0))


def halves(count: int, draw: int) -> list[tuple[np.ndarray, np.ndarray]]:
    order = np.random.default_rng(draw).permutation(count)
    return [(order[: count // 2], order[count // 2 :]), (order[count // 2 :], order[: count // 2])]


def by_architecture(models: np.ndarray, draw: int) -> list[tuple[np.ndarray, np.ndarray]]:
    names = np.random.default_rng(draw).permutation(np.unique(models))
    fold = {name: index % FOLDS for index, name in enumerate(names)}
    of = np.array([fold[name] for name in models])
    return [(np.flatnonzero(of != k), np.flatnonzero(of == k)) for k in range(FOLDS)]


def corrected(points: list[Point], truth_ms: np.ndarray, train: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Milliseconds predicted for the points ``test`` after a calibration by the points ``train``."""
    seen = [points[i] for i in train]
    made = Calibration(
        device="cpu",
        kind="cpu",
        predictors={},
        predictor=tuple(p.predictor for p in seen),
        software=tuple(p.software for p in seen),
        traits=np.stack([p.traits for p in seen]),
        log_ratio=np.log(truth_ms[train]) - np.log([p.predicted_ms for p in seen]),
    )
    out = np.array([points[i].predicted_ms for i in test])
    standard, _ = shipped()
    for name in {p.predictor for p in points}:
        asked = np.array([points[i].predictor == name for i in test])
        learned = made.posterior(name)
        if learned is None or not asked.any():
            continue
        chosen = [points[i] for i in test[asked]]
        mean, _ = learned.predict(standard(np.stack([p.traits for p in chosen])), [p.software for p in chosen])
        out[asked] *= np.exp(mean)
    return out


def learned(points: list[Point], truth: np.ndarray, split: Any, size: int | None) -> np.ndarray:
    """Errors of all rows held out once per draw, with ``size`` records of the training side (None: all of them)."""
    found = []
    for draw in range(DRAWS):
        for train, test in split(draw):
            chosen = train if size is None else np.random.default_rng(1000 + draw).choice(train, size, replace=False)
            found.append(errors(corrected(points, truth, chosen, test), truth[test]))
    return np.concatenate(found)


def summary(found: np.ndarray) -> dict[str, float]:
    return {"mape": float(found.mean()), "median": float(np.median(found)), "p90": float(np.quantile(found, 0.9))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="*", type=Path, metavar="RECORDS", help="journals of `perfpass measure`")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results here")
    options = parser.parse_args()

    paths = options.records or measured.journals()
    facts = {key: value for path in paths for key, value in read(path).facts.items()}
    rows = measured.load(paths)
    rows = rows[(rows.status == "ok") & (rows["mode"] == "inference") & rows.runtime.isin(["torch", "onnxruntime"])]
    rows = rows[rows.threads.isna() & (rows.repeat == 0) & ~rows["flags"].str.contains("contended")].reset_index(
        drop=True
    )
    points, has, covered = predicted(rows, facts)
    rows = rows[has].reset_index(drop=True)
    truth = rows.latency_ms.to_numpy(float)
    prior = np.array([p.predicted_ms for p in points])
    models = rows.model.to_numpy(str)

    splits = {
        "random halves": lambda draw: halves(len(rows), draw),
        "by architecture": lambda draw: by_architecture(models, draw),
    }
    lines: list[dict[str, Any]] = []
    for runtime in ("torch", "onnxruntime"):
        alone = (rows.runtime == runtime).to_numpy()
        found = summary(errors(prior[alone], truth[alone]))
        ratio = float(np.median(prior[alone] / truth[alone]))
        zero_shot = {"covered": float(covered[alone].mean()), "median_ratio": ratio, "rows": int(alone.sum())}
        lines.append({"split": f"any, {runtime}", "learned_from": "no record of it", **found, **zero_shot})
    for name, split in splits.items():
        for size in (*SIZES, None):
            found = summary(learned(points, truth, split, size))
            label = "all of the training side" if size is None else f"{size} records"
            lines.append({"split": name, "learned_from": label, **found})
    print(f"{len(rows)} records of {len(set(models))} models\n")
    shown = [
        [row["split"], row["learned_from"], *(f"{row[n]:.1%}" for n in ("mape", "median", "p90"))] for row in lines
    ]
    print(table(["split", "learned from", "MAPE", "median", "P90"], shown) + "\n")
    for row in lines:
        if "covered" in row:
            print(
                f"{row['split']}: {row['rows']} rows, predicted over measured {row['median_ratio']:.2f} (median), ",
                end="",
            )
            print(f"intervals hold for {row['covered']:.0%}")
    off = np.log(prior / truth)
    print("worst without a record:")
    for index in np.argsort(-np.abs(off))[:10]:
        row = rows.iloc[index]
        what = f"{row.model} {row.runtime} {row.precision} {row.layout} batch {row.batch}"
        print(f"  {what}: {truth[index]:.2f} ms, {np.expm1(off[index]):+.0%}")
    print()
    results = {"rows": len(rows), "models": len(set(models)), "lines": lines}
    publish("own_device", results, ("torch", "timm", "onnxruntime"), options.json)


if __name__ == "__main__":
    main()
