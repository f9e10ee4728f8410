"""Slices are graded with the memory of the source's program: autograd on, and the last output held."""

from __future__ import annotations

import pandas

from perfpass.devices import device
from perfpass.importers import torchvision_schemas
from perfpass.prediction import Interval, MemoryFigures
from perfpass.training.mig import slices


def test_what_is_counted_moves_both_bounds_and_widens_none():
    assert slices._more(Interval(2e9, 1e9, 3e9, "byte"), 5e9) == Interval(7e9, 6e9, 8e9, "byte")


def test_a_network_that_did_not_run_in_a_slice_is_not_said_to_fit_it():
    # ParvaGPU: ResNet-50 at a batch of 256, one process: not in 3g.40gb, but in 7g.80gb.
    torchvision_schemas.define()
    found = slices._memory(pandas.DataFrame({"model": ["resnet50"], "batch": [256]}))["resnet50", 256]
    chances = {
        name: MemoryFigures(found[name]).probability_fits(device(f"a100-sxm4-80gb:{name}").memory_bytes)
        for name in ("3g.40gb", "7g.80gb")
    }
    assert chances["3g.40gb"] < slices.MEMORY_CONFIDENCE <= chances["7g.80gb"]
