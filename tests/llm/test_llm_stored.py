"""What a checkpoint stores is counted by its method's name and bits, or refused by name; never 16 bits in silence."""

import json
from dataclasses import replace

import pytest

import perfpass
from offline_batches import predict_batch
from perfpass.deploy.fit.settings import Settings, computed
from perfpass.deploy.fit.settings import stored as stored_by_fit
from perfpass.devices import device
from perfpass.errors import ArgumentError, DeviceError, FormatError, UnsupportedError
from perfpass.importers.model_sources import CONFIGURATIONS
from perfpass.llm import language_model
from perfpass.llm.costs import ELEMENT_BYTES, UNITS
from perfpass.llm.stored import METHODS
from perfpass.predictors.generation.predictor import batch_of

LLAMA = json.loads((CONFIGURATIONS / "llama-3.1-8b.json").read_text())
LOAD = {"input_length": 1024, "output_length": 128, "concurrency": 16}


def quantized(**fields):
    return {**LLAMA, "quantization_config": fields}


def groups(weights, inputs=None, **more):
    group = {"weights": weights, **({"input_activations": inputs} if inputs else {})}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, **more}


KNOWN = [
    ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "int4_wo"),
    ({"load_in_8bit": True}, "int8"),
    ({"quant_method": "gptq", "bits": 2}, "int2_wo"),
    ({"quant_method": "gptq", "bits": 3}, "int3_wo"),
    ({"quant_method": "gptq", "bits": 4}, "int4_wo"),
    ({"quant_method": "gptq", "bits": 8}, "int8_wo"),
    ({"quant_method": "awq", "w_bit": 4}, "int4_wo"),
    ({"quant_method": "auto-round", "bits": 4}, "int4_wo"),
    ({"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 3}}}, "int3_wo"),
    ({"quant_method": "aqlm", "in_group_size": 8, "num_codebooks": 1, "nbits_per_codebook": 16}, "int2_wo"),
    ({"quant_method": "torchao", "quant_type": "int4_weight_only"}, "int4_wo"),
    ({"quant_method": "torchao", "quant_type": {"default": {"_type": "Float8WeightOnlyConfig"}}}, "fp8_wo"),
    ({"quant_method": "quanto", "weights": "int2", "activations": None}, "int2_wo"),
    ({"quant_method": "eetq"}, "int8_wo"),
    ({"quant_method": "bitnet"}, "ternary_wo"),
    ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8_block"),
    ({"quant_method": "fbgemm_fp8"}, "fp8"),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
    ({"quantization": {"quant_algo": "FP8"}}, "fp8"),
    (groups({"num_bits": 4, "type": "int"}), "int4_wo"),
    (groups({"num_bits": 8, "type": "int"}, {"num_bits": 8, "type": "int"}), "int8"),
    (groups({"num_bits": 8, "type": "float"}, {"num_bits": 8, "type": "float"}), "fp8"),
    (groups({"num_bits": 4, "type": "float"}), "nvfp4_wo"),
    ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp8_e4m3"}}}, "fp8"),
]


@pytest.mark.parametrize(("fields", "precision"), KNOWN, ids=[f"{i}-{p}" for i, (_, p) in enumerate(KNOWN)])
def test_each_method_is_counted_with_its_bits(fields, precision):
    model = language_model(quantized(**fields))
    assert (model.stored_as, model.experts_stored_as) == (precision, precision)
    bits = 8 * ELEMENT_BYTES[precision]
    assert bits < 9 and set(UNITS[precision]) & {"bf16", "fp16"}


def test_a_method_that_is_not_known_is_refused_by_name_with_what_to_do():
    for method in ("exl2", "exl3", "gguf", "zip9", "GPTQ-of-mine"):
        with pytest.raises(UnsupportedError, match=f"{method}.*known are.*bitsandbytes.*--precision"):
            language_model(quantized(quant_method=method, bits=4))
    assert not {"exl2", "gguf"} & set(METHODS)
    for fields, said in (
        ({"quant_method": "torchao", "quant_type": "autoquant"}, "autoquant"),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "MIXED_PRECISION"),
        ({"quant_method": "aqlm", "in_group_size": 3, "num_codebooks": 1, "nbits_per_codebook": 16}, "aqlm of 5.33"),
    ):
        with pytest.raises(UnsupportedError, match=said):
            language_model(quantized(**fields))


def test_a_quantization_that_does_not_say_its_bits_is_refused():
    for fields, said in (
        ({"quant_method": "gptq", "bits": -4}, "bits of quantization_config is -4; allowed are 2, 3, 4, 8"),
        ({"quant_method": "gptq", "bits": True}, "is True"),
        ({"quant_method": "gptq", "bits": "4"}, "is '4'"),
        ({"quant_method": "gptq"}, "has no bits"),
        ({"quant_method": "compressed-tensors"}, "config_groups"),
        ({"quant_method": "quanto", "weights": "int1"}, "int1"),
        ({"quant_method": 4}, "no quant_method"),
        ({"load_in_4bit": True, "load_in_8bit": True}, "both"),
        ({}, "no quant_method"),
    ):
        with pytest.raises(FormatError, match=said):
            language_model(quantized(**fields))
    for quanto in ([], {}, None):
        with pytest.raises(FormatError, match="weights of quantization_config"):
            language_model(quantized(quant_method="quanto", weights=quanto))
    with pytest.raises(UnsupportedError, match="of quark"):
        language_model(quantized(quant_method="quark", global_quant_config={"weight": {"dtype": ["fp4"]}}))
    for plain in ("gptq", [1], 4, True):
        with pytest.raises(FormatError, match="a table with quant_method"):
            language_model({**LLAMA, "quantization_config": plain})


def test_a_quantization_that_contradicts_itself_or_says_nothing_is_refused():
    for fields, said in (
        ({"quant_method": "bitsandbytes"}, "neither load_in_4bit nor load_in_8bit"),
        ({"load_in_8bit": 0}, "load_in_8bit of quantization_config is 0; true or false"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": "false"}, "true or false is needed"),
        ({"quant_method": "gptq", "bits": 4, "w_bit": 8}, "w_bit of quantization_config is 8"),
        ({"quant_method": "fp8", "bits": 4}, "bits of quantization_config is 4, but its method stores fp8"),
        ({"quant_method": "mxfp4", "num_bits": 8}, "stores bf16 and mxfp4"),
        ({"quant_method": "fp8", "weight_block_size": [-1]}, "weight_block_size"),
        ({"quant_method": "fp8", "weight_block_size": "no"}, "weight_block_size"),
        ({"quant_method": "aqlm", "in_group_size": 1, "num_codebooks": 1, "nbits_per_codebook": 10**400}, "at most"),
    ):
        with pytest.raises(FormatError, match=said):
            language_model(quantized(**fields))
    for fields in (
        {"quant_method": "gptq", "bits": 4, "dynamic": {"+:.*down.*": {"bits": 8}}},
        {"quant_method": "auto-round", "bits": 4, "extra_config": {"model.layers.0.mlp": {"bits": 2}}},
        {"quant_method": "torchao", "quant_type": {"default": {"_type": "Int4WeightOnlyConfig"}, "lm_head": None}},
    ):
        with pytest.raises(UnsupportedError, match="a mixture"):
            language_model(quantized(**fields))
    head = {"quant_method": "auto-round", "bits": 4, "extra_config": {"lm_head": {"bits": 16}}}
    assert language_model(quantized(**head)).stored_as == "int4_wo"


def test_four_bits_take_a_quarter_and_leave_the_cache_alone():
    whole = perfpass.predict_llm(LLAMA, "h100", **LOAD)
    for fields in ({"quant_method": "gptq", "bits": 4}, {"quant_method": "bitsandbytes", "load_in_4bit": True}):
        found = perfpass.predict_llm(quantized(**fields), "h100", **LOAD)
        assert found.memory.weights_bytes < 0.4 * whole.memory.weights_bytes
        assert found.tpot_ms.median < whole.tpot_ms.median
        assert found.serving.quantization.kv_cache == "bf16"
        assert found.memory.cache_bytes == whole.memory.cache_bytes
    asked = perfpass.predict_llm(quantized(quant_method="gptq", bits=4), "h100", **LOAD, kv_precision="fp8")
    assert asked.serving.quantization.kv_cache == "fp8"


def test_a_checkpoint_says_which_cache_it_was_calibrated_for():
    scheme = {"num_bits": 8, "type": "float"}
    group = {"weights": {"num_bits": 8, "type": "float"}, "input_activations": {"num_bits": 8}}
    for fields, cache in (
        ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}, "fp8"),
        ({"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}}, "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": None}, ""),
        ({"quant_method": "compressed-tensors", "config_groups": {"0": group}, "kv_cache_scheme": scheme}, "fp8"),
        ({"quant_method": "compressed-tensors", "config_groups": {"0": group}, "kv_cache_scheme": None}, ""),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, ""),
    ):
        found = language_model(quantized(**fields))
        assert found.cache_stored_as == cache
        used = perfpass.predict_llm(found, "b200", **LOAD).serving.quantization
        assert used.kv_cache == (cache or "bf16")


def test_a_precision_without_arithmetic_is_refused_as_predict_does():
    for on, precision, unit in (("h100", "nvfp4", "fp4"), ("t4", "bf16", "bf16"), ("a100-80gb", "fp8", "fp8")):
        with pytest.raises(DeviceError, match=f"no {unit} arithmetic, which precision '{precision}' needs"):
            perfpass.predict_llm("llama-3.1-8b", on, **LOAD, precision=precision)
        with pytest.raises(DeviceError, match=f"no {unit} arithmetic"):
            batch_of("llama-3.1-8b", on, input_tokens=8, output_tokens=8, precision=precision)


def test_what_is_stored_is_served_as_the_device_can_and_says_so():
    turing = perfpass.predict_llm("llama-3.2-1b", "t4", **LOAD)
    assert turing.serving.quantization.gemm == "fp16" and any("bf16 as fp16" in r for r in turing.support.reasons)
    ampere = perfpass.predict_llm(quantized(quant_method="fbgemm_fp8"), "a100-80gb", **LOAD)
    assert ampere.serving.quantization.gemm == "fp8_wo" and any("fp8 as fp8_wo" in r for r in ampere.support.reasons)
    hopper = perfpass.predict_llm(quantized(quant_method="fbgemm_fp8"), "h100", **LOAD)
    assert hopper.serving.quantization.gemm == "fp8"
    assert not any("checkpoint" in reason for reason in hopper.support.reasons)


def test_servers_load_fp32_in_16_bits_and_both_doors_say_so():
    single = replace(language_model(LLAMA), stored_as="fp32", experts_stored_as="fp32")
    for board, expected in (("h100", "bf16"), ("t4", "fp16")):
        served = perfpass.predict_llm(single, board, **LOAD)
        fitted = stored_by_fit(single, Settings(), device(board))
        assert served.assumed["precision"] == fitted.name == expected
        said = f"the checkpoint stores fp32, which servers load in 16 bits by themselves: {expected}"
        assert said in served.support.reasons and said == computed(single, device(board), Settings())
    assert stored_by_fit(single, Settings("transformers"), device("h100")).name == "fp32"


# Sources: `perfpass.llm.serving._expands`.
@pytest.mark.parametrize(
    ("board", "runtime", "fp8", "nvfp4", "mxfp4"),
    [
        ("t4", "vllm", "fp8_wo", "nvfp4_wo", ""),
        ("t4", "sglang", "", "", ""),
        ("v100-sxm2-32gb", "vllm", "", "", ""),
        ("a100-80gb", "vllm", "fp8_wo", "nvfp4_wo", "mxfp4"),
        ("a100-80gb", "sglang", "fp8_wo", "nvfp4_wo", "mxfp4"),
        ("a100-80gb", "trtllm", "", "", ""),
        ("h100", "vllm", "fp8", "nvfp4_wo", "mxfp4"),
        ("h100", "trtllm", "fp8", "", "mxfp4"),
        ("l4", "trtllm", "fp8", "", ""),
        ("mi250-gcd", "vllm", "", "", "mxfp4"),
        ("mi300x", "vllm", "fp8", "", "mxfp4"),
        ("b200", "trtllm", "fp8", "nvfp4", "mxfp4"),
    ],
)
def test_narrow_floats_run_where_a_server_has_kernels_and_both_doors_say_so(board, runtime, fp8, nvfp4, mxfp4):
    kinds = (quantized(quant_method="fp8"), quantized(quant_method="modelopt", quant_algo="NVFP4"), "gpt-oss-20b")
    for model, expected in zip(kinds, (fp8, nvfp4, mxfp4), strict=True):
        if not expected:
            for ask in (perfpass.predict_llm, perfpass.fit):
                with pytest.raises(DeviceError, match="arithmetic, which precision"):
                    ask(model, board, runtime=runtime)
            continue
        served = perfpass.predict_llm(model, board, runtime=runtime, **LOAD)
        fitted = perfpass.fit(model, board, runtime=runtime)
        assert served.serving.quantization.moe == expected
        assert served.assumed["precision"] == fitted.settings["precision"]
        assert {n for n in fitted.notes if "checkpoint" in n} <= set(served.support.reasons)


def test_a_batch_without_a_server_takes_the_same_names_and_says_what_it_leaves_out():
    lengths = {"input_tokens": 512, "output_tokens": 512}
    assert batch_of("llama-2-7b", "h100", **lengths, precision="int4").precision == "int4_wo"
    assert batch_of("llama-2-7b", "b200", **lengths, precision="fp4").precision == "nvfp4"
    stored = quantized(quant_method="gptq", bits=4)
    assert batch_of(stored, "h100", **lengths).precision == "int4_wo"
    assert batch_of(quantized(quant_method="fbgemm_fp8"), "a100", **lengths).precision == "fp8_wo"
    assert batch_of("llama-2-7b", "h100", **lengths).precision == "fp16"
    reasons = predict_batch(stored, "h100", **lengths, precision="fp16").support.reasons
    assert any("stores int4_wo" in reason for reason in reasons)
    with pytest.raises(ArgumentError, match="fp3"):
        batch_of("llama-2-7b", "h100", **lengths, precision="fp3")


def test_fp32_can_be_asked_and_takes_twice_the_bytes_of_everything():
    half, single = (perfpass.predict_llm("llama-3.1-8b", "h100", **LOAD, precision=p) for p in ("bf16", "fp32"))
    assert single.memory.weights_bytes == 2 * half.memory.weights_bytes
    assert single.memory.cache_bytes == 2 * half.memory.cache_bytes
    assert single.tpot_ms.median > 1.5 * half.tpot_ms.median and single.ttft_ms.median > 3 * half.ttft_ms.median


def test_runtime_versions_are_versions():
    for version in (
        "0.18.0",
        "v0.11.2",
        "0.5.9.post1",
        "1.2.0rc6.post3",
        "1.1.0-dev.2",
        "nightly-dev-20260216-d3bae71e",
    ):
        perfpass.predict_llm("llama-3.1-8b", "h100", **LOAD, runtime_version=version)
    for version in ("abc", "18", "0..1", "0.18.0; rm", "0.1" + "9" * 99, " "):
        with pytest.raises(ArgumentError, match="runtime version"):
            perfpass.predict_llm("llama-3.1-8b", "h100", **LOAD, runtime_version=version)


def test_more_stages_than_layers_and_ranks_than_heads_are_refused():
    with pytest.raises(ArgumentError, match=r"32 layers.*33 pipeline stages; choose 1 to 32"):
        perfpass.predict_llm("llama-3.1-8b", "h100", **LOAD, pp=33)
    with pytest.raises(ArgumentError, match="32 attention heads do not divide into 64"):
        perfpass.predict_llm("llama-3.1-8b", "h100", **LOAD, tp=64)
    with pytest.raises(ArgumentError, match="do not divide into 3"):
        batch_of("llama-3.1-8b", "h100", devices=3, input_tokens=8, output_tokens=8)
    assert batch_of("llama-3.1-8b", "h100", runtime="llama.cpp", devices=3, input_tokens=8, output_tokens=8)


def test_mxfp4_asked_of_a_model_without_experts_is_of_all_its_matrices():
    """It was of the experts alone, of which a dense model has none: 16 bits in silence."""
    dense = perfpass.predict_llm("llama-3.1-8b", "mi355x", precision="mxfp4", **LOAD)
    plain = perfpass.predict_llm("llama-3.1-8b", "mi355x", precision="bf16", **LOAD)
    assert dense.memory.weights_bytes < 0.4 * plain.memory.weights_bytes
    assert dense.tpot_ms.median < 0.8 * plain.tpot_ms.median
    (fitted,) = perfpass.fit("llama-3.1-8b", device="mi355x", precision="mxfp4").answers
    assert fitted.parts["weights"] == dense.memory.weights_bytes
    mixture = perfpass.predict_llm("gpt-oss-20b", "mi355x", precision="mxfp4", **LOAD)
    assert (mixture.serving.quantization.gemm, mixture.serving.quantization.moe) == ("bf16", "mxfp4")
