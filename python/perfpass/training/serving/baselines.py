"""What the serving predictor has to beat on the same folds: the roofline, the nearest record scaled by it, and a plain
regression on the table's columns.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from perfpass.predictors.serving.base import BY_RUNTIME, CONSTANTS, RUNTIMES, SHARED, Terms, times
from perfpass.predictors.serving.features import Neighbours
from perfpass.predictors.serving.predictor import TARGETS
from perfpass.training.serving.dataset import Dataset
from perfpass.training.serving.held_out import folds_of

# Columns that a plain regression gets: everything the table states of a run.
TABLE_NUMBERS = (
    *("input_tokens", "output_tokens", "concurrency", "batch", "n_devices", "tensor_parallel", "data_parallel"),
    *("moe_tensor_parallel", "moe_expert_parallel", "prefill_batch", "prefill_workers", "prefill_tensor_parallel"),
    *("prefill_data_parallel", "decode_workers", "draft_tokens", "disaggregated"),
)
TABLE_TEXTS = ("device", "family", "runtime", "runtime_version", "gemm_quantization", "moe_quantization")


def at_peaks(terms: Terms) -> dict[str, np.ndarray]:
    """Seconds [N] of both targets at the peaks of the devices, without a fixed time or a wait for others, every draft
    token kept: nothing is fitted.
    """
    ideal = {name: 1.0 if value < 1.0 and not name.endswith("_s") else 0.0 for name, value in SHARED.items()}
    own = {f"{name}.{runtime}": 0.0 for name in BY_RUNTIME for runtime in RUNTIMES}
    counted = replace(terms, kernels=np.zeros(len(terms), dtype=bool))
    found = times(counted, dict.fromkeys(CONSTANTS, 1.0) | ideal | own)
    return {"tpot": found["step"], "ttft": found["prompt"]}


def roofline(data: Dataset) -> dict[str, np.ndarray]:
    """`at_peaks` of the records."""
    return at_peaks(data.workloads.terms)


def copied(data: Dataset, level: str, seed: int) -> dict[str, np.ndarray]:
    """Seconds [N] of the nearest record of the training rows, scaled by the ratio of rooflines; NaN where no fold holds
    a row out.
    """
    roof = roofline(data)
    out = {target: np.full(len(data), np.nan) for target in TARGETS}
    for fold in folds_of(data, level, seed):
        train, test = data.workloads.take(fold.train), data.workloads.take(fold.test)
        known = Neighbours.of(train, data.weight[fold.train])
        first = known.nearest(test)
        for target in TARGETS:
            ratio = (data.measured_s(target) / roof[target])[fold.train][first]
            out[target][fold.test] = roof[target][fold.test] * ratio
    return out


def regressed(data: Dataset, level: str, seed: int) -> dict[str, np.ndarray]:
    """Out-of-fold seconds [N] of XGBoost on the table's columns, on the same folds: what plain regression gets."""
    import xgboost

    rows = data.rows
    codes = [rows[name].astype("category").cat.codes.to_numpy(dtype=float) for name in TABLE_TEXTS]
    numbers = [rows[name].replace(-1, np.nan).to_numpy(dtype=float) for name in TABLE_NUMBERS]
    x = np.stack([*codes, *numbers], axis=1)
    out = {target: np.full(len(data), np.nan) for target in TARGETS}
    parameters: dict[str, Any] = {"max_depth": 7, "eta": 0.06, "tree_method": "hist", "nthread": 1, "seed": seed}
    for fold in folds_of(data, level, seed):
        for target in TARGETS:
            y = np.log(data.measured_s(target)[fold.train])
            table = xgboost.DMatrix(x[fold.train], y, weight=data.weight[fold.train])
            booster = xgboost.train(parameters, table, 300)
            out[target][fold.test] = np.exp(booster.predict(xgboost.DMatrix(x[fold.test])).astype(np.float64))
    return out
