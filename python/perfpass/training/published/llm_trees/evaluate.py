"""`python -m perfpass.training.published.llm_trees.evaluate`: trees, graph network, shipped design on the same rows.

Stratified five folds, models unseen, devices unseen; the ablation of columns; prediction speed. Every fit is kept in a
journal, so that a stopped run goes on.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.predictors.published import llm_trees
from perfpass.training.metrics import absolute_percentage_errors, kendall_tau
from perfpass.training.published.llm_trees.gnn import Sage, Settings
from perfpass.training.published.llm_trees.ours import Process
from perfpass.training.published.llm_trees.trees import Trees
from perfpass.training.tasks.graphs import Graphs
from perfpass.training.tasks.tasks import LANGUAGE_TASK, Split, Task, load
from perfpass.whole_file import append_line, whole_lines, write_whole

_VALID = 0.1
_MODEL_FOLDS = 5
_MEASURES = ("mape_pct", "median_pct", "acc10_pct", "rmse_s", "tau", "fit_s", "parameters")
_FOLDS = {"stratified": 5, "model": _MODEL_FOLDS, "device": 7}
# Columns that a variant of the ablation sees besides the workload.
ABLATION: dict[str, tuple[str, ...]] = {
    "MACs": ("macs",),
    "MACs, parameters, memory": ("macs", "size"),
    "all": ("macs", "size", "shape"),
}


def stratified(task: Task, folds: int = 5, seed: int = 0) -> list[Split]:
    """Folds of equal configurations (repeats stay together), alike in device, runtime and time.

    Configurations are sorted by device, runtime and latency and dealt to the folds in blocks of ``folds``.
    """
    rows = task.rows
    keys = ["model_name", "n_devices", "batch", "img_size", "output_tokens"]
    strata = rows[["device", "runtime", "software_stack", *keys]].astype(str).agg("|".join, axis=1)
    _, first, inverse = np.unique(strata.to_numpy(str), return_index=True, return_inverse=True)
    order = np.lexsort((task.value[first], rows.runtime.to_numpy(str)[first], rows.device.to_numpy(str)[first]))
    draw = np.random.default_rng(seed)
    fold = np.empty(len(first), dtype=np.int64)
    for start in range(0, len(order), folds):
        block = order[start : start + folds]
        fold[block] = draw.permutation(folds)[: len(block)]
    return [_split(f"stratified {i + 1}", fold[inverse], i, seed) for i in range(folds)]


def by_model(task: Task, seed: int = 0) -> list[Split]:
    """Folds of architectures."""
    from perfpass.training.tasks.splits import groups_into_folds

    fold = groups_into_folds(list(task.rows.architecture), _MODEL_FOLDS, seed)
    return [_split(f"model {i + 1}", fold, i, seed) for i in range(_MODEL_FOLDS)]


def by_device(task: Task, seed: int = 0) -> list[Split]:
    """Each well-measured device unseen."""
    return [task.without_device(d, seed) for d in task.devices()]


def _split(name: str, fold: np.ndarray, number: int, seed: int) -> Split:
    rest = np.random.default_rng(seed + number).permutation(np.flatnonzero(fold != number))
    cut = int(len(rest) * _VALID)
    return Split(name, np.sort(rest[cut:]), np.sort(rest[:cut]), np.flatnonzero(fold == number))


def variants(settings: Settings) -> dict[str, Any]:
    """Every method and variant by name."""
    out: dict[str, Any] = {}
    for label, groups in ABLATION.items():
        out[f"trees, {label}"] = Trees(groups=groups)
        out[f"trees, {label}, hardware"] = Trees(groups=(*groups, "hardware"))
    out["trees, without nodes and edges, hardware (ships)"] = Trees(traced=False)
    out["graph network"] = Sage(hardware=False, settings=settings)
    out["graph network, hardware"] = Sage(settings=settings)
    out["physics and process (ships as generation)"] = Process()
    return out


def run(journal: Path, settings: Settings, only: str = "", quick: Iterable[str] = ()) -> list[dict[str, Any]]:
    """All variants on all splits whose names hold ``only``; variants of ``quick`` on the first fold of each kind."""
    task, graphs = load("llm"), Graphs()
    graphs.ensure([(s, k[1], 128) for k in set(task.keys) for s in ("llm-prefill", "llm-decode")], quiet=True)
    done = [json.loads(line) for line in whole_lines(journal)]
    known = {(d["variant"], d["split"]) for d in done}
    splits = {"stratified": stratified(task), "model": by_model(task), "device": by_device(task)}
    journal.parent.mkdir(parents=True, exist_ok=True)
    for name, method in variants(settings).items():
        for kind, found in splits.items():
            for number, split in enumerate(found):
                if (name, split.name) in known or only not in f"{name} {split.name}" or (name in quick and number):
                    continue
                done.append({"variant": name, "kind": kind, **judged(method, task, graphs, split)})
                append_line(journal, json.dumps(done[-1]))
                last = done[-1]
                print(f"{name}; {split.name}: {last['mape_pct']:.1f} %, {last['fit_s']:.0f} s", file=sys.stderr)
    return done


def judged(method: Any, task: Task, graphs: Graphs, split: Split) -> dict[str, Any]:
    """One fit and its errors on the split's test rows."""
    started = time.process_time()
    fitted = method.fit(task, graphs, split)
    fit_s = time.process_time() - started
    predicted, measured = fitted.predict(split.test), task.value[split.test]
    error = absolute_percentage_errors(predicted, measured)
    return {
        "split": split.name,
        "rows": len(split.test),
        "mape_pct": float(error.mean() * 100),
        "median_pct": float(np.median(error) * 100),
        "acc10_pct": float((error <= 0.1).mean() * 100),
        "rmse_s": float(np.sqrt(np.mean((predicted - measured) ** 2))),
        "tau": kendall_tau(predicted, measured),
        "fit_s": fit_s,
        "parameters": fitted.parameters,
    }


def speed(settings: Settings) -> dict[str, float]:
    """Milliseconds per prediction of one run at a time, from its configuration: table or graph, then the model.

    Traces are read from the cache; tracing itself would cost the graph network seconds more.
    """
    from perfpass.training.published.llm_trees import gnn
    from perfpass.training.published.llm_trees.table import batches

    task, graphs = load("llm"), Graphs()
    few = task.subset(np.random.default_rng(0).permutation(len(task))[:400])
    everything = np.arange(len(few))
    split = Split("speed", everything, everything[:0], everything)
    runs = batches(few)
    forest = Trees(traced=False).fit(few, graphs, split)
    core = _compiled(forest)
    network = Sage(settings=Settings(**{**settings.__dict__, "steps": 1})).fit(few, graphs, split)
    chosen = everything[:40]

    def timed(what: Callable[[int], Any]) -> float:
        found = []
        for r in chosen:
            started = time.perf_counter()
            what(int(r))
            found.append(time.perf_counter() - started)
        return float(np.median(found) * 1e3)

    x = {int(r): matrix_row(forest, int(r)) for r in chosen}
    keys = [(*few.keys[r][1:], int(few.rows.batch[r])) for r in chosen]

    def described(r: int) -> None:
        for source in ("llm-prefill", "llm-decode"):
            gnn._described.pop((source, *keys[r]), None)
            gnn.described(graphs, source, *keys[r])

    return {
        "trees: table": timed(lambda r: llm_trees.matrix([runs[r]])),
        "trees: scored in the core": timed(lambda r: core.predict(x[r])),
        "trees: scored by xgboost": timed(lambda r: forest.booster.inplace_predict(x[r])),
        "graph network: graphs of a traced model": timed(described),
        "graph network: forward, on classes of nodes": timed(lambda r: network.predict(np.array([r]))),
        "graph network: forward, on the whole graph": _on_whole_graphs(network, keys, timed),
    }


def matrix_row(forest: Any, row: int) -> np.ndarray:
    """[1, F] float32 of one row."""
    from perfpass.training.published.llm_trees.trees import matrix

    return np.ascontiguousarray(matrix(forest.task, None, forest.columns)[[row]], dtype=np.float32)


def _compiled(forest: Any) -> Any:
    from perfpass.predictors.learned import packed_trees

    return packed_trees.unpack(packed_trees.pack([bytes(forest.booster.save_raw("json"))]))


def _on_whole_graphs(network: Any, keys: list[Any], timed: Callable[..., float]) -> float:
    from perfpass.features import extract, names
    from perfpass.predictors.published.graph_classes import whole
    from perfpass.training.published.llm_trees import gnn

    kept = [i for i, n in enumerate(names("operator")[0]) if n not in gnn._NUMBERING]
    for model, tokens, batch in keys:
        for source in ("llm-prefill", "llm-decode"):
            found = extract(network.runs.graphs.at((source, model, tokens), batch))
            full = whole(found.nodes[:, kept], found.edge_index, gnn.LAYERS)
            gnn._described[source, model, tokens, batch] = full, gnn._described[source, model, tokens, batch][1]
    return timed(lambda r: network.predict(np.array([r])))


def means(done: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """By variant and kind of split: errors, seconds and numbers learned, as means over folds weighted by rows."""
    out: dict[str, dict[str, dict[str, float]]] = {}
    for name in dict.fromkeys(d["variant"] for d in done):
        for kind in _FOLDS:
            found = [d for d in done if d["variant"] == name and d["kind"] == kind]
            if not found:
                continue
            weight = [d["rows"] for d in found]
            mean = {key: float(np.average([d[key] for d in found], weights=weight)) for key in _MEASURES}
            rounded = {key: float(f"{value:.4g}") for key, value in mean.items()}
            out.setdefault(name, {})[kind] = {"folds": len(found), "rows": sum(weight), **rounded}
    return out


def summary(done: list[dict[str, Any]]) -> str:
    """The journal as a Markdown table."""
    lines = ["| variant | " + " | ".join(f"{k}: MAPE, median, acc(10 %), tau" for k in _FOLDS) + " |"]
    lines.append("|---|" + "---|" * len(_FOLDS))
    for name, kinds in means(done).items():
        cells = []
        for kind, folds in _FOLDS.items():
            m = kinds.get(kind)
            if m is None:
                cells.append("")
                continue
            parts = f"{m['mape_pct']:.1f}, {m['median_pct']:.1f}, {m['acc10_pct']:.0f}, {m['tau']:.2f}"
            cells.append(parts + (f" ({m['folds']:.0f} of {folds} folds)" if m["folds"] < folds else ""))
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run what the journal lacks, then print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--journal", type=Path, default=Path("build/llm-comparison.jsonl"))
    parser.add_argument("--only", default="", help="run what has this in the name of its variant or split")
    parser.add_argument("--published", action="store_true", help="the graph network in its published size")
    parser.add_argument("--speed", action="store_true", help="time predictions, too")
    parser.add_argument("-o", "--output", type=Path, help="a JSON file of the results")
    arguments = parser.parse_args()
    from perfpass.training.published.llm_trees import gnn

    settings = gnn.PUBLISHED if arguments.published else Settings()
    done = run(arguments.journal, settings, arguments.only, ("graph network",))
    print(summary(done))
    found: dict[str, Any] = {"task": LANGUAGE_TASK, "variants": means(done)}
    if arguments.speed:
        found["speed_ms"] = {name: round(value, 4) for name, value in speed(settings).items()}
        for name, value in found["speed_ms"].items():
            print(f"{value:9.3f} ms  {name}")
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        write_whole(arguments.output, json.dumps(found, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
