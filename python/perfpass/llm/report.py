"""A prediction of serving as a table for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfpass.llm.prediction import LlmPrediction
from perfpass.prediction import Interval

if TYPE_CHECKING:
    from perfpass.predictors.generation import Offline

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
_GB = 1e9


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _row(label: str, interval: Interval) -> str:
    bounds = f"{_number(interval.low)} to {_number(interval.high)}"
    return f"  {label:<22} {_number(interval.median):>10} {interval.unit:<10} {bounds} ({interval.coverage:.0%})"


def serving_table(found: LlmPrediction) -> str:
    """Text of a prediction: metrics with bounds, memory per GPU, support with reasons."""
    s, m = found.serving, found.memory
    title = (
        f"{found.model['name']} on {s.gpus} x {found.device['name']}, {s.runtime} {s.runtime_version}".rstrip()
        + f", {s.quantization.gemm}, {s.input_length} -> {s.output_length} tokens, {s.concurrency:g} in flight"
        + (", disaggregated" if s.mode == "disagg" else "")
    )
    lines = [title]
    lines += [_row(label, getattr(found, name)) for label, name in _ROWS if getattr(found, name) is not None]
    parts = (
        ("weights", m.weights_bytes),
        ("cache", m.cache_bytes),
        ("activations", m.activation_bytes),
        ("runtime", m.runtime_bytes),
    )
    sizes = " + ".join(f"{label} {size / _GB:.1f}" for label, size in parts)
    lines.append(
        f"  {'memory per GPU':<22} {m.total_bytes / _GB:>10.1f} GB         {sizes}; usable {m.usable_bytes / _GB:.1f}"
    )
    lines.append(f"  {'requests that fit':<22} {m.most_requests:>10,}{'' if m.fits else '            ' + m.reason}")
    lines.append(f"  support: {found.support.level}" + "".join(f"\n    - {reason}" for reason in found.support.reasons))
    return "\n".join(lines)


def offline_table(found: Offline) -> str:
    """Text of one batch of equal requests: times with bounds, support with reasons."""
    w = found.workload
    lines = [
        f"{w['model']} on {w['devices']} x {w['device']}, {w['runtime']}, {w['precision']}, "
        f"{w['input_tokens']} -> {w['output_tokens']} tokens, {w['sequences']} at once, without a server",
        _row("the whole batch", found.latency_s),
        _row("all tokens", found.tokens_per_s),
        _row("output tokens", found.output_tokens_per_s),
        f"  support: {found.support.level}",
        *(f"    - {reason}" for reason in found.support.reasons),
    ]
    return "\n".join(lines)
