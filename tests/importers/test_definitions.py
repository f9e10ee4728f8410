"""Networks that are defined here have the size that is published of them, and are asked by name like any other."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import perfpass
from perfpass.errors import ArgumentError, FileError
from perfpass.importers import library_names, torchvision_schemas
from perfpass.importers.definitions import definition, named, names
from perfpass.importers.model_argument import understood

RESNET = Path(__file__).resolve().parents[2] / "examples" / "resnet50.onnx"
# Multiplications of one image at the definition's own size, as their authors state them.
MACS = {
    "yolov5s": 8.25e9, "yolov8n": 4.35e9, "yolov8x": 128.9e9, "yolox-s": 13.4e9, "yolov3": 32.9e9, "yolo11n": 3.25e9,
    "yolo11x": 97.5e9,
    "efficientdet-d0": 2.5e9, "efficientdet-d3": 25e9, "gpunet-0": 3.25e9, "res2net101-vd": 8.33e9,
    "resnest50-fast": 4.34e9,
}  # fmt: skip


def library():
    """Timm, which some backbones are of."""
    pytest.importorskip("torch")
    torchvision_schemas.define()
    return pytest.importorskip("timm")


def macs(graph: perfpass.OpGraph) -> float:
    from perfpass.graph import costs

    return float(costs.count(graph).macs.sum())


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    """No name may lead to the net."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.mark.parametrize("name", [name for name in names() if definition(name).parameters])
def test_parameters_are_those_that_are_stated(name):
    library()
    own = definition(name)
    found = sum(p.numel() for p in own.module().parameters())
    if name.startswith("wide-and-deep"):
        assert found == pytest.approx(own.parameters, rel=0.2)  # "some 90 million"
    else:
        assert found == pytest.approx(own.parameters, rel=0.035)


@pytest.mark.parametrize(("name", "stated"), MACS.items())
def test_multiplications_are_those_that_are_stated(name, stated):
    library()
    assert macs(perfpass.load(name)) == pytest.approx(stated, rel=0.02)


def test_a_unet_of_parts_and_a_fused_one_multiply_alike():
    pytest.importorskip("torch")
    from perfpass.importers.torch import trace_owned

    fused = definition("stable-diffusion-1.5-unet")
    with_parts = definition("stable-diffusion-1.5-20-steps+eager").module().unet  # type: ignore[operator]
    parts = trace_owned(with_parts, fused.inputs(512, 512), batch=1)
    assert macs(parts) == macs(fused.tracer(512, 512)(1))


@pytest.mark.parametrize(
    ("name", "kind", "means"),
    [
        ("resnet50", "torchvision", "resnet50"),
        ("vit_base_patch16_224", "timm", "vit_base_patch16_224"),
        ("ConvNeXtV2_tiny.fcmae_ft_in1k", "timm", "convnextv2_tiny.fcmae_ft_in1k"),
        ("vit_b_16", "torchvision", "vit_b_16"),
        ("YOLOv8n", "definitions", "yolov8n"),
        ("YOLO-v5-s", "definitions", "yolov5s"),
        ("yolo11m", "definitions", "yolo11m"),
        ("YOLOv12-x", "definitions", "yolo12x"),
        ("fasterrcnn_resnet50_fpn", "definitions", "faster-rcnn-resnet50"),
        ("EfficientDet_D0", "definitions", "efficientdet-d0"),
        ("dlrm-small", "definitions", "dlrm-small"),
        ("bert-base-uncased", "hf", "google-bert/bert-base-uncased"),
        ("google/vit-base-patch16-224", "hf", "google/vit-base-patch16-224"),
    ],
)
def test_a_name_means_a_network(name, kind, means):
    found = understood(name)
    assert (found.kind, found.name) == (kind, means)


def test_names_of_libraries_are_those_that_they_have():
    timm = library()
    listed = [name for name, library in library_names.names().items() if library == "timm"]
    assert len(listed) > 1300
    if timm.__version__ == "1.0.31":
        assert set(listed) == set(timm.list_models())


def test_definitions_hide_no_model_of_the_catalogue():
    from perfpass.importers.configuration_names import known

    assert not [name for name in known() if named(name) or library_names.library(name)]


def test_a_file_of_that_name_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(RESNET, tmp_path / "yolov8n")
    assert understood("yolov8n").kind == "onnx"


@pytest.mark.parametrize(
    ("name", "like"),
    [("yolov8q", "yolov8"), ("efficientnet_b9", "efficientnet_b"), ("stable-difusion-xl-unet", "stable-diffusion-xl")],
)
def test_a_near_miss_is_answered_with_the_nearest(name, like):
    with pytest.raises(FileError, match=f"did you mean .*{like}"):
        understood(name)


def test_a_pipeline_by_steps_is_that_of_the_records():
    assert named("stable-diffusion-1.5-20-steps") == ""


def test_the_size_of_a_definition_is_a_dimension():
    library()
    small, large = (macs(perfpass.load("yolov5n", dims={"image_size": size})) for size in (320, 640))
    assert large == pytest.approx(4 * small, rel=0.01)
    assert macs(perfpass.load("gnmt", dims={"sequence_length": 16})) < macs(perfpass.load("gnmt"))
    with pytest.raises(ArgumentError, match="allowed is image_size"):
        perfpass.load("yolov5n", dims={"sequence_length": 8})
    with pytest.raises(ArgumentError, match="inputs are of fixed shapes"):
        perfpass.load("dlrm-small", dims={"image_size": 8})
    with pytest.raises(ArgumentError, match="leave input_shape out"):
        perfpass.load("yolov5n", input_shape={"x": (1, 3, 64, 64)})


def test_a_name_is_predicted_like_a_file():
    pytest.importorskip("transformers")
    for name in ("bert-base-uncased", "yolov5n", "resnet18"):
        found = perfpass.predict(name, "a100-sxm4-40gb", batch=4, precision="fp16")
        assert found.latency_ms.low < found.latency_ms.median < found.latency_ms.high
    step = perfpass.predict("efficientdet-d0", "a100-sxm4-40gb", batch=4, mode="training")
    assert step.latency_ms.median > 3
