"""Pictures of the comparison: errors of every predictor by kind of split, and the adaptation curves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from perfpass.measure.roofline.figure import save

# Colour-blind safe (Okabe and Ito, "Color Universal Design", 2008), then grey and brown.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999", "#8B4513")
_KINDS = {"random": "o", "architecture": "s", "family": "^", "device": "x"}
# Variants and baselines of a publication are drawn thin, in its colour.
_THIN = ("--", ":", "-.", (0, (1, 3)), (0, (5, 1, 1, 1, 1, 1)), (0, (3, 5)), (0, (8, 2)))
_TICKS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
# A network that knows nothing of a device may be off by any factor; such points lie at the edge.
_MOST = 3000.0
_AXIS = "MAPE, % (3,000 and more: at the edge)"


def draw(content: dict[str, Any], folder: Path) -> None:
    """predictors.svg, and adaptation.svg where there are curves."""
    if content["cells"]:
        save(_errors(content), folder / "predictors.svg")
    if content["adaptation"]:
        save(_curves(content), folder / "adaptation.svg")


def _errors(content: dict[str, Any]) -> Any:
    from matplotlib.figure import Figure

    shown = [task for task in content["tasks"] if any(c["task"] == task for c in content["cells"])]
    names = [p for p in content["predictors"] if any(c["predictor"] == p for c in content["cells"])]
    figure = Figure(figsize=(3.1 * len(shown) + 1.6, 0.27 * len(names) + 1.5), layout="constrained")
    axes = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
    for axis, task in zip(axes, shown, strict=True):
        for (kind, marker), colour in zip(_KINDS.items(), _COLOURS, strict=False):
            cells = [c for c in content["cells"] if c["task"] == task and c["split"].partition(" ")[0] == kind]
            if cells:
                at = [names.index(c["predictor"]) for c in cells]
                axis.scatter(
                    [min(c["mape_pct"], _MOST) for c in cells], at, marker=marker, color=colour, s=26, label=kind
                )
        axis.set(xscale="log", xlabel="MAPE, %")
        if any(c["mape_pct"] > _MOST for c in content["cells"] if c["task"] == task):
            axis.set_xlabel(_AXIS)
        _label(axis.xaxis, axis.get_xlim())
        axis.set_title(task.replace("_", " "), fontsize=10)
        axis.grid(linewidth=0.3)
    axes[0].set_yticks(range(len(names)), names, fontsize=8)
    axes[0].invert_yaxis()
    handles, labels = max((a.get_legend_handles_labels() for a in axes), key=lambda found: len(found[1]))
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8, frameon=False)
    return figure


def _label(axis: Any, limits: tuple[float, float]) -> None:
    """Plain numbers on a logarithmic axis."""
    ticks = [t for t in _TICKS if limits[0] <= t <= limits[1]]
    axis.set_ticks(ticks, [str(t) for t in ticks], fontsize=8)
    axis.set_ticks([], minor=True)


def _curves(content: dict[str, Any]) -> Any:
    from matplotlib.figure import Figure

    panels = list(dict.fromkeys((p["task"], p["device"]) for p in content["adaptation"]))
    names = [n for n in content["predictors"] if any(p["predictor"] == n for p in content["adaptation"])]
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(4.2 * columns, 3.5 * rows + 0.9), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    styles, handles = _styles(names), {}
    for axis, (task, device) in zip(axes, panels, strict=False):
        for name in names:
            points = [
                p for p in content["adaptation"] if (p["task"], p["device"], p["predictor"]) == (task, device, name)
            ]
            if points:
                values = [min(p["mape_pct"], _MOST) for p in points]
                (handles[name],) = axis.plot(range(len(points)), values, label=name, **styles[name])
                axis.set_xticks(range(len(points)), [str(p["size"]) for p in points])
        beyond = any(p["mape_pct"] > _MOST for p in content["adaptation"] if (p["task"], p["device"]) == (task, device))
        axis.set(yscale="log", xlabel="records of the device", ylabel=_AXIS if beyond else "MAPE, %")
        _label(axis.yaxis, axis.get_ylim())
        axis.set_title(f"{device}, {task.replace('_', ' ')}", fontsize=10)
        axis.grid(linewidth=0.3)
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    shown = [n for n in names if n in handles]
    figure.legend(
        [handles[n] for n in shown],
        shown,
        loc="outside lower center",
        ncols=min(6, len(shown)),
        fontsize=8,
        frameon=False,
    )
    return figure


def _styles(names: list[str]) -> dict[str, dict[str, Any]]:
    """How each predictor is drawn: ours thick, a publication's own in a colour, its variants thin beside it."""
    mains = [n for n in names if not any(n.startswith(f"{other}-") for other in names)]
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        of = next((m for m in mains if name.startswith(f"{m}-")), name)
        colour = _COLOURS[mains.index(of) % len(_COLOURS)]
        if of == name:
            width = 2.4 if name == names[0] else 1.4
            found[name] = {"color": colour, "linewidth": width, "marker": ".", "linestyle": "-"}
        else:
            place = [n for n in names if n.startswith(f"{of}-")].index(name)
            found[name] = {"color": colour, "linewidth": 0.7, "linestyle": _THIN[place % len(_THIN)]}
    return found
