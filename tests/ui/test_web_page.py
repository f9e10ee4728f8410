"""Promises of `perfpass ui` in a real browser, against a server as a user starts it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from browsers import PHONE, serious_findings, shot
from perfpass.ui.fields import QUESTIONS

pytestmark = pytest.mark.slow
DESK = 1280  # the form stands beside the answer
PATIENCE_S = 120.0  # on a busy machine
INTERVAL = re.compile(r"\([\d.e+-]+ to [\d.e+-]+, 90\s%\)")


@contextlib.contextmanager
def shown(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """`perfpass ui` on a free port: its process and its address."""
    told = folder / "ui.out"
    command = [sys.executable, "-m", "perfpass", "ui", "--port", "0", *options]
    with told.open("wb") as out, (folder / "ui.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=out, stderr=log, env={**os.environ, "PERFPASS_TOKEN": ""})
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not (found := re.search(r"http://127\.0\.0\.1:\d+", told.read_text())):
            assert process.poll() is None and time.monotonic() < deadline, (folder / "ui.log").read_text()
            time.sleep(0.05)
        yield process, found[0]
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> Iterator[str]:
    with shown(tmp_path_factory.mktemp("ui"), "--body-mib", "1") as (_, found):
        yield found


@pytest.fixture
def opened(browser, address):
    """Opens the page for a user of its own; nothing was asked of another host, and nothing was complained of."""
    contexts: list[Any] = []
    asked: list[str] = []
    said: list[str] = []

    def open_page(link: str = "/", width: int = DESK, theme: str = "light", **how: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme, **how)
        contexts.append(context)
        context.set_default_timeout(1e3 * PATIENCE_S)
        page = context.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(address + link)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert [url for url in asked if not url.startswith((address, "data:"))] == []
    assert [line for line in said if "Failed to load resource" not in line] == []


def choose(page: Any, path: Path) -> None:
    page.locator(".drop input").set_input_files(path)


def ask(page: Any) -> None:
    page.locator("#ask .primary").click()


def headline(page: Any) -> str:
    """Of the answer, once it is there."""
    page.locator("article .headline").wait_for()
    return page.locator("article .headline").inner_text()


def refusal(page: Any) -> str:
    page.locator(".wrong:not([hidden])").wait_for()
    return page.locator(".wrong").inner_text()


def downloaded(page: Any, name: str) -> str:
    with page.expect_download() as found:
        page.get_by_role("link", name=name).click()
    return Path(found.value.path()).read_text(encoding="utf-8")


def test_an_uploaded_file_is_predicted_and_can_be_taken_along(opened, examples):
    page = opened(bypass_csp=True)  # axe is put into the page as a script
    shot(page, "ui-start-light-1280")
    assert serious_findings(page) == []
    choose(page, examples / "resnet50.onnx")
    page.get_by_role("textbox", name="Batch").fill("8")
    ask(page)
    assert "resnet50.onnx on NVIDIA H100" in headline(page) and INTERVAL.search(headline(page))
    shot(page, "ui-predict-light-1280")
    assert page.locator("article svg").count() >= 6 and page.locator("article .keys dd.bounds").count() == 5
    found = json.loads(downloaded(page, "JSON"))
    assert found["workload"]["batch"] == 8
    report = downloaded(page, "Report (HTML)")
    assert report.startswith("<!doctype html>") and "resnet50.onnx on NVIDIA H100" in report
    page.get_by_role("button", name=re.compile("^Zoom in")).first.click()  # what a report can do is alive here too
    assert page.locator(".plot.zoomed").count() == 1


def test_devices_stand_side_by_side_in_the_dark_on_a_phone(opened, examples):
    page = opened("/?ask=compare&device=l4,rtx-4090,t4,p100-pcie-16gb", PHONE, "dark", bypass_csp=True)
    assert "does not hold" not in page.locator(".wrong").inner_text()
    choose(page, examples / "resnet50.onnx")
    ask(page)
    assert "Fastest by the median" in headline(page)
    rows = page.locator("article table", has_text="All runs").first.locator("tbody tr")
    assert rows.count() == 4 and all(INTERVAL.search(text) for text in rows.all_inner_texts())
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(21, 23, 26)"
    shot(page, "ui-compare-dark-380")
    assert (
        serious_findings(
            page, context={"exclude": [["article section:nth-of-type(n+2)"], ["article figure:nth-of-type(n+2)"]]}
        )
        == []
    )


@pytest.mark.parametrize(("tab", "theme"), [(q.name, "dark" if i % 2 else "light") for i, q in enumerate(QUESTIONS)])
def test_every_tab_fits_a_phone_and_has_no_serious_finding(opened, tab, theme):
    page = opened(f"/?ask={tab}", PHONE, theme, bypass_csp=True)
    assert page.locator(f"#panel-{tab}").is_visible() and not page.locator(".wrong").is_visible()
    given = [field.given for q in QUESTIONS for field in q.fields if q.name == tab and field.kind == "device"]
    shown = page.locator(f"#panel-{tab} .fields [name=device]").first
    assert not any(given) or shown.input_value() == given[0]  # a link to a tab leaves what stands in it
    for fold in page.locator(f"#panel-{tab} summary").all():
        fold.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE
    shot(page, f"ui-{tab}-{theme}-380")
    assert serious_findings(page) == []


ANSWERED = {
    "fit": "model=llama-3.1-70b&device=l4,h100-sxm5-80gb",
    "serve": "model=llama-3.1-8b&device=l4&concurrency=4",
    "train": "model=llama-3.1-8b&device=h100-sxm5-80gb&gpus=8&global_batch=64",
}


@pytest.mark.parametrize(("tab", "theme"), [("fit", "light"), ("serve", "dark"), ("train", "light")])
def test_an_answer_fits_a_phone_and_has_no_serious_finding(opened, tab, theme):
    page = opened(f"/?ask={tab}&{ANSWERED[tab]}", PHONE, theme, bypass_csp=True)
    assert headline(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE
    for fold in page.locator("article summary").all()[:6]:
        fold.click()
    plots = page.locator("article .plot").evaluate_all(
        "plots => plots.filter(p => p.offsetWidth).map(p => p.scrollWidth - p.clientWidth)"
    )
    assert plots and max(plots) <= 0, plots  # none has to be moved to be seen
    shot(page, f"ui-{tab}-answer-{theme}-380")
    alike = {"exclude": [["article tbody tr:nth-child(n+6)"], ["article figure:nth-of-type(n+3)"]]}
    assert serious_findings(page, context=alike) == []


def test_a_fleet_is_placed_from_files_and_names(opened, examples):
    pytest.importorskip("ortools")
    page = opened("/?ask=fleet&gpu.0.device=a100-sxm4-80gb&gpu.0.count=2&model.0.file=vision.onnx&model.0.rate=50"
                  "&model.1.model=llama-3.1-8b&model.1.kind=llm&model.1.tpot_ms=60", bypass_csp=True)  # fmt: skip
    assert "vision.onnx" in refusal(page)  # a link holds no file
    files = page.locator(".row .choose input")
    assert files.count() == 2
    files.first.set_input_files(examples / "resnet50.onnx")
    ask(page)
    assert "PACKED: 2 models" in headline(page)
    assert "llama-3.1-8b" in page.get_by_role("table", name="Instances").inner_text()
    shot(page, "ui-fleet-light-1280")
    assert serious_findings(page) == []
    assert json.loads(downloaded(page, "JSON"))["status"] == "optimal"
    page.locator("#fleet-model-0-model").fill("qwen2.5-7b")  # a name takes the place of a file
    assert files.first.evaluate("(input) => input.parentElement.className") == "choose"


def test_a_bad_file_and_one_that_is_too_large_are_told_in_a_sentence(opened, tmp_path, address):
    page = opened(width=PHONE)
    (tmp_path / "notes.onnx").write_text("not a model")
    (tmp_path / "large.onnx").write_bytes(bytes((1 << 20) + 1))
    choose(page, tmp_path / "notes.onnx")
    ask(page)
    said = refusal(page)
    assert "expected an ONNX model" in said and "Traceback" not in page.content()
    shot(page, "ui-bad-light-380")
    choose(page, tmp_path / "large.onnx")
    assert "1 MiB is the limit" in refusal(page) and "external data" in refusal(page)
    # Who goes around the page's own check meets the server's.
    status = page.evaluate(
        "async () => { const f = new FormData(); f.append('question', 'device=t4');"
        " f.append('model', new Blob([new Uint8Array(1200000)]), 'x.onnx');"
        " return fetch('/ask/predict', {method: 'POST', body: f}).then((r) => r.status, () => 413); }"
    )
    assert status == 413


def test_two_users_at_once_get_their_own_answers(opened, examples):
    one, other = opened("/?ask=compare&device=t4"), opened()
    choose(one, examples / "resnet50.onnx")
    choose(other, examples / "vit_base_patch16_224.onnx")
    for page in (one, other):
        ask(page)
    assert "resnet50.onnx on NVIDIA Tesla T4" in headline(one)
    assert "vit_base_patch16_224.onnx on NVIDIA H100" in headline(other)


def test_a_link_restores_the_question_and_asks_it(opened):
    link = "/?ask=serve&model=llama-3.1-8b&device=l4&concurrency=4&kv_precision=fp8"
    page = opened(link)
    assert "llama-3.1-8b on 1 x NVIDIA L4" in headline(page) and INTERVAL.search(headline(page))
    again = dict(parse_qsl(urlsplit(page.url).query))
    assert again == dict(parse_qsl(urlsplit(link).query))
    assert page.get_by_role("tab", name="Serve an LLM").get_attribute("aria-selected") == "true"
    page.get_by_role("textbox", name="Requests in flight").fill("8")
    ask(page)
    page.locator("article", has_text="8 in flight").wait_for()
    assert dict(parse_qsl(urlsplit(page.url).query)) == {**again, "concurrency": "8"}


def test_tabs_are_reached_by_keyboard_and_files_by_dropping_them(opened, examples):
    page = opened()
    page.get_by_role("tab", name="Predict").focus()
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.textContent") == "Fit"
    assert page.locator("#panel-fit").is_visible() and not page.locator("#panel-predict").is_visible()
    content = list((examples / "resnet50.onnx").read_bytes())
    page.evaluate(
        "(content) => { const data = new DataTransfer();"
        " data.items.add(new File([new Uint8Array(content)], 'dropped.onnx'));"
        " document.body.dispatchEvent(new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true})); }",
        content,
    )
    page.get_by_label("Devices").first.fill("t4, l4")
    page.keyboard.press("Enter")
    assert "dropped.onnx fits on 2 of 2 devices" in headline(page)


def test_a_browser_that_knows_the_password_is_shown_the_page(browser, tmp_path, examples):
    (tmp_path / "token").write_text("a-password-of-some-length\n")
    with shown(tmp_path, "--token-file", str(tmp_path / "token")) as (_, address):
        for password, status in (("a-wrong-one-of-length", 401), ("a-password-of-some-length", 200)):
            context = browser.new_context(http_credentials={"username": "me", "password": password})
            context.set_default_timeout(1e3 * PATIENCE_S)
            page = context.new_page()
            assert page.goto(address).status == status
        choose(page, examples / "resnet50.onnx")
        ask(page)
        assert "resnet50.onnx on NVIDIA H100" in headline(page)
        assert json.loads(downloaded(page, "JSON"))["schema_version"] == 1
        context.close()


def test_training_says_the_quickest_layout_first(opened):
    page = opened("/?ask=train&model=llama-3.1-8b&device=h100-sxm5-80gb&gpus=8&search=true&tokens=1e10")
    assert re.search(r"of \d+ layouts \d+ fit; the quickest, [^;]+ takes", headline(page))
    shot(page, "ui-train-light-1280")
    assert page.locator("article .title").first.inner_text() == "Layouts"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_when_it_is_told_to(tmp_path, number):
    with shown(tmp_path) as (process, _):
        process.send_signal(number)
        process.wait(PATIENCE_S)
    said = (tmp_path / "ui.log").read_text()
    assert process.returncode in (0, 130, -number) and "Traceback" not in said
