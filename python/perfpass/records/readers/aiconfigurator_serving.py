"""LLM serving measurements that aiconfigurator collects from public benchmark runs (`aiconfigurator/e2e.csv`).

Corrections, each with a caveat in its row:

- `split-product`: tensor (or attention-data) parallelism stated as the product of the experts' tensor and expert
  split, both above 1 (4 x 4, 8 x 8), or as tensor x data with as many GPUs each. The run used one factor's GPUs, with
  the experts spread over them.
- `split-widened`: the experts are spread over more GPUs than the stated tensor parallelism, and no attention-data
  parallelism is stated: the others are taken as attention-data ranks.
- `gpus-as-split`: on GB200, a split of 12 to 72 that is no power of two is the number of GPUs of a disaggregated
  deployment, whatever mode the row states. Its split is unknown.
- `layout-by-sweep`: workers, split and draft tokens are those of the benchmark's own list of sweeps
  (`inferencex_sweeps`); with `layout-by-times` as well, several points of it were told apart by the times measured.
- Drafts of servers on one node, and how often SGLang's scheduler looks at its queue, are those of the benchmark's list
  and scripts (`inferencex_servers`); what drafts by its times alone has `layout-by-times`.
- Whether SGLang mixes prompts and decodes, and whether answers have one length, follow from how either collection
  starts its servers and clients (`_mixed_steps`).
- `workers-unknown`: a disaggregated row of which neither says how many workers there were.
- `concurrency-from-batch`: the requests in flight follow from the batch of a rank.
- `queueing`: the time to the first token is longer than `QUEUED_S`.

One run often stands in several collections of the source, with more or fewer columns. Rows that measured the same
(device, times) share a `configuration`, so that no split has them on both sides; rows that the source's table marks as
repeats are refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.bounded_file import exists
from perfpass.devices import device as find_device
from perfpass.errors import FileError
from perfpass.records.parquet import read_frame
from perfpass.records.readers import inferencex_servers, inferencex_sweeps
from perfpass.records.schema import Reading

if TYPE_CHECKING:
    import pandas

TABLE = Path("aiconfigurator") / "e2e.csv"
# A first token after ten seconds means a queue: no prefill of the table's prompts takes a second of it.
QUEUED_S = 10.0
_MOST_SPLIT = 64
# What aiconfigurator measured itself; the other collections are InferenceX's.
_OWN_RUNS = "source_file=data/"
# The release of SGLang whose arguments its generator does not know yet.
_FIRST_OPTIONS = "0.5.1.post1"


def read(shared: Path) -> Reading:
    """The source's table as records of kind `serving`. Raises FileError where it is missing."""
    path = Path(shared) / TABLE
    if not exists(path):
        raise FileError(f"{path}: no such table")
    raw = read_frame(path, "a table of aiconfigurator", low_memory=False)
    reading = Reading("aiconfigurator")
    raw = reading.keep(raw, ~raw.repeats_earlier_row, "repeats an earlier row in everything but its id and provenance")
    reading.add("serving", _records(raw.reset_index(drop=True)))
    return reading


def _records(raw: pandas.DataFrame) -> pandas.DataFrame:
    import pandas

    caveats: list[list[str]] = [[] for _ in range(len(raw))]
    out = pandas.DataFrame(
        {
            "licence": "Apache-2.0",
            "run": raw.id,
            "device": raw.device,
            "runtime": raw.backend,
            "runtime_version": raw.backend_version.fillna(""),
            "precision": raw.precision.fillna("bf16"),
            "mode": "serving",
            "model": raw.model_path,
            "family": raw.model_path.map(_family),
            "disaggregated": raw["mode"] == "disagg",
            "input_tokens": raw.isl,
            "output_tokens": raw.osl,
            "gemm_quantization": raw.gemm_quant_mode.fillna("bf16"),
            "moe_quantization": raw.moe_quant_mode.fillna("bf16"),
            "ttft_ms": raw.silicon_ttft_ms,
            "tpot_ms": raw.silicon_tpot_ms,
        }
    )
    out["configuration"] = [
        f"{d}|{t:.6g}|{p:.6g}" for d, t, p in zip(out.device, out.ttft_ms, out.tpot_ms, strict=True)
    ]
    stated = raw.to_dict("records")
    apart = out.disaggregated.tolist()
    splits: dict[str, list[float]] = {}
    for row, content in enumerate(stated):
        own, notes = _split(content, "decode_" if apart[row] else "")
        other, more = _split(content, "prefill_") if apart[row] else (dict.fromkeys(own, np.nan), [])
        caveats[row] += dict.fromkeys([*notes, *more])
        for name, value in (*own.items(), *((f"prefill_{n}", v) for n, v in other.items())):
            splits.setdefault(name, []).append(value)
    out = out.assign(**splits)
    out["prefill_batch"] = raw.prefill_batch_size
    out["prefill_workers"], out["decode_workers"] = raw.prefill_num_workers, raw.decode_num_workers
    whole = _whole_deployment(raw)
    ranks = out.data_parallel.fillna(1) * out.decode_workers.fillna(1)
    batch = raw.batch_size.fillna(raw.decode_batch_size)
    out["concurrency"] = raw.silicon_concurrency.fillna(batch * ranks).round()
    out["batch"] = np.where(out.disaggregated, raw.decode_batch_size, out.concurrency / out.data_parallel.fillna(1))
    out["batch"] = out.batch.round()
    out["disaggregated"] |= whole
    out.loc[whole, list(splits)] = np.nan
    out["stated_tensor_parallel"] = out.tensor_parallel
    asked = _as_swept(raw, out, whole)
    swept = inferencex_sweeps.with_stated(asked, inferencex_sweeps.found(asked))
    alone, told = inferencex_servers.drafts(asked)
    drafts = np.maximum(swept.draft_tokens, alone)
    out["draft_tokens"] = drafts.where(drafts >= 0)
    out["decode_batch"] = swept.decode_batch.where(swept.decode_batch > 0)
    looks = inferencex_servers.looks(asked)
    out["scheduler_interval"] = np.where(looks > 0, looks, np.nan)
    out["kv_quantization"] = inferencex_servers.caches(asked)
    out["mixed_steps"], out["equal_answers"] = _mixed_steps(asked), np.where(asked.inferencex, 0, 1)
    for row in swept.index[swept.decode != ""]:
        for side, prefix in (("prefill", "prefill_"), ("decode", "")):
            workers, degrees = inferencex_sweeps.layout(swept.loc[row, side])
            out.loc[row, [f"{side}_workers", *(prefix + name for name in degrees)]] = [workers, *degrees.values()]
        out.loc[row, "disaggregated"] = True
    stated_whole = whole & (swept.decode == "").to_numpy()
    doubts = {
        "gpus-as-split": stated_whole,
        "layout-by-sweep": np.asarray(swept.decode != ""),
        "layout-by-times": np.asarray(swept.by_times) | told,
        "workers-unknown": np.asarray(out.disaggregated & ~(out.decode_workers > 0)),
        "concurrency-from-batch": np.asarray(raw.silicon_concurrency.isna()),
        "queueing": np.asarray(raw.silicon_ttft_ms > QUEUED_S * 1000),
    }
    for name, rows in doubts.items():
        for found in np.flatnonzero(rows):
            caveats[found].append(name)
    one = out.tensor_parallel * out.pipeline_parallel * out.data_parallel
    other = out.prefill_tensor_parallel * out.prefill_pipeline_parallel * out.prefill_data_parallel
    both = one * out.decode_workers + other * out.prefill_workers
    total = raw.decode_tp_size.fillna(raw.tp_size)
    out["n_devices"] = np.where(stated_whole, total, np.where(out.disaggregated, both, one))
    out["caveats"] = [",".join(notes) for notes in caveats]
    return out


def _as_swept(raw: pandas.DataFrame, out: pandas.DataFrame, whole: np.ndarray) -> pandas.DataFrame:
    """The rows as `inferencex_sweeps.found` asks for them."""
    source = raw.silicon_data_source.fillna("")
    inferencex = ~source.str.startswith(_OWN_RUNS)
    return out.assign(
        device=out.device.map({name: find_device(name).id for name in out.device.unique()}),
        precision=out.gemm_quantization,
        requests=out.concurrency,
        open=out.disaggregated & ~(out.decode_workers > 0),
        prefill_gpus=raw.prefill_tp_size.fillna(-1),
        decode_gpus=raw.decode_tp_size.fillna(-1),
        all_gpus=np.where(whole, raw.decode_tp_size.fillna(raw.tp_size), -1),
        image=source.str.extract(r"image=([^;]+)")[0].fillna(""),
        day=source.str.extract(r"measured=(\d{4}-\d\d-\d\d)")[0].fillna(""),
        measurement=out.configuration,
        inferencex=inferencex,
        stated=inferencex & out.disaggregated & (out.decode_workers > 0) & (out.prefill_workers > 0),
    )


def _mixed_steps(rows: pandas.DataFrame) -> np.ndarray:
    """[N] 1 where prompts and decodes share SGLang's steps, 0 where prompts go first, NaN of other servers.

    ``rows``: `_as_swept`. Prompts go first unless a server is told otherwise. The generator of aiconfigurator tells it
    (`rule_plugin/sglang.rule`: "agg enable_mixed_chunk = true"), by an option that SGLang does not have in
    `cli_args.0.5.1.post1.j2` and that it has in `cli_args.0.5.6.post2.j2`; InferenceX's scripts do not.
    """
    own = ~rows.inferencex & (rows.runtime_version != _FIRST_OPTIONS)
    return np.where((rows.runtime == "sglang") & ~rows.disaggregated, own.astype(float), np.nan)


def _whole_deployment(raw: pandas.DataFrame) -> np.ndarray:
    """[N] where a split of a GB200 row is the number of GPUs of the deployment."""
    decode = raw.tp_size.fillna(raw.decode_tp_size)
    prefill = raw.tp_size.fillna(raw.prefill_tp_size)
    uneven = (np.log2(decode.fillna(1)) % 1 != 0) & (decode == prefill)
    too_many = (raw["mode"] == "agg") & (decode > 8) & (raw.moe_ep_size.fillna(1) <= 1)
    return np.asarray((raw.system == "gb200") & (uneven | too_many | ((decode == _MOST_SPLIT) & (decode == prefill))))


def _split(row: dict[str, Any], prefix: str) -> tuple[dict[str, float], list[str]]:
    """The parallel degrees of one side of a row, and what was corrected. Unknown is NaN."""

    def stated(name: str) -> float:
        value = row[f"{prefix}{name}_size"]
        return float(value) if value is not None and value > 0 else np.nan

    tensor, data = stated("tp"), stated("attention_dp")
    expert_tensor, expert = stated("moe_tp"), stated("moe_ep")
    notes = []
    product = expert_tensor * expert
    if expert_tensor > 1 and expert > 1 and expert_tensor == expert and product in (tensor, data):
        tensor, data = (expert, data) if product == tensor else (tensor, expert)
        expert_tensor = 1.0
        notes.append("split-product")
    elif tensor > 1 and tensor == data and tensor * data == expert:
        expert, tensor = data, 1.0
        notes.append("split-product")
    if np.isnan(data) and tensor > 0:
        data = 1.0
        if product > tensor and product % tensor == 0:
            data = product / tensor
            notes.append("split-widened")
    found = {"tensor_parallel": tensor, "pipeline_parallel": stated("pp"), "data_parallel": data}
    found |= {"moe_tensor_parallel": expert_tensor, "moe_expert_parallel": expert}
    return found, notes


def _family(model: str) -> str:
    """The architecture that a repository's checkpoint has: its shipped configuration."""
    from perfpass.importers.configuration_names import known

    return known()[model.lower()]
