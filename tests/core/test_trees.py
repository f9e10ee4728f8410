"""Tree ensembles: the core scores an XGBoost model as XGBoost does, and refuses what is not one."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
import xgboost

from perfpass import _core
from perfpass.errors import ArgumentError, FormatError, LimitError, PerfPassError, UnsupportedError


def _fit(objective="reg:squarederror", rows=400, features=7, **extra):
    generator = np.random.default_rng(3)
    x = generator.normal(size=(rows, features)).astype(np.float32)
    x[generator.random(x.shape) < 0.2] = np.nan
    y = np.nan_to_num(x[:, 0]) * 3 + np.nan_to_num(x[:, 1]) ** 2 + 11.0
    settings = {"objective": objective, "max_depth": 6, "eta": 0.2, "seed": 1, "nthread": 1, **extra}
    return xgboost.train(settings, xgboost.DMatrix(x, y), 60), x


@pytest.fixture(scope="module")
def model():
    return _fit()


@pytest.mark.parametrize("raw_format", ["json", "ubj"])
@pytest.mark.parametrize("objective", ["reg:squarederror", "reg:absoluteerror", "reg:pseudohubererror"])
def test_predictions_equal_those_of_xgboost(raw_format, objective):
    booster, x = _fit(objective)
    ensemble = _core.TreeEnsemble.from_xgboost(bytes(booster.save_raw(raw_format)))
    assert ensemble.features == 7
    assert ensemble.trees == 60
    expected = booster.predict(xgboost.DMatrix(x))
    np.testing.assert_allclose(ensemble.predict(x), expected, rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize("rows", [1, 2, 7, 8, 65, 400])
def test_a_row_among_others_is_scored_to_the_bit_as_alone(model, rows):
    booster, x = model
    ensemble = _core.TreeEnsemble.from_xgboost(bytes(booster.save_raw("ubj")))
    alone = np.concatenate([ensemble.predict(x[i : i + 1]) for i in range(rows)])
    assert np.array_equal(ensemble.predict(x[:rows]), alone)


def test_missing_values_follow_the_default_direction(model):
    booster, x = model
    ensemble = _core.TreeEnsemble.from_xgboost(bytes(booster.save_raw("ubj")))
    missing = np.full((1, x.shape[1]), np.nan, np.float32)
    np.testing.assert_allclose(ensemble.predict(missing), booster.predict(xgboost.DMatrix(missing)), rtol=3e-6)


def test_values_on_a_threshold_go_where_xgboost_sends_them(model):
    booster, _ = model
    table = json.loads(bytes(booster.save_raw("json")))
    tree = table["learner"]["gradient_booster"]["model"]["trees"][0]
    on_threshold = np.full((len(tree["left_children"]), 7), np.nan, np.float32)
    for node, (left, feature, threshold) in enumerate(
        zip(tree["left_children"], tree["split_indices"], tree["split_conditions"], strict=True)
    ):
        if left >= 0:
            on_threshold[node, feature] = threshold
    ensemble = _core.TreeEnsemble.from_xgboost(bytes(booster.save_raw("json")))
    expected = booster.predict(xgboost.DMatrix(on_threshold))
    np.testing.assert_allclose(ensemble.predict(on_threshold), expected, rtol=3e-6)


def test_the_base_score_is_part_of_the_prediction():
    booster, x = _fit(base_score=100.0)
    ensemble = _core.TreeEnsemble.from_xgboost(bytes(booster.save_raw("ubj")))
    assert ensemble.base_score == 100.0
    np.testing.assert_allclose(ensemble.predict(x), booster.predict(xgboost.DMatrix(x)), rtol=3e-6)


def test_a_row_of_another_width_is_refused(model):
    ensemble = _core.TreeEnsemble.from_xgboost(bytes(model[0].save_raw("ubj")))
    with pytest.raises(ArgumentError, match="rows of 6 features; the model has 7"):
        ensemble.predict(np.zeros((2, 6), np.float32))


@pytest.mark.parametrize("raw_format", ["json", "ubj"])
def test_a_truncated_model_is_a_format_error(model, raw_format):
    whole = bytes(model[0].save_raw(raw_format))
    for cut in sorted(random.Random(1).sample(range(len(whole)), 120)):
        with pytest.raises(FormatError):
            _core.TreeEnsemble.from_xgboost(whole[:cut])


@pytest.mark.parametrize("raw_format", ["json", "ubj"])
def test_flipped_bytes_give_an_error_or_a_model_that_still_ends(raw_format):
    booster, x = _fit(rows=60)
    whole = bytes(booster.save_raw(raw_format))
    generator = random.Random(2)
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(generator.randint(1, 4)):
            damaged[generator.randrange(len(damaged))] = generator.randrange(256)
        try:
            ensemble = _core.TreeEnsemble.from_xgboost(bytes(damaged))
        except PerfPassError:
            continue
        if ensemble.features == x.shape[1]:
            ensemble.predict(x[:4])


def _edited(booster, edit):
    document = json.loads(bytes(booster.save_raw("json")))
    edit(document["learner"])
    return json.dumps(document).encode()


def _first_tree(learner):
    return learner["gradient_booster"]["model"]["trees"][0]


@pytest.mark.parametrize(
    ("edit", "error", "message"),
    [
        (lambda m: _first_tree(m)["left_children"].__setitem__(0, 0), FormatError, "cycle"),
        (lambda m: _first_tree(m)["left_children"].__setitem__(0, 2), FormatError, "cycle or share"),
        (lambda m: _first_tree(m)["left_children"].__setitem__(0, 10**6), FormatError, "whole numbers below"),
        (lambda m: _first_tree(m)["split_indices"].__setitem__(0, 7), FormatError, "split_indices"),
        (lambda m: _first_tree(m)["split_conditions"].pop(), FormatError, "entries"),
        (lambda m: _first_tree(m)["split_type"].__setitem__(0, 1), UnsupportedError, "categorical"),
        (lambda m: m["objective"].__setitem__("name", "binary:logistic"), UnsupportedError, "objective"),
        (lambda m: m["gradient_booster"].__setitem__("name", "gblinear"), UnsupportedError, "gblinear"),
        (lambda m: m["learner_model_param"].__setitem__("num_class", "3"), UnsupportedError, "classifier"),
        (lambda m: m["learner_model_param"].__setitem__("base_score", "nan"), FormatError, "base_score"),
        (lambda m: m.pop("gradient_booster"), FormatError, "no member 'gradient_booster'"),
    ],
)
def test_a_model_that_makes_no_sense_is_refused(model, edit, error, message):
    with pytest.raises(error, match=message):
        _core.TreeEnsemble.from_xgboost(_edited(model[0], edit))


@pytest.mark.parametrize(
    "model_bytes",
    [
        b"",
        b"{",
        b"{}",
        b"\xff\xd8\xff\xe0 JFIF",
        b'{"a":' + b"[" * 20,
        b"{L" + b"\x7f" * 8,  # a name of 2^63 bytes
        b"{i\x01a[$l#L\x00\x00\x00\xff\xff\xff\xff\xff}",  # an array far longer than the file
        b"{i\x01a[$Z#l\x7f\xff\xff\xff}",  # two billion elements without a payload
    ],
)
def test_bytes_that_are_no_model_are_a_format_error(model_bytes):
    with pytest.raises(FormatError, match="tree model"):
        _core.TreeEnsemble.from_xgboost(model_bytes)


@pytest.mark.parametrize("model_bytes", [b'{"a":' + b"[" * 100_000, b"{i\x01a" + b"[" * 100_000])
def test_deep_nesting_is_a_limit_error(model_bytes):
    with pytest.raises(LimitError, match="nested deeper"):
        _core.TreeEnsemble.from_xgboost(model_bytes)
