"""Pairs of measured memory and energy, and what is predicted of their ratio without the laboratory that measured."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.predictors.difference.unlike import CAUSES, MEMORY_CAUSES, Question, lacks, parts_changed
from perfpass.predictors.estimate import Runs, energy_j
from perfpass.predictors.workload import PRECISIONS
from perfpass.records import schema
from perfpass.records.location import data_directory
from perfpass.training.difference.pairs import Pairs
from perfpass.training.inference import operators
from perfpass.training.memory import measured_runs, runs
from perfpass.training.tasks import named

if TYPE_CHECKING:
    import pandas

_MOST_OF_GROUP = 100
# What is the same on both sides of a pair of memory.
_CONDITIONS = ["source", "device", "mig_profile", "runtime", "runtime_version", "with_driver"]
# Of energy also the queries: one network's joules a query are up to 1.8 apart between two sets of pictures.
_ENERGY_CONDITIONS = ["source", "device", "asked_runtime", "precision", "batch", "variant"]


def memory(folder: Path | None = None, *, seed: int = 0) -> Pairs:
    """Pairs of memory in use or reserved, inference; what lies beside the plan is fitted without their source."""
    base = Path(folder) if folder else data_directory()
    rows = runs.load(folder)
    kept = ~rows.context_alone & ~rows.searches
    table = measured_runs.read(base / "graphs" / measured_runs.FILE)
    rows, table = rows.take(kept), table[table["mode"] == "inference"][kept].reset_index(drop=True)
    low, median, high, held = (np.full(len(rows), np.nan) for _ in range(4))
    for source in np.unique(rows.source):
        for group in np.unique(rows.group[rows.source == source]):
            known = rows.take((rows.source != source) & (rows.group == group))
            if not len(known):
                continue
            allowed, here = runs.fit(known), (rows.source == source) & (rows.group == group)
            part = rows.take(here)
            for bound, values in enumerate((low, median, high)):
                beside = np.where(part.with_context, allowed.beside[bound] + part.driver, 0.0)
                values[here] = part.weights + allowed.share[bound] * part.held + beside
            held[here] = allowed.share[1] * part.held
    rng = np.random.default_rng(seed)
    found: list[tuple[int, int]] = []
    for _, part in table[~np.isnan(median)].groupby(_CONDITIONS, sort=True):
        pairs = np.array(list(itertools.combinations(part.index.tolist(), 2)), dtype=int).reshape(-1, 2)
        some = rng.permutation(len(pairs))[:_MOST_OF_GROUP]
        found += [tuple(pair) for pair in rng.permuted(pairs[np.sort(some)], axis=1).tolist()]
    lack, what, old, new = [], [], [], []
    for a, b in found:
        sides = [
            {"weights": w, "activations": h, "runtime": m - w - h}
            for w, h, m in ((rows.weights[i], held[i], median[i]) for i in (a, b))
        ]
        changed = parts_changed(sides[0], sides[1])
        if changed == 0.0:
            continue
        another = table.network[a] != table.network[b]
        precision = table.precision[a] != table.precision[b]
        what.append("network" if another else "precision" if precision else "batch or size")
        lack.append([{"tensors": changed, "precision": float(precision)}.get(cause, 0.0) for cause in MEMORY_CAUSES])
        old.append(a)
        new.append(b)
    of, half = rows.source[old], 0.5 * np.log(high / low)
    return Pairs(
        MEMORY_CAUSES,
        np.array(what, dtype=object),
        of.astype(object),
        np.array([f"source:{name}" for name in of], dtype=object),
        np.array(["gpu"] * len(old), dtype=object),
        np.log(rows.measured[new] / rows.measured[old]),
        np.log(median[new] / median[old]),
        np.array(lack, dtype=np.float64).reshape(-1, len(MEMORY_CAUSES)),
        half[old] + half[new],
        np.full(len(old), np.inf),
    )


def energy(folder: Path | None = None) -> Pairs:
    """Pairs of joules of networks whose energy was measured in inference, in one task on the same queries."""
    frame, _, known = named.measured(folder)
    raw = schema.read((folder or data_directory()) / "records" / "networks.parquet", "network").loc[frame.index]
    frame = frame.assign(energy_j=raw.energy_j / raw.batch.where(raw.batch_scope == "sample", 1.0))
    frame = frame[frame.energy_j.notna() & (frame["mode"] == "inference")]
    chosen = operators.left_out(folder)
    sides: dict[Any, tuple[Question, float, float, float]] = {}
    for way, part in named.ways(frame):
        asked = named.tables_of(part, way, known)
        none = np.zeros(len(asked.each))
        held = Runs(asked.tables, asked.batch, *(none for _ in range(7)))
        predictor = chosen(way, str(part.source.iloc[0]))
        columns, _ = predictor.columns(held, way)
        found = predictor.estimates(columns, way)
        joules = energy_j(found.latency_ms, found.power_w)
        bits = named.WIDTHS[PRECISIONS[way.precision][0]]
        for row, at in zip(part.itertuples(), asked.at.tolist(), strict=True):
            table = known.table(row.table_source, row.table_model, row.table_size, row.batch, bits)
            half = 0.5 * float(np.log(found.latency_ms.high[at] / found.latency_ms.low[at]))
            question = Question(table, int(row.batch), way, half)
            sides[row.Index] = (question, float(joules.median[at]), float(joules.low[at]), float(joules.high[at]))
    found_pairs = alike(frame)
    # One question of two data sets is no pair.
    asked_of = [(pair, list(lacks(sides[pair[0]][0], sides[pair[1]][0]).values())) for pair in found_pairs]
    found_pairs, lack = [p for p, found in asked_of if any(found)], [found for _, found in asked_of if any(found)]
    old, new = ([pair[i] for pair in found_pairs] for i in (0, 1))
    source = frame.source.loc[old].to_numpy(dtype=object)
    low, median, high = (np.array([[sides[i][k] for i in side] for side in (old, new)]) for k in (2, 1, 3))
    halves = 0.5 * np.log(high / low)
    return Pairs(
        CAUSES,
        np.array(["network"] * len(old), dtype=object),
        source,
        np.array([f"source:{name}" for name in source], dtype=object),
        np.array([sides[i][0].way.device.kind for i in old], dtype=object),
        np.log(frame.energy_j.loc[new].to_numpy() / frame.energy_j.loc[old].to_numpy()),
        np.log(median[1] / median[0]),
        np.array(lack, dtype=np.float64).reshape(-1, len(CAUSES)),
        halves.sum(axis=0),
        np.hypot(*halves),
    )


def alike(frame: pandas.DataFrame) -> list[tuple[Any, Any]]:
    """Every two rows whose energy was measured under the same conditions, by their index."""
    groups = (part.index.tolist() for _, part in frame.groupby(_ENERGY_CONDITIONS, sort=True))
    return [pair for rows in groups for pair in itertools.combinations(rows, 2)]
