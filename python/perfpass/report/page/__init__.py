"""A page: results as one self-contained HTML file, or as Markdown."""

from __future__ import annotations

from perfpass.report.page.blocks import Page
from perfpass.report.page.html import html
from perfpass.report.page.markdown import markdown
from perfpass.report.page.others import stored_page, sweep_page
from perfpass.report.page.runs import compared_page, run_page
from perfpass.report.page.served import served_page

__all__ = ["Page", "compared_page", "html", "markdown", "run_page", "served_page", "stored_page", "sweep_page"]
