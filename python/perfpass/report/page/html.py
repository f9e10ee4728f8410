"""A page as one HTML file: no request leaves it, and nothing in it runs but the script that is written here.

Names of models, nodes and devices come from files of others. They are escaped where they are written, and should one
ever get through, the Content-Security-Policy allows no script and no style but those of this package, by their hashes,
and no connection at all.
"""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from functools import cache
from html import escape
from importlib.resources import files
from itertools import count as counted

from perfpass import __version__
from perfpass.report.chart import Chart
from perfpass.report.page.blocks import Block, Cell, Folded, Page, Points, Section, Table, Words, chart_table
from perfpass.report.palette import ROLES, SERIES, THEMES, TINT
from perfpass.report.vector import inline
from perfpass.text import printable

_MARKS = {"good": "✓", "bad": "✕", "unsure": "?", "plain": ""}
_SPOKEN = {"good": "good", "bad": "bad", "unsure": "not certain", "plain": ""}
_UNIT = re.compile(r"(?<=\d) (?=(?:%|ms|s|J|W|USD|[KMGT]i?B)(?!\w))")
_PART = re.compile(r"(?<=[/._])(?=[^\W\d_]{2})")  # where a name of modules may be broken
_PROSE = 40  # letters, above which a cell needs a width of its own
_FILTERED_ROWS = 12  # a table of more rows can be searched


def html(page: Page) -> str:
    """The document."""
    said = (
        f"Made by perfpass {escape(__version__)}. Every figure is a prediction with the interval that holds nine of "
        "ten measured values, or a count. This file holds all it shows and asks nothing of the network."
    )
    top, links, sections = _parts(page, 1)
    brand = f'<p class="brand">perfpass <span>{escape(__version__)}</span></p>'
    body = (
        '<a class="skip" href="#main">Skip to the figures</a>'
        f'<header class="top">{brand}{top}</header><nav aria-label="Sections"><ul>{links}</ul></nav>'
        f'<main id="main" tabindex="-1">{sections}</main><footer><p>{said}</p></footer>'
    )
    policy = "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'"
    return document(page.title, body, policy, style(), script())


def fragment(page: Page) -> str:
    """The same within another document, which has `style` and `script`: its headings begin at the second level."""
    top, links, sections = _parts(page, 2)
    return (
        f'<div class="top">{top}</div><nav class="parts" aria-label="Sections of the answer"><ul>{links}</ul></nav>'
        f"{sections}"
    )


def document(title: str, body: str, policy: str, styles: str, scripts: str) -> str:
    """A document with this style sheet and this script alone; ``policy``: what else it may do."""
    allowed = f"{policy}; style-src 'sha256-{_digest(styles)}'; script-src 'sha256-{_digest(scripts)}'"
    return (
        "<!doctype html>\n"
        '<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{allowed}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">'
        f'<meta name="generator" content="perfpass {escape(__version__)}"><link rel="icon" href="data:,">'
        f"<title>{_t(title)}</title><style>{styles}</style></head><body>{body}<script>{scripts}</script></body></html>\n"
    )


def _parts(page: Page, level: int) -> tuple[str, str, str]:
    """Headline, lead and key figures; links to the sections; the sections. ``level``: of the headline."""
    body = _Body(level + 1)
    sections = "".join(body.section(section, i) for i, section in enumerate(page.sections, 1))
    links = "".join(f'<li><a href="#s{i}">{_t(s.title)}</a></li>' for i, s in enumerate(page.sections, 1))
    keys = "".join(
        f"<div><dt>{_t(k.name)}</dt><dd>{_t(k.median)} <small>{_t(k.unit)}</small></dd>"
        f"<dd class=bounds>{_kept(k.bounds)}</dd></div>"
        for k in page.keys
    )
    spoken = f"<span class=hidden>{_SPOKEN[page.tone]}: </span>" if _SPOKEN[page.tone] else ""
    mark = f"<span class=mark aria-hidden=true>{_MARKS[page.tone]}</span>" if _MARKS[page.tone] else ""
    lead = "".join(f"<p>{_t(line)}</p>" for line in page.lead)
    top = (
        f'<h{level} class="headline tone-{page.tone}">{mark}{spoken}{_kept(page.headline)}</h{level}>{lead}'
        f"{f'<dl class=keys>{keys}</dl>' if keys else ''}"
    )
    return top, links, sections


class _Body:
    """The parts of one page: each chart and table has a number, and what was said above a chart is not said again."""

    def __init__(self, level: int) -> None:
        self._level = level
        self._numbers = counted(1)
        self._said: set[str] = set()

    def section(self, section: Section, number: int) -> str:
        """With its heading."""
        inside = "".join(map(self._block, section.blocks))
        heading = f'<h{self._level} class="title" id="h{number}">{_t(section.title)}</h{self._level}>'
        return f'<section id="s{number}" aria-labelledby="h{number}">{heading}{inside}</section>'

    def _block(self, block: Block) -> str:
        if isinstance(block, Table):
            return self._table(block)
        if isinstance(block, Chart):
            return self._figure(block)
        if isinstance(block, Points):
            return f"<ul>{''.join(f'<li>{_t(item)}</li>' for item in block.items)}</ul>"
        if isinstance(block, Folded):
            inside = "".join(map(self._block, block.blocks))
            return f"<details><summary>{_t(block.summary)}</summary>{inside}</details>"
        assert isinstance(block, Words)
        return f'<p class="tone-{block.tone}">{_t(block.text)}</p>'

    def _figure(self, chart: Chart) -> str:
        drawn = replace(chart, subtitle="") if chart.subtitle in self._said else chart
        self._said.add(chart.subtitle)
        picture = inline(drawn, f"c{next(self._numbers)}")
        rows = self._table(chart_table(chart)) if chart.rows else ""
        figures = f"<details><summary>Figures of this picture</summary>{rows}</details>" if rows else ""
        name = f'aria-label="{_t(chart.title)}, picture"'
        return (
            f'<figure class="chart"><div class="plot" tabindex="0" role="group" {name}>'
            f"{picture}</div><figcaption>{_t(chart.description)}</figcaption>{figures}</figure>"
        )

    def _table(self, table: Table) -> str:
        number = next(self._numbers)
        side = [" class=r" if _numeric(table, i) else "" for i in range(len(table.head))]
        head = "".join(
            f'<th scope="col"{right} aria-sort="none"><button type="button">{_t(name)}</button></th>'
            for name, right in zip(table.head, side, strict=True)
        )
        body = "".join(
            f"<tr>{''.join(_cell(cell, i, side[i]) for i, cell in enumerate(row))}</tr>" for row in table.rows
        )
        more = f"<p class=more>{table.more:,} more rows are not shown.</p>" if table.more else ""
        searched = " data-search" if len(table.rows) > _FILTERED_ROWS else ""
        return (
            f'<div class="scroll" tabindex="0" role="group" aria-labelledby="t{number}"{searched}><table>'
            f'<caption id="t{number}"><span>{_t(table.caption)}</span></caption>'
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{more}"
        )


def _numeric(table: Table, column: int) -> bool:
    cells = [row[column] for row in table.rows]
    return bool(cells) and all(cell.value is not None or not cell.text for cell in cells)


def _cell(cell: Cell, column: int, side: str) -> str:
    value = "" if cell.value is None else f' data-v="{cell.value:.6g}"'
    if column == 0:
        side = " class=w" if not side and len(cell.text) > _PROSE else side
        return f'<th scope="row"{side}{value}>{_PART.sub("<wbr>", _t(cell.text))}</th>'
    median, opened, bounds = cell.text.partition(" (")
    if value and opened and bounds.endswith(")"):
        return f"<td{side}{value}><span class=m>{_t(median)}</span> <span class=b>({_kept(bounds)}</span></td>"
    if not value and len(cell.text) > _PROSE:
        return f"<td class=w>{_t(cell.text)}</td>"
    return f"<td{side}{value}>{_t(cell.text)}</td>"


def _kept(text: str) -> str:
    """Text in which no line begins with the unit of a figure."""
    return _UNIT.sub("\u00a0", _t(text))


def _t(text: str) -> str:
    """Text of anyone as text of a page."""
    return escape(printable(text))


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def script() -> str:
    """What sorts, searches and zooms."""
    return _file("page.js")


@cache
def style() -> str:
    """The style sheet with the palette's colours, light and dark, and the classes that charts are drawn with."""
    names = {theme: [*ROLES[theme].items(), *((f"c{i}", v) for i, v in enumerate(SERIES[theme]))] for theme in THEMES}
    light, dark = ("".join(f"--{name}:{value};" for name, value in names[theme]) for theme in THEMES)
    roles = [*(str(i) for i in range(len(SERIES["light"]))), "ink", "soft", "grid", "paper"]
    painted = []
    for role in roles:
        colour = f"var(--{'c' if role.isdigit() else ''}{role})"
        painted.append(f".f-{role}{{fill:{colour}}}.s-{role}{{stroke:{colour}}}")
        mixed = f"color-mix(in srgb,{colour} {TINT:.0%},var(--paper))"
        painted.append(f".a-{role}{{fill:{mixed};stroke:{colour};stroke-width:.8}}")
    return (
        f":root{{{light}}}@media screen and (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}"
        f"@media screen{{:root[data-theme=dark]{{{dark}}}}}{''.join(painted)}{_file('page.css')}"
    )


def _file(name: str) -> str:
    return files("perfpass.report.page").joinpath(name).read_text(encoding="utf-8").strip()
