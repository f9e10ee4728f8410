"""Language models: what a config.json describes is counted exactly, and what it lacks is said."""

import json

import numpy as np
import pytest

from perfpass.devices import device
from perfpass.errors import ArgumentError, FileError, FormatError, UnsupportedError
from perfpass.importers.configuration_names import first
from perfpass.importers.model_sources import CONFIGURATIONS, huggingface, read_configuration
from perfpass.llm import Parallelism, Quantization, Step, cache_bytes, language_model, step_costs, weight_bytes
from perfpass.llm.architecture import Experts
from perfpass.llm.costs import expected_share, peak_flops

# Total and active parameters in 10^9, as their authors publish them (model cards and technical reports).
PUBLISHED = {
    "deepseek-ai/DeepSeek-V3": (671, 37),
    "meta-llama/Llama-3.1-8B": (8.03, 7.5),
    "meta-llama/Llama-3.1-70B-Instruct": (70.6, 69.5),
    "meta-llama/Llama-3.1-405B-Instruct": (405.9, 403.8),
    "mistralai/Mixtral-8x7B-v0.1": (46.7, 12.9),
    "mistralai/Mixtral-8x22B-v0.1": (140.6, 39),
    "Qwen/Qwen3-235B-A22B": (235, 22),
    "Qwen/Qwen3-30B-A3B": (30.5, 3.3),
    "Qwen/Qwen3.5-397B-A17B": (397, 17),
    "openai/gpt-oss-120b": (116.83, 5.13),
    "openai/gpt-oss-20b": (20.91, 3.61),
    "zai-org/GLM-5": (744, 40),
    "moonshotai/Kimi-K2-Instruct": (1026, 32),
    "MiniMaxAI/MiniMax-M2.5": (229, 10),
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": (31.6, 3.2),
    "meta-llama/Llama-4-Maverick-17B-128E-Instruct": (400, 17),
    "microsoft/Phi-3-small-8k-instruct": (7.39, 7.39),
}


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_published_parameter_counts_are_met(name):
    model = language_model(name)
    total, active = PUBLISHED[name]
    assert model.parameters / 1e9 == pytest.approx(total, rel=0.005)
    # Reports round active parameters to a billion, and differ in whether the input embedding counts.
    assert model.active_parameters / 1e9 == pytest.approx(active, rel=0.08)


BUILT = [
    "deepseek-v3",
    "deepseek-v3.2",
    "glm-5",
    "gpt-oss-20b",
    "qwen3-30b-a3b",
    "qwen3.5-35b-a3b",
    "nemotron-3-super-120b-a12b",
    "mixtral-8x7b",
    "llama-4-scout",
    "gemma-4-26b-a4b",
    "gemma-2-2b",
    "minimax-m2.5",
    "llama-3.2-1b",
    "qwen2.5-0.5b",
    "phi-2",
    "gpt-j-6b",
    "bloom-7b1",
    "starcoder2-3b",
    "opt-125m",
    "gpt2",
    "pythia-70m",
    "mpt-7b",
]


@pytest.mark.parametrize("name", BUILT)
def test_parameters_equal_those_of_the_module_built_without_weights(name):
    content = json.loads((CONFIGURATIONS / f"{name}.json").read_text())
    if "text_config" in content:
        content = {**content["text_config"], "tie_word_embeddings": content.get("tie_word_embeddings", False)}
    content.pop("architectures", None)
    module = huggingface(content, dtype="float32", causal=True)
    # Correction biases of routers are buffers there.
    buffers = sum(b.numel() for n, b in module.named_buffers() if n.endswith("e_score_correction_bias"))
    assert language_model(name).parameters == sum(p.numel() for p in module.parameters()) + buffers


# One of each kind, by its name: those among them that read images or sound by the part that reads text.
BY_NAME = [
    "LiquidAI/LFM2-1.2B",
    "tiiuae/Falcon-H1-7B-Base",
    "ibm-granite/granite-4.0-h-tiny",
    "ibm-granite/granite-4.0-micro",
    "swiss-ai/Apertus-8B-Instruct-2509",
    "moonshotai/Kimi-Linear-48B-A3B-Instruct",
    "MiniMaxAI/MiniMax-Text-01-hf",
    "NX-AI/xLSTM-7b",
    "ai21labs/AI21-Jamba-Large-1.7",
    "google/gemma-3n-E4B-it",
    "mistralai/Mamba-Codestral-7B-v0.1",
    "Zyphra/ZAYA1-8B",
    "adept/persimmon-8b-base",
    "adept/fuyu-8b",
    "allenai/FlexOlmo-7x7B-1T",
    "baidu/ERNIE-4.5-21B-A3B-PT",
    "baidu/ERNIE-4.5-VL-28B-A3B-PT",
    "facebook/cwm",
    "facebook/xglm-564M",
    "google/vaultgemma-1b",
    "inceptionai/Jais-2-8B-Chat",
    "microsoft/BioGPT-Large",
    "openbmb/MiniCPM3-4B",
    "tencent/Youtu-LLM-2B",
    "XiaomiMiMo/MiMo-V2-Flash",
]
_TOWERS = ("audio_tower", "vision_tower", "visual", "resampler", "embed_vision", "embed_audio", "vision_embed")


@pytest.mark.parametrize("name", BY_NAME)
def test_parameters_by_name_equal_those_of_the_module_built_without_weights(name):
    content = {**read_configuration(name, run_code=False)}
    content.pop("architectures", None)
    module = huggingface(content, dtype="float32", causal=True)
    of_text = [p.numel() for n, p in module.named_parameters() if not any(tower in n for tower in _TOWERS)]
    routers = ("e_score_correction_bias", "balancing_biases")
    buffers = [b.numel() for n, b in module.named_buffers() if n.endswith(routers)]
    assert language_model(name).parameters == sum(of_text) + sum(buffers)


# Active parameters in 10^9 by their names or their authors' reports.
ACTIVE = {
    "moonshotai/Kimi-Linear-48B-A3B-Instruct": 3,
    "MiniMaxAI/MiniMax-Text-01-hf": 45.9,
    "ai21labs/AI21-Jamba-Large-1.7": 94,
    "ai21labs/Jamba-v0.1": 12,
    "ibm-granite/granite-4.0-h-small": 9,
    "baidu/ERNIE-4.5-21B-A3B-PT": 3,
    "baidu/ERNIE-4.5-VL-28B-A3B-PT": 3,
    "baidu/ERNIE-4.5-300B-A47B-PT": 47,
    "XiaomiMiMo/MiMo-V2-Flash": 15,
    "google/gemma-4-E2B-it": 2.3,
    "google/gemma-3n-E4B-it": 4,
}


@pytest.mark.parametrize("name", sorted(ACTIVE))
def test_active_parameters_are_those_that_a_token_meets(name):
    # Rounded to a billion, and with or without the embeddings.
    assert language_model(name).active_parameters / 1e9 == pytest.approx(ACTIVE[name], rel=0.13)


def test_the_same_layers_are_read_from_the_words_of_the_repositories():
    """Configurations of repositories that carry code of their own say the same in other words than transformers'."""
    kimi = language_model("moonshotai/Kimi-Linear-48B-A3B-Instruct")
    content = dict(read_configuration("moonshotai/Kimi-Linear-48B-A3B-Instruct", run_code=False))
    kinds = content.pop("layer_types")
    for key in ("mlp_layer_types", "linear_head_dim", "linear_num_heads", "linear_conv_kernel_dim"):
        content.pop(key)
    content |= {
        "first_k_dense_replace": 1,
        "linear_attn_config": {
            "full_attn_layers": [i + 1 for i, kind in enumerate(kinds) if kind == "full_attention"],
            "kda_layers": [i + 1 for i, kind in enumerate(kinds) if kind == "linear_attention"],
            "num_heads": 32,
            "head_dim": 128,
            "short_conv_kernel_size": 4,
        },
    }
    assert language_model(content, kimi.name).layers == kimi.layers and kimi.max_positions == 1_048_576

    minimax = language_model("MiniMaxAI/MiniMax-Text-01-hf")
    content = dict(read_configuration("MiniMaxAI/MiniMax-Text-01-hf", run_code=False))
    kinds = content.pop("layer_types")
    content |= {
        "model_type": "minimax_text_01",
        "attn_type_list": [int(kind == "full_attention") for kind in kinds],
        "shared_intermediate_size": 0,
    }
    assert language_model(content, minimax.name).layers == minimax.layers
    with pytest.raises(FormatError, match="each of its 80 layers"):
        language_model({**content, "attn_type_list": [1] * 79})

    lfm2 = language_model("LiquidAI/LFM2-1.2B")
    content = dict(read_configuration("LiquidAI/LFM2-1.2B", run_code=False))
    kinds = content.pop("layer_types")
    content |= {
        "full_attn_idxs": [i for i, kind in enumerate(kinds) if kind == "full_attention"],
        "block_auto_adjust_ff_dim": True,
        "block_ff_dim": 12288,
        "block_ffn_dim_multiplier": 1.0,
        "block_multiple_of": 256,
    }
    del content["intermediate_size"]
    assert language_model(content, lfm2.name) == lfm2


def test_a_state_is_kept_in_what_its_runtime_keeps_it_in():
    """Bytes of a sequence on a server: of Mamba-2 in fp32, of lightning attention in the activations' type."""
    split, plain = Parallelism(), Quantization()
    granite, minimax = (
        language_model(name) for name in ("ibm-granite/granite-4.0-h-tiny", "MiniMaxAI/MiniMax-Text-01-hf")
    )
    long, short = (float(cache_bytes(granite, split, plain, n)) for n in (2000, 1000))
    states = 36 * (3072 * 128 * 4 + (3072 + 256) * 4 * 2)
    assert long - short == 1000 * 4 * 2 * 4 * 128 * 2 and short == states + 1000 * 4 * 2 * 4 * 128 * 2
    at_once = 70 * 64 * 128 * 128 * 2
    assert float(cache_bytes(minimax, split, plain, 1)) == at_once + 10 * 2 * 8 * 128 * 2


_SMALL = {"hidden_size": 256, "num_attention_heads": 4, "num_hidden_layers": 3, "vocab_size": 1000}
_FALCON_40B = {"new_decoder_architecture": True, "num_kv_heads": 2, "alibi": False}
_GROUPED = {"num_key_value_heads": 2, "intermediate_size": 512, "head_dim": 64, "pad_token_id": 0}
TYPES = [
    ("falcon", {}),
    ("falcon", {"alibi": True, "bias": True, "multi_query": False, "parallel_attn": False}),
    ("falcon", _FALCON_40B),
    ("falcon", {**_FALCON_40B, "num_ln_in_parallel_attn": 1}),
    ("codegen", {"n_head": 4, "n_embd": 256, "n_layer": 3, "rotary_dim": 32}),
    *((kind, _GROUPED) for kind in ("arcee", "cohere2", "ernie4_5", "exaone4", "glm", "glm4", "granitemoe", "helium")),
    *((kind, _GROUPED) for kind in ("nemotron", "olmo", "olmo3", "phimoe", "seed_oss", "smollm3", "stablelm")),
    ("hunyuan_v1_dense", _GROUPED),
    ("hunyuan_v1_moe", {**_GROUPED, "num_experts": 4, "moe_topk": 2}),
]


@pytest.mark.parametrize(("kind", "fields"), TYPES, ids=[f"{i}-{kind}" for i, (kind, _) in enumerate(TYPES)])
def test_parameters_of_a_model_type_equal_those_of_its_module(kind, fields):
    import transformers

    given = {**(_SMALL if "n_head" not in fields else {"vocab_size": 1000}), **fields}
    content = {k: v for k, v in transformers.CONFIG_MAPPING[kind](**given).to_dict().items() if v is not None}
    module = huggingface(content, dtype="float32", causal=True)
    assert language_model(content).parameters == sum(p.numel() for p in module.parameters())


def test_fields_of_hunyuan_may_be_one_per_layer_and_alike():
    content = {
        "model_type": "hunyuan_v1_moe",
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 3072,
        "moe_intermediate_size": [3072] * 32,
        "num_experts": 64,
        "moe_topk": [8] * 32,
        "num_shared_expert": [1] * 32,
        "vocab_size": 128167,
        "tie_word_embeddings": True,
    }
    assert language_model(content).parameters == 80393183232  # n_params of its GGUF file
    for wrong in ({"moe_topk": [8] * 31 + [4]}, {"moe_topk": []}, {"use_cla": True}):
        with pytest.raises(FormatError, match="not counted here"):
            language_model({**content, **wrong})


def test_every_name_leads_to_a_configuration_that_is_read():
    served = 0
    for configuration in sorted(first()):
        kind = str(read_configuration(configuration, run_code=False)["model_type"])
        try:
            served += language_model(configuration).parameters > 0
        except UnsupportedError as error:
            assert kind in str(error) and "perfpass predict" in str(error), configuration
    assert served >= 300


def test_missing_and_absurd_fields_are_named():
    content = json.loads((CONFIGURATIONS / "llama-3.1-8b.json").read_text())
    with pytest.raises(FormatError, match="vocab_size"):
        language_model({k: v for k, v in content.items() if k != "vocab_size"})
    with pytest.raises(FormatError, match="num_hidden_layers"):
        language_model({**content, "num_hidden_layers": "many"})
    with pytest.raises(FormatError, match="key-value heads"):
        language_model({**content, "num_key_value_heads": 7})
    with pytest.raises(UnsupportedError, match="encoder-decoder"):
        language_model({**content, "is_encoder_decoder": True})
    with pytest.raises(FileError, match="neither a file nor a known model"):
        language_model("no-such/model")


def shipped(name):
    return json.loads((CONFIGURATIONS / f"{name}.json").read_text())


def test_fields_that_contradict_one_another_or_are_no_truth_values_are_named():
    for name, changed, said in (
        ("llama-3.1-8b", {"n_layer": 12}, "num_hidden_layers 32 and n_layer 12 are the same field"),
        ("llama-3.1-8b", {"tie_word_embeddings": "false"}, "tie_word_embeddings is 'false'; true or false"),
        ("llama-3.1-8b", {"attention_bias": []}, "attention_bias"),
        ("llama-3.1-8b", {"sliding_window": [1, 2]}, "sliding_window"),
        ("qwen3-30b-a3b", {"mlp_only_layers": 7}, "mlp_only_layers is 7; a list"),
        ("qwen3-30b-a3b", {"mlp_only_layers": [-1]}, "mlp_only_layers"),
        ("qwen3-30b-a3b", {"num_experts": [128]}, "num_experts"),
        ("nemotron-h-56b", {"num_hidden_layers": 117}, "num_hidden_layers is 117, but .* 118 blocks"),
        ("nemotron-h-56b", {"hybrid_override_pattern": "M" * 2000}, "hybrid_override_pattern"),
        ("nemotron-h-56b", {"hybrid_override_pattern": ""}, "hybrid_override_pattern"),
        ("llama-3.1-8b", {"num_attention_heads": 40, "head_dim": None}, "4096 does not divide into 40"),
        ("gpt-oss-20b", {"layer_types": ["sliding_attentions"] * 24}, "layer_types has 'sliding_attentions'"),
        ("gpt-oss-20b", {"sliding_window": None}, "no sliding_window"),
        ("deepseek-v3", {"n_shared_experts": 10**9}, "n_shared_experts"),
    ):
        with pytest.raises(FormatError, match=said):
            language_model({**shipped(name), **changed})
    assert language_model({**shipped("llama-3.1-8b"), "n_layer": 32}).layer_count == 32


def test_the_inner_part_of_a_wrapper_takes_over_its_model_type():
    whole = shipped("gemma-2-2b")
    inner = {key: value for key, value in whole.items() if key != "model_type"}
    wrapped = language_model({"model_type": whole["model_type"], "text_config": inner})
    assert wrapped.layers == language_model(whole).layers  # windows of every other layer, as the type says


def test_code_of_a_configuration_is_no_obstacle_to_counting():
    content = json.loads((CONFIGURATIONS / "deepseek-v3.json").read_text())
    with_code = {**content, "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV3Config"}}
    assert language_model(with_code).parameters == language_model("deepseek-v3").parameters


def test_latent_and_windowed_caches_are_small():
    latent, grouped = language_model("deepseek-v3"), language_model("llama-3.1-70b")
    assert latent.cache_elements(1) == 61 * (512 + 64)
    assert grouped.cache_elements(1000) == 80 * 2 * 8 * 128 * 1000
    windowed = language_model("gpt-oss-20b")
    assert windowed.cache_elements(10_000) == 12 * 1024 * (10_000 + 128)
    quantization = Quantization("fp8", "fp8", "fp8")
    split = [cache_bytes(grouped, Parallelism.of(t), quantization, 1000) for t in (1, 8, 16)]
    assert split[0] == 8 * split[1] == 8 * split[2], "eight heads cannot be split over sixteen GPUs"
    replicated = [cache_bytes(latent, Parallelism.of(t), quantization, 1000) for t in (1, 8)]
    assert replicated[0] == replicated[1], "every GPU keeps the whole latent"


def test_weights_per_gpu_add_up_to_the_model():
    model = language_model("llama-3.1-8b")
    assert weight_bytes(model, Parallelism(), Quantization()) == 2 * model.parameters
    experts = language_model("qwen3-235b-a22b")
    one = weight_bytes(experts, Parallelism(), Quantization())
    for split in (Parallelism.of(8), Parallelism.of(8, expert=8), Parallelism.of(4, attention_data=2, expert=8)):
        share = weight_bytes(experts, split, Quantization())
        assert one / 8 <= share < one / 8 * 1.1


def test_decode_flops_are_twice_the_active_parameters():
    for name in ("llama-3.1-8b", "deepseek-v3", "qwen3-235b-a22b", "gpt-oss-120b"):
        model = language_model(name)
        costs = step_costs(model, Parallelism(), Quantization(), Step.of_decode(1, 0))
        assert float(costs.total("flops")) == pytest.approx(2 * model.active_parameters, rel=0.01)


def test_a_table_of_steps_costs_what_its_rows_cost():
    model, split = language_model("deepseek-v3"), Parallelism.of(4, attention_data=2, expert=8)
    batch, context = np.array([1.0, 16.0, 256.0]), np.array([128.0, 1024.0, 9000.0])
    together = step_costs(model, split, Quantization("fp8", "fp8", "fp8"), Step.of_decode(batch, context))
    for i in range(3):
        alone = step_costs(model, split, Quantization("fp8", "fp8", "fp8"), Step.of_decode(batch[i], context[i]))
        for amount in ("flops", "memory_bytes", "message_bytes"):
            assert np.asarray(together.total(amount))[i] == pytest.approx(float(alone.total(amount)))


def test_experts_read_more_weights_the_more_tokens_pass():
    model = language_model("deepseek-v3")
    reads = step_costs(model, Parallelism.of(8), Quantization(), Step.of_decode(np.array([1.0, 8, 64, 1e5]), 100.0))
    weights = np.asarray(reads.parts["experts"].weight_bytes)
    assert (np.diff(weights) > 0).all()
    assert weights[-1] == pytest.approx(model.expert_parameters * 2 / 8, rel=1e-6)


@pytest.mark.parametrize(("count", "active"), [(8, 2), (128, 4), (256, 8), (4, 4), (8, 7), (16, 1)])
def test_some_experts_are_chosen_more_than_others_and_each_token_still_chooses_as_many(count, active):
    experts = Experts(count, active, width=64, model_width=64)
    tokens = np.array([0.0, 1, 2, 16, 64, 1e6])
    share, even = expected_share(experts, tokens), 1 - (1 - active / count) ** tokens
    assert share[0] == 0 and share[1] == pytest.approx(active / count) and share[-1] == pytest.approx(1)
    assert (np.diff(share) >= 0).all() and (share <= even + 1e-9).all()
    assert float(expected_share(experts, 16.0)) == share[3]
    np.testing.assert_allclose(expected_share(experts, tokens, 0.0), even)


def test_nonsense_parallelism_and_precision_are_refused():
    with pytest.raises(ArgumentError, match="tensor"):
        Parallelism(tensor=0)
    with pytest.raises(ArgumentError, match="do not divide"):
        Parallelism.of(4, expert=3)
    with pytest.raises(ArgumentError, match="fp3"):
        Quantization(gemm="fp3")


def test_a_publishers_repository_leads_to_the_configuration_of_its_name():
    for name, configuration in (
        ("meta-llama/Llama-2-13b-hf", "llama-2-13b"),
        ("meta-llama/Llama-2-13b-chat-hf", "llama-2-13b"),
        ("meta-llama/Llama-3.2-1B", "llama-3.2-1b"),
        ("EleutherAI/pythia-70m", "pythia-70m"),
        ("openai-community/gpt2", "gpt2"),
    ):
        assert language_model(name).parameters == language_model(configuration).parameters
    for name in ("someone/llama-2-13b-hf", "meta-llama/gpt2", "someone/Qwen2.5-7B-Instruct-GPTQ-Int4", "meta-llama/"):
        with pytest.raises(FileError, match="neither a file nor a known model"):
            language_model(name)


def test_emulated_half_precision_is_priced_at_the_rate_of_fp32():
    for board, faster in (("gtx-1080-ti", "fp32"), ("p4", "fp32"), ("p100", "fp16"), ("t4", "fp16")):
        peaks = device(board).peak_flops
        assert peak_flops(peaks, "fp16") == peak_flops(peaks, "bf16") == peaks[faster]
    assert peak_flops(device("h100").peak_flops, "bf16") == device("h100").peak_flops["bf16"]


@pytest.mark.parametrize(
    ("name", "wrong", "said"),
    [
        ("NX-AI/xLSTM-7b", {"num_hidden_layers": None, "num_blocks": 2**39}, "num_blocks"),
        ("NX-AI/xLSTM-7b", {"qk_dim_factor": -0.5}, "a number above 0"),
        ("tiiuae/Falcon-H1-7B-Base", {"mamba_d_head": 3}, "are not the 3072 channels"),
        ("ibm-granite/granite-4.0-h-tiny", {"layer_types": ["mamba"] * 39}, "a list of 40 words"),
        ("LiquidAI/LFM2-1.2B", {"layer_types": ["conv", "window"] * 8}, "layers of full_attention"),
        ("mistralai/Mamba-Codestral-7B-v0.1", {"head_dim": 63}, "128 heads of 63"),
        ("baidu/ERNIE-4.5-21B-A3B-PT", {"moe_intermediate_size": [1, 2, 3]}, "one for text and one for images"),
        ("google/recurrentgemma-2b", {"block_types": ["window"]}, "made of recurrent and attention"),
        ("XiaomiMiMo/MiMo-V2-Flash", {"layer_types": None, "hybrid_layer_pattern": [1]}, "each of its 48 layers"),
    ],
)
def test_fields_of_a_hybrid_that_contradict_one_another_are_told(name, wrong, said):
    content = {**read_configuration(name, run_code=False), **wrong}
    with pytest.raises(FormatError, match=said):
        language_model({key: value for key, value in content.items() if value is not None}, name)
