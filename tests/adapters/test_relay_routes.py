"""The same network through torch, ONNX and Relay: equal MACs and parameters, bytes within the documented difference."""

from __future__ import annotations

import io
import os
import sys
import types
import warnings
from collections import Counter

import numpy as np
import pytest

os.environ.setdefault("TOPHUB_LOCATION", "NONE")
import onnx
import torch
from torch import nn
from tvm import relay

from perfpass.graph import OPERATORS, costs
from perfpass.importers import onnx as onnx_importer
from perfpass.importers import torch as torch_importer
from perfpass.predictors.inference.fusion import as_run
from tvm_perfpass import import_relay


class Convolutional(nn.Module):
    """Plain, grouped, dilated and transposed convolutions, pooling, normalization and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.depthwise = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.Conv2d(16, 32, 1), nn.ReLU6())
        self.dilated = nn.Conv2d(32, 32, 3, padding=2, dilation=2, groups=4)
        self.up = nn.ConvTranspose2d(32, 8, 2, 2)
        self.head = nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.dilated(self.depthwise(self.pool(self.stem(x))))
        return self.head(nn.functional.adaptive_avg_pool2d(self.up(x), 1).flatten(1))


class Attention(nn.Module):
    """One encoder layer written with plain matrix products, on images cut into patches."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 32, 8, 8)
        self.norm, self.norm2 = nn.LayerNorm(32), nn.LayerNorm(32)
        self.q, self.k, self.v, self.out = (nn.Linear(32, 32) for _ in range(4))
        self.mlp = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        y = self.norm(x)
        q, k, v = (f(y).reshape(2, 16, 4, 8).transpose(1, 2) for f in (self.q, self.k, self.v))
        weights = torch.softmax(torch.matmul(q, k.transpose(-1, -2)) * 8**-0.5, dim=-1)
        x = x + self.out(torch.matmul(weights, v).transpose(1, 2).reshape(2, 16, 32))
        return x + self.mlp(self.norm2(x))


MODELS = {"convolutional": (Convolutional, 32), "attention": (Attention, 32)}


def exported(model: nn.Module, size: int) -> onnx.ModelProto:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        buffer = io.BytesIO()
        torch.onnx.export(model, (torch.zeros(2, 3, size, size),), buffer, dynamo=False, opset_version=17)
    return onnx.shape_inference.infer_shapes(onnx.load_from_string(buffer.getvalue()))


def from_onnx(model: onnx.ModelProto, freeze: bool):
    """relay.frontend.from_onnx wants onnx.mapping (gone since onnx 1.19): ONNX types to NumPy types and back."""
    mapping = types.ModuleType("onnx.mapping")
    codes = [code for code in onnx.TensorProto.DataType.values() if code not in (0, 8)]
    mapping.TENSOR_TYPE_TO_NP_TYPE = {code: np.dtype(onnx.helper.tensor_dtype_to_np_dtype(code)) for code in codes}
    mapping.NP_TYPE_TO_TENSOR_TYPE = {kind: code for code, kind in mapping.TENSOR_TYPE_TO_NP_TYPE.items()}
    sys.modules["onnx.mapping"], onnx.mapping = mapping, mapping
    try:
        return relay.frontend.from_onnx(model, freeze_params=freeze)
    finally:
        del sys.modules["onnx.mapping"], onnx.mapping


def from_pytorch(model: nn.Module, size: int):
    traced = torch.jit.trace(model, torch.zeros(2, 3, size, size))
    return relay.frontend.from_pytorch(traced, [("x", (2, 3, size, size))])


@pytest.fixture(scope="module", params=MODELS)
def routes(request):
    """The same model by every way into perfpass."""
    make, size = MODELS[request.param]
    torch.manual_seed(0)
    model = make().eval()
    for parameter in model.parameters():  # the exporter merges equal ones
        nn.init.normal_(parameter)
    proto = exported(model, size)
    graphs = {
        "torch": torch_importer.trace(make().eval(), (3, size, size), batch=2),
        "onnx": onnx_importer.read(proto.SerializeToString()),
        "relay from onnx": import_relay(*from_onnx(proto, freeze=False)),
        "relay from torch": import_relay(*from_pytorch(model, size)),
    }
    if make is Convolutional:  # freezing folds constants with a compiler: half a minute for the other
        graphs["relay from onnx, frozen"] = import_relay(from_onnx(proto, freeze=True)[0])
    return graphs


def test_every_route_counts_the_same_macs(routes):
    macs = {route: costs.count(graph).totals["macs"] for route, graph in routes.items()}
    assert len(set(macs.values())) == 1, macs
    assert macs["torch"] > 0


def test_no_route_knows_an_operator_less(routes):
    assert {route: graph.unknown_operators for route, graph in routes.items()} == {route: {} for route in routes}


def test_parameters_are_those_of_the_source(routes):
    """The ONNX exporter folds batch normalization into the convolution, so its parameters are the ONNX file's."""
    parameters = {route: costs.count(graph).totals["parameters"] for route, graph in routes.items()}
    assert parameters["relay from torch"] == parameters["torch"], parameters
    assert parameters["relay from onnx"] == parameters["onnx"], parameters
    assert parameters.get("relay from onnx, frozen", parameters["onnx"]) == parameters["onnx"], parameters


def test_what_relay_writes_in_parts_is_one_kernel_as_in_the_file(routes):
    def kernels(graph) -> Counter[str]:
        table = as_run(graph, costs.count(graph), "onnxruntime", "gpu")
        found: Counter[str] = Counter()
        for op, count in zip(table.op[table.view == 0], table.count[table.view == 0], strict=True):
            found[OPERATORS[op]] += int(count)
        return found

    wanted = kernels(routes["onnx"])
    for route, graph in routes.items():
        if route.startswith("relay from onnx"):
            assert kernels(graph) == wanted, route


def test_bytes_differ_by_what_relay_splits_off(routes):
    """Relay has a bias as an operator of its own, which reads and writes the result once more."""

    def moved(graph, without_bias=False):
        counted = costs.count(graph)
        total = counted.totals["bytes_read"] + counted.totals["bytes_written"]
        for node in range(graph.node_count):
            operands = [graph.shape(int(t)) for t in graph.node_inputs(node)]
            if without_bias and graph.op_name(node) == "add" and len(operands[1]) == 1:
                total -= 8 * int(np.prod(operands[0]))
        return total

    onnx_bytes, torch_bytes = moved(routes["onnx"]), moved(routes["torch"])
    if "Clip" in {routes["onnx"].source_op_name(n) for n in range(routes["onnx"].node_count)}:
        # Up to the bounds of the Clip, which Relay keeps as attributes.
        assert moved(routes["relay from onnx"], without_bias=True) == onnx_bytes - 8
    for route in ("relay from onnx", "relay from torch"):
        assert 1 <= moved(routes[route]) / torch_bytes < 2.6
