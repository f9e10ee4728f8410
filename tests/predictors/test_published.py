"""Promises of every published predictor: finite answers, bounds no narrower than ours, names, features of a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import perfpass
from perfpass.errors import ArgumentError
from perfpass.predictors import registry
from perfpass.predictors.published.run_features import RUN_FEATURES, run_features

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="module")
def resnet():
    return perfpass.load(EXAMPLES / "resnet50.onnx")


def test_what_a_network_says_is_finite_whatever_it_says():
    from perfpass.predictors.published.answer import from_log

    found = from_log(np.array([-1e6, 0.0, 1e6, np.inf]))
    assert np.isfinite(found).all() and (found > 0).all() and found[1] == 1.0


@pytest.mark.parametrize("name", ["dippm", "trappm", "graph-language"])
def test_a_graph_unlike_all_measured_ones_is_outside_with_bounds_as_wide_as_ours(examples, name):
    from perfpass import predict

    how = {"device": "rtx-4090", "precision": "amp", "batch": 8}
    ours = predict(examples / "deberta_v3_large.onnx", **how)
    found = predict(examples / "deberta_v3_large.onnx", predictor=name, **how)
    assert found.support.level == ours.support.level == "outside"
    for one in (found.latency_ms, ours.latency_ms):
        assert one.high / one.median >= 0.999 * ours.latency_ms.high / ours.latency_ms.median
    assert found.latency_ms.low / found.latency_ms.median <= 1.001 * ours.latency_ms.low / ours.latency_ms.median


def test_an_unknown_predictor_is_refused_with_the_list(resnet):
    with pytest.raises(
        ArgumentError, match=r"unknown predictor 'dipm'; did you mean dippm\? allowed are perfpass, dippm"
    ):
        perfpass.predict(resnet, "a100", predictor="dipm")
    for name, (line, _) in registry.PREDICTORS.items():
        assert registry.check(name) == name and len(line) < 120


def test_features_of_a_run_tell_devices_and_software_apart():
    base = {"precision": "fp32", "runtime": "torch", "layout": "nchw", "mode": "inference"}
    seen = [run_features(perfpass.device("rtx-4090"), **base)]
    changes = ({"precision": "amp"}, {"runtime": "torch.compile"}, {"layout": "nhwc"}, {"mode": "training"})
    seen += [run_features(perfpass.device("rtx-4090"), **{**base, **change}) for change in changes]
    seen.append(run_features(perfpass.device("rtx-3090"), **base))
    assert len({tuple(values) for values in seen}) == len(seen) and all(len(v) == len(RUN_FEATURES) for v in seen)
