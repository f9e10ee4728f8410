"""Networks that `perfpass measure` builds: domains beyond classification, and their inputs."""

from __future__ import annotations

import json

import pytest
import torch

from perfpass.errors import UnsupportedError
from perfpass.measure import models, networks
from perfpass.measure.configuration import Configuration
from perfpass.records.own_device import graph_of

SMALL = ("mlp-mnist", "deepfm", "neumf", "lstm-small", "tcn", "espcn-x3", "pointnet", "hifigan-v2", "unet-2d-thin")


@pytest.mark.parametrize("name", SMALL)
def test_a_network_runs_on_its_own_inputs_and_has_a_graph(name):
    configuration = Configuration(model=f"net:{name}", batch=2)
    built = models.build(configuration, "meta")
    inputs = built.inputs(configuration, "meta")
    with torch.no_grad():
        output = built.positional(tuple(inputs))(*inputs.values())
    assert output.shape[0] == 2
    graph = graph_of(configuration)
    assert graph.node_count > 0
    weights = 4 * built.parameters
    assert 0.9 * weights < sum(4 * p.numel() for p in built.module.parameters()) <= weights


def test_every_network_can_be_made():
    assert len(networks.NAMES) >= 20
    for name in networks.NAMES:
        with torch.device("meta"):
            module, inputs = networks.build(name, Configuration(model=f"net:{name}"))
        assert inputs
        assert any(True for _ in module.parameters())
    with pytest.raises(UnsupportedError, match="known are"):
        networks.build("no-such", Configuration(model="net:no-such"))


def test_a_definition_of_one_image_is_built_and_others_are_refused():
    configuration = Configuration(model="definitions:yolov5n", image_size=64)
    built = models.build(configuration, "cpu")
    with torch.no_grad():
        assert built.module(**built.inputs(configuration, "cpu")).shape == (1, 252, 85)
    assert graph_of(configuration).node_count > 100
    with pytest.raises(UnsupportedError, match="reads no single image"):
        models.build(Configuration(model="definitions:dlrm-small"), "cpu")


@pytest.mark.parametrize(
    ("name", "outputs"),
    [("retinanet_resnet50_fpn", 2), ("fasterrcnn_mobilenet_v3_large_320_fpn", None), ("lraspp_mobilenet_v3_large", 1)],
)
def test_detectors_and_segmenters_run_up_to_their_heads(name, outputs):
    configuration = Configuration(model=f"torchvision:{name}", image_size=128)
    built = models.build(configuration, "meta")
    with torch.no_grad():
        found = built.positional(("x",))(torch.zeros(1, 3, 128, 128, device="meta"))
    found = found if isinstance(found, tuple) else (found,)
    assert all(isinstance(x, torch.Tensor) for x in found)
    assert outputs is None or len(found) == outputs


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ({"model_type": "vit", "num_hidden_layers": 1}, {"pixel_values": (3, 224, 224)}),
        ({"model_type": "wav2vec2", "num_hidden_layers": 1}, {"input_values": (4000,)}),
        ({"model_type": "whisper", "encoder_layers": 1}, {"input_features": (80, 3000), "decoder_input_ids": (32,)}),
    ],
)
def test_images_and_sound_are_made_from_the_configuration(content, names, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(content))
    configuration = Configuration(model=f"hf:{tmp_path}", sequence_length=4000 if "wav2vec2" in str(content) else None)
    built = models.build(configuration, "meta")
    inputs = built.inputs(configuration, "meta")
    assert {name: tuple(x.shape[1:]) for name, x in inputs.items()} == names
