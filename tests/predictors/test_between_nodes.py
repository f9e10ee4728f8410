"""Collectives between nodes: what the records say of the constants, limits of physics, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfpass import PerfPassError
from perfpass.cli import main
from perfpass.devices import device
from perfpass.llm.configuration import language_model
from perfpass.llm.costs import Parallelism, Quantization, Step
from perfpass.llm.recipe import Layout, Recipe
from perfpass.predictors.kernels import network, predictor
from perfpass.predictors.kernels.physics import COLLECTIVES
from perfpass.predictors.llm_training.step import work
from perfpass.predictors.serving.base import _WIRE, phase_terms
from perfpass.predictors.step_time.counted import Counted
from perfpass.predictors.step_time.kernel_parts import KernelParts
from perfpass.predictors.step_time.setup import Setup, messages_bytes_s, nodes_of
from perfpass.training.kernels import network as fitting

H100 = device("h100")
TIMES = predictor.load()
LLAMA = language_model("llama-3.1-70b")


def test_the_constants_are_those_that_the_records_give():
    share, start = fitting.fit(fitting.rows())
    assert share == pytest.approx(network.SHARE, rel=0.002) and start == pytest.approx(network.START_S, rel=0.01)


def test_the_bounds_hold_each_source_that_is_left_out():
    found = fitting.graded(fitting.rows())
    assert set(found) == {"deepep", "aws_distributed_training"}
    assert (np.abs(np.log(found["deepep"])) <= np.log(network.WITHIN) + 5e-3).all()
    assert (np.abs(np.log(found["aws_distributed_training"])) <= np.log(network.BEYOND)).all()


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(COLLECTIVES), st.sampled_from([2, 4, 8]), st.integers(2, 16), st.integers(10, 30))
def test_no_time_is_below_what_the_links_take_and_more_takes_longer(operation, each, nodes, size):
    elements = np.array([2.0**size, 2.0 ** (size + 1)])
    found = network.collective(TIMES, H100, operation, each * nodes, nodes, elements)
    wire = network.carried(operation, each * nodes, nodes, 2 * elements) / network.CARD_BYTES_S
    assert (
        (found.low_s >= wire).all() and (found.low_s <= found.seconds).all() and (found.seconds <= found.high_s).all()
    )
    assert found.seconds[1] >= found.seconds[0] * 0.95
    inside = TIMES.collective(H100, operation, each, elements / (nodes if operation == "all_to_all" else 1), "fp16")
    assert (found.seconds >= inside.seconds).all()
    assert found.support.level == "outside" and "between nodes" in found.support.reasons[0]


def test_cards_carry_what_is_meant_for_other_nodes():
    size = np.array([1024.0])
    assert network.carried("all_to_all", 16, 2, size) == pytest.approx(512)
    assert network.carried("all_reduce", 16, 2, size) == pytest.approx(2 * 1024 / 2 / 8)
    assert network.carried("all_gather", 16, 2, size) == pytest.approx(1024 / 2 / 8)
    assert network.carried("all_to_all", 16, 1, size) == 0


def test_one_gpu_in_each_node_has_the_network_alone():
    found = network.collective(TIMES, H100, "all_reduce", 4, 4, [2.0**20])
    wire = 2 * 2.0**21 * 3 / 4 / network.CARD_BYTES_S
    assert found.seconds[0] == pytest.approx(wire / network.SHARE + network.START_S)


def test_deepeps_kernels_have_the_narrow_bounds():
    own = network.collective(TIMES, H100, "all_to_all", 32, 4, [7340032], "fp8", stack="deepep")
    other = network.collective(TIMES, H100, "all_to_all", 32, 4, [7340032], "fp8")
    assert own.seconds == pytest.approx(other.seconds) and own.high_s < other.high_s
    assert own.low_s < 155e-6 < own.high_s and own.support.level == "near"  # as DeepEP states it for EP 32


# Seconds of messages of tensor ranks, by who counts them.
TENSOR_RANKS = {
    "step by kernels": lambda ranks: KernelParts(_setup(ranks)).messages()[-1],
    "step by counts": lambda ranks: Counted(_setup(ranks)).tokens()[3, -1],
    "serving": lambda ranks: phase_terms(
        LLAMA, H100, Parallelism.of(ranks), Quantization(), Step.of_prefill(np.array([1.0]), np.array([8192.0]))
    )[0, _WIRE],
    "training": lambda ranks: work(LLAMA, H100, Layout(tensor=ranks), Recipe(1, 2048)).messages_tensor,
}


def _setup(ranks: int) -> Setup:
    return Setup(LLAMA, H100, Parallelism.of(ranks), Quantization(), "trtllm", "")


@pytest.mark.parametrize("counted", TENSOR_RANKS)
def test_all_reduces_between_nodes_go_by_every_card_of_a_node(counted):
    # Two nodes of eight have 400 GB/s to each other, nearly what NVLink gives inside: not an eighth of it.
    inside, between = (TENSOR_RANKS[counted](ranks) for ranks in (8, 16))
    assert inside < between < 1.6 * inside


def test_tokens_of_experts_go_by_the_card_of_their_gpu():
    ranks, wide = Parallelism.of(16), Parallelism.of(1, attention_data=16, expert=16)
    assert messages_bytes_s(H100, ranks) == min(8 * network.CARD_BYTES_S, H100.link_bytes_s(16))
    assert messages_bytes_s(H100, wide) == network.CARD_BYTES_S
    assert messages_bytes_s(H100, Parallelism.of(8)) == H100.link_bytes_s(8)


@pytest.mark.parametrize(
    ("board", "gpus", "nodes"), [("h100", 8, 1), ("h100", 12, 2), ("h100", 17, 17), ("gb200", 96, 2)]
)
def test_nodes_hold_equally_many(board, gpus, nodes):
    assert nodes_of(device(board), gpus) == nodes


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("all_reduce", 16, 1, [1024]), "2 or more"),
        (("all_reduce", 9, 2, [1024]), "do not stand in 2 equal nodes"),
        (("broadcast", 16, 2, [1024]), "unknown collective"),
        (("all_reduce", 16, 2, [0]), "at least one element"),
    ],
)
def test_what_is_no_collective_between_nodes_is_refused(arguments, said):
    with pytest.raises(PerfPassError, match=said):
        network.collective(TIMES, H100, *arguments)


def test_the_command_prices_nodes(capsys):
    command = ["operator", "all-reduce", "--device", "h100", "--n-devices", "16", "--n-nodes", "2"]
    assert main([*command, "--elements", "536870912", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["sizes"]["n_nodes"] == 2 and shown["latency_us"]["low"] < 6426 < shown["latency_us"]["high"]
    assert main([*command, "--elements", "1024", "--kernel", "ring"]) == 2
