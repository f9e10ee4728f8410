"""TensorFlow Lite files of TensorFlow's converter (files/make_tflite.py), against the same networks in PyTorch."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import perfpass
from perfpass.errors import PerfPassError, ShapeError
from perfpass.graph import ROLES, OpGraph, costs

FILES = Path(__file__).parent / "files"


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.pointwise = nn.Conv2d(8, 8, 1)
        self.last = nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu6(self.depthwise(F.relu6(self.first(x))))
        return F.softmax(self.last((x + self.pointwise(x)).mean((2, 3))), -1)


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(4, 8, 3, padding=1)
        self.wide = nn.Conv2d(8, 8, 3, padding=2, dilation=2)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.last = nn.Conv2d(8, 3, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.up(self.wide(F.max_pool2d(F.relu(self.first(image)), 2)))
        return self.last(F.interpolate(torch.cat([x, image], 1), scale_factor=2, mode="bilinear"))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(30, 16)
        self.query, self.key, self.value, self.out = (nn.Linear(16, 16) for _ in range(4))
        self.norms = nn.ModuleList(nn.LayerNorm(16) for _ in range(2))
        self.wide, self.narrow, self.last = nn.Linear(16, 32), nn.Linear(32, 16), nn.Linear(16, 3)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens.long())
        heads = [f(x).unflatten(-1, (2, 8)).transpose(1, 2) for f in (self.query, self.key, self.value)]
        scores = F.softmax(heads[0] @ heads[1].transpose(2, 3), -1)
        x = self.norms[0](x + self.out((scores @ heads[2]).transpose(1, 2).flatten(2)))
        return self.last(self.norms[1](x + self.narrow(F.gelu(self.wide(x)))))


class Recurrence(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru, self.last = nn.GRU(6, 5, batch_first=True), nn.Linear(5, 2)

    def forward(self, steps: torch.Tensor) -> torch.Tensor:
        return self.last(self.gru(steps)[0][:, -1])


NETWORKS = {
    "block": (Block, (3, 32, 32)),
    "decoder": (Decoder, (4, 16, 16)),
    "attention": (Attention, (12,)),
    "recurrence": (Recurrence, (9, 6)),
}


def figures(graph: OpGraph) -> tuple[int, int]:
    found = costs.count(graph)
    return int(found.macs.sum()), int(found.parameters.sum())


def traced(name: str, batch: int) -> OpGraph:
    network, shape = NETWORKS[name]
    return perfpass.load(network().eval(), input_shape=shape, batch=batch)


@pytest.mark.parametrize(
    ("file", "network", "batch"),
    [
        ("block", "block", 1),
        ("block", "block", 5),
        ("block_fixed", "block", 1),
        ("block_fixed", "block", 5),
        ("block_int8", "block", 3),
        ("block_float16", "block", 3),
        ("decoder", "decoder", 1),
        ("decoder", "decoder", 4),
        ("attention", "attention", 1),
        ("attention", "attention", 6),
    ],
)
def test_a_file_has_the_parameters_and_macs_of_the_same_network_in_torch(file: str, network: str, batch: int) -> None:
    graph = perfpass.load(FILES / f"{file}.tflite", batch=batch)
    assert figures(graph) == figures(traced(network, batch))
    assert not graph.unknown_operators


def test_a_loop_of_known_length_counts_every_iteration() -> None:
    macs, parameters = figures(perfpass.load(FILES / "recurrence.tflite"))
    wanted_macs, wanted_parameters = figures(traced("recurrence", 1))
    assert macs == wanted_macs
    assert parameters == wanted_parameters + 5  # the state that the loop begins with is a constant of the file


def test_a_batch_that_is_fixed_in_a_loop_is_refused() -> None:
    with pytest.raises(ShapeError, match="convert the model again for a batch of 4"):
        perfpass.load(FILES / "recurrence.tflite", batch=4)


def test_quantized_files_have_quantized_operators_and_their_weights_are_parameters() -> None:
    graph = perfpass.load(FILES / "block_int8.tflite")
    names = {graph.op_name(node) for node in range(graph.node_count)}
    assert {"quantized_conv", "quantized_matmul", "quantized_elementwise"} <= names
    roles = np.asarray(graph.core.tensor_role)
    assert figures(graph)[1] == sum(
        int(np.prod(graph.shape(int(t)))) for t in np.flatnonzero(roles == ROLES.index("weight"))
    )


def test_float16_weights_are_those_that_a_run_reads() -> None:
    half, full = (perfpass.load(FILES / f"{name}.tflite") for name in ("block_float16", "block_fixed"))
    assert [half.op_name(n) for n in range(half.node_count)] == [full.op_name(n) for n in range(full.node_count)]
    assert any("dequantized when the model is loaded" in note for note in half.notes)


def test_activations_stay_channels_last_and_cost_what_channels_first_cost() -> None:
    graph, other = perfpass.load(FILES / "block.tflite", batch=2), traced("block", 2)
    assert graph.shape(int(graph.core.graph_inputs[0])) == (2, 32, 32, 3)
    ours, theirs = (perfpass.predict(g, device="A100", runtime="onnxruntime").latency_ms for g in (graph, other))
    assert ours.median == pytest.approx(theirs.median, rel=0.05)


def test_an_open_batch_is_a_dimension_with_a_name() -> None:
    with pytest.raises(ShapeError, match=r"--dim \S+:0=N"):
        perfpass.load(FILES / "block.tflite")


def test_the_content_tells_the_format(tmp_path: Path) -> None:
    renamed = tmp_path / "model.onnx"
    renamed.write_bytes((FILES / "decoder.tflite").read_bytes())
    assert figures(perfpass.load(renamed)) == figures(traced("decoder", 1))


@pytest.mark.parametrize("path", sorted(FILES.glob("*.tflite")), ids=lambda path: path.stem)
@settings(max_examples=30)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_damaged_file_gives_a_graph_or_one_error(
    path: Path, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    choices = random.Random(seed)
    data = bytearray(path.read_bytes())
    for _ in range(choices.randint(1, 8)):
        at = choices.randrange(len(data))
        data[at : at + choices.randint(0, 4)] = choices.randbytes(choices.randint(0, 4))
    damaged = tmp_path_factory.getbasetemp() / "damaged.tflite"
    damaged.write_bytes(data)
    try:
        perfpass.load(damaged, batch=2)
    except PerfPassError as error:
        assert str(error)
