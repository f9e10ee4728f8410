"""Records of diffusion, phones, microcontrollers and training of language models: what readers keep and refuse."""

from __future__ import annotations

from network_sources import NONE, rows_of, written
from perfpass.records.readers import lambda_diffusers, llm_training, mlperf_tiny, qualcomm_ai_hub, sd_benchmark


def test_slices_of_a_board_and_what_did_not_fit(tmp_path):
    written(
        tmp_path,
        "lambda_diffusers/sd_v1_benchmark.csv",
        model="Stable Diffusion v1.4",
        device=["NVIDIA H100 PCIe MIG 1g.10gb", "NVIDIA A10", "NVIDIA A10"],
        device_as_reported="d",
        precision=["half", "single", "single"],
        xformers=[True, False, False],
        batch_size=[1, 1, 128],
        image_size=512,
        denoising_steps=50,
        latency_ms=[9000.0, 4700.0, NONE],
        memory_as_reported=[3.13, 6.29, -1.0],
        repo="r",
        source_file="b.csv",
    )
    reading = lambda_diffusers.read(tmp_path)
    rows = rows_of(reading)
    assert list(rows.device) == ["h100-pcie-80gb", "a10"] and list(rows.mig_profile) == ["1g.10gb", ""]
    assert list(rows.precision) == ["fp16", "fp32"] and "may_run_in_tf32" in rows.caveats[1]
    assert dict(reading.refused) == {"did not fit": 1} and rows.variant[0] == "diffusers; xformers"
    assert set(rows.steps) == {30} and list(rows.peak_memory_bytes) == [3.13e9, 6.29e9]
    assert set(rows.memory_kind) == {"reserved"}


def test_users_runs_of_one_point_become_its_median(tmp_path):
    written(
        tmp_path,
        "vladmandic_sd_benchmark/sd_benchmark_2023_02_to_04.parquet",
        device=["NVIDIA GeForce RTX 3060"] * 4 + ["AMD Radeon Graphics", "NVIDIA GeForce RTX 3060"],
        vram_gb=["12", "12", "12", "8", "16", "12"],
        torch_version="2.0.0+cu118",
        precision="fp16",
        autocast=True,
        attention_and_optimisations="sdp none",
        model_family="sd1.5 or unknown",
        batch_size=1,
        throughput_its_per_s=[8.0, 10.0, 16.0, 5.0, 1.0, NONE],
        latency_per_step_ms=[125.0, 100.0, 62.5, 200.0, 1000.0, NONE],
        device_as_reported="d",
        source_file="f",
    )
    reading = sd_benchmark.read(tmp_path)
    rows = rows_of(reading).set_index("device")
    assert rows.latency_ms.to_dict() == {"rtx-3060-12gb": 2000.0, "rtx-3060-8gb": 4000.0}
    assert rows.n_samples.to_dict() == {"rtx-3060-12gb": 3, "rtx-3060-8gb": 1}
    large = rows.loc["rtx-3060-12gb"]
    assert large.latency_p10_ms < large.latency_ms < large.latency_p90_ms
    assert "one_user" in rows.loc["rtx-3060-8gb"].caveats
    assert dict(reading.refused) == {
        "repeats a measurement; the median is kept": 2,
        "ended with an error, or without a rate": 1,
        "the board is not named": 1,
    }


def test_the_bits_of_a_float_network_on_a_phone_are_inferred(tmp_path):
    written(
        tmp_path,
        "qualcomm_ai_hub/perf.parquet",
        model=["ResNet50", "Whisper", "Llama-v2-7B-Chat"],
        model_id=["resnet50", "whisper", "llama_v2_7b_chat"],
        component=["ResNet50", "encoder", "Llama-v2-7B-Chat"],
        checkpoint=["Imagenet", None, None],
        domain=["Computer Vision", "Audio", "Generative AI"],
        use_case=["Image Classification", "Speech Recognition", "Text Generation"],
        input_resolution=["224x224", "80x3000 mel", None],
        precision=["float", "w8a16", "w4a16"],
        device=["Samsung Galaxy S25", "QCS8550 (Proxy)", "Samsung Galaxy S25"],
        runtime=["tflite", "qnn_dlc", "genie"],
        tool_versions="qairt 2.42",
        primary_compute_unit=["CPU", "NPU", None],
        latency_ms=[10.0, 50.0, NONE],
        peak_memory_max_mb=[0.0, 100.0, NONE],
        layers_total=[10.0, 10.0, NONE],
        layers_npu=[NONE, 9.0, NONE],
        context_length=[NONE, NONE, 4096.0],
        tokens_per_second=[NONE, NONE, 10.0],
        ttft_min_ms=[NONE, NONE, 150.0],
        source_file="perf.yaml",
    )
    reading = qualcomm_ai_hub.read(tmp_path)
    rows = rows_of(reading)
    assert list(rows.precision) == ["fp32", "w8a16"] and list(rows.precision_from) == ["inferred", "stated"]
    assert list(rows.network) == ["resnet50", ""] and list(rows.img_height) == [224, -1]
    assert list(rows.memory_kind) == ["", "reported"]
    caveats = set(rows.caveats[1].split(","))
    assert caveats == {"memory_estimated", "another_device_with_this_chip", "a_component", "some_layers_elsewhere"}
    chat = reading.tables["generation"].iloc[0]
    assert (chat.tpot_ms, chat.network, chat.precision) == (100.0, "llama-2-7b", "int4")


def test_microcontrollers_keep_their_names_and_energy(tmp_path):
    written(
        tmp_path,
        "mlperf_tiny_v1_2/results.csv",
        model="ResNet-8 CIFAR-10",
        task="ic",
        device=["NUCLEO H7A3ZI int8", "VCU128"],
        device_as_reported="d",
        submitter="s",
        latency_ms=[50.0, 1.0],
        throughput_samples_per_s=[20.0, 1000.0],
        energy_j=[0.005, NONE],
        power_w=[0.1, NONE],
        repo="r",
        source_file="f",
    )
    rows = rows_of(mlperf_tiny.read(tmp_path))
    assert list(rows.precision) == ["int8", ""] and list(rows.precision_from) == ["inferred", "unknown"]
    assert rows.energy_j[0] == 0.005 and "energy_of_another_run" in rows.caveats[0] and not rows.listed.any()


def test_training_of_language_models_says_which_memory_and_refuses_what_has_no_batch(tmp_path):
    written(
        tmp_path,
        "llm_training_memory/training_memory_throughput.csv",
        repo=["pytorch/torchtitan@b", "Lightning-AI/litgpt@2", "AnswerDotAI/fsdp_qlora@0", "Lightning-AI/litgpt@2"],
        source_file="README.md",
        device=["NVIDIA H200", "NVIDIA A10G", "NVIDIA GeForce RTX 3090 (280 W limit)", "NVIDIA A10G"],
        device_as_reported=None,
        n_gpus=[8.0, 1.0, 2.0, 1.0],
        framework="PyTorch x",
        model=["Llama 3.1 8B", "gemma-2b", "Llama-2 7B with Context Length of 2048", "gemma-2b"],
        method=["FSDP", "gemma-2b/lora.yaml", "QLoRA", "gemma-2b/lora.yaml"],
        mode="train",
        precision=["bf16 + float8", "bf16", "bf16", "bf16"],
        micro_batch_size=[2.0, 2.0, 4.0, NONE],
        sequence_length=[8192.0, 512.0, NONE, 512.0],
        variant=None,
        quantisation=None,
        throughput_tok_per_s_per_gpu=[1000.0, NONE, NONE, NONE],
        throughput_tok_per_s=NONE,
        memory_mib=[50_000.0, 12_000.0, 11_000.0, 12_000.0],
        memory_as_reported=None,
        latency_ms=NONE,
        oom=None,
    )
    written(
        tmp_path,
        "llm_foundry/mpt_training.csv",
        repo="mosaicml/llm-foundry@8",
        source_file="README.md",
        model=["MPT-1b"],
        device="NVIDIA H100 80GB",
        device_as_reported="h100_80gb",
        precision="amp_bf16",
        n_gpus=8,
        micro_batch_size=4.0,
        grad_accum=2.0,
        sequence_length=2048.0,
        sharding="FULL_SHARD",
        activation_checkpointing=True,
        throughput_tok_per_s=100_000.0,
    )
    reading = llm_training.read(tmp_path)
    rows = rows_of(reading)
    assert list(rows.memory_kind) == ["reserved", "allocated", "reported", ""]
    assert list(rows.sequence) == [8192, 512, 2048, 2048] and rows.throughput_per_s[0] == 8000
    assert list(rows.network) == ["llama-3.1-8b", "gemma-2b", "llama-2-7b", "mpt-1b"]
    assert "power_capped" in rows.caveats[2] and "most_weights_frozen" in rows.caveats[1]
    assert rows.variant[3] == "llm-foundry; FSDP FULL_SHARD; activation checkpointing; 2 steps accumulated"
    assert dict(reading.refused) == {"no batch stated": 1}
