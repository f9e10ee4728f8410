"""Grading the serving predictor: by what was held out, by mode and load, beside baselines and the table's floor."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from perfpass.devices import device as find_device
from perfpass.llm.configuration import language_model
from perfpass.prediction import SUPPORT_LEVELS
from perfpass.predictors.learned.width_words import NEAR_FROM, OUTSIDE_FROM
from perfpass.predictors.relative.question import of_serving
from perfpass.predictors.serving.predictor import TARGETS, ServingPredictor
from perfpass.training import spread
from perfpass.training.relative import COPY
from perfpass.training.relative import copied as copied_elsewhere
from perfpass.training.section import Section
from perfpass.training.serving import breakdown, outside, widths
from perfpass.training.serving.baselines import TABLE_NUMBERS, TABLE_TEXTS, copied, regressed
from perfpass.training.serving.dataset import Dataset, load, set_aside
from perfpass.training.serving.fit import SET_UP, methods
from perfpass.training.serving.held_out import LEVELS, HeldOut, held_out
from perfpass.training.serving.outside import Answers
from perfpass.training.serving.train import corpus
from perfpass.training.spread import Errors

SPLIT = {
    "measured": "random measurements",
    "apart": "model and device seen, but not together",
    "model unseen": "model",
    "device unseen": "device",
    "both unseen": "model and device",
    SET_UP: "engine and precision, model and device seen together",
}
# MAPE to reach, of the issue that this predictor answers; TTFT without queued rows.
AIMS = {
    "tpot": {"measured": 5.0, "model unseen": 15.0, "device unseen": 15.0},
    "ttft": {"measured": 12.0, "model unseen": 30.0, "device unseen": 30.0},
}
_INTRO = """
LLM serving end to end (time per output token, TPOT; time to the first token, TTFT), public benchmark runs collected by
aiconfigurator. Every line is out of fold; rows that repeat one measurement share a side. A quarter of the curves, on
which settings were chosen, is trained on but not graded. "Queued" rows waited over ten seconds for their first token:
they are graded apart, and so are runs whose layout their own times told apart. An outcome chose those rows, so whatever
lies outside lies above: "asked near saturation" are the rows, queued or not, of whose question the base says that a
queue makes the first token less certain than its prompt. Bounds are widths by causes (docs/predictors/serving.md), of
every line from errors on other records. "source": other laboratories, which no fit of times has seen, each left out of
the widths in turn. ML.ENERGY's and LLM-Inference-Bench's rows of vLLM have set the four constants of the host of its
versions before 0.6 by hand: "that set no constant" are the rest.
"""


def evaluate(folder: Path | str | None = None, seed: int = 0, *, quiet: bool = False) -> Section:
    """The section of serving: all splits, modes, loads and baselines, and the irreducible floor of the table."""
    data = load(folder)
    graded = ~set_aside(data.rows)
    section = Section("serving", "LLM serving: TPOT and TTFT", _INTRO, corpus(data))
    levels = {level: held_out(data, level, seed) for level in LEVELS}
    asked, left = outside.load(folder)
    others = {target: outside.answers(ServingPredictor.load(), asked, target) for target in TARGETS}
    bounds = {target: widths.graded(data, levels, others[target], target, seed) for target in TARGETS}
    errors = {
        t: [widths.held_out_errors(data, found, level, t, seed)[0] for level, found in levels.items()] for t in TARGETS
    }
    for target in TARGETS:
        _grade_sources(section, others[target], errors[target], target)
    for level, found in levels.items():
        for target in TARGETS:
            _grade(section, data, found, bounds[target][level], level, target, graded & (found.fold >= 0))
        if level in AIMS["tpot"]:
            others_s = {COPY: copied(data, level, seed), "XGBoost on the table's columns": regressed(data, level, seed)}
            for target in TARGETS:
                rows = graded & (found.fold >= 0) & _unqueued(data, target) & ~_told_by_times(data)
                for method, plain in others_s.items():
                    _line(section, target, level, method, "all", rows, plain[target], data.measured_s(target))
        if not quiet:
            print(f"serving: {SPLIT[level]}", file=sys.stderr)
    section.notes.append(floor_note(data, graded))
    section.notes.append(load_note(data, levels["measured"], graded))
    cause = breakdown.causes(data, ServingPredictor.load().constants)
    for level in ("measured", "model unseen"):
        first = levels[level].seconds["ttft"]
        rows = graded & np.isfinite(first)
        section.notes.append(
            f"What the time to the first token errs by, {SPLIT[level]} held out, queued rows included; error as "
            "|log(measured / predicted)|:\n\n" + breakdown.table(cause[rows], first[rows], data.ttft_s[rows])
        )
    section.notes.append(
        "Rows of other laboratories that ask another question are left out: "
        + ", ".join(f"{count} ({reason})" for reason, count in left.most_common())
        + "."
    )
    return section


def _grade_sources(section: Section, found: Answers, others: list[Errors], target: str) -> None:
    """Other laboratories, each left out of the widths in turn: by source, level of support, device and model."""
    errors = widths.outside_errors(found, target)
    bounds = spread.of_each_source(errors, others, widths.fitted(target))
    low, high = (1e3 * found.seconds * np.exp(b) for b in bounds)
    shown = ServingPredictor.load().spread[target].bounds(dict(zip(errors.causes, errors.lacks.T, strict=True)))
    width = np.exp(shown[1] - shown[0])
    level = np.where(width > OUTSIDE_FROM, "outside", np.where(width > NEAR_FROM, "near", "in range"))
    metric = f"{target.upper()} (ms)"

    questions = [of_serving(language_model(a.model), find_device(a.device), a.serving) for a in found.asked]
    publishers = [name.removeprefix("source:").split(",")[0] for name in found.source]
    copies = copied_elsewhere(questions, {"tpot": "token", "ttft": "first token"}[target], publishers)

    def add(judged_on: str, rows: np.ndarray) -> None:
        if rows.any():
            predicted, measured = (1e3 * v[rows] for v in (found.seconds, found.measured_s))
            section.add(metric, "source", "perfpass", judged_on, predicted, measured, low[rows], high[rows])
        if "by width" not in judged_on and (rows := rows & np.isfinite(copies)).any():
            section.add(metric, "source", COPY, judged_on, copies[rows], 1e3 * found.measured_s[rows])

    names = np.array([name.removeprefix("source:").replace("/", ", ") for name in found.source])
    add("all", np.ones(len(errors), dtype=bool))
    add("that set no constant", ~np.isin(names, outside.SET_CONSTANTS))
    for name in np.unique(names):
        add(name, names == name)
    for name in SUPPORT_LEVELS:
        add(f"{name} by width", level == name)
    section.add_worst_groups(
        metric, "source", "device", found.device.tolist(), 1e3 * found.seconds, 1e3 * found.measured_s
    )


def _unqueued(data: Dataset, target: str) -> np.ndarray:
    return ~data.queued if target == "ttft" else np.ones(len(data), dtype=bool)


def _told_by_times(data: Dataset) -> np.ndarray:
    """[N] rows whose layout is known by what was measured of them: a bit of each label is in their question."""
    return np.asarray(data.rows.caveats.str.contains("layout-by-times"))


def _line(
    section: Section,
    target: str,
    level: str,
    method: str,
    judged_on: str,
    rows: np.ndarray,
    predicted: np.ndarray,
    measured: np.ndarray,
    bounds: tuple[np.ndarray, np.ndarray] | None = None,
    aim: float | None = None,
) -> None:
    if not rows.any():
        return
    low, high = (predicted[rows] * np.exp(b[rows]) * 1e3 for b in bounds) if bounds else (None, None)
    section.add(
        f"{target.upper()} (ms)",
        SPLIT[level],
        method,
        judged_on,
        predicted[rows] * 1e3,
        measured[rows] * 1e3,
        low,
        high,
        aim_pct=aim,
    )


def _grade(
    section: Section, data: Dataset, found: HeldOut, bounds: tuple[np.ndarray, np.ndarray], level: str, target: str,
    rows: np.ndarray,
) -> None:  # fmt: skip
    y, p = data.measured_s(target), found.seconds[target]
    told = rows & _unqueued(data, target) & _told_by_times(data)
    rows = rows & ~_told_by_times(data)
    calm = rows & _unqueued(data, target)
    names = {"known": "perfpass", "base": "perfpass, physical base"}
    kinds = [methods(level)[target][mode] for mode in ("agg", "disagg")]
    method = names[kinds[0]] if kinds[0] == kinds[1] else "perfpass, base and trees"
    _line(section, target, level, method, "all", calm, p, y, bounds, AIMS[target].get(level))
    for name, mode in (("aggregated", data.aggregated), ("disaggregated", ~data.aggregated)):
        _line(section, target, level, method, name, calm & mode, p, y, bounds)
    stated = ~data.aggregated & ~data.workloads.terms.unstated
    for name, part in (("", calm & stated), (", told apart by times", told)):
        _line(section, target, level, method, f"disaggregated, workers stated{name}", part, p, y, bounds)
    if target == "ttft":
        _line(section, target, level, method, "without cold starts", calm & ~data.cold, p, y, bounds)
    else:
        _line(section, target, level, method, "without queued", calm & ~data.queued, p, y, bounds)
    _line(section, target, level, method, "queued", rows & data.queued, p, y, bounds)
    if target == "ttft":
        _line(
            section, target, level, method, "asked near saturation", rows & widths.near_full(data, found), p, y, bounds
        )
    if kinds != ["base", "base"]:
        _line(section, target, level, "physical base alone", "all", calm, found.seconds[f"base-{target}"], y)
    metric = f"{target.upper()} (ms)"
    groups = data.rows.family if level in ("measured", SET_UP, "apart", "model unseen") else data.rows.device
    by = "model" if groups.name == "family" else "device"
    section.add_worst_groups(metric, SPLIT[level], by, groups[calm].tolist(), p[calm], y[calm])
    if level in AIMS[target]:
        section.add_worst_cases(metric, "ms", SPLIT[level], data.rows.run[calm].tolist(), p[calm] * 1e3, y[calm] * 1e3)
        section.add_points(metric, "ms", SPLIT[level], groups[calm].tolist(), p[calm] * 1e3, y[calm] * 1e3)


def floor(data: Dataset, target: str, rows: np.ndarray) -> tuple[float, float, int]:
    """The least MAPE (%) that any function of the table's columns can have: on all ``rows``, on those of
    configurations measured more than once with different results, and how many those are.

    Of one configuration the value that errs least on its measurements is their median with weights 1 / measured.
    """
    columns = [*TABLE_TEXTS, *TABLE_NUMBERS]
    table = data.rows[columns].assign(y=data.measured_s(target), key=data.rows.configuration)[rows]
    table = table.drop_duplicates("key")
    errors, repeated = [], []
    for _, group in table.groupby(columns, dropna=False):
        y = np.sort(group.y.to_numpy())
        share = np.cumsum(1 / y) / (1 / y).sum()
        best = y[np.searchsorted(share, 0.5)]
        errors += np.abs(best / y - 1).tolist()
        repeated += [len(y) > 1] * len(y)
    e, several = np.array(errors), np.array(repeated)
    return 100 * float(e.mean()), 100 * float(e[several].mean()) if several.any() else 0.0, int(several.sum())


def floor_note(data: Dataset, graded: np.ndarray) -> str:
    """The floor in words, apart for the modes."""
    parts = []
    for target in TARGETS:
        for name, mode in (("aggregated", data.aggregated), ("disaggregated", ~data.aggregated)):
            everywhere, several, count = floor(data, target, graded & mode)
            parts.append(f"{target.upper()} {name} {everywhere:.1f} % ({several:.1f} % on {count} repeated)")
    return (
        "Irreducible floor: one configuration, equal in every column of the table, was often measured more than once "
        "with different results (speculative decoding, which the table does not state, halves TPOT). No function of "
        "the columns errs less than: " + "; ".join(parts) + ". What was measured once counts as 0 %, so this is a "
        "lower bound."
    )


def load_note(data: Dataset, found: HeldOut, graded: np.ndarray) -> str:
    """TTFT by load, for random measurements, in words."""
    per_gpu = data.workloads.terms.requests / 2 ** data.workloads.numbers["log_gpus"]
    y, p = data.ttft_s, found.seconds["ttft"]
    parts = []
    for low, high in ((0, 1), (1, 4), (4, 16), (16, np.inf)):
        rows = graded & ~data.queued & (per_gpu > low) & (per_gpu <= high)
        if rows.any():
            ape = np.abs(p[rows] / y[rows] - 1)
            span = f"{low} to {high:g}" if np.isfinite(high) else f"over {low}"
            parts.append(f"{span}: {100 * ape.mean():.1f} % (median {100 * np.median(ape):.1f}, {rows.sum()} rows)")
    return "TTFT by requests in flight per GPU, random measurements, without queued rows: " + "; ".join(parts) + "."
