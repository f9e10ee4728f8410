"""Fills the accuracy tables of docs/predictors/*.md from what `perfpass evaluate --output` wrote.

    python benchmarks/publish/cards.py            # the tables again, from data/results/accuracy

A page has ``<!-- accuracy AREA -->`` and ``<!-- end -->``; the lines of our predictor stand between them. Conditions
follow the area, each ``FIELD=VALUE`` or ``FIELD=VALUE,VALUE`` with the fields ``metric``, ``split`` and ``judged_on``,
or the word ``covered`` (lines with a graded interval), with semicolons before and between them. Between
``<!-- widths AREA -->`` and ``<!-- end -->`` stand the widths of intervals that the artefact of an area ships.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "predictors"
ACCURACY = ROOT / "data" / "results" / "accuracy"
ARTEFACTS = ROOT / "python" / "perfpass" / "predictors" / "artefacts"
_WIDTHS = re.compile(r"(<!-- widths (?P<area>\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_MARKED = re.compile(r"(<!-- accuracy (?P<asked>[^>]*?) -->\n).*?(<!-- end -->)", re.DOTALL)


def lines(area: str, conditions: list[str]) -> list[dict[str, Any]]:
    """The lines of our predictor of an area that fulfil every condition. Raises ValueError where there is none."""
    section = json.loads((ACCURACY / f"{area}.json").read_text())
    found = [x for x in section["lines"] if x["method"].startswith("perfpass")]
    for condition in conditions:
        field, _, values = condition.partition("=")
        if field == "covered":
            found = [x for x in found if x["coverage_pct"] is not None]
        else:
            found = [x for x in found if x[field] in values.split(",")]
    if not found:
        raise ValueError(f"{area}: no line fulfils {'; '.join(conditions) or 'no condition'}")
    return found


def table(asked: str) -> str:
    """The Markdown table of a marker: what follows ``accuracy``."""
    area, *conditions = (part.strip() for part in asked.split(";"))
    found = lines(area, conditions)
    several = len({x["metric"] for x in found}) > 1
    titles = ["metric", "held out", "judged on", "rows", "MAPE %", "median %", "covered %", "width", "score"]
    titles = titles[not several :]
    words = 3 if several else 2
    out = ["| " + " | ".join(titles) + " |", "|" + "---|" * words + "---:|" * (len(titles) - words)]
    before: list[str] = [""] * words
    for x in found:
        held = x["split"] + x["method"].removeprefix("perfpass")
        cells = [x["metric"], held, x["judged_on"]][-words:]
        # What stands in the line above is not said again.
        said = [at < words - 1 and cells[: at + 1] == before[: at + 1] for at in range(words)]
        shown = ["" if again else cell for again, cell in zip(said, cells, strict=True)]
        before = cells
        covered = "" if x["coverage_pct"] is None else f"{x['coverage_pct']:.0f}"
        width = "" if x["interval_factor"] is None else f"{x['interval_factor']:.2f}"
        score = "" if x.get("interval_score") is None else f"{x['interval_score']:.2f}"
        numbers = [f"{x['rows']:,}", f"{x['mape_pct']:.1f}", f"{x['median_ape_pct']:.1f}", covered, width, score]
        out.append("| " + " | ".join([*shown, *numbers]) + " |")
    return "\n".join(out)


def widths(area: str) -> str:
    """What each lack alone makes of an interval, below and above the median, by kind of device: from the artefact."""
    spread = json.loads((ARTEFACTS / area / "manifest.json").read_text())["spread"]
    kinds = sorted(spread, reverse=True)
    out = ["| not known | " + " | ".join(f"{k.upper()}: below, above" for k in kinds) + " |"]
    out.append("|---|" + "---:|" * len(kinds))
    for i, cause in enumerate(spread[kinds[0]]["causes"]):
        cells = [", ".join(f"{math.exp(spread[k][side][i]):.2f}" for side in ("low", "high")) for k in kinds]
        out.append("| " + " | ".join([cause, *cells]) + " |")
    return "\n".join(out)


def filled(text: str) -> str:
    """A page with its tables made anew."""
    text = _WIDTHS.sub(lambda m: f"{m[1]}{widths(m['area'])}\n{m[3]}", text)
    return _MARKED.sub(lambda m: f"{m[1]}{table(m['asked'])}\n{m[3]}", text)


def main() -> None:
    for page in sorted(PAGES.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        page.write_text(filled(text), encoding="utf-8")


if __name__ == "__main__":
    main()
