"""Makes data/graphs/ran_steps.parquet: what backward passes hold of recorded steps that might be said not to fit.

    python -m perfpass.training.memory.ran_steps

A row per network, size, batch and type. A step is planned where all that its operators write in the forward pass is
more than `_SHARE` of the memory of a device it ran on: autograd saves no more than that, so the others fit. And where
its memory was measured (milabench).
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from perfpass.devices import device
from perfpass.errors import PerfPassError
from perfpass.graph.saved import saved_activations
from perfpass.predictors.memory.allocation import BLOCK_BYTES, autocasts
from perfpass.predictors.workload import PRECISIONS
from perfpass.records import parquet, schema, tables
from perfpass.records.location import data_directory
from perfpass.records.named import questions
from perfpass.training import ratio_trees
from perfpass.training.tasks.tasks import KEPT_OPTIMIZERS, POWER_NETWORKS
from perfpass.training.training_step.questions import NETWORKS
from perfpass.whole_file import replacing

if TYPE_CHECKING:
    import pandas

    from perfpass.devices import Device
    from perfpass.records.tables import RecordedTable

FILE = "ran_steps.parquet"
_COLUMNS = ("source", "model", "size", "batch", "type", "backward_bytes", "gradient_bytes")
# Of the memory: the rest of a step (weights, gradients, states, context) is less than this leaves.
_SHARE = 0.75

# (source, network, pixels or tokens, batch, type) -> bytes alive in backward, and of weights' gradients among them
Step: TypeAlias = tuple[str, str, int, int, str]
Steps: TypeAlias = dict[Step, tuple[float, float]]


def type_of(precision: str) -> str:
    """How numbers of a step are counted: the type of its floats, or autocast's name."""
    return precision if autocasts(precision) else PRECISIONS[precision][0]


def may_be_refused(target: Device, written_bytes: float) -> bool:
    """Whether a step whose forward pass writes so much might be said not to fit."""
    return written_bytes > _SHARE * target.memory_bytes


def written_bytes(table: RecordedTable) -> float:
    """What the operators of a forward pass write."""
    return float(np.dot(table.bytes_written, table.count))


def powered(root: Path) -> pandas.DataFrame:
    """The records of training power whose network is known: its ``key``, and the optimizer ``taken`` for theirs."""
    rows = schema.read(root / "records" / "training_power.parquet", "training")
    rows = rows[rows.model.isin(list(POWER_NETWORKS))]
    return rows.assign(key=rows.model.map(POWER_NETWORKS), taken=rows.optimizer.replace(KEPT_OPTIMIZERS))


def benchmarks(root: Path) -> pandas.DataFrame:
    """Milabench's steps whose network is known, with its ``key`` and optimizer ``taken``; memory by NVML.

    Without ResNet-50, which fits fp32 where its configuration says autocast.
    """
    rows = schema.read(root / "records" / "training_memory.parquet", "training")
    named = {name: of for (source, name), of in NETWORKS.items() if source == "milabench" and of[1] != "resnet50"}
    rows = rows[rows.model.isin(list(named)) & rows.listed & rows.peak_memory_bytes.notna()]
    return rows.assign(key=rows.model.map(lambda m: named[m][:3]), taken=rows.model.map(lambda m: named[m][3]))


def load(root: Path) -> Steps:
    """The table. Raises FileError, FormatError."""
    table = parquet.read_frame(root / "graphs" / FILE, "plans of steps")
    columns = (table[name].tolist() for name in _COLUMNS)
    return {(s, m, int(z), int(b), f): (float(k), float(g)) for s, m, z, b, f, k, g in zip(*columns, strict=True)}


def wanted(root: Path) -> list[Step]:
    """Every step that has to be planned, sorted."""
    found: set[Step] = set()

    def add(known: tables.RecordedTables, key: tuple[str, str, int], batch: int, precision: str, on: str) -> None:
        bits, scale = ratio_trees.bits_of(precision), ratio_trees.byte_scale_of(precision)
        table = known.table(*key, batch, bits)
        if may_be_refused(device(on), scale * written_bytes(table)):
            found.add((*key, batch, type_of(precision)))

    rows, known, _ = ratio_trees.recorded(root, "training")
    for row in rows[~rows.device.map(lambda name: device(name).kind == "cpu")].itertuples():
        add(known, (row.source, row.model, int(row.img_size)), int(row.batch), row.precision, row.device)
    rows = schema.read(root / "records" / "networks.parquet", "network")
    known = tables.load(root / "graphs", "networks")
    asked = questions(rows, known)
    for q in asked[(rows["mode"] == "training") & (asked.refused == "")].itertuples():
        add(known, (q.table_source, q.table_model, int(q.table_size)), int(q.batch), q.precision, q.device)
    known = tables.load(root / "graphs", "outside")
    for row in powered(root).itertuples():
        if row.key in known:
            add(known, row.key, int(row.batch), row.precision or "fp32", row.device)
    found |= {(*row.key, int(row.batch), type_of(row.precision)) for row in benchmarks(root).itertuples()}
    return sorted(found)


def main() -> None:
    """Plans what is wanted and not planned yet; prints what could not be traced, with the reason."""
    import pandas

    from perfpass.training.tasks.graphs import Graphs

    root = data_directory()
    path = root / "graphs" / FILE
    found: Steps = load(root) if path.is_file() else {}
    graphs = Graphs()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in wanted(root):
            if step in found:
                continue
            source, model, size, batch, kind = step
            how: dict[str, Any] = {"float_as": PRECISIONS[kind][0] if autocasts(kind) else kind}
            try:
                graph = graphs.at((source, model, size), batch)
                kept = saved_activations(graph, **how, alignment_bytes=BLOCK_BYTES, autocast=autocasts(kind))
            except PerfPassError as error:
                print(f"refused: {source} {model}: {error}", file=sys.stderr)
                continue
            found[step] = (float(kept.backward), float(kept.gradients))
    table = pandas.DataFrame([(*step, *sizes) for step, sizes in sorted(found.items())], columns=list(_COLUMNS))
    with replacing(path) as file:
        table.to_parquet(file, index=False, compression="zstd", compression_level=19)
    print(f"{len(table)} steps")


if __name__ == "__main__":
    main()
