"""Promises of notebooks: results show themselves, hostile names as text alone, and the example runs as stored."""

from __future__ import annotations

import pytest

import perfpass
from html_document import Document
from report_models import EXAMPLES


@pytest.mark.parametrize("name", ["vision", "step", "batches", "loads", "hostile"])
def test_a_result_shows_itself_with_its_intervals(request, name):
    text = request.getfixturevalue(name)._repr_html_()
    document = Document(text)
    tags = {tag for tag, _ in document.elements}
    assert not tags & {"script", "img", "link", "style", "iframe"} and "table" in tags
    assert not any(key.startswith("on") or key in ("src", "href") for _, found in document.elements for key in found)
    assert " to " in text and len(text) < 30_000


def test_points_without_figures_are_not_counted_as_more_to_draw():
    shown = perfpass.sweep(EXAMPLES / "resnet50.onnx", ["t4"], batches=[1, 10**6])._repr_html_()
    assert "1 without figures" in shown and "more with figures" not in shown


def test_a_fit_shows_itself_with_what_would_make_it_fit():
    text = perfpass.fit("llama-3.1-8b", ["t4", "l4"])._repr_html_()
    assert "fits on 1 of 2 devices" in text and "what would make it fit" in text


@pytest.mark.slow
def test_the_example_runs_and_shows_what_is_stored():
    nbformat = pytest.importorskip("nbformat", reason="no nbformat")
    pytest.importorskip("nbclient", reason="no nbclient")
    from publish import notebook

    stored, again = nbformat.read(notebook.NOTEBOOK, as_version=4), notebook.executed()
    nbformat.validate(stored)
    for before, now in zip(stored.cells, again.cells, strict=True):
        assert [kinds(output) for output in before.get("outputs", ())] == [kinds(o) for o in now.get("outputs", ())]
    assert not any(output.output_type == "error" for cell in stored.cells for output in cell.get("outputs", ()))


def kinds(output) -> tuple[str, ...]:
    """What an output shows, whatever the figures are today."""
    return (output.output_type, *sorted(output.get("data", ())))
