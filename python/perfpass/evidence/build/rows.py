"""Every table of records as rows of one schema: what was measured is copied as it stands.

Added to it: the kind of question that a row answers, the repository and commit of its source, and two figures that
follow from what was measured, ``time_ms`` (one run, by the latency or by batch over throughput) and
``request_energy_j`` (one sequence of a language model).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfpass.evidence.table import FIGURES, NUMBERS, TEXTS
from perfpass.records import measured, schema
from perfpass.records.location import data_directory

if TYPE_CHECKING:
    import pandas

# Source: repository and commit that was read; data/records/README.md. Empty: each row states its own.
SOURCES: dict[str, tuple[str, str]] = {
    "timm": ("huggingface/pytorch-image-models", "aa4b5850c154"),
    "torchvision": ("ryujaehun/pytorch-gpu-benchmark", "3f47a9e2a43c"),
    "argonne": ("argonne-lcf/LLM-Inference-Bench", "4211f5d4e9bc"),
    "mlenergy": ("ml-energy/leaderboard-v2", "c3af7f31e231"),
    "splitwise": ("Mutinifni/splitwise-sim", "8f99e7dc9b40"),
    "zeus": ("ml-energy/zeus", "75a8b9398034"),
    "ibm_llm_pilot": ("IBM/LLM-performance-prediction", "3c66483f55d7"),
    "mlperf": ("mlcommons/cm4mlperf-results", "84d8b84c6d6e"),
    "parvagpu": ("MunQ-Lee/ParvaGPU_SC24", "5f3de1e18582"),
    "milabench": ("mila-iqia/milabench", "faf39234e7ff"),
    "miso": ("boringlee24/socc22-miso", "39b1ee69d73c"),
    "demobert": ("NVIDIA/TensorRT", "a892d22267d9"),
    "fastertransformer": ("NVIDIA/FasterTransformer", "df4a75348601"),
    "deeplearningexamples": ("NVIDIA/DeepLearningExamples", "729963dd47e7"),
    "bytetransformer": ("bytedance/ByteTransformer", "44c66ae8d887"),
    "kernl": ("ELS-RD/kernl", "91e2cd92db44"),
    "lightseq": ("bytedance/lightseq", "a7ab0dabe63e"),
    "optimum_benchmark": ("huggingface/optimum-benchmark", ""),
    "ort_stable_diffusion": ("microsoft/onnxruntime", "b1954fabd2ec"),
    "paddle_zoo": ("PaddlePaddle/PaddleClas, PaddleDetection, PaddleSeg", ""),
    "mmdeploy": ("open-mmlab/mmdeploy", "3f8604bd72e8"),
    "openmmlab": ("open-mmlab and SwinTransformer, by row", ""),
    "detectron2": ("facebookresearch/detectron2", "02b5c4e295e9"),
    "vision_pages": ("several, by row", ""),
    "co2_inference": ("sashavor/co2_inference", "9ae9895facde"),
    "aiconfigurator": ("ai-dynamo/aiconfigurator", "095f58a51c4c"),
    "help": ("HayeonLee/HELP", "45f70eb92d0d"),
    "qualcomm_ai_hub": ("quic/ai-hub-models", "52c080d245d2"),
    "sd_benchmark": ("vladmandic/sd-extension-system-info", "0a93d2ebff0e"),
    "mlperf_tiny": ("mlcommons/tiny_results_v1.2", "cadb362343f5"),
    "lambda_diffusers": ("LambdaLabsML/lambda-diffusers", "8571d8d492c6"),
    "llm_training": ("several, by row", ""),
    "strix_halo": ("lhl/strix-halo-testing", "5ee14b5b0ecf"),
    "tensorrt_llm": ("NVIDIA/TensorRT-LLM", ""),
    "ktransformers": ("kvcache-ai/ktransformers", "95009ea6856c"),
    "lmdeploy": ("InternLM/lmdeploy", ""),
    "exllama": ("turboderp/exllama @ 3b013cd53c7d, turboderp-org/exllamav2", "da07facd10b5"),
    "megatron_lm": ("NVIDIA/Megatron-LM", "d98e8a64ddf3"),
    "serving_misc": ("FMInference/FlexLLMGen", "004ffef82b46"),
    "own": ("perfpass, data/records/measured", ""),
}
# What `throughput_per_s` must count for a run's time to follow from it.
_SAMPLES = ("", "img", "imgs", "item", "samples", "sequences", "mol")


def everything(folder: Path | None = None) -> pandas.DataFrame:
    """All rows, in the order of the tables; columns of `TEXTS`, `NUMBERS` and `FIGURES`.

    Kernels and single operators are left out: a question is about a whole network, and 450,000 rows of parts would
    answer none. `training_memory` is left out because `training_outside` states the same measurements.
    """
    import pandas

    root = (folder or data_directory()) / "records"
    parts = []
    for name, (kind, of) in _TABLES.items():
        table = schema.read(root / f"{name}.parquet", kind)
        parts.append(_unified(of(table)))
    parts.append(_unified(_own()))
    return pandas.concat(parts, ignore_index=True)


def _unified(table: pandas.DataFrame) -> pandas.DataFrame:
    """One table in the columns of the schema."""
    import pandas

    out = {}
    mig = table.mig_profile if "mig_profile" in table.columns else pandas.Series("", index=table.index)
    sources = table.source.map(lambda s: SOURCES[s])
    table = table.assign(
        repository=[repository for repository, _ in sources],
        commit=[commit for _, commit in sources],
        device=table.device + (":" + mig).where(mig != "", ""),
        devices=table["devices" if "devices" in table.columns else "n_devices"],
    )
    for name in TEXTS:
        out[name] = table[name].fillna("").astype(str) if name in table.columns else pandas.Series("", table.index)
    for name in (*NUMBERS, *FIGURES):
        values = table[name].astype(np.float64) if name in table.columns else pandas.Series(np.nan, table.index)
        out[name] = values.where(values > 0)
    return pandas.DataFrame(out)


def _vision(t: pandas.DataFrame) -> pandas.DataFrame:
    return t.assign(
        kind=t["mode"].map({"inference": "inference", "training": "step"}),
        network=t.architecture,
        img_height=t.img_size,
        img_width=t.img_size,
        time_ms=t.latency_ms,
    )


def _networks(t: pandas.DataFrame) -> pandas.DataFrame:
    generates = (t.task == "text generation") & (t.output_tokens > 0)
    kind = np.where(t["mode"] == "training", "step", np.where(generates, "generation", "inference"))
    per_device = t.batch_scope == "device"
    n = np.where(per_device, np.maximum(t.n_devices, 1), 1)
    whole = t.throughput_unit.isin(_SAMPLES) & (per_device | (t.n_devices <= 1)) & (t.batch > 0)
    by_rate = (1e3 * t.batch * n / t.throughput_per_s).where(whole)
    return t.assign(
        kind=kind,
        devices=t.n_devices.where(t.n_devices > 0, t.tensor_parallel * t.pipeline_parallel.clip(lower=1)),
        input_tokens=t.sequence.where(generates),
        time_ms=t.latency_ms.fillna(by_rate),
        # Of one run, whatever its samples.
        request_energy_j=(t.energy_j / t.batch.clip(lower=1)).where(generates),
    )


def _training(t: pandas.DataFrame) -> pandas.DataFrame:
    by_rate = (1e3 * t.batch / t.throughput_per_s).where(t.n_devices == 1)
    return t.assign(
        kind="step", time_ms=t.latency_ms.fillna(by_rate), memory_kind=np.where(t.peak_memory_bytes > 0, "in_use", "")
    )


def _epochs(t: pandas.DataFrame) -> pandas.DataFrame:
    return t.assign(kind="epoch")


def _serving(t: pandas.DataFrame) -> pandas.DataFrame:
    ranks = t.tensor_parallel * t.pipeline_parallel.clip(lower=1) * t.data_parallel.clip(lower=1)
    workers = (t.n_devices / ranks).where((t.n_devices > 0) & ~t.disaggregated, t.decode_workers.clip(lower=1))
    moe = t.moe_quantization.where(t.moe_quantization != "", t.precision)
    return t.assign(
        kind="serving",
        devices=ranks.clip(lower=1),
        batch=t.concurrency / workers.clip(lower=1),
        precision=moe.replace({"fp4": "nvfp4"}),
        variant=np.where(t.disaggregated, "prefill apart", ""),
    )


def _generation(t: pandas.DataFrame) -> pandas.DataFrame:
    text = t.output_tokens > 0
    loaded = t.timing == "under load"
    kind = np.where(~text, "pipeline", np.where(loaded, "serving", "generation"))
    batch = t.mean_batch.where(t.mean_batch > 0, t.batch)
    each = t.energy_j.where(loaded, t.energy_j / batch.clip(lower=1))
    return t.assign(
        kind=kind,
        batch=batch,
        img_height=[int(r.split("x")[1]) if "x" in r else -1 for r in t.resolution],
        img_width=[int(r.split("x")[0]) if "x" in r else -1 for r in t.resolution],
        time_ms=t.latency_ms,
        request_energy_j=each.where(text),
    )


def _engines(t: pandas.DataFrame) -> pandas.DataFrame:
    """Engines without a server: whole batches, prompts alone, and tokens alone after what the cache holds."""
    t = t[t.source != "optimum_benchmark"].reset_index(drop=True)  # the same runs as in `networks`
    whole = t["mode"] == "inference"
    steady = whole & ~t.caveats.str.contains("requests_wait_for_each_other")
    by_rate = (1e3 * t.batch * t.output_tokens / t.throughput_per_s).where(steady & (t.output_tokens > 0))
    return t.assign(
        kind="generation",
        input_tokens=t.input_tokens.where(t.input_tokens > 0, t.context_tokens),
        time_ms=t.latency_ms.where(whole).fillna(by_rate),
    )


def _mig(t: pandas.DataFrame) -> pandas.DataFrame:
    ran = t[t.fits]
    return ran.assign(kind="inference", time_ms=ran.latency_ms, network=ran.model)


def _nas(t: pandas.DataFrame) -> pandas.DataFrame:
    return t.assign(kind="inference", time_ms=t.latency_ms, model=t.space + " " + t.model)


def _system(t: pandas.DataFrame) -> pandas.DataFrame:
    return t.assign(kind="system", variant=t.scenario, task=t.organization + ": " + t.system)


def _own() -> pandas.DataFrame:
    """Our own measurements on a CPU; its host is one that the catalogue does not have."""
    t = measured.load()
    t = t[(t.status == "ok") & t["mode"].isin(["inference", "training"])].reset_index(drop=True)
    ours = t.runtime == "onnxruntime"
    return t.assign(
        kind=t["mode"].map({"inference": "inference", "training": "step"}),
        source="own",
        licence="Apache-2.0",
        run=t.key,
        device=t.catalogue_id.replace({"host-cpu": "host-cpu (2 cores of an AMD EPYC)"}),
        runtime_version=t.onnxruntime_version.where(ours, t.torch_version),
        network=t.model.str.partition(":")[2],
        devices=1,
        sequence=t.ran_sequence_length,
        img_height=t.ran_image_size,
        img_width=t.ran_image_size,
        timing="perfpass measure",
        caveats=t["flags"].str.strip().str.replace(" ", ","),
        memory_kind="host_peak_rss",
        peak_memory_bytes=t.host_peak_rss_bytes,
        time_ms=t.latency_ms,
    )


# Table of data/records: its kind, and how its rows are read.
_TABLES: dict[str, tuple[str, Callable[[pandas.DataFrame], pandas.DataFrame]]] = {
    "vision": ("vision", _vision),
    "networks": ("network", _networks),
    "training_outside": ("training", _training),
    "training_power": ("training", _epochs),
    "serving": ("serving", _serving),
    "serving_load": ("serving", _serving),
    "generation": ("generation", _generation),
    "generation_outside": ("generation", _engines),
    "serving_outside": ("serving", _serving),
    "mig": ("mig", _mig),
    "nas": ("nas", _nas),
    "server_power": ("system", _system),
}
