"""What reads pictures or sound is loaded with its language model: its weights are counted, and it is said."""

from __future__ import annotations

from dataclasses import replace

import pytest

import perfpass
from perfpass.deploy.fit.need import need
from perfpass.deploy.fit.settings import Load, Settings
from perfpass.deploy.fit.subject import Subject
from perfpass.devices import device
from perfpass.importers.huggingface import trace_config
from perfpass.importers.model_names import find
from perfpass.importers.model_sources import read_configuration
from perfpass.llm import language_model
from perfpass.llm.costs import Parallelism, Quantization, in_format, weight_bytes
from perfpass.llm.eager import in_eager_pytorch
from perfpass.llm.llama_cpp import layers_alone
from perfpass.llm.memory import seen_bytes, server_workspace_bytes
from perfpass.llm.stored_bytes import GROUPS_OF_128_BYTES, NF4_BYTES
from perfpass.llm.towers import beside

SEES = "Qwen/Qwen2.5-VL-7B-Instruct"
BF16, ONE = Quantization("bf16", "bf16"), Parallelism()


@pytest.fixture(scope="module")
def sees():
    return language_model(SEES)


def _fitted_weights(model, precision=None):
    return need(Subject("m", model), device("a100"), Settings("vllm", precision=precision), Load(1024)).weights


def test_the_whole_checkpoint_is_loaded(sees):
    """The index of the repository's files states 16,584,333,312 bytes (model.safetensors.index.json)."""
    assert weight_bytes(sees, ONE, BF16) == pytest.approx(16_584_333_312, rel=0.005)
    assert weight_bytes(sees, ONE, BF16, towers=False) == 2 * sees.parameters
    halves = [weight_bytes(sees, Parallelism(tensor=ranks), BF16, towers=True) for ranks in (1, 2)]
    alone = [weight_bytes(sees, Parallelism(tensor=ranks), BF16, towers=False) for ranks in (1, 2)]
    assert halves[1] - alone[1] == (halves[0] - alone[0]) / 2


def test_both_doors_count_it_and_say_so(sees):
    served = perfpass.predict_llm(SEES, "h100")
    batch = perfpass.predict_offline(SEES, "a100", runtime="transformers")
    for weights in (served.memory.weights_bytes, batch.memory.weights_bytes, _fitted_weights(sees)):
        assert weights == pytest.approx(2 * (sees.parameters + sees.beside), rel=0.02)
    for found in (served, batch):
        assert sum("of what reads pictures (0.68 B parameters)" in reason for reason in found.support.reasons) == 1


def test_llama_cpp_takes_it_from_a_file_of_its_own(sees):
    how = {"device": device("rtx-4090"), "devices": 1, "quantization": Quantization("q4_k_m", "q4_k_m")}
    how["context"] = 1024
    bare = replace(sees, beside=0)
    assert layers_alone(sees, **how).weights_bytes == layers_alone(bare, **how).weights_bytes


def test_text_alone_is_as_it_was():
    assert language_model("llama-3.1-8b").beside == 0 and not language_model("llama-3.1-8b").notes
    assert beside({"model_type": "llama", "vision_config": None}) == (0, "")


def test_a_size_that_is_not_stated_is_said_not_to_be_counted():
    parameters, said = beside({"model_type": "new", "vision_config": {"hidden_size": 1024}, "audio_config": {"a": 1}})
    assert parameters == 0 and "pictures and sound" in said and "not counted" in said


def test_towers_of_files_in_four_bits_may_be_packed_too(sees):
    """GPTQ and AWQ as published pack the language model, bitsandbytes all linear layers: both are within."""
    how = {"sequences": 1, "prompt": 512, "answer": 16}
    packed = in_eager_pytorch(sees, device("a100"), 1, Quantization("int4_wo", "int4_wo"), **how)
    whole = weight_bytes(sees, ONE, Quantization("int4_wo", "int4_wo"))
    read = weight_bytes(sees, ONE, Quantization("int4_wo", "int4_wo"), towers=False)
    assert packed.alive.low < read + 0.3 * (whole - read) < whole < packed.alive.median


@pytest.mark.parametrize(
    ("name", "billions"),
    # Of the published files; 13.9 B are GLM-4V's.
    {
        "THUDM/glm-4v-9b": 13.9,
        "microsoft/Phi-3.5-vision-instruct": 4.15,
        "Qwen/Qwen2-Audio-7B-Instruct": 8.4,
        "meta-llama/Llama-4-Scout-17B-16E-Instruct": 108.6,
        "zai-org/GLM-4.1V-9B-Thinking": 10.3,
        "mistralai/Ministral-3-8B-Instruct-2512": 8.8,
        "google/gemma-4-E2B-it": 5.1,
        "google/gemma-4-E4B-it": 8.0,
    }.items(),
)
def test_names_whose_language_model_alone_ships_have_what_is_beside_it(name, billions):
    model = language_model(name)
    assert (model.parameters + model.beside) / 1e9 == pytest.approx(billions, rel=0.03)
    assert any("are loaded beside it" in note for note in model.notes)
    assert language_model("THUDM/glm-4-9b-chat").beside == 0


@pytest.mark.parametrize(("name", "same"), [("gemma4:e4b", "google/gemma-4-E4B-it"), ("llama4:scout", "llama-4-scout")])
def test_every_spelling_of_a_model_has_what_is_beside_it(name, same):
    assert language_model(name).beside == language_model(same).beside > 0
    assert language_model("THUDM/glm-4v-9b", name="chat").beside == language_model("THUDM/glm-4v-9b").beside > 0


@pytest.mark.parametrize(("name", "said"), {
    "Qwen/Qwen2-VL-2B-Instruct": "only where images are asked for, but in what transformers may hold and vLLM profiles",
    "meta-llama/Llama-3.2-11B-Vision-Instruct": "only where images are asked for",
    "Qwen/Qwen2-Audio-7B-Instruct": "passes through them are not counted",
    "google/gemma-4-E4B-it": "passes through them are not counted",
}.items())  # fmt: skip
def test_what_is_counted_of_passes_is_what_the_reader_of_pictures_knows(name, said):
    (note,) = (note for note in language_model(name).notes if "are loaded beside it" in note)
    assert note.endswith(said)


def test_a_v_of_pictures_is_no_v_of_versions():
    assert find("openbmb/MiniCPM-V-2") is None and find("Llama-2-7bv") is None
    assert find("LLaMA v3.1 8B").configuration == find("llamav3.1-8b").configuration == "llama-3.1-8b"


def test_one_pass_over_text_says_what_it_does_not_read():
    configuration = read_configuration("HuggingFaceTB/SmolVLM-Instruct", run_code=False)
    graph = trace_config(configuration, sequence_length=8)
    assert graph.unread == pytest.approx(0.43e9, rel=0.02)  # SigLIP so400m and the connector
    assert trace_config(read_configuration("bert-base", run_code=False), sequence_length=8).unread == 0


@pytest.mark.parametrize(
    ("name", "element"),
    {"awq": GROUPS_OF_128_BYTES, "GPTQ-Int4": GROUPS_OF_128_BYTES, "bnb-4bit": NF4_BYTES, "nf4": NF4_BYTES}.items(),
)
def test_methods_of_packing_are_precisions_of_both_doors(name, element):
    plain, int4 = language_model("llama-3.1-8b"), Quantization("int4_wo", "int4_wo")
    held = weight_bytes(in_format(plain, name), ONE, int4)
    assert held == weight_bytes(plain, ONE, int4, sizes={"int4_wo": element, "bf16": 2.0, "fp16": 2.0})
    assert perfpass.predict_llm("llama-3.1-8b", "a100", precision=name).memory.weights_bytes == int(held)
    batch = perfpass.predict_offline("llama-3.1-8b", "a100", runtime="transformers", precision=name)
    assert batch.memory.weights_bytes == int(held)
    assert _fitted_weights(plain, name) == pytest.approx(held)


def test_in_transformers_upper_bounds_hold_a_prompt_of_pictures():
    """Qwen2-VL-2B takes 14.7 GB with a picture of 16,000 tokens (Hugging Face's page of SmolVLM); a release that splits
    pictures lays no mask over all pairs of their patches.
    """
    model, board = language_model("Qwen/Qwen2-VL-2B-Instruct"), device("a100-80gb")
    how = {"sequences": 1, "prompt": 16_000, "answer": 16}
    text = in_eager_pytorch(replace(model, sight=None), board, 1, BF16, **how)
    any_release, split = (in_eager_pytorch(model, board, 1, BF16, **how, version=v) for v in ("", "4.55"))
    for found in (any_release, split):
        assert found.in_use.median == text.in_use.median and found.in_use.low == text.in_use.low
    assert any_release.in_use.high > 14.7e9 > text.in_use.high
    patches = 4 * 16_000
    held = any_release.alive.high - split.alive.high
    assert patches**2 < held < 4 * patches**2 * 1.5  # bits, and numbers of 16 bits; with what bounds are above medians


def test_the_mask_of_a_batch_is_in_the_bounds_where_an_old_release_is_stated():
    """Of 64 prompts it would be 1.1 TB: no bound of memory for one who stated neither pictures nor a release."""
    model, board = language_model("Qwen/Qwen2-VL-2B-Instruct"), device("a100-80gb")
    how = {"sequences": 64, "prompt": 2_048, "answer": 16}
    unstated, old, split = (in_eager_pytorch(model, board, 1, BF16, **how, version=v) for v in ("", "4.52", "4.55"))
    one = (4 * 2_048) ** 2
    assert one < unstated.needed.high - split.needed.high < 4 * one * 1.5
    assert old.needed.high > (4 * 64 * 2_048) ** 2
    assert unstated.needed.high < 2 * unstated.needed.median


def test_vllm_profiles_memory_with_the_largest_picture(sees):
    workspaces = [
        server_workspace_bytes(model, device("rtx-4090"), "vllm", 1e6, sequences=1)
        for model in (sees, replace(sees, sight=None))
    ]
    assert workspaces[0][0] == seen_bytes(sees) > workspaces[1][0]
    # 16,384 tokens of 28 x 28 pixels, of four patches; at least the stream and its norm of each are there at once.
    assert sees.sight.most_tokens == 16_384 and seen_bytes(sees) > 16_384 * 4 * 2 * 1280 * 2
    assert server_workspace_bytes(sees, device("rtx-4090"), "sglang", 1e6) == (1e6, 2e6)


def test_of_tiles_none_sees_another_and_of_crossed_pictures_no_token_stands_in_the_prompt():
    assert language_model("OpenGVLab/InternVL3-8B").sight.pairs == 0
    assert language_model("meta-llama/Llama-3.2-11B-Vision-Instruct").sight is None
    assert seen_bytes(language_model("llama-3.1-8b")) == 0
