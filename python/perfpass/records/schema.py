"""The schema of a record: one measurement, whatever was measured, as a row of a Parquet table.

Every kind of record in words: docs/reference/records.md.

Every table holds the `COMMON` columns, the `METRICS` it has, and the columns that describe the workload of its kind
(`WORKLOADS`). `admit` is the only door: it gives every column its type, resolves device names and refuses rows that
break a rule, counted by reason.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfpass.bounded_file import exists
from perfpass.declared import Anything, Number, Table, Text
from perfpass.errors import ArgumentError, DeviceError, FileError, FormatError, about
from perfpass.json_text import parse
from perfpass.records import parquet
from perfpass.whole_file import replacing

if TYPE_CHECKING:
    import pandas

SCHEMA_VERSION = 2
# A timing that begins so has the copy of the input from pageable host memory in it, and that of the output back.
INPUT_COPIED = "the input's copy to the device, the network, the output's copy back"
_METADATA_KEY = b"perfpass"
_NOTE = Table({"schema_version": Number(0, 1000, whole=True), "kind": Text(empty=True)}, others=Anything())


@dataclass(frozen=True)
class Column:
    """One column: its type ("text", "int", "float", "bool"), what it means and in which unit.

    An unknown text is "", an unknown float NaN, an unknown int -1; a bool is never unknown.
    """

    name: str
    type: str
    meaning: str


def _columns(*lines: str) -> tuple[Column, ...]:
    return tuple(Column(*(part.strip() for part in line.split("|", 2))) for line in lines)


COMMON = _columns(
    "source | text | who measured: the id of a source in docs/reference/records.md",
    "licence | text | SPDX name of the source's licence",
    "run | text | the source's file, run or row id",
    "device | text | id in the device catalogue, or the source's own name where `listed` is false",
    "listed | bool | whether the catalogue has the device",
    "n_devices | int | devices that took part",
    "mig_profile | text | MIG profile where the device is a slice of `device`",
    "runtime | text | torch, torch.compile, onnxruntime, tvm, tensorflow, vllm, trtllm, sglang, ...",
    "runtime_version | text | as the source states it",
    "cuda_version | text | as the source states it",
    "precision | text | fp64, fp32, tf32, fp16, bf16, amp, amp_bf16, fp8, int8, int4, fp4, ...",
    "mode | text | inference, training, prefill, decode, serving, kernel",
    "batch | int | samples or sequences in one run",
    "timing | text | what the timed region holds, by the source",
    "caveats | text | doubts that apply to the row, comma-separated; docs/reference/records.md explains each",
)

METRICS = _columns(
    "latency_ms | float | one run of the whole batch",
    "latency_p10_ms | float | 10th percentile",
    "latency_p90_ms | float | 90th percentile",
    "n_samples | int | timed runs behind the latency",
    "throughput_per_s | float | samples, or tokens where the kind says so, per second over all devices",
    "ttft_ms | float | time to the first token",
    "tpot_ms | float | time per output token after the first",
    "peak_memory_bytes | float | of one device",
    "power_w | float | mean over the run, of all devices",
    "energy_j | float | of one run, or of one request (serving), over all devices",
    "speedup | float | over the same run without what the kind is about",
)

WORKLOADS: dict[str, tuple[Column, ...]] = {
    "vision": _columns(
        "model | text | by the source's name",
        "architecture | text | group key: equal for names that run the same operators",
        "family | text | the module that defines the model",
        "img_size | int | pixels, square",
        "layout | text | nchw, nhwc",
        "optimizer | text | of a training step; empty where no optimizer step was timed",
    ),
    "training": _columns(
        "model | text | network or benchmark, by the source's name",
        "family | text | group of related models",
        "dataset | text | what it trains on",
        "optimizer | text | by the source's name",
        "workers | int | data-loading processes",
        "power_limit_w | float | the limit that was set",
    ),
    "serving": _columns(
        "model | text | Hugging Face name",
        "family | text | group of related models",
        "disaggregated | bool | prefill and decode on separate workers",
        "input_tokens | int | prompt length",
        "output_tokens | int | generated length",
        "concurrency | int | requests in flight",
        "gemm_quantization | text | weights and activations of dense products",
        "moe_quantization | text | of expert products",
        "kv_quantization | text | of the KV cache",
        "tensor_parallel | int | ranks",
        "pipeline_parallel | int | stages",
        "data_parallel | int | attention data-parallel ranks",
        "moe_tensor_parallel | int | ranks that share an expert",
        "moe_expert_parallel | int | ranks that the experts are spread over",
        "prefill_batch | int | of a prefill worker (disaggregated)",
        "prefill_tensor_parallel | int | as above, of a prefill worker",
        "prefill_pipeline_parallel | int | as above, of a prefill worker",
        "prefill_data_parallel | int | as above, of a prefill worker",
        "prefill_moe_tensor_parallel | int | as above, of a prefill worker",
        "prefill_moe_expert_parallel | int | as above, of a prefill worker",
        "prefill_workers | int | number of prefill workers",
        "decode_workers | int | number of decode workers",
        "stated_tensor_parallel | int | ranks by the source's own row, where another source says the split",
        "draft_tokens | int | that a step drafts of each request (multi-token prediction); -1: not stated",
        "decode_batch | int | requests that a rank of a decode worker's attention runs at most; -1: not stated",
        "scheduler_interval | int | steps from one look of the scheduler at its queue to the next; -1: not stated",
        "mixed_steps | int | 1: prompts and decodes share a step; 0: prompts go first; -1: not stated",
        "equal_answers | int | 1: every answer has the stated length; 0: they differ; -1: not stated",
        "queue_ms | float | time in the queue where the source tells it apart",
        "configuration | text | group key: equal for rows that measured the same thing",
        "network | text | our name of the definition; empty where the source does not pin one down",
        "device_as_reported | text | the source's words for the device",
        "variant | text | options of the run",
        "request_rate | float | requests sent a second; absent where a fixed number is in flight",
    ),
    "generation": _columns(
        "model | text | by the source's name",
        "family | text | group of related models",
        "task | text | chat, text generation, image or video diffusion, ...",
        "input_tokens | int | prompt length",
        "output_tokens | int | generated length",
        "tensor_parallel | int | ranks",
        "pipeline_parallel | int | stages",
        "mean_batch | float | mean number of sequences in a step (serving under load)",
        "resolution | text | of a picture or video",
        "steps | int | denoising steps",
        "frames | int | of a video",
        "network | text | our name of the definition; empty where the source does not pin one down",
        "device_from | text | stated, or inferred: a form factor or memory size read by us",
        "device_as_reported | text | the source's words for the device",
        "precision_from | text | stated, inferred or unknown",
        "quantization | text | of the weights, in the source's words",
        "variant | text | options of the run: kernels, where experts are, ...",
        "year_from | text | stated (a date), inferred (a version) or unknown",
        "software_year | int | of the software that ran",
        "context_tokens | int | in the cache before the timed tokens, where the prompt's time is not inside",
        "throughput_unit | text | what `throughput_per_s` counts; empty in the table that is learned from",
        "memory_kind | text | what `peak_memory_bytes` is: in_use, reported (not said)",
    ),
    "network": _columns(
        "model | text | by the source's name",
        "network | text | our name of the definition; empty where the source does not pin one down",
        "architecture | text | layers and widths, as the source states them",
        "domain | text | vision, language, speech, recommendation, forecasting, science, multimodal, image generation",
        "task | text | what the network does",
        "device_from | text | stated, or inferred: a form factor, memory size or system's name read by us",
        "device_as_reported | text | the source's words for the device",
        "precision_from | text | stated, inferred or unknown",
        "quantization | text | of the weights, where it is not the precision",
        "server | text | triton where a server stands between client and runtime",
        "variant | text | options of the run: CUDA graphs, XLA, kernels, threads, ...",
        "year_from | text | stated (a date), inferred (a version) or unknown",
        "software_year | int | of the software that ran",
        "tensor_parallel | int | ranks",
        "pipeline_parallel | int | stages",
        "batch_scope | text | empty, or device: training, where `batch` is that of one device",
        "sequence | int | tokens of one sequence; the padded length",
        "mean_sequence | float | mean tokens of one sequence, where sequences differ in length",
        "padding_removed | bool | whether the runtime leaves padding out",
        "output_tokens | int | generated by each sequence",
        "beams | int | of beam search",
        "img_height | int | pixels",
        "img_width | int | pixels",
        "audio_s | float | seconds of audio in one sample",
        "steps | int | denoising steps",
        "percentile | text | which figure `latency_ms` is: mean, p50, reported (not said), over_throughput",
        "request_ms | float | what a client of the server waited, on average",
        "throughput_unit | text | what `throughput_per_s` counts",
        "memory_kind | text | what `peak_memory_bytes` is: in_use (NVML), allocated, reserved, reported (not said)",
        "allocated_bytes | float | peak allocated by the framework's allocator",
        "reserved_bytes | float | peak reserved by it",
        "first_run_bytes | float | peak in use in the first run, with searches for algorithms",
    ),
    "gemm": _columns(
        "m | int | rows of the output [m, n]",
        "n | int | columns of the output",
        "k | int | reduced dimension",
        "stack | text | serving framework and its version that the kernel comes from",
        "kernel | text | the source's name of the implementation",
        "power_limit_w | float | board limit",
    ),
    "attention": _columns(
        "heads | int | query heads",
        "kv_heads | int | key-value heads",
        "head_dim | int | per head",
        "window | int | sliding window in tokens; 0: full",
        "query_tokens | int | new tokens per sequence",
        "context_tokens | int | tokens that are attended, the new ones included",
        "kv_precision | text | of the KV cache",
        "stack | text | serving framework and its version that the kernel comes from",
        "kernel | text | the source's name of the implementation",
        "power_limit_w | float | board limit",
    ),
    "moe": _columns(
        "tokens | int | in one call",
        "hidden | int | width of the model",
        "intermediate | int | width of one expert",
        "experts | int | in the layer",
        "active_experts | int | per token",
        "moe_tensor_parallel | int | ranks that share an expert",
        "moe_expert_parallel | int | ranks that the experts are spread over",
        "distribution | text | of tokens over experts",
        "stack | text | serving framework and its version that the kernel comes from",
        "kernel | text | the source's name of the implementation",
        "power_limit_w | float | board limit",
    ),
    "collective": _columns(
        "operation | text | all_reduce, all_gather, reduce_scatter, all_to_all",
        "elements | int | of the message",
        "stack | text | library or serving framework and its version",
        "kernel | text | the source's name of the implementation",
    ),
    "network_collective": _columns(
        "operation | text | all_reduce, all_to_all",
        "n_nodes | int | that the devices stand in; 1: joined by NVLink alone",
        "network | text | cards and their rate, as the source states them",
        "message_bytes | float | of each device: the whole message of all_reduce, what one device sends of all_to_all",
        "stack | text | library",
        "kernel | text | the source's name of the implementation",
    ),
    "operator": _columns(
        "operator | text | canonical operator",
        "dimensions | text | comma-separated sizes, in the operator's order of docs/reference/records.md",
        "split | text | the source's own split",
        "kernel | text | the source's name of the implementation",
    ),
    "nas": _columns(
        "space | text | search space",
        "model | text | index within the space",
        "architecture | text | cell or block string",
    ),
    "mig": _columns(
        "model | text | by the source's name",
        "processes | int | MPS processes that share the instance",
        "fits | bool | whether it ran",
    ),
    "speculation": _columns(
        "model | text | by the source's name",
        "network | text | our name of the definition",
        "device_as_reported | text | the source's words for the device",
        "method | text | by the source's name",
        "task | text | what is written, or Overall",
        "tokens_per_step | float | mean tokens that a step keeps, over all tasks",
    ),
    "llm_training": _columns(
        "model | text | by the source's name",
        "network | text | our name of the definition; empty where none is pinned down, or where the sizes here say it",
        "task | text | pretrain, sft, lora, qlora, adapter",
        "layers | int | decoder layers",
        "hidden | int | width of the model",
        "intermediate | int | width of the feed-forward block",
        "heads | int | query heads",
        "kv_heads | int | key-value heads",
        "vocabulary | int | padded, where the source pads it",
        "experts | int | in a layer of experts",
        "active_experts | int | per token",
        "parameters | float | by the source; rounded to billions where it rounds",
        "device_from | text | stated, or inferred: a form factor or memory size read by us",
        "device_as_reported | text | the source's words for the device",
        "precision_from | text | stated, inferred or unknown",
        "n_devices_from | text | stated, inferred or unknown",
        "n_nodes | int | hosts that took part",
        "tensor | int | ranks that share each layer",
        "pipeline | int | stages",
        "virtual | int | chunks of layers in a stage (interleaved schedule)",
        "context | int | ranks that share each sequence",
        "expert | int | groups that the experts are spread over",
        "expert_tensor | int | ranks that share an expert",
        "data | int | replicas, their shards included",
        "sharding | text | of what replicas hold: none, zero1, zero2, zero3; empty where not stated",
        "sharding_group | int | ranks that the shards are spread over",
        "sequence_parallel | bool | whether norms and dropouts are split over the tensor ranks, where stated",
        "micro_batch | int | sequences that a replica runs at once",
        "sequence | int | tokens of one sequence",
        "recompute | text | none, selective, full; empty where not stated",
        "optimizer | text | by the source's name; empty where not stated",
        "attention | text | flash, fused, unfused; empty where not stated",
        "quantization | text | of frozen weights, in the source's words",
        "compiled | bool | torch.compile, Thunder or another compiler",
        "deterministic | bool | deterministic kernels alone",
        "configuration | text | group key: equal for rows that measured the same layout of the same model",
        "variant | text | further options of the run",
        "arguments | text | all arguments of the program, as JSON, where the source has them",
        "model_flop_s | float | FLOP/s of one device, by the source's own count",
        "memory_kind | text | what `peak_memory_bytes` is: allocated, reserved, in_use, reported (not said)",
        "allocated_bytes | float | allocated at the end of a step",
    ),
    "system": _columns(
        "model | text | benchmark",
        "scenario | text | Offline, Server, SingleStream, MultiStream",
        "system | text | the submitter's name of the system",
        "organization | text | submitter",
        "host | text | host processors",
        "inferred | bool | derived from another scenario",
    ),
}

_POSITIVE = tuple(c.name for c in METRICS if c.type == "float")
_DTYPES = {"int": np.int64, "float": np.float64, "bool": np.bool_}
_EMPTY = {"text": "", "int": -1, "float": np.nan, "bool": False}


@dataclass
class Reading:
    """What a reader made of its source: a table per kind, and how many rows were refused, by reason."""

    source: str
    tables: dict[str, pandas.DataFrame] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)

    def add(self, kind: str, table: pandas.DataFrame) -> None:
        """Pass ``table`` through `admit` and keep it, below those of the same kind."""
        import pandas

        admitted = admit(kind, table.assign(source=self.source), self.refused)
        before = self.tables.get(kind)
        self.tables[kind] = (
            admitted if before is None else with_all_columns(kind, pandas.concat([before, admitted], ignore_index=True))
        )

    def keep(self, table: pandas.DataFrame, good: pandas.Series | np.ndarray, reason: str) -> pandas.DataFrame:
        """The rows that are ``good``; the others are refused for ``reason``."""
        good = np.asarray(good, dtype=bool)
        if not good.all():
            self.refused[reason] += int((~good).sum())
        return table[good]


def columns_of(kind: str) -> tuple[Column, ...]:
    """All columns that a table of this kind may have. Raises ArgumentError for an unknown kind."""
    if kind not in WORKLOADS:
        raise ArgumentError(f"unknown kind of record {kind!r}; allowed are {', '.join(WORKLOADS)}")
    return (*COMMON, *WORKLOADS[kind], *METRICS)


def admit(kind: str, table: pandas.DataFrame, refused: Counter[str]) -> pandas.DataFrame:
    """``table`` with the types and the order of the schema; rows that break a rule are counted in ``refused``.

    The rules: every metric that is stated is finite and above 0, and at least one is stated (a `mig` row that did not
    fit states none); a batch and a device are stated; no row repeats another exactly. Metrics that no row states are
    left out. ``device`` may be any name the catalogue knows; other names stay as they are, with ``listed`` false.

    Raises FormatError for a column the kind does not have, or values that are not of its type.
    """
    from perfpass.devices import device

    known = {c.name: c for c in columns_of(kind)}
    strange = sorted(set(table.columns) - set(known))
    if strange:
        raise FormatError(f"records of kind {kind!r} have no column {', '.join(strange)}; see perfpass.records.schema")
    typed = _typed(table, known)
    ids: dict[str, str] = {}
    for name in filter(None, typed.device.unique()):
        with contextlib.suppress(DeviceError):
            ids[name] = device(name).id
    typed["listed"] = typed.device.isin(list(ids))
    typed["device"] = typed.device.map(lambda name: ids.get(name, name))

    def keep(good: pandas.Series, reason: str) -> None:
        nonlocal typed
        if not good.all():
            refused[reason] += int((~good).sum())
            typed = typed[good]

    metrics = [m for m in _POSITIVE if m in typed.columns]
    values = typed[metrics]
    keep((values.isna() | (np.isfinite(values) & (values > 0))).all(axis=1), "a metric that is not finite and above 0")
    empty = typed["fits"] if kind == "mig" else True
    keep(typed[metrics].notna().any(axis=1) | (empty == False), "no metric")  # noqa: E712 - elementwise
    keep(typed.device != "", "no device stated")
    keep(~typed.duplicated(), "repeats another row exactly")
    return with_all_columns(kind, typed).reset_index(drop=True)


def with_all_columns(kind: str, table: pandas.DataFrame) -> pandas.DataFrame:
    """``table`` in the schema's order, absent columns filled as unknown; metrics that nothing states are left out."""
    known = {c.name: c for c in columns_of(kind)}
    metrics = {c.name for c in METRICS}
    typed = _typed(table, known)
    stated = [n for n in known if n not in metrics or (n in typed.columns and not _unknown(typed[n]).all())]
    absent = {n: _EMPTY[known[n].type] for n in stated if n not in typed.columns}
    return _typed(typed.assign(**absent)[stated], known)


def _unknown(column: pandas.Series) -> pandas.Series:
    return column.isna() | (column == -1)


def _typed(table: pandas.DataFrame, known: dict[str, Column]) -> pandas.DataFrame:
    import pandas

    out = {}
    for name in table.columns:
        kind = known[name].type
        column = table[name]
        try:
            if kind == "text":
                codes, found = pandas.factorize(column)
                texts = np.array([*(str(v) for v in found), ""], dtype=object)  # code -1, unknown, is the last
                out[name] = pandas.Series(texts[codes], index=column.index, dtype=object)
            else:
                out[name] = column.fillna(_EMPTY[kind]).astype(_DTYPES[kind])
        except (TypeError, ValueError) as error:
            raise FormatError(f"column {name!r} holds something that is no {kind}: {error}") from error
    return pandas.DataFrame(out, index=table.index)


def write(path: Path | str, kind: str, table: pandas.DataFrame) -> None:
    """Write an admitted table, whole, with the schema's version and kind in the file's metadata. Raises FileError."""
    import pyarrow
    import pyarrow.parquet

    path = Path(path)
    arrow = pyarrow.Table.from_pandas(with_all_columns(kind, table), preserve_index=False)
    note = json.dumps({"schema_version": SCHEMA_VERSION, "kind": kind}).encode()
    arrow = arrow.replace_schema_metadata({_METADATA_KEY: note})
    text = [c.name for c in columns_of(kind) if c.type == "text" and c.name in arrow.column_names]
    with replacing(path) as file:
        pyarrow.parquet.write_table(arrow, file, compression="zstd", compression_level=19, use_dictionary=text)


def read(path: Path | str, kind: str | None = None, content: bytes | None = None) -> pandas.DataFrame:
    """Read a table of records; ``content``: its bytes, where they have been read.

    Raises FileError, LimitError (`perfpass.records.parquet`), and FormatError for another file, schema version or kind,
    an unknown column, or a figure that is not finite and above 0.
    """
    path = Path(path)
    if content is None and not exists(path):
        raise FileError(f"{path}: no such table of records; docs/reference/records.md says how each is made")
    arrow = parquet.read_arrow(path, "a table of records", content=content)
    note = parse((arrow.schema.metadata or {}).get(_METADATA_KEY, b"{}"), f"{path}: its metadata")
    _NOTE.check(note, str(path), "metadata", FormatError)
    version, found = note.get("schema_version"), note.get("kind")
    if version != SCHEMA_VERSION:
        raise FormatError(f"{path}: record schema {version!r}, this version reads {SCHEMA_VERSION}; make it anew")
    if found not in WORKLOADS or (kind is not None and found != kind):
        raise FormatError(f"{path}: holds records of kind {found!r}, not {kind!r}")
    parquet.check_columns(arrow.schema, {c.name: c.type for c in columns_of(found)}, str(path))
    with about(path):
        table = with_all_columns(found, arrow.to_pandas())
    for name in _POSITIVE:
        if name in table.columns:
            values = table[name].to_numpy()
            if (wrong := ~np.isnan(values) & ~(np.isfinite(values) & (values > 0))).any():
                row = int(np.argmax(wrong))
                raise FormatError(f"{path}: row {row + 1}: {name} {values[row]:g}; it is finite and above 0, or absent")
    return table
