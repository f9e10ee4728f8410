"""Energy of a served token at a known rate in other laboratories than ML.ENERGY's.

LLM-Inference-Bench and splitwise-sim state watts and times of batches in vLLM and TensorRT-LLM: joules per output
token, prompts included, as of a server that answers as many tokens a second. No fit of energy has seen them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from perfpass.devices import device as find_device
from perfpass.llm.configuration import language_model
from perfpass.predictors.energy.features import CAUSES, Served
from perfpass.predictors.energy.predictor import EnergyPredictor, unlike_records
from perfpass.records import schema
from perfpass.records.location import data_directory
from perfpass.training.spread import Errors

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
