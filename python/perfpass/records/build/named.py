"""python -m perfpass.records.build.named: the operator tables of the networks that records of kind ``network`` name.

Writes data/graphs/networks_{tables,graphs}.parquet: a table for every definition, size and kind of attention that a
question needs (perfpass.records.named). Traces are cached outside the repository; networks that cannot be traced are
reported with the reason.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfpass.errors import PerfPassError
from perfpass.importers.definitions import definition, transformer_models
from perfpass.records import graph_cache, schema
from perfpass.records.build import vision as build_vision
from perfpass.records.build import vision_models
from perfpass.records.location import data_directory
from perfpass.records.named import EAGER, questions

if TYPE_CHECKING:
    from perfpass.graph import OpGraph

Key = tuple[str, str, int]
NAME = "networks"


def traces(source: str, model: str, size: int) -> tuple[OpGraph, OpGraph]:
    """A network's forward graph at both of `vision_models.BATCHES`. Raises PerfPassError where it cannot be built."""
    name, eager = model.removesuffix(EAGER), model.endswith(EAGER)
    at: Callable[[int], OpGraph]
    if source == "transformers":
        at = transformer_models.tracer(name, size, eager)
    elif source == "definitions":
        name, _, shape = name.partition("@")
        height, width = map(int, shape.split("x")) if shape else (size, size)
        at = definition(name + (EAGER if eager else "")).tracer(height, width)
    else:
        return vision_models.traces(source, name, size) if not eager else _eager_image(source, name, size)
    first, second = (at(batch) for batch in vision_models.BATCHES)
    return first, second


def _eager_image(source: str, name: str, size: int) -> tuple[OpGraph, OpGraph]:
    """Timm's attention in parts, as it ran before PyTorch 2."""
    from perfpass.importers import torchvision_schemas

    torchvision_schemas.define()
    from timm.layers import set_fused_attn

    set_fused_attn(False)
    try:
        return vision_models.traces(source, name, size)
    finally:
        set_fused_attn(True)


def _repeats(model: str, graph: OpGraph) -> np.ndarray | None:
    """[N] how often each node runs for a picture of as many steps as the name says; None where each runs once."""
    steps = re.search(r"-(\d+)-steps", model)
    if steps is None:
        return None
    names = (graph.string(int(name)) for name in graph.node_name)
    return np.array([float(steps[1]) if name.startswith("unet") else 1.0 for name in names])


def keys_of(folder: Path) -> list[Key]:
    """The tables that the questions of networks.parquet need, those that most rows ask first."""
    rows = schema.read(folder / "records" / "networks.parquet", "network")
    asked = questions(rows)
    asked = asked[asked.refused == ""]
    names = zip(asked.table_source, asked.table_model, asked.table_size, strict=True)
    return [key for key, _ in Counter((s, m, int(z)) for s, m, z in names).most_common()]


def build(folder: Path | None = None, traced_s: float = float("inf")) -> dict[Key, str]:
    """Trace and count every network; the failures with their reasons.

    After ``traced_s`` seconds nothing new is traced, and the tables of what was are written.
    """
    data, started = folder or data_directory(), time.monotonic()
    keys = keys_of(data)
    failures: dict[Key, str] = {}
    files: dict[Key, Path] = {}
    for done, key in enumerate(keys, 1):
        files[key] = graph_cache.directory() / NAME / key[0] / f"{key[1].replace('/', '--')}-{key[2]}.npz"
        if not files[key].is_file() and time.monotonic() - started > traced_s:
            failures[key] = "not traced in time"
        elif not files[key].is_file():
            try:
                first, second = traces(*key)
                repeat = _repeats(key[1], first)
                graph_cache.save(files[key], first, second, vision_models.BATCHES, repeat)
            except PerfPassError as error:
                failures[key] = str(error)
        if done % 10 == 0 or done == len(keys):
            print(f"traced {done} of {len(keys)}, {len(failures)} failed", file=sys.stderr, flush=True)
    build_vision.write_tables(sorted(keys), failures, data / "graphs", NAME, files)
    return failures


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=None, help="the folder of data (default: that of the repository)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="trace nothing new after this time")
    options = parser.parse_args()
    for key, reason in sorted(build(options.data, options.seconds).items()):
        print(f"{key}: {reason}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
