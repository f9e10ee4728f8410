"""What can be scored: models in every form that perfpass reads, counted many at a time in the core."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from perfpass import _core, errors
from perfpass.errors import ArgumentError, PerfPassError
from perfpass.features import OperatorTable, Tables
from perfpass.graph import OpGraph, kept_outputs, liveness, single
from perfpass.graph.assumed import is_assumed
from perfpass.predictors.estimate import Runs
from perfpass.predictors.lane import Counted, level_of_graphs

_COLUMNS = tuple(f.name for f in fields(OperatorTable))


@dataclass(frozen=True)
class Candidate:
    """A model and how it is read; the arguments are those of `perfpass.predict`, None: those of the whole call."""

    model: Any
    batch: int | None = None
    dims: Mapping[str, int] | None = None
    input_shape: Any = None


@dataclass(frozen=True)
class Counting:
    """How graphs are counted (cpp_kernels/include/perfpass/counting.hpp); equal for all devices of one scorer."""

    float_as: str
    strided: bool
    folds: bool
    fuses: bool
    narrows: bool
    alignment_bytes: int
    allocator: str
    weight_copies: int
    training: bool
    autocast: bool
    keeps_single: bool  # what libraries keep in single precision (`perfpass.graph.single`)


def chunks(models: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Lists of up to ``size`` models; nothing is taken from a generator before it is needed."""
    part: list[Any] = []
    for model in models:
        part.append(model)
        if len(part) == size:
            yield part
            part = []
    if part:
        yield part


def count(models: Sequence[Any], defaults: Candidate, counting: Counting, threads: int) -> Counted:
    """Read and count models; whatever is wrong with one becomes its problem."""
    problems: list[PerfPassError | None] = [None] * len(models)
    items, by_description, assumed, at = [], [], [], []
    for i, model in enumerate(models):
        try:
            item, loaded = _item(model, defaults)
            if counting.keeps_single and loaded is not None:
                item = (single.kept(loaded).core, *item[1:])
            items.append(item)
            by_description.append(loaded is not None and loaded.by_description)
            assumed.append(None if loaded is None else is_assumed(loaded.assumed))
            at.append(i)
        except PerfPassError as error:
            problems[i] = error
    columns, facts, failed = _core.count_graphs(
        items,
        counting.float_as,
        counting.strided,
        counting.folds,
        counting.fuses,
        counting.narrows,
        counting.alignment_bytes,
        counting.allocator,
        counting.weight_copies,
        counting.training,
        counting.autocast,
        threads,
    )
    for item, name, message in failed:
        problems[at[item]] = getattr(errors, name)(message)
    offset = facts["offset"]
    good = np.ones(len(items), dtype=bool)
    good[[item for item, _, _ in failed]] = False
    table = OperatorTable(**{name: columns[name] for name in _COLUMNS})
    # An item that failed has no rows, so the rows of the others stay where they are.
    tables = Tables(table, np.concatenate([offset[:1], offset[1:][good]]))
    sizes = {f.name: facts[f.name][good].astype(np.float64) for f in fields(Runs) if f.name in facts}
    if not counting.training:
        _keep_float_logits([item[0] for item, kept in zip(items, good, strict=True) if kept], sizes, counting)
    sizes["by_description"] = np.array(by_description, dtype=np.float64)[good]
    runs = Runs(**{**sizes, "tables": tables, "batch": facts["batch"][good]})
    # A file that the core itself reads has nothing stated of its load.
    unstated = np.array([f if a is None else a for a, f in zip(assumed, facts["assumed"].tolist(), strict=True)], bool)
    level = level_of_graphs(facts["unknown"], unstated, facts["counted_once"])
    return Counted(runs, np.array(at, dtype=np.intp)[good], level[good], problems)


def _keep_float_logits(sources: Sequence[Any], sizes: dict[str, np.ndarray], counting: Counting) -> None:
    """Correct the memory of language models that end with a copy of their logits, which the core does not know."""
    for i, source in enumerate(sources):
        if not isinstance(source, _core.Graph):
            continue
        graph = OpGraph(source)
        if not kept_outputs.float_logits_bytes(graph, counting.float_as):
            continue
        plan = liveness.plan(graph, counting.float_as, counting.alignment_bytes)
        planned = kept_outputs.with_float_logits(graph, plan, counting.float_as)
        sizes["activation_bytes"][i] = planned.peak_activation_bytes
        if counting.allocator == "caching":
            sizes["reserved_bytes"][i] = kept_outputs.reserved_with_float_logits(
                graph, counting.float_as, counting.weight_copies
            )


def _item(
    model: Any, defaults: Candidate
) -> tuple[tuple[Any, int, dict[str, int], dict[str, list[int]]], OpGraph | None]:
    """What the core takes: a graph, a path or bytes, with the batch (0: its own) and what is set by name.

    And the graph, unless the core reads it.
    """
    from perfpass.graph.traced_step import TrainingGraph
    from perfpass.importers import formats, load, named_shapes, onnx, operators
    from perfpass.predictors.workload import check_batch

    given = model if isinstance(model, Candidate) else Candidate(model)
    source = given.model
    batch = defaults.batch if given.batch is None else given.batch
    dims = defaults.dims if given.dims is None else given.dims
    shape = defaults.input_shape if given.input_shape is None else given.input_shape
    batch = None if batch is None else check_batch(batch)
    in_core = _is_onnx_path(source) or (isinstance(source, (bytes, bytearray, memoryview)) and not formats.owns(source))
    if in_core and not operators.described():
        read = onnx.reading(dims, named_shapes(shape), batch)
        path = isinstance(source, (str, os.PathLike))
        content = os.fsencode(source) if path else (bytes(source),)
        return (content, read["batch"], read["dims"], read["input_shapes"]), None
    graph = load(source, batch=batch, dims=dims, input_shape=shape)
    if not isinstance(graph, OpGraph) or isinstance(graph, TrainingGraph):
        raise ArgumentError(
            "got a traced training step; give the forward graph (perfpass.load without mode) and mode='training', from "
            "which the step is derived"
        )
    return (graph.core, batch or 0, {}, {}), graph


def _is_onnx_path(source: Any) -> bool:
    return isinstance(source, (str, os.PathLike)) and Path(source).suffix.lower() == ".onnx"
