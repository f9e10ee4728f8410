"""A real browser for tests of pages: Debian's chromium-headless-shell, or any Chromium, driven by Playwright.

Screenshots go to build/screenshots, which the continuous integration keeps.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SHOTS = Path(__file__).resolve().parents[1] / "build" / "screenshots"
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
PHONE, DESK = 380, 1100
_SERIOUS = ("serious", "critical")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="no Playwright")
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip("no Chromium")
    with playwright.sync_playwright() as driver:
        # A container has no user namespaces for the sandbox; the pages are our own.
        found = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield found
        found.close()


def shot(page: Any, name: str) -> None:
    """A whole page as a picture; a browser on a busy machine may need more than one try."""
    from playwright.sync_api import Error

    SHOTS.mkdir(parents=True, exist_ok=True)
    for left in (2, 1, 0):
        try:
            page.screenshot(path=SHOTS / f"{name}.png", full_page=True)
            return
        except Error:
            if not left:
                raise


def serious_findings(page: Any, **how: Any) -> list[tuple[str, str]]:
    """What axe has to say against a page, without what is minor."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe").Axe()
    found = axe.run(page, options={"resultTypes": ["violations"]}, **how).response["violations"]
    return [(v["id"], v["nodes"][0]["html"][:200]) for v in found if v["impact"] in _SERIOUS]
