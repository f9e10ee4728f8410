"""Program: distil the shared measurement tables into data/records and data/graphs.

    python -m perfpass.records.build.vision SHARED_DATA [--data data] [--jobs 2]

Reads the records, traces every model that they name (restartable: traces are cached outside the repository), counts
costs and writes the files that training needs. Progress and the models lost, by reason, go to stderr.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.errors import GraphError, PerfPassError
from perfpass.graph import OpGraph
from perfpass.records import graph_cache, schema, tables, vision
from perfpass.records.build import vision_models
from perfpass.whole_file import replacing, write_whole

if TYPE_CHECKING:
    import pandas

# Batch sizes that make accidental equality of two different sizes unlikely (a table row groups nodes of equal sizes),
# and a third to check that every column is affine.
_PROBES = (101, 211)
_CHECK = 307
Key = tuple[str, str, int]


def trace_one(key: Key) -> tuple[Key, str]:
    """Trace one model into the cache; the reason where that fails, else ''."""
    file = graph_cache.path(*key)
    if file.exists():
        return key, ""
    try:
        graph_cache.save(file, *vision_models.traces(*key), vision_models.BATCHES)
    except PerfPassError as error:
        return key, str(error)
    return key, ""


def _count_one(model: str) -> tuple[str, tuple[int, int | None] | None]:
    try:
        return model, vision_models.parameter_counts(model)
    except RuntimeError:  # the installed timm does not know the name; tracing reports it
        return model, None


def parameter_counts(models: list[str], jobs: int) -> dict[str, tuple[int, int | None]]:
    """Parameters of every timm model as built and folded, kept in the cache from run to run."""
    file = graph_cache.directory() / f"v{graph_cache.VERSION}" / "timm_parameters.json"
    known: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {}
    missing = [m for m in models if m not in known]
    if missing:
        print(f"counting the parameters of {len(missing)} models", file=sys.stderr)
        with multiprocessing.get_context("spawn").Pool(jobs, _quiet_worker) as pool:
            known |= dict(pool.imap_unordered(_count_one, missing, chunksize=8))
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, json.dumps(known))
    return {model: (counts[0], counts[1]) for model, counts in known.items() if counts is not None}


def _quiet_worker() -> None:
    os.nice(10)
    import torch

    torch.set_num_threads(1)


def trace_all(keys: list[Key], jobs: int) -> dict[Key, str]:
    """Trace what the cache lacks. Returns the failures with their reasons."""
    failures: dict[Key, str] = {}
    with multiprocessing.get_context("spawn").Pool(jobs, _quiet_worker) as pool:
        for done, (key, reason) in enumerate(pool.imap_unordered(trace_one, keys, chunksize=4), 1):
            if reason:
                failures[key] = reason
            if done % 100 == 0 or done == len(keys):
                print(f"traced {done} of {len(keys)}, {len(failures)} failed", file=sys.stderr)
    return failures


def _row_columns(graph: OpGraph) -> dict[str, np.ndarray]:
    """An operator table's columns, with the byte counts at 16 bits taken from each row's example node."""
    from perfpass import features
    from perfpass.graph import costs

    wide = costs.count(graph)
    narrow = costs.count(graph, float_as="float16")
    table = features.operator_table(graph, wide)
    names = [n for n in tables.AFFINE if not n.endswith("_16")] + [n for n in tables.FIXED if not n.endswith("_16")]
    columns = {name: np.asarray(getattr(table, name)) for name in names}
    first = np.asarray(table.first_node)
    times = np.asarray(graph.repeat)[first]  # costs of a node are those of all its executions
    for name in ("bytes_read", "bytes_written", "weight_bytes"):
        whole, of = np.asarray(getattr(narrow, name))[first], np.asarray(getattr(wide, name))[first]
        once = np.asarray(getattr(table, name)) != of
        columns[f"{name}_16"] = np.where(once, whole / times, whole).astype(np.int64)
    return columns | {"first_node": first}


def affine_table(stored: graph_cache.Stored) -> dict[str, np.ndarray]:
    """Intercept and slope of every column. Raises GraphError where a column is not affine in the batch size."""
    low, high, check = (_row_columns(stored.at(batch)) for batch in (*_PROBES, _CHECK))
    if not np.array_equal(low["first_node"], high["first_node"]):
        raise GraphError("operators that are equal at one batch size differ at another; a table cannot be affine")
    out = {name: low[name] for name in tables.FIXED}
    for name in tables.FIXED:
        if not np.array_equal(low[name], high[name]):
            raise GraphError(f"column {name} changes with the batch size")
    for name in tables.AFFINE:
        slope, rest = np.divmod(high[name] - low[name], _PROBES[1] - _PROBES[0])
        base = low[name] - slope * _PROBES[0]
        if rest.any() or not np.array_equal(base + slope * _CHECK, check[name]):
            raise GraphError(f"column {name} is not affine in the batch size")
        out[name], out[f"{name}_per_sample"] = base, slope
    return out


def critical_path(graph: OpGraph) -> int:
    """Length of the longest data-flow path, counted in nodes that are no views."""
    kernel = (graph.attributes[:, _VIEW] == 0).astype(int).tolist()
    longest = list(kernel)
    for producer, consumer in zip(graph.edge_producer.tolist(), graph.edge_consumer.tolist(), strict=True):
        longest[consumer] = max(longest[consumer], longest[producer] + kernel[consumer])
    return max(longest)


def graph_statics(stored: graph_cache.Stored) -> dict[str, Any]:
    """What a predictor reads of a graph beyond its table."""
    from perfpass.graph import costs
    from perfpass.graph import liveness as memory

    one = stored.at(1)
    kernels = int((one.attributes[:, _VIEW] == 0).sum())
    inputs = [int(np.prod(one.shape(int(t)))) for t in one.graph_inputs]
    statics: dict[str, Any] = {
        "nodes": one.node_count,
        "edges": one.edge_count,
        "kernels": kernels,
        "critical_path": critical_path(one),
        "parameters": int(np.asarray(costs.count(one).parameters).sum()),
        "input_elements_per_sample": sum(inputs),
    }
    for bits, float_as in ((32, None), (16, "float16")):
        plans = [memory.plan(stored.at(batch), float_as=float_as) for batch in tables.PEAK_BATCHES]
        statics[f"peak_activation_bytes_{bits}"] = [int(p.peak_activation_bytes) for p in plans]
        statics[f"weight_bytes_{bits}"] = int(plans[0].weight_bytes)
    return statics


_VIEW = graph_cache.ATTRIBUTES.index("view")


def _digest(columns: dict[str, np.ndarray]) -> str:
    state = hashlib.sha256()
    for name in sorted(columns):
        state.update(np.ascontiguousarray(columns[name]).tobytes())
    return state.hexdigest()


def write_tables(
    keys: list[Key],
    failures: dict[Key, str],
    folder: Path,
    name: str = "vision",
    files: Mapping[Key, Path] | None = None,
) -> dict[Key, int]:
    """Count costs on every trace and write NAME_tables.parquet and NAME_graphs.parquet.

    ``files`` are the traces where they are not those of the cache.
    """
    import pandas

    number: dict[str, int] = {}
    parts: list[pandas.DataFrame] = []
    graphs: list[dict[str, Any]] = []
    for done, key in enumerate(keys, 1):
        if key in failures:
            continue
        stored = graph_cache.Stored.read(files[key] if files else graph_cache.path(*key))
        try:
            columns = affine_table(stored)
        except GraphError as error:
            failures[key] = str(error)
            continue
        digest = _digest(columns)
        if digest not in number:
            number[digest] = len(number)
            parts.append(pandas.DataFrame({"table": np.int32(number[digest]), **columns}))
        row: dict[str, Any] = {"source": key[0], "model": key[1], "img_size": key[2], "table": number[digest]}
        graphs.append(row | graph_statics(stored))
        if done % 200 == 0:
            print(f"counted {done} of {len(keys)}", file=sys.stderr)
    rows = pandas.concat(parts, ignore_index=True)
    for column in rows.columns:
        kind = tables.FIXED.get(column)
        rows[column] = rows[column].astype(kind if kind is not None else np.int32 if column == "table" else np.int64)
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / f"{name}_tables.parquet") as file:
        rows.to_parquet(file, compression="zstd", compression_level=19, index=False)
    with replacing(folder / f"{name}_graphs.parquet") as file:
        pandas.DataFrame(graphs).to_parquet(file, compression="zstd", index=False)
    print(f"{len(graphs)} models, {len(parts)} different tables, {len(rows)} rows", file=sys.stderr)
    return {(g["source"], g["model"], g["img_size"]): g["table"] for g in graphs}


def merge_architectures(rows: pandas.DataFrame, table_of: dict[Key, int]) -> pandas.DataFrame:
    """Give one architecture to names that run the same operators, so that a split cannot have it on both sides.

    DeiT-base and ViT-base, say, differ in how they were trained and not in what they run.
    """
    parent = {name: name for name in rows.architecture.unique()}

    def root(name: str) -> str:
        while parent[name] != name:
            name = parent[name]
        return name

    first_of: dict[int, str] = {}
    for source, model, img_size, name in sorted(
        set(rows[["source", "model", "img_size", "architecture"]].itertuples(index=False, name=None))
    ):
        table = table_of.get((source, model, img_size))
        if table is not None:
            first, second = sorted((root(first_of.setdefault(table, name)), root(name)))
            parent[second] = first
    return rows.assign(architecture=rows.architecture.map(root))


def main(arguments: list[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shared", type=Path, help="folder of the shared measurement tables (timm/, ...)")
    parser.add_argument("--data", type=Path, default=Path("data"), help="where to write (default: data)")
    parser.add_argument("--jobs", type=int, default=2, help="tracing processes (default: 2)")
    options = parser.parse_args(arguments)

    import pandas

    counts = parameter_counts(vision.timm_models(options.shared), options.jobs)
    readings = [vision.read_timm(options.shared, counts), vision.read_torchvision(options.shared)]
    joined = pandas.concat([reading.tables["vision"] for reading in readings], ignore_index=True)
    keys = sorted({(s, m, int(z)) for s, m, z in joined[["source", "model", "img_size"]].itertuples(index=False)})
    failures = trace_all(keys, options.jobs)
    table_of = write_tables(keys, failures, options.data / "graphs")
    rows = merge_architectures(joined, table_of)
    (options.data / "records").mkdir(parents=True, exist_ok=True)
    target = options.data / "records" / "vision.parquet"
    schema.write(target, "vision", rows)
    lost = joined[["source", "model", "img_size"]].apply(tuple, axis=1).isin(list(failures)).sum()
    refused = {r.source: dict(r.refused) for r in readings}
    print(f"{len(joined)} rows; refused: {refused}; without a graph: {lost}", file=sys.stderr)
    for reason, count in Counter(failures.values()).most_common():
        models = sorted({k[1] for k, r in failures.items() if r == reason})
        print(json.dumps({"reason": reason, "graphs": count, "models": models}), file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
