"""The roofline and the features of the inference predictor."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from operator_tables import convolution, table
from perfpass import _core, devices
from perfpass.graph import DTYPES
from perfpass.graph.table import Tables
from perfpass.predictors import roofline
from perfpass.predictors.inference.features import _NUMBER_BYTES, FEATURES, MOVED_SHARE, graph_vectors
from perfpass.predictors.roofline import GROUPS, RATES, SOFTWARE
from perfpass.predictors.way import Way
from perfpass.predictors.workload import PRECISIONS

GPU = "rtx-4090"


def graph_vector(sizes, way, efficiency):
    """Features [F], time and parts of one graph at batch 8."""
    found = graph_vectors(Tables.one(sizes), np.array([8]), way, efficiency)
    return SimpleNamespace(values=found.values[0], base_s=float(found.base_s[0]), row_s=found.row_s)


def test_bound_is_the_larger_of_compute_and_memory():
    device = devices.device("a100-sxm4-80gb")
    found = roofline.bound(table([convolution(64)]), Way(device, "amp"))
    row = convolution(64)
    assert found.compute_s[0] == pytest.approx(row["flops"] / 312e12)
    assert found.memory_s[0] == pytest.approx(
        (row["bytes_read"] + row["bytes_written"]) / device.memory_bandwidth_bytes_s
    )
    assert found.roof_s[0] == max(found.compute_s[0], found.memory_s[0])


def test_convolutions_are_told_apart_by_kernel_and_groups():
    rows = [
        convolution(1, area=1),
        convolution(1),
        convolution(1, area=49),
        convolution(1, groups=8),
        convolution(1, groups=256),
    ]
    names = [GROUPS[g] for g in roofline.operator_groups(table(rows))]
    assert names == ["conv1x1", "conv3x3", "conv_large", "conv_grouped", "conv_depthwise3"]


def test_depthwise_convolutions_use_no_matrix_unit_and_large_ones_a_generic_kernel():
    device = devices.device("a100-sxm4-80gb")
    usual, large = convolution(64, area=25, groups=256), convolution(64, area=81, groups=256)
    found = roofline.bound(table([usual, large]), Way(device, "amp"))
    rate = device.peak_flops["fp32"]
    assert found.compute_s[0] == pytest.approx(usual["flops"] / rate)
    assert found.compute_s[1] == pytest.approx(large["flops"] / (rate * roofline.GENERIC_DEPTHWISE))
    assert [GROUPS[g] for g in found.group] == ["conv_depthwise", "conv_depthwise_large"]


@pytest.mark.parametrize(("way", "slower"), [({}, 1.0), ({"layout": "nhwc"}, 3.0), ({"runtime": "torch.compile"}, 8.0)])
def test_depthwise_kernels_beyond_7_by_7_are_slow_a_tap_in_channels_last(way, slower):
    ones, way = np.ones((len(SOFTWARE), len(GROUPS))), Way(devices.device(GPU), "amp", **way)

    def a_tap(area: float) -> float:
        many = table([convolution(1 << 14, area=area, groups=256)])
        return graph_vector(many, way, ones).row_s[0] / area

    assert a_tap(81) / a_tap(49) == pytest.approx(slower, rel=0.02)
    assert a_tap(49) / a_tap(36) == pytest.approx(1.0, rel=0.02)


def test_a_copied_input_costs_its_bytes():
    sizes, device, ones = table([convolution(8)]), devices.device(GPU), np.ones((len(SOFTWARE), len(GROUPS)))
    resident = graph_vector(sizes, Way(device, "amp"), ones)
    copied = graph_vector(sizes, Way(device, "amp", copied_bytes=1e7), ones)
    assert copied.base_s - resident.base_s == pytest.approx(1e7 / roofline.PAGEABLE_COPY_BYTES_S)


def test_power_limit_caps_boards_that_cannot_feed_their_peak():
    capped, free = devices.device("rtx-pro-6000-blackwell-max-q"), devices.device("rtx-4090")
    assert roofline.sustained_flops(capped, "fp16") < 0.7 * capped.peak_flops["fp16"]
    assert roofline.sustained_flops(free, "fp16") == free.peak_flops["fp16"]
    assert roofline.sustained_flops(capped, "fp32") == capped.peak_flops["fp32"]


def test_features_are_finite_or_missing_and_named():
    vector = graph_vector(
        table([convolution(8)]), Way(devices.device(GPU), "amp"), np.ones((len(SOFTWARE), len(GROUPS)))
    )
    assert vector.values.shape == (len(FEATURES),)
    assert len(set(FEATURES)) == len(FEATURES)
    assert not np.isinf(vector.values).any()
    assert vector.row_s.sum() > 0


def test_features_are_averages_over_the_time_of_each_operator():
    rows = [convolution(8), convolution(8, channels=512, pixels=49), convolution(8, area=1)]
    sizes, way = table(rows), Way(devices.device(GPU), "amp")
    efficiency = np.ones((len(SOFTWARE), len(GROUPS)))
    efficiency[:, GROUPS.index("conv1x1")] = 7.0
    found = graph_vector(sizes, way, efficiency)
    value = dict(zip(FEATURES, found.values.tolist(), strict=True))
    share = found.row_s / found.row_s.sum()
    assert value["time_conv1x1"] == pytest.approx(share[2], rel=1e-5)
    assert value["gemm_k"] == pytest.approx(np.average(np.log2([r["k"] for r in rows]), weights=share), rel=1e-5)
    assert value["k_from_9.01"] == pytest.approx(share[:2].sum(), rel=1e-5)
    assert np.isnan(value["attention_m"])


def product(tokens, width=2, count=1.0):
    """A row of ``table``: products of activations of ``tokens`` by 64, as attention in parts has them."""
    macs = 96 * tokens * tokens * 64
    moved = {"bytes_read": 96 * 2 * tokens * 64 * width, "bytes_written": 96 * tokens * tokens * width}
    sizes = {"b": 96, "m": tokens, "n": tokens, "k": 64, "output_elements": 96 * tokens * tokens}
    return {"op": "matmul", "macs": macs, "flops": 2 * macs, **sizes, **moved, "count": count}


ONES = np.ones((len(SOFTWARE), len(GROUPS)))


def test_no_product_is_faster_than_what_the_power_limit_feeds():
    rows = [convolution(64, area=49, width=4), convolution(64, channels=1024, groups=4, width=4)]
    flops = np.array([row["flops"] for row in rows])
    t4 = graph_vector(table(rows), Way(devices.device("t4"), "fp32"), ONES)
    fed = flops / roofline.fed_flops(devices.device("t4"), "fp32")
    assert t4.row_s == pytest.approx(fed)
    assert t4.row_s.sum() > 2.0 * flops.sum() / devices.device("t4").peak_flops["fp32"]
    # What a kernel falls short of its rate at the clock is not charged to the watts besides.
    slow = ONES * 3.0
    slower = graph_vector(table(rows), Way(devices.device("t4"), "fp32"), slow).row_s
    assert slower == pytest.approx(np.maximum(3.0 * flops / devices.device("t4").peak_flops["fp32"], fed))


def test_dense_products_in_halves_reach_less_than_a_board_of_70_watts_feeds():
    """As of operators: what watts feed times what kernels of the family reach (BERT in halves on a T4)."""
    t4 = devices.device("t4")
    m, n = 8192, 1024
    sizes = {"b": 1, "m": m, "n": n, "k": n, "output_elements": m * n, "bytes_read": 2 * n * (m + n)}
    row = {"op": "dense", "macs": m * n * n, "flops": 2 * m * n * n, "bytes_written": 2 * m * n, **sizes}
    seconds = graph_vector(table([row]), Way(t4, "fp16"), ONES).row_s[0]
    assert seconds == pytest.approx(row["flops"] / (roofline.DENSE_REACH * roofline.fed_flops(t4, "fp16")))
    # A board that its watts do not hold back is no slower for it.
    v100 = devices.device("v100-sxm2-32gb")
    freely = graph_vector(table([row]), Way(v100, "fp16"), ONES).row_s[0]
    assert freely == pytest.approx(row["flops"] * roofline.HALVED_REACH / v100.peak_flops["fp16"])
    # Nor is one whose units are held to half their rate, which it feeds.
    rtx = devices.device("rtx-4090")
    held = graph_vector(table([row]), Way(rtx, "fp16"), ONES).row_s[0]
    assert held == pytest.approx(row["flops"] / rtx.peak_flops["fp16"])


def test_depthwise_kernels_of_pytorch_issue_more_than_an_a100_has_time_for():
    """In fp32 and the usual layout, where the kernel is PyTorch's own and not cuDNN's, by outputs and taps."""
    a100 = devices.device("a100-sxm4-80gb")
    small, large = (convolution(512, area=area, groups=256, width=4) for area in (9, 25))
    rows = table([small, large])

    def seconds(device, precision, layout="nchw"):
        return graph_vector(rows, Way(device, precision, layout=layout), ONES).row_s

    own, others = seconds(a100, "fp32"), (seconds(a100, "fp32", "nhwc"), seconds(a100, "amp"))
    issued = small["output_elements"] / (a100.sm_count * 128 * a100.clock_hz)
    assert own == pytest.approx([310 * issued, 630 * issued])
    assert all((own > 2.5 * found).all() for found in others)
    assert (seconds(a100, "tf32") == own).all()
    # A slice issues with the multiprocessors that it has.
    part = devices.device("a100-sxm4-80gb:3g.40gb")
    assert seconds(part, "fp32") == pytest.approx(own * a100.sm_count / part.sm_count)


def test_bytes_pass_the_multiprocessors_as_well_as_the_memory():
    """Two slices with the same memory and 42 and 56 multiprocessors; halves are moved half as fast as wider numbers."""
    few, many = (devices.device(f"a100-sxm4-80gb:{name}") for name in ("3g.40gb", "4g.40gb"))
    assert few.memory_bandwidth_bytes_s == many.memory_bandwidth_bytes_s
    row = {"op": "relu", "bytes_read": 10**9, "bytes_written": 10**9, "output_elements": 5 * 10**8}

    def seconds(device, precision):
        return graph_vector(table([row]), Way(device, precision), ONES).row_s[0]

    def beside_memory(device, precision):
        return seconds(device, precision) - 2e9 / device.memory_bandwidth_bytes_s

    for precision in ("fp32", "amp"):
        moved = beside_memory(few, precision), beside_memory(many, precision)
        assert moved[0] / moved[1] == pytest.approx(many.sm_count / few.sm_count)
    assert beside_memory(few, "amp") == pytest.approx(2 * beside_memory(few, "fp32"))
    # Boards of others, whose multiprocessors are of another kind, take the share that factors of groups are beside.
    for name in ("mi300x", "arc-a770-16gb", "apple-m2-max"):
        other = devices.device(name)
        assert seconds(other, "fp32") == pytest.approx((1 + MOVED_SHARE) * 2e9 / other.memory_bandwidth_bytes_s)
    unclocked = replace(few, clock_hz=0.0)  # as a device file may leave it
    assert beside_memory(unclocked, "fp32") == pytest.approx(MOVED_SHARE * 2e9 / few.memory_bandwidth_bytes_s)
    depthwise = table([convolution(64, groups=256, width=4)])
    assert np.isfinite(graph_vector(depthwise, Way(unclocked, "fp32"), ONES).base_s)
    # An A100 has more bytes of memory for each cycle of its multiprocessors than an RTX 4090 has.
    a100, rtx = devices.device("a100-sxm4-80gb"), devices.device("rtx-4090")
    assert beside_memory(a100, "amp") / seconds(a100, "amp") > 2 * beside_memory(rtx, "amp") / seconds(rtx, "amp")


def test_a_graph_without_some_of_its_rows_is_the_graph_of_the_others():
    rows = [convolution(64), {"op": "erf", "bytes_read": 10**8, "bytes_written": 10**8}, convolution(32)]
    whole, rest = (Tables.one(table(found)) for found in (rows, [rows[0], rows[2]]))
    found = whole.without(np.array([False, True, False]))
    assert found.offset.tolist() == rest.offset.tolist() == [0, 2]
    way = Way(devices.device(GPU), "amp")
    here, there = (graph_vectors(t, np.array([8]), way, ONES).values for t in (found, rest))
    np.testing.assert_array_equal(here, there)


def test_records_that_state_no_release_have_their_host_in_the_base():
    """Twice the usual, as beside other boards of 2016 to 2018."""
    board = devices.device("titan-xp")
    rows = table([{"op": "relu", "bytes_read": 8, "bytes_written": 8, "output_elements": 2, "count": 1000.0}])
    old, new = (graph_vector(rows, Way(board, "fp32", torch_version=v), ONES).base_s for v in ("1.7", "2.1"))
    assert new == pytest.approx(1000 * roofline.ISSUE_S["torch"], rel=0.01)
    assert old == pytest.approx(2 * new, rel=0.01)


def test_products_of_an_odd_length_find_no_matrix_unit_in_eager_halves():
    a100 = devices.device("a100-sxm4-80gb")

    def per_flop(tokens, precision, runtime="torch"):
        row = product(tokens, 4 if precision == "fp32" else 2, count=1000.0)
        return graph_vector(table([row]), Way(a100, precision, runtime), ONES).row_s[0] / row["flops"]

    # One half at a time is loaded and widened: half of what vector units do in fp32.
    assert per_flop(577, "fp16") == pytest.approx(2 * 1000 / a100.peak_flops["fp32"])
    assert per_flop(577, "fp16") > 3 * per_flop(576, "fp16")
    for way in (("fp32", "torch"), ("fp16", "torch.compile")):
        assert per_flop(577, *way) == pytest.approx(per_flop(576, *way), rel=0.01)


def test_matrix_units_at_half_their_rate_are_fed_more_of_it():
    row = convolution(512, area=9)
    share = {}
    for name in ("rtx-3090", "a100-sxm4-80gb", "p100-pcie-16gb"):
        found = graph_vector(table([row]), Way(devices.device(name), "fp16"), ONES)
        share[name] = row["flops"] / found.row_s[0] / devices.device(name).peak_flops["fp16"]
    assert share["rtx-3090"] == pytest.approx(1.0)
    assert share["a100-sxm4-80gb"] == pytest.approx(0.8)
    # Vector units alone, and PyTorch sums halves in fp32: at its rate, not two at a time.
    rates = devices.device("p100-pcie-16gb").peak_flops
    assert share["p100-pcie-16gb"] == pytest.approx(rates["fp32"] / rates["fp16"])


def test_every_rate_that_trees_speak_of_states_the_bytes_of_its_numbers():
    bits = {
        rate: _core.DTYPE_BITS[DTYPES.index(counted)] for counted, rate in PRECISIONS.values() if rate in _NUMBER_BYTES
    }
    assert set(RATES.values()) == set(_NUMBER_BYTES)
    assert {rate: 8 * size for rate, size in _NUMBER_BYTES.items()} == bits
