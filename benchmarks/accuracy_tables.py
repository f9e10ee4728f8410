"""Tables of errors, from `data/results`: what `perfpass evaluate` wrote."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from report import table

ROOT = Path(__file__).resolve().parent.parent
# Written by `perfpass evaluate --output`: AREA.json.
ACCURACY = ROOT / "data" / "results" / "accuracy"
# Written by `perfpass evaluate --predictors all`.
COMPARISON = ROOT / "data" / "results" / "comparison" / "table.json"
SERVING_PEER = ROOT / "benchmarks" / "results" / "serving_peer.json"

# What the front page shows: words for it, area, metric, split, rows judged on, words for the split, and where a
# published predictor was graded: task and split of the comparison, or metric and method beside aiconfigurator.
_SHOWN: tuple[tuple[str, str, str, str, str, str, tuple[str, str] | None], ...] = (
    ("inference", "inference", "latency ms", "architecture", "GPUs (timm)", "network", ("latency", "architecture")),
    ("inference", "inference", "latency ms", "family", "GPUs (timm)", "family", ("latency", "family")),
    ("inference", "inference", "latency ms", "device", "rtx-4090", "device, RTX 4090", ("latency", "device rtx-4090")),
    ("inference", "inference", "latency ms", "source", "all", "laboratory", None),
    ("training step", "training_step", "step ms", "architecture", "all", "network", ("training_step", "architecture")),
    ("step in torch 2", "training_step", "step ms", "outside", "milabench", "laboratory", None),
    ("training of an LLM", "llm_training", "step s", "laboratory", "all", "laboratory", None),
    ("memory, training", "memory", "peak memory of training (MiB)", "network", "NVIDIA", "network", None),
    ("time per token", "serving", "TPOT (ms)", "model", "all", "model", ("tpot", "perfpass, model unseen")),
    ("time per token", "serving", "TPOT (ms)", "source", "that set no constant", "laboratory", None),
    ("time to first token", "serving", "TTFT (ms)", "model", "all", "model", ("ttft", "perfpass, model unseen")),
    ("generation, offline", "generation", "latency", "device", "all devices", "device", None),
    ("energy per token", "energy", "serving_energy", "model", "2 devices, J/token", "model", None),
    ("in a MIG slice", "mig", "latency in a slice", "model", "networks", "network", None),
)
_OWN = re.compile(r"perfpass(?!-)")
_PUBLISHED = {"dippm": "DIPPM", "trappm": "TraPPM", "graph-language": "graph + LM"}
_BASELINES = {
    "roofline only": "roofline",
    "roofline only, zero-shot": "roofline",
    "operators only": "operators",
    "operators only, zero-shot": "operators",
    "copied from the nearest network, scaled by operators": "scaled copy",
    "nearest relative, copied and scaled": "scaled copy",
    "trees on static features": "trees",
    "trees on the table's columns": "trees",
    "XGBoost on the table's columns": "trees",
    "nearest row, scaled": "scaled copy",
    "FLOPs at the peak": "peak",
    "live tensors + runtime, no allocator": "live tensors",
    "components only": "physics",
    "physical base alone": "physics",
    "physics and efficiencies": "physics",
    "roofline x processes x one rate": "roofline",
}


def section(area: str) -> dict[str, Any]:
    """What was stored of an area."""
    found: dict[str, Any] = json.loads((ACCURACY / f"{area}.json").read_text())
    return found


def errors() -> str:
    """The front page's table: ours, the best baseline, and what is published, on what was held out."""
    comparison = json.loads(COMPARISON.read_text())
    peer = {
        (x["metric"], x["method"]): x["mape_pct"]
        for x in json.loads(SERVING_PEER.read_text())["errors"]
        if x["judged_on"] == "rows that the peer answers"
    }
    rows = []
    for words, area, metric, split, judged_on, unseen, graded in _SHOWN:
        lines = [
            x for x in section(area)["lines"] if (x["metric"], x["split"], x["judged_on"]) == (metric, split, judged_on)
        ]
        ours = next(x for x in lines if _OWN.match(x["method"]) and "records" not in x["method"])
        others = [x for x in lines if not _OWN.match(x["method"])]
        best = min(others, key=lambda x: x["mape_pct"], default=None)
        rows.append(
            [
                words,
                unseen,
                f"{ours['rows']:,}",
                f"{ours['mape_pct']:.1f}",
                f"{ours['median_ape_pct']:.1f}",
                f"{best['mape_pct']:.1f} {_BASELINES.get(best['method'], best['method'])}" if best else "",
                _published(comparison, peer, graded) if graded else "",
                f"{ours['coverage_pct']:.0f}",
                f"{ours['interval_factor']:.1f}",
            ]
        )
    header = ["predicted", "held out", "rows", "MAPE %", "median %", "best baseline", "published (ours)", "covered"]
    return table([*header, "width"], rows)


def _published(comparison: dict[str, Any], peer: dict[tuple[str, str], float], graded: tuple[str, str]) -> str:
    """The best published predictor's error, its name, and ours on the same rows."""
    if graded[0] in ("tpot", "ttft"):
        return f"{peer[graded[0], 'aiconfigurator']:.1f} aiconfigurator ({peer[graded]:.1f})"
    cells = {c["predictor"]: c["mape_pct"] for c in comparison["cells"] if (c["task"], c["split"]) == graded}
    names = [n for n in cells if n.startswith(tuple(_PUBLISHED))]
    best = min(names, key=cells.__getitem__)
    family = next(name for start, name in _PUBLISHED.items() if best.startswith(start))
    return f"{cells[best]:.1f} {family} ({cells['perfpass']:.1f})"


def accuracy(folder: str) -> str:
    """The lines of our predictors that have an aim, of all areas; the full tables are beside their JSON."""
    from perfpass.training.areas import AREAS

    out = ["| metric | held out | judged on | rows | MAPE % | aim % | median % | P90 % | covered % |"]
    out.append("|---|---|---|---:|---:|---:|---:|---:|---:|")
    for area in (a for a in AREAS if (ACCURACY / f"{a}.json").is_file()):
        found = section(area)
        out.append(f"| **[{found['title']}]({folder}{area}.md)** |||||||||")
        for x in found["lines"]:
            if not x["method"].startswith("perfpass") or x["aim_pct"] is None:
                continue
            held_out = x["split"] + x["method"].removeprefix("perfpass")
            covered = "" if x["coverage_pct"] is None else f"{x['coverage_pct']:.0f}"
            numbers = f"{x['mape_pct']:.1f} | {x['aim_pct']:.0f} | {x['median_ape_pct']:.1f} | {x['p90_ape_pct']:.0f}"
            out.append(f"| {x['metric']} | {held_out} | {x['judged_on']} | {x['rows']} | {numbers} | {covered} |")
    return "\n".join(out)


_COMPARED = (
    (("latency", "random"), ("latency", "architecture"), ("latency", "family"), ("memory", "architecture")),
    (("training_step", "random"), ("training_step", "architecture"), ("training_step", "family")),
    (("energy", "random"), ("power", "random"), ("llm", "architecture")),
)
_SHORT = {"training_step": "training step", "random": "random rows", "architecture": "network", "llm": "LLM time"}


def predictors() -> str:
    """Mean errors of every predictor by task and what was held out, some tasks a table."""
    document = json.loads(COMPARISON.read_text())
    found = {(c["predictor"], c["task"], c["split"]): c["mape_pct"] for c in document["cells"]}
    tables = []
    for columns in _COMPARED:
        rows = [
            [name, *(f"{found[(name, *held)]:.1f}" if (name, *held) in found else "" for held in columns)]
            for name in document["predictors"]
        ]
        header = ["MAPE, %", *(", ".join(_SHORT.get(word, word) for word in held) for held in columns)]
        tables.append(table(header, [row for row in rows if any(row[1:])]))
    return "\n\n".join(tables)
