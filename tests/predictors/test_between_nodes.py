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
from perfpass.predictors.kernels import network, predictor
from perfpass.predictors.kernels.physics import COLLECTIVES
from perfpass.training.kernels import network as fitting

H100 = device("h100")
TIMES = predictor.load()


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
    assert own.low_s < 155e-6 < own.high_s and own.support.level == "near"  # DeepEP, docs/legacy.md: EP 32


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
