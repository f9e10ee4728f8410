"""Messages among more devices than a bridge joins: no faster than without NVLink, wherever links are counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from perfpass.deploy.sweep.splits import sensible
from perfpass.deploy.train_cost import search_layouts
from perfpass.devices import Device, device
from perfpass.llm import table
from perfpass.llm.configuration import language_model
from perfpass.llm.costs import Parallelism, Quantization, Step
from perfpass.llm.recipe import Layout, Recipe
from perfpass.llm.serving import Serving
from perfpass.predictors.generation.features import Batch, rows_of
from perfpass.predictors.generation.habits import Arithmetic, parts_of
from perfpass.predictors.generation.phase_features import Phase, decode_rows
from perfpass.predictors.kernels import predictor as kernels
from perfpass.predictors.kernels.network import CARD_BYTES_S
from perfpass.predictors.llm_training.step import work
from perfpass.predictors.serving.base import phase_terms
from perfpass.predictors.step_time.counted import Counted
from perfpass.predictors.step_time.kernel_parts import KernelParts
from perfpass.predictors.step_time.setup import Setup, hop_bytes_s, messages_bytes_s

BOARDS = ("rtx-a6000", "a100-pcie-80gb", "h100-nvl-94gb", "h200-nvl-141gb")
MODEL, EXPERTS = language_model("llama-3.1-8b"), language_model("mixtral-8x7b")


def _setup(board: Device, gpus: int) -> Setup:
    return Setup(MODEL, board, Parallelism.of(gpus), Quantization(), "vllm", "")


def _trained(board: Device, layout: Layout, model=MODEL) -> tuple[float, ...]:
    found = work(model, board, layout, Recipe(1, 2048))
    return found.messages_tensor, found.messages_context, found.messages_experts, found.exchange


# Seconds of messages among so many devices of a board, by who counts them.
COUNTS: dict[str, Callable[[Device, int], Any]] = {
    "all-reduce": lambda board, n: kernels.load().collective(board, "all_reduce", n, np.array([1e5, 1e7])).seconds,
    "step by kernels": lambda board, n: KernelParts(_setup(board, n)).messages(),
    "step by counts": lambda board, n: Counted(_setup(board, n)).tokens()[-1],
    "stage": lambda board, n: 1 / messages_bytes_s(board, Parallelism.of(n)),
    "hops of a pipeline": lambda board, n: 1 / hop_bytes_s(board, Parallelism.of(1, n)),
    "serving": lambda board, n: phase_terms(
        MODEL, board, Parallelism.of(n), Quantization(), Step.of_decode(np.array([8.0]), np.array([1000.0]))
    ),
    "batch": lambda board, n: rows_of([Batch(MODEL, board, "tgis", n, 8, 512, 128)]).components[0, 8],
    "phase": lambda board, n: decode_rows([Phase(MODEL, board, n, "vllm", 8, 512)]).components,
    "eager step": lambda board, n: (
        parts_of(
            MODEL, board, Parallelism.of(n), "fp16", Step.of_decode(np.array([8.0]), np.array([1000.0])), Arithmetic()
        ).linked
    ),
    "tensor ranks": lambda board, n: _trained(board, Layout(tensor=n)),
    "context ranks": lambda board, n: _trained(board, Layout(context=n)),
    "replicas": lambda board, n: _trained(board, Layout(data=n)),
    "sharded replicas": lambda board, n: _trained(board, Layout(data=n, sharding="zero3")),
    "experts": lambda board, n: _trained(board, Layout(data=n, expert=n), EXPERTS),
    "table": lambda board, n: -table.row(MODEL, board, batch=8, input_tokens=512, output_tokens=8, devices=n),
}


@pytest.mark.parametrize("counted", COUNTS)
@pytest.mark.parametrize("board", BOARDS)
def test_messages_take_the_bridge_within_it_and_pcie_beyond(board, counted):
    bridged, seconds = device(board), COUNTS[counted]
    alone = replace(bridged, nvlink_bandwidth_bytes_s=0.0, link_group=0)
    switched = replace(bridged, link_group=0)
    for n in (2, 4, 8):
        found, without, all_joined = (np.nan_to_num(seconds(each, n)) for each in (bridged, alone, switched))
        assert np.array_equal(found, all_joined if n <= bridged.link_group else without), n
        assert np.sum(without) > np.sum(all_joined), n


def test_pipelines_are_tried_where_a_bridge_does_not_join_all_ranks():
    def pipelines(board: Device) -> set[int]:
        plain = Serving(2000, 1, 1.0, "vllm")
        return {split.gpus for split in sensible(language_model("llama-3.1-70b"), board, plain) if split.pipeline > 1}

    pair = device("a100-pcie-80gb")
    assert pipelines(pair) >= {4, 8} and not pipelines(device("a100-80gb"))
    assert 4 not in pipelines(device("h200-nvl")) and 8 in pipelines(device("h200-nvl"))


def test_tensor_ranks_of_training_stay_within_a_bridge_unless_they_are_given():
    def ranks(board: str, **given: int) -> set[int]:
        found = search_layouts("llama-3.1-8b", board, gpus=8, **given)
        return {one.layout.tensor for one in (*found.best, *found.others)}

    assert max(ranks("a100-pcie-80gb")) == 2 and max(ranks("a100-80gb")) == 8
    assert ranks("a100-pcie-80gb", tensor=4) == {4}


@pytest.mark.parametrize("board", ["m3-ultra", "gb10", "jetson-agx-orin-64gb"])
def test_machines_of_one_chip_are_tried_alone_and_reach_others_over_the_network(board):
    one = device(board)
    plain = Serving(2000, 1, 1.0, "vllm")
    assert {split.gpus for split in sensible(language_model("llama-3.1-8b"), one, plain)} == {1}
    slower = replace(one, pcie_bandwidth_bytes_s=min(one.pcie_bandwidth_bytes_s, CARD_BYTES_S))
    assert messages_bytes_s(one, Parallelism.of(2)) == messages_bytes_s(slower, Parallelism.of(2)) <= CARD_BYTES_S
    # Packages with stacked memory share a node.
    assert {split.gpus for split in sensible(language_model("llama-3.1-8b"), device("mi300a"), plain)} == {1, 2, 4, 8}
