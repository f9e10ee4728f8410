"""Steps by their operators: what backward adds, orders that no size may break, and what a board's software reaches."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import perfpass
from operator_tables import convolution, table
from perfpass.devices import device
from perfpass.errors import ArtefactError
from perfpass.graph import step as backward
from perfpass.graph.step import StepOptions, Steps
from perfpass.graph.table import Tables, operator_table
from perfpass.predictors.learned import ladder
from perfpass.predictors.training_step.operators import GROUPS, LEVELS, Base, StepTimes, as_run
from perfpass.predictors.training_step.predictor import Derivation, StepPredictor
from perfpass.predictors.way import Way
from perfpass.training.training_step import operators as fitted

BATCH = 64


@pytest.fixture(scope="module")
def forwards():
    names = ("resnet50", "vit_base_patch16_224")
    return [operator_table(perfpass.load(f"examples/{name}.onnx", batch=BATCH)) for name in names]


@pytest.fixture(scope="module")
def times():
    return StepTimes.from_dict(StepPredictor.load().manifest["operators"])


def step_of(forward, optimizer="adamw", **given):
    options = StepOptions(optimizer, **given)
    elements = np.array([BATCH * 3.0 * 224 * 224])
    return Derivation(options, elements, 4.0).steps(Tables.one(forward))


def seconds(times, steps, name, precision="fp32", batch=BATCH):
    return times.seconds(steps, np.array([batch]), Way(device(name), precision))


@pytest.mark.parametrize("name", ["a100-80gb", "l4", "mi300x", "cpu"])
def test_rows_of_a_step_sum_to_its_time_and_backward_costs_more_than_forward(times, forwards, name):
    for forward in forwards:
        steps = step_of(forward)
        found = seconds(times, steps, name)
        assert found.row.sum() == pytest.approx(found.total[0])
        phase = np.bincount(steps.first().phase, found.row)
        assert phase[1] > 1.2 * phase[0] > 0
        assert phase[2] > 0


def test_the_sums_that_levels_are_fitted_to_give_the_time_that_is_predicted(times, forwards):
    import pandas

    for name, precision in (("a100-80gb", "amp"), ("cpu", "fp32")):
        way = Way(device(name), precision)
        asked = [(step_of(forward, autocast=precision == "amp"), BATCH, way, 1.0) for forward in forwards]
        rows = fitted.of_steps(asked, way.device.kind, pandas.DataFrame({"source": ["a", "b"]}), np.ones(2), times.base)
        expected = [float(times.seconds(step, np.array([BATCH]), way).total[0]) for step, *_ in asked]
        np.testing.assert_allclose(rows.seconds(times.levels[way.device.kind]), expected)


def test_a_level_is_found_again_where_many_steps_show_it(times, forwards):
    import pandas

    boards = [Way(device(name), "fp32") for name in ("a100-80gb", "h100", "v100-sxm2-16gb", "rtx-4090")]
    asked = [(step_of(forward, optimizer), BATCH, way, 1.0) for way in boards for forward in forwards * 3
             for optimizer in ("sgd", "adamw")]  # fmt: skip
    names = pandas.DataFrame({"source": "a", "host": "a", "group": "a"}, index=range(len(asked)))
    rows = fitted.of_steps(asked, "gpu", names, np.ones(len(asked)), times.base)
    rows = replace(rows, measured_s=rows.seconds({"step": {"": 0.05}, "group": {"conv, weight": 0.2}}))
    found = fitted.fit(rows)
    off = np.log(rows.seconds(found) / rows.measured_s)
    assert np.abs(off).max() < 0.05


def test_a_host_is_slow_or_fast_in_all_parts_of_a_step(times, forwards):
    """Steps show the sum of its parts, which one network's mix does not tell apart."""
    import pandas

    asked = [(step_of(forward), BATCH, Way(device("h100"), "amp"), 1.0) for forward in forwards * 6]
    names = pandas.DataFrame({"source": list("ab") * 6, "host": list("ab") * 6, "group": "a"})
    rows = fitted.of_steps(asked, "gpu", names, np.ones(len(asked)), times.base)
    rows = replace(rows, device_s=1e-3 * rows.device_s, measured_s=3.0 * (rows.host_s.sum(axis=1) + rows.call_s))
    found = np.exp(list(fitted.fit(rows)["host"].values()))
    assert found.min() > 1.5
    assert found.max() < 1.3 * found.min()


def test_a_host_issues_all_kinds_of_operators_alike(times, forwards):
    """Not as inference's levels tell them apart; the optimizer's plain calls take the least."""
    way, steps = Way(device("h100"), "fp32"), step_of(forwards[0])
    host_s = times.base.work(steps, np.array([BATCH]), way).host_s / steps.columns.count
    part = np.asarray(steps.columns.part)
    found = [np.unique(np.round(host_s[(part == i) & (host_s > 0)] * 1e6, 3)) for i in np.unique(part)]
    assert all(len(each) == 1 for each in found)
    forward, data, weight, optimizer = (float(each[0]) for each in found)
    assert forward > data == weight > 2 * optimizer


def test_a_board_that_is_slow_on_its_device_is_no_slow_host(times, forwards):
    """Steps that hardly wait tell of the device: what one laboratory's boards differ by there is theirs."""
    import pandas

    asked = [(step_of(forward), BATCH, Way(device("h100"), "fp32"), 1.0) for forward in forwards * 6]
    names = pandas.DataFrame({"source": list("abc") * 4, "host": list("abcdef") * 2, "group": "a"})
    rows = fitted.of_steps(asked, "gpu", names, np.ones(len(asked)), times.base)
    rows = replace(rows, device_s=50.0 * rows.device_s)
    slow = np.where(rows.names.host == "a", 1.15, 1.0)
    found = fitted.fit(replace(rows, measured_s=slow * rows.seconds({})))
    assert found["of board"]["a"] > 0.02 > abs(found["of board"]["b"])
    assert abs(found["of host"]["a"]) < 0.1


def test_the_interval_of_a_step_that_waits_for_its_host_holds_hosts_as_they_differ():
    """Of ten hosts seven are within 0.2 of the middle: nine in ten of such lie within 2.4 times their median."""
    from perfpass.training import time_widths
    from perfpass.training.training_step import widths

    hosts = dict(zip("abcdefghij", [-0.9, -0.2, -0.2, -0.1, 0.1, 0.2, 0.2, 0.2, 0.5, 0.8], strict=True))
    least = fitted.least_widths({"of host": hosts})
    assert least == {"host": pytest.approx(1.645 / 0.6745 * 0.2)}
    parts = [time_widths.of_devices(np.full(40, 0.1), np.zeros(40), np.zeros(40), 0.0, name) for name in "abc"]
    wide, plain = widths.fit(parts, least), widths.fit(parts, {})
    at = wide.causes.index("host")
    assert wide.low[at] == pytest.approx(max(plain.low[at], least["host"]))
    assert wide.high[at] == pytest.approx(max(plain.high[at], least["host"])) and wide.high[at] > plain.high[at]
    others = [i for i in range(len(wide.causes)) if i != at]
    assert [wide.low[i] for i in others] == pytest.approx([plain.low[i] for i in others], rel=1e-3)
    assert fitted.least_widths({"of host": {"one": 0.7}}) == {"host": 0.0}


def test_no_step_is_faster_at_a_larger_batch_or_in_a_smaller_slice(times, forwards):
    batch, wanted = np.array([BATCH]), np.array([[1, 4, 16, 64, 256, 1024]])
    for forward in forwards:
        grown = ladder.at_batches(Tables.one(forward), batch, wanted)
        derived = Derivation(StepOptions("adamw"), np.array([BATCH * 3.0 * 224 * 224]), 4.0).each(wanted.size)
        steps = derived.steps(grown, wanted.ravel() / BATCH)
        for name in ("a100-80gb", "t4", "mi300x", "cpu"):
            found = times.seconds(steps, wanted.ravel(), Way(device(name), "fp32")).total
            assert (np.diff(found) >= 0).all()
        slices = ["a100-sxm4-80gb:1g.10gb", "a100-sxm4-80gb:3g.40gb", "a100-sxm4-80gb"]
        taken = [seconds(times, step_of(forward), name).total[0] for name in slices]
        assert all(small >= large for small, large in pairwise(taken))


def test_amd_multiplies_in_fp32_where_tf32_is_asked(times, forwards):
    steps = step_of(forwards[1])
    tf32, fp32 = (seconds(times, steps, "mi300x", precision).total[0] for precision in ("tf32", "fp32"))
    assert tf32 == fp32
    assert seconds(times, steps, "h100", "tf32").total[0] < seconds(times, steps, "h100", "fp32").total[0]
    board = device("mi300x")
    reached = as_run(Way(board, "amp")).device
    assert reached.peak_flops["fp16"] < 0.5 * board.peak_flops["fp16"]
    assert reached.memory_bandwidth_bytes_s < board.memory_bandwidth_bytes_s


def test_gradients_of_weights_are_split_along_the_rows_that_they_sum_over():
    """A stem's gradient has few tiles: unsplit it would use a few of the 132 SMs."""
    forward = table([convolution(256, channels=64, pixels=12544, width=4)])
    step = backward.derive(forward, StepOptions("none"), input_elements=1.0, width=4.0)
    done = Base.load().work(Steps.one(step), np.array([256]), Way(device("h100"), "fp32"))
    of = {GROUPS[g]: float(s) for g, s in zip(done.group, done.device_s, strict=True)}
    assert of["conv, weight"] < 3 * of["conv, forward"]


def test_large_depthwise_convolutions_in_halves_run_in_cudnn_where_their_input_is_channels_last():
    """As present PyTorch dispatches: in channels-last always, else by a generic kernel beyond 5 x 5."""
    row = convolution(BATCH, area=49, groups=256)
    norm = {"op": "layer_norm", "bytes_read": 1e6, "bytes_written": 1e6, "flops": 1e6}

    def took(rows, precision, board="l4", layout="nchw", torch=None):
        step = backward.derive(table(rows), StepOptions("none"), input_elements=1.0, width=2.0)
        way = Way(device(board), precision, layout=layout, torch_version=torch)
        done = Base.load().work(Steps.one(step), np.array([BATCH]), way)
        return sum(s for s, g in zip(done.device_s, done.group, strict=True) if "depthwise" in GROUPS[g])

    plain = took([row], "amp")
    assert took([row], "amp", layout="nhwc") < 0.5 * plain
    assert took([row, norm], "amp") < 0.5 * plain
    assert took([row, {**norm, "op": "batch_norm"}], "amp") == pytest.approx(plain)
    assert took([row], "amp", layout="nhwc", torch="1.12") == pytest.approx(plain)
    assert took([row, norm], "fp32") == pytest.approx(took([row], "fp32"))
    assert took([row, norm], "amp", "mi300x") == pytest.approx(took([row], "amp", "mi300x"))


def test_amds_normalizations_over_the_batch_have_levels_of_their_own(times):
    levels = times.levels["gpu"]["group"]
    assert levels["batch_norm_amd, data"] > levels["batch_norm, data"] + 1
    steps = step_of(operator_table(perfpass.load("resnet18", batch=BATCH)))
    for name, kind in (("mi325x", "batch_norm_amd"), ("h100", "batch_norm")):
        done = Base.load().work(steps, np.array([BATCH]), Way(device(name), "amp"))
        assert {GROUPS[g].split(",")[0] for g in done.group if "batch_norm" in GROUPS[g]} == {kind}


def test_networks_without_convolutions_take_the_time_of_their_operators():
    predictor = StepPredictor.load()
    graph = perfpass.load("examples/vit_base_patch16_224.onnx", batch=BATCH)
    forward = operator_table(graph)
    kept = ~np.isin(np.asarray(forward.op), [backward.OPERATORS.index("conv")])
    columns = {n: np.asarray(getattr(forward, n))[kept] for n in Tables.one(forward).table.__dataclass_fields__}
    forward = type(Tables.one(forward).table)(**columns)
    derived = Derivation(StepOptions("adamw"), np.array([1.0]), 4.0)
    way = Way(device("rtx-3090"), "fp32")
    found, _, row_s, steps = predictor.columns_of(Tables.one(forward), np.array([BATCH]), way, derived)
    by_operators = predictor._times.seconds(steps, np.array([BATCH]), way)
    assert found["median_s"][0] == pytest.approx(by_operators.total[0], rel=0.02)
    np.testing.assert_allclose(row_s, by_operators.row, rtol=1e-6)


@pytest.mark.parametrize(("board", "scale"), [("jetson-agx-orin-32gb", 2.0), ("jetson-agx-thor-128gb", 1.0)])
def test_a_jetsons_own_cores_issue_a_step_more_slowly_up_to_orin_as_they_do_a_forward_pass(forwards, board, scale):
    done = [Base.load().work(step_of(forwards[0]), np.array([BATCH]), Way(device(d))) for d in (board, "a100-80gb")]
    np.testing.assert_allclose(done[0].host_s, scale * done[1].host_s)


def test_an_artefact_without_levels_is_refused(times):
    for broken in ({}, {"gpu": {}}, {"gpu": {name: {"a": "b"} for name in LEVELS}}):
        with pytest.raises(ArtefactError, match="levels"):
            StepTimes.from_dict(broken)
    assert StepTimes.from_dict(times.to_dict()).to_dict() == times.to_dict()


def test_convolutions_backward_turn_their_tensors_for_matrix_units_in_torch_1_12():
    """Once there and back, beside their kernels: where products run on matrix units and tensors are NCHW."""
    row = convolution(BATCH, channels=64, pixels=3136, width=4)
    step = backward.derive(table([row]), StepOptions("none"), input_elements=1.0, width=4.0)

    def took(board, precision="fp32", torch="1.12", layout="nchw"):
        way = Way(device(board), precision, layout=layout, torch_version=torch)
        done = Base.load().work(Steps.one(step), np.array([BATCH]), way)
        return {GROUPS[g]: float(s) for g, s in zip(done.group, done.device_s, strict=True)}

    plain, turned = took("a40", layout="nhwc"), took("a40")
    assert turned["conv, forward"] == plain["conv, forward"]
    for part in ("data", "weight"):
        assert turned[f"conv, {part}"] > 1.2 * plain[f"conv, {part}"]
    assert took("a40", "tf32")["conv, data"] <= turned["conv, data"]
    assert took("a40", torch=None) == took("a40", torch=None, layout="nhwc")  # of today's releases nothing is known
    assert took("quadro-rtx-6000") == took("quadro-rtx-6000", layout="nhwc")  # fp32 on vector units
    assert took("v100-sxm2-16gb", "amp")["conv, data"] > took("v100-sxm2-16gb", "amp", layout="nhwc")["conv, data"]
