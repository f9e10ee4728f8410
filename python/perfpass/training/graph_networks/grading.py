"""What the manifest of a graph network says of a task: bounds, what was measured, and errors on what it never saw."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from perfpass.predictors.learned.intervals import quantiles
from perfpass.training import metrics
from perfpass.training.tasks.tasks import Split, Task

_COVERAGE = 0.9


def errors(predicted: np.ndarray, measured: np.ndarray) -> dict[str, Any]:
    """Rounded errors of predictions."""
    found = metrics.absolute_percentage_errors(predicted, measured)
    return {
        "rows": len(measured),
        "mape": round(float(found.mean()), 4),
        "median_ape": round(float(np.median(found)), 4),
        "within_10_percent": round(float((found <= 0.1).mean()), 4),
        "rmse": float(np.sqrt(np.mean((predicted - measured) ** 2))),
        "kendall_tau": round(metrics.kendall_tau(predicted, measured), 4),
    }


def grade(predict: Callable[[np.ndarray], np.ndarray], task: Task, split: Split) -> dict[str, Any]:
    """Bounds of log(measured / predicted) on ``split.valid``, errors on ``split.test``, and what was learned from.

    ``predict``: the task's values for indices of its rows.
    """
    low, high = quantiles(np.log(task.value[split.valid] / predict(split.valid)), _COVERAGE)
    predicted, measured = predict(split.test), task.value[split.test]
    inside = (measured >= predicted * np.exp(low)) & (measured <= predicted * np.exp(high))
    rows = task.rows.iloc[split.train]
    software = rows.groupby(["device", "precision", "runtime", "layout"]).batch.agg(["min", "max", "size"])
    return {
        "low": round(min(low, -0.01), 4),
        "high": round(max(high, 0.01), 4),
        "held_out": "networks" if split.name == "architecture" else "rows",
        "measured": [
            [*map(str, key), int(low_), int(high_), int(n)]
            for key, (low_, high_, n) in zip(software.index, software.to_numpy(), strict=True)
        ],
        "networks": sorted(set(rows.architecture)) if split.name == "random" else [],
        "test": {**errors(predicted, measured), "covered": round(float(inside.mean()), 4)},
    }
