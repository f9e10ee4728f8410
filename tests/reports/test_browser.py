"""Promises of pages in a real browser: no request, no complaint, dark, narrow, by keyboard, on paper, for everyone."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from browsers import DESK, PHONE, SHOTS, serious_findings, shot
from perfpass.report.page import html, run_page
from report_pages import KINDS, made

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def written(request, tmp_path_factory) -> Callable[[str], Path]:
    """A file of a page of a kind, made when it is first asked for."""
    folder = tmp_path_factory.mktemp("pages")

    def file_of(kind: str) -> Path:
        path = folder / f"{kind}.html"
        if not path.exists():
            page = run_page(request.getfixturevalue("hostile")) if kind == "hostile" else made(kind, request)
            path.write_text(html(page), encoding="utf-8")
        return path

    return file_of


@pytest.fixture
def opened(browser, written):
    """Opens a page; at the end nothing was asked of the network and nothing was complained of."""
    contexts = []
    asked: list[str] = []
    said: list[str] = []

    def open_page(name: str, width: int = DESK, theme: str = "light", **how):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme, **how)
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: said.append(dialog.message))
        page.goto(written(name).as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert [line for line in said if "Content Security Policy" not in line] == []


ALIKE = {"exclude": [["tbody tr:nth-child(n+6)"]]}  # rows that are like those before them
RUN_LIKE = ("read", "hostile")  # nothing is in them that "run" has not
# Every kind of page on a phone, half of them in the dark, and the longest on a desk.
LOOKS = [
    *((kind, PHONE, "light" if i % 2 else "dark") for i, kind in enumerate((*KINDS, "hostile"))),
    ("run", DESK, "light"), ("step", DESK, "dark"), ("sweep", DESK, "dark"), ("fit", DESK, "light"),
]  # fmt: skip
# Of a picture: which drawing is shown, by how much it is wider than its frame, and the pixels of its smallest words.
DRAWN = """plot => {
  const shown = [...plot.querySelectorAll('svg')].filter(svg => svg.getBoundingClientRect().width > 0);
  const sizes = shown.flatMap(svg => {
    const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
    return [...svg.querySelectorAll('text')].map(text => scale * parseFloat(text.getAttribute('font-size')));
  });
  return [shown.map(svg => svg.getAttribute('class')), plot.scrollWidth - plot.clientWidth, Math.min(...sizes)];
}"""


@pytest.mark.parametrize(("name", "width", "theme"), LOOKS)
def test_a_page_fits_its_window_and_has_no_serious_finding(opened, name, width, theme):
    page = opened(name, width, theme, bypass_csp=True)  # axe is put into the page as a script
    shot(page, f"{name}-{theme}-{width}")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if name in RUN_LIKE:
        return
    for fold in page.locator("summary").all()[:12]:
        fold.click()
    assert serious_findings(page, context=ALIKE) == []


@pytest.mark.parametrize(("width", "drawing"), [(PHONE, "narrow"), (DESK, "wide")])
@pytest.mark.parametrize("name", ["run", "step", "served", "sweep", "fleet", "training", "diff"])
def test_a_picture_is_drawn_for_its_window(opened, name, width, drawing):
    """None is cut off, or has to be moved to be seen, and its words are as large as they are meant."""
    found = opened(name, width).locator(".plot").evaluate_all(f"plots => plots.filter(p => p.offsetWidth).map({DRAWN})")
    assert found and all(shown == [drawing] and over <= 0 and least > 10 for shown, over, least in found), found


def test_the_colours_are_those_that_were_asked_for(opened):
    paper = "getComputedStyle(document.body).backgroundColor"
    light, dark = opened("run"), opened("run", theme="dark")
    assert light.evaluate(paper) == "rgb(255, 255, 255)" and dark.evaluate(paper) == "rgb(21, 23, 26)"
    dark.get_by_role("button", name="Light").click()
    assert dark.evaluate(paper) == "rgb(255, 255, 255)"
    fill = dark.evaluate("getComputedStyle(document.querySelector('.plot [class^=f-]')).fill")
    assert fill not in ("none", "")


def test_a_table_is_sorted_by_keyboard(opened):
    page = opened("run")
    table = page.locator("table", has=page.locator("caption", has_text="Nodes, the longest first"))
    heading = table.get_by_role("columnheader", name="work").get_by_role("button")
    figures = "rows => rows.map(row => Number(row.cells[4].dataset.v))"
    heading.focus()
    for key, order in (("Enter", "ascending"), ("Space", "descending")):
        page.keyboard.press(key)
        assert table.get_by_role("columnheader", name="work").get_attribute("aria-sort") == order
        found = table.locator("tbody tr").evaluate_all(figures)
        assert found == sorted(found, reverse=order == "descending") and len(found) > 20
    assert table.locator("[aria-sort=ascending], [aria-sort=descending]").count() == 1


def test_a_long_table_is_searched(opened):
    page = opened("run")
    nodes = page.locator("[data-search]", has=page.locator("caption", has_text="Nodes, the longest first"))
    nodes.locator("xpath=preceding-sibling::label[1]").locator("input").fill("LAYER1")
    shown = nodes.locator("tbody tr:not([hidden])").all_inner_texts()
    assert shown and all("layer1" in text for text in shown)


def test_a_picture_is_zoomed_by_button_key_and_mouse(opened):
    page = opened("run")
    plot = page.locator(".plot").first
    box = plot.locator("svg.wide")
    whole = box.get_attribute("viewBox")
    width = lambda: float(re.split(r"[ ,]+", box.get_attribute("viewBox"))[2])  # noqa: E731
    before = width()
    page.get_by_role("button", name=re.compile("^Zoom in")).first.click()
    assert width() < before
    plot.focus()
    page.keyboard.press("+")
    page.keyboard.press("ArrowRight")
    assert width() < before / 2
    page.keyboard.press("0")
    assert box.get_attribute("viewBox") == whole
    box.dblclick()
    assert width() == pytest.approx(before / 2)


def test_a_picture_is_zoomed_on_a_phone(opened):
    page = opened("run", PHONE)
    box = page.locator(".plot").first.locator("svg.narrow")
    whole = box.get_attribute("viewBox")
    page.get_by_role("button", name=re.compile("^Zoom in")).first.click()
    assert float(box.get_attribute("viewBox").split()[2]) == pytest.approx(float(whole.split()[2]) / 1.5)
    page.get_by_role("button", name=re.compile("^Show the whole")).first.click()
    assert box.get_attribute("viewBox") == whole


def test_the_first_stop_of_the_keyboard_leads_past_the_rest(opened):
    page = opened("run")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the figures"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_without_script_everything_is_there(opened):
    page = opened("run", java_script_enabled=False)
    assert page.locator("svg").count() >= 6 and page.locator("tbody tr").count() > 50


def test_paper_has_all_of_it_in_black_on_white(opened, tmp_path):
    page = opened("run", theme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator("nav").is_visible()
    SHOTS.mkdir(parents=True, exist_ok=True)
    content = page.pdf(path=SHOTS / "run.pdf", format="A4")
    assert content.startswith(b"%PDF") and content.count(b"/Type /Page\n") + content.count(b"/Type /Page ") != 1


def test_a_hostile_model_runs_nothing(opened):
    page = opened("hostile")
    assert page.locator("img").count() == 0 and page.locator("script").count() == 1
    assert "<script>alert(1)</script>" in page.locator("table").last.page.content().replace("&lt;", "<").replace(
        "&gt;", ">"
    )


def test_what_gets_past_the_escaping_is_stopped_by_the_policy(opened, written):
    page = opened("run")
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.harmed=1\">')")
    page.wait_for_timeout(200)
    assert page.evaluate("window.harmed") is None
