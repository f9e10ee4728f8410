"""Files of training frameworks, read as a layout: what is read, what is named as not counted, what is refused."""

from __future__ import annotations

import contextlib
import json

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import perfpass
from perfpass.cli import main
from perfpass.deploy import training_files
from perfpass.errors import FormatError, LimitError, PerfPassError

TITAN = """
[job]
description = "Llama 3 8B"
[model]
name = "llama3"
flavor = "8B"
converters = [%s]
[optimizer]
name = "AdamW"
[training]
local_batch_size = 2
seq_len = 8192
steps = 1000
[parallelism]
data_parallel_replicate_degree = %d
data_parallel_shard_degree = %d
tensor_parallel_degree = 2
pipeline_parallel_degree = 1
context_parallel_degree = 2
[activation_checkpoint]
mode = "%s"
"""
SCRIPT = r"""#!/bin/bash
# pretraining
GPUS_PER_NODE=8
NODES=${NODES:-4}
TP=2
MODEL_ARGS=(
    --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32
    --group-query-attention --num-query-groups 8 --swiglu --normalization RMSNorm --disable-bias-linear
    --untie-embeddings-and-output-weights --position-embedding-type rope --vocab-size 128256 --seq-length 8192
)
torchrun --nproc_per_node $GPUS_PER_NODE --nnodes ${NODES:-4} pretrain_gpt.py ${MODEL_ARGS[@]} \
    --tensor-model-parallel-size $TP --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 4 \
    --micro-batch-size 1 --global-batch-size=128 --bf16 --use-distributed-optimizer %s
"""
NEMO = """
trainer: {devices: 8, num_nodes: 2, precision: bf16}
model:
  micro_batch_size: 1
  global_batch_size: 128
  tensor_model_parallel_size: 4
  encoder_seq_length: 4096
  max_position_embeddings: ${.encoder_seq_length}
  num_layers: 32
  hidden_size: 4096
  ffn_hidden_size: 11008
  num_attention_heads: 32
  bias: false
  activation: fast-swiglu
  normalization: rmsnorm
  activations_checkpoint_granularity: selective
  optim: {name: distributed_fused_adam}
"""
MODEL = "--num-layers 8 --hidden-size 256 --num-attention-heads 4"
INTERLEAVED = "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage"
FSDP = """
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_activation_checkpointing: true
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_offload_params: %s
  fsdp_sharding_strategy: %s
mixed_precision: bf16
num_machines: 2
num_processes: 16
"""


def read(tmp_path, text, name="file"):
    (tmp_path / name).write_text(text if isinstance(text, str) else json.dumps(text))
    return training_files.read(tmp_path / name)


def test_torchtitan_is_read(tmp_path):
    found = read(tmp_path, TITAN % ("", 1, 4, "full"))
    assert found.format == "torchtitan" and found.model == "llama-3.1-8b" and not found.notes
    wanted = {"gpus": 16, "tensor": 2, "context": 2, "sharding": "zero3", "sequence": 8192, "micro_batch": 2}
    assert found.asked.items() >= (wanted | {"precision": "amp", "recompute": "full", "framework": "torch"}).items()
    assert found.asked["global_batch"] == 8 and "sharding_group" not in found.asked
    assert found.asked["equal_lengths"]  # its loader cuts one stream of documents


def test_torchtitan_leaves_open_what_the_devices_decide(tmp_path):
    open_ended = read(tmp_path, TITAN % ('"float8"', 1, -1, "none"))
    assert "gpus" not in open_ended.asked and open_ended.asked["precision"] == "fp8"
    hybrid = read(tmp_path, TITAN % ("", 2, 4, "selective"))
    assert hybrid.asked["sharding_group"] == 8 and hybrid.asked["gpus"] == 32
    assert any("an upper bound" in note for note in hybrid.notes)


def test_deepspeed_is_read(tmp_path):
    content = {
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 2, "overlap_comm": True},
        "train_batch_size": 64,
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 4,
        "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
        "scheduler": {"type": "WarmupLR"},
    }
    found = read(tmp_path, content)
    assert found.format == "DeepSpeed" and found.model is None and found.notes == ()
    wanted = {"gpus": 8, "sharding": "zero2", "micro_batch": 2, "global_batch": 64, "precision": "bf16"}
    assert found.asked.items() >= wanted.items()


def test_automatic_values_state_nothing(tmp_path):
    names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    found = read(tmp_path, {**dict.fromkeys(names, "auto"), "bf16": {"enabled": "auto"}})
    assert not {"gpus", "micro_batch", "global_batch"} & found.asked.keys()
    assert any("taken as bf16" in note for note in found.notes)


@pytest.mark.parametrize(
    ("offload", "strategy", "sharding", "group"),
    [
        ("false", "FULL_SHARD", "zero3", None),
        ("true", "SHARD_GRAD_OP", "zero2", None),
        ("false", "HYBRID_SHARD", "zero3", 8),
        ("false", "NO_SHARD", "none", None),
    ],
)
def test_fsdp_of_accelerate_is_read(tmp_path, offload, strategy, sharding, group):
    found = read(tmp_path, FSDP % (offload, strategy))
    assert found.format == "Accelerate" and found.asked["gpus"] == 16 and found.asked["recompute"] == "full"
    assert found.asked["sharding"] == sharding and found.asked.get("sharding_group") == group
    assert found.asked["precision"] == "amp" and found.notes == ()
    assert found.asked.get("offload") == ("parameters" if offload == "true" else None)


def test_a_script_of_megatron_is_read_as_its_shell_would(tmp_path):
    found = read(tmp_path, SCRIPT % "")
    wanted = {"gpus": 32, "tensor": 2, "pipeline": 2, "virtual": 4, "sequence": 8192, "global_batch": 128}
    assert found.asked.items() >= (wanted | {"sharding": "zero1", "precision": "bf16"}).items()
    assert found.model.parameters == pytest.approx(8.03e9, rel=0.01)
    whole, half = (f"--optimizer-cpu-offload --optimizer-offload-fraction {part}" for part in (1.0, 0.5))
    assert read(tmp_path, SCRIPT % whole).asked["offload"] == "states" and not read(tmp_path, SCRIPT % whole).notes
    assert "all states" in read(tmp_path, SCRIPT % half).notes[0]
    assert read(tmp_path, SCRIPT % "--cpu-offloading").notes[0].startswith("cpu-offloading: activations on the host")


def test_nothing_in_a_script_is_run(tmp_path):
    mark = tmp_path / "mark"
    read(tmp_path, f"$(touch {mark}); `touch {mark}`\ntouch {mark}\n" + SCRIPT % "")
    assert not mark.exists()


def test_nemo_and_megatron_bridge_are_read_under_their_names(tmp_path):
    nemo = read(tmp_path, NEMO)
    assert nemo.format == "NeMo" and nemo.asked["gpus"] == 16 and nemo.asked["sharding"] == "zero1"
    assert (
        nemo.asked["sequence"] == 4096 and nemo.asked["recompute"] == "selective" and nemo.asked["precision"] == "bf16"
    )
    assert nemo.model.parameters == pytest.approx(6.9e9, rel=0.03)
    bridge = read(
        tmp_path,
        "model: {tensor_model_parallel_size: 2, seq_length: 4096}\n"
        "train: {micro_batch_size: 1, global_batch_size: 64}\nmixed_precision: bf16_mixed\n",
    )
    assert bridge.format == "Megatron-Bridge" and bridge.model is None
    assert bridge.asked["tensor"] == 2 and bridge.asked["global_batch"] == 64 and bridge.asked["precision"] == "bf16"


def test_what_is_read_can_be_asked(tmp_path):
    for text in (SCRIPT % "", NEMO):
        found = read(tmp_path, text)
        cost = perfpass.train_cost(found.model, "h100", **found.asked)
        assert cost.devices == found.asked["gpus"] and cost.predicted.step_s.median > 0


def test_keys_that_may_matter_are_named(tmp_path):
    text = (TITAN % ("", 1, 4, "none")).replace("[activation", "warp_parallel_degree = 4\n[activation")
    assert read(tmp_path, text).notes == ("not read, though it may change a step: parallelism.warp_parallel_degree",)


def test_the_command_reads_a_file_and_options_overrule_it(tmp_path, capsys):
    path = tmp_path / "job.toml"
    path.write_text(TITAN % ("", 1, -1, "full"))
    assert main(["train-cost", "--config", str(path), "--device", "h200", "--gpus", "16", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["model"] == "llama-3.1-8b" and found["layout"]["data"] == 4 and found["recipe"]["recompute"] == "full"
    path.write_text(json.dumps({"zero_optimization": {"stage": 3}}))
    assert main(["train-cost", "llama-2-7b", "--config", str(path), "--device", "h200", "--gpus", "8", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["layout"]["sharding"] == "zero3"
    assert main(["train-cost", "--config", str(path), "--device", "h200"]) == 2
    assert "give MODEL" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("", FormatError, "no training configuration that is known"),
        ("hello: world", FormatError, "no training configuration that is known"),
        ("{", FormatError, None),
        ('{"a": 1}', FormatError, "read are torchtitan"),
        ("distributed_type: FSDP\na: &a [1]\nb: *a\n", FormatError, "aliases"),
        ("distributed_type: FSDP\nx: !!python/object/apply:os.system [id]\n", FormatError, "no training configuration"),
        ("distributed_type: TPU\n", FormatError, "distributed_type tpu is not read"),
        ("distributed_type: FSDP\nnum_processes: many\n", FormatError, "num_processes is 'many'"),
        ("distributed_type: FSDP\nfsdp_config: 3\n", FormatError, "a table was expected"),
        ("a: " + "[" * 5000, FormatError, None),
        ("model: {num_layers: 9999999, hidden_size: 8, num_attention_heads: 1}", LimitError, "layers"),
        ("--num-layers 4 --hidden-size 1e300 --num-attention-heads 2", FormatError, "hidden-size"),
        ("--num-layers 4 --hidden-size 64 --num-attention-heads 0", FormatError, "num-attention-heads 0"),
        ("--num-layers 4 --hidden-size 64 --num-attention-heads 3", FormatError, "multiple of num-attention-heads 3"),
        (f"{MODEL} --group-query-attention --num-query-groups 8", FormatError, "num-query-groups 8"),
        (f"{MODEL} --num-experts 4 --moe-router-topk 5", FormatError, "moe-router-topk 5"),
        (f"{MODEL} {INTERLEAVED} 3", FormatError, "virtual stages of 3 layers: 2 stages of 8"),
        (f"{MODEL} --pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 3", FormatError, "3 on a"),
        (f"{MODEL} --tensor-model-parallel-size nan", FormatError, "tensor-model-parallel-size is 'nan'"),
        (f"{MODEL} --micro-batch-size {10**400}", FormatError, "micro-batch-size"),
        ("--num-layers 'unclosed", FormatError, "not a command line"),
        ("x" * 2**19, LimitError, None),
        ('{"zero_optimization": {"stage": 7}}', FormatError, "stage is 7"),
        (
            '{"train_batch_size": 5, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1}',
            FormatError,
            "multiple",
        ),
    ],
)
def test_hostile_files_are_refused_in_one_line(tmp_path, text, error, words):
    with pytest.raises(error, match=words) as caught:
        read(tmp_path, text)
    assert "\n" not in str(caught.value) and len(str(caught.value)) <= 1000


_KEYS = st.sampled_from(
    (
        *("distributed_type", "num_processes", "fsdp_config", "model", "num_layers", "tensor_model_parallel_size"),
        *("zero_optimization", "hidden_size", "num_attention_heads", "moe_layer_freq", "num_experts", "stage"),
    )
)
_VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.sampled_from(["FSDP", "auto"])
)


@settings(max_examples=80, deadline=None)
@given(
    st.recursive(
        _VALUES, lambda inside: st.dictionaries(_KEYS, inside, max_size=5) | st.lists(inside, max_size=3), max_leaves=12
    )
)
def test_whatever_stands_in_a_file_is_read_or_refused(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("any") / "file"
    path.write_text(json.dumps(content))
    with contextlib.suppress(PerfPassError):
        training_files.read(path)
    path.write_text(yaml.safe_dump({"distributed_type": "FSDP", "model": content}, allow_unicode=True))
    with contextlib.suppress(PerfPassError):
        training_files.read(path)


_SIZES = {
    "num_layers": 8,
    "hidden_size": 256,
    "num_attention_heads": 4,
    "num_query_groups": 2,
    "seq_length": 128,
    "vocab_size": 1024,
    "micro_batch_size": 1,
    "global_batch_size": 16,
    "tensor_model_parallel_size": 2,
    "pipeline_model_parallel_size": 2,
    "devices": 8,
}
_BESIDE = (
    *("num_layers_per_virtual_pipeline_stage", "num_virtual_stages_per_pipeline_rank", "context_parallel_size"),
    *("expert_model_parallel_size", "num_experts", "moe_router_topk", "kv_channels", "moe_layer_freq", "fp8_format"),
)
_HOSTILE = st.one_of(
    st.sampled_from([0, -1, 1, 2, 3, 7, 16, 2**31, 2**63, 10**400, 0.5, float("nan"), float("inf"), "auto", "1e400"]),
    st.sampled_from([None, True, [], [1], {}, "([0]*1+[1]*7)", "x"]),
    st.integers(-10, 300),
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from((*_SIZES, *_BESIDE)), _HOSTILE, max_size=4))
def test_whatever_megatron_is_started_with_is_answered_or_refused_in_one_line(tmp_path_factory, changed):
    path = tmp_path_factory.getbasetemp() / "megatron.yaml"
    path.write_text(yaml.safe_dump(_SIZES | {"group_query_attention": True, "bf16": True} | changed))
    try:
        found = training_files.read(path)
        cost = perfpass.train_cost(found.model or "llama-3.2-1b", "h100", **found.asked)
    except PerfPassError as error:
        assert "\n" not in str(error) and len(str(error)) <= 1000
    else:
        assert 0 < cost.predicted.step_s.low <= cost.predicted.step_s.median < float("inf")
        assert 0 < cost.predicted.in_use.median < float("inf")
