"""Time never falls as the batch or the slice grows: the ladder of batch sizes behind inference and training steps."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression

from perfpass.devices import device
from perfpass.graph.table import Tables
from perfpass.predictors import predict_graph
from perfpass.predictors.inference.predictor import InferencePredictor
from perfpass.predictors.learned import ladder
from perfpass.predictors.learned.intervals import nearest_to
from perfpass.predictors.learned.ratios import fingerprints
from perfpass.predictors.way import Way
from perfpass.records import tables
from small_networks import network

GROWING = ("macs", "flops", "bytes_written", "output_elements", "b", "m", "n", "k")
MODELS = ("resnet50", "vit_base_patch16_224", "swin_base_patch4_window7_224", "nf_regnet_b0", "mobilenetv3_large_100")
recorded = cache(tables.load)


def key(model: str) -> tuple[str, str, int]:
    return next((s, m, size) for s, m, size in recorded()._row if (s, m) == ("timm", model))


def steps(least: int, most: int) -> st.SearchStrategy[list[list[float]]]:
    row = st.lists(st.floats(-10, 10), min_size=7, max_size=7)
    return st.lists(row, min_size=least, max_size=most)


@given(steps(1, 4))
def test_isotonic_rows_are_those_of_scipy(rows):
    found = ladder.isotonic(np.array(rows))
    assert np.allclose(found, [isotonic_regression(row).x for row in rows], atol=1e-9)
    assert (np.diff(found, axis=1) >= -1e-12).all()


@given(steps(1, 1), st.lists(st.integers(1, 1 << 20), min_size=2, max_size=2), st.floats(-10, 10), st.floats(-10, 10))
def test_sizes_on_two_sides_of_a_rung_are_in_order_whatever_was_found_there(rows, sizes, first, second):
    rungs = ladder.isotonic(np.array(rows))
    small, large = sorted(sizes)
    a, b = (ladder.held(np.array([v]), np.array([s]), rungs)[0] for v, s in ((first, small), (second, large)))
    if any(small <= rung <= large for rung in ladder.RUNGS):
        assert a <= b + 1e-12


@given(
    steps(3, 3),
    st.lists(st.integers(1, 1 << 14), min_size=2, max_size=2),
    st.lists(st.floats(0, 3), min_size=6, max_size=6),
)
def test_bounds_on_two_sides_of_a_rung_are_in_order_whatever_their_widths(rows, sizes, own):
    rungs = ladder.isotonic(np.array(rows[:1]))
    widths = np.abs(np.array(rows[1:]))
    small, large = sorted(sizes)
    found = []
    for size, (asked, below, above) in zip((small, large), np.reshape(own, (2, 3)), strict=True):
        at = np.flatnonzero(size == ladder.RUNGS)
        if at.size:  # what is asked on a rung is what stands there
            asked, below, above = rungs[0, at[0]], widths[0, at[0]], widths[1, at[0]]
        low, high = (np.append(side, last)[None] for side, last in ((-widths[0], -below), (widths[1], above)))
        one = ladder.seconds(np.array([asked]), rungs, low, high, np.array([size]))
        found.append([float(np.log(one[name][0])) for name in ("low_s", "median_s", "high_s")])
    (least, middle, most), above = found
    assert least <= middle <= most
    if any(small <= rung <= large for rung in ladder.RUNGS):
        assert all(a <= b + 1e-9 for a, b in zip(found[0], above, strict=True))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("read", "asked"), [(1, 64), (8, 1), (64, 3)])
def test_a_table_at_another_batch_is_the_one_that_would_have_been_read(model, read, asked):
    table, there = (recorded().table(*key(model), batch, 16) for batch in (read, asked))
    found = ladder.at_batches(Tables.one(table), np.array([read]), np.array([[asked]])).table
    for name in GROWING:
        a, b = (np.asarray(getattr(t, name), dtype=float) * there.count for t in (found, there))
        assert np.abs(a - b).sum() <= 0.005 * b.sum(), name
    a, b = (np.asarray(t.bytes_read, dtype=float) * there.count for t in (found, there))
    assert np.abs(a - b).sum() <= 0.03 * b.sum()


@pytest.mark.parametrize("name", ["rtx-4090", "h100-sxm", "t4", "a100-40gb", "core-i9-10940x", "rtx-2080-ti"])
@pytest.mark.parametrize("model", MODELS)
def test_time_and_its_bounds_never_fall_as_the_batch_doubles(model, name):
    way, found = Way(device(name), "fp32"), []
    for batch in 2 ** np.arange(11):
        one = InferencePredictor.load().predict(recorded().table(*key(model), batch), int(batch), way)
        found.append((one.median_s, one.low_s, one.high_s))
    # Bounds depend on how far the network is from those measured, too, which changes a little with the batch.
    rises = np.diff(np.log(found), axis=0)
    assert (rises[:, 0] >= -0.005).all() and (rises[:, 1:] >= -0.03).all()


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize("precision", ["fp32", "amp"])
@pytest.mark.parametrize("batch", [1, 128])
def test_a_larger_slice_never_takes_longer_and_the_gpu_is_the_largest(mode, precision, batch):
    graph = network(batch, width=64, blocks=4)
    names = ("h100", *(f"h100:{profile}" for profile in ("7g.80gb", "4g.40gb", "3g.40gb", "2g.20gb", "1g.10gb")))
    found = [predict_graph(graph, name, batch=batch, mode=mode, precision=precision) for name in names]
    times = [p.latency_ms.median for p in found]
    assert times == sorted(times)
    whole, largest = found[0], found[1]
    assert device(names[1]).sm_count == device(names[0]).sm_count
    for metric in ("latency_ms", "energy_j", "power_w"):
        a, b = getattr(whole, metric), getattr(largest, metric)
        assert (a.low, a.median, a.high) == pytest.approx((b.low, b.median, b.high), rel=1e-9)
    # The driver keeps memory of a whole GPU, not of a slice.
    assert whole.memory.reserved.median == largest.memory.reserved.median
    assert 0 <= whole.peak_memory_bytes.median - largest.peak_memory_bytes.median < 2**30


@pytest.mark.parametrize("batch", [1, 3, 64, 700])
def test_a_distance_is_that_at_the_batch_asked_or_at_the_usual_one(batch):
    """Two fingerprints of those on the ladder are asked; they are the network's at these two batch sizes alone."""
    predictor, table = InferencePredictor.load(), recorded().table(*key("vit_base_patch16_224"), batch)
    sizes = np.array([[batch, 64]])
    prints = fingerprints(ladder.at_batches(Tables.one(table), np.array([batch]), sizes), sizes.ravel())
    found = predictor.predict(table, batch, Way(device("a100-sxm4-80gb"))).distance
    assert found == nearest_to(predictor._fingerprints, prints).min()
