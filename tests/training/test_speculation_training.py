from __future__ import annotations

import numpy as np
import pytest

from perfpass.llm.speculation import METHODS
from perfpass.training.speculation.evaluate import groups, load, questions
from perfpass.training.speculation.fit import fit, speedup, start


@pytest.fixture(scope="module")
def rows():
    table = load()
    return table[table.task == "Overall"].reset_index(drop=True)


def test_what_builds_on_one_method_is_held_out_together(rows):
    found = groups(rows, "method")
    assert len(set(found[rows.method.str.contains("EAGLE")])) == 1
    assert len(set(found)) == 7


def test_speed_ups_of_a_family_of_methods_that_was_held_out_are_near(rows):
    asked, measured, group = questions(rows), rows.speedup.to_numpy(), groups(rows, "method")
    stay = group != "eagle"
    constants = fit([asked[i] for i in np.flatnonzero(stay)], measured[stay])
    found = np.array([speedup(asked[i], constants) for i in np.flatnonzero(~stay)])
    assert np.abs(found / measured[~stay] - 1).mean() < 0.15


def test_more_tokens_a_step_are_faster_in_proportion_and_a_speed_up_is_below_them(rows):
    for one in questions(rows)[:9]:
        assert 0 < speedup(one, start()) < one.tokens
        assert METHODS[one.method].measured_as
