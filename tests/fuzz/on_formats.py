"""Models' files of every format that Python reads; those that the core reads have targets in `cpp_kernels/fuzz`."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import struct
import zipfile
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import perfpass
from perfpass.errors import ShapeError
from perfpass.graph import OpGraph, costs
from perfpass.importers import formats, gguf, safetensors_header
from perfpass.importers.formats.coreml.layer_kinds import LAYERS as COREML_LAYERS
from perfpass.importers.formats.coreml.operators import KIND_OF as COREML_OPERATIONS
from perfpass.importers.formats.keras.operations import OPERATIONS
from perfpass.importers.formats.keras.table import LAYERS
from perfpass.importers.formats.ncnn.param import TYPES
from perfpass.importers.formats.openvino.operators import KIND_OF as OPENVINO_LAYERS
from perfpass.importers.formats.paddle.kinds import KIND_OF as PADDLE_OPERATORS
from perfpass.importers.formats.tensorflow.compute import COMPUTE
from perfpass.importers.formats.tensorflow.control import CONTROL
from perfpass.importers.formats.tensorflow.movement import MOVEMENT
from perfpass.importers.onnx import Input
from perfpass.llm import language_model

from .containers import BINARY, Archive, Framed, Named, Tokens, Wire, archived
from .documents import Json, Xml
from .mutations import as_json
from .oracle import figures, naming
from .target import ROOT, Form, Target, file, folder

FILES = ROOT / "tests" / "importers" / "files"
_READERS = Path("python/perfpass/importers/formats")
_OPEN = 16  # what an open size is set to
_UNSTATED = ((1, 3, 64, 64), (1, 20, 64), (1, 24))  # shapes for an input of which a file says nothing
_MOST_SEED_BYTES = 32_000  # what is longer is slow, and over the engine's limit once JSON is indented


def _graph(name: str) -> Callable[[bytes], None]:
    """Reads the bytes as a file of that name, with every open size set, and counts."""

    def run(data: bytes) -> None:
        path = file(name, data)
        with naming(path):
            graph = at_some_shape(path)
        figures(costs.count(graph).totals)

    return run


def at_some_shape(path: Path) -> OpGraph:
    """The graph of a model at the first of the shapes that it takes, open sizes set. Raises as `perfpass.load`."""
    found = formats.recognised(formats.Content.of(path))
    declared: Sequence[Input] = found.inputs(path) if found else ()
    unstated = _UNSTATED if any(i.shape is None for i in declared) else _UNSTATED[:1]
    is_open = any(i.shape is None or not all(isinstance(d, int) for d in i.shape) for i in declared)
    for shape in unstated:
        shapes = {i.name: shape if i.shape is None else [_size(d) for d in i.shape] for i in declared}
        try:
            return perfpass.load(path, input_shape=shapes if is_open else None)
        except ShapeError:
            if shape == unstated[-1]:
                raise
    raise AssertionError("no shape to try")


def _size(declared: int | str) -> int:
    return declared if isinstance(declared, int) else _OPEN


def modules(*patterns: str) -> tuple[str, ...]:
    found = [path for pattern in patterns for path in sorted((ROOT / _READERS).glob(pattern))]
    return tuple(str(path.relative_to(ROOT)) for path in found if path.name != "__init__.py")


def of_files(*patterns: str) -> Callable[[], list[bytes]]:
    @cache
    def seeds() -> list[bytes]:
        paths = [path for pattern in patterns for path in sorted(FILES.glob(pattern))]
        found = [gzip.decompress(p.read_bytes()) if p.suffix == ".gz" else p.read_bytes() for p in paths]
        return [data for data in found if len(data) <= _MOST_SEED_BYTES]

    return seeds


@cache
def _keras_archives() -> list[bytes]:
    """The archives without their weights."""
    found = []
    for path in sorted(FILES.glob("*.keras")):
        with zipfile.ZipFile(path) as archive:
            found.append(archived({n: archive.read(n) for n in ("metadata.json", "config.json")}))
    return found


@cache
def _torch_archives(exported: bool) -> list[bytes]:
    import torch

    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 5)
    ).eval()
    image, stream = torch.zeros(1, 3, 8, 8), io.BytesIO()
    if exported:
        torch.export.save(torch.export.export(network, (image,)), stream)
    else:
        torch.jit.save(torch.jit.trace(network, image), stream)
    with zipfile.ZipFile(stream) as archive:
        return [archived({name: archive.read(name) for name in archive.namelist()})]


_TENSOR = {"Name": "x", "Dimensions": [2, 3, 32, 32], "Format/Datatype": "Row major linear FP32"}
_ENGINE = {
    "Layers": [
        {"Name": "copy", "LayerType": "Reformat", "Inputs": [_TENSOR], "Outputs": [{**_TENSOR, "Name": "a"}]},
        {"Name": "conv", "LayerType": "CaskConvolution", "Inputs": [{**_TENSOR, "Name": "a"}],
         "Outputs": [{**_TENSOR, "Name": "b", "Dimensions": [2, 16, 32, 32]}], "ParameterType": "Convolution",
         "Kernel": [3, 3], "PrePadding": [1, 1], "PostPadding": [1, 1], "Stride": [1, 1], "Dilation": [1, 1],
         "OutMaps": 16, "Groups": 1, "Weights": {"Type": "Half", "Count": 432}, "Bias": {"Type": "Half", "Count": 16},
         "Activation": "RELU"},
        {"Name": "pool", "LayerType": "CaskPooling",
         "Inputs": [{**_TENSOR, "Name": "b", "Dimensions": [2, 16, 32, 32]}],
         "Outputs": [{**_TENSOR, "Name": "c", "Dimensions": [2, 16, 1, 1]}], "ParameterType": "Pooling",
         "PoolingType": "AVERAGE", "WindowSize": [32, 32], "Stride": [1, 1]},
        {"Name": "product", "LayerType": "MatrixMultiply", "ParameterType": "MatrixMultiply", "OpA": "NONE",
         "OpB": "NONE", "Inputs": [{**_TENSOR, "Name": "d", "Dimensions": [2, 16]},
                                   {**_TENSOR, "Name": "w", "Dimensions": [16, 10]}],
         "Outputs": [{**_TENSOR, "Name": "scores", "Dimensions": [2, 10]}]},
    ],
    "Bindings": ["x", "scores"],
}  # fmt: skip


@cache
def _gguf_files() -> list[bytes]:
    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    sizes = {"block_count": 1, "embedding_length": 64, "feed_forward_length": 128, "context_length": 512}
    sizes |= {"attention.head_count": 4, "attention.head_count_kv": 2}
    keys = [text("general.architecture") + struct.pack("<I", 8) + text("llama")]
    keys += [text(f"llama.{name}") + struct.pack("<II", 4, value) for name, value in sizes.items()]
    shapes = {"token_embd": (64, 100), "output": (64, 100), "output_norm": (64,), "blk.0.attn_norm": (64,)}
    shapes |= {"blk.0.attn_q": (64, 64), "blk.0.attn_k": (64, 32), "blk.0.attn_v": (64, 32), "blk.0.ffn_norm": (64,)}
    shapes |= {"blk.0.attn_output": (64, 64), "blk.0.ffn_gate": (64, 128), "blk.0.ffn_up": (64, 128)}
    shapes |= {"blk.0.ffn_down": (128, 64)}
    listed, at = [], 0
    for name, dims in shapes.items():
        listed.append(text(f"{name}.weight") + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, 0, at))
        at += 4 * dims[0] * (dims[1] if len(dims) > 1 else 1)
    return [b"GGUF" + struct.pack("<IQQ", 3, len(listed), len(keys)) + b"".join(keys + listed)]


def _gguf(data: bytes) -> None:
    path = file("model.gguf", data)
    with naming(path):
        found = gguf.read(path)
        figures({"parameters": found.elements, "bytes": found.weight_bytes})
        model = language_model(path)
    figures({"parameters": model.parameters})


_HEADER = {
    "__metadata__": {"format": "pt"},
    "model.embed_tokens.weight": {"dtype": "F16", "shape": [100, 64], "data_offsets": [0, 12800]},
    "model.norm.weight": {"dtype": "F32", "shape": [64], "data_offsets": [12800, 13056]},
}


@cache
def _headers() -> list[bytes]:
    text = as_json(_HEADER)
    return [len(text).to_bytes(8, "little") + text]


def _safetensors(data: bytes) -> None:
    path = file("model.safetensors", data)
    with naming(path):
        found = safetensors_header.read(path)
    figures({"bytes": found.bytes, "elements": found.elements})


_PIPELINE = {
    "model_index.json": {
        "_class_name": "StableDiffusionPipeline", "_diffusers_version": "0.42.1",
        "unet": ["diffusers", "UNet2DConditionModel"],
        "vae": ["diffusers", "AutoencoderKL"], "text_encoder": ["transformers", "CLIPTextModel"],
        "scheduler": ["diffusers", "PNDMScheduler"],
    },
    "text_encoder": {
        "model_type": "clip_text_model", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "vocab_size": 1000, "projection_dim": 32,
    },
    "unet": {
        "sample_size": 16, "block_out_channels": [32, 64], "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"],
        "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"], "cross_attention_dim": 32, "layers_per_block": 1,
        "attention_head_dim": 4,
    },
    "vae": {
        "block_out_channels": [32, 64], "down_block_types": ["DownEncoderBlock2D", "DownEncoderBlock2D"],
        "up_block_types": ["UpDecoderBlock2D", "UpDecoderBlock2D"], "latent_channels": 4,
    },
}  # fmt: skip


def _pipeline(data: bytes) -> None:
    """A pipeline's index and the configurations of its networks, in one document."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return
    where = folder() / "pipeline"
    shutil.rmtree(where, ignore_errors=True)
    for name, part in content.items() if isinstance(content, dict) else ():
        if name in _PIPELINE:
            path = where / (name if name.endswith(".json") else f"{name}/config.json")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(as_json(part))
    figures(costs.count(perfpass.load(where)).totals)


_JSON = Json()


def target(name: str, seeds: Callable[[], list[bytes]], form: Form, modules: tuple[str, ...], ending: str) -> Target:
    return Target(name, _graph(f"model.{ending}"), seeds, form, modules)


TARGETS: tuple[Target, ...] = (
    target(
        "keras-archive",
        _keras_archives,
        Archive({"config.json": Named(_JSON, (*LAYERS, *OPERATIONS))}),
        modules("keras/*.py"),
        "keras",
    ),
    target("keras-hdf5", of_files("*.h5"), BINARY, modules("keras/hdf5.py"), "h5"),
    target(
        "tensorflow",
        of_files("*.saved_model/saved_model.pb", "frozen.pb"),
        Wire((*COMPUTE, *MOVEMENT, *CONTROL)),
        modules("tensorflow/*.py", "protobuf.py"),
        "pb",
    ),
    target(
        "openvino",
        of_files("ov_block.xml", "ov_control.xml", "ov_lstm.xml", "ov_*_fp16.xml", "ov_*_int4.xml"),
        Named(Xml(), tuple(OPENVINO_LAYERS)),
        modules("openvino/*.py"),
        "xml",
    ),
    target(
        "paddle-pir",
        of_files("paddle/*.json.gz"),
        Named(_JSON, tuple(f"1.{name}" for name in PADDLE_OPERATORS)),
        modules("paddle/*.py"),
        "json",
    ),
    target(
        "paddle-program",
        of_files("paddle/*.pdmodel.gz"),
        Wire(tuple(PADDLE_OPERATORS)),
        modules("paddle/program_desc.py"),
        "pdmodel",
    ),
    target(
        "coreml",
        of_files("*.mlmodel", "*.mlpackage/Data/com.apple.CoreML/model.mlmodel"),
        Wire(tuple(COREML_OPERATIONS), tuple(COREML_LAYERS)),
        modules("coreml/*.py"),
        "mlmodel",
    ),
    target("ncnn", of_files("ncnn/*.param"), Named(Tokens(), TYPES), modules("ncnn/*.py"), "param"),
    target("tensorrt", lambda: [as_json(_ENGINE)], _JSON, modules("tensorrt.py"), "json"),
    Target("gguf", _gguf, _gguf_files, BINARY, ("python/perfpass/importers/gguf.py",)),
    Target("safetensors", _safetensors, _headers, Framed(_JSON), ("python/perfpass/importers/safetensors_header.py",)),
)
if find_spec("torch"):
    _CODE = Tokens()
    TARGETS += (
        target(
            "torch-export",
            lambda: _torch_archives(True),
            Archive({"*.json": _JSON}),
            modules("torch_export.py", "torch_replay.py", "archive.py"),
            "pt2",
        ),
        target(
            "torchscript",
            lambda: _torch_archives(False),
            Archive({"*/code/*.py": _CODE, "*.pkl": BINARY}),
            modules("torchscript.py", "script_*.py"),
            "pt",
        ),
    )
if find_spec("diffusers"):
    TARGETS += (
        Target("diffusers", _pipeline, lambda: [as_json(_PIPELINE)], _JSON, modules("diffusers/*.py"), seconds=60),
    )
if find_spec("jaxlib"):
    TARGETS += (target("mlir-bytecode", of_files("*.jax"), BINARY, modules("stablehlo.py"), "jax"),)
