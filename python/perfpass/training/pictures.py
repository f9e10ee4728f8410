"""The picture of an area's evaluation: predicted against measured, errors by group, coverage of the intervals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from perfpass.measure.roofline.figure import save
from perfpass.prediction import COVERAGE
from perfpass.training.section import ASKED_PCT, Line, Section

_PALETTE = 48  # colours of a finished PNG
# Colour-blind safe (Okabe and Ito, "Color Universal Design", 2008); further groups share the last.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")


def save_section(section: Section, path: Path) -> None:
    """Draw every set of points of ``section``, the coverage of its lines and what came of its probabilities; ``path``
    ends in .svg or .png.
    """
    from matplotlib.figure import Figure

    covered = [x for x in section.lines if x.grade.coverage_pct is not None]
    reliable = _told(covered)
    heights = [4.0] * len(section.points) + ([0.8 + 0.17 * len(covered)] if covered else []) + [4.0] * bool(reliable)
    heights += [1.2 + 0.28 * len(section.told)] * bool(section.told)
    if not heights:
        return
    figure = Figure(figsize=(11.0, sum(heights) + 0.4), layout="constrained")
    parts = iter(figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0])
    for points in section.points:
        agreement, groups = next(parts).subplots(1, 2)
        _draw_agreement(agreement, points)
        _draw_groups(groups, points)
    if covered:
        _draw_coverage(next(parts).subplots(), covered)
    if reliable:
        _draw_reliability(next(parts).subplots(), reliable)
    if section.told:
        came, reached = next(parts).subplots(1, 2, width_ratios=(1.4, 1.0))
        _draw_told(came, reached, section.told)
    figure.suptitle(section.title, fontsize=13)
    save(figure, path)
    if path.suffix == ".png":
        with_few_colours(path)


def with_few_colours(path: Path) -> None:
    """Rewrite a PNG with a palette: a third of the bytes, and no difference to the eye in a picture like this."""
    from PIL import Image

    with Image.open(path) as picture:
        palette = picture.convert("RGB").quantize(_PALETTE, dither=Image.Dither.NONE)
    palette.save(path, optimize=True)


def _by_group(points: dict[str, Any]) -> list[tuple[str, np.ndarray]]:
    """Groups by falling size, with the mask of their points; beyond the colours they are one group of others."""
    groups = np.asarray(points["groups"])
    names, counts = np.unique(groups, return_counts=True)
    names = names[np.argsort(-counts, kind="stable")]
    if len(names) <= len(_COLOURS):
        return [(str(n), groups == n) for n in names]
    first = names[: len(_COLOURS) - 1]
    return [*((str(n), groups == n) for n in first), (f"{len(names) - len(first)} others", ~np.isin(groups, first))]


def _told(covered: list[Line]) -> list[Line]:
    """The lines of a reliability diagram: those with most rows, of each split the first."""
    found: dict[tuple[str, str], Line] = {}
    for line in sorted(covered, key=lambda x: -x.grade.rows):
        if line.grade.reliability_pct is not None:
            found.setdefault((line.metric, line.split), line)
    return list(found.values())[: len(_COLOURS)]


def _draw_reliability(axis: Any, lines: list[Line]) -> None:
    for line, colour in zip(lines, _COLOURS, strict=False):
        name = f"{line.metric}, {line.split}, {line.judged_on} ({line.grade.rows:,})"
        axis.plot(
            ASKED_PCT, line.grade.reliability_pct, color=colour, linewidth=1.2, marker="o", markersize=3, label=name
        )
    axis.plot([0, 100], [0, 100], color="black", linewidth=0.8)
    axis.set(xlabel="asked of the interval, %", ylabel="measurements inside, %", xlim=(0, 100), ylim=(0, 100))
    axis.set_title("Reliability: above the line intervals are too wide, below it too narrow", fontsize=10)
    axis.legend(fontsize=7, frameon=False, loc="upper left")


def _draw_told(came: Any, reached: Any, told: list[dict[str, Any]]) -> None:
    """Probabilities: how often it came by what was said, a disc for each line's tenth and a curve of the last of
    ``told``, which is of all; and where the middle eight tenths of each of the others' runs lie.
    """
    lines, every = sorted(told[:-1], key=lambda x: x["reached_pct"][1]), told[-1]
    for place, line in enumerate(lines):
        colour = _COLOURS[place % len(_COLOURS)]
        sizes = [6.0 + 6.0 * share for share in line["share_pct"]]
        came.scatter(line["said_pct"], line["came_pct"], s=sizes, color=colour, alpha=0.5, linewidths=0)
        tenth, middle, nine = line["reached_pct"]
        reached.plot([tenth, nine], [place, place], color=colour, linewidth=2.0)
        reached.plot([middle], [place], color=colour, marker="o", markersize=5)
    came.plot(every["said_pct"], every["came_pct"], color="black", linewidth=2.0, marker="o", markersize=4)
    came.plot([0, 100], [0, 100], color="black", linewidth=0.8, linestyle=":")
    came.set(xlabel="P that was said, %", ylabel="came, %", xlim=(-3, 103), ylim=(-3, 103))
    came.set_title("said and came (curve: every line alike)", fontsize=10)
    reached.plot([100 * (i + 0.5) / len(lines) for i in range(len(lines))], range(len(lines)), "k:", linewidth=0.8)
    reached.set_yticks(range(len(lines)), [f"{x['line']} ({x['runs']:,})" for x in lines], fontsize=7)
    reached.set(xlim=(0, 100), xlabel="P of just what was measured, % (dotted: spread evenly)")
    reached.set_title("where runs lie", fontsize=10)


def _draw_agreement(axis: Any, points: dict[str, Any]) -> None:
    measured, predicted = np.asarray(points["measured"]), np.asarray(points["predicted"])
    for (name, mask), colour in zip(_by_group(points), _COLOURS, strict=False):
        axis.scatter(measured[mask], predicted[mask], s=6, alpha=0.5, color=colour, linewidths=0, label=name)
    ends = np.array([min(measured.min(), predicted.min()), max(measured.max(), predicted.max())])
    axis.plot(ends, ends, color="black", linewidth=0.8)
    for factor in (0.8, 1.25):
        axis.plot(ends, ends * factor, color="black", linewidth=0.5, linestyle=":")
    axis.set(xscale="log", yscale="log", xlabel=f"measured, {points['unit']}", ylabel=f"predicted, {points['unit']}")
    axis.set_title(f"{points['metric']}, held out: {points['split']} (dotted: a quarter off)", fontsize=10)
    axis.legend(fontsize=7, markerscale=2, frameon=False)


def _draw_groups(axis: Any, points: dict[str, Any]) -> None:
    error = 100 * (np.asarray(points["predicted"]) / np.asarray(points["measured"]) - 1)
    groups = _by_group(points)[::-1]
    axis.boxplot([error[mask] for _, mask in groups], orientation="horizontal", whis=(5, 95), showfliers=False)
    axis.set_yticklabels([f"{name} ({int(mask.sum())})" for name, mask in groups], fontsize=7)
    axis.axvline(0, color="black", linewidth=0.8)
    axis.set(xlabel="error, % (whiskers: 5 to 95 % of cases)")
    axis.set_title(f"{points['metric']}, {points['split']}", fontsize=10)


def _draw_coverage(axis: Any, lines: list[Any]) -> None:
    names = [f"{x.metric}, {x.split}, {x.method}, {x.judged_on}" for x in lines]
    at = np.arange(len(lines))
    axis.barh(at, [x.grade.coverage_pct for x in lines], color="#56B4E9")
    axis.axvline(100 * COVERAGE, color="black", linewidth=0.8)
    axis.set_yticks(at, names, fontsize=6)
    axis.invert_yaxis()
    axis.set(xlim=(0, 100), xlabel="% of measurements inside the interval (line: what is stated)")
    axis.set_title("coverage", fontsize=10)
