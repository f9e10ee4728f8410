"""MACs agree with torch's own counter, and do not depend on the route that a network takes: torch, ONNX or onnx-tool.

A sample of `benchmarks/mac_agreement.py`, which runs over 100 and more architectures.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from mac_agreement import agreement, three_routes

SAMPLE = [
    ("torchvision", "shufflenet_v2_x1_0"),
    ("torchvision", "segmentation.lraspp_mobilenet_v3_large"),
    ("torchvision", "video.r3d_18"),
    ("timm", "swin_tiny_patch4_window7_224"),
    ("timm", "convnext_atto"),
    ("timm", "xcit_nano_12_p16_224"),
    ("transformers", "gpt2"),
    ("transformers", "llama-2-7b"),
    ("transformers", "t5-small"),
    ("transformers", "whisper-tiny"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("source", "name"), SAMPLE)
def test_macs_equal_those_of_torchs_own_counter(source, name):
    row = agreement(source, name)
    assert row["macs"] > 0 and row["agrees"], row


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "name", "most_bytes"),  # docs/research/mac-agreement.md: the file spells out attention and GELU
    [("torchvision", "squeezenet1_1", 1.1), ("timm", "resnet18d", 1.1), ("timm", "vit_tiny_patch16_224", 3.3)],
)
def test_macs_and_parameters_are_the_same_by_every_route(source, name, most_bytes, tmp_path):
    row = three_routes(source, name, tmp_path)
    assert row["macs_equal"] and row["parameters_equal"] and row["onnx_tool_equal"], row
    assert 0.9 <= row["bytes_ratio"] <= most_bytes
