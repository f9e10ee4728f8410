"""The serving records as workloads with measured times."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.devices import device as find_device
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.configuration import language_model
from perfpass.llm.costs import Parallelism, Quantization
from perfpass.llm.memory import plan
from perfpass.llm.serving import Serving
from perfpass.predictors.serving.base import KINDS, Sizes, Terms
from perfpass.predictors.serving.features import Workloads, describe
from perfpass.records import schema
from perfpass.records.location import data_directory
from perfpass.training.components.grade import configurations

if TYPE_CHECKING:
    import pandas

RECORDS = "serving.parquet"
# Where a disaggregated row does not say how many workers it had, the base assumes the layouts that the other
# rows have: under this load several small decode workers to one of prefill, above it as many GPUs decode as do in the
# middle of the layouts that its engine's rows state from there on (83 of SGLang's, 154 of TensorRT-LLM's).
_FEW_REQUESTS = 250
_SMALL_WORKERS = 3
_DECODE_GPUS = {"sglang": 32, "trtllm": 16}
_PROMPTS_PER_WORKER = 1000
# Requests per GPU from which latent attention runs data-parallel in those layouts.
_DATA_PARALLEL_FROM = 32
_WIDEST = 64
# Ranks beyond which SGLang's servers with data-parallel attention exchange tokens by DeepEP, for which every rank holds
# experts of its own whatever `--ep-size` says (its server_args: "adjusted to be the same as the tensor parallel size").
# Rows that state tensor ranks of the experts there left that option out: 32 of them would hold 64 columns of DeepSeek's
# experts, half of a block of fp8.
_NODE_RANKS = 8
# A first token this many times slower than under as much load or more waited for something else than its load. By hand.
_COLD = 3.0


@dataclass(frozen=True, eq=False)
class Dataset:
    """Records [N] as workloads: ``tpot_s``, ``ttft_s``, and ``weight`` [N], shared by repeats of one measurement."""

    rows: pandas.DataFrame
    workloads: Workloads
    tpot_s: np.ndarray
    ttft_s: np.ndarray
    weight: np.ndarray
    models: dict[str, LanguageModel]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def aggregated(self) -> np.ndarray:
        """[N] whether prefill and decode share workers."""
        return ~np.asarray(self.rows.disaggregated)

    @property
    def queued(self) -> np.ndarray:
        """[N] whether the first token waited in a queue."""
        return np.asarray(self.rows.caveats.str.contains("queueing"))

    @property
    def settings_unstated(self) -> np.ndarray:
        """[N] whether nobody says how many prefill replicas a disaggregated deployment has, or how many requests its
        decoders run at most.
        """
        return np.asarray(self.workloads.terms.unstated | (self.rows.disaggregated & (self.rows.decode_batch < 1)))

    @cached_property
    def cold(self) -> np.ndarray:
        """[N] whether the first token took over `_COLD` times as long as under as much load or more on the same
        deployment, which a server that is warm never does: the first run of a sweep, while kernels are still being
        compiled. Of servers on one node the same deployment is one of another release or split of the experts, too,
        since some sweeps started a server for every load.
        """
        rows = self.rows
        stated = [
            name
            for name in rows.columns
            if name.endswith(("_parallel", "_workers", "_quantization", "_tokens", "_batch"))
        ]
        alike = ["device", "family", "runtime", "disaggregated", "n_devices"]
        lengths = ["input_tokens", "output_tokens", "gemm_quantization", "moe_quantization", "data_parallel"]
        own = self._slower([*alike, "runtime_version", *stated])
        return own | (self.aggregated & self._slower([*alike, *lengths]))

    def _slower(self, names: list[str]) -> np.ndarray:
        """[N] whether a first token took over `_COLD` times the least of rows with as much load or more that are equal
        in ``names``.
        """
        load, out = self.rows.concurrency.to_numpy(), np.zeros(len(self.rows), dtype=bool)
        for _, places in self.rows.groupby(names, dropna=False).indices.items():
            order = places[np.argsort(load[places], kind="stable")]
            least = np.minimum.accumulate(self.ttft_s[order][::-1])[::-1]
            out[order] = self.ttft_s[order] > _COLD * least[np.searchsorted(load[order], load[order])]
        return out

    def measured_s(self, target: str) -> np.ndarray:
        """[N] seconds of "tpot" or "ttft"."""
        return self.tpot_s if target == "tpot" else self.ttft_s


def load(folder: Path | str | None = None) -> Dataset:
    """The records of ``folder`` (default: the repository's data) that the GPUs they state can have run (`busy`).

    Raises FileError, FormatError.
    """
    root = Path(folder) if folder else data_directory()
    rows = schema.read(root / "records" / RECORDS, "serving")
    models = {family: language_model(family) for family in sorted(rows.family.unique())}
    devices = {name: find_device(name) for name in sorted(rows.device.unique())}
    alike: dict[tuple[Any, ...], list[int]] = {}  # rows of one deployment, which differ in their loads alone
    for at, row in enumerate(rows.itertuples()):
        model, target = models[row.family], devices[row.device]
        serving = serving_of(row, model)
        sure = not row.disaggregated or row.decode_workers > 0
        assumed = None if sure else _without_load(_assumed(serving, row, model, target))
        drafts, looks = max(0, int(row.draft_tokens)), max(1, int(row.scheduler_interval))
        alike.setdefault((row.family, target, _without_load(serving), assumed, drafts, looks), []).append(at)
    loads = rows[["input_tokens", "output_tokens", "concurrency"]].to_numpy(np.float64)
    parts = [
        describe(
            models[family], family, target, serving,
            assumed=assumed, sizes=Sizes(*loads[places].T), drafts=drafts, looks=looks,
        )
        for (family, target, serving, assumed, drafts, looks), places in alike.items()
    ]  # fmt: skip
    workloads = Workloads.joined(parts).take(np.argsort(np.concatenate([*alike.values()])))
    kept = np.flatnonzero(busy(workloads.terms, rows.tpot_ms.to_numpy() / 1e3, rows.ttft_ms.to_numpy() / 1e3) <= 1.0)
    rows = rows.iloc[kept].reset_index(drop=True)
    repeats = rows.groupby("configuration").run.transform("size").to_numpy()
    tpot_s, ttft_s = rows.tpot_ms.to_numpy() / 1e3, rows.ttft_ms.to_numpy() / 1e3
    return Dataset(rows, workloads.take(kept), tpot_s, ttft_s, 1 / repeats, models)


def _without_load(serving: Serving) -> Serving:
    return replace(serving, input_length=1, output_length=1, concurrency=1)


def busy(t: Terms, tpot_s: np.ndarray, ttft_s: np.ndarray) -> np.ndarray:
    """[N] how many times the stated GPUs would be busy at their peaks: with the prompts alone at the measured rate, or
    with a step of the stated requests within a measured time per token of which all drafts are kept.

    Over 1 the deployment had more of them than its record says, or ran fewer requests. 0 where their number is not
    stated anyhow.
    """
    kinds = len(KINDS)
    computing = t.chunk[:, :kinds].sum(axis=1) / t.per_chunk / t.prefill_ranks
    a_second = np.where(t.split, t.prompts, t.requests * (1 + t.waiting)) / (ttft_s + t.steps * tpot_s)
    step = np.maximum(t.decode[:, :kinds], t.decode[:, kinds : 2 * kinds]).sum(axis=1)
    whole = np.maximum(a_second * computing, step / (1 + t.drafts) / tpot_s)
    return np.asarray(np.where(t.unstated, 0.0, whole))


def serving_of(row: Any, model: LanguageModel) -> Serving:
    """The workload of a record as its columns state it; unknown numbers of workers are 1."""
    return Serving(
        input_length=int(row.input_tokens),
        output_length=int(row.output_tokens),
        concurrency=float(row.concurrency),
        runtime=row.runtime,
        runtime_version=row.runtime_version,
        mode="disagg" if row.disaggregated else "agg",
        parallelism=_split(row, ""),
        workers=max(1, int(row.decode_workers)) if row.disaggregated else 1,
        prefill=_split(row, "prefill_") if row.disaggregated else None,
        prefill_workers=max(1, int(row.prefill_workers)) if row.disaggregated else 0,
        decode_batch=max(0, int(row.decode_batch)) if row.disaggregated else 0,
        # Where a server mixes prompts and decodes, equal answers make no waves.
        equal_answers=row.equal_answers == 1 and row.mixed_steps == 0,
        quantization=_quantization(row, model),
    )


def _quantization(row: Any, model: LanguageModel) -> Quantization:
    """What the run multiplied in. Where only experts are stored at 4 bits the rest ran at 16, whatever the row says; a
    cache of which nothing is known is as wide as the dense matrices, and at 8 bits where they have fewer than 16.
    """
    gemm, moe = row.gemm_quantization, row.moe_quantization
    if model.experts_stored_as == "mxfp4":
        gemm, moe = "bf16", "mxfp4"
    elif model.experts_stored_as == "int4_wo" and moe == "int4_wo":
        gemm = "bf16"
    return Quantization(gemm, moe, row.kv_quantization or ("bf16" if gemm == "bf16" else "fp8"))


def _split(row: Any, side: str) -> Parallelism:
    def stated(name: str, unknown: int) -> int:
        value = int(getattr(row, side + name))
        return value if value > 0 else unknown

    tensor, data = stated("tensor_parallel", 8), stated("data_parallel", 1)
    expert = stated("moe_expert_parallel", 1)
    if row.runtime == "sglang" and data > _NODE_RANKS and stated("moe_tensor_parallel", 1) == data:
        expert = tensor * data
    if (tensor * data) % expert:
        expert = 1
    return Parallelism.of(tensor, stated("pipeline_parallel", 1), data, expert)


def _assumed(serving: Serving, row: Any, model: LanguageModel, device: Any) -> Serving:
    split = serving.parallelism
    if model.kv_heads == 1 and split.attention_data == 1 and serving.concurrency / split.tensor >= _DATA_PARALLEL_FROM:
        split = Parallelism(1, split.pipeline, split.tensor, 1, split.tensor)
    workers = 1
    if "gpus-as-split" in row.caveats:
        workers = max(1, round((row.n_devices - 8) / split.gpus))
    elif split.attention_data == 1 and serving.concurrency < _FEW_REQUESTS:
        workers = _SMALL_WORKERS
    found = replace(
        serving,
        parallelism=split,
        workers=workers,
        prefill_workers=max(1, round(serving.concurrency / _PROMPTS_PER_WORKER)),
    )
    while found.parallelism.gpus < _WIDEST and _short_of_room(model, device, found):
        p = found.parallelism
        found = replace(found, parallelism=Parallelism(p.tensor, p.pipeline, 2 * p.attention_data, 1, 2 * p.stage))
    if serving.concurrency < _FEW_REQUESTS or "gpus-as-split" in row.caveats:
        return found
    return replace(found, workers=max(1, round(_DECODE_GPUS.get(serving.runtime, 0) / found.parallelism.gpus)))


def _short_of_room(model: LanguageModel, device: Any, serving: Serving) -> bool:
    ranks = serving.workers * serving.parallelism.attention_data
    length = serving.input_length + serving.output_length
    memory = plan(model, device, serving.parallelism, serving.quantization, context=length)
    return memory.most_sequences * ranks < serving.concurrency


def set_aside(rows: pandas.DataFrame) -> np.ndarray:
    """[N] a quarter of the curves (rows alike but for the load), by SHA-256: settings are chosen on these alone."""
    columns = ["device", "family", "runtime", "runtime_version", "disaggregated", "input_tokens", "output_tokens"]
    keys = configurations(rows[[*columns, "gemm_quantization", "stated_tensor_parallel"]])
    chosen = [int(hashlib.sha256(text.encode()).hexdigest(), 16) % 4 == 0 for text in keys]
    return np.asarray(rows.assign(chosen=chosen).groupby("configuration").chosen.transform("max"), dtype=bool)
