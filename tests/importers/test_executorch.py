"""ExecuTorch programs of its own exporter (files/make_executorch.py) against the same network in PyTorch."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import perfpass
from perfpass.errors import FormatError, PerfPassError
from perfpass.graph import OpGraph, costs

FILES = Path(__file__).parent / "files"


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8)
        self.depthwise, self.pointwise = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Conv2d(8, 8, 1)
        self.last = nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu6(self.depthwise(F.relu6(self.norm(self.first(x)))))
        return F.softmax(self.last((x + self.pointwise(x)).mean((2, 3))), -1)


def macs(graph: OpGraph) -> int:
    return int(costs.count(graph).macs.sum())


def parameters(graph: OpGraph) -> int:
    return int(costs.count(graph).parameters.sum())


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("file", ["block", "block_xnnpack"])
def test_a_program_has_the_macs_of_the_network_that_it_was_exported_from(file: str, batch: int) -> None:
    program = perfpass.load(FILES / f"{file}.pte", batch=batch)
    assert macs(program) == macs(perfpass.load(Block().eval(), input_shape=(3, 32, 32), batch=batch))
    assert not program.unknown_operators and not program.notes


def test_parameters_are_the_networks_and_xnnpack_folds_batch_norms_into_convolutions() -> None:
    plain, folded = (perfpass.load(FILES / f"{name}.pte") for name in ("block", "block_xnnpack"))
    assert parameters(plain) == parameters(perfpass.load(Block().eval(), input_shape=(3, 32, 32)))
    assert parameters(folded) == parameters(plain) - 4 * 8


def test_what_xnnpack_runs_is_read_from_its_own_graph() -> None:
    graph = perfpass.load(FILES / "block_xnnpack.pte")
    names = Counter(graph.source_op_name(node) for node in range(graph.node_count))
    assert names["XNNConv2d"] == 2 and names["XNNDepthwiseConv2d"] == 1
    assert names["XNNFullyConnected"] == 1 and names["mean"] == 1


@pytest.mark.parametrize("file", ["block", "block_xnnpack"])
def test_every_cut_of_a_program_is_refused(file: str, tmp_path: Path) -> None:
    data = (FILES / f"{file}.pte").read_bytes()
    used = 0x600 if file == "block" else 0xA00  # behind the program lie weights, which are not read
    for length in range(8, used, 97):
        (tmp_path / "cut.pte").write_bytes(data[:length])
        with pytest.raises(FormatError):
            perfpass.load(tmp_path / "cut.pte")


@pytest.mark.parametrize("file", ["block", "block_xnnpack"])
@settings(max_examples=30)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_damaged_program_gives_a_graph_or_one_error(file: str, seed: int, tmp_path_factory) -> None:
    choices = random.Random(seed)
    data = bytearray((FILES / f"{file}.pte").read_bytes())
    for _ in range(choices.randint(1, 8)):
        at = choices.randrange(len(data))
        data[at : at + choices.randint(0, 4)] = choices.randbytes(choices.randint(0, 4))
    damaged = tmp_path_factory.getbasetemp() / "damaged.pte"
    damaged.write_bytes(data)
    try:
        perfpass.load(damaged, batch=2)
    except PerfPassError as error:
        assert str(error)
