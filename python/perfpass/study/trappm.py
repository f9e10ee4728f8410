"""What pre-training gives: `python -m perfpass.study.trappm --journal FILE`.

Training steps of unseen architectures, five seeds, the encoder pre-trained or as initialised; the validation error by
epoch; transfer to a second GPU; a t-SNE picture of the embeddings. A line of JSON per fit goes to the journal, and what
it already holds is not fitted again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.records.location import data_directory
from perfpass.study import trappm_tsne as tsne
from perfpass.training.graph_networks import held_out
from perfpass.training.graph_networks.grading import errors
from perfpass.training.published.trappm import pretrained
from perfpass.training.published.trappm.network import EncodedPool, Trappm, method
from perfpass.training.tasks import tasks
from perfpass.training.tasks.graphs import Graphs
from perfpass.training.tasks.tasks import Task
from perfpass.whole_file import append_line, whole_lines, write_whole

# What is compared on one split, and on how many seeds.
ENCODED = ("trappm", "trappm-random")
BASELINES = ("trappm-nnlqp", "trappm-mlp", "trappm-boosting")
# Two GPUs with enough records: the regressor learns on the first and is fine-tuned on a few records of the second.
FROM, TO = "rtx-2080-ti", "rtx-3090"
SIZES = (0, 8, 32, 128)
# A validation error that every run reaches, to be counted in epochs: this much above the worse of the best errors.
_REACHED = 1.05


class Journal:
    """Results by name; each is worked out once."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.done: dict[str, dict[str, Any]] = {line["name"]: line for line in map(json.loads, whole_lines(file))}

    def __call__(self, name: str, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What the journal has of ``name``, or ``work()``, noted."""
        if name not in self.done:
            started = time.process_time()
            self.done[name] = {"name": name, **work(), "processor_seconds": round(time.process_time() - started, 1)}
            append_line(self.file, json.dumps(self.done[name]))
            print(name, {k: v for k, v in self.done[name].items() if k in ("mape", "processor_seconds")}, flush=True)
        return self.done[name]


def _encoder_seed(kind: str, seed: int) -> int:
    """One pre-trained encoder serves all seeds, as published; weights that learned nothing are drawn for each."""
    return seed if kind == "trappm-random" else pretrained.SEEDS[0]


def fitted(kind: str, seed: int, task: Task, graphs: Graphs, **options: Any) -> dict[str, Any]:
    """Errors on architectures that neither the encoder nor the regressor saw, and the validation error by epoch."""
    split = held_out.split(task, graphs)
    found: Any = method(kind)
    if isinstance(found, Trappm):
        found = replace(found, encoder_seed=_encoder_seed(kind, seed), **options)
    model = found.fit(task, graphs, split, seed)
    graded = errors(model.predict(split.test), task.value[split.test])
    return {**graded, "valid": [round(e["valid"], 4) for e in getattr(model, "history", [])]}


def transferred(kind: str, seed: int, task: Task, graphs: Graphs) -> dict[str, Any]:
    """Learned on FROM, fine-tuned on records of TO, graded on other architectures of TO: errors by records."""
    both = task.subset(np.flatnonzero(task.rows.device.isin([FROM, TO]).to_numpy()))
    alone = both.adaptation(TO, 0, seed)
    learned = replace(Trappm(kind), encoder_seed=_encoder_seed(kind, seed)).fit(both, graphs, alone, seed)
    found: dict[str, Any] = {}
    for size in SIZES:
        split = both.adaptation(TO, size, seed)
        fresh = split.train[len(alone.train) :]
        adapted = learned.adapted(fresh, seed)
        found[str(size)] = errors(adapted.predict(split.test), both.value[split.test])
    return {"mape_by_records": {size: e["mape"] for size, e in found.items()}, "rows": found["0"]["rows"]}


def embeddings(task: Task, graphs: Graphs, kind: str, batch: int = 32) -> tuple[np.ndarray, list[str]]:
    """[N, L] standardised logarithms of the embeddings of the task's networks, and their families."""
    pool = Trappm(kind).pool(graphs)
    assert isinstance(pool, EncodedPool)
    families = dict(zip(task.keys, task.rows.family, strict=True))
    found = np.log1p(np.stack([pool.embedding(key, batch) for key in families]))
    spread = found.std(axis=0)
    return (found - found.mean(axis=0)) / np.where(spread > 1e-6, spread, 1.0), list(families.values())


def drawn(task: Task, graphs: Graphs, file: Path) -> dict[str, Any]:
    """Write the picture; how often a network's nearest neighbour is of its family, by encoder."""
    alike = {}
    for kind in ENCODED:
        points, families = embeddings(task, graphs, kind)
        alike[kind] = round(tsne.neighbours_alike(points, families), 4)
        if kind == "trappm":
            tsne.picture(tsne.tsne(points), families, file)
    return {"networks": len(families), "families": len(set(families)), "nearest_of_family": alike}


def epochs_to(valid: Sequence[float], threshold: float) -> int:
    """Epochs until the validation error is at most ``threshold``."""
    return next((i for i, error in enumerate(valid, 1) if error <= threshold), len(valid) + 1)


def summary(done: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Means and deviations over seeds, epochs until an error that both reach, transfer by records."""
    found: dict[str, Any] = {"seeds": list(pretrained.SEEDS), "methods": {}, "transfer": {}, "everything": {}}
    for kind in (*ENCODED, *BASELINES):
        runs = [done[f"{kind} {seed}"] for seed in pretrained.SEEDS if f"{kind} {seed}" in done]
        if not runs:
            continue
        mape = np.array([run["mape"] for run in runs])
        found["methods"][kind] = {
            "mape": [round(float(v), 4) for v in mape],
            "mean": round(float(mape.mean()), 4),
            "deviation": round(float(mape.std(ddof=1)), 4) if len(mape) > 1 else None,
            "median_ape": round(float(np.mean([run["median_ape"] for run in runs])), 4),
            "kendall_tau": round(float(np.mean([run["kendall_tau"] for run in runs])), 4),
            "processor_seconds": round(float(np.mean([run["processor_seconds"] for run in runs])), 1),
        }
    pairs = [
        tuple(done[f"{kind} {seed}"]["valid"] for kind in ENCODED)
        for seed in pretrained.SEEDS
        if all(f"{kind} {seed}" in done for kind in ENCODED)
    ]
    found["convergence"] = {
        "epochs_to_reach": {
            kind: [epochs_to(pair[i], _REACHED * max(min(p) for p in pair)) for pair in pairs]
            for i, kind in enumerate(ENCODED)
        },
        "validation_by_epoch": {
            kind: np.round(np.mean([pair[i] for pair in pairs], axis=0), 4).tolist() if pairs else []
            for i, kind in enumerate(ENCODED)
        },
    }
    for kind in ENCODED:
        runs = [done[n]["mape_by_records"] for n in done if n.startswith(f"transfer {kind} ")]
        if runs:
            found["transfer"][kind] = {size: round(float(np.mean([r[size] for r in runs])), 4) for size in runs[0]}
    found["everything"] = {n: done[n]["mape"] for n in done if n.startswith("everything")}
    found["embeddings"] = {k: v for k, v in done.get("embeddings", {}).items() if k != "name"}
    return found


def fill(journal: Journal, seeds: Sequence[int], place: Path) -> None:
    """Work out what the journal lacks; the picture goes to ``place``."""
    graphs = Graphs()
    task = tasks.load("training_step").traced(graphs)
    for seed in seeds:
        for kind in ENCODED:
            journal(f"{kind} {seed}", partial(fitted, kind, seed, task, graphs))
    for seed in seeds:
        for kind in ENCODED:
            journal(f"transfer {kind} {seed}", partial(transferred, kind, seed, task, graphs))
    journal("embeddings", lambda: drawn(tasks.load("latency").traced(graphs), graphs, place))
    for seed in seeds:
        for kind in BASELINES:
            journal(f"{kind} {seed}", partial(fitted, kind, seed, task, graphs))
    journal(f"everything {seeds[0]}", partial(fitted, "trappm", seeds[0], task, graphs, everything=True))


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the journal, write the results and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--journal", required=True, type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=pretrained.SEEDS)
    default = data_directory() / "results" / "comparison" / "trappm.json"
    parser.add_argument("--json", type=Path, default=default)
    picture = data_directory().parent / "docs" / "research" / "trappm-tsne.png"
    parser.add_argument("--picture", type=Path, default=picture)
    parser.add_argument("--tables-only", action="store_true", help="of what the journal holds, without another fit")
    options = parser.parse_args(arguments)
    journal = Journal(options.journal)
    if not options.tables_only:
        fill(journal, options.seeds, options.picture)
    found = summary(journal.done)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    write_whole(options.json, json.dumps(found, indent=1) + "\n")
    print(json.dumps({k: v for k, v in found.items() if k != "convergence"}, indent=1))


if __name__ == "__main__":
    main()
