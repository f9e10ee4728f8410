"""Paddle's vision models and networks of paddle.nn, exported here as PIR; beside each the ONNX file of paddle2onnx."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from row import NotMadeError, Reading

import perfpass
from perfpass.errors import PerfPassError
from perfpass.graph import costs
from perfpass.importers import formats

TITLE = "PaddlePaddle"
PACKAGES = ("paddlepaddle", "paddle2onnx")
OPEN = 64  # what a size counts as that a program leaves open, the batch apart
_VISION = (
    "LeNet alexnet densenet121 densenet201 googlenet inception_v3 mobilenet_v1 mobilenet_v2 mobilenet_v3_large "
    "mobilenet_v3_small resnet18 resnet50 resnet101 resnext50_32x4d shufflenet_v2_x1_0 squeezenet1_0 squeezenet1_1 "
    "vgg16 wide_resnet50_2"
)
_OWN = "bert channels_last choosing detector gru llama lstm quantised unet video vit"
_CONVERT = "import sys, paddle2onnx; paddle2onnx.export(*sys.argv[1:4], opset_version=17, enable_onnx_checker=False)"


def models() -> list[str]:
    """Of paddle.vision.models, and of `paddle_networks`."""
    return [*_VISION.split(), *_OWN.split()]


def exported(name: str, to: str) -> Path:
    """The network's program. Raises NotMadeError."""
    import paddle
    from paddle.static import InputSpec
    from paddle_networks import networks, quantised

    if name in _VISION.split():
        size = (1, 28, 28) if name == "LeNet" else (3, 299, 299) if name == "inception_v3" else (3, 224, 224)
        network, declared = getattr(paddle.vision.models, name)(), [InputSpec([None, *size], "float32", "image")]
    else:
        network, declared = quantised() if name == "quantised" else networks()[name]
    network.eval()
    try:
        paddle.jit.save(network, to, input_spec=declared)
    except Exception as error:
        raise NotMadeError(f"paddle.jit.save: {error}") from error
    return Path(f"{to}.json")


def sizes(path: Path) -> dict[str, tuple[int, ...]]:
    """A size for every dimension of the program's inputs."""
    declared = formats.named("paddle").inputs(path)
    return {i.name: tuple(_size(axis, d) for axis, d in enumerate(i.shape or ())) for i in declared}


def converted(path: Path) -> Path | None:
    """The program's ONNX file beside it, made by a process of its own, which may abort; None where it is not made."""
    file = path.with_suffix(".onnx")
    arguments = [str(path), str(path.with_suffix(".pdiparams")), str(file)]
    subprocess.run([sys.executable, "-W", "ignore", "-c", _CONVERT, *arguments], capture_output=True, check=False)
    return file if file.exists() else None


def read(model: str) -> Reading:
    """The program, and what is counted on its ONNX file."""
    with tempfile.TemporaryDirectory() as folder:
        path = exported(model, f"{folder}/model")
        shapes = sizes(path)
        graph = perfpass.load(path, input_shape=shapes)
        file = converted(path)
        if file is None:
            return Reading(graph, explained="paddle2onnx cannot write it")
        try:
            found = costs.count(perfpass.load(file, input_shape=shapes)).totals
        except PerfPassError as error:
            return Reading(graph, explained=f"the ONNX file is not readable: {error}")
        return Reading(graph, found["macs"], found["parameters"])


def _size(axis: int, declared: Any) -> int:
    return declared if isinstance(declared, int) else 1 if axis == 0 else OPEN
