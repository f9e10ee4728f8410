"""Decisions are graded by limits that the prediction chooses, and every run counts once."""

from __future__ import annotations

import numpy as np
import pytest

from perfpass.prediction import Interval
from perfpass.training.decisions import fit
from perfpass.training.section import Section, Table


def asked(measured):
    said = [Interval(20_000.0, 15_000.0, 26_000.0, "MiB") for _ in measured]
    return fit._asked("runs", "source", said, measured, [one.probability_fits for one in said])


def test_limits_are_real_memories_near_the_prediction_whatever_was_measured():
    limits = fit.limits_mib()
    assert {16384.0, 24576.0, 81920.0} <= set(limits) and (np.diff(limits) > 0).all()
    one, two = asked([18_000.0]), asked([70_000.0])
    assert (one.probability == two.probability).all() and len(one.fits) == len(two.fits)
    near = limits[(limits >= 10_000) & (limits <= 40_000)]
    assert len(one.fits) == len(near) and (one.fits == (near >= 18_000)).all()
    assert one.weight.sum() == pytest.approx(1.0)


def test_the_row_of_a_table_is_what_it_says():
    found = asked([18_000.0, 22_000.0])
    row = fit._row(found)
    brier = np.average((found.probability - found.fits) ** 2, weights=found.weight)
    assert row[:3] == ("runs", "source", 2) and row[3] == pytest.approx(brier)
    assert row[7] == row[8] == 0.0 and 0 < row[9] < 100
    wrong = fit._row(asked([39_000.0]))
    assert wrong[7] > 50 and wrong[3] > row[3]


def test_a_line_that_is_most_of_a_tenth_is_named_with_what_came_of_the_others():
    probability = asked([18_000.0]).probability
    at = int(np.flatnonzero((probability > 0.8) & (probability < 0.9))[0])
    limit = fit.limits_mib()[fit.limits_mib() >= 10_000][at]
    lines = [asked([limit - 1.0]), asked([limit - 1.0]), asked([39_000.0, 39_000.0])]
    (row,) = (r for r in fit._reliability(lines).rows if r[0] == "0.8 to 0.9")
    assert row[4] == 3 and row[5] == pytest.approx(100 / 3)
    assert row[3] == pytest.approx(200 / 3)
    assert row[6] == pytest.approx(50.0)


def test_lines_stand_in_the_order_of_where_their_runs_lie():
    table = fit._reached([asked([25_000.0, 26_000.0, 25_500.0]), asked([16_000.0]), asked([20_000.0])])
    middles = [row[3] for row in table.rows]
    assert middles == sorted(middles) and middles[1] == pytest.approx(50.0) and 90 < middles[2] < 98
    assert [row[5] for row in table.rows] == pytest.approx([100 / 6, 50.0, 500 / 6])
    assert table.rows[2][4] == pytest.approx(100 * np.quantile(asked([25_000.0, 26_000.0, 25_500.0]).reached, 0.9))


def test_a_curve_of_the_diagram_has_every_question_in_the_tenth_that_was_said():
    found = asked([18_000.0, 22_000.0])
    told = fit._told(found)
    assert sum(told["share_pct"]) == pytest.approx(100.0, abs=5.0) and min(told["share_pct"]) >= 1.0
    weight = np.array(told["share_pct"]) / 100
    tail = (found.probability < 0.1) | (found.probability >= 0.9)
    assert weight[0] + weight[-1] == pytest.approx(found.weight[tail].sum() / 2)
    assert told["said_pct"] == sorted(told["said_pct"]) and told["came_pct"][-1] == 100.0
    assert told["reached_pct"][1] == pytest.approx(100 * np.median(found.reached))


def test_memory_in_gib_is_asked_as_that_in_mib_and_all_together_is_no_line():
    kept = fit._Collected("x", "X", "")
    low, median, high, came = (np.array([v]) for v in (15_000.0, 20_000.0, 26_000.0, 18_000.0))
    for unit, over in (("MiB", 1.0), ("GiB", 1024.0)):
        for name in ("a laboratory", "all"):
            values = median / over, came / over, low / over, high / over
            kept.add(f"memory {unit}", "laboratory", "perfpass", name, *values)
    one, two = fit._kept(kept)
    assert one.probability == pytest.approx(two.probability) and (one.fits == two.fits).all()
    assert two.what == "memory held, training of language models: a laboratory"


def test_tables_stand_in_markdown_and_json():
    section = Section("decisions", "Decisions", "What was asked.")
    section.tables.append(Table("A title", ("what", "share"), (("this", 0.25), ("that", None))))
    text = str(section)
    assert "### A title" in text and "| this | 0.250 |" in text and "| that |  |" in text and "MAPE" not in text
    assert section.to_dict()["tables"][0]["rows"] == [["this", 0.25], ["that", None]]
