"""Files of 10,000 operators to graphs and features, beside what each format's own library takes to read the same file.

    python benchmarks/format_readers.py [--json FILE [--only FORMAT ...]] [--runs N] [--blocks N]

One network in every format: blocks of a product with a weight, a bias, a Relu and a sum with the block's input; fewer
of them where the library takes minutes to write so many. Ours
ends with costs, node features and edges of the schema `operator`; the library's own reading ends with a model it could
compile. Both in turns, so that a slow moment of the machine hits them alike, and in time of processor. A format whose
library is not installed is left out (coremltools, jaxlib, Keras, TensorFlow and Paddle are no part of the environment
of the tests). Of GGUF, which has no operators, the header of 10,000 tensors is read.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import format_framework_files as framework
import numpy as np
from report import publish, summary, versions
from result_tables import reader_table

from perfpass import features, load
from perfpass.graph import costs

ROWS, WIDTH = 8, 64
PACKAGES: tuple[str, ...] = ("onnx", "openvino", "ai-edge-litert", "coremltools", "jaxlib", "ncnn", "torch")
PACKAGES += ("keras", "tensorflow_cpu", "paddlepaddle", "gguf")


@dataclass(frozen=True)
class Format:
    """How a file is written, and how its own library reads it; both raise ImportError without the library.

    ``most``: blocks, where its library takes minutes to write more. ``ours``: what perfpass makes of a file, as
    (operators, a number that says it is right), and ``right``: that number, of so many blocks.
    """

    name: str
    suffix: str
    write: Callable[[Path, int], None]
    peer: str
    read: Callable[[], Callable[[Path], Any]]
    most: int = 1_000_000
    ours: Callable[[Path], tuple[int, int]] | None = None
    right: Callable[[int], int] = lambda blocks: blocks * ROWS * WIDTH**2


def write_onnx(path: Path, blocks: int) -> None:
    """MatMul, Add, Relu, Add."""
    import onnx
    from onnx import TensorProto, helper

    nodes, weights, last = [], [], "x"
    for i in range(blocks):
        weights.append(helper.make_tensor(f"w{i}", TensorProto.FLOAT, [WIDTH, WIDTH], bytes(4 * WIDTH**2), raw=True))
        weights.append(helper.make_tensor(f"b{i}", TensorProto.FLOAT, [WIDTH], bytes(4 * WIDTH), raw=True))
        read = ([last, f"w{i}"], [f"p{i}", f"b{i}"], [f"s{i}"], [f"r{i}", last])
        for kind, inputs, made in zip(("MatMul", "Add", "Relu", "Add"), read, "psrx", strict=True):
            nodes.append(helper.make_node(kind, inputs, [f"{made}{i}"], name=f"{kind}{made}{i}"))
        last = f"x{i}"
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [ROWS, WIDTH]) for name in ("x", last)]
    onnx.save(helper.make_model(helper.make_graph(nodes, "blocks", ends[:1], ends[1:], weights)), path)


def onnx_reader() -> Callable[[Path], Any]:
    """onnx.load."""
    import onnx

    return lambda path: onnx.load(path)


def write_openvino(path: Path, blocks: int) -> None:
    """MatMul, Add, Relu, Add, and a Const for each weight."""
    import openvino
    from openvino import opset13 as ops

    fed = x = ops.parameter([ROWS, WIDTH], np.float32, name="x")
    for _ in range(blocks):
        product = ops.matmul(x, ops.constant(np.zeros((WIDTH, WIDTH), np.float32)), False, False)
        x = ops.add(ops.relu(ops.add(product, ops.constant(np.zeros(WIDTH, np.float32)))), x)
    openvino.save_model(openvino.Model([x], [fed], "blocks"), path, compress_to_fp16=False)


def openvino_reader() -> Callable[[Path], Any]:
    """Core.read_model."""
    import openvino

    core = openvino.Core()
    return lambda path: core.read_model(path)


def write_tflite(path: Path, blocks: int) -> None:
    """FULLY_CONNECTED with its bias, RELU, ADD: three operators a block."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    def tensor(name: str, shape: list[int], buffer: int = 0) -> int:
        made = schema.TensorT()
        made.name, made.shape, made.buffer, made.type = name, shape, buffer, schema.TensorType.FLOAT32
        graph.tensors.append(made)
        return len(graph.tensors) - 1

    def operator(code: int, inputs: list[int], options: Any = None, kind: int = 0) -> int:
        made = schema.OperatorT()
        made.opcodeIndex, made.inputs = code, inputs
        made.outputs = [tensor(f"t{len(graph.tensors)}", [ROWS, WIDTH])]
        made.builtinOptions, made.builtinOptionsType = options, kind
        graph.operators.append(made)
        return made.outputs[0]

    model, graph = schema.ModelT(), schema.SubGraphT()
    graph.tensors, graph.operators, model.buffers = [], [], [schema.BufferT() for _ in range(3)]
    for buffer, size in ((1, WIDTH**2), (2, WIDTH)):  # whose bytes all blocks share
        model.buffers[buffer].data = np.zeros(4 * size, np.uint8)
    model.version, model.subgraphs, model.operatorCodes = 3, [graph], []
    for code in ("FULLY_CONNECTED", "RELU", "ADD"):
        number = getattr(schema.BuiltinOperator, code)
        made = schema.OperatorCodeT()
        made.builtinCode = made.deprecatedBuiltinCode = number
        made.version = 1
        model.operatorCodes.append(made)
    x = tensor("x", [ROWS, WIDTH])
    graph.inputs = [x]
    for i in range(blocks):
        weight, bias = tensor(f"w{i}", [WIDTH, WIDTH], 1), tensor(f"b{i}", [WIDTH], 2)
        dense = schema.BuiltinOptions.FullyConnectedOptions
        product = operator(0, [x, weight, bias], schema.FullyConnectedOptionsT(), dense)
        added = schema.BuiltinOptions.AddOptions
        x = operator(2, [operator(1, [product]), x], schema.AddOptionsT(), added)
    graph.outputs = [x]
    builder = flatbuffers.Builder(1 << 20)
    builder.Finish(model.Pack(builder), b"TFL3")
    path.write_bytes(builder.Output())


def tflite_reader() -> Callable[[Path], Any]:
    """LiteRT's interpreter, which makes its graph of the file; no tensor is allocated."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    plain = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    return lambda path: Interpreter(str(path), experimental_op_resolver_type=plain)


def write_stablehlo(path: Path, blocks: int) -> None:
    """dot_general, broadcast_in_dim, add, maximum, add; weights are arguments."""
    rows, square, row = f"tensor<{ROWS}x{WIDTH}xf32>", f"tensor<{WIDTH}x{WIDTH}xf32>", f"tensor<{WIDTH}xf32>"
    fed = "".join(f", %w{i}: {square}, %b{i}: {row}" for i in range(blocks))
    lines = [f"module @blocks {{\n  func.func public @main(%x: {rows}{fed}) -> {rows} {{"]
    lines.append(f"    %zero = stablehlo.constant dense<0.000000e+00> : {rows}")
    last = "%x"
    for i in range(blocks):
        lines += [
            f"    %p{i} = stablehlo.dot_general {last}, %w{i}, contracting_dims = [1] x [0] : "
            f"({rows}, {square}) -> {rows}",
            f"    %c{i} = stablehlo.broadcast_in_dim %b{i}, dims = [1] : ({row}) -> {rows}",
            f"    %s{i} = stablehlo.add %p{i}, %c{i} : {rows}",
            f"    %r{i} = stablehlo.maximum %s{i}, %zero : {rows}",
            f"    %x{i} = stablehlo.add %r{i}, {last} : {rows}",
        ]
        last = f"%x{i}"
    path.write_text("\n".join([*lines, f"    return {last} : {rows}", "  }", "}", ""]))


def stablehlo_reader() -> Callable[[Path], Any]:
    """MLIR's parser with the dialect, of jaxlib."""
    from jaxlib.mlir import ir
    from jaxlib.mlir._mlir_libs import _jax_mlir_ext
    from jaxlib.mlir.dialects import stablehlo

    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)  # as JAX does: `func` among them

    def read(path: Path) -> Any:
        with ir.Context() as context:
            context.append_dialect_registry(registry)
            context.load_all_available_dialects()
            stablehlo.register_dialect(context)
            return ir.Module.parse(path.read_text())

    return read


def write_coreml(path: Path, blocks: int) -> None:
    """A linear with its weights as constants, relu, add: three operators a block."""
    from coremltools.proto import MIL_pb2, Model_pb2

    def typed(into: Any, shape: list[int]) -> None:
        into.tensorType.dataType, into.tensorType.rank = MIL_pb2.FLOAT32, len(shape)
        for size in shape:
            into.tensorType.dimensions.add().constant.size = size

    def operation(kind: str, made: str, shape: list[int], **reads: str) -> Any:
        found = block.operations.add(type=kind)
        for name, source in reads.items():
            found.inputs[name].arguments.add(name=source)
        output = found.outputs.add(name=made)
        typed(output.type, shape)
        return found

    def constant(made: str, shape: list[int], offset: int) -> None:
        value = operation("const", made, shape).attributes["val"]
        typed(value.type, shape)
        value.blobFileValue.fileName, value.blobFileValue.offset = "@model_path/weights/weight.bin", offset

    model = Model_pb2.Model(specificationVersion=8)
    for features_of, name in ((model.description.input, "x"), (model.description.output, f"x{blocks - 1}")):
        array = features_of.add(name=name).type.multiArrayType
        array.dataType = 65568
        array.shape.extend([ROWS, WIDTH])
    function = model.mlProgram.functions["main"]
    model.mlProgram.version, function.opset = 1, "CoreML7"
    typed(function.inputs.add(name="x").type, [ROWS, WIDTH])
    block, last = function.block_specializations["CoreML7"], "x"
    for i in range(blocks):
        constant(f"w{i}", [WIDTH, WIDTH], 64)
        constant(f"b{i}", [WIDTH], 64)
        operation("linear", f"p{i}", [ROWS, WIDTH], x=last, weight=f"w{i}", bias=f"b{i}")
        operation("relu", f"r{i}", [ROWS, WIDTH], x=f"p{i}")
        operation("add", f"x{i}", [ROWS, WIDTH], x=f"r{i}", y=last)
        last = f"x{i}"
    block.outputs.append(last)
    path.write_bytes(model.SerializeToString())


def coreml_reader() -> Callable[[Path], Any]:
    """coremltools.models.utils.load_spec: the message parsed."""
    from coremltools.models.utils import load_spec

    return lambda path: load_spec(str(path))


def write_ncnn(path: Path, blocks: int) -> None:
    """Split, InnerProduct, ReLU, BinaryOp: a tensor that two layers read is split."""
    lines, last = [f"Input x 0 1 x 0={WIDTH} 1={ROWS}"], "x"
    for i in range(blocks):
        lines += [
            f"Split d{i} 1 2 {last} d{i} e{i}",
            f"InnerProduct p{i} 1 1 d{i} p{i} 0={WIDTH} 1=1 2={WIDTH**2}",
            f"ReLU r{i} 1 1 p{i} r{i}",
            f"BinaryOp x{i} 2 1 r{i} e{i} x{i} 0=0",
        ]
        last = f"x{i}"
    path.write_text("\n".join(["7767517", f"{len(lines)} {5 * blocks + 1}", *lines, ""]))


def ncnn_reader() -> Callable[[Path], Any]:
    """Net.load_param."""
    import ncnn

    def read(path: Path) -> Any:
        net = ncnn.Net()
        if net.load_param(str(path)):
            raise RuntimeError("ncnn does not read its own format")
        return net

    return read


def write_tensorrt(path: Path, blocks: int) -> None:
    """A convolution of one by one with bias and activation, and a sum, as an engine's inspector lists them."""

    def tensor(name: str) -> dict[str, Any]:
        return {"Name": name, "Dimensions": [ROWS, WIDTH, 1, 1], "Format/Datatype": "Row major linear FP32"}

    layers: list[dict[str, Any]] = []
    last = "x"
    for i in range(blocks):
        window = {"Kernel": [1, 1], "PrePadding": [0, 0], "PostPadding": [0, 0], "Stride": [1, 1], "Dilation": [1, 1]}
        weights = {"Weights": {"Type": "Float", "Count": WIDTH**2}, "Bias": {"Type": "Float", "Count": WIDTH}}
        layers.append(
            {"Name": f"p{i}", "LayerType": "CaskConvolution", "ParameterType": "Convolution", "Activation": "RELU"}
            | {
                "Inputs": [tensor(last)],
                "Outputs": [tensor(f"p{i}")],
                "OutMaps": WIDTH,
                "Groups": 1,
                **window,
                **weights,
            }
        )
        layers.append(
            {"Name": f"x{i}", "LayerType": "ElementWise", "ParameterType": "ElementWise", "ParameterSubType": "Sum"}
            | {"Inputs": [tensor(f"p{i}"), tensor(last)], "Outputs": [tensor(f"x{i}")]}
        )
        last = f"x{i}"
    path.write_text(json.dumps({"Layers": layers, "Bindings": ["x", last]}))


def tensorrt_reader() -> Callable[[Path], Any]:
    """TensorRT writes this list and reads it nowhere: Python's parser of JSON."""
    return lambda path: json.loads(path.read_text())


def _torch_blocks(blocks: int) -> tuple[Any, Any]:
    import torch

    class Blocks(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(blocks))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = torch.relu(layer(x)) + x
            return x

    return Blocks().eval(), torch.zeros(ROWS, WIDTH)


def write_torchscript(path: Path, blocks: int) -> None:
    """aten::linear, relu, add."""
    import torch

    torch.jit.trace(*_torch_blocks(blocks), check_trace=False).save(str(path))


def torchscript_reader() -> Callable[[Path], Any]:
    """torch.jit.load."""
    import torch

    return lambda path: torch.jit.load(str(path))


def write_torch_export(path: Path, blocks: int) -> None:
    """aten.linear, relu, add."""
    import torch

    module, example = _torch_blocks(blocks)
    torch.export.save(torch.export.export(module, (example,)), str(path))


def torch_export_reader() -> Callable[[Path], Any]:
    """torch.export.load."""
    import torch

    return lambda path: torch.export.load(str(path))


def _sized(write: Callable[[Path, int, int, int], None]) -> Callable[[Path, int], None]:
    return lambda path, blocks: write(path, blocks, ROWS, WIDTH)


FORMATS = (
    Format("ONNX", ".onnx", write_onnx, "onnx.load", onnx_reader),
    Format("TensorFlow Lite", ".tflite", write_tflite, "LiteRT Interpreter", tflite_reader),
    Format("StableHLO text", ".mlir", write_stablehlo, "jaxlib ir.Module.parse", stablehlo_reader),
    Format("OpenVINO IR", ".xml", write_openvino, "openvino read_model", openvino_reader),
    Format("Core ML", ".mlmodel", write_coreml, "coremltools load_spec", coreml_reader),
    Format("ncnn", ".param", write_ncnn, "ncnn load_param", ncnn_reader),
    Format("TensorRT's list of layers", ".json", write_tensorrt, "json.loads", tensorrt_reader),
    Format("TorchScript", ".pt", write_torchscript, "torch.jit.load", torchscript_reader, most=250),
    Format("torch.export", ".pt2", write_torch_export, "torch.export.load", torch_export_reader, most=250),
    Format("Keras archive", ".keras", _sized(framework.write_keras), "keras load_model", framework.keras_reader, 250),
    Format(
        "SavedModel",
        ".saved_model",
        _sized(framework.write_saved_model),
        "tf.saved_model.load",
        framework.saved_model_reader,
        250,
    ),
    Format("Paddle PIR", ".json", _sized(framework.write_paddle), "paddle.jit.load", framework.paddle_reader, 250),
    Format(
        "GGUF, its tensors",
        ".gguf",
        _sized(framework.write_gguf),
        "gguf GGUFReader",
        framework.gguf_reader,
        ours=framework.gguf_counted,
        right=lambda blocks: framework.gguf_numbers(blocks, ROWS, WIDTH),
    ),
)


def featurized(path: Path) -> tuple[int, int]:
    """(operators, MACs) of a file, read, counted, and its features made."""
    graph = load(path)
    counted = costs.count(graph)
    features.extract(graph, "operator", counted)
    return graph.node_count, counted.totals["macs"]


def processor_ms(call: Callable[[], Any]) -> float:
    """Time of processor that a call takes; what it returns is given back outside."""
    start = time.process_time()
    kept = call()
    taken = 1e3 * (time.process_time() - start)
    del kept
    return taken


def measured(way: Format, path: Path, blocks: int, runs: int) -> dict[str, Any]:
    """A row: medians of ours and of the library, in turns."""
    blocks = min(blocks, way.most)
    way.write(path, blocks)
    read = way.read()
    ours = way.ours or featurized
    operators, found = ours(path)
    if found != way.right(blocks):
        sys.exit(f"{way.name}: wrong result, timings are void: {found:,}, {way.right(blocks):,} by hand")
    first = ours if way.ours else load
    calls = {"load": lambda: first(path), "ours": lambda: ours(path), "peer": lambda: read(path)}
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(runs + 1):
        for name, call in calls.items():
            times[name].append(processor_ms(call))
    return {
        "format": way.name,
        "operators": operators,
        "mib": round(framework.size_of(path) / 2**20, 1),
        "peer_name": way.peer,
        **{name: asdict(summary(values[1:])) for name, values in times.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results here")
    parser.add_argument("--runs", type=int, default=11, help="readings of each file (default 11)")
    parser.add_argument("--blocks", type=int, default=2500, help="blocks of four operators (default 2500)")
    parser.add_argument("--only", nargs="+", metavar="FORMAT", help="these; rows of the others stay as FILE has them")
    options = parser.parse_args()
    if options.only and options.json is None:
        parser.error("--only keeps the rows of a FILE: give --json")
    os.environ.setdefault("OPENVINO_LOG_LEVEL", "0")
    before = json.loads(options.json.read_text()) if options.only and options.json.exists() else {}
    stored = before.get("rows", [])
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for way in FORMATS:
            if options.only and way.name not in options.only:
                rows += [row for row in stored if row["format"] == way.name]
                continue
            try:
                rows.append(measured(way, Path(folder) / f"blocks{way.suffix}", options.blocks, options.runs))
            except ImportError as error:
                print(f"{way.name} is left out: {error}", file=sys.stderr)
    print(reader_table(rows))
    named = before.get("versions", {}) | versions("perfpass", *PACKAGES)  # of rows that stay too
    publish("format_readers", {"versions": named, "rows": rows}, PACKAGES, options.json)


if __name__ == "__main__":
    main()
