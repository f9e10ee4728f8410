"""The picture and the table of a measured roofline (`perfpass.measure.roofline.measurement.summarise`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perfpass.errors import needs
from perfpass.text import count, digits, size
from perfpass.whole_file import replacing

# Colour-blind safe (Okabe and Ito, "Color Universal Design", 2008).
_COLOURS = {"fp32": "#0072B2", "tf32": "#009E73", "fp16": "#D55E00", "bf16": "#CC79A7"}
_MARKERS = {
    "GEMM, square": "s",
    "GEMM, skinny": "D",
    "convolution": "o",
    "convolution, 1 x 1": "h",
    "convolution, depthwise": "v",
    "element-wise": "^",
}
_NEAR = 1.6  # roofs closer than this factor share a label


def save_figure(summary: dict[str, Any], path: str | Path, points: Sequence[dict[str, Any]] | None = None) -> None:
    """Draws the roofline and the bandwidth by footprint; ``path`` ends in .svg or .png.

    ``points`` replaces the summary's: dictionaries with ``group``, ``precision``, ``flop_per_byte`` and ``flop_s``.
    Raises UnsupportedError where matplotlib is not installed, FileError where the file cannot be written.
    """
    figure_class = _figure_class()
    figure = figure_class(figsize=(12.5, 5.6), layout="constrained")
    roof, bandwidth = figure.subplots(1, 2, width_ratios=(1.75, 1))
    drawn = [p for p in (summary["points"] if points is None else points) if p["flop_s"] > 0 and p["flop_per_byte"] > 0]
    _draw_roofline(roof, summary, drawn)
    _draw_bandwidth(bandwidth, summary)
    figure.suptitle(f"Measured roofline of {_device_line(summary)}", fontsize=13)
    save(figure, path)


def save(figure: Any, path: str | Path) -> None:
    """Writes a figure so that the same content gives the same bytes."""
    import matplotlib as mpl

    path = Path(path)
    kind = path.suffix.removeprefix(".")
    with mpl.rc_context({"svg.hashsalt": "perfpass"}), replacing(path) as file:
        figure.savefig(file, format=kind, dpi=110, metadata={"Date": None} if kind == "svg" else None)


def _figure_class() -> Any:
    with needs("measure", "drawing a roofline"):
        from matplotlib.figure import Figure
    return Figure


def _device_line(summary: dict[str, Any]) -> str:
    facts = summary.get("facts", {})
    if summary["kind"] == "cpu":
        threads = facts.get("device", {}).get("threads") or facts.get("host", {}).get("usable_cpus")
        more = f", {threads} thread{'s' if threads != 1 else ''}" if threads else ""
    else:
        more = ""
    torch = facts.get("software", {}).get("torch")
    return f"{summary['device']}{more}" + (f" (torch {torch})" if torch else "")


def _draw_roofline(axes: Any, summary: dict[str, Any], points: Sequence[dict[str, Any]]) -> None:
    peaks, memory, cache = summary["peak_flop_s"], summary["memory_bytes_s"], summary["cache_bytes_s"]
    highest = max(peaks.values())
    left = min([p["flop_per_byte"] for p in points] + [0.1]) / 1.6
    # The labels of the roofs stand right of all points.
    right = max([p["flop_per_byte"] for p in points] + [4 * highest / memory]) * 7
    bottom = min([p["flop_s"] for p in points] + [memory * left]) / 2
    axes.set(xscale="log", yscale="log", xlim=(left, right), ylim=(bottom, highest * 4))
    for precision, peak in sorted(peaks.items(), key=lambda item: item[1]):
        axes.plot([peak / memory, right], [peak, peak], color=_COLOURS[precision], linewidth=2, zorder=2)
        axes.plot(
            [peak / cache, peak / memory],
            [peak, peak],
            color=_COLOURS[precision],
            linewidth=1.2,
            linestyle="--",
            zorder=2,
        )
    axes.plot([left, highest / memory], [left * memory, highest], color="black", linewidth=2, zorder=2)
    axes.plot([left, highest / cache], [left * cache, highest], color="black", linewidth=1.2, linestyle="--", zorder=2)
    _label_roofs(axes, peaks, right)
    _label_slopes(axes, summary, left, bottom)
    for group, marker in _MARKERS.items():
        for precision, colour in _COLOURS.items():
            chosen = [p for p in points if p["group"] == group and p["precision"] == precision]
            if chosen:
                axes.scatter(
                    [p["flop_per_byte"] for p in chosen],
                    [p["flop_s"] for p in chosen],
                    marker=marker,
                    s=34,
                    facecolors=colour,
                    edgecolors="white",
                    linewidths=0.6,
                    alpha=0.85,
                    zorder=3,
                )
    _legends(axes, peaks, points)
    axes.set_xlabel("arithmetic intensity (FLOP per byte of compulsory traffic)")
    axes.set_ylabel("FLOP/s")
    _engineering(axes.yaxis, "")
    axes.grid(True, which="major", color="0.9")
    axes.set_axisbelow(True)


def _label_roofs(axes: Any, peaks: dict[str, float], right: float) -> None:
    """Each peak above its line at the right; peaks too near for two lines of text share one."""
    ordered = sorted(peaks.items(), key=lambda item: item[1])
    while ordered:
        near = [item for item in ordered if item[1] < _NEAR * ordered[0][1]]
        ordered = ordered[len(near) :]
        text = ", ".join(f"{precision} {count(float(f'{peak:.3g}'), 'FLOP/s')}" for precision, peak in near)
        colour = _COLOURS[near[0][0]] if len(near) == 1 else "black"
        axes.annotate(
            text,
            (right, near[-1][1]),
            xytext=(-4, 4),
            textcoords="offset points",
            ha="right",
            va="bottom",
            fontsize=8,
            color=colour,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.8},
            zorder=4,
        )


def _label_slopes(axes: Any, summary: dict[str, Any], left: float, bottom: float) -> None:
    """The bandwidths along their lines, at the angle that the lines have on paper, on the side away from the other."""
    figure = axes.get_figure()
    figure.draw_without_rendering()  # settles the layout, without which the angle is not known
    box = axes.get_window_extent()
    (x0, x1), (y0, y1) = (map(math.log10, limits) for limits in (axes.get_xlim(), axes.get_ylim()))
    angle = math.degrees(math.atan((box.height / (y1 - y0)) / (box.width / (x1 - x0))))
    cache, memory = summary["cache_bytes_s"], summary["memory_bytes_s"]
    lines = [("memory", memory, -6, "top")]
    if cache > 1.2 * memory:
        lines.append(("cache", cache, 4, "bottom"))
    lowest = min(summary["peak_flop_s"].values())
    for name, rate, offset, side in lines:
        # Part of the way up to the lowest roof: element-wise operators crowd the left end, products the right.
        begin, end = math.log10(max(left, bottom / rate)), math.log10(max(lowest / rate, left))
        start = 10 ** (begin + (0.3 if name == "memory" else 0.05) * (end - begin))
        axes.annotate(
            f"{name} {count(float(f'{rate:.3g}'), 'B/s')}",
            (start, start * rate),
            xytext=(0, offset),
            textcoords="offset points",
            rotation=angle,
            rotation_mode="anchor",
            ha="left",
            va=side,
            fontsize=8,
        )


def _legends(axes: Any, peaks: dict[str, float], points: Sequence[dict[str, Any]]) -> None:
    from matplotlib.lines import Line2D

    def dot(marker: str, colour: str, label: str) -> Any:
        return Line2D([], [], linestyle="", marker=marker, color=colour, markersize=6, label=label)

    groups = [dot(m, "0.35", g) for g, m in _MARKERS.items() if any(p["group"] == g for p in points)]
    precisions = [Line2D([], [], color=_COLOURS[p], linewidth=3, label=p) for p in _COLOURS if p in peaks]
    axes.legend(handles=groups + precisions, loc="lower right", fontsize=8, framealpha=0.95, ncols=1)


def _draw_bandwidth(axes: Any, summary: dict[str, Any]) -> None:
    from matplotlib.ticker import LogLocator

    for operator, colour, marker in (("copy", "#0072B2", "o"), ("triad", "#D55E00", "^")):
        rows = [row for row in summary["bandwidth"] if row["operator"] == operator]
        axes.plot(
            [r["footprint_bytes"] for r in rows],
            [r["bytes_s"] for r in rows],
            color=colour,
            marker=marker,
            markersize=4,
            linewidth=1.5,
            label=operator,
        )
    axes.set(xscale="log", yscale="log")
    axes.axhline(summary["memory_bytes_s"], color="black", linewidth=1, linestyle=":", label="roof of memory")
    cache = summary.get("last_level_cache_bytes")
    if cache:
        axes.axvline(cache, color="0.5", linewidth=1, linestyle="--", label=f"last-level cache, {size(cache)}")
    axes.set_xlabel("footprint (bytes of all operands)")
    axes.set_ylabel("bandwidth (bytes read and written per second)")
    rates = [row["bytes_s"] for row in summary["bandwidth"]]
    axes.set_ylim(min(rates) / 2, max(rates) * 2)
    _binary(axes.xaxis)
    axes.yaxis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5), numticks=12))
    _engineering(axes.yaxis, "B/s")
    axes.grid(True, which="major", color="0.9")
    axes.set_axisbelow(True)
    axes.legend(fontsize=8, loc="best")


def _engineering(axis: Any, unit: str) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{count(value)}{unit}" if value > 0 else "0"))
    axis.set_minor_formatter(NullFormatter())


def _binary(axis: Any) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(base=32, numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: size(value)))
    axis.set_minor_formatter(NullFormatter())


def table(summary: dict[str, Any]) -> str:
    """The same in Markdown: roofs, bandwidth by footprint, and every point by class."""
    lines = [f"# Roofline of {_device_line(summary)}", "", f"Measured {summary['measured_at']}.", ""]
    contended = sum("contended" in p["flags"] for p in summary["points"])
    if contended:
        lines += [
            f"{contended} of {len(summary['points'])} points were measured while others used the machine "
            "(`contended`): they are lower bounds of what the device reaches.",
            "",
        ]
    lines += [
        "| precision | peak | fastest GEMM | ridge point, memory | ridge point, cache |",
        "|---|---:|---:|---:|---:|",
    ]
    for precision, peak in summary["peak_flop_s"].items():
        ridge = summary["ridge_flop_per_byte"][precision]
        gemm = count(summary["gemm_flop_s"].get(precision, 0), "FLOP/s")
        lines.append(
            f"| {precision} | {count(peak, 'FLOP/s')} | {gemm} | {digits(ridge['memory'])} FLOP/B "
            f"| {digits(ridge['cache'])} FLOP/B |"
        )
    lines += [
        "",
        f"Memory {count(summary['memory_bytes_s'], 'B/s')}, fastest cache {count(summary['cache_bytes_s'], 'B/s')}.",
        "",
    ]
    lines += ["## Bandwidth by footprint", "", "| operator | footprint | bandwidth |", "|---|---:|---:|"]
    lines += [
        f"| {r['operator']} | {size(r['footprint_bytes'])} | {count(r['bytes_s'], 'B/s')} |"
        for r in summary["bandwidth"]
    ]
    for group in _MARKERS:
        chosen = [p for p in summary["points"] if p["group"] == group]
        if chosen:
            lines += ["", f"## {group}", "", *_point_rows(chosen)]
    if summary["not_measured"]:
        lines += ["", "## Not measured", ""]
        lines += [
            f"- {_what(entry)}: {entry['status']} ({entry['message'][:120]})" for entry in summary["not_measured"]
        ]
    return "\n".join(lines) + "\n"


def _point_rows(points: Sequence[dict[str, Any]]) -> list[str]:
    lines = [
        "| operator | precision | time | FLOP/s | B/s | FLOP/B | of the roof | flags |",
        "|---|---|---:|---:|---:|---:|---:|---|",
    ]
    for p in points:
        share = "" if p["share_of_roof"] is None else f"{100 * p['share_of_roof']:.0f} %"
        lines.append(
            f"| {_what(p)} | {p['precision']} | {digits(p['median_ms'])} ms | {count(p['flop_s'])} "
            f"| {count(p['bytes_s'])} | {digits(p['flop_per_byte'])} | {share} | {' '.join(p['flags'])} |"
        )
    return lines


def _what(point: dict[str, Any]) -> str:
    """An operator in a few words."""
    if point["operator"] == "gemm":
        return f"{point['m']} x {point['k']} by {point['k']} x {point['n']}"
    if point["operator"] == "convolution":
        text = f"[{point['batch']}, {point['channels']}, {point['height']}, {point['width']}] to {point['filters']}, "
        text += f"kernel {point['kernel']}" + (f", stride {point['stride']}" if point["stride"] > 1 else "")
        if point["groups"] > 1:
            text += f", groups {point['groups']}"
        return text + (", transposed" if point["transposed"] else "") + (", nhwc" if point["layout"] == "nhwc" else "")
    name = point.get("function", point["operator"]).replace("_", "-")
    return f"{name}, {count(point['elements'])} elements"
