"""Charts of MIG: the profiles of a GPU with what a run costs in each, and a fleet's GPUs with what stands on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perfpass.decision import Decision, percent
from perfpass.devices import device as find_device
from perfpass.errors import UnsupportedError
from perfpass.report.chart import Axis, Box, Chart, Mark, Note, Whisker, around
from perfpass.report.run_charts import said
from perfpass.text import digits, size

if TYPE_CHECKING:
    from perfpass.decision import Limits
    from perfpass.devices import MigProfile
    from perfpass.interval import Interval

_KEPT, _MISSED, _UNSURE, _WHOLE = 2, 1, 4, 0
_MOST_GPUS = 40
_SHORT = {"kept": "✓", "not kept": "✕", "may be kept": "?", "cannot say": "?"}


def slices(decision: Decision, subtitle: str) -> Chart:
    """Every profile of a GPU over its memory slices, and the probability that the limits are kept in each.

    Raises UnsupportedError for a device without MIG.
    """
    board = find_device(decision.place.device)
    geometry = board.mig
    if geometry is None:
        raise UnsupportedError(f"{board.name} cannot be partitioned into MIG slices, so there is no layout to draw")
    found = {place.profile: place for place in decision.slices}
    profiles = [profile for profile in geometry.plain if profile.name in found]
    confidence, limits = decision.limits.confidence, decision.limits
    whole = float(geometry.memory_slices)
    marks: list[Mark] = []
    names, rows = [], []
    for i, profile in enumerate(profiles):
        place = found[profile.name]
        y = float(len(profiles) - i)
        chance = place.probability(limits)
        colour, word = _verdict(chance, confidence)
        names.append((y, f"{profile.name}, {size(profile.memory_bytes)}"))
        time = "" if place.latency_ms is None else said(place.latency_ms)
        text = f"{word}: P {percent(chance)}; {time or 'time not known'}, up to {size(place.memory_bytes.high)} in use"
        for start in _starts(profile):
            end = start + profile.memory_slices
            marks.append(
                Box(
                    float(start),
                    float(end),
                    y - 0.38,
                    y + 0.38,
                    colour,
                    word,
                    _SHORT[word],
                    f"{profile.name}: {text}",
                    f"{word} ({_SHORT[word]})",
                )
            )
        long, short = (_beside(chance, place.latency_ms, bounds=bounds) for bounds in (True, False))
        marks.append(Note(whole + 0.15, y, long, colour="ink", stands="beside", short=short))
        rows.append(
            (profile.name, str(profile.max_instances), word, percent(chance), time, size(place.memory_bytes.high))
        )
    smallest = decision.smallest
    best = f"The smallest slice that keeps them is {smallest.profile}." if smallest else "No slice keeps them."
    description = (
        f"Each row is a profile of {board.name}, each box an instance over the memory slices it takes, as many as "
        f"there can be at once. Asked: confidence {confidence:g} that all limits are kept. {best}"
    )
    x = Axis("memory slice", 0.0, whole * 1.6, names=tuple((j + 0.5, str(j)) for j in range(geometry.memory_slices)))
    y_axis = Axis("", 0.4, len(profiles) + 0.6, names=tuple(names))
    return Chart(
        f"MIG slices of {board.name}",
        f"{subtitle}; P: {_asked(limits)}",
        x,
        y_axis,
        tuple(marks),
        description,
        ("profile", "per GPU", "limits", "P", "latency", "memory up to"),
        tuple(rows),
        height=34.0 * len(profiles) + 8,
    )


def _asked(limits: Limits) -> str:
    """What the probability is of."""
    kept = [f"latency at most {digits(limits.latency_ms)} ms"] if limits.latency_ms is not None else []
    kept += [f"memory at most {size(limits.memory_bytes)}"] if limits.memory_bytes is not None else []
    kept += [f"energy at most {digits(limits.energy_j)} J"] if limits.energy_j is not None else []
    return ", ".join(["it fits", *kept])


def _beside(chance: float | None, time: Interval | None, *, bounds: bool) -> str:
    parts = [f"P {percent(chance)}"] if chance is not None else []
    if time is not None:
        parts.append(f"{digits(time.median)} ms" + f" ({digits(time.low)} to {digits(time.high)})" * bounds)
    return ", ".join(parts)


def _verdict(chance: float | None, confidence: float) -> tuple[int, str]:
    if chance is None:
        return _UNSURE, "cannot say"
    if chance >= confidence:
        return _KEPT, "kept"
    return (_MISSED, "not kept") if chance <= 1 - confidence else (_UNSURE, "may be kept")


def _starts(profile: MigProfile) -> list[int]:
    """First slices of as many instances as can stand at once."""
    found: list[int] = []
    for start in profile.starts:
        if len(found) < profile.max_instances and (not found or start >= found[-1] + profile.memory_slices):
            found.append(start)
    return found


def fleet(layout: Mapping[str, Any]) -> Chart:
    """GPUs of a packed fleet (`Layout.to_dict`), with what stands on each slice. Raises UnsupportedError for none."""
    gpus: Sequence[Mapping[str, Any]] = layout["gpus"][:_MOST_GPUS]
    if not gpus:
        raise UnsupportedError(f"no GPU is used in this layout: {layout['headline']}")
    models = {name: i for i, name in enumerate(dict.fromkeys(one["model"] for gpu in gpus for one in gpu["instances"]))}
    widest = 1
    marks: list[Mark] = []
    names, rows = [], []
    for i, gpu in enumerate(gpus):
        geometry = find_device(str(gpu["device"])).mig
        many = geometry.memory_slices if geometry else 1
        widest = max(widest, many)
        y = float(len(gpus) - i)
        names.append((y, f"{gpu['name']}"))
        for one in gpu["instances"]:
            on_slice = bool(gpu["mig"]) and geometry is not None
            wide = geometry.profile(one["profile"]).memory_slices if on_slice and geometry else many
            start = int(one["start"]) if on_slice else 0
            times = f" x{one['processes']}" if one.get("processes", 1) > 1 else ""
            time = one["latency_ms"]
            figures = f"{digits(time['median'])} ms ({digits(time['low'])} to {digits(time['high'])})"
            text, tip = (
                f"{one['model']}{times}, {one['profile']}",
                f"{one['model']}{times} in {one['profile']} of {gpu['name']}: {figures}",
            )
            place = models[one["model"]]
            label = one["model"] if len(models) <= 8 else ""
            marks.append(Box(start, start + wide, y - 0.38, y + 0.38, place % 8, text, one["model"], tip, label))
            rows.append(
                (
                    str(gpu["name"]),
                    str(gpu["device"]),
                    one["profile"],
                    f"{one['model']}{times}",
                    figures,
                    f"{one['p_fits']:.3f}",
                )
            )
    left = len(layout["gpus"]) - len(gpus)
    description = (
        f"{layout['headline']}. Each row is a GPU, each box an instance over the memory slices it takes; the rest is "
        f"free.{f' {left} more GPUs are not drawn.' if left else ''}"
    )
    x = Axis("memory slice", 0.0, float(widest), names=tuple((j + 0.5, str(j)) for j in range(widest)))
    y_axis = Axis("", 0.4, len(gpus) + 0.6, names=tuple(names))
    return Chart(
        "GPUs and what stands on them",
        layout["headline"],
        x,
        y_axis,
        tuple(marks),
        description,
        ("GPU", "device", "profile", "model", "latency, 90 %", "P(fits)"),
        tuple(rows),
        height=34.0 * len(gpus) + 8,
    )


def fleet_times(layout: Mapping[str, Any]) -> Chart:
    """The latency of what stands on the slices, with its interval: a row for each model and profile."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for gpu in layout["gpus"]:
        for one in gpu["instances"]:
            found.setdefault(f"{one['model']}, {one['profile']} of {gpu['device']}", []).append(one)
    marks: list[Mark] = []
    values: list[float] = []
    names, rows = [], []
    for i, (name, alike) in enumerate(list(found.items())[:_MOST_GPUS]):
        y, time = float(len(found) - i), alike[0]["latency_ms"]
        bounds = (time["low"], time["median"], time["high"])
        figures = f"{digits(time['median'])} ms ({digits(time['low'])} to {digits(time['high'])})"
        names.append((y, name))
        values += bounds
        marks.append(Whisker(y, *bounds, 0, f"{name}: {figures}", "predicted, 90 % interval"))
        rows.append((name, str(len(alike)), figures, percent(alike[0]["p_meets"])))
    return Chart(
        "Latency on those slices",
        layout["headline"],
        around("ms; of a served model to the first token", values, log=True),
        Axis("", 0.3, len(found) + 0.7, names=tuple(names)),
        tuple(marks),
        "Of each model on each profile, with its 90 % interval: of a network a run, of a served language model the "
        "time to the first token.",
        ("model and profile", "instances", "latency, 90 %", "P(meets)"),
        tuple(rows),
        height=30.0 * len(found) + 10,
    )
