"""huggingface/optimum-benchmark: forward pass and generation in transformers and ONNX Runtime, with memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfpass.records import language_models, networks
from perfpass.records.schema import Reading
from perfpass.records.sources import table_of

if TYPE_CHECKING:
    import pandas

_DOMAINS = {
    "text-generation": ("language", "text generation"),
    "feature-extraction": ("language", "encoder"),
    "automatic-speech-recognition": ("speech", "speech recognition"),
}
NETWORKS = {
    "BAAI/bge-base-en-v1.5": "bert-base",
    "openai/whisper-base": "whisper-base",
    "NousResearch/Llama-2-7b-hf": "llama-2-7b",
    "meta-llama/Llama-2-7b-hf": "llama-2-7b",
    "TheBloke/Llama-2-7B-GPTQ": "llama-2-7b",
    "lmsys/vicuna-7b-v1.5": "llama-2-7b",
    "IlyasMoutawwakil/vicuna-7b-v1.5-awq-gemm": "llama-2-7b",
    "IlyasMoutawwakil/vicuna-7b-v1.5-awq-gemv": "llama-2-7b",
    "TheBloke/vicuna-7B-v1.5-GPTQ": "llama-2-7b",
    "mistralai/Mistral-7B-v0.1": "mistral-7b",
    "ybelkada/test-mistral-7b-v0.1-awq": "mistral-7b",
    "TheBloke/Mistral-7B-v0.1-GPTQ": "mistral-7b",
    "TheBloke/LLaMa-7B-GPTQ": "llama-7b",
    "TheBloke/LLaMa-65B-GPTQ": "llama-65b",
}
_MEGABYTE = 1e6  # the source's unit: 84,420 of its MB on a board of 81,920 MiB
_SLACK = 0.05


def read(shared: Path) -> Reading:
    """Records of kind ``network``: one of the forward pass and one of generation for every row that has both.

    ``peak_memory_bytes`` is NVML's, context included; PyTorch's own peaks stand beside it in the newer runs (B7).
    """
    reading = Reading("optimum_benchmark")
    table = table_of(shared, "optimum_benchmark", "transformers_eager.csv")
    table = reading.keep(table, table.model.notna(), "no model stated")
    table = reading.keep(table, table.device != "not stated", "no device stated")
    table = reading.keep(table, table.device != "CPU: x86_64", "the processor is not named")
    table = reading.keep(table, table["mode"] != "training", "training: some runs are over several devices, unsaid")
    table = reading.keep(table, table.batch_size.notna(), "no batch stated").reset_index(drop=True)
    common = _common(table)
    forward = common.assign(
        timing="one forward pass, by the host's clock",
        percentile="mean",
        latency_ms=table.latency_ms,
        throughput_per_s=table.throughput_samples_per_s,
        throughput_unit=np.where(table.throughput_samples_per_s.notna(), "samples", ""),
        peak_memory_bytes=table.memory_mb_forward_peak * _MEGABYTE,
        allocated_bytes=table.memory_mb_forward_allocated * _MEGABYTE,
        reserved_bytes=table.memory_mb_forward_reserved * _MEGABYTE,
    )
    generation = common.assign(
        run=common.run + ":generate",
        task=np.where(common.domain == "speech", "speech recognition", "text generation"),
        timing="prompt and all new tokens, by the host's clock",
        percentile="mean",
        output_tokens=table.new_tokens,
        latency_ms=table.generate_latency_ms,
        throughput_per_s=table.generate_throughput_tok_s,
        throughput_unit=np.where(table.generate_throughput_tok_s.notna(), "tokens", ""),
        peak_memory_bytes=table.memory_mb_generate_peak * _MEGABYTE,
        allocated_bytes=table.memory_mb_generate_allocated * _MEGABYTE,
        reserved_bytes=table.memory_mb_generate_reserved * _MEGABYTE,
    )
    tokens = generation.throughput_per_s * generation.latency_ms / 1e3 / generation.batch
    agrees = (tokens / generation.output_tokens - 1).abs()
    networks.caveat_where(generation, agrees > _SLACK, "throughput_contradicts_latency")
    for rows, timed in ((forward, table.latency_ms), (generation, table.generate_latency_ms)):
        kept = rows[timed.notna()].copy()
        kept["memory_kind"] = np.where(kept.peak_memory_bytes.notna(), "in_use", "")
        networks.add(reading, kept)
    _add_generation(reading, common, table)
    return reading


def _add_generation(reading: Reading, common: pandas.DataFrame, table: pandas.DataFrame) -> None:
    """The same runs of language models as records of kind ``generation``: prompt, tokens after it, and the whole."""
    whole = (table.task == "text-generation") & (table.new_tokens.notna() | table.latency_ms.notna())
    # As the source works out its own decode latency, in the runs that state one.
    decode_ms = table.generate_latency_ms - table.latency_ms
    # The weights of a quantized model: 4 bits by the name of their file, products in 16 bits.
    four = common.quantization.str.contains("gptq|awq|nf4|4bit|4-bit", case=False)
    eight_or_four = common.quantization == "bnb"
    stated = ["model", "network", "licence", "run", "device", "device_as_reported", "runtime", "runtime_version"]
    stated += ["quantization", "variant", "batch", "software_year", "year_from", "caveats"]
    rows = common[stated].assign(
        precision=common.precision.mask(four, "int4").mask(eight_or_four, ""),
        precision_from=common.precision_from.mask(four, "inferred").mask(eight_or_four, "unknown"),
        timing="a forward pass, and a generation, by the host's clock",
        input_tokens=common.sequence,
        output_tokens=table.new_tokens,
        tensor_parallel=1,
        pipeline_parallel=1,
        ttft_ms=table.latency_ms,
        tpot_ms=decode_ms / (table.new_tokens - 1),
        latency_ms=table.generate_latency_ms,
        throughput_per_s=table.generate_throughput_tok_s,
        throughput_unit=np.where(table.generate_throughput_tok_s.notna(), "output tokens", ""),
        peak_memory_bytes=table.memory_mb_generate_peak.fillna(table.memory_mb_forward_peak) * _MEGABYTE,
    )
    rows["memory_kind"] = np.where(rows.peak_memory_bytes.notna(), "in_use", "")
    networks.caveat_where(rows, rows.output_tokens.isna(), "no_token_generated")
    language_models.add(reading, rows[whole].reset_index(drop=True))


def _common(table: pandas.DataFrame) -> pandas.DataFrame:
    stack = table.framework.str.split(" ", n=1)
    onnx = stack.str[0] == "onnxruntime"
    better = table.bettertransformer.astype(str) == "True"
    flash = table.flash_attention_2.astype(str) == "True"
    version = stack.str[1].str.removeprefix("ort-gpu:")
    years = [networks.year_of("onnxruntime" if o else "torch", v) for o, v in zip(onnx, version, strict=True)]
    stated = table.precision.fillna(table.torch_dtype)
    precision, precision_from = networks.precisions(stated)
    int8 = table.ort_auto_quantization.notna()
    plain = stated.isna() & ~int8
    quantized = table.quantisation.fillna(table.model.str.lower().str.extract(r"(gptq|awq)")[0]).fillna("")
    weights = quantized.mask(int8, "onnxruntime " + table.ort_auto_quantization.fillna(""))
    variant = (
        table.experiment.fillna("")
        + better.map({True: "; BetterTransformer", False: ""})
        + flash.map({True: "; FlashAttention-2", False: ""})
        + table.ort_optimisation.map(lambda o: f"; {o}", na_action="ignore").fillna("")
    )
    tensorrt = table.provider == "TensorrtExecutionProvider"
    rows = table[["model"]].assign(
        licence="Apache-2.0",
        run=table.commit + ":" + table.source_file,
        network=table.model.map(NETWORKS).fillna(""),
        domain=table.task.map(lambda t: _DOMAINS[t][0]),
        task=table.task.map(lambda t: _DOMAINS[t][1]),
        device=table.device.str.removeprefix("CPU: "),
        device_as_reported=table.device_as_reported.fillna(""),
        runtime=np.where(tensorrt, "onnxruntime+tensorrt", np.where(onnx, "onnxruntime", "torch")),
        runtime_version=version,
        variant=variant,
        precision=precision.mask(int8, "int8").mask(plain, "fp32"),
        precision_from=precision_from.mask(int8 | plain, "inferred"),
        quantization=weights,
        batch=table.batch_size,
        sequence=table.sequence_length,
        software_year=years,
        year_from=["inferred" if year > 0 else "unknown" for year in years],
        caveats="",
    )
    several = table.device_as_reported.fillna("").str.count("A100") > 1
    networks.caveat_where(rows, several, "other_devices_visible")
    networks.caveat_where(rows, table.device.str.contains("2.20GHz"), "processor_model_not_stated")
    return rows
