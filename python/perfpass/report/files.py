"""Charts as files: SVG as `vector` writes it, PDF and PNG by matplotlib from the same shapes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perfpass.errors import ArgumentError, needs
from perfpass.report.chart import Chart
from perfpass.report.layout import Area, Placed, Spot, Words, stacked
from perfpass.report.palette import THEMES, TINT, Theme, colour, tint
from perfpass.report.vector import POLYGONS, standalone
from perfpass.text import printable, shown_value, unknown
from perfpass.whole_file import replacing, write_whole

FORMATS = (".svg", ".pdf", ".png")
_DPI = 100.0  # CSS pixels an inch of a figure
_PNG_SCALE = 2.0
_POINTS = 72.0 / _DPI
_LONGEST = 2000  # letters of a description in a file's metadata


def save(charts: Sequence[Chart], path: str | os.PathLike[str], theme: Theme = "light") -> None:
    """Writes charts below one another; the same charts give the same bytes. ``path`` ends in .svg, .pdf or .png.

    Raises ArgumentError for another ending or theme, UnsupportedError for .pdf and .png without matplotlib, FileError.
    """
    if theme not in THEMES:
        raise ArgumentError(unknown("theme", theme, THEMES))
    kind = Path(path).suffix.lower()
    if kind not in FORMATS:
        raise ArgumentError(
            f"a picture is written as {', '.join(FORMATS)}; {shown_value(Path(path).name)} is none of them"
        )
    if kind == ".svg":
        write_whole(path, standalone(charts, theme))
        return
    with needs("plot", f"a picture as {kind[1:].upper()}"):
        figure = _figure(charts, theme)
    import matplotlib as mpl

    said = printable(" ".join(chart.alternative() for chart in charts))[:_LONGEST]
    about: dict[str, Any] = {"Title": printable(charts[0].title)}
    about |= (
        {"Subject": said, "CreationDate": None} if kind == ".pdf" else {"Description": said, "Software": "perfpass"}
    )
    with mpl.rc_context({"pdf.fonttype": 42}), replacing(path) as file:
        figure.savefig(file, format=kind[1:], dpi=_DPI * _PNG_SCALE, metadata=about, facecolor=figure.get_facecolor())


def _figure(charts: Sequence[Chart], theme: Theme) -> Any:
    """A figure whose axes are the pixels of the placed charts."""
    from matplotlib.figure import Figure

    pages = stacked(charts)
    width, height = max(p.width for p in pages), sum(p.height for p in pages)
    figure = Figure(figsize=(width / _DPI, height / _DPI), facecolor=colour("paper", theme))
    top = 0.0
    for page in pages:
        axes = figure.add_axes((0, 1 - (top + page.height) / height, page.width / width, page.height / height))
        axes.set(xlim=(0, page.width), ylim=(page.height, 0))
        axes.set_axis_off()
        x, y, wide, high = page.plot
        for shape in page.frame:
            _draw(axes, shape, theme, None)
        for shape in page.inside:
            _draw(axes, shape, theme, (x - 1, y - 8, wide + 2, high + 16))
        top += page.height
    return figure


def _draw(axes: Any, shape: Placed, theme: Theme, within: tuple[float, float, float, float] | None) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Circle, Polygon, Rectangle
    from matplotlib.patheffects import Normal, Stroke

    artist: Any
    if isinstance(shape, Words):
        sides = {"start": "left", "middle": "center", "end": "right"}
        artist = axes.text(
            shape.x,
            shape.y,
            printable(shape.text).replace("$", r"\$"),
            fontsize=shape.size * _POINTS,
            ha=sides[shape.anchor],
            va="baseline",
            rotation=90 if shape.turned else 0,
            rotation_mode="anchor",
            color=colour(shape.colour, theme),
            weight="bold" if shape.bold else "normal",
        )
        if shape.clear:
            rim = Stroke(linewidth=3 * _POINTS, foreground=colour("paper", theme))
            artist.set_path_effects([rim, Normal()])
    elif isinstance(shape, Area):
        artist = Rectangle((shape.x, shape.y), shape.width, shape.height, facecolor=tint(shape.colour, theme))
        artist.set_edgecolor(colour(shape.colour, theme))
    elif isinstance(shape, Spot):
        if shape.shape == "circle":
            artist = Circle((shape.x, shape.y), shape.radius)
        else:
            artist = Polygon(
                [(shape.x + shape.radius * x, shape.y + shape.radius * y) for x, y in POLYGONS[shape.shape]]
            )
        artist.set(facecolor=colour(shape.colour, theme), edgecolor=colour("paper", theme))
    elif shape.filled:
        artist = Polygon(shape.points, facecolor=colour(shape.colour, theme), edgecolor="none", alpha=TINT)
    else:
        xs, ys = zip(*shape.points, strict=True)
        style: Any = (0, (5, 4)) if shape.dashed else "-"
        artist = Line2D(xs, ys, color=colour(shape.colour, theme), linewidth=shape.width * _POINTS, linestyle=style)
    artist.set_zorder(1)  # what comes later stands above
    if not isinstance(shape, Words):
        if not isinstance(artist, Line2D):
            artist.set_linewidth(0.8 * _POINTS)
        axes.add_artist(artist)
    if within is not None:
        x, y, width, height = within
        artist.set_clip_path(Rectangle((x, y), width, height, transform=axes.transData))
        artist.set_clip_on(True)
