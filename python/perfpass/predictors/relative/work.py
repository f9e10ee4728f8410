"""What a run takes at the least, and holds: the figures by which a measurement of one run is copied to another.

Time: the roofline of every operator at the device's rates, with the time of the host to issue them
(`perfpass.predictors.roofline`); of a language model, the components of `perfpass.predictors.generation.features`.
Nothing learned is in them, so a record's figures stay as they were counted until the physics changes. Memory: the bytes
that are planned, without what a runtime holds beside them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.features import Tables
from perfpass.predictors import roofline
from perfpass.predictors.generation import features as generation
from perfpass.predictors.learned.ratios import fingerprints
from perfpass.predictors.memory import allocation
from perfpass.predictors.memory.step import planned
from perfpass.predictors.roofline import GEMM_RATE, ISSUE_S, KERNEL_S
from perfpass.predictors.training_step import features as step_features
from perfpass.predictors.training_step.predictor import derivation
from perfpass.predictors.workload import PRECISIONS

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.graph.step import Steps
    from perfpass.predictors.estimate import Run
    from perfpass.predictors.generation.features import Batch
    from perfpass.predictors.way import Way

VERSION = 1  # of what is counted here; a table of records states the one that it was made with
# Least milliseconds of a run, of its prompt, of one token, and of a run over its sequences; bytes that it holds.
WORK = ("run_ms", "prompt_ms", "token_ms", "request_ms", "held_bytes")
_PARTS = generation.FORM.components
_DECODE = tuple(_PARTS.index(name) for name in ("weights", "cache"))
_DECODE_FLOPS = _PARTS.index("decode_flops")
_PREFILL = _PARTS.index("prefill_weights")
_PREFILL_FLOPS = tuple(_PARTS.index(name) for name in ("prefill_flops", "prefill_attention"))
_ISSUE = _PARTS.index("issue")


@lru_cache(maxsize=512)
def _as_if(device: Device, precision: str) -> Device:
    """A device whose products of 16 bits run at the rate of another precision."""
    rate = PRECISIONS[precision][1]
    return replace(device, peak_flops={**device.peak_flops, "fp16": device.peak_flops.get(rate, 0.0)})


def _counted(way: Way) -> Way:
    """A way whose precision the roofline knows."""
    if way.precision in roofline.RATES:
        return way
    return replace(way, precision="fp16", device=_as_if(way.device, way.precision))


def _with_issue(device_s: np.ndarray, kernels: np.ndarray, way: Way) -> np.ndarray:
    """Milliseconds [N] of device and host, which work at once."""
    each = 0.0 if way.device.kind == "cpu" else ISSUE_S.get(way.runtime, ISSUE_S["torch.compile"])
    least = np.maximum(device_s, KERNEL_S)
    return 1e3 * roofline.smooth_maximum(least, np.maximum(kernels * each, 1e-12))


def inference_ms(tables: Tables, way: Way, byte_scale: float = 1.0) -> np.ndarray:
    """[N] least milliseconds of inference; ``byte_scale`` corrects tables that were counted at another width."""
    roof = roofline.bound(tables.table, _counted(way), byte_scale)
    return _with_issue(tables.sums(roof.roof_s * tables.count), tables.sums(roof.launched * tables.count), way)


def step_ms(steps: Steps, way: Way, byte_scale: float = 1.0) -> np.ndarray:
    """[N] least milliseconds of training steps."""
    roof = step_features.bound(steps.columns, way, byte_scale)
    tables = steps.tables
    issued = roof.launched * step_features.ISSUE_SHARE[steps.columns.part]
    return _with_issue(tables.sums(roof.roof_s * tables.count), tables.sums(issued * tables.count), way)


def of_run(run: Run, mode: str) -> tuple[dict[str, float], np.ndarray, float]:
    """The work of one run or step, the network's fingerprint (`learned.ratios`), and MACs of a forward pass."""
    way, training = run.way, mode == "training"
    runs = allocation.runs_of(run, training=training)
    batch = np.array([run.batch])
    if training:
        steps = derivation(runs, way, run.float_as).steps(runs.tables)
        found = {"run_ms": float(step_ms(steps, way)[0])}
        columns = {
            "parameters": steps.parameters,
            "weight_bytes": runs.weight_bytes,
            "backward_bytes": runs.backward_bytes,
            "gradient_bytes": runs.gradient_bytes,
        }
        parts = planned(columns, way).parts
    else:
        found = {"run_ms": float(inference_ms(runs.tables, way)[0])}
        parts = {
            "weights": runs.weight_bytes * float(allocation.weight_copies(way.precision)),
            "activations": runs.activation_bytes,
        }
    held = sum(_one(parts[name]) for name in ("weights", "gradients", "optimizer", "activations") if name in parts)
    macs = float(runs.tables.sums(np.asarray(runs.tables.table.macs, dtype=np.float64) * runs.tables.count)[0])
    return {**found, "held_bytes": held}, fingerprints(runs.tables, batch)[0], macs


def _one(value: Any) -> float:
    return float(np.ravel(value)[0])


def of_batch(batch: Batch) -> dict[str, float]:
    """The work of one batch of equal requests to a language model: whole, until its first token, and of one token."""
    parts = generation.rows_of([batch]).components[0]
    prompt = max(parts[_PREFILL], sum(parts[i] for i in _PREFILL_FLOPS))
    tokens = max(sum(parts[i] for i in _DECODE), parts[_DECODE_FLOPS]) + parts[_ISSUE]
    memory = generation.memory(batch)
    return {
        "run_ms": 1e3 * float(prompt + tokens),
        "prompt_ms": 1e3 * float(prompt + tokens / batch.output_tokens),
        "token_ms": 1e3 * float(tokens / batch.output_tokens),
        "request_ms": 1e3 * float(prompt + tokens) / batch.sequences,
        "held_bytes": float(memory.weights_bytes + memory.cache_bytes),
    }


def of_served(batch: Batch) -> dict[str, float]:
    """The same of requests that arrive one after the other: a prompt is taken alone, tokens are made together."""
    together, alone = of_batch(batch), of_batch(replace(batch, batch=1))
    return {**together, "prompt_ms": alone["prompt_ms"] - alone["token_ms"] + together["token_ms"]}


def rate_of(precision: str) -> str:
    """The precision of `PRECISIONS` that a record's is counted at; fp32 for one that no graph is counted at."""
    return precision if precision in PRECISIONS or precision in GEMM_RATE else "fp32"
