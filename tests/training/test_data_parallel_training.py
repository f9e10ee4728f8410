"""Replicas on several devices, graded by pairs of runs."""

from __future__ import annotations

import pytest

from perfpass.predictors.training_step.replicas import SHIPPED
from perfpass.training import data_parallel


@pytest.fixture(scope="module")
def pairs():
    return data_parallel.pairs()


def test_pairs_differ_in_the_number_of_devices_alone(pairs):
    assert len(pairs) == 115 and pairs.name.nunique() == 9
    assert pairs.n_devices.between(2, 16).all() and pairs.ratio.between(0.95, 1.7).all()
    assert not pairs.network.isin(["bert-large"]).any()


def test_what_ships_is_what_the_pairs_say(pairs):
    found = data_parallel.spread(pairs, data_parallel.fit(pairs))
    for name in ("exposed", "straggle", "low", "high"):
        assert getattr(found, name) == pytest.approx(getattr(SHIPPED, name), rel=0.02)


def test_networks_left_out_are_nearer_than_no_loss():
    section = data_parallel.evaluate(quiet=True)
    rows = {(r["split"], r["method"], r["judged_on"]): r for r in section.to_dict()["lines"]}
    ours, none = (rows["network", method, "all"]["mape_pct"] for method in ("perfpass", "no loss"))
    assert ours < 0.7 * none
    ours, none = (rows["step", method, "detectron2"]["mape_pct"] for method in ("perfpass", "no loss"))
    assert ours < none
