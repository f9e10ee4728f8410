"""Boards of one product: which they are, and which only look like it."""

from __future__ import annotations

import pytest

from perfpass.devices import device
from perfpass.devices.product import twins


def test_boards_of_one_product_differ_in_form_and_memory_alone():
    found = {board.id for board in twins(device("a100-sxm4-40gb"))}
    assert found == {"a100-sxm4-80gb", "a100-pcie-40gb", "a100-pcie-80gb"}


@pytest.mark.parametrize(
    "name",
    [
        "titan-rtx",  # a Quadro RTX 6000 is another product
        "rtx-2080-ti",  # what others made of it, with 22 GB, is no board of the product
        "a100:1g.5gb",
        "l4",
        "apple-m2-max",
        "cpu",
    ],
)
def test_what_has_no_twin(name):
    assert twins(device(name)) == ()


def test_another_clock_or_other_units_are_another_chip():
    assert "h100-sxm5-80gb" not in {board.id for board in twins(device("h100-pcie-80gb"))}
    assert "v100-pcie-16gb" not in {board.id for board in twins(device("v100-sxm2-16gb"))}
