"""What a prediction of one batch of equal requests is: times with intervals, throughput, and its support."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from perfpass.llm.assumed import assumed_line
from perfpass.llm.serving import MemoryFit
from perfpass.prediction import Interval, Support, check_width, evidence_of, interval_row
from perfpass.predictors import layer_kinds
from perfpass.predictors.generation.features import Batch, memory
from perfpass.predictors.learned import width_words
from perfpass.predictors.memory.rows import memory_rows
from perfpass.predictors.relative.question import AskedBatch
from perfpass.text import item, size


@dataclass(frozen=True)
class Offline:
    """One batch of equal requests.

    ``latency_s``: first prompt token to last output token of the whole batch. ``tokens_per_s``: input and output tokens
    of all sequences over it; ``output_tokens_per_s``: output tokens alone. ``prompt_s``: until every sequence that runs
    at once has its first token; ``token_s``: from one token of a sequence to its next. Both None where they are not
    predicted: weights of other than 16 bits, a published predictor, bounds that say nothing; ``token_s`` also for a
    single output token. ``memory``: of one of the devices. ``assumed``: what was not asked for, by the name of its
    argument.
    """

    latency_s: Interval
    tokens_per_s: Interval
    output_tokens_per_s: Interval
    memory: MemoryFit
    support: Support
    workload: dict[str, Any] = field(hash=False)
    provenance: dict[str, Any] = field(hash=False)
    prompt_s: Interval | None = None
    token_s: Interval | None = None
    assumed: dict[str, Any] = field(default_factory=dict, hash=False)
    asked: Any = field(default=None, repr=False, compare=False)

    @property
    def evidence(self) -> Any:
        """As of `perfpass.prediction.Prediction.evidence`."""
        return evidence_of(self)

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return {
            "latency_s": self.latency_s.to_dict(),
            "tokens_per_s": self.tokens_per_s.to_dict(),
            "output_tokens_per_s": self.output_tokens_per_s.to_dict(),
            "prompt_s": self.prompt_s.to_dict() if self.prompt_s else None,
            "token_s": self.token_s.to_dict() if self.token_s else None,
            "memory": self.memory.to_dict(),
            "support": self.support.to_dict(),
            "assumed": self.assumed,
            "workload": self.workload,
            "provenance": self.provenance,
        }

    def __str__(self) -> str:
        return offline_table(self)


def costs_of(batch: Batch, latency: Interval, support: Support, provenance: dict[str, Any]) -> Offline:
    """Throughputs and the workload beside a latency in seconds.

    Raises UnsupportedError for a latency whose bounds say nothing.
    """
    check_width(f"a batch of {batch.runtime} on {batch.device.name}", latency, support)
    total = batch.sequences * (batch.input_tokens + batch.output_tokens)
    return Offline(
        latency_s=latency,
        tokens_per_s=latency.inverse(total, "1/s"),
        output_tokens_per_s=latency.inverse(batch.sequences * batch.output_tokens, "1/s"),
        memory=memory(batch),
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
        asked=AskedBatch(batch),
    )


def with_unknown_kernels(found: Offline, batch: Batch) -> Offline:
    """With bounds that allow for layers of a kind that nothing was learned from, and what is said of them."""
    said = layer_kinds.reasons(batch.model)
    if not said:
        return found

    def wider(value: Interval | None) -> Interval | None:
        return None if value is None else layer_kinds.wider(value, batch.model)

    latency = layer_kinds.wider(found.latency_s, batch.model)
    support = Support(width_words.level_of(latency, found.support.level), (*found.support.reasons, *said))
    asked = costs_of(batch, latency, support, found.provenance)
    return replace(asked, prompt_s=wider(found.prompt_s), token_s=wider(found.token_s))


def offline_table(found: Offline) -> str:
    """Text of one batch of equal requests: times with bounds, support with reasons."""
    w = found.workload
    phases = (("time to first token", found.prompt_s), ("time per output token", found.token_s))
    taken, unit = size(found.memory.total_bytes).split()
    lines = [
        f"{w['model']} on {w['devices']} x {w['device']}, {w['runtime']}, {w['precision']}, "
        f"{w['input_tokens']} -> {w['output_tokens']} tokens, {w['sequences']} at once, without a server",
        *([line] if (line := _assumed(found)) else []),
        interval_row("the whole batch", found.latency_s),
        interval_row("all tokens", found.tokens_per_s),
        interval_row("output tokens", found.output_tokens_per_s),
        # In milliseconds, as of a server.
        *(interval_row(label, value.scaled(1e3, "ms")) for label, value in phases if value),
        f"  {'memory per device':<22} {taken:>10} {unit:<10} of {size(found.memory.usable_bytes)} usable",
        *memory_rows(found.memory),
        *([f"  {'':<22} {'':>10} {found.memory.reason}"] if found.memory.reason else []),
        f"  support: {found.support.level}",
        *(item(reason) for reason in found.support.reasons),
    ]
    return "\n".join(lines)


def _assumed(found: Offline) -> str:
    """What was assumed. Where one sequence runs, the concurrency is that of its prompt's tokens (llama.cpp's -ub)."""
    line = assumed_line(found.assumed)
    pieces = found.assumed.get("concurrency", found.workload["sequences"]) != found.workload["sequences"]
    return f"{line} (concurrency: prompt tokens at a time)" if pieces else line
