"""Time by operators on CPUs: what more work, more batch and more cores may do, its parts, its widths, and its files."""

from __future__ import annotations

import itertools
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfpass
from perfpass.devices import device
from perfpass.errors import ArtefactError
from perfpass.graph import OPERATOR_CLASS_OF, OPERATORS
from perfpass.graph.table import OperatorColumns, Tables
from perfpass.predictors.estimate import Runs
from perfpass.predictors.inference.analytic import AnalyticPredictor
from perfpass.predictors.inference.cpu import CAUSES, CpuPredictor
from perfpass.predictors.inference.cpu_operators import FAMILIES, NAMES, RUNTIMES, CpuTimes, families
from perfpass.predictors.way import MEASURED_FLOP_PER_CYCLE, Way

CPUS = ("epyc-7742", "core-i9-10940x", "xeon-platinum-8380")
TIMES = CpuPredictor.load().times
_KINDS = ("conv", "conv_transpose", "dense", "matmul", "attention", "softmax", "layer_norm", "relu", "add", "reshape")
_PRODUCTS = ("conv", "conv_transpose", "dense", "matmul", "attention")


def tables(names, b, m, n, k, area, batch=1):
    """Operators of these kinds and sizes; ``batch`` multiplies what a sample brings: the rows of products."""
    b, m, n, k = (np.array(v, dtype=np.float64) for v in (b, m, n, k))
    m = m * batch
    count, product = len(names), np.isin(names, _PRODUCTS)
    weighted = np.isin(names, ("conv", "conv_transpose", "dense"))
    weights = np.where(weighted, 4.0 * n * k, 0.0)
    op = np.array([OPERATORS.index(name) for name in names])
    columns = {f.name: np.zeros(count) for f in fields(OperatorColumns)} | {
        "op": op, "op_class": np.array(OPERATOR_CLASS_OF)[op], "count": np.ones(count), "weight_bytes": weights,
        "flops": np.where(product, 2.0 * b * m * n * k, b * m * n), "bytes_read": 4.0 * b * m * k + weights,
        "bytes_written": 4.0 * b * m * n, "b": b * product, "m": m * product, "n": n * product, "k": k * product,
        "kernel_area": np.where(np.char.startswith(names, "conv"), area, 0), "groups": np.ones(count, dtype=int),
        "view": (np.array(names) == "reshape").astype(np.float64),
    }  # fmt: skip
    return Tables.one(OperatorColumns(**columns))


@st.composite
def networks(draw):
    """A few operators of any kind and size."""
    count = draw(st.integers(1, 5))
    size = st.integers(1, 2048)
    names = [draw(st.sampled_from(_KINDS)) for _ in range(count)]
    sizes = [[draw(size) for _ in range(count)] for _ in range(4)]
    sizes[0] = [draw(st.integers(1, 4)) for _ in range(count)]
    area = [draw(st.sampled_from((1, 3, 9, 33, 49))) for _ in range(count)]
    return names, *sizes, area


def seconds(network, runtime="onnxruntime", cpu="epyc-7742", batch=1, **changes):
    way = Way(replace(device(cpu), **changes), runtime=runtime)
    return TIMES.seconds(tables(*network, batch=batch), np.array([batch]), way)


@settings(max_examples=60, deadline=None)
@given(networks(), st.sampled_from(RUNTIMES), st.sampled_from(CPUS), st.integers(1, 40), st.integers(1, 40))
def test_a_larger_batch_never_takes_less_time(network, runtime, cpu, batch, more):
    less, longer = (seconds(network, runtime, cpu, size).total[0] for size in (batch, batch + more))
    assert longer >= less * (1.0 - 1e-12)


@settings(max_examples=40, deadline=None)
@given(networks(), st.sampled_from(RUNTIMES), st.sampled_from(CPUS))
def test_rows_sum_to_the_time_which_no_faster_cpu_makes_longer(network, runtime, cpu):
    found = seconds(network, runtime, cpu)
    if found.row.sum() > 0:
        assert found.row.sum() == pytest.approx(found.total[0])
    assert 0 < found.host[0] <= found.total[0] * (1.0 + 1e-12) and 0 <= found.unscheduled[0] <= 1
    whole = device(cpu)
    for changes in (
        {"peak_flops": {k: 2 * v for k, v in whole.peak_flops.items()}},
        {"memory_bandwidth_bytes_s": 2 * whole.memory_bandwidth_bytes_s},
        {"base_clock_hz": 2 * whole.base_clock_hz},
        {"l3_bytes": 4 * whole.l3_bytes},
    ):
        assert seconds(network, runtime, cpu, **changes).total[0] <= found.total[0] * (1.0 + 1e-12)


def test_many_graphs_are_priced_as_each_alone():
    one, two = tables(["conv", "relu"], [1, 1], [196, 196], [64, 64], [576, 1], [9, 0]), tables(
        ["dense"], [1], [1], [1000], [512], [0]
    )  # fmt: skip
    joined = OperatorColumns(
        **{f.name: np.concatenate([getattr(t.table, f.name) for t in (one, two)]) for f in fields(OperatorColumns)}
    )
    way = Way(device("epyc-7742"), runtime="onnxruntime")
    both = TIMES.seconds(Tables(joined, np.array([0, 2, 3])), np.ones(2), way)
    assert both.total.tolist() == [TIMES.seconds(t, np.ones(1), way).total[0] for t in (one, two)]


def test_families_tell_vectors_transposed_and_one_dimensional_convolutions():
    way = Way(device("epyc-7742"), runtime="tvm")

    def of(names, m, area):
        n = len(names)
        return [FAMILIES[i] for i in families(tables(names, [1] * n, m, [64] * n, [64] * n, area), np.ones(1), way)]

    assert of(["dense", "dense", "conv_transpose"], [1, 2, 9], [0, 0, 16]) == ["vector", "dense", "conv_transpose"]
    assert of(["conv", "conv"], [400, 256], [33, 1]) == ["conv1d_ragged", "conv1d"]  # speech
    assert of(["conv", "conv"], [64, 64], [4, 5]) == ["conv1d", "conv1d"]  # texts
    assert of(["conv", "conv", "conv"], [289, 289, 289], [7, 1, 9]) == ["conv", "conv", "conv3x3"]  # Inception


def test_products_without_a_schedule_are_slow_in_tvm_and_slower_where_a_column_falls_on_few_sets():
    square = [["dense"], [1], [128], [512], [512], [0]]
    assert seconds(square, "tvm").total[0] > 20 * seconds(square, "onnxruntime").total[0]
    odd = [["dense"], [1], [128], [516], [512], [0]]
    assert seconds(square, "tvm").total[0] > 1.5 * seconds(odd, "tvm").total[0]


def test_more_cores_are_used_in_onnxruntime_and_not_in_tvm():
    network = [["conv"], [1], [3136], [256], [1152], [9]]
    whole = device("epyc-7742")

    def on(runtime, cores):
        peaks = {k: v * cores / whole.sm_count for k, v in whole.peak_flops.items()}
        return seconds(network, runtime, sm_count=cores, peak_flops=peaks).total[0]

    assert 0.5 < on("onnxruntime", 2) / on("onnxruntime", 1) < 0.65
    assert on("tvm", 2) == on("tvm", 1)


@settings(deadline=None, max_examples=30)
@given(network=networks(), runtime=st.sampled_from(("onnxruntime", "torch")), counts=st.sets(st.integers(1, 64)))
def test_no_more_threads_make_a_network_slower(network, runtime, counts):
    cpu, made, one = device("epyc-7742"), tables(*network), np.ones(1)
    told = [TIMES.seconds(made, one, Way(cpu.of_threads(n), runtime=runtime)).total[0] for n in sorted(counts)]
    assert all(more <= fewer * (1 + 1e-12) for fewer, more in itertools.pairwise(told))


def test_small_operators_gain_less_from_threads_than_large_ones_and_none_gains_all():
    cpu, one = device("xeon-platinum-8280"), np.ones(1)

    def gained(rows, count):
        made = tables(["conv"] * count, [1] * count, [rows] * count, [64] * count, [576] * count, [9] * count)
        alone, all_of_them = (
            TIMES.seconds(made, one, Way(cpu.of_threads(n), runtime="onnxruntime")).total[0] for n in (1, 28)
        )
        return alone / all_of_them

    small, large = gained(rows=49, count=100), gained(rows=100_000, count=2)
    assert small < 4.0 and 12.0 < large < 28.0


def test_what_no_formula_by_operators_answers_waits_for_its_threads_too():
    cpu = device("xeon-platinum-8280")
    made = tables(["conv"] * 50, [1] * 50, [196] * 50, [256] * 50, [256] * 50, [1] * 50)
    runs = Runs(made, np.array([1]), *(np.ones(1) for _ in range(7)))

    def told(threads, runtime="onnxruntime"):
        way = Way(cpu.of_threads(threads), precision="int8", runtime=runtime)
        return AnalyticPredictor.load().columns(runs, way)[0]["latency_ms"][0]

    assert 1.0 < told(1) / told(28) < 14.0
    assert told(1, "tvm") == told(28, "tvm")


def test_threads_beyond_those_of_any_run_are_said_and_widen_the_upper_bound_more():
    cpu = device("xeon-platinum-8280")
    few, _ = estimates(Way(cpu.of_threads(2), runtime="onnxruntime"))
    many, notes = estimates(Way(cpu, runtime="onnxruntime"))
    assert few < many
    assert any("28 threads" in reason and "more than 2" in reason for reason in notes.reasons(0))
    spread = CpuPredictor.load()._spread["onnxruntime"]
    at = spread.causes.index("cores")
    assert spread.high[at] > spread.low[at]


def estimates(way):
    runs = Runs(tables(["conv"], [1], [3136], [256], [1152], [9]), np.array([1]), *(np.ones(1) for _ in range(7)))
    predictor = CpuPredictor.load()
    columns, notes = predictor.columns(runs, way)
    assert columns["lacks"].shape == (1, len(CAUSES))
    latency = predictor.estimates(columns, way).latency_ms
    return float(latency.high[0] / latency.low[0]), notes


def test_an_unknown_cpu_and_its_cores_widen_the_interval_which_stays_usable():
    epyc = device("epyc-7742")
    rate = 2 * MEASURED_FLOP_PER_CYCLE * epyc.clock_hz
    known = replace(epyc, name="AMD EPYC", sm_count=2, peak_flops={**epyc.peak_flops, "fp32": rate})
    own, notes = estimates(Way(known, runtime="onnxruntime"))
    single, _ = estimates(Way(replace(known, sm_count=1), runtime="onnxruntime"))
    other, _ = estimates(Way(replace(known, name="another"), runtime="onnxruntime"))
    many, _ = estimates(Way(device("epyc-7742"), runtime="onnxruntime"))
    assert 1.4 < single < own < 4.0 and own < other < many < 10.0
    assert "one machine" in " ".join(notes.reasons(0))


def test_it_speaks_of_single_precision_on_cpus_alone():
    cpu = device("epyc-7742")
    assert CpuPredictor.covers(Way(cpu, runtime="tvm"))
    assert not CpuPredictor.covers(Way(cpu, precision="bf16", runtime="onnxruntime"))
    assert CpuPredictor.covers(Way(cpu, runtime="torch")) and not CpuPredictor.covers(Way(cpu, runtime="tensorrt"))
    assert not CpuPredictor.covers(Way(device("a100-80gb"), runtime="onnxruntime"))


def test_constants_survive_the_file_and_what_is_none_is_refused():
    again = CpuTimes.from_dict(TIMES.to_dict())
    for runtime in RUNTIMES:
        assert len(again.constants[runtime]) == len(NAMES)
        np.testing.assert_allclose(again.constants[runtime], TIMES.constants[runtime], atol=1e-5)
    with pytest.raises(ArtefactError, match="perfpass train"):
        CpuTimes.from_dict({"onnxruntime": {}})


def one(name, m, n, k, area=0, runtime="tvm"):
    """Seconds of one operator."""
    return seconds(([name], [1], [m], [n], [k], [area]), runtime).total[0]


def test_a_tile_that_is_no_vector_is_slow_in_tvm():
    assert one("dense", 1, 1000, 64) > 2.5 * one("dense", 1, 1024, 64)  # tiles of 25 and of 32
    assert one("conv", 784, 26, 64, 9) / 26 > 1.1 * one("conv", 784, 32, 64, 9) / 32  # of 13 and of 16
    assert one("dense", 1, 1000, 64, runtime="onnxruntime") < one("dense", 1, 1024, 64, runtime="onnxruntime")


def test_one_dimensional_convolutions_of_tvm_want_rows_that_are_vectors():
    kept, taken_apart, spilled = (one("conv", m, 128, 384, 3) for m in (256, 255, 4096))
    assert taken_apart > 2 * kept
    assert spilled > 2 * 16 * kept


def test_relax_without_records_is_slower_than_relay():
    for network in (("conv", 784, 64, 576, 9), ("conv", 3136, 64, 9, 9)):
        assert one(*network, runtime="relax") > 5 * one(*network)


@pytest.mark.parametrize("board", ["a100-80gb", "v100-sxm2-16gb", "t4", "rtx-3090", "p100-pcie-16gb"])
def test_classes_of_tvm_are_carried_to_gpus_with_both_ends_in_the_interval(board):
    behind = dict(zip(FAMILIES, TIMES.behind_libraries(), strict=False))
    assert behind["matmul"] > 2 > 0.5 > behind["conv3x3"] and behind["softmax"] == 0
    runs = Runs(tables(["dense"], [1], [512], [512], [512], [0]), *(np.ones(1) for _ in range(8)))
    found = {}
    for runtime in ("tensorrt", "tvm"):
        way = Way(device(board), runtime=runtime)
        columns, notes = AnalyticPredictor.load().columns(runs, way)
        found[runtime] = AnalyticPredictor.load().estimates(columns, way).latency_ms
        said = notes.support(0).reasons
    library, carried = found["tensorrt"].median[0], found["tvm"]
    assert carried.low[0] < library < carried.median[0]
    assert "half as far" in said[0]


def test_few_cores_of_a_cpu_with_records_say_that_those_of_all_carry_over():
    whole, few = (
        perfpass.predict("resnet50", name, runtime="torch.compile") for name in ("core-i7-12700h", "core-i7-12700h:4")
    )
    assert few.latency_ms.median > whole.latency_ms.median
    assert any("no run on 4 cores of Intel Core i7-12700H alone" in reason for reason in few.support.reasons)
    assert not any("no run" in reason for reason in whole.support.reasons)


def test_a_compiled_graph_takes_the_time_of_eager_pytorch_on_a_cpu_without_records():
    # Compiled, ResNet-18 takes 1.1 and MobileNetV2 0.7 of their eager time on one core of a Zen 3.
    for cpu in ("epyc-7763:1", "xeon-platinum-8480-plus:16"):
        compiled, eager = (perfpass.predict("resnet50", cpu, runtime=r) for r in ("torch.compile", "torch"))
        assert compiled.latency_ms.median == eager.latency_ms.median
        assert compiled.latency_ms.high > eager.latency_ms.high and compiled.latency_ms.low < eager.latency_ms.low
        assert any("no run of torch.compile to learn from on such a CPU" in r for r in compiled.support.reasons)


@pytest.mark.parametrize("runtime", ["torch", "onnxruntime", "openvino"])
def test_8_bits_are_asked_of_a_cpu_that_trees_know(runtime):
    asked, wide = (
        perfpass.predict("resnet50", "core-i7-12700h", runtime=runtime, precision=p) for p in ("int8", "fp32")
    )
    assert 0.2 <= asked.latency_ms.median / wide.latency_ms.median < 0.8
