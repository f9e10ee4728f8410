"""Pages that programs write are what these programs write now."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PUBLISH = ROOT / "benchmarks" / "publish"
AREAS = sorted((ROOT / "docs" / "predictors").glob("*.md"))


def test_the_command_reference_has_every_command_and_option():
    program = runpy.run_path(str(PUBLISH / "cli_reference.py"))
    page = program["PAGE"].read_text(encoding="utf-8")
    assert program["filled"](page) == page, "run python benchmarks/publish/cli_reference.py"
    assert "`--carbon-intensity G`" in page and "### operator all-reduce" in page


@pytest.mark.parametrize("page", AREAS, ids=lambda path: path.stem)
def test_the_accuracy_on_a_page_is_that_of_the_results(page):
    program = runpy.run_path(str(PUBLISH / "cards.py"))
    text = page.read_text(encoding="utf-8")
    assert program["filled"](text) == text, "run python benchmarks/publish/cards.py"


def test_every_area_but_the_published_ones_shows_its_accuracy_and_its_card_first():
    for page in AREAS:
        text = page.read_text(encoding="utf-8")
        assert "| card | |" in text, page
        if page.stem != "published":
            assert text.index("| card | |") < text.index("<!-- accuracy "), page


def test_a_condition_that_no_line_fulfils_is_refused():
    program = runpy.run_path(str(PUBLISH / "cards.py"))
    with pytest.raises(ValueError, match="mig: no line fulfils split=weather"):
        program["table"]("mig; split=weather")
