"""A page as Markdown of GitHub's dialect: for a comment on a pull request or the summary of a job.

Pictures are left out, as a comment shows none that it does not fetch; their sentences and figures stay.
"""

from __future__ import annotations

import re
from html import escape

from perfpass import __version__
from perfpass.report.chart import Chart
from perfpass.report.page.blocks import Block, Folded, Page, Points, Table, Words, chart_table
from perfpass.text import printable

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~@&])")
_MARKS = {"good": "✅ ", "bad": "❌ ", "unsure": "❔ ", "plain": ""}
_MOST_ROWS, _MOST_LETTERS = 15, 200


def markdown(page: Page) -> str:
    """The text. Names of models mean nothing to Markdown or HTML, and mention nobody."""
    lines = [f"## {_MARKS[page.tone]}{_plain(page.headline)}", "", *(f"{_plain(line)}  " for line in page.lead), ""]
    if page.keys:
        lines += ["| figure | median | interval |", "| --- | ---: | ---: |"]
        lines += [f"| {_plain(k.name)} | {_plain(f'{k.median} {k.unit}')} | {_plain(k.bounds)} |" for k in page.keys]
        lines.append("")
    for section in page.sections:
        lines += [f"<details><summary>{escape(printable(section.title))}</summary>", ""]
        for block in section.blocks:
            lines += [*_block(block), ""]
        lines += ["</details>", ""]
    return "\n".join([*lines, f"<sub>perfpass {__version__}</sub>", ""])


def _block(block: Block) -> list[str]:
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, Chart):
        return [_plain(block.description), "", *_table(chart_table(block))]
    if isinstance(block, Points):
        return [f"- {_plain(item)}" for item in block.items]
    if isinstance(block, Folded):
        return [f"**{_plain(block.summary)}**", "", *(line for one in block.blocks for line in [*_block(one), ""])]
    assert isinstance(block, Words)
    return [f"{_MARKS[block.tone]}{_plain(block.text)}"]


def _table(table: Table) -> list[str]:
    shown = table.rows[:_MOST_ROWS]
    lines = [f"**{_plain(table.caption)}**", "", "| " + " | ".join(_plain(name) or " " for name in table.head) + " |"]
    lines.append("| " + " | ".join(["---", *(["---:"] * (len(table.head) - 1))]) + " |")
    lines += ["| " + " | ".join(_plain(cell.text) for cell in row) + " |" for row in shown]
    more = table.more + len(table.rows) - len(shown)
    return [*lines, "", f"and {more:,} more"] if more else lines


def _plain(text: str) -> str:
    text = printable(text)
    return _SPECIAL.sub(r"\\\1", text if len(text) <= 4 * _MOST_LETTERS else f"{text[: 4 * _MOST_LETTERS]}...")
