"""What the time to the first token errs by: cold starts, room in the cache, unstated workers, and what is left by the
largest part of the base's own figure (`perfpass.predictors.serving.first_token.PARTS`).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from perfpass.predictors.serving.base import first_parts, times
from perfpass.predictors.serving.first_token import PARTS
from perfpass.training.serving.dataset import Dataset

COLD, QUEUE, UNSTATED = "cold start", "room in cache or batch", "workers not stated"
CAUSES = (COLD, QUEUE, UNSTATED, *PARTS)
# A wait for room counts as the cause from this share of the predicted time on; first tokens over ten seconds always.
_WAIT = 0.2
_WORST = 100


def causes(data: Dataset, constants: Mapping[str, float]) -> np.ndarray:
    """[N] which of CAUSES stands first for each row; the base's parts by ``constants``."""
    t, c = data.workloads.terms, dict(constants)
    base = times(t, c)
    largest = np.empty(len(data), dtype=object)
    for split in (False, True):
        rows = np.flatnonzero(t.split == split)
        found = first_parts(t.take(rows), c, split, base["tpot"][rows])
        largest[rows] = np.array(PARTS, dtype=object)[np.argmax(list(found.values()), axis=0)]
    largest[t.unstated] = UNSTATED
    largest[data.queued | (base["queue"] > _WAIT * base["ttft"])] = QUEUE
    largest[data.cold] = COLD
    return largest


def table(cause: np.ndarray, predicted_s: np.ndarray, measured_s: np.ndarray) -> str:
    """Markdown: by cause how many rows there are, how they err, and their share of all error and of the worst rows."""
    off = np.abs(predicted_s / measured_s - 1)
    bias = np.log(measured_s / predicted_s)
    logarithm = np.abs(bias)
    worst = np.argsort(-logarithm)[:_WORST]
    lines = [
        "| mostly | rows | MAPE % | median % | measured over predicted | share of error % | of the worst hundred |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name in CAUSES:
        rows = cause == name
        if rows.any():
            cells = (
                f"{rows.sum()}",
                f"{100 * off[rows].mean():.0f}",
                f"{100 * np.median(off[rows]):.0f}",
                f"{np.exp(np.median(bias[rows])):.2f}",
                f"{100 * logarithm[rows].sum() / logarithm.sum():.0f}",
                f"{rows[worst].sum()}",
            )
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
