"""Records of whole networks: what each reader keeps, infers and refuses, on a few rows of every source's form."""

from __future__ import annotations

import pandas
import pytest

from network_sources import NONE, rows_of, written
from perfpass.records import networks, schema
from perfpass.records.build.networks import READERS
from perfpass.records.location import data_directory
from perfpass.records.named import questions
from perfpass.records.readers import (
    bytetransformer,
    deeplearningexamples,
    demobert,
    fastertransformer,
    kernl,
    lightseq,
    optimum_benchmark,
    ort_stable_diffusion,
)

ROWS = {
    "demobert": 2364,
    "fastertransformer": 2197,
    "deeplearningexamples": 3699,
    "bytetransformer": 192,
    "kernl": 141,
    "lightseq": 261,
    "optimum_benchmark": 435,
    "ort_stable_diffusion": 60,
    "paddle_zoo": 1497,
    "mmdeploy": 103,
    "openmmlab": 865,
    "detectron2": 246,
    "vision_pages": 267,
    "co2_inference": 369,
    "lambda_diffusers": 121,
    "sd_benchmark": 1643,
    "qualcomm_ai_hub": 6565,
    "mlperf_tiny": 73,
    "llm_training": 323,
}


@pytest.fixture(scope="module")
def stored():
    return schema.read(data_directory() / "records" / "networks.parquet", networks.KIND)


def test_the_stored_rows_are_those_that_the_documents_state(stored):
    assert dict(stored.source.value_counts()) == ROWS
    assert tuple(ROWS) == READERS


def test_what_was_inferred_is_told_from_what_was_stated(stored):
    assert set(stored.device_from) == {"stated", "inferred"}
    assert set(stored.precision_from) == set(stored.year_from) == {"stated", "inferred", "unknown"}
    assert ((stored.precision == "") == (stored.precision_from == "unknown")).all()
    assert ((stored.software_year < 0) == (stored.year_from == "unknown")).all()
    doubts = "_not_stated|device_not|device_from"
    read_by_us = stored.device.str.startswith(("a100", "v100")) & stored.caveats.str.contains(doubts)
    assert (stored.device_from[read_by_us & (stored.source == "demobert")] == "inferred").all()


def test_every_stored_row_can_be_used(stored):
    assert (stored.batch >= 1).all() and (stored.n_devices >= 1).all()
    assert (stored.licence.isin(["Apache-2.0", "BSD-3-Clause", "MIT"])).all()
    assert ((stored.percentile == "") == stored.latency_ms.isna()).all()
    assert ((stored.memory_kind == "") == stored.peak_memory_bytes.isna()).all()
    assert ((stored.throughput_unit != "") <= stored.throughput_per_s.notna()).all()
    assert not stored.drop(columns="run").duplicated().any()


def test_known_points_are_where_the_sources_have_them(stored):
    bert = stored[(stored.source == "demobert") & (stored.network == "bert-base") & (stored.device == "t4")]
    one = bert[(bert.batch == 1) & (bert.sequence == 128) & (bert.precision == "int8")]
    assert one.latency_ms.between(1.3, 1.7).all() and len(one) == 5
    diffusion = stored[stored.network == "stable-diffusion-1.5"]
    assert set(diffusion.source) == {"ort_stable_diffusion", "co2_inference", "lambda_diffusers", "sd_benchmark"}
    assert (diffusion.steps[diffusion.source == "ort_stable_diffusion"] == 50).all()
    # The throughput that the source's own page quotes for its best run, with the steps it was of.
    best = diffusion[(diffusion.source == "lambda_diffusers") & (diffusion.device == "a100-sxm4-40gb")]
    best = best[(best.batch == 128) & best.variant.str.contains("xformers") & (best.precision == "fp16")].iloc[0]
    assert best.steps == 30 and best.batch / best.latency_ms * 1e3 == pytest.approx(1.85, abs=0.005)


def bert_rows(**changes):
    row = {
        "model": "BERT Base",
        "architecture": "layers=12, hidden=768, heads=12",
        "device": ["NVIDIA T4", "NVIDIA A100-40GB (form not stated)", "NVIDIA T4"],
        "device_as_reported": "as reported",
        "precision": ["int8", "fp16", "fp16"],
        "sequence_length": 128.0,
        "batch_size": 1.0,
        "latency_avg_ms": [1.4, 0.7, 2.0],
        "latency_p95_ms": [1.41, 0.7, 1.0],
        "latency_p99_ms": [1.5, 0.7, 1.1],
        "source_file": "README.md",
        "source_line": [1, 2, 3],
        "commit": "abc",
        "commit_date": "2024-06-17",
        "tensorrt_oss_version": "10.1",
    }
    return {**row, **changes}


def test_demobert_refuses_percentiles_out_of_order(tmp_path):
    reading = demobert.read(written(tmp_path, "nvidia_tensorrt_demos/bert_latency.parquet", **bert_rows()))
    rows = rows_of(reading)
    assert dict(reading.refused) == {"mean and percentiles contradict each other": 1}
    assert list(rows.device) == ["t4", "a100-sxm4-40gb"] and list(rows.device_from) == ["stated", "inferred"]
    assert "int8_falls_back" in rows.caveats[0] and "form_factor_not_stated" in rows.caveats[1]
    assert set(rows.software_year) == {2024} and set(rows.network) == {"bert-base"}


def test_rows_that_repeat_but_for_their_place_are_refused(tmp_path):
    twice = bert_rows(device="NVIDIA T4", precision="fp16", latency_avg_ms=1.4, latency_p95_ms=1.4, latency_p99_ms=1.4)
    reading = demobert.read(written(tmp_path, "nvidia_tensorrt_demos/bert_latency.parquet", **twice))
    assert dict(reading.refused) == {"repeats another row but for its place": 2} and len(rows_of(reading)) == 1


def test_fastertransformer_reads_the_board_by_its_clock_and_halves_what_has_no_padding(tmp_path):
    clock = "A100 (with mclk 1593MHz, pclk 1410MHz)"
    a100 = "NVIDIA A100 (memory size not stated)"
    written(
        tmp_path,
        "nvidia_fastertransformer/performance.parquet",
        doc_version="v5.3",
        hardware_note=[clock, clock, None, clock, clock],
        model_family="BERT",
        model="BERT-base-sized encoder",
        architecture="num_layers = 12",
        runtime=["FasterTransformer, padding removed", "TorchScript", "TensorFlow", "FasterTransformer", "TorchScript"],
        device=[a100, "NVIDIA A100 MIG instance (profile not stated)", a100, a100, a100],
        device_as_reported="A100",
        n_gpus=1,
        tensor_parallel=NONE,
        pipeline_parallel=NONE,
        precision="fp16",
        batch_size=[1.0, 1, 1, 1, NONE],
        sequence_length=128.0,
        output_length=NONE,
        decoding=None,
        image_size=NONE,
        latency_ms=[1.0, 2, 3, NONE, 4],
        throughput=[NONE, 3500, NONE, NONE, NONE],
        throughput_unit=[None, "sequences/s", None, None, None],
        oom=[False, False, False, True, False],
        memory_mib=[NONE] * 5,
        column="c",
        source_file="bert_guide.md",
        source_line=range(5),
    )
    reading = fastertransformer.read(tmp_path)
    rows = rows_of(reading)
    assert dict(reading.refused) == {"did not fit": 1, "no batch stated": 1}
    assert list(rows.device) == ["a100-sxm4-80gb", "a100-sxm4-80gb", "a100-sxm4-40gb"]
    assert list(rows.padding_removed) == [True, False, False] and rows.mean_sequence[0] == 64
    assert list(rows.mig_profile) == ["", "1g.10gb", ""] and "throughput_per_s" not in rows
    assert set(rows.software_year) == {2021} and set(rows.year_from) == {"inferred"}


EXAMPLE = {
    "model_family": "ResNet-50",
    "model": "resnet50",
    "model_variant": None,
    "architecture": None,
    "task": "Classification",
    "mode": "infer",
    "framework": "PyTorch",
    "runtime": "PyTorch",
    "device": "NVIDIA A100-SXM4-80GB",
    "device_as_reported": "NVIDIA DGX A100 (1x A100 80GB)",
    "n_gpus": 1,
    "n_gpus_from": "heading",
    "precision": "amp",
    "batch_size": 8.0,
    "batch_size_scope": "as stated",
    "concurrency": None,
    "sequence_length": None,
    "audio_seconds": NONE,
    "image_size_as_reported": None,
    "variant": None,
    "throughput": 800.0,
    "throughput_unit_as_reported": "img/s",
    "latency_avg_ms": 10.0,
    "latency_p50_ms": NONE,
    "latency_p90_ms": NONE,
    "latency_unit_from": "header",
    "server_compute_infer_ms": NONE,
    "server_compute_output_ms": 0.0,
    "config": None,
    "heading": "h",
    "context": "in the PyTorch 22.11-py3 NGC container",
    "source_file": "README.md",
    "licence": "MIT (LICENSE)",
}


def examples(tmp_path, *changes):
    table = pandas.DataFrame([{**EXAMPLE, "source_line": i, **change} for i, change in enumerate(changes)])
    table["concurrency"] = table.concurrency.astype("Int64")
    table["sequence_length"] = table.sequence_length.astype("Int64")
    for name in ("image_size_as_reported", "config", "variant", "model_variant", "architecture"):
        table[name] = table[name].astype("string")
    return deeplearningexamples.read(
        written(tmp_path, "nvidia_deeplearningexamples/performance.parquet", **dict(table.items()))
    )


def test_deeplearningexamples_takes_the_servers_time_and_refuses_unknown_batches(tmp_path):
    triton = {"server_compute_infer_ms": 4.0, "latency_avg_ms": 9.0, "config": '{"triton: Backend": "PyTorch"}'}
    reading = examples(
        tmp_path,
        {},
        {**triton, "concurrency": 1},
        {**triton, "concurrency": 8},
        {"throughput": 80.0},
        {"throughput": 700.0},
        {"batch_size": NONE},
        {"mode": None},
    )
    rows = rows_of(reading)
    assert dict(reading.refused) == {
        "several requests in flight: the batch that ran is unknown": 1,
        "throughput and latency contradict each other": 1,
        "no batch stated": 1,
        "neither inference nor training stated": 1,
    }
    assert list(rows.latency_ms) == [10, 4, 10] and list(rows.server) == ["", "triton", ""]
    assert rows.request_ms[1] == 9 and rows.variant[1] == "Backend: PyTorch"
    assert ["throughput_contradicts_latency" in c for c in rows.caveats] == [False, False, True]
    assert set(rows.software_year) == {2022} and set(rows.device_from) == {"inferred"}
    assert set(rows.licence) == {"MIT"} and set(rows.network) == {"resnet50"}


def test_deeplearningexamples_tells_transformer_xl_as_torchscript_from_pure_python(tmp_path):
    """The README has two tables of each point: "pure Python", then "TorchScript"."""
    network = {"model_family": "Transformer-XL", "model_variant": "Base model", "throughput": NONE}
    one, traced = {**network, "batch_size": 1.0}, {**network, "batch_size": 1.0, "latency_avg_ms": 6.0}
    rows = rows_of(examples(tmp_path, one, {**network, "batch_size": 2.0}, traced, {"batch_size": 8.0}))
    assert list(rows.runtime) == ["torch", "torch", "torchscript", "torch"]
    assert list(rows.latency_ms) == [10.0, 10.0, 6.0, 10.0]


def test_deeplearningexamples_marks_what_a_servers_client_waited(tmp_path):
    triton = {"heading": "Deploying the model on Triton Inference Server > Offline scenario"}
    rows = rows_of(examples(tmp_path, {}, triton, {**triton, "server_compute_infer_ms": 4.0}))
    assert ["time_of_a_servers_client" in c for c in rows.caveats] == [False, True, False]
    assert list(rows.latency_ms) == [10, 10, 4] and list(rows.server) == ["", "", "triton"]


def test_a_servers_model_reads_texts_of_the_length_that_its_table_states(tmp_path):
    triton = {"model_family": "BERT", "model_variant": "BERT-large", "server_compute_infer_ms": 4.0, "concurrency": 1}
    padded = '{"triton: Max Seq Length": "384"}'
    both = {**triton, "sequence_length": 128, "config": padded}
    rows = rows_of(examples(tmp_path, {**triton, "config": padded}, triton, both))
    assert list(rows.sequence) == [384, -1, 128]


def test_berts_behind_triton_are_asked_at_their_length(stored):
    asked = questions(stored)
    behind = (stored.source == "deeplearningexamples") & (stored.server == "triton") & (stored.task == "language model")
    assert asked[behind].network.value_counts().to_dict() == {"bert-4l-312": 36, "bert-6l-768": 36, "bert-large": 35}
    assert set(asked[behind].table_size) == {384} and set(asked[behind].shape_from) == {"stated"}
    assert set(asked[behind].refused) == {""}


def test_a_server_that_does_not_wait_for_the_board_has_its_time_in_the_outputs(tmp_path):
    triton = {"server_compute_infer_ms": 7.3, "server_compute_output_ms": 282.0, "concurrency": 1}
    rows = rows_of(examples(tmp_path, {**triton, "runtime": "PyTorch"}, {**triton, "runtime": "NVIDIA TensorRT"}))
    assert list(rows.latency_ms) == pytest.approx([289.3, 7.3]) and list(rows.runtime) == ["torchscript", "tensorrt"]
    assert ["outputs" in timing for timing in rows.timing] == [True, False]


def test_a_time_beside_tensorrts_without_a_runtime_is_refused(tmp_path):
    gpunet = {"model_family": "GPUNet", "model": "GPUNet", "model_variant": "GPUNet-0", "precision": "fp16"}
    reading = examples(tmp_path, gpunet, {**gpunet, "server_compute_infer_ms": 0.6, "concurrency": 1})
    assert len(rows_of(reading)) == 1 and "the runtime is not stated" in next(iter(reading.refused))


def test_deeplearningexamples_leaves_slow_first_iterations_out_and_divides_accumulated_batches(tmp_path):
    slow = {"model_family": "BERT", "model_variant": "base", "framework": "TensorFlow 1", "latency_avg_ms": 20.0}
    steps = {
        "model_family": "BERT",
        "mode": "train",
        "device": "NVIDIA Tesla V100-SXM2-32GB",
        "latency_avg_ms": NONE,
        "batch_size_scope": "per GPU",
        "batch_size": 4096.0,
        "n_gpus": 8,
        "config": '{"accumulation_steps_fp32_and_fp16": "128 and 64"}',
    }
    in_one = '{"gradient_accumulation_mixed_precision_fp32": "512, 1024", "global_batch_size": "65536"}'
    reading = examples(
        tmp_path, {**slow, "latency_p50_ms": 9.9}, slow, steps, {**steps, "batch_size": 16.0, "config": in_one}
    )
    rows = rows_of(reading)
    assert not reading.refused
    assert list(rows.latency_ms[:2]) == [9.9, 10.0] and list(rows.percentile[:2]) == ["p50", "over_throughput"]
    assert list(rows.batch[2:]) == [64, 16] and list(rows.batch_scope[2:]) == ["device", "device"]


def test_two_tables_of_one_point_are_bert_large_and_then_bert_base(tmp_path):
    default = "encoder layers=24 (README default: BERT-large)"
    point = {"model_family": "BERT", "model_variant": "SQuAD", "framework": "TensorFlow 2", "architecture": default}
    rows = rows_of(examples(tmp_path, point, {**point, "throughput": 2400.0, "latency_avg_ms": 3.3}))
    assert list(rows.network) == ["bert-large", "bert-base"] and set(rows.architecture) == {""}
    assert rows.caveats.str.contains("size_by_the_tables_order").all()


def test_no_stored_row_of_bert_is_above_the_peak_of_its_board(stored):
    from perfpass.devices import device

    sizes = {"bert-base": (12, 768), "bert-large": (24, 1024)}
    known = stored.network.isin(sizes) & (stored.sequence > 0) & stored.listed & stored.latency_ms.notna()
    known &= stored.precision != ""
    for row in stored[known & (stored["mode"] == "inference")].itertuples():
        layers, width = sizes[row.network]
        tokens = row.mean_sequence if row.padding_removed else row.sequence
        # 12 h^2 + 2 h n MACs per token and layer (Kaplan et al., 2020, table 1); 2:4 sparsity halves the first.
        macs = layers * row.batch * tokens * (12 * width**2 + 2 * width * tokens)
        others = {"int8": ("fp16",), "fp32": ("tf32",) if "tf32" in row.caveats else ()}.get(row.precision, ())
        peaks = device(row.device).peak_flops
        peak = max(peaks.get(precision, 0.0) for precision in (row.precision, *others))
        assert 2 * macs / row.latency_ms * 1e3 <= peak * (2 if "sparse" in row.caveats else 1), row


def test_language_sources_keep_lengths_and_precision_apart(tmp_path):
    common = {"model": "BERT", "architecture": "layers=12", "device_as_reported": "x", "source_file": "r", "n_gpus": 1}
    written(
        tmp_path,
        "bytetransformer/bert.csv",
        **common,
        device="NVIDIA A100 (memory size not stated)",
        runtime=["PyTorch", "ByteTransformer"],
        precision="fp16 (script default; not stated in the README)",
        batch_size=1,
        max_sequence_length=64,
        average_sequence_length=38.4,
        latency_ms=[2.0, 1.0],
        source_line=[1, 2],
    )
    rows = rows_of(bytetransformer.read(tmp_path))
    assert list(rows.padding_removed) == [False, True] and set(rows.precision_from) == {"inferred"}
    assert set(rows.mean_sequence) == {38.4} and set(rows.precision) == {"fp16"}
    written(
        tmp_path,
        "kernl/bert_base_rtx3090.csv",
        **common,
        device="NVIDIA GeForce RTX 3090",
        runtime=["Baseline", "TensorRT"],
        precision="fp16",
        batch_size=1,
        sequence_length=16,
        latency_ms=[2.123, 1.2],
        source_line=[1, 2],
    )
    rows = rows_of(kernl.read(tmp_path))
    assert list(rows.caveats) == ["", "resolution_of_100_us"] and set(rows.device) == {"rtx-3090"}
    written(
        tmp_path,
        "lightseq/performance.csv",
        **{**common, "model": "Transformer-base decoding (Beam search)"},
        context="c",
        device="NVIDIA T4",
        runtime="FT",
        precision=None,
        batch_size=[1, 8],
        beam_size=4.0,
        sampling=NONE,
        sequence_length=32,
        latency_ms=[9.0, 8.0],
        column="FT(ms)",
        source_line=[1, 2],
    )
    rows = rows_of(lightseq.read(tmp_path))
    assert set(rows.precision_from) == {"unknown"} and set(rows.beams) == {4}
    assert ["below_a_smaller" in c for c in rows.caveats] == [False, True]


def test_optimum_benchmark_makes_two_rows_of_a_run_and_refuses_training(tmp_path):
    written(
        tmp_path,
        "optimum_benchmark/transformers_eager.csv",
        commit="c",
        source_file=["a", "b", "c"],
        device=["NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB", "not stated"],
        device_as_reported="['NVIDIA A100-SXM4-80GB']",
        framework="pytorch 2.1.0+cu118",
        provider=None,
        experiment="fp16+gptq",
        model="TheBloke/Llama-2-7B-GPTQ",
        task="text-generation",
        mode=["inference", "training", "inference"],
        torch_dtype="float16",
        precision="float16",
        quantisation="gptq",
        ort_optimisation=None,
        ort_auto_quantization=None,
        bettertransformer=None,
        flash_attention_2=None,
        batch_size=1.0,
        sequence_length=256.0,
        new_tokens=100.0,
        latency_ms=50.0,
        throughput_samples_per_s=20.0,
        memory_mb_forward_peak=8000.0,
        memory_mb_forward_allocated=NONE,
        memory_mb_forward_reserved=NONE,
        generate_latency_ms=4000.0,
        generate_throughput_tok_s=25.0,
        memory_mb_generate_peak=9000.0,
        memory_mb_generate_allocated=NONE,
        memory_mb_generate_reserved=9100.0,
    )
    reading = optimum_benchmark.read(tmp_path)
    rows = rows_of(reading)
    assert sum(reading.refused.values()) == 2 and reading.refused["no device stated"] == 1
    assert list(rows.output_tokens) == [-1, 100] and list(rows.latency_ms) == [50, 4000]
    assert list(rows.peak_memory_bytes) == [8e9, 9e9] and set(rows.memory_kind) == {"in_use"}
    assert set(rows.quantization) == {"gptq"} and set(rows.software_year) == {2023} and set(rows.caveats) == {""}


def test_stable_diffusion_has_two_memories(tmp_path):
    written(
        tmp_path,
        "onnxruntime/stable_diffusion_v1_5.csv",
        model="Stable Diffusion 1.5",
        device="NVIDIA T4",
        device_as_reported="T4, clocks locked at 990 MHz",
        runtime=["torch", "onnxruntime"],
        runtime_version=["2.0.0+cu117", "1.14.1"],
        provider=["compile", "CUDA"],
        precision="fp16",
        batch_size=1,
        image_size=512,
        denoising_steps=50,
        latency_ms=[20000.0, 18000.0],
        images_per_s=[0.05, 0.0556],
        first_run_memory_mib=9000,
        second_run_memory_mib=[4000, 4100],
        source_file="r",
        commit="c",
    )
    rows = rows_of(ort_stable_diffusion.read(tmp_path))
    assert list(rows.runtime) == ["torch.compile", "onnxruntime"] and set(rows.software_year) == {2023}
    assert (rows.first_run_bytes > rows.peak_memory_bytes).all() and "clock_locked" in rows.caveats[0]
    assert ["sdp" in variant for variant in rows.variant] == [True, False]


def test_sizes_and_years_are_read_from_texts():
    height, width = networks.pixels(pandas.Series(["224", "512x1024", "1x3x256x128", None, "640.0"]))
    assert list(height) == [224, 512, 256, -1, 640] and list(width) == [224, 1024, 128, -1, 640]
    years = networks.container_year(
        pandas.Series(["PyTorch 22.11-py3 NGC", "batch 19.5", "Python 20.06-tf1-py3", None])
    )
    assert list(years) == [2022, -1, 2020, -1]
    assert networks.year_of("torch", "2.1.0+cu118") == 2023 and networks.year_of("torch", "nightly") == -1
