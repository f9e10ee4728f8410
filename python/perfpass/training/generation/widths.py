"""Widths of generation's times: errors of what was held out of the records, and of other laboratories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.devices import device as find_device
from perfpass.errors import PerfPassError
from perfpass.predictors.generation.engines import is_packed
from perfpass.predictors.generation.features import ONE_SEQUENCE, RUNTIMES, Batch, memory, vendors_of
from perfpass.predictors.generation.predictor import QUANTITY, GenerationPredictor, batch_of
from perfpass.predictors.learned.component_widths import CAUSES, of_boards
from perfpass.predictors.learned.spread import Spread
from perfpass.records import schema
from perfpass.records.location import data_directory
from perfpass.training import spread
from perfpass.training.components import widths as components
from perfpass.training.components.grade import Held, Quantity
from perfpass.training.spread import Errors
from perfpass.training.tasks.splits import Fold

if TYPE_CHECKING:
    import pandas

# Log half-widths that fits are drawn to, and those of what no error shows. By hand: a runtime of which no board was
# measured may be several times as fast or slow as another; of llama.cpp's file types and prompts, which are counted
# elsewhere, the factors learned here say little (lower bounds that runs on a Ryzen AI Max+ asked for).
PRIOR: Mapping[str, float] = {
    "measurement": 0.1, "laboratory": 0.25, "unlike": 0.3, "model": 0.2, "device": 0.5, "vendor": 0.7, "runtime": 1.0,
    "precision": 0.5, "load": 0.2, "long prompts": 0.4, "long answers": 0.2, "llama.cpp's prompts": 1.5,
    "llama.cpp's file types": 2.7,
}  # fmt: skip
# Of phases two to five models and devices tell, and one laboratory or two: what the next may be off by.
PRIOR_OF_PHASES: Mapping[str, float] = {**PRIOR, "laboratory": 0.5, "model": 0.4, "device": 0.6}
# A part with more rows is thinned, evenly: its error as a whole is what counts.
_MOST_ROWS = 80
# Prompt tokens that llama.cpp takes at a time by itself.
_PROMPT_TOKENS_AT_A_TIME = 512


# Splitwise was published in November 2023, before vLLM's 0.2.6 (`training.serving.outside`).
_VERSIONS = {"splitwise": "0.2.0"}


def held_out_errors(q: Quantity, held: Held, folds: list[Fold], split: str) -> tuple[Errors, np.ndarray]:
    """As of `components.widths`, with what boards lack (`component_widths.of_boards`)."""
    found, rows = components.held_out_errors(q, held, folds, split)
    vendor = of_boards(held.evidence[rows], vendors_of(q.rows)[rows])["vendor"]
    lacks = np.where(np.array(found.causes) == "vendor", np.asarray(vendor)[:, None], found.lacks)
    return replace(found, lacks=lacks), rows


def fit(parts: list[Errors], quantity: str) -> Spread:
    """The widths that ship, of one quantity."""
    prior = PRIOR if quantity == QUANTITY else PRIOR_OF_PHASES
    return spread.fit(Errors.joined([p for p in parts if len(p)]).thinned(_MOST_ROWS), prior)


@dataclass(frozen=True)
class Asked:
    """One measurement of another laboratory as a question about the latency of a batch."""

    source: str
    batch: Batch
    measured_s: float


def load(folder: Path | str | None = None) -> tuple[list[Asked], Counter[str]]:
    """All questions, and how many rows are left out by reason. Raises FileError, FormatError."""
    root = (Path(folder) if folder else data_directory()) / "records"
    inner = schema.read(root / "generation.parquet", "generation")
    outer = schema.read(root / "generation_outside.parquet", "generation")
    out: list[Asked] = []
    left: Counter[str] = Counter()
    for table in (inner[inner.source == "splitwise"], outer[outer.runtime.isin(RUNTIMES)]):
        for row in _thinned(table).itertuples():
            found = _asked(row)
            if isinstance(found, str):
                left[found] += 1
            else:
                out.append(found)
    left["runtimes that are not predicted"] = int((~outer.runtime.isin(RUNTIMES)).sum())
    return out, left


def _thinned(table: pandas.DataFrame) -> pandas.DataFrame:
    import pandas

    parts = []
    for _, part in table.groupby(["source", "runtime", "device", "mode"], sort=True):
        order = part.sort_values(["model", "precision", "batch", "input_tokens", "run"], kind="stable")
        parts.append(order.iloc[np.unique(np.linspace(0, len(order) - 1, min(len(order), _MOST_ROWS)).astype(int))])
    return pandas.concat(parts)


def _asked(row: Any) -> Asked | str:
    """The question of a row, or why there is none."""
    for caveat, reason in (
        ("power_capped", "power capped at an unknown height"),
        ("requests_wait_for_each_other", "all requests of a data set at once: how many run together is not stated"),
        ("output_length_not_stated", "lengths are not stated"),
        ("mean_rate_and_mean_time_differ", "rate and time contradict each other"),
    ):
        if caveat in row.caveats:
            return reason
    prompt, answer, at_once = int(row.input_tokens), int(row.output_tokens), max(int(row.batch), 1)
    if row.mode == "prefill":
        answer, seconds = 1, row.ttft_ms / 1e3 if np.isfinite(row.ttft_ms) else prompt / row.throughput_per_s
    elif row.mode == "decode":
        if getattr(row, "context_tokens", 0) > 1:
            return "tokens after a prompt that was not timed"
        prompt, seconds = 1, answer * row.tpot_ms / 1e3
    elif np.isfinite(row.tpot_ms) and np.isfinite(row.ttft_ms):
        seconds = (row.ttft_ms + (answer - 1) * row.tpot_ms) / 1e3
    elif np.isfinite(row.throughput_per_s) and row.throughput_unit == "output tokens":
        seconds = at_once * answer / row.throughput_per_s
    else:
        return "no time of a whole batch"
    if not (np.isfinite(seconds) and seconds > 0):
        return "no time of a whole batch"
    try:
        batch = batch_of(
            getattr(row, "network", "") or row.model,
            find_device(row.device),
            runtime=row.runtime,
            devices=max(int(row.n_devices), 1),
            batch=_PROMPT_TOKENS_AT_A_TIME if row.runtime == "llama.cpp" else at_once,
            input_tokens=max(prompt, 1),
            output_tokens=max(answer, 1),
            precision=row.precision,
            runtime_version=_VERSIONS.get(row.source, "") if row.runtime == "vllm" else "",
        )
    except PerfPassError as error:
        return f"not asked: {type(error).__name__}"
    if not memory(batch).fits:
        return "does not fit by the plan of memory"
    if batch.runtime in ONE_SEQUENCE and is_packed(batch.precision):
        return "file types and boards of llama.cpp that are counted, and graded apart"
    part = f"source:{row.source}/{row.runtime}, {row.mode}"
    return Asked(part, batch, float(seconds))


def answers(predictor: GenerationPredictor, asked: list[Asked]) -> tuple[np.ndarray, Errors]:
    """[N] medians in seconds, and the errors."""
    medians, found = [], []
    for a in asked:
        medians.append(predictor.latency(a.batch).median)
        found.append(predictor.lacks_of(a.batch))
    columns = {cause: np.array([float(np.ravel(one[cause])[0]) for one in found]) for cause in CAUSES}
    seconds = np.array(medians)
    measured = np.array([a.measured_s for a in asked])
    return seconds, Errors.of(np.log(measured / seconds), columns, np.array([a.source for a in asked], dtype=object))
