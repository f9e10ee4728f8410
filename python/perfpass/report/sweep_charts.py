"""Charts of a sweep: its Pareto front, latency against batch, and first token and time per token against load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.errors import ArgumentError, UnsupportedError
from perfpass.report.chart import SHAPES, Axis, Band, Chart, Dot, Dots, Form, Line, Mark, Note, Whisker, around
from perfpass.text import digits, size, unknown

if TYPE_CHECKING:
    from perfpass.deploy.sweep import Sweep

_LABELS = {
    "latency_ms": "latency (ms)", "throughput_per_s": "samples per second",
    "peak_memory_bytes": "memory in use (bytes)",
    "energy_j": "energy of a run (J)", "power_w": "power (W)", "usd_per_thousand_samples": "USD per 1,000 samples",
    "usd_per_million_tokens": "USD per million output tokens", "ttft_ms": "time to the first token (ms)",
    "tpot_ms": "time per output token (ms)", "request_ms": "time of a request (ms)",
    "requests_per_s": "requests per second",
    "output_tokens_per_s": "output tokens per second", "energy_per_token_j": "energy per output token (J)",
}  # fmt: skip
_MOST_SERIES = 6
_MOST_WHISKERS = 12
_ROWS = 40
_LETTER, _LINE = 0.0105, 0.045  # of the plot's width and height, about


def label_of(figure: str) -> str:
    """A figure's name for people, with its unit."""
    return _LABELS.get(figure, figure)


def objectives(sweep: Sweep) -> tuple[str, str]:
    """What a front is of, where nobody says: time against money, or against energy where no price is known."""
    time = "tpot_ms" if "tpot_ms" in sweep.figures else "latency_ms"
    for other in ("usd_per_million_tokens", "usd_per_thousand_samples", "energy_j", "output_tokens_per_s"):
        if other in sweep.figures and np.isfinite(sweep.columns[other].astype(np.float64)).any():
            return time, other
    return time, "throughput_per_s" if time == "latency_ms" else "ttft_ms"


def pareto(sweep: Sweep, x: str = "", y: str = "") -> Chart:
    """All points by two figures, and those that none is better than in both, with their intervals.

    Raises ArgumentError for names that are no figure of the sweep, UnsupportedError where no point has figures.
    """
    default = objectives(sweep)
    x, y = x or default[0], y or default[1]
    front = sweep.pareto(x, y)
    shown = sweep.take(np.flatnonzero(sweep.ok & _known(sweep, x) & _known(sweep, y)))
    if not len(front):
        raise UnsupportedError("no point of this sweep has both figures; ask for others, or see why with print(sweep)")
    order = np.argsort(front.columns[x].astype(np.float64), kind="stable")
    front = front.take(order)
    xs, ys = _values(shown, x), _values(shown, y)
    fx, fy = _values(front, x), _values(front, y)
    dots = (Dot(a, b, 0.06, _point(shown, i, x, y)) for i, (a, b) in enumerate(zip(xs, ys, strict=True)))
    marks: list[Mark] = [
        Dots(tuple(dots), 6, "circle", "other points"),
        Line(tuple(zip(fx, fy, strict=True)), 0, "Pareto front", True, 1.5),
    ]
    reach_x, reach_y = [*xs], [*ys]
    for i in range(min(len(front), _MOST_WHISKERS)):
        for name, at, upright in ((x, fy[i], False), (y, fx[i], True)):
            low, high = (_values(front, f"{name}_{end}")[i] for end in ("low", "high"))
            if np.isfinite(low) and np.isfinite(high) and low > 0:
                marks.append(
                    Whisker(at, low, _values(front, name)[i], high, 0, _point(front, i, x, y), "90 % interval", upright)
                )
                (reach_y if upright else reach_x).extend((low, high))
    log_x, log_y = (max(r) > 5 * min(v for v in r if v > 0) for r in (reach_x, reach_y))
    forms: list[Form] = ["size" if name == "peak_memory_bytes" else "number" for name in (x, y)]
    axes = (
        around(label_of(x), reach_x, log=log_x, form=forms[0]),
        around(label_of(y), reach_y, log=log_y, form=forms[1]),
    )
    labels = [_place(front, i)[:48] for i in range(min(len(front), _MOST_WHISKERS))]
    marks += _apart_notes(list(zip(fx, fy, labels, strict=False)), axes)
    first, last = _place(front, 0), _place(front, len(front) - 1)
    description = (
        f"{len(shown)} of {len(sweep)} points have both figures; {len(front)} of them are on the front, from {first} "
        f"to {last}: none is at least as good in both and better in one, by their medians. Where their 90 % "
        "intervals overlap, the order of two points is not certain."
    )
    rows = tuple((_place(front, i), _cell(front, i, x), _cell(front, i, y)) for i in range(min(len(front), _ROWS)))
    return Chart(
        "Pareto front",
        f"{sweep.model}: {label_of(x)} against {label_of(y)}",
        *axes,
        tuple(marks),
        description,
        ("point", label_of(x), label_of(y)),
        rows,
        height=340,
    )


def against_batch(sweep: Sweep) -> Chart:
    """Latency of a run by batch size, with its band, a line for each way to run. Raises UnsupportedError."""
    if "batch" not in sweep.settings:
        raise UnsupportedError("this sweep is of a served model, which has no batch; plot its load")
    return _by(sweep, "batch", "latency_ms", "Latency against batch", "batch size")


def against_load(sweep: Sweep) -> tuple[Chart, Chart]:
    """First token and time per token by requests in flight, with their bands. Raises UnsupportedError."""
    if "concurrency" not in sweep.settings:
        raise UnsupportedError("this sweep is not of a served language model; plot its batches")
    return (
        _by(sweep, "concurrency", "ttft_ms", "Time to the first token by load", "requests in flight"),
        _by(sweep, "concurrency", "tpot_ms", "Time per output token by load", "requests in flight"),
    )


def _by(sweep: Sweep, setting: str, figure: str, title: str, label: str) -> Chart:
    asked = sweep.take(np.flatnonzero(sweep.ok & _known(sweep, figure)))
    others = [name for name in sweep.settings if name != setting]
    groups: dict[tuple[Any, ...], list[int]] = {}
    for i in range(len(asked)):
        groups.setdefault(tuple(asked.columns[name][i] for name in others), []).append(i)
    if not groups:
        raise UnsupportedError(f"no point of this sweep has a {label_of(figure)}; see why with print(sweep)")
    if len(groups) > _MOST_SERIES:
        raise ArgumentError(
            f"{len(groups)} ways to run would be as many lines; at most {_MOST_SERIES} can be told apart: sweep fewer"
        )
    varied = [name for name in others if len({asked.columns[name][i] for i in range(len(asked))}) > 1] or others[:1]
    bands: list[Mark] = []
    lines: list[Mark] = []
    rows, reach = [], []
    for colour, (_, members) in enumerate(sorted(groups.items(), key=lambda item: tuple(map(str, item[0])))):
        members = sorted(members, key=lambda i: float(asked.columns[setting][i]))
        name = ", ".join(_setting(asked, k, members[0]) for k in varied)
        at = [float(asked.columns[setting][i]) for i in members]
        low, median, high = (_values(asked.take(np.array(members)), f"{figure}{end}") for end in ("_low", "", "_high"))
        bands.append(Band(tuple(zip(at, low, high, strict=True)), colour, ""))
        lines.append(Line(tuple(zip(at, median, strict=True)), colour))
        tips = (
            f"{name}, {label} {digits(a)}: {digits(m)} ms ({digits(lo)} to {digits(hi)})"
            for a, lo, m, hi in zip(at, low, median, high, strict=True)
        )
        lines.append(
            Dots(
                tuple(Dot(a, m, 0.08, tip) for a, m, tip in zip(at, median, tips, strict=True)),
                colour,
                SHAPES[colour],
                name,
            )
        )
        reach += [*low, *high]
        rows += [
            (name, digits(a), digits(m), f"{digits(lo)} to {digits(hi)}")
            for a, lo, m, hi in zip(at, low, median, high, strict=True)
        ]
    places = sorted({float(v) for v in asked.columns[setting].tolist()})
    x = around(label, places, log=min(places) > 0, margin=0.03)
    x = Axis(label, x.low, x.high, x.log, names=tuple((v, digits(v)) for v in _apart(places)))
    y = around(label_of(figure), reach, log=True)
    same = ", ".join(_setting(asked, k, 0) for k in others if k not in varied)
    first, last = rows[0], rows[len(next(iter(groups.values()))) - 1]
    description = (
        f"The band of each line holds nine of ten measured values. {first[0]}: {first[2]} ms ({first[3]}) at {label} "
        f"{first[1]}, {last[2]} ms ({last[3]}) at {last[1]}."
    )
    return Chart(
        title,
        f"{sweep.model}{', ' + same if same else ''}; bands are 90 % intervals",
        x,
        y,
        (*bands, *lines),
        description,
        ("way", label, label_of(figure), "90 % interval"),
        tuple(rows[:_ROWS]),
    )


def _apart_notes(points: Sequence[tuple[float, float, str]], axes: tuple[Axis, Axis]) -> list[Mark]:
    """The names of points that have room: of those that would stand in one another the first."""
    kept: list[tuple[float, float, float]] = []
    notes: list[Mark] = []
    for x, y, text in points:
        wide, at_left = len(text) * _LETTER, axes[0].place(x) < 0.6
        left, level = axes[0].place(x) - (0.0 if at_left else wide), axes[1].place(y)
        if all(abs(level - other) > _LINE or left > end or left + wide < start for start, end, other in kept):
            kept.append((left, left + wide, level))
            notes.append(Note(x, y, text, "start" if at_left else "end", "ink"))
    return notes


def _apart(places: Sequence[float]) -> list[float]:
    """Those whose words have room beside one another on a logarithmic axis."""
    kept: list[float] = []
    spread = (max(places) / min(places)) if min(places) > 0 else 1.0
    for value in places:
        if not kept or value <= 0 or kept[-1] <= 0 or value / kept[-1] >= spread ** (1 / 14):
            kept.append(value)
    return kept


def _known(sweep: Sweep, name: str) -> np.ndarray:
    if name not in sweep.columns:
        raise ArgumentError(unknown("figure", name, sweep.figures))
    return np.isfinite(sweep.columns[name].astype(np.float64))


def _values(sweep: Sweep, name: str) -> list[float]:
    column = sweep.columns.get(name)
    return [float("nan")] * len(sweep) if column is None else column.astype(np.float64).tolist()


def _setting(sweep: Sweep, name: str, row: int) -> str:
    value = sweep.columns[name][row]
    text = digits(float(value)) if isinstance(value, (int, float, np.number)) else str(value)
    return text if isinstance(value, str) else f"{name.replace('_', ' ')} {text}"


def _place(sweep: Sweep, row: int) -> str:
    varied = [name for name in sweep.settings[1:] if len(set(sweep.columns[name].tolist())) > 1]
    return ", ".join(_setting(sweep, name, row) for name in (sweep.settings[0], *varied))


def _cell(sweep: Sweep, row: int, name: str) -> str:
    value, low, high = (
        float(sweep.columns.get(n, sweep.columns[name])[row]) for n in (name, f"{name}_low", f"{name}_high")
    )
    show = size if name == "peak_memory_bytes" else digits
    return show(value) if not np.isfinite(low) else f"{show(value)} ({show(low)} to {show(high)})"


def _point(sweep: Sweep, row: int, x: str, y: str) -> str:
    return f"{_place(sweep, row)}: {label_of(x)} {_cell(sweep, row, x)}, {label_of(y)} {_cell(sweep, row, y)}"
