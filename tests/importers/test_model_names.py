"""Names of models: repositories, plain names and spellings lead to a configuration, without a network."""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path

import pytest

import perfpass
from perfpass.errors import FileError, UnsupportedError
from perfpass.graph import costs
from perfpass.importers import catalogue, configuration_names, sound_models
from perfpass.importers.model_argument import understood
from perfpass.importers.model_names import find
from perfpass.importers.model_sources import huggingface, read_configuration
from perfpass.llm import language_model

# Repositories in use from 2019 to 2026, cut in two by chance: half "a" was read to see which families were missing,
# half "b" was only counted until these stood. SOURCE:NAME and the precision that the name says, or "refused".
LISTED = [
    line.split("\t") for line in Path(__file__).with_name("listed_models.tsv").read_text(encoding="utf-8").splitlines()
]

# Spelling -> configuration; as the public tables of serving, training and generation write them.
SPELT = {
    "Llama 3.1 70B": "llama-3.1-70b",
    "LLAMA3.1_405B": "llama-3.1-405b",
    "LLaMA v3.1 8B": "llama-3.1-8b",
    "Llama-2 70B": "llama-2-70b",
    "Llama 2 7 B": "llama-2-7b",
    "LLAMA3-8B": "llama-3.1-8b",
    "Llama 3.3 70B": "llama-3.1-70b",
    "llama2-70b-99.9": "llama-2-70b",
    "llama_13b": "llama-2-13b",
    "LLaMA 70B": "llama-2-70b",
    "Llama 33B": "huggyllama/llama-30b",
    "Llama 65B": "huggyllama/llama-65b",
    "CodeLlama 34 B": "codellama-34b",
    "GPT OSS 120B": "gpt-oss-120b",
    "GPT-J 6B": "gpt-j-6b",
    "gptj-99": "gpt-j-6b",
    "OPT-175B": "facebook/opt-175b",
    "OPT-30B": "facebook/opt-30b",
    "DeepSeekV3": "deepseek-v3",
    "DeepSeekV3 (dropless)": "deepseek-v3",
    "Qwen3_30B_a3B": "qwen3-30b-a3b",
    "Kimi_K2": "kimi-k2",
    "Mixtral 8x7B": "mixtral-8x7b",
    "TinyLlama 1.1B": "tinyllama-1.1b",
    "Nemotron_3_Nano": "nemotron-3-nano-30b-a3b",
    "Nemotron-340B": "nvidia/Nemotron-4-340B-Instruct",
    "Gemma3-12B": "google/gemma-3-12b-it",
    "gemma4-31b": "google/gemma-4-31B-it",
    "Vicuna-7B-v1.3": "llama-2-7b",
    "InternLM-20B": "internlm/internlm-20b",
    "Yi 34B with Context Length of 2048": "01-ai/Yi-34B",
    "phi-1.5 1.3 B": "microsoft/phi-1_5",
    "StableLM Alpha 3 B": "stabilityai/stablelm-base-alpha-3b",
    "bigscience/T0_3B (3B params)": "google/flan-t5-xl",
    "MPT-30b": "mosaicml/mpt-30b",
    "Falcon 40 B": "tiiuae/falcon-40b",
    "GPT3-175B": "gpt3-175b",
    "Qwen/Qwen3-8B-Base": "qwen3-8b",
    "bert_base_uncased": "bert-base",
}
# Name -> configuration, and the precision of the weights that it says.
STORED = {
    "Qwen/Qwen3-14B-AWQ": ("Qwen/Qwen3-14B", "int4"),
    "Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4": ("qwen2.5-7b", "int4"),
    "Qwen/Qwen2.5-72B-Instruct-GPTQ-Int8": ("Qwen/Qwen2.5-72B", "int8_wo"),
    "Qwen/Qwen3-235B-A22B-FP8": ("qwen3-235b-a22b", "fp8_block"),
    "nvidia/Llama-3.1-8B-Instruct-FP8": ("llama-3.1-8b", "fp8"),
    "nvidia/DeepSeek-R1-NVFP4": ("deepseek-v3", "nvfp4"),
    "RedHatAI/Qwen3-8B-FP8-dynamic": ("qwen3-8b", "fp8"),
    "RedHatAI/Qwen3-8B-quantized.w4a16": ("qwen3-8b", "int4"),
    "neuralmagic/Meta-Llama-3.1-70B-Instruct-quantized.w8a8": ("llama-3.1-70b", "int8"),
    "unsloth/Llama-3.2-1B-Instruct-unsloth-bnb-4bit": ("llama-3.2-1b", "int4"),
    "mlx-community/Qwen3-4B-4bit": ("Qwen/Qwen3-4B", "int4"),
    "TheBloke/Llama-2-7B-GPTQ": ("llama-2-7b", "int4"),
    "TheBloke/LLaMa-65B-GPTQ": ("huggyllama/llama-65b", "int4"),
    "TheBloke/Mistral-7B-v0.1-AWQ": ("mistral-7b", "int4"),
    "IlyasMoutawwakil/vicuna-7b-v1.5-awq-gemm": ("llama-2-7b", "int4"),
    "llama-2-7b.Q4_K_M": ("llama-2-7b", "q4_k_m"),
    "shisa-v2-llama3.1-8b.i1-Q4_K_M": ("llama-3.1-8b", "q4_k_m"),
    "shisa-v2-unphi4-14b.i1-IQ3_M": ("microsoft/phi-4", "iq3_m"),
    "unsloth/Qwen3-32B-GGUF": ("qwen3-32b", "q4_k_m"),
    "unsloth/Qwen3-32B-GGUF:Q8_0": ("qwen3-32b", "q8_0"),
    "GLM-4.5-Air-UD-Q4_K_XL-00001-of-00002": ("zai-org/GLM-4.5-Air", "q4_k_m"),
    "Hunyuan-A13B-Instruct-UD-Q6_K_XL-00001-of-00002": ("tencent/Hunyuan-A13B-Instruct", "q6_k"),
    "Qwen3-235B-A22B-Instruct-2507-UD-Q3_K_XL-00001-of-00003": ("qwen3-235b-a22b", "q3_k_m"),
    "gemma-3-27b-it-UD-Q4_K_XL": ("google/gemma-3-27b-it", "q4_k_m"),
    "google/gemma-3-27b-it-qat-q4_0-gguf": ("google/gemma-3-27b-it", "q4_0"),
    "bartowski/Qwen_Qwen3-14B-GGUF": ("Qwen/Qwen3-14B", "q4_k_m"),
    "bartowski/google_gemma-3-27b-it-GGUF:Q6_K": ("google/gemma-3-27b-it", "q6_k"),
    "Intel/Qwen3-8B-int4-AutoRound": ("qwen3-8b", "int4"),
    "OpenVINO/Qwen3-8B-int8-ov": ("qwen3-8b", "int8_wo"),
    "ISTA-DASLab/gemma-3-27b-it-GPTQ-4b-128g": ("google/gemma-3-27b-it", "int4"),
    "solidrust/Mistral-7B-Instruct-v0.3-AWQ": ("mistral-7b-v0.3", "int4"),
}


def repositories() -> list[str]:
    """Every OWNER/NAME that is known."""
    listed = itertools.chain.from_iterable(catalogue.names().values())
    others = itertools.chain.from_iterable(configuration_names._table()["names"].values())
    return sorted({name for name in (*listed, *others) if "/" in name})


def test_at_least_a_thousand_repositories_lead_to_a_configuration():
    names, kinds = repositories(), set()
    for name in names:
        found = understood(name)
        assert found.kind == "hf" and not found.repository
        kinds.add(read_configuration(found.name, run_code=False)["model_type"])
    assert len(names) >= 1000 and len(kinds) >= 100
    assert len(configuration_names.first()) >= 600


@pytest.mark.parametrize("half", ["a", "b"])
def test_names_of_a_list_lead_to_their_networks(half):
    rows = [row for mine, *row in LISTED if mine == half]
    wrong, refused = [], [row for row in rows if row[1] == "refused"]
    for name, expected, *stored in rows:
        if expected == "refused":
            continue
        found = understood(name)
        whole = f"pipelines/{Path(found.name).name}" if found.format == "diffusers" else found.name
        if (f"{found.kind}:{whole}", [found.stored] if found.stored else []) != (expected, stored):
            wrong.append((name, expected, found))
    assert not wrong
    assert len(rows) == 641 and len(refused) < {"a": 0.3, "b": 0.34}[half] * len(rows)
    for name, *_ in refused[::20]:  # each takes a tenth of a second: all names are compared for the nearest
        with pytest.raises((FileError, UnsupportedError), match=r"neither a file nor a known model|no single network"):
            understood(name)


@pytest.mark.parametrize("name", sorted(path.name for path in configuration_names.PIPELINES.iterdir()))
def test_a_pipeline_that_ships_is_whole(name):
    folder = configuration_names.PIPELINES / name
    index = json.loads((folder / "model_index.json").read_text())
    for key in index.keys() - {"_class_name", "_usual", "scheduler"}:
        content = json.loads((folder / key / "config.json").read_text())
        assert content["_class_name" if index[key][0] == "diffusers" else "model_type"], (name, key)
    found = understood(name)
    assert found.format == "diffusers" and found.notes


# Published: the counts of each repository's safetensors; Wan and Stable Diffusion 3.5 state 1.3 and 2.5 billion.
@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("Wan-AI/Wan2.1-T2V-1.3B:transformer", 1419),
        ("Efficient-Large-Model/Sana_1600M_1024px_diffusers:transformer", 1604),
        ("sd3.5-medium:text_encoder_2", 694.7),
        ("stable-diffusion-v1-5:unet", 859.5),
        ("stabilityai/sd-turbo:unet", 865.9),
        ("stabilityai/sdxl-turbo:unet", 2567.5),
        ("stabilityai/sdxl-turbo:text_encoder_2", 694.7),
    ],
)
def test_a_network_of_a_pipeline_by_name_has_its_parameters(name, millions):
    counted = costs.count(perfpass.load(name)).parameters.sum()
    assert int(counted) == pytest.approx(1e6 * millions, rel=0.01)


def test_every_entry_of_the_catalogue_is_whole_and_has_a_source():
    for name in catalogue.names():
        entry = catalogue.entry(name)
        assert entry["from"] in catalogue.sources(), name
        assert ("parameters" in entry) == ("counted" in entry), name
        assert read_configuration(name, run_code=False)["model_type"], name


def test_stated_counts_of_parameters_are_those_of_the_figures():
    checked, towers = 0, ("text_config", "llm_config")
    for name in catalogue.names():
        entry = catalogue.entry(name)
        content = read_configuration(name, run_code=False)
        headless = str((content.get("architectures") or [""])[0]).endswith("Model")  # an encoder made of a decoder
        if "parameters" not in entry or headless or any(key in content for key in towers):
            continue
        try:
            counted = language_model(name).parameters
        except UnsupportedError:
            continue
        assert counted == pytest.approx(entry["parameters"], rel=0.01), name
        checked += 1
    assert checked >= 180


# One of each kind, small ones: built by transformers, they have the parameters that are stated of them.
BUILT = (
    "google-bert/bert-base-multilingual-cased",
    "microsoft/deberta-v3-xsmall",
    "sentence-transformers/paraphrase-MiniLM-L3-v2",
    "BAAI/bge-small-zh-v1.5",
    "facebook/bart-base",
    "openai/whisper-tiny",
    "facebook/wav2vec2-base-960h",
    "facebook/dinov2-small",
    "facebook/convnextv2-atto-1k-224",
    "microsoft/resnet-18",
    "nvidia/segformer-b0-finetuned-ade-512-512",
    "openai/clip-vit-base-patch16",
    "hustvl/yolos-tiny",
    "OpenGVLab/InternVL3-1B-hf",
    "llava-hf/llava-onevision-qwen2-0.5b-ov-hf",
    "LiquidAI/LFM2-350M",
    "tiiuae/Falcon-H1-0.5B-Base",
    "ibm-granite/granite-4.0-350m",
    "Alibaba-NLP/gte-multilingual-base",
    "PekingU/rtdetr_v2_r18vd",
    "nvidia/parakeet-ctc-0.6b",
    "facebook/hiera-base-224-hf",
)


@pytest.mark.parametrize("name", BUILT)
def test_what_transformers_builds_has_the_stated_parameters(name):
    module = huggingface(read_configuration(name), dtype="float32", causal=False)
    assert sum(p.numel() for p in module.parameters()) == pytest.approx(catalogue.entry(name)["parameters"], rel=0.01)


@pytest.mark.parametrize("name", ["dslim/bert-base-NER", "facebook/detr-resnet-50", "google/flan-t5-small"])
def test_predict_answers_a_repository(name):
    found = perfpass.predict(name, "t4")
    assert 0 < found.latency_ms.low < found.latency_ms.median


def test_no_advice_on_kernels_is_printed_where_nothing_runs(capfd):
    perfpass.load("LiquidAI/LFM2-350M")
    assert "install" not in capfd.readouterr().err


def test_what_a_pipeline_was_read_as_is_said():
    found = perfpass.predict("sd3.5-medium:text_encoder", "l4")
    assert any("read as the pipeline stable-diffusion-3.5-medium" in reason for reason in found.support.reasons)


@pytest.mark.parametrize(("name", "configuration"), SPELT.items())
def test_spellings_of_one_model_are_one_model(name, configuration):
    found = find(name)
    assert found is not None and (found.configuration, found.stored) == (configuration, "")
    known = name.lower() in configuration_names.known()
    assert known or any(configuration in note for note in found.notes), "what was understood is said"


@pytest.mark.parametrize(("name", "expected"), STORED.items())
def test_what_a_name_says_of_the_weights_is_how_they_are_stored(name, expected):
    found = understood(name)
    assert (found.name, found.stored) == expected and found.notes
    model = language_model(name)
    # And what is said of the model by its own name: of towers that are counted beside it.
    assert model.stored_as not in ("bf16", "fp16")
    assert model.notes == (*found.notes, *language_model(found.name).notes)
    assert model.parameters == language_model(expected[0]).parameters


def test_the_precision_of_a_name_is_assumed_by_both_predictors_and_said():
    served = perfpass.predict_llm("TheBloke/Llama-2-7B-GPTQ", "rtx-4090")
    assert served.assumed["precision"] == "int4"
    assert any("stored as int4, as the name says (gptq)" in reason for reason in served.support.reasons)
    once = perfpass.predict("prajjwal1/bert-tiny-GPTQ", "t4")
    assert any("stores its weights as int4" in reason for reason in once.support.reasons)


def test_weights_trained_to_be_quantised_and_published_in_16_bits_are_those():
    found = find("google/gemma-3-12b-it-qat-q4_0-unquantized")
    assert found is not None and (found.configuration, found.stored) == ("google/gemma-3-12b-it", "")


def test_of_two_types_in_a_name_the_one_of_the_experts_is_kept():
    found = find("mlx-community/gpt-oss-120b-MXFP4-Q8")
    assert found is not None and (found.configuration, found.stored) == ("gpt-oss-120b", "mxfp4")


def test_files_of_16_bits_keep_experts_of_fewer():
    model = language_model("gpt-oss-20b-F16")
    assert (model.stored_as, model.experts_stored_as) == ("fp16", "mxfp4")


def test_a_file_type_of_no_known_size_is_refused():
    with pytest.raises(UnsupportedError, match="how many bits q5 takes is not known"):
        language_model("llama-2-7b.Q5")


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("Qwen/Qwen3-14", "Qwen/Qwen3-14B"),
        ("google/flan-t5-xlarge", "google/flan-t5-large"),
        ("openai/whisper-larg-v3", "openai/whisper-large-v3"),
        ("BAAI/bge-base-en-v15", "baai/bge-base-en-v1.5"),
        ("lama-3.1-8b", "llama-3.1-8b"),
        ("sentence-transformers/all-MiniLM-L6", "sentence-transformers/all-minilm-l6-v2"),
    ],
)
def test_a_near_miss_is_answered_with_the_nearest_names(wrong, right):
    with pytest.raises(FileError, match="did you mean") as error:
        understood(wrong)
    assert right.lower() in str(error.value).lower()


@pytest.mark.parametrize(
    "name", ["somebody/Llama-2-7b", "llama-27b", "roberta", "Qwen/Llama-2-7b", "somebody/Qwen3-8B-AWQ", "gemma"]
)
def test_names_of_others_are_not_taken_for_a_known_model(name):
    assert find(name) is None
    with pytest.raises(FileError, match="neither a file nor a known model"):
        understood(name)


def test_plain_networks_and_timms_repositories_are_those_libraries_own():
    assert understood("resnet50").source == "torchvision:resnet50"
    assert understood("ResNeXt50").source == "torchvision:resnext50_32x4d"
    assert understood("timm/vit_base_patch16_224.augreg_in21k").source == "timm:vit_base_patch16_224.augreg_in21k"


@pytest.mark.parametrize(
    "name", ["segmind/SSD-1B", "stabilityai/stable-video-diffusion-img2vid", "guoyww/animatediff-motion-adapter-v1-5-3"]
)
def test_several_networks_in_one_repository_are_named_and_what_can_be_asked(name):
    with pytest.raises(UnsupportedError, match="Ask for its networks exported to ONNX"):
        understood(name)


def test_encoder_decoders_are_served_with_a_wide_support():
    model = language_model("google/flan-t5-xl")
    assert model.is_encoder_decoder
    found = perfpass.predict_llm("google/flan-t5-xl", "a100-80gb", input_length=512, output_length=64)
    assert found.support.level == "outside" and "encoder" in found.support.reasons[0]
    # The cache: keys and values of 32 heads of 64, in 24 layers of the decoder, for tokens read and written.
    assert model.cache_elements(576) == 24 * 576 * 2 * 32 * 64
    with pytest.raises(UnsupportedError, match="perfpass predict UsefulSensors/moonshine-tiny"):
        language_model("UsefulSensors/moonshine-tiny")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("suno/bark", "gpt2-medium"),
        ("hexgrad/Kokoro-82M", "ONNX"),
        ("facebook/musicgen-large", "musicgen_decoder"),
        ("microsoft/speecht5_tts", "facebook/bart-base"),
        ("parler-tts/parler-tts-mini-v1", "perfpass.predict"),
        ("sesame/csm-1b", "31 of a model of 4 layers"),
        ("nari-labs/Dia-1.6B", "DiaForConditionalGeneration"),
    ],
)
def test_models_of_sound_that_are_no_single_network_say_what_they_are_and_what_to_ask(name, said):
    for asked in (understood, language_model, lambda one: perfpass.fit(one, "l4")):
        with pytest.raises(UnsupportedError, match=rf"{name} makes sound: .*instead: .*{said}"):
            asked(name)


@pytest.mark.parametrize("kind", ["bark", "speecht5", "dia", "musicgen"])
def test_configurations_of_such_models_are_refused_alike(kind):
    for asked in (language_model, lambda content: huggingface(content, dtype="float32", causal=True)):
        with pytest.raises(UnsupportedError, match=rf"{kind}.* makes sound: .*instead: "):
            asked({"model_type": kind, "is_encoder_decoder": True})


@pytest.mark.parametrize(
    ("name", "second"), [("canopylabs/orpheus-3b-0.1-ft", "82 to a second"), ("xtts", "21.5 to a")]
)
def test_language_models_whose_tokens_are_sound_say_what_follows(name, second):
    assert any(
        second in note and "is not counted" in note.replace("are not", "is not") for note in language_model(name).notes
    )
    found = perfpass.predict_llm(name, "l4", input_length=100, output_length=200)
    assert any(second in reason for reason in found.support.reasons)


def test_no_name_is_both_refused_and_known():
    assert not sound_models.refused("names").keys() & configuration_names.known().keys()
    assert set(sound_models._SOUNDING) <= configuration_names.first()


def test_the_catalogue_costs_a_first_question_little():
    catalogue._lines.cache_clear()
    configuration_names.known.cache_clear()
    begin = time.perf_counter()
    configuration_names.known()
    assert time.perf_counter() - begin < 0.1  # some 6 ms; machines under test are slow and shared
