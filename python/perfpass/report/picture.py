"""A picture: one or more charts under a name, as a file, as SVG, in a notebook, or as text."""

from __future__ import annotations

import os
from dataclasses import dataclass

from perfpass.report.chart import Chart
from perfpass.report.palette import Theme
from perfpass.report.vector import standalone
from perfpass.text import columns, paragraph


@dataclass(frozen=True)
class Picture:
    """What `perfpass plot` draws. ``print(picture)`` gives its text alternative and its figures."""

    name: str
    charts: tuple[Chart, ...]

    def save(self, path: str | os.PathLike[str], theme: Theme = "light") -> None:
        """An .svg, .pdf or .png file, "light" or "dark". Raises what `perfpass.report.files.save` does."""
        from perfpass.report.files import save

        save(self.charts, path, theme)

    def svg(self, theme: Theme = "light") -> str:
        """An SVG document; nothing needs to be installed for it."""
        return standalone(self.charts, theme)

    @property
    def alternative(self) -> str:
        """What the picture shows, in sentences."""
        return " ".join(chart.alternative() for chart in self.charts)

    def _repr_svg_(self) -> str:
        return self.svg()

    def __str__(self) -> str:
        blocks = []
        for chart in self.charts:
            lines = [chart.title, paragraph("", chart.subtitle), paragraph("", chart.description), ""]
            blocks.append("\n".join([*lines, columns([chart.head, *chart.rows], right=range(1, len(chart.head)))]))
        return "\n\n".join(blocks)
