"""Records of whole networks of vision, and of energy: what each reader keeps, infers and refuses."""

from __future__ import annotations

import pytest

from network_sources import NONE, rows_of, written
from perfpass.records.readers import co2_inference, detectron2, mmdeploy, openmmlab, paddle_zoo, vision_pages
from perfpass.records.schema import INPUT_COPIED


@pytest.mark.parametrize(
    ("name", "network"),
    [("ResNet50_vd_ssld", "resnet50d"), ("VGG16", "vgg16"), ("EfficientNetB3", "efficientnet_b3"), ("PP-YOLO", "")],
)
def test_paddles_names_become_ours_where_the_definition_is_known(name, network):
    assert paddle_zoo.network_of(name) == network


def test_vision_zoos_refuse_what_names_no_device_or_is_half_a_step(tmp_path):
    written(
        tmp_path,
        "paddle_model_zoo/infer_latency.parquet",
        repo="PaddleClas",
        source_file="a.md",
        section="s",
        device=["NVIDIA V100", "NVIDIA Jetson", "NVIDIA T4"],
        device_as_reported=["GPU, FP32+TensorRT (figures of the page say V100)", "", ""],
        framework="Paddle Inference",
        model="ResNet50",
        backbone=None,
        task="Clas",
        precision=["fp32", "fp32", "fp16"],
        batch_size=["1", "1", "4"],
        threads=None,
        image_size="224",
        column="time(ms)",
        latency_ms=[2.0, 3, 4],
        throughput_samples_per_s=[NONE] * 3,
        latency_basis="reported",
    )
    reading = paddle_zoo.read(tmp_path)
    rows = rows_of(reading)
    assert dict(reading.refused) == {"the board is not named": 1}
    assert list(rows.device_from) == ["inferred", "stated"] and list(rows.runtime) == ["paddle+tensorrt", "paddle"]
    assert list(rows.timing) == [INPUT_COPIED, "not stated"]
    written(
        tmp_path,
        "mmdeploy/latency.csv",
        model=["ResNet", "FCN"],
        config="https://h/configs/resnet/r.py",
        device=["NVIDIA T4", "NVIDIA Jetson Nano 2GB"],
        device_as_reported="T4",
        framework="TensorRT",
        task=["mmpretrain", "mmseg"],
        precision="int8",
        batch_size=1,
        image_size=["224x224", "1x3x512x1024"],
        latency_ms=[1.2, 30.0],
        source_file="b.md",
    )
    rows = rows_of(mmdeploy.read(tmp_path))
    assert list(rows.listed) == [True, True] and list(rows.img_width) == [224, 1024] and rows.img_height[1] == 512
    assert rows.architecture[0] == "configs/resnet/r.py"
    written(
        tmp_path,
        "vision_misc/latency.csv",
        repo="jcjohnson/cnn-benchmarks@83",
        source_file="README.md",
        device="NVIDIA GeForce GTX 1080",
        device_as_reported="GTX 1080",
        n_gpus=1,
        framework="Torch7 cuDNN 5.1.05",
        model="VGG-16",
        task="image classification",
        mode=["infer", "backward only", "train (forward+backward)"],
        precision="fp32",
        batch_size=16,
        image_size="224",
        latency_ms=[40.0, 90, 130],
        latency_basis="one batch",
        throughput_samples_per_s=NONE,
    )
    reading = vision_pages.read(tmp_path)
    rows = rows_of(reading)
    assert dict(reading.refused) == {"a backward pass alone": 1} and list(rows["mode"]) == ["inference", "training"]
    assert rows.caveats[1] == "no_optimizer_step" and set(rows.network) == {"vgg16"} and set(rows.licence) == {"MIT"}


def training_of_openmmlab(root):
    return written(
        root,
        "openmmlab_model_zoo/train.parquet",
        repo="open-mmlab/mmyolo@8",
        source_file="r",
        config="c",
        model_family="f",
        model=["a", "b"],
        img_size=["640", "640"],
        task="detection",
        device="NVIDIA A100",
        device_as_reported="",
        precision=["fp16 (AMP)", "fp32"],
        n_gpus=8.0,
        batch_size_per_gpu=[16.0, NONE],
        batch_basis=["config name (file differs)", ""],
        memory_mib=5120.0,
        latency_ms=NONE,
        test_or_train_scale_in_config="(640, 640)",
    )


def test_networks_of_segmentation_were_timed_in_fp32_and_some_by_windows(tmp_path):
    written(
        tmp_path,
        "openmmlab_model_zoo/infer.csv",
        repo="open-mmlab/mmsegmentation@8",
        source_file="r",
        config=["fcn_fp16_cityscapes", "fcn_480x480_pascal_context"],
        model_family="fcn",
        model=["a", "b"],
        img_size=["512x1024", "480x480"],
        task="semantic segmentation",
        device="NVIDIA V100",
        device_as_reported=None,
        framework="PyTorch eager",
        precision=["fp16", "fp32"],
        batch_size_per_gpu=1.0,
        throughput_samples_per_s=[2.66, 9.93],
        latency_ms=[375.9, 100.7],
        latency_basis="derived from fps",
        test_or_train_scale_in_config=["(2048, 1024)", "(520, 520)"],
    )
    training_of_openmmlab(tmp_path)
    rows = rows_of(openmmlab.read(tmp_path))
    timed = rows[rows["mode"] == "inference"]
    assert set(timed.precision) == {"fp32"}
    assert ["sliding_window" in c for c in timed.caveats] == [False, True]


def test_detection_zoos_say_what_is_inside_the_time(tmp_path):
    written(
        tmp_path,
        "openmmlab_model_zoo/infer.csv",
        repo="open-mmlab/mmyolo@8",
        source_file="r",
        config="c",
        model_family="f",
        model=["a", "b", "c"],
        img_size=None,
        task="detection",
        device=["NVIDIA V100", "NVIDIA T4", "not stated"],
        device_as_reported=None,
        framework=["PyTorch eager", "TensorRT", "PyTorch eager"],
        precision=["fp32", "fp16", "fp32"],
        batch_size_per_gpu=1.0,
        throughput_samples_per_s=[20.0, NONE, 20.0],
        latency_ms=[50.0, 2.0, 50.0],
        latency_basis=["derived from fps", "trt", "derived from fps"],
        test_or_train_scale_in_config="(1333, 800)",
    )
    training_of_openmmlab(tmp_path)
    reading = openmmlab.read(tmp_path)
    rows = rows_of(reading)
    assert dict(reading.refused) == {"no device stated": 1, "training: no batch stated": 1}
    assert list(rows.precision_from[:2]) == ["inferred", "stated"] and "post_processing" in rows.caveats[0]
    assert (rows.img_height[0], rows.img_width[0]) == (800, 1333) and rows.device[0] == "v100-sxm2-32gb"
    training = rows[rows["mode"] == "training"].iloc[0]
    assert (training.batch, training.n_devices, training.batch_scope) == (16, 8, "device")
    assert (training.memory_kind, training.peak_memory_bytes) == ("allocated", 5120 * 2**20)
    assert (training.precision, training.img_height) == ("amp", 640) and "batch_of_the_name" in training.caveats
    written(
        tmp_path,
        "detectron2_model_zoo/model_zoo.csv",
        repo="detectron2@0",
        source_file="MODEL_ZOO.md",
        section="s",
        device="NVIDIA V100",
        device_as_reported="Big Basin",
        task="detection",
        model="R50-FPN",
        config="configs/a.yaml",
        mode=["train", "infer"],
        n_gpus=[8, 1],
        global_batch_size=[16, 1],
        precision="fp32",
        latency_ms=[200.0, 40.0],
        memory_mib=[5120.0, NONE],
    )
    rows = rows_of(detectron2.read(tmp_path))
    assert list(rows.batch) == [2, 1] and list(rows.n_devices) == [8, 1] and rows.memory_kind[0] == "allocated"


def test_the_energy_of_a_query_is_without_the_idle_boards(tmp_path):
    written(
        tmp_path,
        "co2_inference/runs.parquet",
        source_file="f.csv",
        device="NVIDIA A100-SXM4-80GB",
        device_as_reported="8 x NVIDIA A100-SXM4-80GB",
        model="gpt2",
        task="textgen_oscar",
        run_id=["a", "b", "c"],
        timestamp="2023-09-08T13:00:43",
        query_duration_s=[10.0, 10.0, 10.0],
        query_gpu_energy_j=[5000.0, 4980.0, 6000.0],
        latency_ms_per_query_derived=[10.0, 10.1, 12.0],
    )
    reading = co2_inference.read(tmp_path)
    (row,) = rows_of(reading).itertuples()
    assert row.latency_ms == 10.1 and row.energy_j == pytest.approx((5000 - 3980) / 1000)
    assert row.network == "gpt2" and row.n_samples == 3000 and "generation_length_not_fixed" in row.caveats
    assert dict(reading.refused) == {"repeats a measurement; the median is kept": 2}
