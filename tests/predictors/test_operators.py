"""Time by operators: physics that no order may break, what a board gives, and artefacts that are none."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfpass.devices import catalogue, device
from perfpass.errors import ArgumentError, ArtefactError
from perfpass.graph import OPERATOR_CLASS_OF, OPERATORS
from perfpass.graph import step as backward
from perfpass.graph.table import OperatorColumns, Tables
from perfpass.predictors import roofline
from perfpass.predictors.inference import operators
from perfpass.predictors.inference.fusion import FUSING
from perfpass.predictors.inference.operators import FAMILIES, OperatorTimes
from perfpass.predictors.inference.predictor import InferencePredictor
from perfpass.predictors.learned import ladder
from perfpass.predictors.way import Way
from twins import batches

BOARDS = ("t4", "v100-sxm2-16gb", "a100-80gb", "l4", "h100-sxm5-80gb", "rtx-4090", "mi300x")
RUNTIMES = ("torch", "torch.compile", "onnxruntime", "tensorrt", "tvm")
PLAIN = OperatorTimes({})
_KINDS = (
    "conv",
    "dense",
    "matmul",
    "attention",
    "softmax",
    "layer_norm",
    "relu",
    "add",
    "reshape",
    "embedding",
    "lstm",
)


@st.composite
def rows(draw):
    """A few operators of any kind and size, as columns."""
    count = draw(st.integers(1, 5))
    names = [draw(st.sampled_from(_KINDS)) for _ in range(count)]
    size = st.integers(1, 4096)
    b, m, n, k = (np.array([draw(size) for _ in range(count)], dtype=np.float64) for _ in range(4))
    product = np.isin(names, ("conv", "dense", "matmul", "attention"))
    out = m * n * b
    op = np.array([OPERATORS.index(name) for name in names])
    columns = dict.fromkeys((f for f in OperatorColumns.__dataclass_fields__), np.zeros(count))
    columns |= {
        "op": op, "op_class": np.array(OPERATOR_CLASS_OF)[op], "count": np.array([draw(st.integers(1, 9))] * count),
        "flops": np.where(product, 2.0 * b * m * n * k, out), "bytes_read": 4.0 * b * m * k, "bytes_written": 4.0 * out,
        "output_elements": out, "b": b * product, "m": m * product, "n": n * product, "k": k * product,
        "kernel_area": np.where(np.array(names) == "conv", 9, 0), "groups": np.where(np.array(names) == "conv", 1, 0),
        "view": (np.array(names) == "reshape").astype(np.float64),
    }  # fmt: skip
    return Tables.one(OperatorColumns(**columns))


@settings(max_examples=60, deadline=None)
@given(tables=rows(), board=st.sampled_from(BOARDS), runtime=st.sampled_from(RUNTIMES), times=st.integers(2, 64))
def test_a_larger_batch_takes_no_less_time(tables, board, runtime, times):
    way, shipped = Way(device(board), "fp16", runtime), OperatorTimes.load()
    wanted = np.array([[1, times]])
    small, large = shipped.seconds(ladder.at_batches(tables, np.ones(1), wanted), way).total
    assert small <= large * (1 + 1e-12)


@settings(max_examples=40, deadline=None)
@given(tables=rows(), runtime=st.sampled_from(RUNTIMES))
def test_a_smaller_slice_and_a_wider_type_take_no_less_time(tables, runtime):
    shipped = OperatorTimes.load()
    slices = [f"a100-80gb{name}" for name in ("", ":4g.40gb", ":2g.20gb", ":1g.10gb")]
    found = [shipped.seconds(tables, Way(device(name), "fp16", runtime)).total[0] for name in slices]
    assert all(a <= b * (1 + 1e-12) for a, b in pairwise(found))
    narrow, wide = (PLAIN.seconds(tables, Way(device("a100-80gb"), p, runtime)).total[0] for p in ("fp16", "fp64"))
    assert narrow <= wide * (1 + 1e-12)


@settings(max_examples=40, deadline=None)
@given(tables=rows(), board=st.sampled_from(BOARDS), runtime=st.sampled_from(RUNTIMES))
def test_the_parts_of_a_time_sum_to_it_and_a_graph_among_others_is_itself(tables, board, runtime):
    way = Way(device(board), "fp32", runtime)
    alone = PLAIN.seconds(tables, way)
    assert np.isfinite(alone.total).all() and (alone.total >= np.maximum(alone.device, alone.host)).all()
    if (alone.row > 0).any():
        assert alone.row.sum() == pytest.approx(alone.total[0], rel=1e-9)
    both = PLAIN.seconds(ladder.at_batches(tables, np.ones(1), np.array([[1, 3]])), way)
    assert both.total[0] == alone.total[0]


def _same(found: object, expected: object) -> bool:
    """Whether two columns are the same to the last bit."""
    return np.asarray(found, dtype=np.float64).tobytes() == np.asarray(expected, dtype=np.float64).tobytes()


@settings(max_examples=200, deadline=None)
@given(
    first=rows(), second=rows(), batch=st.lists(st.integers(1, 512), min_size=2, max_size=2),
    wanted=st.lists(st.lists(st.integers(1, 1 << 20), min_size=3, max_size=3), min_size=2, max_size=2),
    weights=st.integers(0, 1 << 40), constant=st.integers(0, 3), whole=st.booleans(),
)  # fmt: skip
def test_tables_at_other_batches_are_those_of_the_plain_twin(first, second, batch, wanted, weights, constant, whole):
    columns = {n: np.concatenate([np.asarray(getattr(t.table, n)) for t in (first, second)]) for n in ladder.COLUMNS}
    columns["weight_bytes"][::2], columns["constant"][-1] = weights, constant
    if whole:  # as the core counts them
        columns = {n: v if n == "count" else v.astype(np.int64) for n, v in columns.items()}
    tables = Tables(OperatorColumns(**columns), np.array([0, len(first.table.op), len(columns["op"])]))
    found, expected = (f(tables, np.array(batch), np.array(wanted)) for f in (ladder.at_batches, batches.at_batches))
    assert found.offset.tolist() == expected.offset.tolist()
    for name in ladder.COLUMNS:
        a, b = getattr(found.table, name), getattr(expected.table, name)
        assert a.dtype == b.dtype and _same(a, b), name


@settings(max_examples=200, deadline=None)
@given(tables=rows(), board=st.sampled_from((*BOARDS, "jetson-nano")), seed=st.integers(0, 1 << 30))
def test_whole_tiles_are_those_of_the_plain_twin(tables, board, seed):
    draw, table = np.random.default_rng(seed), tables.table
    product, on_matrix = (draw.random(len(table.op)) < 0.7 for _ in range(2))
    found = operators._tiled(table, product, device(board), on_matrix)
    assert _same(found[product], batches.tiled(table, product, device(board), on_matrix))
    assert (found[~product] == 1.0).all()


@given(st.integers(0, 1 << 30), st.integers(1, 4), st.integers(1, 5), st.integers(0, 6))
def test_weighted_sums_by_group_are_numpys(seed, graphs, groups, sizes):
    draw = np.random.default_rng(seed)
    offset = np.concatenate([[0], np.cumsum(draw.integers(0, 20, graphs))])
    values, weights = draw.lognormal(0, 9, (sizes, offset[-1])), draw.lognormal(0, 9, offset[-1])
    tables = Tables(_columns(int(offset[-1])), offset)
    keys = tables.keys(draw.integers(0, groups, offset[-1]), groups)
    found = tables.weighted_by_keys(values, weights, keys, groups)
    assert found.shape == (graphs, sizes, groups)
    for s in range(sizes):
        assert _same(found[:, s], tables.by_keys(values[s] * weights, keys, groups))
    if len(keys):
        with pytest.raises(ArgumentError, match="a row of group"):
            tables.weighted_by_keys(values, weights, keys + graphs * groups, groups)


def test_tables_that_do_not_fit_together_are_refused():
    whole = _columns(3)
    short = OperatorColumns(**{**vars(whole), "macs": whole.macs[:2]})
    for table, offset, batch in ((short, [0, 3], 1), (whole, [0, 4], 1), (whole, [3, 0], 1), (whole, [0, 3], 2)):
        with pytest.raises(ArgumentError, match="tables: "):
            ladder.at_batches(Tables(table, np.array(offset)), np.ones(batch), np.ones((1, 2)))


def test_a_part_never_takes_longer_than_the_whole():
    whole = Tables.one(_columns(3))
    part = whole.take(np.array([0]))
    assert len(part) == 1 and len(part.table.op) == 3
    fewer = Tables(OperatorColumns(**{n: v[:2] for n, v in vars(whole.table).items()}), np.array([0, 2]))
    way = Way(device("a100-80gb"), "fp16", "tensorrt")
    assert PLAIN.seconds(fewer, way).total[0] <= PLAIN.seconds(whole, way).total[0]


@settings(max_examples=150, deadline=None)
@given(
    sizes=st.tuples(st.integers(1, 3072), st.integers(1, 2048), st.integers(1, 4096), st.integers(8, 256)),
    board=st.sampled_from(BOARDS),
    runtime=st.sampled_from(FUSING),
    precision=st.sampled_from(("fp32", "fp16", "amp")),
    engine=st.booleans(),
)
def test_a_fused_attention_takes_no_longer_than_its_products_and_their_softmax_where_a_runtime_chooses(
    sizes, board, runtime, precision, engine
):
    b, m, n, k = (float(size) for size in sizes)
    names, scores, flops = ("attention", "matmul", "softmax", "matmul"), b * m * n, 2.0 * b * m * n * k
    op = np.array([OPERATORS.index(name) for name in names])
    columns = dict.fromkeys(OperatorColumns.__dataclass_fields__, np.zeros(len(op)))
    columns |= {"op": op, "op_class": np.array(OPERATOR_CLASS_OF)[op], "count": np.ones(len(op))}
    columns |= {"flops": np.array([2.0 * flops, flops, 5.0 * scores, flops])}
    columns |= {"bytes_read": 4.0 * b * np.array([m * k + 2 * n * k, (m + n) * k, m * n, m * n + n * k])}
    columns |= {"bytes_written": 4.0 * b * np.array([m * k, m * n, m * n, m * k])}
    columns |= {"output_elements": b * np.array([m * k, m * n, m * n, m * k])}
    columns |= {"b": np.array([b, b, 0, b]), "m": np.array([m, m, 0, m])}
    columns |= {"n": np.array([n, n, 0, k]), "k": np.array([k, k, 0, n])}
    fused, *parts = operators.work(
        OperatorColumns(**columns), Way(device(board), precision, runtime), engine=engine
    ).seconds.tolist()
    assert fused <= sum(parts) * (1 + 1e-12)


def _columns(count):
    op = np.full(count, OPERATORS.index("dense"))
    columns = dict.fromkeys(OperatorColumns.__dataclass_fields__, np.ones(count))
    columns |= {"op": op, "op_class": np.array(OPERATOR_CLASS_OF)[op], "view": np.zeros(count)}
    return OperatorColumns(**columns | {"flops": np.full(count, 1e9), "m": np.full(count, 512.0)})


@pytest.mark.parametrize("board", [d.id for d in catalogue() if d.kind == "gpu"])
def test_every_board_has_a_rate_that_its_peak_and_power_allow(board):
    d = device(board)
    for name in ("fp32", "tf32", "fp16", "bf16", "int8", "fp8"):
        assert 0 < roofline.fed_flops(d, name) <= max(d.peak_flops.get(name, 0.0), d.peak_flops["fp32"])


def test_boards_at_their_power_limit_do_not_reach_their_peak():
    """NeuSight's products in fp32: 4.0 of 8.1 TFLOP/s on a T4, 9.5 of 30 on an L4, 17.6 of 19.5 on an A100."""
    for name, low, high in (("t4", 3.5e12, 4.5e12), ("l4", 7e12, 10e12), ("a100-pcie-80gb", 17e12, 20e12)):
        assert low < roofline.fed_flops(device(name), "fp32") < high


@pytest.mark.parametrize(
    ("board", "older"), [("t4", True), ("v100-sxm2-16gb", True), ("mi250x", False), ("a10", False)]
)
def test_python_issues_more_slowly_beside_older_boards(board, older):
    """By hosts of their time. Inductor's wrapper is Python, too; what is built issues little from it."""
    few = Tables.one(_columns(40))
    for runtime, scale in (("torch", operators.OLDER_HOST), ("torch.compile", operators.OLDER_HOST), ("tvm", 1.0)):
        way, newer = Way(device(board), "fp32", runtime), Way(device("a100-sxm4-80gb"), "fp32", runtime)
        call = operators.CALL_S[operators.ISSUED_AS[runtime]]
        ratio = (PLAIN.seconds(few, way).host - call) / (PLAIN.seconds(few, newer).host - call)
        assert ratio == pytest.approx(scale if older else 1.0)


@pytest.mark.parametrize(("board", "scale"), [("jetson-agx-orin-32gb", 2.0), ("jetson-agx-thor-128gb", 1.0)])
def test_a_jetsons_own_cores_issue_operators_more_slowly_up_to_orin(board, scale):
    few, way = Tables.one(_columns(40)), Way(device(board))
    call = operators.CALL_S["eager"]
    beside = PLAIN.seconds(few, replace(way, device=device("a100-sxm4-80gb"))).host - call
    assert (PLAIN.seconds(few, way).host - call) / beside == pytest.approx(scale)
    assert InferencePredictor.host_of(way.device) == tuple(scale * v for v in InferencePredictor.settings.host)


def test_families_are_told_by_shape():
    table = _columns(5)
    conv = OPERATORS.index("conv")
    values = vars(table) | {
        "op": np.full(5, conv), "op_class": np.full(5, OPERATOR_CLASS_OF[conv]),
        "kernel_area": np.array([1, 9, 9, 9, 11]), "groups": np.array([1, 1, 4, 64, 1]),
        "n": np.array([64.0, 64, 16, 1, 64]),
    }  # fmt: skip
    found = operators.families(OperatorColumns(**values), Way(device("a100-80gb")))
    assert [FAMILIES[i] for i in found] == ["conv", "conv3x3", "conv_grouped", "conv_depthwise", "conv1d"]


@pytest.mark.parametrize("values", [{}, {"all": 3}, {"all": {"": "x"}}])
def test_levels_that_are_none_say_so(values):
    with pytest.raises(ArtefactError, match="perfpass train"):
        OperatorTimes.from_dict(values)


def test_levels_survive_their_artefact():
    shipped = OperatorTimes.load()
    assert OperatorTimes.from_dict(shipped.to_dict()) == shipped
    assert "torch" in shipped.levels["runtime"]


@pytest.mark.parametrize(
    ("area", "groups", "family"),
    [(9, 1, "conv3x3"), (27, 1, "conv"), (125, 1, "conv"), (1, 1, "conv"), (11, 1, "conv1d"), (33, 1, "conv1d")],
)
def test_a_kernel_of_three_dimensions_is_not_one_of_one(area, groups, family):
    one = _convolution(area, groups)
    assert FAMILIES[operators.families(one, Way(device("v100-sxm2-16gb")))[0]] == family


def test_long_depthwise_kernels_of_one_dimension_are_not_the_generic_ones_of_two():
    way = Way(device("a100-80gb"), "fp16")
    in_one, in_two = (operators.work(_convolution(area, 512), way).seconds[0] for area in (51, 49))
    assert in_one < 0.2 * in_two


def test_an_engines_large_depthwise_kernels_are_its_own():
    on = device("a100-80gb")
    taps = _convolution(49, 512)
    torch, tensorrt = (operators.work(taps, Way(on, "fp16", runtime=r)).seconds[0] for r in ("torch", "tensorrt"))
    assert tensorrt < 0.2 * torch


def test_a_large_depthwise_kernel_reaches_its_rate_by_itself_and_none_that_is_compiled_takes_it():
    on, taps = device("a100-80gb"), _convolution(49, 512)
    eager, compiled = (operators.work(taps, Way(on, "fp32", r)).seconds[0] for r in ("torch", "torch.compile"))
    assert eager == pytest.approx(
        taps.flops[0] / (roofline.fed_flops(on, "fp32") * operators.GENERIC_DEPTHWISE), rel=0.02
    )
    assert compiled < 0.2 * eager
    library = operators.work(taps, Way(on, "fp32", "onnxruntime"), engine=True).seconds[0]
    assert library == pytest.approx(eager, rel=0.1), "an engine of libraries takes theirs"
    slower = operators.work(taps, Way(on, "fp32"), step=True).seconds[0]
    assert slower > 2 * eager, "levels of steps were fitted on the slower one"


@pytest.mark.parametrize(("model", "runtime"), [("convmixer_768_32", "torch"), ("convmixer_768_32", "torch.compile")])
def test_networks_of_large_depthwise_kernels_take_what_was_measured_by_their_operators_alone(model, runtime):
    from perfpass.records import tables, vision

    rows = vision.load()
    rows = rows[(rows.model == model) & (rows.device == "rtx-4090") & (rows.precision == "amp")]
    rows, known = rows[(rows.runtime == runtime) & (rows["mode"] == "inference")], tables.load()
    assert len(rows)
    for row in rows.itertuples():
        one = known.table(row.source, row.model, int(row.img_size), int(row.batch), 16)
        way = Way(device(row.device), row.precision, runtime, row.layout)
        found = OperatorTimes.load().seconds(Tables.one(one), way).total[0]
        assert 0.5 < found / (row.latency_ms * 1e-3) < 2.0, row


def _convolution(area: float, groups: float) -> OperatorColumns:
    op = OPERATORS.index("conv")
    values = dict.fromkeys((f for f in OperatorColumns.__dataclass_fields__), np.zeros(1))
    n, k = (1.0, float(area)) if groups > 1 else (256.0, 256.0 * area)
    b, m = groups, 1e5
    values |= {
        "op": np.array([op]), "op_class": np.array(OPERATOR_CLASS_OF)[[op]], "count": np.ones(1),
        "flops": np.array([2.0 * b * m * n * k]), "bytes_read": np.array([2e6]), "bytes_written": np.array([2e6]),
        "b": np.array([b]), "m": np.array([m]), "n": np.array([n]), "k": np.array([k]),
        "kernel_area": np.array([float(area)]), "groups": np.array([groups]),
    }  # fmt: skip
    return OperatorColumns(**values)


def _interpolation(planes, pixels, flops=7.0):
    """A resize of [planes, pixels] that computes ``flops`` an element."""
    columns = dict.fromkeys(OperatorColumns.__dataclass_fields__, np.zeros(1))
    op, size = OPERATORS.index("resize"), float(planes * pixels)
    given = {"op": op, "op_class": int(OPERATOR_CLASS_OF[op]), "count": 1, "flops": flops * size, "b": planes}
    given |= {"m": pixels, "bytes_read": size, "bytes_written": 4 * size, "output_elements": size}
    return OperatorColumns(**columns | {name: np.array([value]) for name, value in given.items()})


@pytest.mark.parametrize("name", ["rtx-4090", "a100-80gb", "mi300x"])
def test_pytorchs_interpolation_runs_a_thread_a_pixel_through_all_planes(name):
    board = device(name)

    def seconds(planes, pixels, flops=7.0, **way):
        return float(operators.work(_interpolation(planes, pixels, flops), Way(board, "fp32", **way)).seconds[0])

    few = seconds(65536, 196)
    assert 15e-3 < few < 26e-3, "230 to 400 ns a plane"
    assert seconds(65536, 784) == pytest.approx(few), "pixels that idle multiprocessors take"
    assert seconds(131072, 196) == pytest.approx(2 * few)
    full = board.sm_count * 1024
    assert seconds(64, 8 * full) > 3 * seconds(64, 2 * full), "waves of pixels"
    for other in ({"flops": 0.0}, {"layout": "nhwc"}, {"runtime": "torch.compile"}, {"runtime": "tensorrt"}):
        assert seconds(65536, 196, **other) < 0.1 * few, other


def test_the_gradient_of_an_interpolation_has_a_thread_for_each_element():
    options = backward.StepOptions("none", foreach=False)
    step = backward.derive(_interpolation(65536, 196), options, input_elements=1.0, width=4.0)
    seconds = operators.work(step, Way(device("rtx-4090"), "fp32"), step=True).seconds
    resizes = np.asarray(step.op) == OPERATORS.index("resize")
    (forward,), (back,) = (seconds[resizes & (step.part == part)] for part in (backward.FORWARD, backward.DATA))
    assert back < 0.1 * forward


def test_tables_hold_the_planes_and_the_pixels_of_a_resize():
    torch = pytest.importorskip("torch")
    from perfpass import features
    from perfpass.graph import costs
    from perfpass.importers.torch import trace

    class Up(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.interpolate(x, scale_factor=2, mode="bilinear")

    graph = trace(Up(), (3, 5, 7), batch=4)
    table = features.operator_table(graph, costs.count(graph))
    row = np.flatnonzero(np.asarray(table.op) == OPERATORS.index("resize"))
    assert [int(np.asarray(getattr(table, c))[row[0]]) for c in "bmnk"] == [12, 140, 0, 0]
    larger = ladder.at_batches(Tables.one(table), np.array([4]), np.array([[8]])).table
    assert np.asarray(larger.b)[row[0]] == 24 and np.asarray(larger.m)[row[0]] == 140
