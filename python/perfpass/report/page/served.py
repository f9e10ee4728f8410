"""Pages of served language models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from perfpass.report import interval_charts, memory_charts, sweep_charts
from perfpass.report.page.blocks import Block, Page, Points, Section, Tone, Words, interval_cell, key, table
from perfpass.report.page.runs import cost_section, support_blocks
from perfpass.report.run_charts import said
from perfpass.text import size

if TYPE_CHECKING:
    from perfpass.deploy.cost import Cost
    from perfpass.deploy.sweep import Sweep
    from perfpass.predictors.serving.prediction import LlmPrediction

_NAMES = {
    "ttft_ms": "time to the first token", "tpot_ms": "time per output token", "request_ms": "a whole request",
    "output_tokens_per_s": "output, all GPUs", "output_tokens_per_s_per_gpu": "output per GPU",
    "offline_tokens_per_s": "offline, all tokens", "energy_per_token_j": "energy per token", "power_w": "power per GPU",
}  # fmt: skip


def served_page(found: LlmPrediction, loads: Sweep | None, cost: Cost | None) -> Page:
    """One deployment: first token, time per token and memory, with the same by load beside it."""
    s, verdict = found.serving, found.memory_verdict
    where = f"{s.gpus} x {found.device['name']}"
    name = f"{found.model['name']} on {where}"
    headline = f"{name}: first token after {said(found.ttft_ms)}, then one each {said(found.tpot_ms)}"
    tone: Tone = "plain"
    if verdict is not None and verdict.fits != "yes":
        headline, tone = f"{name}: {verdict.headline}", "bad" if verdict.fits == "no" else "unsure"
    lead = (
        f"{s.runtime} {s.runtime_version}".rstrip()
        + f", {s.input_length} -> {s.output_length} tokens, {s.concurrency:g} in flight",
        f"Support: {found.support.level}. Figures are medians with the bounds of nine in ten measured values.",
    )
    keys = [key("first token", found.ttft_ms), key("per token", found.tpot_ms), key("a request", found.request_ms)]
    keys += [key("output", found.output_tokens_per_s)]
    named = {label: getattr(found, attribute) for attribute, label in _NAMES.items()}
    known = ((label, value) for label, value in named.items() if value is not None)
    rows = [(label, interval_cell(v.scaled(1.0, "tokens/s") if v.unit == "1/s" else v)) for label, v in known]
    charts = interval_charts.intervals(found, name)
    sections = [
        Section("Figures", (table("All figures", ("figure", "median, and bounds of the interval"), rows), *charts))
    ]
    if loads is not None:
        sections.append(Section("By load", sweep_charts.against_load(loads)))
    m = found.memory
    taken = f"{size(m.total_bytes)} of {size(m.usable_bytes)} are taken on each GPU"
    words = f"{m.most_requests:,} requests of this load fit at once; {taken}."
    memory: list[Block] = [Words(words), memory_charts.holders_of_a_served_model(found)]
    if verdict is not None and verdict.remedies:
        memory += [Words("What would help:"), Points(verdict.remedies)]
    sections.append(Section("Memory", tuple(memory)))
    if cost is not None:
        sections.append(cost_section(cost))
    basis = support_blocks(found.support.level, found.support.reasons)
    basis.append(
        table("Provenance", ("what", "value"), [(k.replace("_", " "), str(v)) for k, v in _plain(found.provenance)])
    )
    sections.append(Section("Support and provenance", tuple(basis)))
    return Page(name, headline, tone, lead, tuple(keys), tuple(sections))


def _plain(provenance: dict[str, Any]) -> Sequence[tuple[str, Any]]:
    return [(k, v) for k, v in provenance.items() if v is not None and not isinstance(v, (dict, list))]
