"""What advice on a network's training is made of: what runs twice, how often a network is traced, what a CPU does."""

from __future__ import annotations

import numpy as np
import pytest

import perfpass
from perfpass.deploy import train_network_advice as advising
from perfpass.graph import OPERATORS
from perfpass.graph.blocks import blocks
from perfpass.graph.checkpointed import checkpointed
from perfpass.graph.step import StepOptions, derive
from perfpass.predictors.memory import recorded

torch = pytest.importorskip("torch")


class Block(torch.nn.Module):
    """A feed-forward block with a residual path, or one that ends in a relu."""

    def __init__(self, *, ends_in_relu: bool = False) -> None:
        super().__init__()
        self.up, self.down, self.ends_in_relu = torch.nn.Linear(16, 64), torch.nn.Linear(64, 16), ends_in_relu

    def forward(self, x):
        y = x + self.down(torch.nn.functional.gelu(self.up(x)))
        return torch.relu(y) if self.ends_in_relu else y


class Network(torch.nn.Module):
    """Three blocks and a head."""

    def __init__(self, **how) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(Block(**how) for _ in range(3))
        self.head = torch.nn.Linear(16, 4)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def _products(module) -> int:
    """Products that a step of ``module`` takes."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counting(TorchDispatchMode):
        found = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.found += func.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm)
            return func(*args, **(kwargs or {}))

    with Counting() as counting:
        module(torch.randn(8, 16, requires_grad=True)).sum().backward()
    return counting.found


@pytest.mark.parametrize(("ends_in_relu", "again"), [(False, 1), (True, 2)])
def test_a_checkpointed_block_runs_again_as_far_as_pytorch_s(ends_in_relu, again):
    from torch.utils.checkpoint import checkpoint

    plain, module = Network(ends_in_relu=ends_in_relu), Network(ends_in_relu=ends_in_relu)
    for block in module.layers:
        block.forward = lambda x, run=block.forward: checkpoint(run, x, use_reentrant=False)
    assert _products(module) - _products(plain) == 3 * again
    graph = perfpass.load(Network(ends_in_relu=ends_in_relu), input_shape=(16,), batch=8)
    twice = checkpointed(graph, "float32").again
    dense = np.array([OPERATORS[int(op)] == "dense" for op in graph.op])
    assert (twice & dense).sum() == 3 * again


def test_modules_of_which_no_two_are_alike_are_parts_of_a_block():
    t5 = [
        f"encoder.block.{i}.layer.{part}.weight"
        for i in (0, 1)
        for part in ("0.SelfAttention.q", "0.layer_norm", "1.DenseReluDense.wi", "1.layer_norm")
    ]
    assert blocks(t5) == ("encoder.block.0", "encoder.block.1")


def test_advice_traces_a_network_at_two_batches_and_records_it_once(monkeypatch):
    traced, kept = [], []
    load, record = advising.load, recorded.recorded
    monkeypatch.setattr(advising, "load", lambda *a, **k: traced.append(k["batch"]) or load(*a, **k))
    monkeypatch.setattr(recorded, "recorded", lambda *a, **k: kept.append(1) or record(*a, **k))
    how = {"micro_batch": 64}
    found = advising.train_network_advice("resnet18", "a100", **how)
    words = {one.words for one in found.changes}
    assert {"micro-batch 32", "16 bits throughout"} <= words and len(traced) == len(kept) == 1
    half = next(one for one in found.changes if one.words == "micro-batch 32").found
    asked = perfpass.train_network_cost("resnet18", "a100", global_batch=64, **how | {"micro_batch": 32})
    assert half.step_s.median == pytest.approx(asked.step_s.median, rel=0.02)
    assert half.memory_in_use_bytes.median == pytest.approx(asked.memory_in_use_bytes.median, rel=0.05)


def test_a_search_traces_no_more(monkeypatch):
    traced = []
    load = advising.load
    monkeypatch.setattr(advising, "load", lambda *a, **k: traced.append(k["batch"]) or load(*a, **k))
    found = advising.search_network_layouts("resnet18", "a100", gpus=2, global_batch=64)
    assert {one.micro_batch for one in (*found.best, *found.others)} == {1, 2, 4, 8, 16, 32} and len(traced) == 1


def test_the_loop_of_a_cpu_s_optimizer_finds_a_tensor_in_the_cache():
    graph = perfpass.predict("resnet18", "cpu", batch=4, mode="training").asked.run().table

    def moved(**how) -> float:
        step = derive(graph, StepOptions("adamw", **how), input_elements=1.0, width=4.0)
        mine = step.phase == 2
        return float(((step.bytes_read + step.bytes_written) * step.count)[mine].sum())

    none, some, all_of_it = (moved(foreach=False, cache_bytes=c) for c in (0.0, 1e6, 1e12))
    assert none == pytest.approx(moved(foreach=True, cache_bytes=1e12)) and none > some > all_of_it
    assert all_of_it / none == pytest.approx(7 / 20, rel=0.01)


def test_a_cpu_s_products_run_at_the_peak_of_their_precision():
    from dataclasses import replace

    board = perfpass.device("cpu")
    quick, slow = (
        replace(board, peak_flops={**board.peak_flops, "bf16": f * board.peak_flops["fp32"]}) for f in (2.0, 0.5)
    )
    how = {"batch": 8, "mode": "training"}
    single = perfpass.predict("vit_b_16", board, **how).latency_ms.median
    assert perfpass.predict("vit_b_16", quick, precision="bf16", **how).latency_ms.median < 0.75 * single
    assert perfpass.predict("vit_b_16", slow, precision="bf16", **how).latency_ms.median > 1.2 * single


def test_micro_batches_add_their_gradients_up():
    how = {"micro_batch": 1, "precision": "fp32", "optimizer": "none"}
    once = perfpass.train_network_cost("vgg16", "a100", **how)
    four = perfpass.train_network_cost("vgg16", "a100", global_batch=4, **how)
    added = 3 * 3 * once.gradient_bytes / perfpass.device("a100").memory_bandwidth_bytes_s
    assert four.step_s.median == pytest.approx(4 * once.step_s.median + added, rel=0.01)
