"""A network within one, behind a colon: an encoder, a tower, a network of a pipeline; and what a run reads is said."""

from __future__ import annotations

import json

import pytest

import perfpass
from perfpass import cli
from perfpass.errors import UnsupportedError
from perfpass.graph import costs
from perfpass.importers import model_parts
from perfpass.importers.model_argument import understood
from perfpass.importers.model_sources import read_configuration


def parameters(name: str) -> int:
    return int(costs.count(perfpass.load(name)).parameters.sum())


# Published: Whisper (arXiv 2212.04356, table 1: encoder and decoder have as many layers), T5 (encoder of 335 million of
# t5-large, as sentence-t5-large counts it), the tower of Qwen2-VL (arXiv 2409.12191, table 1: 675 million with what
# joins it) and Qwen2.5-VL by its layers, CLIP ViT-L/14's text encoder (123 million) and SDXL's second (694 million;
# arXiv 2307.01952, table 1: 817 million both).
@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("openai/whisper-large-v3:encoder", 637),
        ("google-t5/t5-large:encoder", 335),
        ("stabilityai/stable-diffusion-xl-base-1.0:text_encoder", 123),
        ("stabilityai/stable-diffusion-xl-base-1.0:text_encoder_2", 694),
        ("sdxl:unet", 2567),
        ("stabilityai/stable-diffusion-2-1:text_encoder", 340),
        ("Qwen/Qwen2.5-VL-7B-Instruct:vision", 676.6),
        ("Qwen/Qwen2-VL-2B-Instruct:vision", 665),
        ("llava-hf/llava-1.5-7b-hf:vision", 303.5),
    ],
)
def test_a_part_has_the_parameters_that_are_published(name, millions):
    assert parameters(name) == pytest.approx(1e6 * millions, rel=0.01)


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("openai/whisper-tiny:encoder", [(1, 80, 3000)]),
        ("facebook/bart-base:encoder", [(1, 128)]),
        ("openai/clip-vit-base-patch32:text", [(1, 77)]),
        ("openai/clip-vit-base-patch32:vision_tower", [(1, 3, 224, 224)]),
        ("hf:google/siglip-base-patch16-224:text", [(1, 64)]),
        ("microsoft/trocr-base-handwritten:encoder", [(1, 3, 384, 384)]),
        ("HuggingFaceTB/SmolVLM-Instruct:vision", [(1, 3, 384, 384)]),
        ("Qwen/Qwen3-VL-4B-Instruct:vision", [(1, 484, 1536)]),  # 11 x 11 tokens of 2 x 2 patches of 16 x 16 pixels
    ],
)
def test_a_part_reads_what_it_alone_reads(name, inputs):
    graph = perfpass.load(name)
    assert [graph.shape(int(t)) for t in graph.graph_inputs] == inputs


def test_an_encoder_does_the_work_of_its_model_without_the_decoder():
    whole, encoder = (int(costs.count(perfpass.load(n)).macs.sum()) for n in ("t5-small", "google-t5/t5-small:encoder"))
    assert 0.2 * whole < encoder < 0.5 * whole


def test_a_part_of_a_folder_is_that_of_its_configuration(tmp_path):
    content = read_configuration("openai/whisper-tiny")
    (tmp_path / "config.json").write_text(json.dumps(content))
    assert parameters(f"{tmp_path}:encoder") == parameters("openai/whisper-tiny:encoder")
    assert read_configuration(f"{tmp_path}:encoder")["architectures"] == ["WhisperEncoder"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("openai/whisper-tiny:encodr", r"no part encodr; did you mean encoder\? its parts are encoder; write"),
        ("openai/clip-vit-base-patch32:audio", "no part audio;.* its parts are text, vision"),
        ("sdxl:unett", r"did you mean unet\? its parts are text_encoder, text_encoder_2, unet, vae_decoder"),
        ("bert-base:encoder", "bert-base is one network, of which no part has a name"),
        ("resnet50:encoder", "is a model of torchvision, of which no part has a name"),
    ],
)
def test_another_part_is_refused_with_those_there_are(name, said):
    with pytest.raises(UnsupportedError, match=said):
        understood(name)


def test_the_tokens_that_a_picture_takes_are_the_length_of_a_tower_that_reads_any_size():
    graph = perfpass.load("Qwen/Qwen2-VL-2B-Instruct:vision", dims={"sequence_length": 256}, batch=2)
    assert [graph.shape(int(t)) for t in graph.graph_inputs] == [(2, 32 * 32, 1176)]


def test_a_decoder_is_the_text_of_a_model_that_reads_pictures():
    assert understood("google/gemma-3-4b-it:decoder").name == understood("google/gemma-3-4b-it:text").name


def test_a_type_of_weights_behind_a_colon_is_no_part():
    found = understood("meta-llama/Llama-3.1-8B:Q4_K_M")
    assert found.stored == "q4_k_m" and ":" not in found.name


def test_every_class_that_makes_a_part_is_one_of_transformers():
    import importlib

    import transformers

    for kind, name in model_parts._ENCODERS.items():
        kind = kind.replace("-", "_")
        place = importlib.import_module(f"transformers.models.{kind}.modeling_{kind}")
        assert issubclass(getattr(place, name), transformers.PreTrainedModel), name
    for kind, name in model_parts._CLASSES.items():
        place = type(transformers.CONFIG_MAPPING[kind]()).__module__.replace(".configuration_", ".modeling_")
        found = getattr(transformers, name, None) or getattr(importlib.import_module(place), name)
        assert issubclass(found, transformers.PreTrainedModel), name


@pytest.mark.parametrize("command", ["predict", "fit", "inspect", "sweep", "evidence", "choose"])
def test_every_command_that_takes_a_model_takes_a_part(command, capsys):
    on = [] if command == "inspect" else ["--device", "t4"]
    assert cli.main([command, "openai/whisper-tiny:encoder", *on]) == 0
    assert capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "dims", "inputs", "assumed"),
    [
        ("bert-base", None, {"input_ids": [1, 128]}, ["sequence_length"]),
        ("bert-base", {"sequence": 64}, {"input_ids": [1, 64]}, []),
        ("t5-small", None, {"input_ids": [1, 128], "decoder_input_ids": [1, 128]}, ["sequence_length"]),
        ("resnet18", None, {"input": [1, 3, 224, 224]}, ["image_size"]),
        ("resnet18", {"image_size": 160}, {"input": [1, 3, 160, 160]}, []),
        ("openai/whisper-tiny:encoder", None, {"input_features": [1, 80, 3000]}, []),
        ("facebook/wav2vec2-base", None, {"input_values": [1, 41280]}, ["sequence_length"]),
        ("yolov8n", None, {"input": [1, 3, 640, 640]}, ["image_size"]),
    ],
)
def test_what_a_run_reads_and_nobody_asked_for_is_said(name, dims, inputs, assumed):
    found = perfpass.predict(name, "t4", dims=dims)
    assert {i["name"]: i["shape"] for i in found.workload["inputs"]} == inputs
    assert found.workload["assumed"] == assumed
    text = " ".join(str(found).split())
    assert all(f"{key} {'x'.join(map(str, shape))}" in text for key, shape in inputs.items())
    assert all(f"{size} is assumed (--dim {size}=N)" in text for size in assumed) and ("assumed" in text) == bool(
        assumed
    )


def test_the_json_of_the_command_and_the_evidence_say_it_too(capsys):
    assert cli.main(["predict", "bert-base", "--device", "t4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["workload"]
    assert found["inputs"] == [{"name": "input_ids", "shape": [1, 128], "dtype": "int64"}]
    assert found["assumed"] == ["sequence_length"]
    assert cli.main(["evidence", "bert-base", "--device", "t4"]) == 0
    assert "reads input_ids 1x128 int64; sequence_length is assumed" in " ".join(capsys.readouterr().out.split())
