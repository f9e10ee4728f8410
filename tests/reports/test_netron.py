"""Promise: the nodes of a report have the names that Netron shows of the same file, and that `annotate` writes."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

import perfpass
from html_document import Document
from perfpass.report.nodes import Nodes
from perfpass.report.page import html, run_page

pytestmark = pytest.mark.slow

# Netron takes eval from its page, so the page is asked through the browser's protocol.
_ACCEPT = "[...document.querySelectorAll('button')].filter(b => b.innerText == 'Accept').forEach(b => b.click())"
_NAMES = "JSON.stringify([...document.querySelectorAll('g.node')].map(node => node.id))"
_MARK = "node-name-"


@pytest.fixture
def shown_by_netron(browser):
    """The names of the nodes that Netron draws of a file."""
    netron = pytest.importorskip("netron", reason="no Netron")

    def names(path: Path) -> set[str]:
        address, port = netron.start(str(path), address=("127.0.0.1", 0), browse=False)
        context = browser.new_context()
        try:
            page = context.new_page()
            page.goto(f"http://{address}:{port}/")
            protocol = context.new_cdp_session(page)
            found: list[str] = []
            deadline = time.monotonic() + 120  # a busy machine draws slowly
            while not found and time.monotonic() < deadline:
                protocol.send("Runtime.evaluate", {"expression": _ACCEPT})
                time.sleep(0.5)
                drawn = protocol.send("Runtime.evaluate", {"expression": _NAMES, "returnByValue": True})
                found = json.loads(drawn["result"]["value"])
            return {name.removeprefix(_MARK) for name in found if name.startswith(_MARK)}
        finally:
            context.close()
            netron.stop((address, port))

    return names


@pytest.mark.parametrize("name", ["resnet50", "vit_base_patch16_224"])
def test_nodes_of_a_report_and_of_an_annotation_have_netrons_names(shown_by_netron, examples, tmp_path, name):
    model = examples / f"{name}.onnx"
    shown = shown_by_netron(model)
    found = perfpass.predict(model, "t4")
    named = set(Nodes.of(found).name)
    assert len(named) > 100
    assert named <= shown
    assert all("Constant" in other for other in shown - named)
    texts = {text for texts in Document(html(run_page(found))).texts.values() for text in texts}
    assert len(texts & shown) > 100
    assert {operator["example"] for operator in found.breakdown["operators"]} <= shown
