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
        nodes = arrays["tree_nodes"].astype(np.uint32)
        total, splits = int(nodes.sum()), len(arrays["feature"])
        if (total + 7) // 8 != len(arrays["is_leaf"]) or (splits + 7) // 8 != len(arrays["default_left"]):
            raise ValueError("bits for another number of nodes")
        is_leaf = np.unpackbits(arrays["is_leaf"], count=total)
        at = np.flatnonzero(is_leaf == 0)
        counts = arrays["threshold_counts"].astype(np.int64)
        feature = arrays["feature"].astype(np.uint16)
        rank = arrays["rank"].astype(np.int64)
        if len(at) != splits or (rank >= counts[feature]).any() or counts.sum() != len(arrays["thresholds"]):
            raise ValueError("columns that do not belong together")
        value = np.empty(total, dtype=np.float32)
        value[is_leaf == 1] = arrays["leaf"].astype(np.float32) * np.float32(texts["leaf_scale"])
        value[at] = arrays["thresholds"][(np.cumsum(counts) - counts)[feature] + rank]
        every_feature, missing_left = np.zeros(total, dtype=np.uint16), np.zeros(total, dtype=np.uint8)
        every_feature[at] = feature
        missing_left[at] = np.unpackbits(arrays["default_left"], count=splits)
        return _core.TreeEnsemble.from_levels(
            len(counts), float(texts["base_score"]), nodes, is_leaf, every_feature, value, missing_left
        )
    except (PerfPassError, KeyError, ValueError, IndexError, TypeError) as error:
        raise ArtefactError(f"{where}: damaged ({error}); reinstall, or run `perfpass train`") from error


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
