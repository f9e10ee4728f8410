"""What an evaluation found: one section per area, printed as Markdown and kept as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from perfpass.errors import ArgumentError
from perfpass.predictors.learned.spread import half_width_of
from perfpass.training.metrics import absolute_percentage_errors, kendall_tau
from perfpass.training.spread import interval_score

WORST = 10
ASKED_PCT = (10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0)
_POINTS = 800
_HEAD = (
    "| metric | held out | method | judged on | rows | MAPE % | aim % | median % | P90 % | within 10 % | bias % | RMSE "
    "| tau | covered % | high/low | score | over bound % |"
)


@dataclass(frozen=True)
class Grade:
    """Errors of N predictions: absolute percentage errors (``*_pct``), rank correlation, interval quality.

    ``rmse`` is in the unit of the predictions, which the metric of a `Line` names.
    ``bias_pct`` is the median of predicted / measured less 1; ``over_bound_pct`` the share of measurements above the
    upper bound (what counts for memory); ``interval_score`` is the mean of `perfpass.training.spread.interval_score`;
    ``reliability_pct`` the share inside intervals of each of `ASKED_PCT`, made from the one of 90 % by
    `perfpass.predictors.learned.spread.half_width_of`, on either side with a width of its own. The last five are None
    without intervals.
    """

    rows: int
    mape_pct: float
    median_ape_pct: float
    p90_ape_pct: float
    within_10_pct: float
    bias_pct: float
    rmse: float
    kendall_tau: float
    coverage_pct: float | None = None
    interval_factor: float | None = None
    over_bound_pct: float | None = None
    interval_score: float | None = None
    reliability_pct: tuple[float, ...] | None = None


def grade(
    predicted: np.ndarray, measured: np.ndarray, low: np.ndarray | None = None, high: np.ndarray | None = None
) -> Grade:
    """All metrics of N predictions [N], in any one unit. Raises ArgumentError for measurements not above 0."""
    ape = absolute_percentage_errors(predicted, measured)
    coverage = factor = over = score = reliability = None
    if low is not None and high is not None:
        coverage = 100.0 * float(np.mean((low <= measured) & (measured <= high)))
        factor = float(np.median(high / np.maximum(low, 1e-300)))
        over = 100.0 * float(np.mean(measured > high))
        if (np.asarray(low) > 0).all():
            errors = [np.log(np.asarray(v) / predicted) for v in (measured, low, high)]
            score, reliability = interval_score(*errors), _reliability(*errors)
    return Grade(
        rows=len(ape),
        mape_pct=100.0 * float(ape.mean()),
        median_ape_pct=100.0 * float(np.median(ape)),
        p90_ape_pct=100.0 * float(np.quantile(ape, 0.9)),
        within_10_pct=100.0 * float(np.mean(ape <= 0.1)),
        bias_pct=100.0 * (float(np.median(np.asarray(predicted) / measured)) - 1.0),
        rmse=float(np.sqrt(np.mean((np.asarray(predicted) - measured) ** 2))),
        kendall_tau=kendall_tau(predicted, measured),
        coverage_pct=coverage,
        interval_factor=factor,
        over_bound_pct=over,
        interval_score=score,
        reliability_pct=reliability,
    )


def _reliability(residual: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[float, ...]:
    """Share in % of log errors inside the interval of each of `ASKED_PCT`; the given bounds are those of 90 %."""
    half = np.maximum(np.where(residual < 0, -low, high), 1e-9)
    return tuple(100.0 * float(np.mean(np.abs(residual) / half <= half_width_of(asked / 100.0))) for asked in ASKED_PCT)


@dataclass(frozen=True)
class Line:
    """One line of a table: what was predicted (with its unit), what was held out, the method, the rows and how well.

    ``aim_pct``: the MAPE that this line is to reach, where one is set.
    """

    metric: str
    split: str
    method: str
    judged_on: str
    grade: Grade
    aim_pct: float | None = None


@dataclass(frozen=True)
class Table:
    """Figures that are no errors of a prediction: a title, the words above the columns, and rows (None: no figure)."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return {"title": self.title, "columns": list(self.columns), "rows": [list(row) for row in self.rows]}

    def lines(self) -> list[str]:
        """As Markdown."""
        numbers = [any(isinstance(row[i], (int, float)) for row in self.rows) for i in range(len(self.columns))]
        out = [f"### {self.title}", "", f"| {' | '.join(self.columns)} |"]
        out.append("|" + "".join("---:|" if number else "---|" for number in numbers))
        return [*out, *(f"| {' | '.join(map(_cell, row))} |" for row in self.rows)]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) < 1 else f"{value:.1f}"
    return _shown(value)


@dataclass
class Section:
    """The evaluation of one area.

    ``intro`` is Markdown for people who were not there: what the splits are, what the intervals rest on. ``notes``
    follow the table. ``verdicts``: of what ran, by kind, how much was said to fit ("yes", "perhaps", "no"). ``tables``:
    what is no error of a prediction. ``decisions``: how first choices turned out
    (`perfpass.training.decisions.offers.graded`). ``slices``: by question and rule, how often the MIG slice that was
    chosen was right, too small or too large. ``told``: curves of a reliability diagram of probabilities (of each
    "line" its "runs", and by tenth of P that was said "said_pct", "came_pct" and "share_pct" of the questions;
    "reached_pct": P of just what was measured, of a tenth, the middle and nine tenths of the runs).
    """

    area: str
    title: str
    intro: str
    corpus: dict[str, Any] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)
    worst_groups: list[dict[str, Any]] = field(default_factory=list)
    worst_cases: list[dict[str, Any]] = field(default_factory=list)
    points: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    verdicts: list[dict[str, Any]] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    decisions: list[dict[str, Any]] = field(default_factory=list)
    slices: list[dict[str, Any]] = field(default_factory=list)
    told: list[dict[str, Any]] = field(default_factory=list)

    def add(
        self,
        metric: str,
        split: str,
        method: str,
        judged_on: str,
        predicted: np.ndarray,
        measured: np.ndarray,
        low: np.ndarray | None = None,
        high: np.ndarray | None = None,
        *,
        aim_pct: float | None = None,
    ) -> Line:
        """Grade [N] predictions and append the line."""
        line = Line(metric, split, method, judged_on, grade(predicted, measured, low, high), aim_pct)
        self.lines.append(line)
        return line

    def add_worst_groups(
        self, metric: str, split: str, by: str, groups: Sequence[Any], predicted: np.ndarray, measured: np.ndarray
    ) -> None:
        """Append the groups (families, models, devices) with the largest mean error."""
        ape = absolute_percentage_errors(predicted, measured)
        names, inverse = np.unique(np.asarray([str(g) for g in groups]), return_inverse=True)
        count = np.bincount(inverse)
        mean = np.bincount(inverse, weights=ape) / count
        for i in np.argsort(-mean)[:WORST]:
            found = {"metric": metric, "split": split, "by": by, "group": str(names[i])}
            self.worst_groups.append({**found, "rows": int(count[i]), "mape_pct": 100.0 * float(mean[i])})

    def add_worst_cases(
        self, metric: str, unit: str, split: str, cases: Sequence[str], predicted: np.ndarray, measured: np.ndarray
    ) -> None:
        """Append the rows that are furthest off by ratio. ``cases`` describe them in words."""
        off = np.abs(np.log(np.asarray(predicted) / measured))
        for i in np.argsort(-off)[:WORST]:
            found = {"metric": metric, "unit": unit, "split": split, "case": str(cases[i])}
            self.worst_cases.append({**found, "measured": float(measured[i]), "predicted": float(predicted[i])})

    def add_points(
        self, metric: str, unit: str, split: str, groups: Sequence[Any], predicted: np.ndarray, measured: np.ndarray
    ) -> None:
        """Keep rows for the plot of predicted against measured, coloured by group: all, or an even sample of them."""
        if len(measured) != len(predicted):
            raise ArgumentError(f"{len(predicted)} predictions for {len(measured)} measurements")
        take = np.unique(np.linspace(0, len(measured) - 1, min(len(measured), _POINTS)).astype(int))
        names = [str(groups[i]) for i in take]
        values = {"predicted": [float(predicted[i]) for i in take], "measured": [float(measured[i]) for i in take]}
        self.points.append({"metric": metric, "unit": unit, "split": split, "groups": names, **values})

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON, without the points."""
        return {
            "area": self.area,
            "title": self.title,
            "corpus": self.corpus,
            "lines": [
                {
                    **{name: getattr(x, name) for name in ("metric", "split", "method", "judged_on", "aim_pct")},
                    **vars(x.grade),
                }
                for x in self.lines
            ],
            "worst_groups": self.worst_groups,
            "worst_cases": self.worst_cases,
            "notes": self.notes,
            **({"verdicts": self.verdicts} if self.verdicts else {}),
            **({"tables": [table.to_dict() for table in self.tables]} if self.tables else {}),
            **({"decisions": self.decisions} if self.decisions else {}),
            **({"slices": self.slices} if self.slices else {}),
            **({"told": self.told} if self.told else {}),
        }

    def __str__(self) -> str:
        out = [f"## {self.title}", "", self.intro.strip(), ""]
        if self.corpus:
            out += ["Records: " + ", ".join(f"{k} {_shown(v)}" for k, v in self.corpus.items()), ""]
        if self.lines:
            out += self._graded()
        for (metric, split, by), found in _grouped(self.worst_groups, ("metric", "split", "by")):
            worst = ", ".join(f"{w['group']} {w['mape_pct']:.1f} % ({w['rows']})" for w in found)
            out += ["", f"Worst by {by} ({metric}, {split}): {worst}"]
        for (metric, unit, split), found in _grouped(self.worst_cases, ("metric", "unit", "split")):
            out += ["", f"| worst cases of {metric}, {split} | measured {unit} | predicted {unit} |", "|---|---:|---:|"]
            out += [f"| {w['case']} | {w['measured']:.4g} | {w['predicted']:.4g} |" for w in found]
        if self.verdicts:
            out += [
                "",
                "| what ran | rows | fits | perhaps | said not to fit | not asked |",
                "|---|---:|---:|---:|---:|---:|",
            ]
            out += [
                f"| {v['kind']} | {v['rows']:,} | {v['yes']:,} | {v['perhaps']:,} | {v['no']:,} "
                f"| {sum(v['not_asked'].values()):,} |"
                for v in self.verdicts
            ]
        for table in self.tables:
            out += ["", *table.lines()]
        if self.decisions:
            out += [
                "",
                "| what | held out | judged on | method | confidence | questions | chosen | best % | near % | missed % "
                "| models | missed %, models alike | regret %, median | mean |",
                "|---|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
            ]
            out += [
                f"| {d['kind']} | {d['split']} | {d['judged_on']} | {d['method']} | {_optional(d['confidence'], 2)} "
                f"| {d['questions']:,} | {d['chosen']:,} | {_optional(d['best_pct'], 1)} "
                f"| {_optional(d['near_best_pct'], 1)} | {_optional(d['missed_pct'], 1)} "
                f"| {d['models']:,} | {_optional(d['missed_models_alike_pct'], 1)} "
                f"| {_optional(d['regret_median_pct'], 1)} | {_optional(d['regret_mean_pct'], 1)} |"
                for d in self.decisions
            ]
        if self.slices:
            out += ["", "| slice | chosen by | asked | right % | too small % | too large % | given up % |"]
            out.append("|---|---|---:|---:|---:|---:|---:|")
            for s in self.slices:
                shares = (100.0 * s[k] / s["asked"] for k in ("right", "too_small", "too_large", "given_up"))
                out.append(
                    f"| {s['question']} | {s['rule']} | {s['asked']:,} | {' | '.join(f'{v:.1f}' for v in shares)} |"
                )
        for note in self.notes:
            out += ["", note]
        return "\n".join(out)

    def _graded(self) -> list[str]:
        """The table of the lines."""
        out = []
        out.append(
            "| metric | held out | method | judged on | rows | MAPE % | aim % | median % | P90 % | within 10 % | bias "
            "% | RMSE | tau | covered % | high/low | score | over bound % |"
        )
        out.append("|---|---|---|---|" + "---:|" * 13)
        for x in self.lines:
            g = x.grade
            numbers = [f"{g.mape_pct:.2f}", _optional(x.aim_pct, 0), f"{g.median_ape_pct:.2f}", f"{g.p90_ape_pct:.1f}"]
            numbers += [f"{g.within_10_pct:.1f}", f"{g.bias_pct:+.1f}", f"{g.rmse:.3g}", f"{g.kendall_tau:.3f}"]
            numbers += [_optional(g.coverage_pct, 1), _optional(g.interval_factor, 2), _optional(g.interval_score, 2)]
            numbers.append(_optional(g.over_bound_pct, 1))
            out.append(
                f"| {x.metric} | {x.split} | {x.method} | {x.judged_on} | {g.rows} | " + " | ".join(numbers) + " |"
            )
        return out


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "(" + ", ".join(f"{k} {_shown(v)}" for k, v in value.items()) + ")"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _optional(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _grouped(rows: list[dict[str, Any]], keys: tuple[str, ...]) -> list[tuple[tuple[str, ...], list[dict[str, Any]]]]:
    found: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(tuple(row[k] for k in keys), []).append(row)
    return list(found.items())
