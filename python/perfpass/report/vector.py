"""A placed chart as SVG: with colours of its own for a file, or with the classes of a page's style sheet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from perfpass.report.chart import Chart, Role
from perfpass.report.layout import NARROW, WIDTH, Area, Page, Placed, Spot, Words, placed, stacked
from perfpass.report.palette import TINT, Theme, colour, tint
from perfpass.text import printable

FONT = "system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', 'DejaVu Sans', sans-serif"
# Corners of a marker around (0, 0), of radius 1.
POLYGONS: dict[str, tuple[tuple[float, float], ...]] = {
    "square": ((-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)),
    "diamond": ((0, -1.15), (1.15, 0), (0, 1.15), (-1.15, 0)),
    "up": ((0, -1.1), (1.05, 0.8), (-1.05, 0.8)),
    "down": ((0, 1.1), (1.05, -0.8), (-1.05, -0.8)),
    "cross": (
        (-0.4, -1.1), (0.4, -1.1), (0.4, -0.4), (1.1, -0.4), (1.1, 0.4), (0.4, 0.4),
        (0.4, 1.1), (-0.4, 1.1), (-0.4, 0.4), (-1.1, 0.4), (-1.1, -0.4), (-0.4, -0.4),
    ),
}  # fmt: skip


class _Paint:
    """Attributes that colour a shape: literal ones of a theme, or classes."""

    def __init__(self, theme: Theme | None, tips: bool = True) -> None:
        self._theme = theme
        self.tips = tips

    def fill(self, role: Role) -> str:
        return f' fill="{colour(role, self._theme)}"' if self._theme else f' class="f-{role}"'

    def area(self, role: Role) -> str:
        if self._theme:
            return f' fill="{tint(role, self._theme)}" stroke="{colour(role, self._theme)}" stroke-width=".8"'
        return f' class="a-{role}"'

    def stroke(self, role: Role) -> str:
        return f' stroke="{colour(role, self._theme)}"' if self._theme else f' class="s-{role}"'

    def words(self, role: Role, clear: bool) -> str:
        """Of a text, with a rim of the paper's colour where it is kept ``clear``."""
        if not clear:
            return self.fill(role)
        if self._theme is None:
            return f' class="f-{role} clear"'
        return f'{self.fill(role)} stroke="{colour("paper", self._theme)}" stroke-width="3" paint-order="stroke"'

    def edge(self) -> str:
        """Of shapes beside one another."""
        return f' stroke="{colour("paper", self._theme)}"' if self._theme else ""


def standalone(charts: Sequence[Chart], theme: Theme) -> str:
    """An SVG document of one or more charts below one another, with its title and its text alternative."""
    pages = stacked(charts)
    width, height = max(p.width for p in pages), sum(p.height for p in pages)
    said = " ".join(chart.alternative() for chart in charts)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_n(width)} {_n(height)}" width="{_n(width)}" '
        f'height="{_n(height)}" role="img" aria-labelledby="title desc" font-family="{FONT}">',
        f'<title id="title">{_text(charts[0].title)}</title><desc id="desc">{_text(said)}</desc>',
        f'<rect width="{_n(width)}" height="{_n(height)}" fill="{colour("paper", theme)}"/>',
    ]
    top = 0.0
    for i, page in enumerate(pages):
        parts.append(f'<g transform="translate(0 {_n(top)})">{_drawn(page, _Paint(theme), f"clip{i}")}</g>')
        top += page.height
    return "".join([*parts, "</svg>\n"])


def inline(chart: Chart, identifier: str) -> str:
    """SVG elements for a page that has the style sheet of `perfpass.report.page`, of which it shows the one that fits:
    as wide as on a desk, and as on a phone, where nothing points at a shape; the title and words are outside.
    """
    return _inline(chart, identifier, "wide", WIDTH) + _inline(chart, f"{identifier}-n", "narrow", NARROW)


def _inline(chart: Chart, identifier: str, which: str, width: float) -> str:
    page = placed(chart, width)
    return (
        f'<svg class="{which}" viewBox="0 0 {_n(page.width)} {_n(page.height)}" role="img" '
        f'aria-labelledby="{identifier}-title {identifier}-desc">'
        f'<title id="{identifier}-title">{_text(chart.title)}</title>'
        f'<desc id="{identifier}-desc">{_text(chart.subtitle)}. {_text(chart.description)}</desc>'
        f"{_drawn(page, _Paint(None, tips=which == 'wide'), f'{identifier}-clip')}</svg>"
    )


def _drawn(page: Page, paint: _Paint, clip: str) -> str:
    x, y, width, height = page.plot
    around = f'x="{_n(x - 1)}" y="{_n(y - 8)}" width="{_n(width + 2)}" height="{_n(height + 16)}"'
    frame, inside = _all(page.frame, paint), _all(page.inside, paint)
    return f'{frame}<clipPath id="{clip}"><rect {around}/></clipPath><g clip-path="url(#{clip})">{inside}</g>'


def _all(shapes: Iterable[Placed], paint: _Paint) -> str:
    return "".join(_one(shape, paint) for shape in shapes)


def _one(shape: Placed, paint: _Paint) -> str:
    if isinstance(shape, Words):
        where = f'x="{_n(shape.x)}" y="{_n(shape.y)}"'
        if shape.turned:
            where = f'transform="translate({_n(shape.x)} {_n(shape.y)}) rotate(-90)"'
        anchor = "" if shape.anchor == "start" else f' text-anchor="{shape.anchor}"'
        weight = ' font-weight="600"' if shape.bold else ""
        look = f'font-size="{_n(shape.size)}"{anchor}{weight}{paint.words(shape.colour, shape.clear)}'
        return f"<text {where} {look}>{_text(shape.text)}</text>"
    if isinstance(shape, Area):
        box = f'x="{_n(shape.x)}" y="{_n(shape.y)}" width="{_n(shape.width)}" height="{_n(shape.height)}"'
        return _tipped(f"rect {box}{paint.area(shape.colour)}", "rect", shape.tip, paint)
    if isinstance(shape, Spot):
        if shape.shape == "circle":
            place = f'circle cx="{_n(shape.x)}" cy="{_n(shape.y)}" r="{_n(shape.radius)}"'
            return _tipped(f"{place}{paint.fill(shape.colour)}{paint.edge()}", "circle", shape.tip, paint)
        corners = ((shape.x + shape.radius * x, shape.y + shape.radius * y) for x, y in POLYGONS[shape.shape])
        return _tipped(
            f'polygon points="{_points(corners)}"{paint.fill(shape.colour)}{paint.edge()}', "polygon", shape.tip, paint
        )
    points = _points(shape.points)
    if shape.filled:
        return f'<polygon points="{points}" fill-opacity="{TINT}"{paint.fill(shape.colour)}/>'
    dashes = ' stroke-dasharray="5 4"' if shape.dashed else ""
    wide = "" if shape.width == 1 else f' stroke-width="{_n(shape.width)}"'
    return f'<polyline points="{points}" fill="none"{wide}{dashes}{paint.stroke(shape.colour)}/>'


def _tipped(start: str, name: str, tip: str, paint: _Paint) -> str:
    return f"<{start}><title>{_text(tip)}</title></{name}>" if tip and paint.tips else f"<{start}/>"


def _points(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{_n(x)},{_n(y)}" for x, y in points)


def _n(value: float) -> str:
    """A coordinate, to a tenth of a pixel."""
    text = f"{value:.1f}"
    return text[:-2] if text.endswith(".0") else text


def _text(text: str) -> str:
    return escape(printable(text))
