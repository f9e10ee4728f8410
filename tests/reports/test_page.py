"""Promises of pages: whole, safe, small, and with the names of the model's own file."""

from __future__ import annotations

import base64
import hashlib
import re

import pytest

import perfpass
from html_document import Document
from perfpass.errors import FormatError
from perfpass.report import training_charts
from perfpass.report.chart import Box
from perfpass.report.page import (
    Page,
    compared_page,
    html,
    markdown,
    run_page,
    stored_page,
)
from perfpass.stored_prediction import prediction_of
from report_models import DEVICE, EXAMPLES, HOSTILE, large
from report_pages import KINDS, made

OWN_TAGS = ("details", "summary", "sub")
LARGEST_BYTES = 2_000_000


@pytest.fixture(scope="module", params=KINDS)
def page(request) -> Page:
    return made(request.param, request)


def test_a_page_is_whole_and_says_the_decision_first(page):
    text = html(page)
    document = Document(text)
    names = [tag for tag, _ in document.elements]
    assert text.startswith("<!doctype html>") and names.count("h1") == 1 and names.count("main") == 1
    assert page.headline in " ".join(document.texts["h1"]).replace("\u00a0", " ")
    assert len(page.sections) == names.count("h2") == names.count("section")
    assert len(text.encode()) <= LARGEST_BYTES


def test_ids_are_alone_and_every_reference_leads_to_one(page):
    elements = Document(html(page)).elements
    ids = [attributes["id"] for _, attributes in elements if "id" in attributes]
    assert len(set(ids)) == len(ids)
    for _, attributes in elements:
        for name in ("aria-labelledby", "aria-describedby"):
            assert set((attributes.get(name) or "").split()) <= set(ids)
        target = attributes.get("href") or ""
        assert not target.startswith("#") or target[1:] in ids


def test_nothing_is_asked_of_the_network(page):
    text = html(page)
    for tag, attributes in Document(text).elements:
        for name in ("src", "href", "srcset", "action", "data", "poster", "xlink:href"):
            value = attributes.get(name) or ""
            assert value.startswith("#") or value in ("", "data:,"), (tag, name, value)
    assert not re.search(r"@import|url\(\s*['\"]?(?!#)", text)


def test_only_the_script_and_style_of_the_package_may_run(page):
    text = html(page)
    policy = next(a["content"] for t, a in Document(text).elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'") and "unsafe" not in policy and "connect-src" not in policy
    for tag in ("style", "script"):
        inside = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside[0].encode()).digest()).decode()
        assert len(inside) == 1 and f"{tag}-src 'sha256-{digest}'" in policy
    assert not any(name == "style" or name.startswith("on") for _, a in Document(text).elements for name in a)


def test_markdown_says_the_same_first_and_has_whole_tables(page):
    text = markdown(page)
    assert text.startswith("## ") and text.count("<details>") == text.count("</details>") == len(page.sections)
    table: list[int] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            table.append(len(re.findall(r"(?<!\\)\|", line)))
        else:
            assert len(set(table)) <= 1, table
            table = []


def test_a_hostile_model_writes_nothing_but_text(hostile):
    page = run_page(hostile)
    text = html(page)
    document = Document(text)
    assert [tag for tag, _ in document.elements].count("script") == 1
    assert "img" not in {tag for tag, _ in document.elements} and "b" not in {tag for tag, _ in document.elements}
    assert not any(name.startswith("on") for _, a in document.elements for name in a)
    assert "\x1b" not in text and "\u202e" not in text
    assert any("<script>alert(1)</script>" in shown for shown in document.texts["th"])  # as text, for people
    several = compared_page([hostile, hostile], [None, None], [HOSTILE, "b"])
    for told in (markdown(page), markdown(several)):
        assert set(re.findall(r"(?<!\\)<(/?\w*)", told)) <= {f"{end}{tag}" for end in ("", "/") for tag in OWN_TAGS}
        assert "\x1b" not in told and "\u202e" not in told


@pytest.mark.parametrize("where", ["model", "headline", "name"])
def test_hostile_documents_write_nothing_but_text(request, where):
    documents = {"fit": perfpass.fit("llama-3.1-8b", ["t4"]).to_dict()}
    documents["training"] = perfpass.train_cost("llama-3.2-1b", "h100").to_dict()
    documents["diff"] = perfpass.diff(EXAMPLES / "resnet50.onnx", EXAMPLES / "resnet50.onnx", "t4").to_dict()
    for kind, document in documents.items():
        spoiled = spoil(document)
        found = html(stored_page(kind, spoiled, "x"))
        names = [tag for tag, _ in Document(found).elements]
        assert names.count("script") == 1 and "img" not in names


def spoil(value: object) -> object:
    """Every text replaced, but what is compared with known words."""
    if isinstance(value, dict):
        return {name: spoil(one) for name, one in value.items()}
    if isinstance(value, list):
        return [spoil(one) for one in value]
    kept = {"byte", "ms", "1/s", "J", "W", "USD", "", "ratio"}
    return HOSTILE if isinstance(value, str) and value not in kept else value


@pytest.mark.parametrize("kind", ["fit", "diff", "choice", "fleet", "training", "layouts"])
@pytest.mark.parametrize("damage", [{}, {"answers": 3}, {"devices": [{}]}, {"options": None}, {"gpus": [1]}])
def test_a_damaged_document_is_one_error(kind, damage):
    with pytest.raises(FormatError, match=f"not a whole {kind}"):
        stored_page(kind, damage, "x.json")


def test_a_page_of_training_has_every_stage_cause_and_change(request):
    told = markdown(made("training", request))
    assert "of the host's memory are held" in told and "time of the run" in told and "kgCO2e" in told
    advised = re.findall(r"^\| (recompute full|sharding zero2|micro-batch 1)", told, re.MULTILINE)
    stages = re.findall(r"^\| ([1-4]) \|", told, re.MULTILINE)
    assert stages == ["1", "2", "3", "4"] and "recompute full" in advised
    for cause in ("products", "attention", "bubble", "offload"):
        assert f"| {cause} |" in told


def test_a_stage_of_a_picture_is_as_long_as_what_it_holds(request):
    found = perfpass.train_cost("llama-3.1-70b", "h100", gpus=64, tensor=8, pipeline=8, global_batch=64).to_dict()
    boxes = [mark for mark in training_charts.stages(found).marks if isinstance(mark, Box)]
    fullest = found["stages"][found["fullest_stage"]]
    parts = {name: fullest[name] for name in training_charts.HOLDS}
    row = 8 - found["fullest_stage"]
    held = sum(box.x1 - box.x0 for box in boxes if box.y0 < row < box.y1)
    assert held == pytest.approx(sum(parts.values()))


def test_a_damaged_prediction_is_one_error(vision):
    for name in ("latency_ms", "breakdown", "support", "memory"):
        document = {**vision.to_dict(), name: {"median": "fast"}}
        with pytest.raises(FormatError):
            prediction_of(document)


def test_a_prediction_that_was_read_is_the_one_that_was_written(vision):
    document = vision.to_dict()
    again = prediction_of(document)
    assert again.to_dict() == document and str(again) == str(vision)


def test_nodes_are_named_as_in_the_file_and_by_annotate(tmp_path):
    onnx = pytest.importorskip("onnx")
    import shutil

    path = tmp_path / "net.onnx"
    shutil.copyfile(EXAMPLES / "resnet50.onnx", path)
    noted = perfpass.annotate(path, "t4").predictions["t4"]
    found = perfpass.predict(path, "t4")
    names = {node.name for node in onnx.load(path).graph.node}
    tables = [b for s in run_page(found).sections for b in s.blocks if getattr(b, "caption", "").startswith("Nodes")]
    shown = {row[0].text for row in tables[0].rows}
    assert shown and shown <= names
    assert {o["example"] for o in noted["breakdown"]["operators"]} <= shown


def test_a_page_of_ten_thousand_nodes_is_at_most_two_megabytes(tmp_path):
    found = perfpass.predict(large(tmp_path / "large.onnx", 10_000), DEVICE)
    assert found.provenance["graph"]["nodes"] == 10_000
    text = html(run_page(found))
    assert len(text.encode()) <= LARGEST_BYTES
    Document(text)
