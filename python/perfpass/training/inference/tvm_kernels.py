"""The fused kernels of networks that TVM built: what each computes, as operator tables, and how long it takes.

    python -m perfpass.training.inference.tvm_kernels JOURNAL... -o data/records/measured/tvm-kernels

takes the kernels out of journals of `perfpass measure` (runtime tvm, each network in a process of its own): the records
without them go to records.jsonl, the measured kernels to kernels.parquet (a row a network and kernel) and what they
compute to kernel_operators.parquet (the columns of `OperatorColumns`, a row an operator). Equal kernels of equal shape
are one, whatever they are called. Needs the TVM that wrote the journals.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.errors import PerfPassError
from perfpass.graph import costs
from perfpass.graph.table import OperatorColumns, Tables
from perfpass.measure.configuration import Configuration
from perfpass.measure.journal import read
from perfpass.predictors.inference.cpu_operators import FAMILY, Work, work
from perfpass.predictors.inference.fusion import as_run
from perfpass.records import parquet
from perfpass.records.location import data_directory
from perfpass.training.memory.host_plans import SIZES, family_of, size_of
from perfpass.whole_file import replacing

if TYPE_CHECKING:
    import pandas

    from perfpass.predictors.way import Way

FOLDER = Path("records") / "measured" / "tvm-kernels"
KERNELS, OPERATORS = "kernels.parquet", "kernel_operators.parquet"
COLUMNS = tuple(field.name for field in fields(OperatorColumns))
_STEADY = 1.5
_NUMBER = re.compile(r"(_\d+)+$")


@dataclass(frozen=True, eq=False)
class Kernels:
    """N kernels as one operator table each, with the median ``seconds`` [N] of one call over all networks.

    ``families`` and ``models`` [N]: of the networks that have it; ``batch`` [N] of the first of them; ``name`` [N] as
    TVM calls it.
    """

    tables: list[Tables]
    seconds: np.ndarray
    families: list[frozenset[str]]
    models: list[frozenset[str]]
    batch: list[int]
    name: list[str]

    def take(self, kept: np.ndarray) -> Kernels:
        """Some of them, by their indices."""

        def of(values: list[Any]) -> list[Any]:
            return [values[i] for i in kept]

        named = of(self.families), of(self.models), of(self.batch), of(self.name)
        return Kernels(of(self.tables), self.seconds[kept], *named)

    def without(self, split: str, names: set[str]) -> Kernels:
        """Those that a network beside ``names`` has; ``split``: "family" or "model"."""
        of = self.families if split == "family" else self.models
        return self.take(np.array([i for i, found in enumerate(of) if found - names], dtype=int))

    def work(self, way: Way) -> list[Work]:
        """What each has to do on the CPU of ``way``."""
        found = []
        for table, batch, name in zip(self.tables, self.batch, self.name, strict=True):
            done = work(table, np.array([batch]), way)
            if "conv2d" in name:  # one of one tap alone looks like one of one dimension
                flat = np.isin(done.family, (FAMILY["conv1d"], FAMILY["conv1d_ragged"]))
                done = replace(done, family=np.where(flat, FAMILY["conv"], done.family))
            found.append(done)
        return found

    def weights(self, way: Way) -> np.ndarray:
        """[N]: one over the root of the number of kernels whose heaviest operator is of the same family."""
        heaviest = np.array([w.family[np.argmax(w.compute + w.tensors + w.elementwise)] for w in self.work(way)])
        return np.asarray(1.0 / np.sqrt(np.bincount(heaviest)[heaviest]))


def load(folder: Path | None = None) -> Kernels:
    """The measured kernels of the checkout's data, or below ``folder``. Raises FileError, FormatError, LimitError.

    Kernels that only move by view are left out, and those whose median is over half above their fastest run.
    """
    place = (folder or data_directory()) / FOLDER
    measured = parquet.read_frame(place / KERNELS, "measured kernels")
    measured = measured[measured.median_us <= _STEADY * measured.min_us]
    operators = parquet.read_frame(place / OPERATORS, "operators of kernels")
    by_kernel = dict(iter(measured.groupby("kernel", sort=True)))
    found: list[tuple[Any, ...]] = []
    for kernel, rows in operators.groupby("kernel", sort=True):
        table = OperatorColumns(**{name: rows[name].to_numpy() for name in COLUMNS})
        if kernel in by_kernel and (np.asarray(table.view) == 0).any():
            runs = by_kernel[kernel]
            named = frozenset(runs.family), frozenset(runs.model), int(runs.batch.iloc[0]), str(runs.name.iloc[0])
            found.append((Tables.one(table), runs.median_us.median() * 1e-6, *named))
    tables, seconds, *rest = (list(values) for values in zip(*found, strict=True))
    return Kernels(tables, np.array(seconds), *rest)


def counted(text: str) -> pandas.DataFrame:
    """The operators of a fused function in Relay's text. Raises what reading it does."""
    import pandas
    import tvm

    from perfpass import importers

    graph = importers.load(tvm.relay.fromtext(text))
    table = as_run(graph, costs.count(graph, float_as="float32"), "tvm", "cpu")
    return pandas.DataFrame({name: getattr(table, name) for name in COLUMNS})


def taken(paths: list[Path]) -> tuple[list[str], pandas.DataFrame, pandas.DataFrame]:
    """The journals' lines without kernels, the measured kernels, and their operators."""
    import pandas

    lines: list[str] = []
    rows: list[dict[str, Any]] = []
    operators: dict[str, pandas.DataFrame] = {}
    refused: dict[str, str] = {}
    seen: set[str] = set()
    for path in paths:
        with path.open() as file:
            contents = [json.loads(line) for line in file if line.strip()]
        for content in contents:
            kernels = content.pop("kernels", [])
            line = json.dumps(content, separators=(",", ":"))
            if content["kind"] != "facts" or content["id"] not in seen:
                lines.append(line)
            seen.add(content.get("id", ""))
            for kernel in kernels:
                key = hashlib.sha256(kernel["computes"].encode()).hexdigest()[:16]
                if key not in operators and key not in refused and kernel["computes"]:
                    try:
                        operators[key] = counted(kernel["computes"])
                    except (PerfPassError, RuntimeError) as error:
                        refused[key] = f"{kernel['name']}: {' '.join(str(error).split())[:120]}"
                if key in operators:
                    rows.append(_row(Configuration.from_dict(content["configuration"]), key, kernel))
    for why in refused.values():
        print(f"refused: {why}", file=sys.stderr)
    tables = [table.assign(kernel=key) for key, table in operators.items()]
    return lines, pandas.DataFrame(rows), pandas.concat(tables, ignore_index=True)


def _row(configuration: Configuration, key: str, kernel: dict[str, Any]) -> dict[str, Any]:
    size = dict(zip(SIZES, size_of(configuration), strict=True))
    name = _NUMBER.sub("", kernel["name"].removeprefix("tvmgen_default_"))
    measured = {what: kernel[what] for what in ("calls", "median_us", "min_us", "max_us")}
    return {"kernel": key, "name": name, "family": family_of(configuration.model), **size, **measured}


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("journals", nargs="+", type=Path, metavar="JOURNAL")
    parser.add_argument("-o", "--output", type=Path, default=data_directory() / FOLDER)
    options = parser.parse_args()
    for path in options.journals:
        read(path)  # what is no journal is told here
    lines, kernels, operators = taken(options.journals)
    options.output.mkdir(parents=True, exist_ok=True)
    with replacing(options.output / "records.jsonl") as file:
        file.write("".join(line + "\n" for line in lines).encode())
    for name, table in ((KERNELS, kernels), (OPERATORS, operators)):
        with replacing(options.output / name) as file:
            table.to_parquet(file, compression="zstd", compression_level=19, index=False)
    print(f"{kernels.kernel.nunique()} kernels, {len(kernels)} of networks, {len(lines)} lines of journals")


if __name__ == "__main__":
    main()
