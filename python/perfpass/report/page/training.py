"""Pages of training a language model on one to many devices: one layout, or those that a search found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfpass.decision import FitAnswer, fits
from perfpass.interval import Interval
from perfpass.report import training_charts
from perfpass.report.page.blocks import Block, Cell, Key, Page, Points, Section, Tone, Words, interval_cell, key, table
from perfpass.report.run_charts import said
from perfpass.text import digits, size

_J_PER_KWH = 3.6e6


def training_page(found: Mapping[str, Any]) -> Page:
    """One layout: whether it fits, how long a step and the run take, what holds the memory, what would hold less."""
    name = _name(found)
    return Page(name, _headline(found, name), _tone(found), _lead(found), _keys(found), _sections(found))


def layouts_page(found: Mapping[str, Any]) -> Page:
    """The best layout of a search, and the others beside it."""
    fit, others = found["best"], found["do_not_fit"]
    first = (fit or others)[0]
    name = _name(first)
    headline = f"{name}: of {found['tried']} layouts {found['fit']} fit"
    headline += f"; the quickest, {_layout(first)}, takes {said(Interval(**first['step_s']))}" if fit else "; none does"
    rows = [
        (
            _layout(one),
            interval_cell(Interval(**one["step_s"])),
            interval_cell(Interval(**one["tokens_per_s"])),
            interval_cell(Interval(**one["memory_in_use_bytes"])),
            _number(one["fits_probability"]),
            _number(one["mfu"]),
        )
        for one in (*fit, *others)
    ]
    head = ("layout", "step", "tokens per second", "memory of each", "P(fits)", "MFU")
    caption = "The quickest that fit, then the nearest that do not" if fit else "The nearest, none of which fits"
    layouts = Section("Layouts", (table(caption, head, rows),))
    return Page(name, headline, _tone(first), _lead(first), _keys(first), (layouts, *_sections(first)))


def _name(found: Mapping[str, Any]) -> str:
    return f"{found['model']} on {found['devices']} x {found['device']}"


def _headline(found: Mapping[str, Any], name: str) -> str:
    chance = float(found["fits_probability"])
    answer = {"yes": "fits", "no": "does not fit", "perhaps": "may not fit"}[_fits(found)]
    run = ""
    if found["hours"] is not None:
        run = f"; the run takes {said(Interval(**found['hours']))}"
        run += f" and {said(Interval(**found['usd']))}" if found["usd"] is not None else ""
    return f"{name}: {answer} (P = {chance:.2f}), a step takes {said(Interval(**found['step_s']))}{run}"


def _tone(found: Mapping[str, Any]) -> Tone:
    tones: dict[FitAnswer, Tone] = {"yes": "good", "no": "bad", "perhaps": "unsure"}
    return tones[_fits(found)]


def _fits(found: Mapping[str, Any]) -> FitAnswer:
    return fits(Interval(**found["memory_in_use_bytes"]), found["device_memory_bytes"])


def _lead(found: Mapping[str, Any]) -> tuple[str, ...]:
    r = found["recipe"]
    return (
        f"{found['framework']}, {found['precision']}, {r['optimizer']}, sequences of {r['sequence']:,} tokens, "
        f"{found['tokens_per_step']:,} tokens a step; {_layout(found)}.",
        "Figures are medians with the bounds of nine in ten measured values.",
    )


def _layout(found: Mapping[str, Any]) -> str:
    layout, r = found["layout"], found["recipe"]
    ranks = {"tensor": "tp", "pipeline": "pp", "context": "cp", "expert": "ep", "data": "dp", "virtual": "vp"}
    parts = [f"{short}{layout[name]}" for name, short in ranks.items() if layout[name] > 1] or ["1 device"]
    parts += [layout["sharding"]] if layout["sharding"] != "none" else []
    parts += [layout["schedule"]] if layout["schedule"] != "1f1b" else []
    parts.append(f"micro-batches of {r['micro_batch']} x {r['micro_batches']}")
    parts += [f"recompute {r['recompute']}"] if r["recompute"] != "none" else []
    parts += [f"offload {r['offload']}"] if r["offload"] != "none" else []
    return ", ".join(parts)


def _keys(found: Mapping[str, Any]) -> tuple[Key, ...]:
    named = {"step": "step_s", "tokens": "tokens_per_s", "memory of each": "memory_in_use_bytes", "time": "hours"}
    named |= {"money": "usd"}
    return tuple(key(label, Interval(**found[name])) for label, name in named.items() if found[name] is not None)


def _sections(found: Mapping[str, Any]) -> tuple[Section, ...]:
    rows = [(label, interval_cell(value)) for label, value in _figures(found).items()]
    rows.append(("MFU, of the 16-bit peak", Cell(f"{100 * float(found['mfu']):.0f} %", float(found["mfu"]))))
    memory: list[Block] = [training_charts.stages(found), _by_stage(found)]
    host = max(float(stage["host"]) for stage in found["stages"])
    memory += [Words(f"{size(host)} of the host's memory are held for each device.")] if host else []
    made = [
        Section("Figures", (table("All figures", ("figure", "median, and bounds of the interval"), rows),)),
        Section("Memory", tuple(memory)),
        Section("Time of a step", (training_charts.step(found),)),
    ]
    if found.get("advice"):
        made.append(Section("What would take less memory", (_advice(found["advice"]),)))
    made += [Section("Notes", (Points(tuple(found["notes"])),))] if found["notes"] else []
    return tuple(made)


def _figures(found: Mapping[str, Any]) -> dict[str, Interval]:
    rate = Interval(**found["tokens_per_s"])
    figures = {
        "a step": Interval(**found["step_s"]),
        "tokens, all devices": rate,
        "tokens, of a device": rate.scaled(1 / found["devices"], rate.unit),
        "power of a device": Interval(**found["power_w_of_a_device"]),
        "memory of the fullest device": Interval(**found["memory_in_use_bytes"]),
    }
    for label, name, factor, unit in (
        ("time of the run", "hours", 1.0, "h"),
        ("money", "usd", 1.0, "USD"),
        ("energy", "energy_j", 1 / _J_PER_KWH, "kWh"),
        ("carbon", "carbon_g", 1e-3, "kgCO2e"),
    ):
        if found[name] is not None:
            figures[label] = Interval(**found[name]).scaled(factor, unit)
    return figures


def _by_stage(found: Mapping[str, Any]) -> Block:
    held = {part: name for part, (name, _) in training_charts.HOLDS.items() if any(s[part] for s in found["stages"])}
    rows = [
        (f"{i + 1}", *(Cell(size(float(s[p])), float(s[p])) for p in held), Cell(size(float(s["peak"])), s["peak"]))
        for i, s in enumerate(found["stages"])
    ]
    caption = "Bytes of each stage; not all of them are alive at once"
    return table(caption, ("stage", *held.values(), "at the peak"), rows)


def _advice(changes: list[Mapping[str, Any]]) -> Block:
    rows = [
        (
            one["words"] if one["same_training"] else f"{one['words']} (other weights come out)",
            Cell(size(float(one["memory_in_use_bytes"])), float(one["memory_in_use_bytes"])),
            Cell(f"{100 * float(one['memory']):+.0f} %", float(one["memory"])),
            Cell(
                f"{100 * float(one['time']):+.0f} % ({100 * float(one['time_low']):+.0f} to "
                f"{100 * float(one['time_high']):+.0f})",
                float(one["time"]),
            ),
            _number(one["fits_probability"]),
        )
        for one in changes
    ]
    head = ("switch on", "memory of each", "change", "step", "P(fits)")
    return table("Those that fit first, by their price in time", head, rows)


def _number(value: float) -> Cell:
    return Cell(digits(float(value)), float(value))
