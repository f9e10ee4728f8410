"""Figures, table and picture of the tuning study, from its rows."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import report

NEAR = 1.05
_COLOURS = {"perfpass": "#1b6ca8", "xgboost": "#d1722b", "random": "#7a7a7a"}
_LABELS = {"perfpass": "perfpass", "xgboost": "TVM's XGBModel", "random": "random"}
_RESAMPLES = 4000


def so_far(row: dict[str, Any], trials: int) -> np.ndarray:
    """The fastest candidate after each trial, seconds [trials]; infinite before anything ran."""
    values = [s if s else math.inf for s in row["measured_s"]][:trials]
    values += [math.inf] * (trials - len(values))
    return np.minimum.accumulate(values)


def summarise(rows: list[dict[str, Any]], again: list[dict[str, Any]], trials: int) -> dict[str, Any]:
    """Everything that is reported: by workload and model, and over all workloads."""
    network = [row for row in rows if "latency_s" in row]
    single = sorted((row for row in rows if "latency_s" not in row), key=lambda row: row["seed"])
    models = [model for model in _LABELS if any(row["model"] == model for row in rows)]
    workloads = list(dict.fromkeys(row["workload"] for row in single))
    timed = {(r["workload"], r["model"], r["seed"], r["trials"]): r["seconds"] for r in again}
    table, curves = [], {model: [] for model in models}
    for workload in workloads:
        best = min(s for key, s in timed.items() if key[0] == workload)
        seen = min(so_far(row, trials)[-1] for row in single if row["workload"] == workload)
        for model in models:
            runs = [row for row in single if row["workload"] == workload and row["model"] == model]
            if not runs:
                continue
            fastest = np.stack([so_far(row, trials) for row in runs])
            share = np.where(np.isfinite(fastest), seen / fastest, 0.0)
            curves[model] += list(share)
            # In the currency of the runs themselves, where noise helps all models alike.
            near = [int(np.argmax(run <= NEAR * seen)) + 1 if (run <= NEAR * seen).any() else None for run in fastest]
            entry: dict[str, Any] = {"workload": workload, "model": model, "runs": len(runs), "best_known_s": best}
            for count in (trials // 2, trials):
                values = [timed[key] for row in runs if (key := (workload, model, row["seed"], count)) in timed]
                entry[f"latency_s_after_{count}"] = statistics.median(values)
                entry[f"latencies_s_after_{count}"] = values
            entry["trials_to_near_best"] = near
            entry["wall_s"] = statistics.median(row["wall_s"] for row in runs)
            entry["model_s"] = statistics.median(row["predict_s"] + row["update_s"] for row in runs)
            table.append(entry)
    found: dict[str, Any] = {
        "workloads": table,
        "curve": {m: [round(float(x), 4) for x in geometric(np.stack(c))] for m, c in curves.items() if c},
        "runs": [compact(row) for row in rows],
        "network": [
            {
                "model": model,
                "latencies_s": [row["latency_s"] for row in network if row["model"] == model],
                "wall_s": statistics.median(row["wall_s"] for row in network if row["model"] == model),
            }
            for model in models
            if any(row["model"] == model for row in network)
        ],
    }
    if "perfpass" in models and "xgboost" in models:
        found["against_xgboost"] = against(timed, found["curve"], trials)
    return found


def compact(row: dict[str, Any]) -> dict[str, Any]:
    """A run with its measurements on one line: microseconds, - where a candidate failed."""
    values = " ".join(f"{1e6 * s:.4g}" if s else "-" for s in row["measured_s"])
    return {**{name: value for name, value in row.items() if name != "measured_s"}, "measured_us": values}


def geometric(shares: np.ndarray) -> np.ndarray:
    """Geometric mean over runs of the share of the best known speed, by trial; [runs, trials] to [trials]."""
    return np.exp(np.log(np.maximum(shares, 1e-3)).mean(axis=0))


def against(timed: dict[Any, float], curve: dict[str, list[float]], trials: int) -> dict[str, Any]:
    """Speed of our schedules over those of TVM's model, run by run: geometric mean and 95 % bootstrap interval."""
    result: dict[str, Any] = {}
    for own, other in ((trials, trials), (trials // 2, trials // 2), (trials // 2, trials)):
        pairs: dict[str, list[float]] = {}
        for (workload, model, seed, count), seconds in timed.items():
            peer = timed.get((workload, "xgboost", seed, other))
            if model == "perfpass" and count == own and peer:
                pairs.setdefault(workload, []).append(math.log(peer / seconds))
        random = np.random.default_rng(0)
        groups = [np.array(values) for values in pairs.values()]
        draws = [np.mean([random.choice(group, len(group)).mean() for group in groups]) for _ in range(_RESAMPLES)]
        low, high = np.exp(np.percentile(draws, [2.5, 97.5]))
        speed = math.exp(float(np.mean([group.mean() for group in groups])))
        result[f"speed_after_{own}_over_xgboost_after_{other}"] = {
            "ratio": round(speed, 3),
            "low": round(float(low), 3),
            "high": round(float(high), 3),
        }
    target = curve["xgboost"][-1]
    reached = [i + 1 for i, value in enumerate(curve["perfpass"]) if value >= target]
    result["trials_to_xgboost_quality"] = reached[0] if reached else None
    return result


def table(summary: dict[str, Any]) -> str:
    """The study as a Markdown table: latencies in ms after half and all of the trials."""
    counts = sorted(
        {int(key.rsplit("_", 1)[1]) for key in summary["workloads"][0] if key.startswith("latency_s_after")}
    )
    header = ["workload", "model", *(f"after {n} (ms)" for n in counts), "within 5 % of best", "wall (s)", "model (s)"]
    lines = []
    for entry in summary["workloads"]:
        near = [n for n in entry["trials_to_near_best"] if n]
        reached = f"{len(near)} of {entry['runs']}" + (f", after {statistics.median(near):g}" if near else "")
        lines.append(
            [
                entry["workload"] if entry["model"] == summary["workloads"][0]["model"] else "",
                _LABELS[entry["model"]],
                *(f"{entry[f'latency_s_after_{n}'] * 1e3:.4g}" for n in counts),
                reached,
                f"{entry['wall_s']:.0f}",
                f"{entry['model_s']:.1f}",
            ]
        )
    for entry in summary["network"]:
        median = statistics.median(entry["latencies_s"]) * 1e3
        lines.append(["whole network", _LABELS[entry["model"]], "", f"{median:.4g}", "", f"{entry['wall_s']:.0f}", ""])
    return report.table(header, lines)


def overall(summary: dict[str, Any]) -> str:
    """Quality after a quarter, half and all of the trials, and what a run takes, over all workloads; Markdown."""
    trials = len(next(iter(summary["curve"].values())))
    counts = (trials // 4, trials // 2, trials)
    networks = {entry["model"]: entry for entry in summary["network"]}
    header = ["cost model", f"speed after {', '.join(map(str, counts))}", "within 5 %", "wall s a run", "model's s"]
    if networks:
        header += ["whole network ms", "wall s"]
    lines = []
    for model, curve in summary["curve"].items():
        runs = [entry for entry in summary["workloads"] if entry["model"] == model]
        near = [n for entry in runs for n in entry["trials_to_near_best"]]
        single = [row for row in summary["runs"] if row["model"] == model and "latency_s" not in row]
        line = [
            _LABELS[model],
            ", ".join(f"{curve[n - 1]:.2f}" for n in counts),
            f"{sum(n is not None for n in near)} of {len(near)}",
            f"{statistics.mean(row['wall_s'] for row in single):.0f}",
            f"{statistics.mean(row['predict_s'] + row['update_s'] for row in single):.1f}",
        ]
        if networks:
            found = networks[model]
            times = [1e3 * s for s in found["latencies_s"]]
            line.append(f"{statistics.median(times):.3g} ({min(times):.3g} to {max(times):.3g})")
            line.append(f"{found['wall_s']:.0f}")
        lines.append(line)
    against = summary["against_xgboost"]

    def ratio(own: int, other: int) -> str:
        found = against[f"speed_after_{own}_over_xgboost_after_{other}"]
        return f"{found['ratio']:.2f} times ({found['low']:.2f} to {found['high']:.2f})"

    half, seeds = trials // 2, len({row["seed"] for row in summary["runs"]})
    reached = against["trials_to_xgboost_quality"]
    return (
        f"{report.table(header, lines)}\n\nSpeed over that of the best schedule known, after so many "
        f"candidates; within 5 %: runs that came so near to it. After {half} candidates our schedules are "
        f"{ratio(half, trials)} as fast as "
        f"those of TVM's model after {trials}, after {trials} of both {ratio(trials, trials)}, after {half} of both "
        f"{ratio(half, half)} (95 % intervals, resampled over {seeds} seeds). What TVM's model has after {trials} "
        f"candidates is {f'reached after {reached}' if reached else 'not reached'}."
    )


def picture(summary: dict[str, Any], path: Path) -> None:
    """Share of the best known speed by trial, geometric mean over workloads and seeds, as SVG."""
    curves = summary["curve"]
    trials = len(next(iter(curves.values())))
    width, height, left, bottom, top = 640, 360, 60, 50, 24
    low = math.floor(10 * min(curve[min(3, trials - 1)] for curve in curves.values())) / 10

    def x(trial: float) -> float:
        return left + (trial - 1) / (trials - 1) * (width - left - 20)

    def y(share: float) -> float:
        return height - bottom - (max(share, low) - low) / (1 - low) * (height - bottom - top)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="12"><rect width="{width}" height="{height}" fill="white"/>'
    ]
    for tick in np.arange(low, 1.001, 0.1):
        parts.append(
            f'<line x1="{left}" x2="{width - 20}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" stroke="#ddd"/>'
            f'<text x="{left - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:.1f}</text>'
        )
    for trial in [1, *range(8, trials + 1, 8)]:
        parts.append(f'<text x="{x(trial):.1f}" y="{height - bottom + 18}" text-anchor="middle">{trial}</text>')
    for place, (model, curve) in enumerate(curves.items()):
        points = " ".join(f"{x(i + 1):.1f},{y(value):.1f}" for i, value in enumerate(curve))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{_COLOURS[model]}" stroke-width="2.5"/>')
        parts.append(
            f'<text x="{width - 170}" y="{height - bottom - 16 - 18 * place}" fill="{_COLOURS[model]}" '
            f'font-weight="bold">{_LABELS[model]}</text>'
        )
    parts.append(
        f'<text x="{(width + left) / 2}" y="{height - 10}" text-anchor="middle">measured candidates</text>'
        f'<text x="14" y="{height / 2}" text-anchor="middle" transform="rotate(-90 14 {height / 2})">'
        "speed over the best known</text></svg>"
    )
    path.write_text("\n".join(parts) + "\n")
