"""What a prediction of language-model serving is: metrics with intervals, the memory it needs, and its support."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from perfpass.devices import Device
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.assumed import assumed_line, precision_name
from perfpass.llm.batch import StepTime
from perfpass.llm.memory import Beside
from perfpass.llm.serving import MemoryFit, Serving
from perfpass.prediction import (
    HYPOTHETICAL,
    Interval,
    MemoryVerdict,
    Support,
    check_width,
    evidence_of,
    interval_row,
    plots_of,
    understood_line,
)
from perfpass.predictors.memory.rows import memory_rows
from perfpass.predictors.serving.judged import judged
from perfpass.text import item, size

SCHEMA_VERSION = 1
_ROWS = (
    ("time to first token", "ttft_ms"),
    ("time per output token", "tpot_ms"),
    ("whole request", "request_ms"),
    ("output, all GPUs", "output_tokens_per_s"),
    ("output per GPU", "output_tokens_per_s_per_gpu"),
    ("offline, all tokens", "offline_tokens_per_s"),
    ("energy per token", "energy_per_token_j"),
    ("power per GPU", "power_w"),
)


@dataclass(frozen=True)
class Brought:
    """What one switch brings: its times over those without it, and bytes that it holds on each GPU; ``facts``: what it
    is, by name.
    """

    name: str
    said: str
    ttft_ratio: float
    tpot_ratio: float
    memory_bytes: int
    facts: dict[str, float] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Switched:
    """What was switched on, in order, and the medians ``without`` any of it."""

    parts: tuple[Brought, ...]
    without: dict[str, float] = field(hash=False)

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return {"parts": [vars(part) for part in self.parts], "without": self.without}

    def lines(self, where: str = "") -> list[str]:
        """The switches and what each brings, for a table; ``where`` that is, if not in the table's own load."""
        out = [f"  switched on{where}"]
        for part in self.parts:
            held = f", {size(part.memory_bytes)} on each GPU" if part.memory_bytes else ""
            ratios = f"first token x {part.ttft_ratio:.2f}, each after it x {part.tpot_ratio:.2f}{held}"
            out += [item(part.said), f"      {ratios}"]
        was = self.without
        plain = f"{was['ttft_ms']:,.0f} ms, {was['tpot_ms']:,.1f} ms, {was['output_tokens_per_s']:,.0f} tokens/s"
        return [*out, item(f"without: {plain}, {was['most_requests']:,.0f} requests fit")]


class Transformation(Protocol):
    """Something that is switched on in an engine (`perfpass.predictors.switches`)."""

    @property
    def prompt_tokens(self) -> int:
        """Tokens that it adds to every prompt."""
        ...

    def applied(self, found: LlmPrediction, model: LanguageModel, device: Device) -> LlmPrediction:
        """``found`` with it."""
        ...

    def stepped(self, model: LanguageModel, device: Device, serving: Serving) -> tuple[StepTime, Beside, Device]:
        """The steps of a replica with it, what its GPUs hold besides, and the device with the memory left to it."""
        ...


@dataclass(frozen=True)
class LlmPrediction:
    """What serving a model costs. ``print(prediction)`` gives a table, ``to_dict()`` strict JSON.

    ``ttft_ms``: arrival of a request to its first token, queueing included; ``tpot_ms``: mean time per output token
    after the first; ``request_ms``: a whole request; ``output_tokens_per_s`` over the whole deployment and
    ``output_tokens_per_s_per_gpu``; ``energy_per_token_j`` and ``power_w`` (one GPU's mean board power) where they
    are predicted, else None; ``offline_tokens_per_s``: one batch of equal requests, input and output tokens counted.
    ``assumed``: what was not asked for, by the name of its argument. ``memory_verdict``: whether it fits, and what
    would help where it does not; the times are then those of GPUs with enough memory. ``switched``: what was switched
    on beside a plain engine, and what it brings.
    """

    ttft_ms: Interval
    tpot_ms: Interval
    request_ms: Interval
    output_tokens_per_s: Interval
    output_tokens_per_s_per_gpu: Interval
    memory: MemoryFit
    support: Support
    model: dict[str, Any] = field(hash=False)
    device: dict[str, Any] = field(hash=False)
    serving: Serving = field(hash=False)
    breakdown: dict[str, Any] = field(hash=False)
    provenance: dict[str, Any] = field(hash=False)
    energy_per_token_j: Interval | None = None
    power_w: Interval | None = None
    offline_tokens_per_s: Interval | None = None
    assumed: dict[str, Any] = field(default_factory=dict, hash=False)
    memory_verdict: MemoryVerdict | None = None
    switched: Switched | None = None
    asked: Any = field(default=None, repr=False, compare=False)

    INTERVALS = (
        "ttft_ms",
        "tpot_ms",
        "request_ms",
        "output_tokens_per_s",
        "output_tokens_per_s_per_gpu",
        "energy_per_token_j",
        "power_w",
        "offline_tokens_per_s",
    )

    @property
    def evidence(self) -> Any:
        """As of `perfpass.prediction.Prediction.evidence`."""
        return evidence_of(self)

    @property
    def plot(self) -> Any:
        """Pictures, a `perfpass.report.ServedPlots`."""
        return plots_of(self)

    def to_dict(self) -> dict[str, Any]:
        """The prediction as strict JSON (no NaN, no infinity), with its ``schema_version``."""
        metrics = {name: getattr(self, name) for name in self.INTERVALS}
        return {
            "schema_version": SCHEMA_VERSION,
            "model": self.model,
            "device": self.device,
            "serving": self.serving.to_dict(),
            **{name: value.to_dict() if value else None for name, value in metrics.items()},
            "memory": self.memory.to_dict(),
            "memory_verdict": self.memory_verdict.to_dict() if self.memory_verdict else None,
            "assumed": self.assumed,
            **({"switched": self.switched.to_dict()} if self.switched else {}),
            "support": self.support.to_dict(),
            "breakdown": self.breakdown,
            "provenance": self.provenance,
        }

    def __str__(self) -> str:
        return serving_table(self)


def prediction_of(
    model: LanguageModel,
    device: Device,
    serving: Serving,
    ttft: Interval,
    tpot: Interval,
    *,
    memory: MemoryFit,
    support: Support,
    breakdown: dict[str, Any],
    provenance: dict[str, Any],
    measured_as: str = "",
) -> LlmPrediction:
    """The prediction that follows from the two times (ms) in a closed loop; without energy and power.

    Raises UnsupportedError for a time whose bounds say nothing.
    """
    for name, value in (("time to first token", ttft), ("time per output token", tpot)):
        check_width(f"the {name} of {serving.runtime} on {device.name}", value, support)
    steps = serving.output_length - 1
    request = Interval(
        ttft.median + steps * tpot.median, ttft.low + steps * tpot.low, ttft.high + steps * tpot.high, "ms"
    )
    output = request.inverse(1000 * serving.concurrency * serving.output_length, "tokens/s")
    return LlmPrediction(
        ttft_ms=ttft,
        tpot_ms=tpot,
        request_ms=request,
        output_tokens_per_s=output,
        output_tokens_per_s_per_gpu=output.scaled(1 / serving.gpus, "tokens/s"),
        memory=memory,
        memory_verdict=judged(model, device, serving, memory),
        support=support,
        model={
            "name": model.name,
            "parameters": model.parameters,
            "active_parameters": model.active_parameters,
            "layers": model.layer_count,
            "measured_as": measured_as or model.name,
        },
        device={
            "id": device.id,
            "name": device.name,
            "read_as": device.read_as,
            "others": list(device.others),
        },
        serving=serving,
        breakdown=breakdown,
        provenance=provenance,
    )


def serving_table(found: LlmPrediction) -> str:
    """Text of a prediction: metrics with bounds, memory per GPU, support with reasons."""
    s, m = found.serving, found.memory
    title = (
        f"{found.model['name']} on {s.gpus} x {found.device['name']}, {s.runtime} {s.runtime_version}".rstrip()
        + f", {precision_name(s.quantization)}, {s.input_length} -> {s.output_length} tokens, "
        + f"{s.concurrency:g} in flight"
        + (", disaggregated" if s.mode == "disagg" else "")
        + (f", at most {s.decode_batch:,} on a decode rank" if s.decode_batch else "")
        + (", answers of one length" if s.equal_answers else "")
    )
    lines = [title, *understood_line(found.device)]
    if line := assumed_line(found.assumed):
        lines.append(line)
    if found.memory_verdict and found.memory_verdict.fits != "yes":
        lines += ["", *found.memory_verdict.lines(), *([] if m.fits else [HYPOTHETICAL]), ""]
    lines += [interval_row(label, getattr(found, name)) for label, name in _ROWS if getattr(found, name) is not None]
    parts = (
        ("weights", m.weights_bytes),
        ("cache", m.cache_bytes),
        ("activations", m.activation_bytes),
        ("runtime", m.runtime_bytes),
    )
    total, unit = size(m.total_bytes).split()
    lines.append(f"  {'memory per GPU':<22} {total:>10} {unit:<10} of {size(m.usable_bytes)} usable")
    lines.append(f"  {'':<22} {'':>10} {' + '.join(f'{label} {size(taken)}' for label, taken in parts)}")
    lines += memory_rows(m)
    said = "" if m.fits_by_default else f"            {m.reason}"
    lines.append(f"  {'requests that fit':<22} {m.most_requests:>10,}{said}")
    lines += found.switched.lines() if found.switched else []
    lines.append(f"  support: {found.support.level}" + "".join(f"\n{item(reason)}" for reason in found.support.reasons))
    return "\n".join(lines)
