"""The roofline and the features of the inference predictor."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from operator_tables import convolution, table
from perfpass import devices
from perfpass.graph.table import Tables
from perfpass.predictors import roofline
from perfpass.predictors.inference.features import FEATURES, graph_vectors
from perfpass.predictors.roofline import GROUPS, SOFTWARE, Workload

GPU = "rtx-4090"


def graph_vector(sizes, device, workload, efficiency):
    """Features [F], time and parts of one graph."""
    found = graph_vectors(Tables.one(sizes), device, workload, np.array([workload.batch]), efficiency)
    return SimpleNamespace(values=found.values[0], base_s=float(found.base_s[0]), row_s=found.row_s)


def test_bound_is_the_larger_of_compute_and_memory():
    device = devices.device("a100-sxm4-80gb")
    found = roofline.bound(table([convolution(64)]), device, Workload(64, "amp"))
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
    found = roofline.bound(table([usual, large]), device, Workload(64, "amp"))
    rate = device.peak_flops["fp32"]
    assert found.compute_s[0] == pytest.approx(usual["flops"] / rate)
    assert found.compute_s[1] == pytest.approx(large["flops"] / (rate * roofline.GENERIC_DEPTHWISE))
    assert [GROUPS[g] for g in found.group] == ["conv_depthwise", "conv_depthwise_large"]


def test_a_copied_input_costs_its_bytes():
    sizes, device, ones = table([convolution(8)]), devices.device(GPU), np.ones((len(SOFTWARE), len(GROUPS)))
    resident = graph_vector(sizes, device, Workload(8, "amp"), ones)
    copied = graph_vector(sizes, device, Workload(8, "amp", copied_bytes=1e7), ones)
    assert copied.base_s - resident.base_s == pytest.approx(1e7 / roofline.PAGEABLE_COPY_BYTES_S)


def test_power_limit_caps_boards_that_cannot_feed_their_peak():
    capped, free = devices.device("rtx-pro-6000-blackwell-max-q"), devices.device("rtx-4090")
    assert roofline.sustained_flops(capped, "fp16") < 0.7 * capped.peak_flops["fp16"]
    assert roofline.sustained_flops(free, "fp16") == free.peak_flops["fp16"]
    assert roofline.sustained_flops(capped, "fp32") == capped.peak_flops["fp32"]


def test_features_are_finite_or_missing_and_named():
    vector = graph_vector(
        table([convolution(8)]), devices.device(GPU), Workload(8, "amp"), np.ones((len(SOFTWARE), len(GROUPS)))
    )
    assert vector.values.shape == (len(FEATURES),)
    assert len(set(FEATURES)) == len(FEATURES)
    assert not np.isinf(vector.values).any()
    assert vector.row_s.sum() > 0


def test_features_are_averages_over_the_time_of_each_operator():
    rows = [convolution(8), convolution(8, channels=512, pixels=49), convolution(8, area=1)]
    sizes, device, workload = table(rows), devices.device(GPU), Workload(8, "amp")
    efficiency = np.ones((len(SOFTWARE), len(GROUPS)))
    efficiency[:, GROUPS.index("conv1x1")] = 7.0
    found = graph_vector(sizes, device, workload, efficiency)
    value = dict(zip(FEATURES, found.values.tolist(), strict=True))
    share = found.row_s / found.row_s.sum()
    assert value["time_conv1x1"] == pytest.approx(share[2], rel=1e-5)
    assert value["gemm_k"] == pytest.approx(np.average(np.log2([r["k"] for r in rows]), weights=share), rel=1e-5)
    assert value["k_from_9.01"] == pytest.approx(share[:2].sum(), rel=1e-5)
    assert np.isnan(value["attention_m"])
