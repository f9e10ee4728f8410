"""Pipelines of diffusers: networks built from their configurations, how often each runs, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import perfpass
from perfpass.errors import ArgumentError, FormatError, LimitError, UnsupportedError
from perfpass.graph import costs
from perfpass.importers import formats

CLIP = {
    "model_type": "clip_text_model",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 1000,
    "projection_dim": 32,
}
UNET = {
    "sample_size": 16,
    "block_out_channels": [32, 64],
    "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"],
    "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"],
    "cross_attention_dim": 32,
    "layers_per_block": 1,
    "attention_head_dim": 4,
}
VAE = {
    "block_out_channels": [32, 64],
    "down_block_types": ["DownEncoderBlock2D"] * 2,
    "up_block_types": ["UpDecoderBlock2D"] * 2,
    "latent_channels": 4,
}
PARTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "text_encoder": ("transformers", "CLIPTextModel", CLIP),
    "unet": ("diffusers", "UNet2DConditionModel", UNET),
    "vae": ("diffusers", "AutoencoderKL", VAE),
}


def pipeline(folder: Path, parts: dict[str, Any] = PARTS, name: Any = "StableDiffusionPipeline", **more: Any) -> Path:
    index = {"_class_name": name, "_diffusers_version": "0.42.1", "scheduler": ["diffusers", "PNDMScheduler"], **more}
    for key, (library, kind, content) in parts.items():
        index[key] = [library, kind]
        (folder / key).mkdir()
        (folder / key / "config.json").write_text(json.dumps(content))
    (folder / "model_index.json").write_text(json.dumps(index))
    return folder


def macs(graph: perfpass.graph.OpGraph, part: str) -> int:
    names = [graph.string(int(n)).partition(".")[0] for n in graph.node_name]
    return int(np.asarray(costs.count(graph).macs)[[n == part for n in names]].sum())


def test_each_network_counts_as_often_as_it_runs(tmp_path: Path) -> None:
    diffusers = pytest.importorskip("diffusers")
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    graph = perfpass.load(pipeline(tmp_path), assume={"steps": 7})
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        network = diffusers.UNet2DConditionModel.from_config(UNET)
        network(torch.empty(2, 4, 16, 16), torch.empty(2), torch.empty(2, 77, 32))
    assert macs(graph, "unet") == 7 * counter.get_total_flops() // 2  # guided: twice the batch
    text, decoder = macs(graph, "text_encoder"), macs(graph, "vae")
    assert text and decoder
    more = perfpass.load(tmp_path, assume={"steps": 14})
    assert (macs(more, "unet"), macs(more, "text_encoder"), macs(more, "vae")) == (
        2 * macs(graph, "unet"),
        text,
        decoder,
    )
    assert costs.count(more).totals["parameters"] == costs.count(graph).totals["parameters"]
    (steps,) = more.assumed
    assert steps.stated and steps.sentence() == "14 steps, as stated"


def test_steps_are_the_pipelines_own_where_nobody_states_them(tmp_path: Path) -> None:
    pytest.importorskip("diffusers")
    graph = perfpass.load(pipeline(tmp_path) / "model_index.json")
    (steps,) = graph.assumed
    assert (steps.value, steps.stated) == (50, False) and "where nobody states them" in steps.sentence()
    assert any("unet (UNet2DConditionModel) runs 50 times" in note for note in graph.notes)


def test_what_the_index_says_is_usual_goes_before_the_class(tmp_path: Path) -> None:
    pytest.importorskip("diffusers")
    whole = macs(perfpass.load(pipeline(tmp_path), assume={"steps": 1}), "unet")  # guided: twice the batch
    index = tmp_path / "model_index.json"
    content = json.loads(index.read_text())

    def loaded(**usual: Any) -> Any:
        index.write_text(json.dumps(content | {"_usual": usual}))
        return perfpass.load(tmp_path)

    graph = loaded(num_inference_steps=2, guidance_scale=0.0)
    assert graph.assumed[0].value == 2 and not graph.assumed[0].stated
    assert any("without guidance" in note for note in graph.notes) and macs(graph, "unet") == whole
    with pytest.raises(FormatError, match="maps arguments to numbers"):
        loaded(num_inference_steps="all")


def test_a_picture_by_the_name_of_its_pipeline(tmp_path: Path) -> None:
    pytest.importorskip("diffusers")
    found = perfpass.predict("stabilityai/sd-turbo", "rtx-4090", precision="fp16", assume={"steps": 2})
    assert set(found.breakdown["component_ms"]) == {"text_encoder", "unet", "vae"}
    assert any("2 steps, as stated" in reason for reason in found.support.reasons)
    asked = perfpass.load("sdxl-turbo", assume={"steps": 1})  # 512 x 512, as its U-Net was made for
    assert asked.shape(int(asked.graph_outputs[0])) == (1, 3, 512, 512)


def test_sizes_are_set_by_name_and_the_batch_scales_all(tmp_path: Path) -> None:
    pytest.importorskip("diffusers")
    path = pipeline(tmp_path)
    one = perfpass.load(path, dims={"height": 64, "width": 32}, assume={"steps": 1})
    two = perfpass.load(path, dims={"height": 64, "width": 32}, assume={"steps": 1}, batch=2)
    assert one.shape(int(one.graph_outputs[0])) == (1, 3, 64, 32)
    assert all(macs(two, part) == 2 * macs(one, part) for part in PARTS)
    with pytest.raises(ArgumentError, match="height, width, frames, tokens"):
        perfpass.load(path, dims={"sequence": 5})


def test_the_prediction_has_the_time_of_each_network(tmp_path: Path) -> None:
    pytest.importorskip("diffusers")
    found = perfpass.predict(pipeline(tmp_path), device="A100", precision="fp16", assume={"steps": 3})
    parts = found.breakdown["component_ms"]
    assert set(parts) == set(PARTS) and sum(parts.values()) == pytest.approx(
        sum(found.breakdown["latency_ms"].values())
    )
    assert parts["unet"] > parts["vae"] and found.latency_ms.low < found.latency_ms.median < found.latency_ms.high


def test_networks_that_are_not_counted_are_named(tmp_path: Path) -> None:
    pytest.importorskip("diffusers")
    more = {"safety_checker": ["stable_diffusion", "StableDiffusionSafetyChecker"], "image_encoder": [None, None]}
    graph = perfpass.load(pipeline(tmp_path, **more), assume={"steps": 1})
    assert any(note == "not counted: safety_checker (StableDiffusionSafetyChecker)" for note in graph.notes)


def test_code_of_a_repository_is_never_run(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="code of its own"):
        perfpass.load(pipeline(tmp_path, name=["my_pipeline", "MyPipeline"]))
    pytest.importorskip("diffusers")
    (tmp_path / "own").mkdir()
    parts = PARTS | {"unet": ("my_unet", "UNet2DConditionModel", UNET)}
    (tmp_path / "own" / "my_unet.py").write_text("raise SystemExit('run')")
    index = pipeline(tmp_path / "own", parts)
    perfpass.load(index, assume={"steps": 1})  # the class of diffusers of that name, not the repository's
    parts["unet"] = ("my_unet", "MyUNet", UNET)
    (tmp_path / "two").mkdir()
    with pytest.raises(UnsupportedError, match="run once a step"):
        perfpass.load(pipeline(tmp_path / "two", parts))


@pytest.mark.parametrize(
    ("part", "change", "error"),
    [
        ("unet", {"layers_per_block": 10**9}, LimitError),
        ("unet", {"block_out_channels": "wide"}, UnsupportedError),
        ("vae", {"up_block_types": ["Nothing"] * 2}, UnsupportedError),
        ("unet", {"block_out_channels": [1] * 5000}, LimitError),
        ("unet", {"sample_size": [16]}, UnsupportedError),
        (
            "unet",
            {"addition_embed_type": "text_time", "projection_class_embeddings_input_dim": 10}
            | {"addition_time_embed_dim": 256},
            UnsupportedError,
        ),
    ],
)
def test_configurations_that_cannot_be_built_are_refused(
    tmp_path: Path, part: str, change: dict[str, Any], error: type[Exception]
) -> None:
    pytest.importorskip("diffusers")
    library, kind, content = PARTS[part]
    with pytest.raises(error):
        perfpass.load(pipeline(tmp_path, PARTS | {part: (library, kind, content | change)}), assume={"steps": 1})


@pytest.mark.parametrize("text", ["[]", "{", '{"_class_name": 5}', '{"_class_name": "Nothing"}'])
def test_an_index_that_says_nothing_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "model_index.json").write_text(text)
    with pytest.raises((FormatError, UnsupportedError)):
        formats.named("diffusers").read(tmp_path, formats.Sizes())


def test_a_network_of_a_folder_has_a_name_and_another_is_refused_with_those_there_are(tmp_path):
    folder = pipeline(tmp_path)
    whole, unet = perfpass.load(str(folder)), perfpass.load(f"{folder}:unet")
    steps = next(a.value for a in whole.assumed if a.name == "steps")
    assert int(costs.count(unet).macs.sum()) * steps == macs(whole, "unet")
    assert unet.unasked == ("height", "width", "tokens") == whole.unasked
    assert perfpass.load(f"{folder}:unet", dims={"height": 64, "width": 64}).unasked == ("tokens",)
    with pytest.raises(UnsupportedError, match=r"did you mean unet.* its parts are text_encoder, unet, vae"):
        perfpass.load(f"{folder}:unett")


def test_a_whole_pipeline_is_not_trained(tmp_path):
    """A step of training runs the denoiser once; the pipeline's 7 with its decoder would be told hundreds of GB."""
    with pytest.raises(UnsupportedError, match=r"runs its denoiser 7 times.*give the denoiser alone"):
        perfpass.predict(pipeline(tmp_path), "rtx-4090", mode="training", assume={"steps": 7})


def test_a_decoder_that_its_pipeline_upcasts_is_planned_in_fp32_where_the_rest_is_in_fp16(tmp_path):
    first, second = dict(CLIP, projection_dim=16), dict(CLIP, projection_dim=16)
    unet = UNET | {
        "cross_attention_dim": 64,
        "addition_embed_type": "text_time",
        "addition_time_embed_dim": 8,
        "projection_class_embeddings_input_dim": 16 + 6 * 8,
    }
    parts = {
        "text_encoder": ("transformers", "CLIPTextModel", first),
        "text_encoder_2": ("transformers", "CLIPTextModelWithProjection", second),
        "unet": ("diffusers", "UNet2DConditionModel", unet),
    }
    found = {}
    for upcast in (True, False):
        vae = {"vae": ("diffusers", "AutoencoderKL", VAE | {"force_upcast": upcast})}
        folder = tmp_path / str(upcast)
        folder.mkdir()
        path = pipeline(folder, parts | vae, "StableDiffusionXLPipeline")
        found[upcast] = {p: perfpass.predict(str(path), "a100", precision=p) for p in ("fp16", "bf16")}
    alive = {(up, p): one.memory.alive.median for up, of in found.items() for p, one in of.items()}
    assert alive[True, "fp16"] > 1.2 * alive[False, "fp16"]
    assert alive[True, "bf16"] == alive[False, "bf16"] == alive[False, "fp16"]
    assert any("in fp32 beside fp16" in reason for reason in found[True]["fp16"].support.reasons)
    assert not any("in fp32 beside fp16" in reason for reason in found[True]["bf16"].support.reasons)


def test_t5_keeps_a_product_in_fp32_beside_fp16():
    t5 = {
        "model_type": "t5",
        "architectures": ["T5EncoderModel"],
        "d_model": 64,
        "d_kv": 16,
        "d_ff": 256,
        "num_layers": 2,
        "num_heads": 4,
        "vocab_size": 500,
        "feed_forward_proj": "gated-gelu",
    }
    graph = perfpass.load(t5)
    names = sorted(graph.string(int(graph.tensor_name[t])) for t in graph.single)
    assert names == [f"encoder.block.{n}.layer.1.DenseReluDense.wo.weight" for n in range(2)]
    half, brain = (
        perfpass.predict(t5, "a100", precision=p).breakdown["memory_bytes"]["weights"] for p in ("fp16", "bf16")
    )
    assert half - brain == 2 * 2 * 64 * 256
