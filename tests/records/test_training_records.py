"""Records of language models in training: layouts as stated, what each reader refuses, rows of one layout grouped."""

from __future__ import annotations

import json

import pytest

from network_sources import NONE, written
from perfpass.records import schema
from perfpass.records.build.generation import TRAINING
from perfpass.records.location import data_directory
from perfpass.records.readers import bigscience, megatron_bridge, megatron_training, nemo, tpu_training, training_pages

ROWS = {
    "megatron_lm": 679,
    "training_pages": 315,
    "megatron_bridge": 284,
    "bigscience": 105,
    "internevo": 52,
    "tpu_training": 41,
    "nemo": 37,
}


@pytest.fixture(scope="module")
def stored():
    return schema.read(data_directory() / "records" / "llm_training.parquet", "llm_training")


def rows_of(reading):
    return reading.tables["llm_training"].reset_index(drop=True)


def test_the_stored_rows_are_those_that_the_documents_state(stored):
    assert stored.source.value_counts().to_dict() == ROWS
    assert {name.replace("megatron_training", "megatron_lm") for name in TRAINING} == set(ROWS)
    page = (data_directory().parent / "docs" / "reference" / "records.md").read_text()
    groups = stored.groupby("source").configuration.nunique()
    for source, rows in ROWS.items():
        assert f"| {source} | {rows} | {groups[source]} |" in page


def test_every_layout_that_is_whole_divides_its_devices(stored):
    whole = stored[(stored[["n_devices", "tensor", "pipeline"]] > 0).all(axis=1)]
    ranks = whole.tensor * whole.pipeline * whole.context.clip(lower=1)
    assert len(whole) > 1000 and (whole.n_devices % ranks == 0).all()
    assert (whole.data * ranks == whole.n_devices).all()


def test_every_row_says_what_was_stated_and_which_memory(stored):
    for origin in ("device_from", "precision_from", "n_devices_from"):
        assert set(stored[origin]) <= {"stated", "inferred", "unknown"}
    assert ((stored.memory_kind == "") == stored.peak_memory_bytes.isna()).all()
    assert set(stored.sharding) == {"", "none", "zero1", "zero2", "zero3"}
    assert set(stored.recompute) == {"", "none", "selective", "full"}
    assert (stored.latency_ms.notna() | stored.throughput_per_s.notna() | stored.peak_memory_bytes.notna()).all()


def test_time_and_rate_of_a_row_agree(stored):
    both = stored[stored.latency_ms.notna() & stored.throughput_per_s.notna() & (stored.batch > 0)]
    both = both[both.sequence > 0]
    tokens = both.batch * both.sequence
    assert len(both) > 15 and (abs(both.throughput_per_s * both.latency_ms / 1e3 / tokens - 1) < 0.02).all()


def megatron_rows(root, **changes):
    arguments = json.dumps({"num-layers": 12})
    columns = {
        "device": "NVIDIA H100 80GB HBM3",
        "device_as_reported": "dgx_h100",
        "n_nodes": 1.0,
        "n_gpus": 8.0,
        "n_gpus_from": "recipe at this commit",
        "environment": "dev",
        "model_group": "gpt",
        "test_case": "case",
        "second_run": False,
        "tp": 2.0,
        "pp": 2.0,
        "vp": NONE,
        "vp_layers_per_stage": 1.0,
        "cp": NONE,
        "ep": NONE,
        "etp": NONE,
        "sequence_parallel": None,
        "zero_strategy": None,
        "recompute_granularity": None,
        "precision": "bf16",
        "deterministic": "True",
        "attention_backend": "unfused",
        "num_layers": 12.0,
        "hidden_size": 512.0,
        "ffn_hidden_size": NONE,
        "num_attention_heads": 8.0,
        "num_query_groups": NONE,
        "num_experts": NONE,
        "moe_topk": NONE,
        "micro_batch_size": 4.0,
        "global_batch_size": 32.0,
        "sequence_length": 1024.0,
        "iteration_time_s_median": 0.5,
        "iteration_time_s_p10": 0.4,
        "iteration_time_s_p90": 0.6,
        "n_iterations": 50,
        "memory_max_allocated_mib": 1000.0,
        "memory_allocated_mib": 400.0,
        "args_json": arguments,
        "source_file": "f",
        "source_commit": "d98e8a64ddf34856e74b24714e3bedb2f5a39553",
        "dp_derived": 2.0,
    }
    return written(root, "megatron_lm/mcore_ci_training.parquet", **columns | changes)


def test_megatrons_arguments_become_a_layout(tmp_path):
    root = megatron_rows(
        tmp_path,
        device=["NVIDIA H100 80GB HBM3", "NVIDIA A100", None, "NVIDIA A100", "NVIDIA A100"],
        device_as_reported=["dgx_h100", "dgx_a100", "not stated", "dgx_a100", "dgx_a100"],
        args_json=[
            json.dumps({"use-distributed-optimizer": True, "optimizer": "muon"}),
            "{}",
            "{}",
            json.dumps({"perform-rl-step": True}),
            "{}",
        ],
        zero_strategy=[None, "optim_grads_params", None, None, None],
        dp_derived=[2.0, 2.0, 2.0, 2.0, 0.5],
    )
    reading = megatron_training.read(root)
    rows = rows_of(reading)
    assert list(rows.device) == ["h100-sxm5-80gb", "a100-sxm4-80gb"]
    assert list(rows.sharding) == ["zero1", "zero3"] and list(rows.optimizer) == ["muon", "adam"]
    assert list(rows.virtual) == [6, 6] and list(rows.data) == [2, 2] and list(rows.context) == [1, 1]
    assert "memory_size_not_stated" in rows.caveats[1] and "deterministic_kernels" in rows.caveats[0]
    assert dict(reading.refused) == {
        "the device is not named": 1,
        "reinforcement learning: the step writes its own text": 1,
        "the layout does not divide the devices": 1,
    }


def test_releases_of_one_recipe_share_a_configuration(tmp_path):
    root = written(
        tmp_path,
        "megatron_bridge/performance.csv",
        device="NVIDIA B200",
        device_as_reported="DGX-B200",
        n_gpus=64.0,
        framework_version=["26.04 NeMo Container", "26.06 NeMo Container", "26.06 NeMo Container", "25.09"],
        model=["LLAMA3_70B", "LLAMA3_70B", "DeepSeekV3 (w/ MTP)", "LLAMA3_70B"],
        precision=["MXFP8", "MXFP8", "BF16", None],
        task="pretrain",
        global_batch_size=128.0,
        micro_batch_size=1.0,
        sequence_length_as_reported=[8192, 8192, 4096, 0],
        sequence_length=8192.0,
        fsdp=[64.0, 64.0, NONE, 0.0],
        tp=1.0,
        pp=1.0,
        cp=1.0,
        vp=NONE,
        ep=1.0,
        tokens_per_s_per_gpu=[1000.0, 1100.0, 2000.0, 233.0],
        tflops_per_gpu=500.0,
        source_file="p.md",
        source_line=[1, 2, 3, 4],
        source_commit="067f987df03b8355",
        latest_page=[False, True, True, True],
        value_in_parentheses=False,
        superseded_by_later_page=False,
        tflop_per_token_over_model_median=1.0,
    )
    reading = megatron_bridge.read(root)
    rows = rows_of(reading)
    assert rows.configuration[0] == rows.configuration[1] != rows.configuration[2]
    assert list(rows.sharding) == ["zero3", "zero3", "zero1"] and list(rows.precision) == ["mxfp8", "mxfp8", "bf16"]
    assert list(rows.network) == ["llama-3.1-70b", "llama-3.1-70b", "deepseek-v3"]
    assert rows.throughput_per_s[0] == 64_000 and rows.caveats[0] == "an_older_release"
    assert dict(reading.refused) == {"a malformed line: cells look shifted": 1}


def test_layouts_and_sizes_stand_in_the_notes_of_blooms_search(tmp_path):
    root = written(
        tmp_path,
        "bigscience/megatron_deepspeed_a100.csv",
        device="NVIDIA A100-SXM4-80GB",
        device_as_reported="A100 80GB",
        framework="Megatron-DeepSpeed",
        model="GPT 181B",
        params_b=181.0,
        n_nodes=48.0,
        n_gpus=[384.0, 384.0, 384.0, 8.0],
        hidden_size=NONE,
        num_heads=NONE,
        dp=[4.0, 5.0, NONE, 1.0],
        tp=[8.0, 8.0, NONE, 8.0],
        pp=[12.0, 12.0, NONE, 1.0],
        pp_chunks=NONE,
        zero_stage=[0.0, NONE, NONE, NONE],
        micro_batch_size=2.0,
        global_batch_size=2048.0,
        sequence_length=2048.0,
        memory_gb_as_reported=37.0,
        iteration_time_s=120.0,
        tflops_per_gpu=100.0,
        notes=None,
        heading="A100 experiments",
        context="NHIDDEN=14336 / NLAYERS=72",
        source_file="f.md",
        source_line=[1, 2, 3, 4],
        source_commit="9e64edec2ad1",
        repeats_earlier_row=[False, False, False, None],
        tflops_8PN_over_reported_derived=[1.0, 1.0, 1.0, 4.0],
    )
    reading = bigscience.read(root)
    row = rows_of(reading).iloc[0]
    assert (row.layers, row.hidden, row.sharding, row.data) == (72, 14336, "none", 4)
    assert row.peak_memory_bytes == 37e9 and row.latency_ms == 120_000
    assert dict(reading.refused) == {
        "the batch cannot be the one shown": 1,
        "no layout stated": 1,
        "the layout does not divide the devices": 1,
    }


def test_what_states_flops_alone_is_refused_by_name(tmp_path):
    written(tmp_path, "maxtext/tpu_training.csv", device="TPU v5e", tflops_per_gpu=[100.0, 120.0])
    written(
        tmp_path,
        "tpu_recipes/training.csv",
        device="Google TPU v6e (Trillium)",
        device_as_reported=["v6e-8", "v6e-64"],
        n_gpus=NONE,
        n_gpus_derived=[8.0, 64.0],
        model=["Mistral-7B", "wan2.1-14b"],
        params_b=NONE,
        precision="bf16 (MaxText default unless the recipe quantises)",
        global_batch_size=NONE,
        sequence_length=NONE,
        step_time_s=6.32,
        tflops_per_gpu=300.0,
        tokens_per_s_per_gpu=[7776.0, NONE],
        tokens_per_step=393216.0,
        source_file="f.md",
        source_line=[1, 2],
        source_commit="c8cfe2f689081d",
    )
    reading = tpu_training.read(tmp_path)
    row = rows_of(reading).iloc[0]
    assert (row.precision, row.precision_from, row.n_devices_from) == ("bf16", "inferred", "inferred")
    assert row.throughput_per_s == 8 * 7776 and row.batch == -1
    assert sum(reading.refused.values()) == 3


def test_stored_pages_keep_what_is_recomputed_and_what_is_frozen(stored):
    pages = stored[stored.source == "training_pages"]
    foundry = pages[pages.variant.str.startswith("llm-foundry")]
    assert set(foundry.recompute) == {"none", "full"} and set(foundry.sharding) == {"zero2", "zero3"}
    assert (foundry.batch % foundry.micro_batch == 0).all()
    frozen = pages[pages.caveats.str.contains("most_weights_frozen")]
    assert set(frozen.task) <= {"lora", "qlora", "adapter"}
    assert training_pages.read.__doc__ and nemo.read.__doc__
    assert not pages.run.str.contains("ColossalAI.*:72$").any()
