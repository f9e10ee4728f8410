"""Power of training steps: between idle and the limit, more with more use, and a board's bounds come from others.

Boards with GDDR keep their memory at full clock between kernels, those with HBM rest at what they draw idle.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perfpass.devices import device
from perfpass.errors import ArtefactError
from perfpass.predictors.training_step.power import StepPower, asked, resting_w
from perfpass.training.training_step import power

KNOWN = StepPower(0.95, 0.1, 0.8, 1.3, 0.3)
HALF = 0.25


def rows(awake=0.0):
    """Four boards that draw as the law says, but for a factor of their own; those with GDDR rest ``awake``."""
    import pandas

    generator, parts = np.random.default_rng(7), []
    for name, off in (("a40", 0.9), ("p100-pcie-16gb", 1.0), ("quadro-rtx-6000", 1.05), ("v100-sxm2-16gb", 1.1)):
        compute, memory = generator.uniform(0.05, 0.5, 20), generator.uniform(0.05, 0.3, 20)
        rest = resting_w(device(name), 200.0, awake)
        watts = rest + off * 0.8 * asked(compute + memory, HALF) * (200.0 - rest)
        values = {"limit_w": 200.0, "compute_use": compute, "memory_use": memory, "measured_w": watts}
        parts.append(pandas.DataFrame({"device": name, "model": "resnet50", **values}))
    return pandas.concat(parts, ignore_index=True)


@pytest.mark.parametrize("name", ["a40", "h100", "t4"])
def test_watts_lie_between_idle_and_the_limit_and_grow_with_use(name):
    board, use = device(name), np.linspace(0.0, 1.0, 30)
    for found in (KNOWN.predict(board, use, 0.0 * use), KNOWN.predict(board, 0.2 + 0.0 * use, use)):
        assert (np.diff(found.median) >= 0).all()
        assert (board.idle_power_w <= found.low).all() and (found.high <= board.power_limit_w).all()
        assert (found.low <= found.median).all() and (found.median <= found.high).all()
    # What a step uses comes on top of what the board draws without one.
    drawn = KNOWN.predict(board, np.array([0.04]), np.array([0.0])).median
    rest = board.idle_power_w + (0.0 if name == "h100" else 0.1 * board.power_limit_w)
    assert drawn == pytest.approx(rest + 0.95 * 0.04 / 0.34 * (board.power_limit_w - rest))


def test_watts_of_a_vendor_that_nobody_measured_are_wider():
    """By the constants of NVIDIA's boards in the middle, and by more than these differ on both sides."""
    use = np.array([0.3])
    wide = replace(device("h100"), vendor="AMD")
    ours, theirs = (KNOWN.predict(board, use, 0.0 * use) for board in (device("h100"), wide))
    assert theirs.median == ours.median
    assert theirs.low < 0.9 * ours.low and theirs.high > 1.1 * ours.high


def test_the_constant_is_the_middle_of_what_the_boards_draw():
    found = power.fit(rows())
    assert found.scale * asked(np.array(0.4), found.half) == pytest.approx(0.82 * asked(np.array(0.4), HALF), rel=0.04)
    assert found.low < 0.9 < 1.05 < found.high
    assert found.awake == pytest.approx(0.0, abs=0.03)


def test_what_boards_with_gddr_draw_at_rest_is_found():
    assert power.fit(rows(0.15)).awake == pytest.approx(0.15, abs=0.03)


def test_one_board_out_of_four_says_nothing_of_the_side_on_which_the_next_one_lies():
    found = power.fit(rows().query("device != 'a40'"))
    assert found.low * found.high == pytest.approx(1.0)


def test_bounds_are_wider_where_fewer_networks_on_boards_stand_behind_them():
    """The same watts, called one network on each of four boards, or ten."""
    known = rows()
    named = known.assign(model=[f"network {i % 10}" for i in range(len(known))])
    few, many = power.fit(known), power.fit(named)
    assert few.scale == pytest.approx(many.scale, rel=0.01)
    # Student's t of 3 degrees of freedom over that of 39, at 95 %.
    assert np.log(few.high) == pytest.approx(2.353 / 1.685 * np.log(many.high), rel=0.02)
    assert np.log(few.low) == pytest.approx(2.353 / 1.685 * np.log(many.low), rel=0.02)


def test_the_watts_of_a_board_come_from_the_others():
    known = rows()
    other = known.assign(measured_w=known.measured_w.where(known.device != "a40", 10 * known.measured_w))
    at = (known.device == "a40").to_numpy()
    np.testing.assert_allclose(power.held_out(known)[at], power.held_out(other)[at])
    assert not np.allclose(power.held_out(known)[~at], power.held_out(other)[~at])


def test_it_is_kept_in_an_artefact_and_what_is_none_is_refused():
    assert StepPower.from_dict(KNOWN.to_dict()) == KNOWN
    older = {name: value for name, value in KNOWN.to_dict().items() if name not in ("awake", "half")}
    assert StepPower.from_dict(older) == replace(KNOWN, awake=0.0, half=0.0)
    board, one = device("h100"), np.array([0.04])
    drawn = StepPower.from_dict(older).predict(board, one, 0 * one).median  # by the root, as it was fitted
    assert drawn == pytest.approx(board.idle_power_w + 0.95 * 0.2 * (board.power_limit_w - board.idle_power_w))
    for broken in ({}, {"scale": 1.0, "low": "x", "high": 2.0}):
        with pytest.raises(ArtefactError, match="power"):
            StepPower.from_dict(broken)


def test_joules_of_a_step_know_that_a_longer_one_draws_fewer_watts():
    """Their bounds lie inside those of independent errors, and outside those of either error alone."""
    import numpy as np

    from perfpass.predictors.estimate import STEP_WATTS_FALL, Bounds, energy_j

    ms, watts = (Bounds(*(np.array([v]) for v in values)) for values in ((100.0, 70.0, 150.0), (200.0, 160.0, 250.0)))
    found, apart = energy_j(ms, watts, STEP_WATTS_FALL), energy_j(ms, watts)
    assert found.median == apart.median == 20.0
    assert apart.low < found.low < 16.0 and 25.0 < found.high < apart.high


def test_every_road_to_the_joules_of_a_step_has_the_same_bounds():
    import perfpass
    from perfpass.deploy.training_run import step_energy_j
    from perfpass.predictors.estimate import Bounds, energy_j

    step = perfpass.predict("resnet18", device="a100", batch=64, mode="training")
    assert step_energy_j(step.latency_ms.scaled(1e-3, "s"), step.power_w, 1).high == pytest.approx(step.energy_j.high)
    run = perfpass.predict("resnet18", device="a100", batch=64)
    assert energy_j(Bounds.of(run.latency_ms), Bounds.of(run.power_w)).high[0] == pytest.approx(run.energy_j.high)
