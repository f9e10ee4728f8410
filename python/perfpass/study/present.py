"""Tables, pictures and findings of the comparison, made from its journal: nothing in them is typed by hand.

python -m perfpass.study.present      # docs/research/comparison.md again, from data/results/comparison
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.errors import FormatError
from perfpass.records.location import data_directory
from perfpass.study import blend, table
from perfpass.study.findings import TIE, findings
from perfpass.study.studied import studied
from perfpass.training.tasks import methods, tasks
from perfpass.whole_file import write_whole

SCHEMA_VERSION = 1
LINE_WIDTH = 118
ENSEMBLE = "ensemble"
# What may be mixed: all that learn from the network's structure or from our features; a constant adds nothing.
_DEFAULT = "perfpass"
_NOT_MIXED = ("constant", "roofline")
_UNITS = {"latency": "ms", "training_step": "ms", "memory": "GB", "energy": "J", "power": "W", tasks.LANGUAGE_TASK: "s"}
_SCALE = {"memory": 1e-9}
# What the authors state, of other networks, devices and splits; only figures whose source can be named.
_TRAPPM_TABLES = (
    "Panner Selvam and Brorsson, Can Semi-Supervised Learning Improve Prediction of Deep Learning Model Resource "
    "Consumption?, ML for Systems workshop at NeurIPS 2023; result tables in github.com/karthickai/trappm"
)
PUBLISHED: tuple[dict[str, str], ...] = (
    {
        "predictor": "dippm",
        "stated": "MAPE 1.9 %",
        "judged_on": "latency, memory and energy of inference, random rows of 10,508 graphs on one A100",
        "source": "Panner Selvam and Brorsson, DIPPM, Euro-Par 2023, doi 10.1007/978-3-031-39698-4_1",
    },
    {
        "predictor": "trappm",
        "stated": "MAPE 9.5 % (step time), 4.9 % (memory), 5.0 % (power)",
        "judged_on": "training of vision networks on one GPU, mean over eleven families and five runs",
        "source": _TRAPPM_TABLES,
    },
    {
        "predictor": "llm-trees",
        "stated": "MAPE below a graph network's by 69 % (throughput), 81 % (memory), 88 % (energy); speed + 26,761 %",
        "judged_on": "language models, by the authors' own measurements",
        "source": "Panner Selvam and Brorsson, Can Tree-Based Model Improve Performance Prediction for LLMs?, ARC-LG "
        "workshop at ISCA 2024, hdl.handle.net/10993/62222",
    },
    {
        "predictor": "graph-language",
        "stated": "accuracy 8.8 points above a graph network, 30 to 70 points with few samples of new hardware",
        "judged_on": "the authors' data sets",
        "source": "Panner Selvam and others, Can LLMs Enhance Performance Prediction for Deep Learning Models?, WANT "
        "workshop at ICML 2024, openreview.net/forum?id=bpS4vaOg7q",
    },
)
_MOST_DEVICES = 4  # columns of a table of unseen devices
_FIELDS = ("rows", "mape_pct", "median_ape_pct", "within_10_pct", "rmse", "kendall_tau", "valid_mape_pct")
_COSTS = ("fit_s", "predict_ms_per_row", "parameters")


def collect(journal: table.Journal, seed: int = 0) -> dict[str, Any]:
    """All cells of the journal that were fitted on the present rows, their ensembles, and what follows from them."""
    cells: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []
    machines: set[str] = set()
    have = {cell: entry for cell, entry in journal.entries().items() if cell.seed == seed}
    order = [name for name in methods.METHODS if any(methods.made_for(name, task) for task in tasks.EVERY_TASK)]
    content: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "seed": seed, "predictors": [*order, ENSEMBLE]}
    content["tasks"] = {}
    for name in tasks.EVERY_TASK:
        task, splits = table.task_of(name), table.splits_of(name, seed)
        stored: dict[str, dict[str, dict[str, np.ndarray]]] = {}
        content["tasks"][name] = {
            "rows": len(task),
            "networks": len(set(task.keys)),
            "unit": _UNITS[name],
            "splits": {s: {part: len(getattr(split, part)) for part in ("train", "valid", "test")}
                       for s, split in splits.items()},
        }  # fmt: skip
        for split_name, split in splits.items():
            digest = table.rows_digest(task, split)
            own: list[dict[str, Any]] = []
            for predictor in order:
                cell = table.Cell(predictor, name, split_name, seed)
                entry = have.get(cell)
                if entry is None or entry.get("rows_digest") != digest:
                    continue
                own.append(_line(cell, entry))
                machines.add(entry["machine"])
                for point in entry.get("adaptation", ()):
                    curves.append({"task": name, "device": cell.device, "predictor": predictor, **point})
                predictions = journal.predictions(cell)
                if predictor not in _NOT_MIXED and predictions is not None:
                    stored.setdefault(split_name, {})[predictor] = predictions
            cells += own
        cells += _ensembles(name, seed, stored, cells)
    content |= {"machines": sorted(machines), "cells": cells, "adaptation": curves, "published": list(PUBLISHED)}
    content["defaults"] = defaults(cells)
    results = data_directory() / "results" / "comparison"
    content["distillation"] = distillation(results)
    content["findings"] = [*findings(content), *studied(results)]
    return content


def _line(cell: table.Cell, entry: dict[str, Any]) -> dict[str, Any]:
    scale = _SCALE.get(cell.task, 1.0)
    line: dict[str, Any] = {"predictor": cell.predictor, "task": cell.task, "split": cell.split}
    line |= {name: _rounded(entry[name]) for name in (*_FIELDS, *_COSTS)}
    line["rmse"] = _rounded(entry["rmse"] * scale)
    cases = [{**c, **{k: _rounded(c[k] * scale) for k in ("measured", "predicted")}} for c in entry["worst_cases"]]
    return {**line, "worst_cases": cases}


def _ensembles(
    name: str, seed: int, stored: dict[str, dict[str, dict[str, np.ndarray]]], cells: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The ensemble of every split of a task for which two predictors or more are stored.

    Weights come from the split's validation rows. Those of an unseen device come from the other devices while they were
    unseen, for validation rows are of known ones; where there is no other, from validation after all.
    """
    task, splits = table.task_of(name), table.splits_of(name, seed)
    found = []
    for split_name, of in stored.items():
        split = splits[split_name]
        if len(of) < 2:
            continue
        chosen_on = [(split.valid, {p: values["valid"] for p, values in of.items()})]
        if split_name.startswith("device "):
            others = [
                n for n in stored if n.startswith("device ") and n != split_name and of.keys() <= stored[n].keys()
            ]
            unseen = [(splits[n].test, {p: stored[n][p]["test"] for p in of}) for n in others]
            chosen_on = unseen or chosen_on
        rows = np.concatenate([at for at, _ in chosen_on])
        predicted = {p: np.concatenate([values[p] for _, values in chosen_on]) for p in of}
        weights = blend.choose(predicted, task.value[rows])
        test = blend.mix({p: values["test"] for p, values in of.items()}, weights)
        group = task.rows.architecture.to_numpy(str)[split.valid]
        valid = {p: values["valid"] for p, values in of.items()}
        entry = {
            **table.graded(test, task.value[split.test]),
            "valid_mape_pct": blend.validated_pct(valid, task.value[split.valid], group),
            "worst_cases": table.worst_cases(task, split.test, test),
        }
        members = [c for c in cells if (c["task"], c["split"]) == (name, split_name) and c["predictor"] in weights]
        entry |= {cost: sum(line[cost] for line in members) for cost in _COSTS}
        found.append({**_line(table.Cell(ENSEMBLE, name, split_name), entry), "weights": weights})
    return found


def _rounded(value: float) -> float:
    return int(value) if isinstance(value, int) else float(f"{value:.6g}")


def by_kind(cells: Iterable[dict[str, Any]], field: str) -> dict[tuple[str, str], dict[str, list[float]]]:
    """(task, predictor): kind of split: the values of its splits."""
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for cell in cells:
        kinds = found.setdefault((cell["task"], cell["predictor"]), {})
        kinds.setdefault(cell["split"].partition(" ")[0], []).append(cell[field])
    return found


def defaults(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Per task what should answer: perfpass, unless another has less validation error in every kind of split.

    A tie is no less (`findings.TIE`); of several the one with the least mean. Unseen devices do not count: their
    validation rows are of known devices. Only predictors that were fitted on every other split that any was count.
    """
    out = []
    for task in tasks.EVERY_TASK:
        own = [cell for cell in cells if cell["task"] == task and not cell["split"].startswith("device ")]
        splits = {cell["split"] for cell in own}
        whole = {p for p in {c["predictor"] for c in own} if {c["split"] for c in own if c["predictor"] == p} == splits}
        errors = {
            predictor: {kind: float(np.mean(values)) for kind, values in kinds.items()}
            for (_, predictor), kinds in by_kind(own, "valid_mape_pct").items()
            if predictor in whole
        }
        if errors:
            ranked = sorted(errors, key=lambda p: float(np.mean(list(errors[p].values()))))
            entry = {p: {kind: _rounded(v) for kind, v in errors[p].items()} for p in ranked}
            own_errors = errors.get(_DEFAULT, {})
            ahead = [p for p in ranked if all(errors[p][kind] * TIE < own_errors[kind] for kind in own_errors)]
            chosen = ahead[0] if ahead else ranked[0] if not own_errors else _DEFAULT
            out.append({"task": task, "chosen": chosen, "valid_mape_pct": entry})
    return out


def overview(content: dict[str, Any], task: str) -> str:
    """MAPE of every predictor on every split of a task; a dash where it was not fitted.

    Unseen devices have a table of their own where one for all would be too wide to read.
    """
    splits = [*content["tasks"][task]["splits"]]
    if len(_header(splits)) <= LINE_WIDTH:
        return _overview(content, task, splits)
    devices = [split for split in splits if split.startswith("device ")]
    known = [split for split in splits if split not in devices]
    parts = [known, *(devices[at : at + _MOST_DEVICES] for at in range(0, len(devices), _MOST_DEVICES))]
    return "\n\n".join(_overview(content, task, part) for part in parts if part)


def _header(splits: list[str]) -> str:
    return "| " + " | ".join(["MAPE, %", *splits]) + " |"


def _overview(content: dict[str, Any], task: str, splits: list[str]) -> str:
    of = {(c["predictor"], c["split"]): c for c in content["cells"] if c["task"] == task}
    lines = [_header(splits), "|---|" + "---:|" * len(splits)]
    rows = " | ".join(str(content["tasks"][task]["splits"][s]["test"]) for s in splits)
    lines.append(f"| rows judged | {rows} |")
    fitted = {c["predictor"] for c in content["cells"]}
    asked = [p for p in content["predictors"] if p == ENSEMBLE or methods.made_for(p, task)]
    for predictor in [p for p in asked if p in fitted]:
        shown = [_percent(of[predictor, s]["mape_pct"]) if (predictor, s) in of else "-" for s in splits]
        lines.append(f"| {predictor} | " + " | ".join(shown) + " |")
    if absent := [p for p in asked if p not in fitted]:
        lines += ["", f"Not fitted on anything yet: {', '.join(absent)}."]
    return "\n".join(lines)


def _percent(value: float, digits: int = 1) -> str:
    return f"{value:.{digits}f}" if value < 1000 else f"{value:.0f}" if value < 1e6 else f"{value:.0e}"


def details(content: dict[str, Any], task: str) -> str:
    """All metrics of a task's cells."""
    unit = content["tasks"][task]["unit"]
    lines = [
        f"| held out | predictor | rows | MAPE % | median % | within 10 % | RMSE {unit} | tau | valid. MAPE % | "
        "training, processor s | prediction, ms a row | parameters |",
        "|---|---|" + "---:|" * 10,
    ]
    for split in content["tasks"][task]["splits"]:
        for c in [c for c in content["cells"] if c["task"] == task and c["split"] == split]:
            numbers = [
                f"{c['rows']}",
                _percent(c["mape_pct"], 2),
                _percent(c["median_ape_pct"], 2),
                f"{c['within_10_pct']:.1f}",
            ]
            numbers += [
                f"{c['rmse']:.4g}",
                f"{c['kendall_tau']:.3f}",
                _percent(c["valid_mape_pct"], 2),
                f"{c['fit_s']:.1f}",
            ]
            numbers += [f"{c['predict_ms_per_row']:.3f}", f"{c['parameters']:,}"]
            lines.append(f"| {split} | {c['predictor']} | " + " | ".join(numbers) + " |")
    return "\n".join(lines)


def worst(content: dict[str, Any], task: str, predictor: str) -> str:
    """The worst cases of a predictor on a task's splits."""
    unit = content["tasks"][task]["unit"]
    lines = [f"| {predictor}, {task}, held out | case | measured {unit} | predicted {unit} |", "|---|---|---:|---:|"]
    for c in content["cells"]:
        if c["task"] == task and c["predictor"] == predictor:
            lines += [
                f"| {c['split']} | {w['case']} | {w['measured']:.4g} | {w['predicted']:.4g} |" for w in c["worst_cases"]
            ]
    return "\n".join(lines)


def adaptation(content: dict[str, Any]) -> str:
    """MAPE by predictor, device and number of records."""
    sizes = tasks.ADAPTATION_SIZES
    lines = ["| task | device | predictor | " + " | ".join(f"{s} records" for s in sizes) + " | s to adapt to 128 |"]
    lines.append("|---|---|---|" + "---:|" * (len(sizes) + 1))
    of: dict[tuple[str, str, str], dict[int, dict[str, Any]]] = {}
    for p in content["adaptation"]:
        of.setdefault((p["task"], p["device"], p["predictor"]), {})[p["size"]] = p
    for (task, device, predictor), points in of.items():
        shown = [_percent(points[s]["mape_pct"]) if s in points else "-" for s in sizes]
        seconds = f"{points[sizes[-1]]['adapt_s']:.1f}" if sizes[-1] in points else "-"
        lines.append(f"| {task} | {device} | {predictor} | " + " | ".join(shown) + f" | {seconds} |")
    return "\n".join(lines)


def chosen(content: dict[str, Any]) -> str:
    """The default of every task and the two next ones, with the validation errors that chose it."""
    lines = ["| task | predictor | | validation MAPE % |", "|---|---|---|---|"]
    for entry in content["defaults"]:
        errors, default = entry["valid_mape_pct"], entry["chosen"]
        for predictor in [default, *[p for p in errors if p != default][:2]]:
            shown = ", ".join(f"{kind} {value:.1f}" for kind, value in errors[predictor].items())
            mark, task = ("default", entry["task"]) if predictor == default else ("", "")
            lines.append(f"| {task} | {predictor} | {mark} | {shown} |")
    return "\n".join(lines)


def published(content: dict[str, Any]) -> str:
    """What the authors state of their own data."""
    return _items(
        f"**{p['predictor']}**: {p['stated']}; measured on {p['judged_on']}. {p['source']}."
        for p in content["published"]
    )


def said(content: dict[str, Any]) -> str:
    """The findings as a list."""
    return _items(f"**{f['claim']}**: {f['verdict']}. {f['sentence']}" for f in content["findings"])


def _items(texts: Iterable[str]) -> str:
    return "\n".join(
        textwrap.fill(f"- {text}", LINE_WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        for text in texts
    )


def markdown(content: dict[str, Any]) -> str:
    """The whole report."""
    out = ["## Every predictor on the same rows", ""]
    out.append(f"Times on {'; '.join(content['machines'])}. A dash: not fitted. Seed {content['seed']}.")
    for task, about in content["tasks"].items():
        out += ["", f"### {task}: {about['rows']} rows of {about['networks']} networks", "", overview(content, task)]
        out += ["", details(content, task), "", worst(content, task, "perfpass")]
    out += ["", "### After some records of a new device, MAPE %", "", adaptation(content)]
    out += ["", "### Defaults, by validation", "", chosen(content)]
    out += ["", "### Published figures, of other data", "", published(content), "", "### Findings", "", said(content)]
    return "\n".join(out)


def write(content: dict[str, Any], folder: Path) -> None:
    """table.json, predictors.md, predictors.svg and adaptation.svg."""
    from perfpass.study import figures

    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, indent=1, allow_nan=False)
    write_whole(folder / "table.json", text + "\n")
    write_whole(folder / "predictors.md", markdown(content) + "\n")
    figures.draw(content, folder)


def fill(document: Path, parts: dict[str, str]) -> None:
    """Replace what stands between ``<!-- NAME -->`` and ``<!-- end -->``. Raises FormatError for an unknown NAME."""
    lines, out, skipping = document.read_text(encoding="utf-8").splitlines(), list[str](), False
    for line in lines:
        name = line.removeprefix("<!-- ").removesuffix(" -->") if line.startswith("<!-- ") else ""
        if name == "end":
            skipping = False
        if not skipping:
            out.append(line)
        if name and name != "end":
            if name not in parts:
                raise FormatError(f"{document}: no part is called {name!r}; there are {', '.join(parts)}")
            out += ["", parts[name], ""]
            skipping = True
    write_whole(document, "\n".join(out) + "\n")


def parts(content: dict[str, Any]) -> dict[str, str]:
    """What docs/research/comparison.md takes from the results."""
    return {
        **{f"overview {task}": overview(content, task) for task in content["tasks"]},
        "adaptation": adaptation(content),
        "defaults": chosen(content),
        "published": published(content),
        "findings": said(content),
    }


def distillation(folder: Path) -> list[dict[str, Any]]:
    """What `tried` wrote, where it was run."""
    path = folder / "distillation.json"
    return list(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else []


def main() -> None:
    results = data_directory() / "results" / "comparison"
    content = json.loads((results / "table.json").read_text(encoding="utf-8"))
    content["distillation"] = distillation(results)
    content["findings"] = [*findings(content), *studied(results)]
    fill(data_directory().parent / "docs" / "research" / "comparison.md", parts(content))


if __name__ == "__main__":
    main()
