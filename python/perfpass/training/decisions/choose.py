"""`perfpass choose` graded: how often its first choice is the best that was measured, and how often it misses."""

from __future__ import annotations

import sys
from pathlib import Path

from perfpass.training.decisions import networks, served
from perfpass.training.decisions.offers import NEAR
from perfpass.training.section import Section

_INTRO = f"""
First choices from predictions, judged by what was measured: the cheapest way to run a model under limits, of all ways
that were measured under the same load. Language models: public benchmark runs collected by aiconfigurator whose prefill
and decode share GPUs, predictions out of fold and bounds as for a user's laboratory, every set of limits on TPOT (10 to
50 ms) and TTFT (0.5 to 2 s) that some way keeps and some does not. aiconfigurator 0.12.0 answers from its own
measurements on the devices of these runs (benchmarks/serving_peer.py --choices), whatever is held out of ours.
Beyond them ("batches"): batches of other laboratories, without a server, most of them on boards, software or loads
that the serving records do not have, with limits of 5 to 100 ms a token and bounds from all laboratories but their own.
"loaded server": TGI of 2023 under a user's load (LLM-Pilot) by its own predictor, without the model or device judged.
Networks: records of other laboratories, which no fit has seen, limits of 2 to 100 ms. Prices are those that ship.
"best": the cheapest of those that keep the limits was chosen, "near": one of at most {NEAR:g} times its price, both of
all questions; "missed": of what was chosen, what does not keep a limit; "models alike": the same where each of the
chosen models counts once, however many loads and limits it is asked about, since they share what is wrong of it;
"regret": what is paid over the best, of what was chosen and keeps the limits. A method that finds no way chooses none.
Without a confidence medians decide.
"""


def evaluate(folder: Path | str | None = None, seed: int = 0, *, quiet: bool = False) -> Section:
    """The section of choices. Raises FileError, FormatError."""
    section = Section("choose", "Choices", _INTRO)
    for kind, found in (("LLM", served.decisions(folder, seed)), ("network", networks.decisions(folder))):
        section.decisions += [{"kind": kind, **line} for line in found]
        if not quiet:
            print(f"choose: {kind}", file=sys.stderr)
    section.notes.append("Devices without a price in the shipped table are no choice here (as GB200 and V100).")
    return section
