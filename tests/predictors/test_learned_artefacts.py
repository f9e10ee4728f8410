"""Artefacts and packed trees: what was written is what is read, and damage is one error."""

from __future__ import annotations

import errno
import hashlib
import json
import os

import numpy as np
import pytest
import xgboost
from hypothesis import given
from hypothesis import strategies as st

from perfpass import _core, safetensors
from perfpass.errors import ArgumentError, ArtefactError, FileError
from perfpass.predictors.learned import artefacts, packed_trees


def _boosters(count: int, **settings) -> tuple[list, np.ndarray]:
    generator = np.random.default_rng(6)
    x = generator.normal(size=(300, 5)).astype(np.float32)
    x[generator.random(x.shape) < 0.1] = np.nan
    y = np.nan_to_num(x[:, 0]) + 2.0
    settings = {"subsample": 0.5, "nthread": 1, "max_depth": 6, **settings}
    return [xgboost.train({"seed": s, **settings}, xgboost.DMatrix(x, y), 20) for s in range(count)], x


@given(st.binary(max_size=300), st.integers(0, 9))
def test_sums_of_the_core_are_those_of_hashlib(content, times):
    content *= times
    assert _core.sha256(content) == hashlib.sha256(content).hexdigest()
    assert _core.sha256(memoryview(content)) == _core.sha256(bytearray(content)) == _core.sha256(content)


def _packed(boosters: list) -> bytes:
    return packed_trees.pack([bytes(b.save_raw("json")) for b in boosters])


def test_packed_trees_predict_the_mean_of_the_models():
    boosters, x = _boosters(3)
    mean = np.mean([b.predict(xgboost.DMatrix(x)) for b in boosters], axis=0)
    np.testing.assert_allclose(packed_trees.unpack(_packed(boosters)).predict(x), mean, rtol=0, atol=1e-3)


@pytest.mark.parametrize("settings", [{"max_depth": 1}, {"grow_policy": "lossguide", "max_leaves": 9, "max_depth": 0}])
def test_packed_trees_of_any_shape_send_every_value_where_xgboost_does(settings):
    (booster,), x = _boosters(1, **settings)
    trees = booster.trees_to_dataframe()
    on_threshold = x[: len(trees)].copy()
    splits = trees[trees.Feature != "Leaf"]
    for row, (feature, threshold) in enumerate(zip(splits.Feature, splits.Split, strict=True)):
        on_threshold[row % len(x), int(feature[1:])] = threshold
    for values in (x, on_threshold, np.full_like(x, np.nan)):
        found = packed_trees.unpack(_packed([booster])).predict(values)
        np.testing.assert_allclose(found, booster.predict(xgboost.DMatrix(values)), rtol=0, atol=1e-3)


def _plain(content: bytes, x: np.ndarray) -> np.ndarray:
    """The same forest, unpacked by NumPy and walked node by node."""
    arrays, texts = safetensors.decode(content)
    total, splits = int(arrays["tree_nodes"].sum()), len(arrays["feature"])
    is_leaf = np.unpackbits(arrays["is_leaf"], count=total) == 1
    counts = arrays["threshold_counts"].astype(np.int64)
    feature, value, left = np.zeros(total, np.int64), np.zeros(total, np.float32), np.zeros(total, np.int64)
    feature[~is_leaf] = arrays["feature"]
    value[is_leaf] = arrays["leaf"].astype(np.float32) * np.float32(texts["leaf_scale"])
    value[~is_leaf] = arrays["thresholds"][(np.cumsum(counts) - counts)[feature[~is_leaf]] + arrays["rank"]]
    left[~is_leaf] = np.unpackbits(arrays["default_left"], count=splits)
    sums, root = np.full(len(x), float(texts["base_score"])), 0
    for nodes in arrays["tree_nodes"]:
        below = root + 1 + 2 * (np.cumsum(~is_leaf[root : root + nodes]) - 1)
        for i, row in enumerate(x):
            at = root
            while not is_leaf[at]:
                asked = row[feature[at]]
                at = below[at - root] + int(not (left[at] if np.isnan(asked) else asked < value[at]))
            sums[i] += value[at]
        root += nodes
    return sums.astype(np.float32)


@pytest.mark.parametrize("settings", [{}, {"max_depth": 2, "base_score": 5.0}, {"max_bin": 300, "max_depth": 9}])
def test_packed_trees_are_those_that_numpy_unpacks_to_the_bit(settings):
    boosters, x = _boosters(2, **settings)
    content = _packed(boosters)
    assert packed_trees.unpack(content).predict(x[:64]).tobytes() == _plain(content, x[:64]).tobytes()


def test_the_shipped_trees_are_those_that_numpy_unpacks_to_the_bit():
    content = artefacts.Artefact(artefacts.shipped("inference")).read("known.trees")
    forest = packed_trees.unpack(content)
    x = np.random.default_rng(3).normal(scale=4, size=(2, forest.features)).astype(np.float32)
    x[1, ::3] = np.nan
    assert forest.predict(x).tobytes() == _plain(content, x).tobytes()


def test_packed_trees_take_a_fifth_of_what_xgboost_writes():
    boosters, _ = _boosters(1, max_depth=7, min_child_weight=0)
    assert 5 * len(_packed(boosters)) < len(boosters[0].save_raw("ubj"))


def test_damaged_packed_trees_are_one_error_or_the_same_kind_of_forest():
    boosters, x = _boosters(1)
    content = _packed(boosters)
    generator = np.random.default_rng(2)
    for cut in generator.integers(0, len(content), 200):
        with pytest.raises(ArtefactError, match="damaged"):
            packed_trees.unpack(content[:cut])
    for at, value in zip(generator.integers(0, len(content), 600), generator.integers(0, 256, 600), strict=True):
        changed = bytearray(content)
        changed[at] = value
        try:
            assert packed_trees.unpack(bytes(changed)).predict(x[:, :5]).shape == (len(x),)
        except (ArtefactError, ArgumentError):
            continue


def test_an_artefact_that_was_changed_is_refused(tmp_path):
    artefacts.write(tmp_path, {"predictor": "test"}, {"a.bin": b"abc"})
    assert artefacts.Artefact(tmp_path).read("a.bin") == b"abc"
    (tmp_path / "a.bin").write_bytes(b"abd")
    with pytest.raises(ArtefactError, match="SHA-256"):
        artefacts.Artefact(tmp_path).read("a.bin")
    with pytest.raises(ArtefactError, match="lists no file"):
        artefacts.Artefact(tmp_path).read("../manifest.json")


def test_an_artefact_of_another_schema_is_refused(tmp_path):
    (tmp_path / "manifest.json").write_text(json.dumps({"schema_version": 99}))
    with pytest.raises(ArtefactError, match="schema 99, this version reads 1"):
        artefacts.Artefact(tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(ArtefactError, match="not JSON"):
        artefacts.Artefact(tmp_path)


def test_a_full_disk_leaves_the_former_artefact(tmp_path, monkeypatch):
    place = tmp_path / "predictor"
    artefacts.write(place, {"predictor": "old"}, {"x.bin": b"old"})

    def full(file):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileError, match="No space left on device; the former artefact is untouched"):
        artefacts.write(place, {"predictor": "new"}, {"x.bin": b"new"})
    assert artefacts.Artefact(place).read("x.bin") == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["predictor"]
