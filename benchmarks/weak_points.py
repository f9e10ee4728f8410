"""Where predictions are wrong, in plain words: lines of `data/results/accuracy` whose whole source was left out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import accuracy_tables
from report import table

# Splits of lines that were measured by a laboratory of which no fit has seen a row.
_SPLITS = ("source", "outside")
_LEAST_ROWS = 10
_SHOWN = 15
# Nine in ten are promised: a source below or above this is told.
_FEW, _MOST, _WIDE = 80.0, 98.0, 4.0
_AGE = "software of "
_LEVEL = "support "


def weak_points() -> str:
    """Tables: worst sources, intervals too narrow and too wide, levels of support, bias by age of the software."""
    every = list(_lines())
    sources = [x for x in every if "," in x["judged_on"]]
    graded = [x for x in sources if x["coverage_pct"] is not None]
    narrow = sorted((x for x in graded if x["coverage_pct"] < _FEW), key=lambda x: x["coverage_pct"])
    wide = sorted(
        (x for x in graded if x["coverage_pct"] >= _MOST and x["interval_factor"] > _WIDE),
        key=lambda x: -x["interval_factor"],
    )
    parts = [
        ("Furthest off", sorted(sources, key=lambda x: -abs_log(x["bias_pct"]))[:_SHOWN]),
        (f"Intervals that hold under {_FEW:.0f} %", narrow[:_SHOWN]),
        (f"Intervals that hold nearly all, over a factor of {_WIDE:.0f} wide", wide[:_SHOWN]),
        ("By level of support", [x for x in every if x["judged_on"].startswith(_LEVEL)]),
        ("By age of the software", [x for x in every if x["judged_on"].startswith(_AGE)]),
    ]
    return "\n\n".join(f"**{title}**\n\n{_table(found)}" for title, found in parts if found)


def _lines() -> Iterable[dict[str, Any]]:
    for path in sorted(accuracy_tables.ACCURACY.glob("*.json")):
        for x in accuracy_tables.section(path.stem)["lines"]:
            ours = x["method"] in ("perfpass", "perfpass, zero-shot")
            if ours and x["split"] in _SPLITS and x["rows"] >= _LEAST_ROWS:
                yield {**x, "area": path.stem}


def abs_log(bias_pct: float) -> float:
    """How far a bias of predicted over measured is from none; half and twice are alike."""
    ratio = max(1.0 + bias_pct / 100.0, 1e-6)
    return max(ratio, 1.0 / ratio)


def _table(found: list[dict[str, Any]]) -> str:
    rows = [
        [
            _quantity(x["area"].replace("_", " "), x["metric"]),
            x["judged_on"],
            f"{x['rows']:,}",
            _said(x["bias_pct"]),
            f"{x['mape_pct']:.0f}",
            "" if x["coverage_pct"] is None else f"{x['coverage_pct']:.0f}",
            "" if x["interval_factor"] is None else f"{x['interval_factor']:.1f}",
        ]
        for x in found
    ]
    return table(["predicted", "measured by", "rows", "in the middle", "MAPE %", "covered %", "width"], rows)


def _quantity(area: str, metric: str) -> str:
    return metric if metric.startswith(area) else f"{area}, {metric}"


def _said(bias_pct: float) -> str:
    if abs(bias_pct) < 5:
        return "right"
    return f"{abs(bias_pct):.0f} % too {'high' if bias_pct > 0 else 'low'}"
