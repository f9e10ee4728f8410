"""DIPPM and its variants on one split with one budget: `python -m perfpass.training.dippm.variants --journal FILE`.

Training steps of unseen architectures by default: the one task of which every variant trains in minutes. A line of JSON
per variant goes to the journal, and what it already holds is not fitted again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.errors import ArgumentError
from perfpass.training import metrics
from perfpass.training.comparison import tasks
from perfpass.training.comparison.graphs import Graphs
from perfpass.training.comparison.tasks import Split, Task
from perfpass.training.dippm.network import KINDS, PUBLISHED_SETTINGS, PUBLISHED_SHAPE, Dippm


def methods(epochs: int, published_epochs: int) -> dict[str, Dippm]:
    """Every variant with the same epochs, and the published configuration where it gets any."""
    same = {"shared": False, "epochs": epochs, "graphs_per_step": 8}
    found = {name: Dippm(name).with_options(**same) for name in KINDS}
    if published_epochs:
        settings = replace(PUBLISHED_SETTINGS, epochs=published_epochs)
        found["dippm, published"] = Dippm("dippm", PUBLISHED_SHAPE, settings, shared=False)
    return found


def grade(method: Dippm, task: Task, graphs: Graphs, split: Split, seed: int = 0) -> dict[str, Any]:
    """Errors on ``split.test``, processor seconds to fit, milliseconds a row to predict, and numbers learned."""
    started = time.process_time()
    fitted = method.fit(task, graphs, split, seed)
    between = time.process_time()
    predicted, measured = fitted.predict(split.test), task.value[split.test]
    predicting = time.process_time() - between
    errors = metrics.absolute_percentage_errors(predicted, measured)
    return {
        "rows": len(measured),
        "mape": float(errors.mean()),
        "median_ape": float(np.median(errors)),
        "within_10_percent": float((errors <= 0.1).mean()),
        "rmse": float(np.sqrt(np.mean((predicted - measured) ** 2))),
        "kendall_tau": metrics.kendall_tau(predicted, measured),
        "fit_s": between - started,
        "predict_ms_per_row": predicting * 1e3 / len(measured),
        "parameters": fitted.parameters,
        "epochs": len(fitted.history),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Grade what the journal lacks and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", default="training_step", choices=tasks.TASKS)
    parser.add_argument("--split", default="architecture")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--published-epochs", type=int, default=3, help="0 leaves it out; 500 were published")
    parser.add_argument("--journal", required=True)
    options = parser.parse_args(arguments)
    journal, graphs = Path(options.journal), Graphs()
    lines = journal.read_text().splitlines() if journal.is_file() else []
    done = {entry["name"]: entry for entry in map(json.loads, lines)}
    task = tasks.load(options.task).traced(graphs)
    splits = {split.name: split for split in task.splits()}
    if options.split not in splits:
        raise ArgumentError(f"{options.task} has no split {options.split!r}; allowed are {', '.join(splits)}")
    print("| variant | MAPE | median | within 10 % | tau | fit s | predict ms a row | parameters |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for name, method in methods(options.epochs, options.published_epochs).items():
        if name not in done:
            done[name] = {"name": name, **grade(method, task, graphs, splits[options.split])}
            with journal.open("a") as file:
                file.write(json.dumps(done[name]) + "\n")
        g = done[name]
        print(
            f"| {name} | {g['mape']:.1%} | {g['median_ape']:.1%} | {g['within_10_percent']:.0%} | "
            f"{g['kendall_tau']:.2f} | {g['fit_s']:.0f} | {g['predict_ms_per_row']:.2f} | {g['parameters']:,} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
