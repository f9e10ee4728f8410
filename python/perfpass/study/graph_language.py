"""`python -m perfpass.study.graph_language`: what each part of the graph + language model is worth.

Representations, answers, numbers of tokens, LoRA ranks and pre-training stages on unseen architectures; adaptation to
an unseen device and an unseen family from 32 records. Every result is kept in a journal and every stage on disk, so
that a stopped study goes on; `--published` takes the published sizes (hours on CPUs; CUDA is used where there is a
GPU).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.training.metrics import absolute_percentage_errors, kendall_tau
from perfpass.training.published.graph_language.corpus import traced
from perfpass.training.published.graph_language.methods import GraphLanguageMethod
from perfpass.training.published.graph_language.settings import PUBLISHED, Settings
from perfpass.training.tasks.graphs import Graphs
from perfpass.training.tasks.tasks import Split, Task, load
from perfpass.whole_file import append_line, whole_lines, write_whole

# Rows that a split is judged on, drawn from its test rows: long prompts are slow.
_JUDGED = 1200
NO_STAGES = {"masked": False, "summarised": False}
PARTS: dict[str, dict[str, dict[str, Any]]] = {
    "representation": {
        "graph token": {},
        "no graph": {"representation": "none"},
        "GNN": {"representation": "network"},
        "text": {"representation": "text"},
        "JSON": {"representation": "json"},
        "sentence embedding": {"representation": "sentence"},
    },
    "stages": {
        "graph token, no pre-training": NO_STAGES,
        "graph token, masked only": {"summarised": False},
        "graph token, summaries only": {"masked": False},
        "GNN, no pre-training": {"representation": "network", "masked": False},
    },
    "sizes": {
        "rank 2": {"rank": 2},
        "rank 32": {"rank": 32},
        "five tokens": {"tokens": 5},
        "digits": {"answer": "text"},
        "no run token": {"run_token": False},
    },
}
ADAPTED: dict[str, dict[str, Any]] = {
    "graph token": {},
    "graph token, no pre-training": NO_STAGES,
    "GNN": {"representation": "network"},
    "GNN, no pre-training": {"representation": "network", "masked": False},
}
UNSEEN = (("device", "core-i9-10940x"), ("family", "vision_transformer"), ("device", "rtx-4090"))
# The most telling first, as a study may be stopped.
_ORDER = ("representation", *(f"{kind} {name}" for kind, name in UNSEEN), "stages", "sizes")


def splits_of(task: Task, part: str) -> Iterator[Split]:
    """The splits of a part of the study: architectures unseen, or a device or family after 0 and 32 records."""
    if part in PARTS:
        yield next(s for s in task.splits() if s.name == "architecture")
        return
    kind, _, name = part.partition(" ")
    for size in (0, 32):
        yield task.adaptation(name, size) if kind == "device" else task.family_adaptation(name, size)


def run(
    journal: Path, parts: Sequence[str], changed: dict[str, Any], published: bool, only: list[str] | None = None
) -> None:
    """All that the journal lacks; of the variants those of ``only``, if given."""
    start = PUBLISHED if published else Settings()
    task, graphs = traced(load("latency")), Graphs()
    journal.parent.mkdir(parents=True, exist_ok=True)
    done = [json.loads(line) for line in whole_lines(journal)]
    known = {(d["variant"], d["split"]) for d in done}
    for part in parts:
        for asked, own in PARTS.get(part, ADAPTED).items():
            if only and asked not in only:
                continue
            name = asked
            settings = replace(start, **{**own, **changed})
            if settings.representation == "sentence":
                name = f"{name} by {Path(settings.sentences).name or 'the small language model'}"
            method = GraphLanguageMethod(name, settings)
            for split in splits_of(task, part):
                if (name, split.name) in known:
                    continue
                found = judged(method, task, graphs, split)
                append_line(journal, json.dumps({"variant": name, "part": part, **found}))
                print(f"{name}; {split.name}: {found['mape_pct']:.1f} %, {found['fit_s']:.0f} s", file=sys.stderr)


def judged(method: GraphLanguageMethod, task: Task, graphs: Graphs, split: Split) -> dict[str, Any]:
    """One fit and its errors."""
    started = time.process_time()
    fitted = method.fit(task, graphs, split)
    middle = time.process_time()
    rows = split.test
    if len(rows) > _JUDGED:
        rows = np.sort(np.random.default_rng(0).choice(rows, _JUDGED, replace=False))
    predicted, measured = fitted.predict(rows), task.value[rows]
    ended = time.process_time()
    error = absolute_percentage_errors(predicted, measured)
    return {
        "split": split.name,
        "rows": len(rows),
        "mape_pct": float(error.mean() * 100),
        "median_pct": float(np.median(error) * 100),
        "acc10_pct": float((error <= 0.1).mean() * 100),
        "rmse": float(np.sqrt(np.mean((predicted - measured) ** 2))),
        "tau": kendall_tau(predicted, measured),
        "fit_s": middle - started,
        "row_ms": (ended - middle) / len(rows) * 1e3,
        "parameters": fitted.parameters,
    }


def results(journal: Path) -> list[dict[str, Any]]:
    """What the journal holds, rounded."""
    lines = [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()] if journal.is_file() else []
    return [{k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in line.items()} for line in lines]


def table(found: list[dict[str, Any]]) -> str:
    """Results as Markdown."""
    lines = ["| part | variant | split | rows | MAPE % | median % | within 10 % | tau | fit s | ms a row |"]
    lines.append("|---|---|---|---:|---:|---:|---:|---:|---:|---:|")
    for d in found:
        figures = f"{d['mape_pct']:.1f} | {d['median_pct']:.1f} | {d['acc10_pct']:.0f} | {d['tau']:.2f}"
        name = f"| {d['part']} | {d['variant']} | {d['split']} | {d['rows']} | "
        lines.append(f"{name}{figures} | {d['fit_s']:.0f} | {d['row_ms']:.1f} |")
    return "\n".join(lines)


def main() -> None:
    """Run the parts asked for, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--journal", type=Path, default=Path("build/graph-language.jsonl"))
    parser.add_argument("--part", action="append", choices=_ORDER, help="default: all")
    parser.add_argument(
        "--base", default="", help="folder of a causal language model; default: a small one trained here"
    )
    parser.add_argument(
        "--sentences", default="", help="folder of a sentence-embedding model; default: the language model itself"
    )
    parser.add_argument("--variant", action="append", help="a variant of these parts, by its name; default: all")
    parser.add_argument("--published", action="store_true", help="the published size of the encoder")
    parser.add_argument("--steps", type=int, help="of the training for prediction")
    parser.add_argument("-o", "--output", type=Path, help="a JSON file of the results")
    arguments = parser.parse_args()
    changed: dict[str, Any] = {"base": arguments.base, "sentences": arguments.sentences}
    if arguments.steps:
        changed["steps"] = arguments.steps
    run(arguments.journal, arguments.part or _ORDER, changed, arguments.published, arguments.variant)
    found = results(arguments.journal)
    print(table(found))
    if arguments.output:
        written = {
            "task": "latency",
            "steps": arguments.steps or Settings().steps,
            "published": arguments.published,
            "results": found,
        }
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        write_whole(arguments.output, json.dumps(written, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
