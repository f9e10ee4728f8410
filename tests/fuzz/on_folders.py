"""Models of several files, damaged in each of them, and files that say how others are read.

An input is a zip archive that is unpacked into a folder first.
"""

from __future__ import annotations

import io
import shutil
import zipfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import hostile_files as onnx_file
import perfpass
from perfpass import extensions
from perfpass.graph import costs
from perfpass.importers import operators, safetensors_header

from .containers import BINARY, Archive, Framed, Wire, archived
from .documents import Json, Toml, Xml
from .mutations import as_json
from .on_formats import FILES, at_some_shape, modules
from .oracle import figures, naming
from .target import Target, file, folder


def _unpacked(data: bytes, name: str) -> Path | None:
    """The folder ``name`` with the files of an archive, none of them outside it; None for what is no archive."""
    where = folder() / name
    shutil.rmtree(where, ignore_errors=True)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            where.mkdir()
            for entry in archive.infolist():
                if not entry.is_dir() and entry.file_size < 1 << 20:
                    archive.extract(entry, where)
    except Exception:  # a damaged archive, or names that no file can have
        return None
    return where


def _loaded(folder_name: str, model: str) -> Callable[[bytes], None]:
    """Reads the file ``model`` of an archive's files, or their folder where that is empty, and counts."""

    def run(data: bytes) -> None:
        where = _unpacked(data, folder_name)
        path = where / model if where else None
        if path is not None and path.exists():
            figures(costs.count(at_some_shape(path)).totals)

    return run


@cache
def _openvino() -> list[bytes]:
    return [
        archived({f"model.{end}": (FILES / f"{name}.{end}").read_bytes() for end in ("xml", "bin")})
        for name in ("ov_block_open", "ov_images_open")
    ]


@cache
def _packages() -> list[bytes]:
    inner = "Data/com.apple.CoreML/model.mlmodel"
    found = []
    for name in ("cm_block", "cm_control", "cm_rows_int4"):
        package = FILES / f"{name}.mlpackage"
        found.append(archived({part: (package / part).read_bytes() for part in ("Manifest.json", inner)}))
    return found


def _header(tensors: Mapping[str, list[int]]) -> bytes:
    entries, at = {}, 0
    for name, shape in tensors.items():
        size = 2 * shape[0] * shape[1]
        entries[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = as_json(entries)
    return len(text).to_bytes(8, "little") + text


@cache
def _sharded() -> list[bytes]:
    parts: dict[str, dict[str, list[int]]] = {
        "model-00001-of-00002.safetensors": {"a": [4, 8], "b": [8, 8]},
        "model-00002-of-00002.safetensors": {"c": [8, 2]},
    }
    index = {"metadata": {"total_size": 224}, "weight_map": {t: part for part, own in parts.items() for t in own}}
    files = {part: _header(own) for part, own in parts.items()}
    return [archived({safetensors_header.INDEX: as_json(index), **files})]


def _listed(data: bytes) -> None:
    where = _unpacked(data, "safetensors")
    if where is not None:
        found = safetensors_header.read(where)
        figures({"bytes": found.bytes, "elements": found.elements})


_OPERATORS = """\
[operator."mine::Gated"]
resembles = "dense"
outputs = [{ shape = ["x[0].shape[0]", "x[0].shape[1]", "max(units, ceil(x[1].bits / 3))"], dtype = "float16" }]
macs = "x[0].elements * units"
bytes_read = "x[0].bytes + x[1].bytes"
attributes = { groups = "1", kernel_0 = "x[0].rank - 2" }

[operator."mine::Twice"]
resembles = "gelu"
outputs = [{ like = "x[0]" }, { shape = ["x[0].shape[0] // 2"], dtype = "int64" }]
flops = "10 * y[0].elements"
"""
_SHORT_OPERATORS = """\
[operator."mine::Gated"]
resembles = "matmul"
outputs = [{ shape = [4, 8, 24], dtype = "float32" }]

[operator."mine::Twice"]
resembles = "softmax"
outputs = [{ like = "x[0]" }, { like = "x[0]" }]
flops = 7
"""


@cache
def _model() -> bytes:
    """A network of two operators that no reader knows."""
    nodes = [
        onnx_file.node("Gated", ["x", "w"], ["h"], "gated", "mine", units=24),
        onnx_file.node("Relu", ["h"], ["r"], "relu"),
        onnx_file.node("Twice", ["r"], ["y", "n"], "twice", "mine"),
    ]
    ends = [onnx_file.value("y", [None, None, None]), onnx_file.value("n", [None], onnx_file.INT64)]
    inputs, weights = [onnx_file.value("x", [4, 8, 16])], [onnx_file.tensor("w", [16, 24])]
    return onnx_file.model(onnx_file.graph(nodes, inputs, ends, weights))


def _described(data: bytes) -> None:
    """A file of operators, and a network that has two of them."""
    path, before = file("operators.toml", data), dict(extensions._registered)
    try:
        with naming(path):
            operators.add_file(path)
        figures(costs.count(perfpass.load(_model())).totals)
    finally:
        extensions._registered.clear()
        extensions._registered.update(before)


_JSON = Json()
_WORDS = (
    *("resembles", "outputs", "macs", "flops", "bytes_read", "bytes_written", "attributes", "like", "shape", "dtype"),
    *("num_heads", "groups", "kernel_0", "operator", "mine::Gated", "mine::Twice"),
)
_FORMULAS = (
    *(
        "x[0]",
        "x[1].shape",
        "x[0].shape[-1]",
        "x[0].bytes",
        "y[1].elements",
        "x[9].rank",
        "units",
        "units / 0",
        "-units",
    ),
    *("x[0].elements ** 9", "min(1, 2)", "ceil(units / 7)", "max(x)", "floor(1, 2)", "x[units]", "x[1 / 2]", "9" * 80),
    *("(" * 90 + "1" + ")" * 90, "-" * 180 + "1", "x[0].shape[0].bits", "1 if x else 2", "lambda: 0", "units % 5 // 2"),
    *("gelu", "dense", "attention", "recurrent", "convolution", "float16", "int4", "string", "x[0", "x[63]", "2**62"),
)
TARGETS = (
    Target(
        "openvino-weights",
        _loaded("openvino", "model.xml"),
        _openvino,
        Archive({"*.xml": Xml(), "*.bin": BINARY}),
        modules("openvino/*.py"),
    ),
    Target(
        "coreml-package",
        _loaded("model.mlpackage", ""),
        _packages,
        Archive({"*.json": _JSON, "*.mlmodel": Wire()}),
        modules("coreml/*.py"),
    ),
    Target(
        "safetensors-index",
        _listed,
        _sharded,
        Archive({"*.json": _JSON, "*.safetensors": Framed(_JSON)}),
        ("python/perfpass/importers/safetensors_header.py",),
    ),
    Target(
        "operators",
        _described,
        lambda: [_OPERATORS.encode(), _SHORT_OPERATORS.encode()],
        Toml(_WORDS, _FORMULAS),
        ("python/perfpass/importers/operators.py", "python/perfpass/graph/formula.py"),
    ),
)
