"""Memory where no laboratory stands behind a question: what only adds is half in, and bounds hold what others had."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfpass
from perfpass.devices import device
from perfpass.graph.costs import count
from perfpass.graph.table import Tables, operator_table
from perfpass.predictors.memory import allocation, process, step
from perfpass.predictors.memory.allowance import allowance, driver_bytes
from perfpass.predictors.memory.predictor import MemoryPredictor
from perfpass.predictors.way import Way

AMD, NVIDIA = device("mi300x"), device("h100")
LEARNED = MemoryPredictor.load().allowances
CONTEXTS = MemoryPredictor.load().manifest["context_bytes"]
_GIB = 2.0**30


def columns(activations_gib: float, convolutional: float = 1.0):
    sizes = {"parameters": 25e6, "weight_bytes": 1e8, "gradient_bytes": 1e8, "folded": 0.0}
    sizes |= {"backward_bytes": activations_gib * _GIB, "convolutional": convolutional}
    return {name: np.array([float(value)]) for name, value in sizes.items()}


@given(st.floats(0.01, 200.0))
def test_workspaces_stand_between_none_and_the_most_that_they_may_leave(activations_gib):
    asked, way = columns(activations_gib), Way(AMD, "fp32", optimizer="momentum")
    left = step.left_by_workspaces(asked, way)
    assert 0 < left[0] == asked["backward_bytes"][0]
    planned = step.planned(asked, way)
    middle = planned.alive + 2.0 * _GIB + left
    lack = step.lacks(asked, planned, way, middle)["workspaces"][0]
    low, high = (middle[0] * np.exp(sign * np.sqrt(lack)) for sign in (-1, 1))
    assert low == pytest.approx(middle[0] - left[0])  # none at all
    assert high >= middle[0] + left[0]  # and as much again


@pytest.mark.parametrize(("on", "convolutional"), [(NVIDIA, 1.0), (AMD, 0.0), (device("host-cpu"), 1.0)])
def test_other_vendors_and_networks_have_none(on, convolutional):
    asked, way = columns(4.0, convolutional), Way(on, "fp32", optimizer="momentum")
    assert step.left_by_workspaces(asked, way).tolist() == [0.0]
    assert step.lacks(asked, step.planned(asked, way), way, np.array([8.0 * _GIB]))["workspaces"].tolist() == [0.0]


def upper(**more):
    asked = columns(4.0, 0.0) | {name: np.array([value]) for name, value in more.items()}
    _, memory = process.step(asked, Way(NVIDIA, "fp32", optimizer="adamw"))
    return memory.in_use.high[0] / _GIB, memory.alive.high[0] / _GIB, memory.in_use.median[0] / _GIB


def test_the_upper_bound_holds_programs_that_keep_the_scores_of_their_attention():
    none, few, all_else, more = (upper(score_bytes=gib * _GIB) for gib in (0.0, 0.5, 4.0, 40.0))
    assert upper() == none and none[2] == more[2]
    for bound in (0, 1):
        assert none[bound] < few[bound] < all_else[bound] == more[bound]
    assert few[0] < none[0] + 0.5 and all_else[0] > none[2] + 4.0


@given(st.floats(0.01, 60.0))
def test_the_allocators_holes_are_in_what_is_reserved_too(activations_gib):
    for way in (Way(NVIDIA, "fp32", optimizer="adamw"), Way(device("host-cpu"), "fp32", optimizer="adamw")):
        _, memory = process.step(columns(activations_gib, 0.0), way)
        apart = [found.high[0] / found.median[0] for found in (memory.alive, memory.reserved)]
        assert apart[1] == apart[0] if way.device.kind == "cpu" else apart[1] > apart[0] + 0.02
        assert memory.reserved.low[0] >= memory.alive.low[0] and memory.reserved.high[0] <= memory.in_use.high[0]


def test_scores_are_two_copies_and_a_byte_of_each():
    graph = perfpass.load("bert-base", batch=2, dims={"sequence": 64})
    tables = Tables.one(operator_table(graph, count(graph)))
    scores = 12 * (2 * 12) * 64 * 64
    for precision, each in (("fp32", 9), ("amp", 9), ("bf16", 5)):
        assert allocation.score_bytes(tables, Way(NVIDIA, precision)).tolist() == [scores * each]


def test_a_traced_attention_keeps_no_scores_where_a_kernel_keeps_none():
    """A configuration does not say which program runs it; a module that calls PyTorch's attention does."""
    import torch

    class Attends(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.rows, self.out = torch.nn.Linear(128, 384), torch.nn.Linear(128, 128)

        def forward(self, x):
            q, k, v = self.rows(x).unflatten(-1, (3, 8, 16)).permute(2, 0, 3, 1, 4)
            return self.out(torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))

    assert perfpass.load("bert-base", dims={"sequence": 64}).by_description
    traced = perfpass.load(Attends(), batch=256, input_shape=(512, 128))
    assert not traced.by_description
    bounds = {}
    for named in (False, True):
        graph = replace(traced, by_description=named)
        for on, precision in (("a100-80gb", "amp"), ("a100-80gb", "fp32"), ("a100-80gb", "fp64")):
            found = perfpass.predict(graph, on, mode="training", optimizer="sgd", precision=precision)
            bounds[named, precision] = found.memory.in_use
    for precision in ("amp", "fp32"):
        assert bounds[False, precision].median == bounds[True, precision].median
        assert bounds[False, precision].high < bounds[True, precision].high
    assert bounds[False, "fp64"] == bounds[True, "fp64"]


@pytest.mark.parametrize("runtime", ["tvm", "relax"])
def test_a_runtime_that_nobody_measured_is_as_wide_as_any_that_was(runtime):
    found = allowance(Way(NVIDIA, runtime=runtime), LEARNED, CONTEXTS)
    others = list(LEARNED.values())
    assert not found.measured
    assert found.share[0] <= min(one.share[0] for one in others)
    assert found.share[2] >= max(one.share[2] for one in others)
    assert found.beside[2] >= max(one.beside[2] for one in others)


def test_a_vendor_without_a_run_of_inference_is_wider_above():
    ours, theirs = (allowance(Way(on), LEARNED, CONTEXTS) for on in (NVIDIA, AMD))
    assert theirs.share[2] == pytest.approx(2.0 * ours.share[2]) and not theirs.measured


@pytest.mark.parametrize("name", ["h100", "a100-80gb", "rtx-3060", "t4"])
def test_the_least_in_use_is_what_the_line_of_a_process_may_show(name):
    """Without what the driver keeps of a whole GPU, which upper bound and median have."""
    on = device(name)
    found, kept = allowance(Way(on), LEARNED, CONTEXTS), driver_bytes(on)
    context = CONTEXTS.get(on.id, found.beside[1]) - kept
    assert kept > 0 and found.beside[0] <= max(context, LEARNED["torch"].beside[0])
    assert found.beside[2] >= LEARNED["torch"].beside[2] - LEARNED["torch"].beside[1] + kept


@pytest.mark.parametrize("runtime", ["onnxruntime", "tensorrt"])
def test_a_process_without_pytorch_may_have_half_of_its_context(runtime):
    with_torch, without = (allowance(Way(NVIDIA, runtime=r), LEARNED, {}) for r in ("torch", runtime))
    assert 0 < without.beside[0] == pytest.approx(0.5 * with_torch.beside[0])
    assert without.beside[2] > with_torch.beside[2]


def test_the_context_of_one_board_of_amd_is_not_the_least_of_another():
    found = allowance(Way(device("rx-7900-xtx")), LEARNED, CONTEXTS)
    assert found.beside[0] == pytest.approx(LEARNED["torch"].beside[0])
    assert found.beside[1] == pytest.approx(CONTEXTS["amd"])
