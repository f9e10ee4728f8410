"""What each network of the host-memory campaigns holds by its graph: weights, live activations, allocators' blocks.

    python -m perfpass.training.memory.host_plans

writes data/graphs/host_plans.parquet, a row per network, size and runtime, from the journals in data/records/measured.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfpass.devices import device
from perfpass.errors import PerfPassError
from perfpass.graph import liveness
from perfpass.measure.configuration import Configuration
from perfpass.measure.journal import read
from perfpass.predictors.estimate import PlannedRun
from perfpass.predictors.memory import allocation
from perfpass.predictors.way import Way
from perfpass.records import parquet
from perfpass.records.location import data_directory
from perfpass.records.measured import journals
from perfpass.records.own_device import graph_of
from perfpass.whole_file import replacing

if TYPE_CHECKING:
    import pandas

FILE = "host_plans.parquet"
SIZES = ("model", "batch", "image_size", "sequence_length")  # what a graph depends on
RUNTIMES = ("torch", "onnxruntime", "tvm")


def size_of(configuration: Configuration) -> tuple[str, int, int, int]:
    """The values of `SIZES`; 0 for a size that the configuration leaves to the model."""
    c = configuration
    return c.model, c.batch, c.image_size or 0, c.sequence_length or 0


def wanted() -> list[Configuration]:
    """One configuration of every network and size that was measured in a process of its own."""
    found: dict[tuple[str, int, int, int], Configuration] = {}
    for path in journals():
        for record in read(path).records:
            if record["configuration"].get("own_process"):
                configuration = Configuration.from_dict(record["configuration"])
                found.setdefault(size_of(configuration), configuration)
    return list(found.values())


def planned(configuration: Configuration) -> list[dict[str, Any]]:
    """A row for every runtime. Raises what building or tracing the network does."""
    graph = graph_of(configuration)
    rows = []
    for runtime in RUNTIMES:
        plan = liveness.plan(graph, float_as="float32", alignment_bytes=allocation.alignment_bytes(runtime))
        way = Way(device("cpu"), runtime=runtime)
        columns = allocation.columns_of(
            PlannedRun(graph=graph, plan=plan, batch=configuration.batch, way=way, float_as="float32")
        )
        sizes = {name: int(values[0]) for name, values in columns.items()}
        rows.append({**dict(zip(SIZES, size_of(configuration), strict=True)), "runtime": runtime, **sizes})
    return rows


def family_of(model: str) -> str:
    """The definition that ``SOURCE:NAME`` comes from: timm's or torchvision's module, a configuration's model type."""
    from perfpass.importers import model_sources, torchvision_schemas

    source, _, name = model.partition(":")
    if source == "hf":
        path = Path(name)
        if path.suffix == ".json" and not path.is_file():
            path = data_directory() / "campaigns" / "networks" / path.name
        return str(model_sources.read_configuration(path)["model_type"]).replace("-", "_")
    torchvision_schemas.define()
    if source == "timm":
        from timm.models import model_entrypoint

        return model_entrypoint(name.partition(".")[0]).__module__.rpartition(".")[2]
    if source == "torchvision":
        from torchvision.models import get_model_builder

        return get_model_builder(name).__module__.rpartition(".")[2]
    return name.split("-")[0].rstrip("0123456789x")


def load(folder: Path | None = None) -> pandas.DataFrame:
    """The table. Raises FileError, FormatError, LimitError."""
    return parquet.read_frame((folder or data_directory()) / "graphs" / FILE, "plans of networks")


def write(rows: list[dict[str, Any]], path: Path) -> None:
    """Writes the table whole. Raises FileError."""
    import pyarrow
    import pyarrow.parquet

    with replacing(path) as file:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), file, compression="zstd", compression_level=19)


def main() -> None:
    """Plans what is measured and not planned yet; prints what could not be built, with the reason."""
    path = data_directory() / "graphs" / FILE
    rows: list[dict[str, Any]] = load().to_dict("records") if path.is_file() else []
    known = {tuple(row[name] for name in SIZES) for row in rows}
    refused: Counter[str] = Counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for configuration in wanted():
            if size_of(configuration) in known:
                continue
            try:
                rows += planned(configuration)
            except (PerfPassError, RuntimeError) as error:
                refused[f"{configuration.model}: {' '.join(str(error).split())[:150]}"] += 1
            if len(rows) % 60 == 0:
                write(rows, path)
    rows = [row | {"family": family_of(row["model"])} for row in rows]
    write(sorted(rows, key=lambda row: tuple(row[name] for name in (*SIZES, "runtime"))), path)
    print(f"{len(rows)} plans of {len({row['model'] for row in rows})} networks")
    for reason in refused:
        print(f"refused: {reason}", file=sys.stderr)


if __name__ == "__main__":
    main()
