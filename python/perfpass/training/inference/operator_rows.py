"""Measurements that the levels of operator times are fitted to: sums over the operators of each, by family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.devices import device
from perfpass.graph import OPERATOR_CLASS_OF, OPERATORS
from perfpass.graph.table import OperatorColumns, Tables
from perfpass.predictors.inference.fusion import FUSING
from perfpass.predictors.inference.operators import (
    CALL_S,
    FAMILIES,
    HOST_CLASSES,
    ISSUE_S,
    ISSUED_AS,
    generation,
    host_scale,
    kernels_of,
    work,
)
from perfpass.predictors.roofline import PAGEABLE_COPY_BYTES_S
from perfpass.predictors.way import Way
from perfpass.records.location import data_directory
from perfpass.records.parquet import read_frame
from perfpass.training.inference import dataset as vision
from perfpass.training.tasks import named

if TYPE_CHECKING:
    import pandas

    from perfpass.records.tables import RecordedTables

# Rows of each source, runtime and domain, of each device and precision of vision, of each operator on a board.
_NETWORKS, _VISION, _SINGLE = 60, 12, 12
_SEED = 17
# Times of what is around a network, and of a search around a decoder, are another question.
PIPELINES = ("co2_inference",)
_SEARCHES = "transformer-decoding"
# A time that is mostly the launch says nothing of the operator.
_LEAST_SINGLE_MS = 0.1
# Engines whose kernels are those of another.
_SAME = {"paddle+tensorrt": "tensorrt", "onnxruntime+tensorrt": "tensorrt", "torch+tensorrt": "tensorrt"}
# Paddle's operators teach those of eager runtimes, with an effect of its own for its host. Taught as compiled, which
# its deployed predictor is asked as, they leave eager runtimes without fp32 kernels of theirs: errors grow by a tenth.
_TAUGHT_AS = {"paddle": "torch"}
_KERNEL = "kernel"  # single operators: no host
_NEUSIGHT = {
    "linear": "dense", "bmm": "matmul", "conv": "conv", "ln": "layer_norm", "softmax": "softmax", "add": "add",
    "mul": "mul", "tanh": "tanh", "relu": "relu", "gelu": "gelu", "div": "div",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Rows:
    """N measurements, as sums over the operators of each: ``device_s`` [N, families], ``issue_s`` [N, host classes].

    ``kernels`` [N] launches, ``call_s`` [N] of the host for the run, ``fused`` [N] whether the runtime fuses.
    ``names``: columns source, host (of a laboratory), runtime, precision, generation, device, domain,
    group (what is balanced).
    """

    names: Any
    measured_s: np.ndarray
    device_s: np.ndarray
    issue_s: np.ndarray
    kernels: np.ndarray
    call_s: np.ndarray
    fused: np.ndarray

    def __len__(self) -> int:
        return len(self.measured_s)

    @property
    def whole(self) -> np.ndarray:
        """[N] 1.0 for a network, 0.0 for an operator alone."""
        return (self.names.runtime != _KERNEL).to_numpy(np.float64)

    def take(self, kept: np.ndarray) -> Rows:
        """Some of them."""
        arrays = {f.name: getattr(self, f.name)[kept] for f in fields(self) if f.name != "names"}
        return Rows(self.names.iloc[kept].reset_index(drop=True), **arrays)

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> Rows:
        """All parts in a row."""
        import pandas

        arrays = {f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls) if f.name != "names"}
        return cls(pandas.concat([p.names for p in parts], ignore_index=True), **arrays)


def _rows(tables: Tables, at: np.ndarray, way: Way, measured_s: np.ndarray, names: pandas.DataFrame) -> Rows:
    """``at`` [N]: the table of each measurement; ``names`` without the columns that ``way`` has."""
    done = work(tables.table, way)
    times = done.issued * tables.count
    issued = np.zeros((len(tables), len(HOST_CLASSES)))
    seconds = np.zeros((len(tables), len(FAMILIES)))
    np.add.at(issued, (tables.graph, done.host), times)
    np.add.at(seconds, (tables.graph, done.family), done.seconds * tables.count)
    kind, count = ISSUED_AS[way.runtime], len(at)
    kernel = bool((names.runtime == _KERNEL).all())
    host = 0.0 if kernel else 1.0
    issue_s = host * ISSUE_S[kind] * host_scale(way)
    return Rows(
        names.assign(
            device=way.device.parent or way.device.id,
            precision=_KERNEL if kernel else kernels_of(way),
            generation=generation(way.device),
        ).reset_index(drop=True),
        np.asarray(measured_s, dtype=np.float64),
        seconds[at],
        issued[at] * issue_s,
        issued[at].sum(axis=1),
        np.full(count, CALL_S[kind] * host),
        np.full(count, way.runtime in FUSING),
    )


def load(folder: Path | None = None) -> Rows:
    """What the levels are fitted to. Raises FileError, FormatError."""
    return Rows.joined([*networks(*asked(folder)), *_vision(folder), *_single(folder)])


def asked(folder: Path | None = None) -> tuple[pandas.DataFrame, RecordedTables]:
    """Questions about whole networks on GPUs, of all laboratories (`perfpass.training.tasks.named.measured`)."""
    frame, _, known = named.measured(folder)
    return on_gpus(frame), known


def on_gpus(frame: pandas.DataFrame) -> pandas.DataFrame:
    """Of all questions (`perfpass.training.tasks.named.measured`) those about whole networks on GPUs."""
    kept = (frame["mode"] == "inference") & ~frame.above_peak & named.of_the_runtime(frame)
    kept &= ~frame.source.isin(PIPELINES)
    kept &= ~frame.network.str.startswith(_SEARCHES)
    kinds = frame.device.map({name: device(name).kind for name in frame.device.unique()})
    return frame[kept & (kinds == "gpu")]


def networks(frame: pandas.DataFrame, known: RecordedTables) -> list[Rows]:
    """Networks of all laboratories by name, a few of each source, runtime and domain of what was `asked`."""
    import pandas

    frame = frame.assign(
        runtime=frame.runtime.map(_SAME).fillna(frame.runtime),
        asked_runtime=frame.runtime.map(_TAUGHT_AS).fillna(frame.asked_runtime),
    )
    frame = frame.assign(group=frame.source + "/" + frame.runtime + "/" + frame.domain)
    thin = [part.sample(min(len(part), _NETWORKS), random_state=_SEED).index for _, part in frame.groupby("group")]
    frame = frame.loc[np.sort(np.concatenate(thin))] if thin else frame
    found = []
    for way, part in named.ways(frame):
        tables = named.tables_of(part, way, known)
        names = pandas.DataFrame(
            {"source": part.source, "host": part.source, "runtime": part.runtime, "domain": part.domain,
             "group": part.group}
        )  # fmt: skip
        found.append(_rows(tables.tables, tables.at, way, part.measured_s.to_numpy(), names))
    return found


def _vision(folder: Path | None) -> list[Rows]:
    """Networks of the vision corpora in eager PyTorch, a few of each board and precision."""
    import pandas

    data = vision.load(folder)
    rows = data.rows.assign(at=np.arange(len(data)))
    gpu = rows.device.map({name: d.kind == "gpu" for name, d in data.devices.items()})
    rows = rows[gpu & (rows.runtime == "torch") & (rows.layout == "nchw") & (rows.precision != "fp64")]
    thin = [
        part.sample(min(len(part), _VISION), random_state=_SEED)
        for _, part in rows.groupby(["source", "device", "precision"])
    ]
    found = []
    for i in pandas.concat(thin)["at"].tolist() if thin else []:
        way, table = data.ways[i], data.tables[i]
        row = rows.loc[rows["at"] == i].iloc[0]
        if data.byte_scale[i] != 1.0:
            scaled = {n: np.asarray(getattr(table, n)) * data.byte_scale[i] for n in ("bytes_read", "bytes_written")}
            table = replace(table, **scaled)
        names = pandas.DataFrame(
            {"source": [row.source], "host": [f"{row.source}/{row.device}"], "runtime": ["torch"],
             "domain": ["vision"], "group": [f"{row.source}/{row.device}"]}
        )  # fmt: skip
        copied = way.copied_bytes / PAGEABLE_COPY_BYTES_S
        found.append(_rows(Tables.one(table), np.zeros(1, int), way, data.measured_s[[i]] - copied, names))
    return found


def _single(folder: Path | None) -> list[Rows]:
    """Single operators: fp32 of NeuSight (TF32 off), bf16 products and attention of aiconfigurator."""
    home = (folder or data_directory()) / "records"
    found: list[Rows] = []
    if (home / "operators_fp32.parquet").is_file():
        rows = read_frame(home / "operators_fp32.parquet", "measured operators")
        rows = rows[rows.operator.isin(list(_NEUSIGHT)) & (rows.latency_ms > _LEAST_SINGLE_MS)]
        for (name, operator), part in rows.groupby(["device", "operator"]):
            part = part.sample(min(len(part), _SINGLE), random_state=_SEED)
            board = device(str(name))
            board = replace(board, peak_flops={k: v for k, v in board.peak_flops.items() if k != "tf32"})
            sizes = np.array([text.split(",") for text in part.dimensions], dtype=np.float64)
            found.append(_measured(_neusight(str(operator), sizes), Way(board), part, str(operator)))
    for file in ("kernels_gemm.parquet", "kernels_attention.parquet"):
        if not (home / file).is_file():
            continue
        rows = read_frame(home / file, "measured kernels")
        rows = rows[(rows.precision == "bf16") & (rows.latency_ms > _LEAST_SINGLE_MS / 2)]
        if "attention" in file:
            whole = (rows["mode"] == "prefill") & (rows.window == 0) & (rows.query_tokens == rows.context_tokens)
            rows = rows[whole & (rows.kv_precision == "bf16")]
        for name, part in rows.groupby("device"):
            part = part.sample(min(len(part), 3 * _SINGLE), random_state=_SEED)
            table = _attention(part) if "attention" in file else _gemm(part)
            found.append(_measured(table, Way(device(str(name)), "bf16"), part, file.split(".")[0]))
    return found


def _measured(table: OperatorColumns, way: Way, part: pandas.DataFrame, group: str) -> Rows:
    import pandas

    tables = Tables(table, np.arange(len(part) + 1))
    names = pandas.DataFrame(
        {"source": part.source, "host": part.source, "runtime": _KERNEL, "domain": "operators",
         "group": part.source + "/" + group}
    )  # fmt: skip
    return _rows(tables, np.arange(len(part)), way, part.latency_ms.to_numpy(np.float64) * 1e-3, names)


def _columns(operator: str, rows: int, **values: np.ndarray | float) -> OperatorColumns:
    """A table of one operator at many sizes; what is not given is 0."""
    op = OPERATORS.index(operator)
    given = {"op": op, "op_class": int(OPERATOR_CLASS_OF[op]), "count": 1.0, **values}
    whole = {"op": np.int64, "op_class": np.int64}
    return OperatorColumns(
        **{
            f.name: np.broadcast_to(np.asarray(given.get(f.name, 0.0)), (rows,)).astype(whole.get(f.name, np.float64))
            for f in fields(OperatorColumns)
        }
    )


def _neusight(operator: str, sizes: np.ndarray) -> OperatorColumns:
    """``sizes`` as in `perfpass.predictors.kernels.physics.torch_operator`."""
    one = np.ones(len(sizes))
    if operator in ("bmm", "linear"):
        batch, m, k, n = sizes.T
        read = batch * m * k + (batch if operator == "bmm" else one) * k * n
        flops, written = 2.0 * batch * m * n * k, batch * m * n
        b, m = (one, batch * m) if operator == "linear" else (batch, m)
        return _columns(
            _NEUSIGHT[operator], len(sizes), flops=flops, bytes_read=4 * read, bytes_written=4 * written, b=b, m=m, n=n,
            k=k,
        )  # fmt: skip
    if operator == "conv":
        images, channels, n, side, size, stride, padding = sizes.T
        out = np.maximum(np.floor((size + 2 * padding - side) / stride) + 1, 1.0)
        m, k = images * out**2, channels * side**2
        read = images * channels * size**2 + n * k
        return _columns(
            "conv", len(sizes), flops=2.0 * m * n * k, bytes_read=4 * read, bytes_written=4 * m * n, b=1.0, m=m, n=n,
            k=k, kernel_area=side**2, stride=stride, groups=1.0,
        )  # fmt: skip
    elements = sizes.prod(axis=1)
    inputs = 2.0 if operator in ("add", "mul", "div") else 1.0
    return _columns(
        _NEUSIGHT[operator], len(sizes), flops=elements * (8.0 if operator in ("ln", "softmax") else 1.0),
        bytes_read=4 * inputs * elements, bytes_written=4 * elements,
    )  # fmt: skip


def _gemm(part: pandas.DataFrame) -> OperatorColumns:
    m, n, k = (part[c].to_numpy(np.float64) for c in "mnk")
    return _columns(
        "dense", len(part), flops=2.0 * m * n * k, bytes_read=2 * (m * k + n * k), bytes_written=2 * m * n, b=1.0, m=m,
        n=n, k=k,
    )  # fmt: skip


def _attention(part: pandas.DataFrame) -> OperatorColumns:
    """Causal: each query meets half of the keys."""
    names = ("batch", "heads", "kv_heads", "query_tokens", "head_dim")
    batch, heads, shared, tokens, size = (part[c].to_numpy(np.float64) for c in names)
    return _columns(
        "attention", len(part), flops=2.0 * batch * heads * tokens**2 * size,
        bytes_read=2 * batch * (heads + 2 * shared) * tokens * size, bytes_written=2 * batch * heads * tokens * size,
        b=batch * heads, m=tokens, n=tokens / 2, k=size,
    )  # fmt: skip
