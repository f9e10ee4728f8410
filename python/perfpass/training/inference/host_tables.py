"""The operators of each network that the journals in data/records/measured ran on CPUs, as predictors read them.

    python -m perfpass.training.inference.host_tables [--all]

writes data/graphs/host_tables.parquet, of what it lacks or of all anew: the columns of `OperatorColumns` (counted with
fp32), a row per operator, beside the network and its sizes (`host_plans.SIZES`), its family, and ``eager``. A network
is there twice, as runtimes run it that load a model once and as eager PyTorch does (True), which shows more by strides
and computes in every pass what constants decide.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from perfpass.errors import PerfPassError
from perfpass.graph import costs
from perfpass.graph.table import OperatorColumns
from perfpass.measure.configuration import Configuration
from perfpass.measure.journal import read
from perfpass.predictors.inference.fusion import as_run
from perfpass.records import parquet
from perfpass.records.location import data_directory
from perfpass.records.measured import journals
from perfpass.records.own_device import graph_of
from perfpass.training.memory.host_plans import SIZES, family_of, size_of
from perfpass.whole_file import replacing

if TYPE_CHECKING:
    import pandas

FILE = "host_tables.parquet"
COLUMNS = tuple(field.name for field in fields(OperatorColumns))
Size = tuple[str, int, int, int]


def wanted() -> list[Configuration]:
    """One configuration of inference of every network and size that ran."""
    found: dict[Size, Configuration] = {}
    for path in journals():
        for record in read(path).records:
            asked = record["configuration"]
            if record["status"] == "ok" and asked["mode"] == "inference" and asked["device"] == "cpu":
                configuration = Configuration.from_dict(asked)
                found.setdefault(size_of(configuration), configuration)
    return list(found.values())


def counted(configuration: Configuration) -> pandas.DataFrame:
    """The rows of one network. Raises what building or tracing the network does."""
    import pandas

    graph = graph_of(configuration)
    known = costs.count(graph, float_as="float32")
    parts = []
    for eager, runtime in ((False, "onnxruntime"), (True, "torch")):
        table = as_run(graph, known, runtime, "cpu")
        parts.append(pandas.DataFrame({name: getattr(table, name) for name in COLUMNS} | {"eager": eager}))
    rows = pandas.concat(parts, ignore_index=True)
    for name, value in zip((*SIZES, "family"), (*size_of(configuration), family_of(configuration.model)), strict=True):
        rows[name] = value
    return rows


def load(folder: Path | None = None) -> dict[Size, tuple[str, OperatorColumns, OperatorColumns]]:
    """By network and size: its family, its table where a model is loaded once, and that of eager PyTorch.

    Raises FileError, FormatError, LimitError.
    """
    path = (folder or data_directory()) / "graphs" / FILE
    found = {}
    for size, rows in parquet.read_frame(path, "operator tables").groupby([*SIZES, "family"], sort=False):
        of = {eager: {n: part[n].to_numpy() for n in COLUMNS} for eager, part in rows.groupby("eager", sort=False)}
        found[size[:4]] = (str(size[4]), OperatorColumns(**of[False]), OperatorColumns(**of[True]))
    return found


def main() -> None:
    """Counts every network; prints what could not be built, with the reason."""
    import pandas

    path = data_directory() / "graphs" / FILE
    parts = [parquet.read_frame(path, "operator tables")] if path.exists() and "--all" not in sys.argv[1:] else []
    known = {size for part in parts for size in part[list(SIZES)].itertuples(index=False, name=None)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for configuration in wanted():
            if size_of(configuration) in known:
                continue
            try:
                parts.append(counted(configuration))
            except (PerfPassError, RuntimeError) as error:
                print(f"refused: {configuration.model}: {' '.join(str(error).split())[:150]}", file=sys.stderr)
    write(pandas.concat(parts, ignore_index=True), path)


def write(rows: pandas.DataFrame, path: Path) -> None:
    """Writes the table whole, sorted by network and size. Raises FileError."""
    ordered = rows.sort_values(list(SIZES), kind="stable")
    with replacing(path) as file:
        ordered.to_parquet(file, compression="zstd", compression_level=19, index=False)
    print(f"{len(rows)} operators of {ordered[list(SIZES)].drop_duplicates().shape[0]} networks and sizes")


if __name__ == "__main__":
    main()
