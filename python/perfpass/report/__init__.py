"""The prediction as pictures and as a page."""

from __future__ import annotations

from perfpass.report.notebook import notebook_html
from perfpass.report.picture import Picture
from perfpass.report.plots import FleetPlots, RunPlots, ServedPlots, SweepPlots, plots_of

__all__ = [
    "FleetPlots",
    "Picture",
    "RunPlots",
    "ServedPlots",
    "SweepPlots",
    "notebook_html",
    "page",
    "plots_of",
    "stored",
]
