"""What is known of older boards: bandwidth that the first HBM2 reaches, and precisions that run in units of another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perfpass.devices import device
from perfpass.predictors.inference import operators
from perfpass.predictors.learned.intervals import EVIDENCE
from perfpass.predictors.roofline import has_units
from perfpass.predictors.training_step.predictor import StepPredictor
from perfpass.predictors.way import Way


def test_the_first_hbm2_reaches_less_of_its_bandwidth_than_later_ones():
    """NeuSight's P100 reaches 0.75 of its bandwidth in pointwise operators, its V100 and A100 0.89 in the middle."""
    first = device("p100-pcie-16gb")
    later = replace(first, architecture="volta")
    move, moved = operators.FAMILIES.index("move"), np.array([1e9])
    ratio = operators.moving_s(moved, move, first) / operators.moving_s(moved, move, later)
    assert ratio[0] == pytest.approx(0.89 / 0.75, rel=0.01)


@pytest.mark.parametrize(
    ("name", "precision", "own"),
    [
        ("titan-xp", "fp16", False), ("titan-xp", "amp", False), ("titan-xp", "fp64", True), ("titan-xp", "fp32", True),
        ("p100-pcie-16gb", "fp16", True), ("rtx-2080-ti", "fp16", True), ("h100", "amp_bf16", True),
    ],
)  # fmt: skip
def test_halves_without_units_run_in_those_of_fp32(name, precision, own):
    assert has_units(device(name), precision) == own


def test_halves_are_evidence_for_boards_that_run_them_alike():
    """A GTX 1080 Ti and a TITAN Xp were measured in halves, both in units of fp32; of autocast no such board was."""
    asked = StepPredictor.load()
    gtx = replace(device("gtx-1080-ti"), id="gtx-1080")
    assert asked.evidence(Way(gtx, "fp16")) == EVIDENCE[0]
    assert asked.evidence(Way(gtx, "amp")) not in EVIDENCE[:2]
    assert asked.evidence(Way(device("h100"), "amp")) == EVIDENCE[1]
