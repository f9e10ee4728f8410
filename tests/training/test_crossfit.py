"""Out-of-fold predictions, and the sections that grade them."""

from __future__ import annotations

import numpy as np
import pytest

from perfpass.errors import ArgumentError
from perfpass.training.crossfit import cross_fit
from perfpass.training.section import Section
from perfpass.training.tasks.splits import Fold, random_folds


def folds(rows, count, seed=0):
    fold = random_folds(rows, count, seed)
    return [Fold(np.flatnonzero(fold != i), np.flatnonzero(fold == i), f"{i}") for i in range(count)]


def test_every_row_is_predicted_from_the_other_folds_alone():
    values = np.arange(40.0)
    predicted, fold_of = cross_fit(40, folds(40, 4), lambda train, test: np.full(len(test), values[train].sum()))
    for number in range(4):
        inside = fold_of == number
        assert (predicted[inside] == values[~inside].sum()).all()


def test_overlapping_folds_are_refused():
    whole = np.arange(4)
    with pytest.raises(ArgumentError, match="trained on and held out"):
        cross_fit(4, [Fold(whole, whole[:2], "a")], lambda train, test: np.ones(len(test)))
    twice = [Fold(whole[2:], whole[:2], "a"), Fold(whole[2:], whole[:2], "b")]
    with pytest.raises(ArgumentError, match="two folds"):
        cross_fit(4, twice, lambda train, test: np.ones(len(test)))


def test_a_section_prints_what_it_graded():
    section = Section("x", "X", "What X is.")
    measured = np.array([1.0, 2.0, 4.0])
    predicted = np.array([1.0, 2.2, 3.0])
    line = section.add(
        "latency ms", "model", "perfpass", "GPUs", predicted, measured, predicted * 0.9, predicted * 1.1, aim_pct=5
    )
    assert line.grade.mape_pct == pytest.approx(100 * (0.1 + 0.25) / 3)
    assert line.grade.over_bound_pct == pytest.approx(100 / 3)
    section.add_worst_groups("latency ms", "model", "family", ["a", "b", "b"], predicted, measured)
    section.add_worst_cases("latency ms", "ms", "model", ["one", "two", "three"], predicted, measured)
    assert section.worst_groups[0]["group"] == "b"
    assert section.worst_cases[0]["case"] == "three"
    text = str(section)
    assert "| latency ms | model | perfpass | GPUs | 3 | 11.67 | 5 |" in text
    assert "b 17.5 % (2)" in text
    assert "| three | 4 | 3 |" in text


def test_a_picture_is_drawn_of_every_section(tmp_path):
    from perfpass.training.pictures import save_section

    section = Section("x", "X", "")
    measured = np.linspace(1, 100, 50)
    section.add("ms", "model", "perfpass", "GPUs", measured, measured, measured * 0.9, measured * 1.1)
    section.add_points("ms", "ms", "model", [str(i % 12) for i in range(50)], measured * 1.1, measured)
    curve = {"said_pct": [5.0, 95.0], "came_pct": [10.0, 90.0], "share_pct": [50.0, 50.0], "reached_pct": [5, 50, 90]}
    section.told = [{"line": name, "runs": 9, **curve} for name in ("a", "b", "all")]
    for name in ("x.png", "again.png"):
        save_section(section, tmp_path / name)
    assert (tmp_path / "x.png").stat().st_size > 10_000
    assert (tmp_path / "x.png").read_bytes() == (tmp_path / "again.png").read_bytes()
