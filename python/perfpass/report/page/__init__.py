"""A page: results as one self-contained HTML file, or as Markdown."""

from __future__ import annotations

from perfpass.report.page.asked import LOADS, USUAL, loads_page, runs_page
from perfpass.report.page.blocks import Page
from perfpass.report.page.html import document, fragment, html, script, style
from perfpass.report.page.markdown import markdown
from perfpass.report.page.others import stored_page, sweep_page
from perfpass.report.page.runs import compared_page, run_page
from perfpass.report.page.served import served_page

__all__ = [
    "LOADS",
    "USUAL",
    "Page",
    "compared_page",
    "document",
    "fragment",
    "html",
    "loads_page",
    "markdown",
    "run_page",
    "runs_page",
    "script",
    "served_page",
    "stored_page",
    "style",
    "sweep_page",
]
