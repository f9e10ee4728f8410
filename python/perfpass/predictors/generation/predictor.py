"""Offline generation: how long a batch of equal requests takes, prefill and all output tokens, on any accelerator."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.devices import Device
from perfpass.devices import device as find_device
from perfpass.errors import ArgumentError
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.configuration import language_model
from perfpass.prediction import Interval, Support, SupportLevel, interval_row
from perfpass.predictors.generation.features import FORM, ONE_SEQUENCE, RUNTIMES, Batch, fits, rows_of
from perfpass.predictors.learned import artefacts
from perfpass.predictors.learned.components import UNSEEN_MODEL, Adaptation, Bounds, Fitted

QUANTITY = "latency"
# Beyond the measured ranges no held-out error speaks for the bounds: their logarithmic width grows so much. By hand.
BEYOND = 2.0
_PRECISIONS = ("fp16", "bf16")


@dataclass(frozen=True)
class Offline:
    """One batch of equal requests.

    ``latency_s``: first prompt token to last output token of the whole batch. ``tokens_per_s``: input and output tokens
    of all sequences over it; ``output_tokens_per_s``: output tokens alone.
    """

    latency_s: Interval
    tokens_per_s: Interval
    output_tokens_per_s: Interval
    support: Support
    workload: dict[str, Any] = field(hash=False)
    provenance: dict[str, Any] = field(hash=False)

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return {
            "latency_s": self.latency_s.to_dict(),
            "tokens_per_s": self.tokens_per_s.to_dict(),
            "output_tokens_per_s": self.output_tokens_per_s.to_dict(),
            "support": self.support.to_dict(),
            "workload": self.workload,
            "provenance": self.provenance,
        }

    def __str__(self) -> str:
        return offline_table(self)


def batch_of(
    model: str | os.PathLike[str] | Mapping[str, Any] | LanguageModel,
    device: str | Device,
    *,
    runtime: str = "vllm",
    devices: int = 1,
    batch: int = 1,
    input_tokens: int,
    output_tokens: int,
    precision: str = "fp16",
    stack: str = "",
) -> Batch:
    """A batch of equal requests from names.

    ``model``: a config.json, its content, a name that `perfpass.llm.names` knows, or a LanguageModel. ``runtime``: one
    of `RUNTIMES`; in llama.cpp one sequence runs, and ``batch`` is the number of prompt tokens processed at a time (its
    option -b). ``stack``: "listed as Intel PVC GPU" asks for the slower of the two software stacks that were measured
    on the Intel Max 1550.

    Raises ArgumentError, DeviceError, and what reading a configuration raises (FileError, FormatError,
    UnsupportedError).
    """
    if runtime not in RUNTIMES:
        raise ArgumentError(f"runtime {runtime!r}; allowed are {', '.join(RUNTIMES)}")
    read = model if isinstance(model, LanguageModel) else language_model(model)
    target = find_device(device)
    if target.kind == "cpu":
        raise ArgumentError(
            f"{target.id}: generation was measured on accelerators only; choose one (`perfpass devices`)"
        )
    return Batch(read, target, runtime, devices, batch, input_tokens, output_tokens, precision, stack)


def predict_offline(model: Any, device: str | Device, **options: Any) -> Offline:
    """`batch_of` and `GenerationPredictor.predict` in one, with the shipped predictor."""
    return GenerationPredictor.load().predict(batch_of(model, device, **options))


def offline(batch: Batch) -> Offline:
    """What the shipped predictor says of a batch."""
    return GenerationPredictor.load().predict(batch)


def check_fits(batch: Batch) -> None:
    """Raises ArgumentError where the weights and one sequence do not fit into memory."""
    if not fits(batch):
        raise ArgumentError(
            f"{batch.model.name} with one sequence of {batch.input_tokens + batch.output_tokens} tokens does not "
            f"fit into {batch.devices} x {batch.device.name}; take more devices or a lower precision"
        )


def costs_of(batch: Batch, latency: Interval, support: Support, provenance: dict[str, Any]) -> Offline:
    """Throughputs and the workload beside a latency in seconds."""
    total = batch.sequences * (batch.input_tokens + batch.output_tokens)
    return Offline(
        latency_s=latency,
        tokens_per_s=latency.inverse(total, "1/s"),
        output_tokens_per_s=latency.inverse(batch.sequences * batch.output_tokens, "1/s"),
        support=support,
        workload={
            "model": batch.model.name,
            "device": batch.device.id,
            "devices": batch.devices,
            "runtime": batch.runtime,
            "batch": batch.batch,
            "sequences": batch.sequences,
            "input_tokens": batch.input_tokens,
            "output_tokens": batch.output_tokens,
            "precision": batch.precision,
        },
        provenance=provenance,
    )


class GenerationPredictor:
    """Batch latency from a trained artefact; NumPy alone."""

    def __init__(self, folder: Path | str | None = None) -> None:
        """Reads the shipped artefact, or the one in ``folder``. Raises ArtefactError."""
        artefact = artefacts.Artefact(folder or artefacts.shipped("generation"))
        self.fitted = Fitted.read(FORM, artefact, QUANTITY)
        self.bounds = Bounds({k: (v[0], v[1]) for k, v in artefact.manifest[QUANTITY]["bounds"].items()})
        self.ranges: dict[str, tuple[float, float]] = {k: (v[0], v[1]) for k, v in artefact.manifest["ranges"].items()}
        self.corpus: dict[str, Any] = artefact.manifest["corpus"]

    @staticmethod
    @lru_cache(maxsize=1)
    def load() -> GenerationPredictor:
        """The shipped predictor, read once per process."""
        return GenerationPredictor()

    def adapted(self, batches: Sequence[Batch], latency_s: Sequence[float]) -> Adaptation:
        """What measured batches of one device or stack tell about its others; give it to `predict`.

        Needs SciPy. Raises ArgumentError for no measurement, unequal lengths, or a latency that is not above 0.
        """
        from perfpass.predictors.learned.adapt import adapt

        measured = np.asarray(latency_s, dtype=np.float64)
        if not len(batches) or len(batches) != len(measured) or not (np.isfinite(measured) & (measured > 0)).all():
            raise ArgumentError(f"{len(batches)} batches and {len(measured)} latencies; as many are needed, above 0 s")
        return adapt(self.fitted, rows_of(batches), measured)

    def predict(self, batch: Batch, adaptation: Adaptation | None = None) -> Offline:
        """Latency and throughput of one batch. Raises ArgumentError where the weights do not fit into memory."""
        check_fits(batch)
        beyond = beyond_measured(batch, self.ranges)
        latency, evidence = self._latency(batch, adaptation, BEYOND if beyond else 1.0)
        if batch.input_tokens != batch.output_tokens:
            # Records tell little of the prompt's share: the time with a prompt as long as the answer stays possible.
            equal, _ = self._latency(replace(batch, input_tokens=batch.output_tokens), adaptation, BEYOND)
            latency = replace(latency, low=min(latency.low, equal.low), high=max(latency.high, equal.high))
        provenance = {"kind": "learned", "evidence": evidence, "corpus": self.corpus}
        return costs_of(batch, latency, _support(batch, evidence, beyond), provenance)

    def _latency(self, batch: Batch, adaptation: Adaptation | None, widening: float) -> tuple[Interval, str]:
        rows = rows_of([batch])
        median, spread = self.fitted.predict(rows)
        evidence = str(self.fitted.evidence(rows)[0])
        if adaptation is not None:
            median = adaptation.predict(self.fitted, rows)
        return self.bounds.interval(float(median[0]), float(spread[0]), evidence, "s", widening), evidence


def beyond_measured(b: Batch, ranges: Mapping[str, Sequence[float]]) -> list[str]:
    """In what a batch is outside the records, as sentences; ``ranges``: least and most that was measured, by name."""
    values = {
        "devices": b.devices,
        "batch": b.batch,
        "input_tokens": b.input_tokens,
        "output_tokens": b.output_tokens,
        "parameters": b.model.parameters,
    }
    found = [
        f"{name} {values[name]:,} is outside the measured {low:,.0f} to {high:,.0f}"
        for name, (low, high) in ranges.items()
        if not low <= values[name] <= high
    ]
    if b.precision not in _PRECISIONS:
        found.append(f"only 16-bit weights were measured, not {b.precision}")
    if b.input_tokens != b.output_tokens:
        found.append("only prompts as long as their answers were measured")
    return found


def _support(b: Batch, evidence: str, beyond: list[str]) -> Support:
    reasons = list(beyond)
    known = evidence.removesuffix(UNSEEN_MODEL)
    if known == "device unseen":
        reasons.append(f"no measurement of {b.runtime} on {b.device.name}; boards of its vendor carry over")
    elif known == "vendor unseen":
        reasons.append(
            f"no measurement of {b.runtime} on any board of {b.device.vendor}; errors of a factor of 3 were seen"
        )
    elif known == "runtime unseen":
        reasons.append(f"{b.runtime} was not measured; errors of a factor of 3 were seen")
    if evidence.endswith(UNSEEN_MODEL):
        reasons.append("this model's architecture was not measured")
    if b.runtime in ONE_SEQUENCE:
        reasons.append(f"{b.runtime} was timed with one sequence; batch is the number of prompt tokens at a time")
    level: SupportLevel = "in range" if evidence == "seen" and not beyond else "near"
    if beyond or known in ("vendor unseen", "runtime unseen"):
        level = "outside"
    return Support(level, tuple(reasons))


def offline_table(found: Offline) -> str:
    """Text of one batch of equal requests: times with bounds, support with reasons."""
    w = found.workload
    lines = [
        f"{w['model']} on {w['devices']} x {w['device']}, {w['runtime']}, {w['precision']}, "
        f"{w['input_tokens']} -> {w['output_tokens']} tokens, {w['sequences']} at once, without a server",
        interval_row("the whole batch", found.latency_s),
        interval_row("all tokens", found.tokens_per_s),
        interval_row("output tokens", found.output_tokens_per_s),
        f"  support: {found.support.level}",
        *(f"    - {reason}" for reason in found.support.reasons),
    ]
    return "\n".join(lines)
