"""Splits of the records: which rows a predictor may learn from when it is judged on the others."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from perfpass.errors import ArgumentError

SPLITS: tuple[str, ...] = ("random", "architecture", "family", "device")


# One family in four is never reported: settings are chosen on these (perfpass.training.inference.choose).
_SET_ASIDE = 4


def set_aside(family: Sequence[str]) -> np.ndarray:
    """[N] whether a row's family is one on which settings are chosen; decided by the SHA-256 of its name."""
    chosen = {f: int(hashlib.sha256(f.encode()).hexdigest(), 16) % _SET_ASIDE == 0 for f in set(map(str, family))}
    return np.array([chosen[str(f)] for f in family], dtype=bool)


@dataclass(frozen=True)
class Fold:
    """Indices of the rows to learn from and of those to be judged on; ``held_out`` names what was held out."""

    train: np.ndarray
    test: np.ndarray
    held_out: str


def groups_into_folds(keys: Sequence[str], folds: int, seed: int = 0) -> np.ndarray:
    """[N] fold of each row; rows of one key share a fold, and folds get about equally many rows.

    Keys go by falling size to the emptiest fold, in an order that the seed decides among equal sizes. Raises
    ArgumentError for fewer keys than folds.
    """
    names, inverse, counts = np.unique(np.asarray(keys, dtype=str), return_inverse=True, return_counts=True)
    if not 2 <= folds <= len(names):
        raise ArgumentError(f"{folds} folds of {len(names)} groups; at least 2, and no more than there are groups")
    order = np.random.default_rng(seed).permutation(len(names))
    order = order[np.argsort(-counts[order], kind="stable")]
    fold_of = np.empty(len(names), dtype=np.int64)
    filled = np.zeros(folds, dtype=np.int64)
    for name in order:
        fold_of[name] = int(np.argmin(filled))
        filled[fold_of[name]] += counts[name]
    return fold_of[inverse]


def random_folds(rows: int, folds: int, seed: int = 0) -> np.ndarray:
    """[rows] fold of each row, drawn without regard to what the rows are."""
    return np.random.default_rng(seed).permutation(rows) % folds


def folds_of(
    split: str,
    architecture: Sequence[str],
    family: Sequence[str],
    device: Sequence[str],
    folds: int = 5,
    seed: int = 0,
) -> Iterator[Fold]:
    """The folds of one split of ``SPLITS``; "device" has one fold per device. Raises ArgumentError for another name."""
    if split not in SPLITS:
        raise ArgumentError(f"unknown split {split!r}; allowed are {', '.join(SPLITS)}")
    if split == "device":
        names = np.asarray(device, dtype=str)
        for name in np.unique(names):
            yield Fold(np.flatnonzero(names != name), np.flatnonzero(names == name), str(name))
        return
    if split == "random":
        fold = random_folds(len(architecture), folds, seed)
    else:
        fold = groups_into_folds(architecture if split == "architecture" else family, folds, seed)
    for i in range(folds):
        yield Fold(np.flatnonzero(fold != i), np.flatnonzero(fold == i), f"fold {i + 1} of {folds}")
