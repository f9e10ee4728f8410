"""The section of the area: every decision that records can grade adds its part."""

from __future__ import annotations

from pathlib import Path

from perfpass.training.decisions import fit
from perfpass.training.section import Section

INTRO = """
Decisions made from predictions, graded on records that the predictions have not seen.

`perfpass fit` says P(fits). Of every run whose memory a laboratory measured, the figure of memory with that laboratory
left out (of language models: from constants that no record has set) is asked whether it stays within the memory of
each GPU and each MIG slice of the catalogue from half to twice the predicted median; the answer is whether the measured
figure does. Limits are chosen by the prediction, never by the measurement. Brier score: mean squared difference between
P and what came (0 is perfect; "median alone" says 0 or 1 by the median). A run counts once, whatever the number of
limits. With a confidence of 90 %: how often "fits" and "does not fit" were wrong, and how often nothing could be said.
"""


def evaluate(folder: Path | None = None, seed: int = 0, *, quiet: bool = False) -> Section:
    """All parts of the area."""
    section = Section("decisions", "Decisions", INTRO)
    fit.add(section, folder)
    return section
