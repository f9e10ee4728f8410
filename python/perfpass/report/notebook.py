"""Results in a notebook: a sentence, a small table and, of a run, where its time goes. All of it is in the cell."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.prediction import Prediction, read_words
from perfpass.report import run_charts, sweep_charts
from perfpass.report.interval_charts import figures
from perfpass.report.nodes import asked_of, workload_line
from perfpass.report.run_charts import said
from perfpass.report.vector import standalone
from perfpass.text import digits, printable, size

if TYPE_CHECKING:
    from perfpass.deploy.fit import Fit
    from perfpass.deploy.sweep import Sweep

_ROWS = 20
_NAMES = {
    "latency_ms": "latency", "throughput_per_s": "throughput", "peak_memory_bytes": "memory in use",
    "energy_j": "energy of a run", "power_w": "power",
}  # fmt: skip


def notebook_html(result: Any) -> str:
    """Of a Prediction, a Fit or a Sweep."""
    if isinstance(result, Prediction):
        return _prediction(result)
    return _sweep(result) if hasattr(result, "settings") and hasattr(result, "columns") else _fit(result)


def _prediction(p: Prediction) -> str:
    line = workload_line(p.workload, p.provenance["device"]["name"], asked_of(p))
    rows = [(_NAMES[name], said(found)) for name, found in figures(p).items() if name in _NAMES]
    verdict = p.memory_verdict.headline if p.memory_verdict else ""
    words = [
        w
        for w in (
            read_words(p.workload),
            verdict,
            p.decision.headline if p.decision else "",
            f"support: {p.support.level}",
        )
        if w
    ]
    picture = standalone((run_charts.operators(p),), "light")
    return f"{_said(line, words)}{_table(('', 'median, and bounds of the interval'), rows)}{picture}"


def _fit(found: Fit) -> str:
    rows = [
        (
            a.where,
            a.answer,
            "" if a.probability is None else f"{a.probability:.3f}",
            said(a.needed),
            size(a.limit_bytes),
        )
        for a in found.answers[:_ROWS]
    ]
    changes = [change.text for a in found.answers for change in a.changes][:5]
    words = ["what would make it fit: " + "; ".join(changes)] if changes and found.answer != "yes" else []
    return f"{_said(found.headline, words)}{_table(('device', 'fits', 'P(fits)', 'needed', 'of'), rows)}"


def _sweep(found: Sweep) -> str:
    asked = found.take(np.flatnonzero(found.ok))
    shown = asked.take(np.arange(min(len(asked), _ROWS)))
    names = [name for name in found.figures if name != "fits"]
    rows = []
    for point in shown.rows():
        cells = []
        for name in names:
            show = size if name == "peak_memory_bytes" else digits
            value, low, high = (point.get(f"{name}{end}") for end in ("", "_low", "_high"))
            bounds = "" if low is None or high is None else f" ({show(low)} to {show(high)})"
            cells.append("" if value is None else f"{show(value)}{bounds}")
        rows.append((*(str(point[name]) for name in found.settings), *cells))
    head = (*(name.replace("_", " ") for name in found.settings), *(sweep_charts.label_of(name) for name in names))
    left, without = len(asked) - len(shown), len(found) - len(asked)
    more = [f"{left:,} more with figures than are shown; sweep.plot.pareto() draws all"] if left else []
    more += [f"{without:,} without figures; print(sweep) says why"] if without else []
    return f"{_said(f'{found.model}: {len(found):,} points', more)}{_table(head, rows)}"


def _said(headline: str, words: Sequence[str]) -> str:
    return f"<p><strong>{_t(headline)}</strong></p>" + "".join(f"<p>{_t(one)}</p>" for one in words)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    names = "".join(f'<th scope="col">{_t(name)}</th>' for name in head)
    body = "".join(f"<tr>{''.join(f'<td>{_t(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"


def _t(text: str) -> str:
    return escape(printable(text))
