"""The same network by every way into perfpass: equal MACs and parameters, dynamic shapes bound at call time."""

from __future__ import annotations

import io
import warnings

import numpy as np
import onnx
import pytest
import torch
from relax_modules import both
from torch import nn
from torch.nn import functional
from tvm.relax.frontend.onnx import from_onnx
from tvm.relax.frontend.torch import from_exported_program

from perfpass.errors import ShapeError
from perfpass.graph import OPERATORS, costs
from perfpass.importers import onnx as onnx_importer
from perfpass.predictors.inference.fusion import as_run
from tvm_perfpass.relax import load

BATCH, LENGTH, VOCABULARY = 2, 16, 50


class Residual(nn.Module):
    """As a ResNet: a strided stem, a block with a projected shortcut, grouped and depthwise convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.first = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.BatchNorm2d(16), nn.ReLU6())
        self.second = nn.Conv2d(16, 32, 3, 2, 1, groups=4, bias=False)
        self.shortcut = nn.Conv2d(16, 32, 1, 2)
        self.head = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(self.stem(x))
        x = functional.relu(self.second(self.first(x)) + self.shortcut(x))
        return self.head(functional.adaptive_avg_pool2d(x, 1).flatten(1))


class Encoder(nn.Module):
    """One layer of a transformer's encoder; on images cut into patches (ViT) or on tokens (BERT)."""

    def __init__(self, tokens: bool, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.embed = nn.Embedding(VOCABULARY, width) if tokens else nn.Conv2d(3, width, 8, 8)
        self.position = nn.Parameter(torch.randn(1, LENGTH, width))
        self.norm, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        x = (x if x.dim() == 3 else x.flatten(2).transpose(1, 2)) + self.position
        y = self.norm(x)
        q, k, v = (f(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        weights = torch.softmax(torch.matmul(q, k.transpose(-1, -2)) * q.shape[-1] ** -0.5, dim=-1)
        x = x + self.out(torch.matmul(weights, v).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    """One layer as in Llama: RMS norms, rotary embedding, groups of queries share keys and values, a gated MLP."""

    def __init__(self, width: int = 32, heads: int = 4, kv_heads: int = 2) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.dim = heads, kv_heads, width // heads
        self.embed = nn.Embedding(VOCABULARY, width)
        self.scale, self.scale2 = nn.Parameter(torch.randn(width)), nn.Parameter(torch.randn(width))
        self.q, self.out = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.k, self.v = (nn.Linear(width, kv_heads * self.dim, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(width, 3 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(3 * width, width, bias=False)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        angle = torch.arange(LENGTH)[:, None] / 10000 ** (torch.arange(0, self.dim, 2) / self.dim)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())
        self.register_buffer("mask", torch.full((LENGTH, LENGTH), -1e9).triu(1))

    @staticmethod
    def norm(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * scale

    def rotate(self, x: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, -1)
        return torch.cat((first * self.cos - second * self.sin, second * self.cos + first * self.sin), -1)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        y = self.norm(x, self.scale)
        q, k, v = (f(y).reshape(BATCH, LENGTH, -1, self.dim).transpose(1, 2) for f in (self.q, self.k, self.v))
        q, k = self.rotate(q), self.rotate(k)
        shape = (BATCH, self.heads, LENGTH, self.dim)
        k, v = (torch.stack([t] * (self.heads // self.kv_heads), 2).reshape(shape) for t in (k, v))
        scores = torch.matmul(q, k.transpose(-1, -2)) * self.dim**-0.5
        context = torch.matmul(torch.softmax(scores + self.mask, -1), v)
        x = x + self.out(context.transpose(1, 2).reshape(BATCH, LENGTH, -1))
        y = self.norm(x, self.scale2)
        x = x + self.down(functional.silu(self.gate(y)) * self.up(y))
        return self.head(x)


def image() -> torch.Tensor:
    return torch.randn(BATCH, 3, 32, 32)


def tokens() -> torch.Tensor:
    return torch.zeros(BATCH, LENGTH, dtype=torch.int64)


MODELS = {
    "residual": (Residual, image),
    "vision transformer": (lambda: Encoder(tokens=False), image),
    "bert": (lambda: Encoder(tokens=True), tokens),
    "llama": (Decoder, tokens),
}


def made(name: str) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    make, example = MODELS[name]
    model = make().eval()
    for parameter in model.parameters():  # the exporter merges equal ones
        nn.init.normal_(parameter)
    return model, example()


def onnx_of(model: nn.Module, example: torch.Tensor) -> onnx.ModelProto:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        buffer = io.BytesIO()
        torch.onnx.export(model, (example,), buffer, dynamo=False, opset_version=17)
    return onnx.shape_inference.infer_shapes(onnx.load_from_string(buffer.getvalue()), data_prop=True)


@pytest.fixture(scope="module", params=MODELS)
def routes(request):
    """Graphs by route; for the torch route also the number of the module's own parameters."""
    model, example = made(request.param)
    proto = onnx_of(model, example)
    program = torch.export.export(model, (example,))
    tables = sum(b.numel() for b in model.buffers() if b.dim() > 0)  # running statistics, rotary angles, mask
    own = sum(p.numel() for p in model.parameters()) + tables
    graphs = {"onnx": onnx_importer.read(proto.SerializeToString())}
    for kept in (False, True):
        if request.param != "llama":  # TVM's importer loses the shapes of its norm
            graphs[f"relax from onnx, parameters kept {kept}"] = both(from_onnx(proto, keep_params_in_input=kept)).graph
        graphs[f"relax from torch, parameters kept {kept}"] = both(
            from_exported_program(program, keep_params_as_input=kept)
        ).graph
    return graphs, own


def test_every_route_counts_the_same_macs(routes):
    macs = {route: costs.count(graph).totals["macs"] for route, graph in routes[0].items()}
    assert len(set(macs.values())) == 1, macs
    assert macs["onnx"] > 0


def test_what_relax_writes_in_parts_is_one_kernel_as_in_the_file(routes):
    def kernels(graph) -> list[int]:
        table = as_run(graph, costs.count(graph), "onnxruntime", "gpu")
        runs = [np.asarray(table.op == OPERATORS.index(name)) & (table.view == 0) for name in named]
        return [int(table.count[run].sum()) for run in runs]

    named = ("conv", "dense", "matmul", "attention", "gelu", "layer_norm", "softmax")
    for route, graph in routes[0].items():
        if route.startswith("relax from onnx"):
            assert kernels(graph) == kernels(routes[0]["onnx"]), route


def test_no_route_knows_an_operator_less(routes):
    assert {route: graph.unknown_operators for route, graph in routes[0].items()} == {route: {} for route in routes[0]}


def test_parameters_are_those_of_the_source(routes):
    """The ONNX exporter folds batch normalization into the convolution, so its parameters are the ONNX file's."""
    graphs, own = routes
    for route, graph in graphs.items():
        expected = own if "torch" in route else costs.count(graphs["onnx"]).totals["parameters"]
        assert costs.count(graph).totals["parameters"] == expected, route


def test_dynamic_shapes_are_bound_at_call_time():
    model, example = made("residual")
    batch = torch.export.Dim("batch", min=1, max=64)
    dynamic = from_exported_program(torch.export.export(model, (example,), dynamic_shapes=({0: batch},)))
    static = load(from_exported_program(torch.export.export(model, (example,))))
    with pytest.raises(ShapeError, match=r"symbolic size (\w+) at axis 0.*bindings=") as caught:
        load(dynamic)
    name = str(caught.value).split("symbolic size ")[1].split()[0]
    bound = both(dynamic, {name: BATCH}).graph
    assert costs.count(bound).totals == costs.count(static).totals
    assert costs.count(load(dynamic, {name: 8})).totals["macs"] == 4 * costs.count(static).totals["macs"]
