"""Instance types of clouds: each gives the GPU it has, says so, and is found however it is punctuated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfpass.cli.entry import main
from perfpass.devices import device
from perfpass.devices.clouds import instance, instance_names
from perfpass.errors import DeviceError

RESNET = Path(__file__).parents[2] / "examples" / "resnet50.onnx"

UNDERSTOOD = {
    "g5.xlarge": ("a10g", "g5.xlarge (AWS): 1 x NVIDIA A10G"),
    "g4dn.xlarge": ("t4", "g4dn.xlarge (AWS): 1 x NVIDIA Tesla T4"),
    "p3.2xlarge": ("v100-sxm2-16gb", "p3.2xlarge (AWS): 1 x NVIDIA Tesla V100-SXM2-16GB"),
    "p4d.24xlarge": ("a100-sxm4-40gb", "8 x NVIDIA A100-SXM4-40GB; the figures are those of one"),
    "p4de.24xlarge": ("a100-sxm4-80gb", "8 x NVIDIA A100-SXM4-80GB"),
    "ml.p5.48xlarge": ("h100-sxm5-80gb", "8 x NVIDIA H100 80GB HBM3"),
    "p5e": ("h200-sxm-141gb", "8 x NVIDIA H200"),
    "p5en": ("h200-sxm-141gb", "8 x NVIDIA H200"),
    "p6-b200": ("b200-sxm-180gb", "8 x NVIDIA B200"),
    "g6.xlarge": ("l4", "1 x NVIDIA L4"),
    "g6e": ("l40s", "g6e (AWS): NVIDIA L40S, by the name of the family"),
    "a2-highgpu-1g": ("a100-sxm4-40gb", "a2-highgpu-1g (Google Cloud): 1 x NVIDIA A100-SXM4-40GB"),
    "a2-ultragpu-1g": ("a100-sxm4-80gb", "1 x NVIDIA A100-SXM4-80GB"),
    "a3-highgpu-8g": ("h100-sxm5-80gb", "8 x NVIDIA H100 80GB HBM3"),
    "a3-megagpu": ("h100-sxm5-80gb", "8 x NVIDIA H100 80GB HBM3"),
    "a3-ultragpu": ("h200-sxm-141gb", "8 x NVIDIA H200"),
    "a4-highgpu": ("b200-sxm-180gb", "8 x NVIDIA B200"),
    "g2-standard-4": ("l4", "1 x NVIDIA L4"),
    "v6e-8": ("tpu-v6e", "8 x Google TPU v6e"),
    "Standard_NC24ads_A100_v4": ("a100-pcie-80gb", "Standard_NC24ads_A100_v4 (Azure): 1 x NVIDIA A100 80GB PCIe"),
    "Standard_NC40ads_H100_v5": ("h100-nvl-94gb", "1 x NVIDIA H100 NVL"),
    "Standard_ND96asr_v4": ("a100-sxm4-40gb", "8 x NVIDIA A100-SXM4-40GB"),
    "Standard_ND96amsr_A100_v4": ("a100-sxm4-80gb", "8 x NVIDIA A100-SXM4-80GB"),
    "standard nd96isr h100 v5": ("h100-sxm5-80gb", "8 x NVIDIA H100 80GB HBM3"),
    "ND_H200_v5": ("h200-sxm-141gb", "8 x NVIDIA H200"),
    "NC4as_T4_v3": ("t4", "1 x NVIDIA Tesla T4"),
    "NV36ads_A10_v5": ("a10", "1 x NVIDIA A10"),
    "BM.GPU.H100.8": ("h100-sxm5-80gb", "8 x NVIDIA H100 80GB HBM3"),
    "BM.GPU.MI300X.8": ("mi300x", "8 x AMD Instinct MI300X"),
    "gpu_1x_a10": ("a10", "gpu_1x_a10 (Lambda): 1 x NVIDIA A10"),
    "8x A100 80GB": ("a100-sxm4-80gb", "8 x NVIDIA A100-SXM4-80GB; the figures are those of one"),
}


@pytest.mark.parametrize(("name", "expected"), UNDERSTOOD.items())
def test_an_instance_type_gives_its_gpu_and_says_so(name, expected):
    found = device(name)
    assert found.id == expected[0]
    assert expected[1] in found.notes[-1]


def test_every_instance_type_names_a_device_of_the_catalogue():
    assert len(instance_names()) > 150
    for name in instance_names():
        known = instance(name)
        assert known is not None and known.name == name, name  # no two types of one spelling
        assert device(known.device).id == known.device, name
        assert len(known.source) > 8


@pytest.mark.parametrize("name", ["NV6ads_A10_v5", "Standard_NV12ads_A10_v5", "g6f.xlarge"])
def test_a_share_of_a_gpu_is_told_and_not_predicted(name):
    with pytest.raises(DeviceError, match=r"has 1/\d of an NVIDIA (A10|L4).*ask for (a10|l4), the whole GPU"):
        device(name)


def test_a_near_miss_is_answered_with_instance_types_too():
    with pytest.raises(DeviceError, match=r"did you mean .*g5\.xlarge"):
        device("g5.xlarg")
    with pytest.raises(DeviceError, match="a2-highgpu"):
        device("a2-highgpu-3g")


def test_an_instance_type_can_be_partitioned():
    found = device("p4d.24xlarge:1g.5gb")
    assert found.id == "a100-sxm4-40gb:1g.5gb"
    assert any("8 x NVIDIA A100-SXM4-40GB" in note for note in found.notes)


def test_the_command_shows_what_was_understood(capsys):
    assert main(["devices", "g5.xlarge"]) == 0
    assert "g5.xlarge (AWS): 1 x NVIDIA A10G" in capsys.readouterr().out
    assert main(["devices", "g5.xlarge", "--json"]) == 0
    assert "g5.xlarge (AWS): 1 x NVIDIA A10G" in json.loads(capsys.readouterr().out)["notes"]
    assert main(["predict", str(RESNET), "--device", "g5.xlarge", "--json"]) == 0
    told = capsys.readouterr()
    assert told.err == "perfpass: g5.xlarge (AWS): 1 x NVIDIA A10G\n"
    assert json.loads(told.out)["provenance"]["device"]["id"] == "a10g"
