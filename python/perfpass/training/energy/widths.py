"""Widths of a served token's energy at a known rate: errors held out of ML.ENERGY's servers, and of two laboratories.

LLM-Inference-Bench and splitwise-sim state watts and times of batches in vLLM and TensorRT-LLM: joules per output
token, prompts included, as of a server that answers as many tokens a second. No fit of energy has seen them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from perfpass.devices import device as find_device
from perfpass.llm.configuration import language_model
from perfpass.predictors.energy.features import Served
from perfpass.predictors.energy.predictor import EnergyPredictor, unlike_records
from perfpass.predictors.learned.component_widths import CAUSES
from perfpass.predictors.learned.spread import Spread
from perfpass.records import schema
from perfpass.records.location import data_directory
from perfpass.training import spread
from perfpass.training.spread import Errors

# Log half-widths that fits are drawn to, and those of what no error shows. By hand.
PRIOR: Mapping[str, float] = {
    "measurement": 0.05, "laboratory": 0.25, "unlike": 0.2, "model": 0.1, "device": 0.2, "vendor": 0.5, "runtime": 0.3,
    "precision": 0.3, "load": 0.1, "long prompts": 0.1, "long answers": 0.1, "llama.cpp's prompts": 0.1,
    "llama.cpp's file types": 0.1,
}  # fmt: skip
# Of which two laboratories, and one of them alone, tell: never narrower than the prior.
_FEW = ("laboratory", "runtime")
_MOST_ROWS = 80
_RUNTIMES = ("vllm", "trtllm")


@dataclass(frozen=True)
class Asked:
    """One measurement of another laboratory: output tokens a second of all devices, and joules of each."""

    source: str
    served: Served
    runtime: str
    tokens_per_s: float
    measured_j: float


def load(folder: Path | str | None = None) -> list[Asked]:
    """All questions; repeats of one measurement count once. Raises FileError, FormatError."""
    root = (Path(folder) if folder else data_directory()) / "records"
    table = schema.read(root / "generation.parquet", "generation")
    table = table[table.power_w.notna() & table.runtime.isin(_RUNTIMES) & table.source.isin(["argonne", "splitwise"])]
    out: dict[tuple[object, ...], Asked] = {}
    for r in table.itertuples():
        model = language_model(r.model)
        # Beyond a model's positions splitwise's mean power falls to idle: generation had stopped.
        if model.max_positions and r.input_tokens > model.max_positions and r.source == "splitwise":
            continue
        whole = r.latency_ms if np.isfinite(r.latency_ms) else r.ttft_ms + (r.output_tokens - 1) * r.tpot_ms
        tokens = r.batch * r.output_tokens
        served = Served(
            model, find_device(r.device), int(r.n_devices), float(r.batch), int(r.input_tokens), int(r.output_tokens)
        )
        rate = tokens / (whole / 1e3)
        key = (r.source, r.runtime, r.device, r.model, r.n_devices, r.batch, r.input_tokens, r.output_tokens)
        out.setdefault(key, Asked(f"source:{r.source}/{r.runtime}", served, r.runtime, rate, r.power_w / rate))
    return list(out.values())


def answers(predictor: EnergyPredictor, asked: list[Asked]) -> tuple[np.ndarray, Errors]:
    """[N] medians in J per token at the measured rates, and the errors."""
    medians, lacking = [], []
    for a in asked:
        more = unlike_records(a.served, a.runtime)
        medians.append(predictor.serving_at_rate(a.served, a.tokens_per_s, more).value.median)
        lacking.append(predictor.lacks_at_rate(a.served, a.tokens_per_s, more))
    columns = {cause: np.array([float(np.ravel(one[cause])[0]) for one in lacking]) for cause in CAUSES}
    measured, source = (np.array([getattr(a, n) for a in asked]) for n in ("measured_j", "source"))
    return np.array(medians), Errors.of(np.log(measured / np.array(medians)), columns, source.astype(object))


def fit(parts: list[Errors]) -> Spread:
    """The widths that ship."""
    found = spread.fit(Errors.joined([p for p in parts if len(p)]).thinned(_MOST_ROWS), PRIOR)
    least = np.array([PRIOR[cause] if cause in _FEW else 0.0 for cause in CAUSES])
    low, high = (tuple(np.maximum(w, least).tolist()) for w in (found.low, found.high))
    return replace(found, low=low, high=high)
