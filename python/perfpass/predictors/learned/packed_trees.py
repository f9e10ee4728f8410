"""Boosted trees in a seventh of XGBoost's own size: a safetensors file that the core scores.

A histogram booster knows few thresholds per feature, so a split is a feature and a rank among its thresholds, two
bytes. Nodes lie level by level, which says where children are; leaves are 16-bit floats under one scale. Arrays:
``tree_nodes`` [T] nodes of each tree; ``is_leaf`` a bit per node; of the splits ``feature``, ``rank`` and
``default_left`` (bits); ``thresholds`` ordered by feature, ``threshold_counts`` [F] of each; ``leaf`` of the leaves.
Texts: ``base_score``, ``leaf_scale``.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from perfpass import _core, safetensors
from perfpass.errors import ArtefactError, PerfPassError


def pack(models: list[bytes]) -> bytes:
    """XGBoost models (saved as JSON) as one that predicts their mean: a mean of sums of leaves is a sum of shares.

    Splits are exact, leaves are rounded to 11 bits. For regressors with numerical splits and one target.
    """
    learners = [json.loads(model)["learner"] for model in models]
    base = float(np.mean([float(x["learner_model_param"]["base_score"].strip("[]")) for x in learners]))
    features = int(learners[0]["learner_model_param"]["num_feature"])
    trees = [_levels(tree) for x in learners for tree in x["gradient_booster"]["model"]["trees"]]
    is_leaf, feature, value, default_left = (np.concatenate(column) for column in zip(*trees, strict=True))
    split = ~is_leaf
    leaf = value[is_leaf] / len(models)
    scale = float(np.abs(leaf).max(initial=0.0)) or 1.0
    pairs = np.empty(int(split.sum()), dtype=[("feature", "<i4"), ("threshold", "<f4")])
    pairs["feature"], pairs["threshold"] = feature[split], value[split]
    known, which = np.unique(pairs, return_inverse=True)
    counts = np.bincount(known["feature"], minlength=features)
    rank = which - (np.cumsum(counts) - counts)[pairs["feature"]]
    arrays = {
        "tree_nodes": np.array([len(columns[0]) for columns in trees], dtype="<i4"),
        "is_leaf": np.packbits(is_leaf),
        "feature": _narrow(pairs["feature"]),
        "rank": _narrow(rank),
        "default_left": np.packbits(default_left[split]),
        "thresholds": known["threshold"].astype("<f4"),
        "threshold_counts": counts.astype("<i4"),
        "leaf": (leaf / scale).astype("<f2"),
    }
    return safetensors.encode(arrays, {"base_score": repr(base), "leaf_scale": repr(scale)})


def unpack(content: bytes, where: str = "trees") -> _core.TreeEnsemble:
    """The ensemble that `pack` wrote; ``where`` names it in errors. Raises ArtefactError for anything else."""
    try:
        arrays, texts = safetensors.decode(content)
        leaf = arrays["leaf"]
        if leaf.dtype != np.float16:
            raise ValueError(f"leaves of {leaf.dtype}")
        return _core.TreeEnsemble.from_packed(
            float(texts["base_score"]),
            float(texts["leaf_scale"]),
            _of(arrays["tree_nodes"], np.int32),
            arrays["is_leaf"],
            _of(arrays["feature"], np.uint16),
            _of(arrays["rank"], np.uint16),
            arrays["default_left"],
            _of(arrays["thresholds"], np.float32),
            _of(arrays["threshold_counts"], np.int32),
            _of(leaf.view(np.uint16), np.uint16),
        )
    except (PerfPassError, KeyError, ValueError, IndexError, TypeError) as error:
        raise ArtefactError(f"{where}: damaged ({error}); reinstall, or run `perfpass train`") from error


def _of(values: np.ndarray, kind: type[np.number[Any]]) -> np.ndarray:
    """``values`` as numbers of one type, where the core may read them. Raises TypeError where that would change one."""
    return np.require(values.astype(kind, casting="safe", copy=False), requirements="A")


def _levels(tree: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The nodes of a tree, level by level: is_leaf, feature, value, default_left."""
    left, right = np.asarray(tree["left_children"]), np.asarray(tree["right_children"])
    order, level = [], np.array([0])
    while len(level):
        order.append(level)
        split = level[left[level] >= 0]
        level = np.stack([left[split], right[split]], axis=1).ravel()
    nodes = np.concatenate(order)
    value = np.asarray(tree["split_conditions"], dtype=np.float64)[nodes]
    default_left = np.asarray(tree["default_left"]).astype(bool)[nodes]
    return left[nodes] < 0, np.asarray(tree["split_indices"])[nodes], value, default_left


def _narrow(values: np.ndarray) -> np.ndarray:
    """In one byte each where all fit, else in two."""
    return values.astype(np.uint8 if values.max(initial=0) < 256 else "<u2")
