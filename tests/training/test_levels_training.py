"""What levels and widths of other laboratories' networks are fitted to, and what each row counts for."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pandas
import pytest

from perfpass.devices import device
from perfpass.graph.table import Tables
from perfpass.predictors.inference.analytic import CAUSES
from perfpass.predictors.inference.operators import HOST_CLASSES, OperatorTimes
from perfpass.predictors.way import Way
from perfpass.training import spread
from perfpass.training.inference import analytic, operator_rows, operators
from perfpass.training.inference.levels import fitted
from perfpass.training.inference.operator_rows import Rows
from perfpass.training.spread import Errors
from perfpass.training.tasks import named


def test_a_models_own_time_in_a_server_counts_and_a_clients_does_not():
    frame = pandas.DataFrame(
        {
            "server": ["", "triton", "triton", ""],
            "timing": ["a script", "the model in the server, without queue and copies", "with the queue", "a request"],
            "caveats": ["", "", "", "time_of_a_servers_client"],
        }
    )
    assert list(named.of_the_runtime(frame)) == [True, True, False, False]


def _rows(slower: float) -> Rows:
    """Ten networks that take ``slower`` times their operators, and ten operators that take their time."""
    n, families = 20, len(operators.FAMILIES)
    network = np.arange(n) < 10
    device_s = np.zeros((n, families))
    device_s[:, operators.FAMILIES.index("dense")] = np.linspace(0.01, 0.1, n)
    runtime = np.where(network, "torch", operator_rows._KERNEL)
    names = pandas.DataFrame({"runtime": runtime, "precision": "fp32, eager", "generation": "8.0"})
    names["source"] = names["host"] = [f"s{i}" for i in range(n)]
    names["group"] = names.source
    measured = device_s.sum(axis=1) * np.where(network, slower, 1.0)
    issue_s = np.zeros((n, len(HOST_CLASSES)))
    return Rows(names, measured, device_s, issue_s, np.zeros(n), np.zeros(n), np.zeros(n, dtype=bool))


@pytest.mark.parametrize("slower", [0.7, 1.5])
def test_whole_networks_have_a_level_that_single_operators_do_not_move(slower):
    levels = operators.fit(_rows(slower)).levels
    single = operators.fit(_rows(1.0)).levels
    moved = levels["all"][""] - single["all"][""]
    assert np.sign(moved) == np.sign(np.log(slower))
    assert abs(moved) > 5 * abs(levels["class"]["dense"] - single["class"]["dense"])


@pytest.mark.parametrize("board", ["t4", "a100-80gb", "jetson-agx-orin-32gb"])
@pytest.mark.parametrize(("runtime", "replayed"), [("torch", False), ("torch.compile", False), ("torch.compile", True)])
def test_what_levels_are_fitted_to_is_what_they_are_told_with(board, runtime, replayed):
    """The model of the fit and the predictor's time are one, under any levels: the host beside an older board, too."""
    way = Way(device(board), "fp16", runtime, cuda_graph=replayed)
    sizes = np.array([[1, 64, 256, 256], [8, 512, 1024, 1024]], dtype=np.float64)
    parts = [operator_rows._neusight(o, sizes) for o in ("linear", "bmm")]
    parts.append(operator_rows._neusight("gelu", sizes[:, :2]))
    tables = Tables.joined(parts)
    names = pandas.DataFrame({"source": "s", "host": "s", "runtime": runtime, "group": "s"}, index=range(len(parts)))
    rows = operator_rows._rows(tables, np.arange(len(parts)), way, np.ones(len(parts)), names)
    model = operators._Model(rows)
    theta = np.where(model.own, 0.0, np.random.default_rng(3).normal(0.0, 0.3, len(model.own)))
    levels = {level: {} for level in operators.LEVELS}
    for (level, name), value in zip(model.names, theta.tolist(), strict=True):
        if level in levels:
            levels[level][name] = value
    told = OperatorTimes(levels).seconds(tables, way).total
    assert np.exp(model.evaluate(theta)[0]) == pytest.approx(told, rel=1e-9)


class _Steep:
    """One level whose whole steps go from 0 to 0.5 and back, around the 0.25 that was measured."""

    names: ClassVar = [("all", "")]
    own, deviation = np.array([False]), np.array([100.0])

    def evaluate(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        off = 10.0 * (theta - 0.25)
        return np.arctan(off), (10.0 / (1.0 + off**2))[:, None]


def test_levels_are_where_no_further_step_would_lead():
    levels = fitted(_Steep(), np.zeros(1), np.ones(1), ("all",), noise=0.1, huber=100.0, steps=20)
    assert levels["all"][""] == pytest.approx(0.25, abs=1e-3)


def test_a_hosts_time_for_convolutions_says_little_of_other_operators():
    n = 12
    rows = _rows(1.0).take(np.arange(n))
    rows.names["runtime"], rows.names["source"] = "torch", [f"s{i}" for i in range(n)]
    kind = np.array(["conv", "batch_norm", "dense", "pointwise"])[np.arange(n) % 4]
    issue_s = np.zeros((n, len(HOST_CLASSES)))
    issue_s[np.arange(n), [HOST_CLASSES.index(k) for k in kind]] = 1.0
    slow = np.isin(kind, ("conv", "batch_norm"))
    rows = replace(rows, issue_s=issue_s, device_s=rows.device_s * 1e-3, measured_s=np.where(slow, 3.0, 1.0))
    host = operators.fit(rows).issue_s(Way(device("a100-80gb")))
    of = dict(zip(HOST_CLASSES, host / host[HOST_CLASSES.index("dense")], strict=True))
    assert of["conv"] > 1.5 and of["conv_depthwise"] > 1.5 and of["batch_norm"] > 1.5
    assert of["norm"] < 1.2 and of["softmax"] < 1.2


def _hosts(rows_of_one: int) -> Rows:
    """Five sources whose dense operators wait for the host, and one more by which each takes three times as long."""
    source = np.repeat(np.arange(6), [4] * 5 + [rows_of_one])
    rows = _rows(1.0).take(np.arange(len(source)) % 10)
    rows.names["source"] = rows.names["host"] = rows.names["group"] = [f"s{i}" for i in source]
    kind = HOST_CLASSES.index("dense"), HOST_CLASSES.index("pointwise")
    issue_s = np.zeros((len(source), len(HOST_CLASSES)))
    issue_s[np.arange(len(source)), np.where(np.arange(len(source)) % 2, *kind)] = 1.0
    slow = (source == 5) & (issue_s[:, kind[0]] > 0.0)
    return replace(rows, issue_s=issue_s, device_s=rows.device_s * 1e-3, measured_s=np.where(slow, 3.0, 1.0))


def test_what_one_source_takes_for_a_class_moves_levels_as_a_source_and_not_by_its_rows():
    """Its twelve rows and its hundred move the host's level alike, and by less than half of what they are off."""
    at = HOST_CLASSES.index("dense")
    few, many = (np.log(operators.fit(_hosts(n)).issue_s(Way(device("a100-80gb")))[at] / 12e-6) for n in (12, 100))
    alone = np.log(operators.fit(_hosts(0)).issue_s(Way(device("a100-80gb")))[at] / 12e-6)
    assert alone < few < alone + np.log(3.0) / 2.0
    assert many - few < 0.1


def _errors(runs_of_one: int) -> Errors:
    """Of eighty networks of four laboratories, and of so many runs of one network of a fifth, far slower."""
    names = [f"source:s{i}/vision" for i in range(4) for j in range(20)]
    names += ["source:s4/forecasting"] * runs_of_one
    residual = np.concatenate([np.tile(np.linspace(-0.3, 0.3, 20), 4), np.ones(runs_of_one)])
    lacks = np.zeros((len(residual), len(CAUSES)))
    lacks[:, CAUSES.index("measurement")] = 1.0
    return Errors(CAUSES, residual, lacks, np.array(names, dtype=object))


def test_a_thousand_runs_of_one_laboratory_make_no_interval_wider_than_sixty():
    assert analytic._fitted(_errors(1000)) == analytic._fitted(_errors(60))
    assert analytic._fitted(_errors(60)).high > analytic._fitted(_errors(5)).high


def test_widths_grow_as_a_new_draw_beside_so_many_laboratories_has_them():
    found = _errors(20)
    plain, grown = spread.fit(found, analytic.PRIOR), analytic._fitted(found)
    at = CAUSES.index("measurement"), CAUSES.index("engine")
    assert grown.high[at[0]] == pytest.approx(plain.high[at[0]] * np.sqrt(1 + 1 / 5))
    assert grown.high[at[1]] == plain.high[at[1]]  # what no error shows stays as it is set
