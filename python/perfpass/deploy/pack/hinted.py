"""A fleet from what builds left behind: predictions with their MIG hints, and a layout that was printed as JSON."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from perfpass.decision import CONFIDENCE, Decision, Limits, Place, together
from perfpass.declared import Anything, Flag, Items, Maybe, Number, Table, Text
from perfpass.deploy.pack.fleet import WHOLE, Fleet, Model, Pool, Standing
from perfpass.deploy.pack.layout import Layout
from perfpass.deploy.pack.options import Option, assured
from perfpass.deploy.pack.packing import TIME_LIMIT_S, pack_options
from perfpass.devices import device as find_device
from perfpass.errors import ArgumentError, FormatError
from perfpass.json_text import read_json
from perfpass.prediction import Interval, MemoryFigures
from perfpass.predictors.memory.allowance import driver_bytes

_MOST_BYTES = 2**28  # of a layout; one of 10,000 models has 30 MB
_DEPLOYED = ("batch", "precision", "runtime", "cuda_graph")  # of a workload, what deployment files say
_INTERVAL = Table(
    {**dict.fromkeys(("median", "low", "high"), Number(0)), "unit": Text(10), "coverage": Number(0, 1, above=True)},
    ("median", "low", "high", "unit"),
)
_PREDICTION = Table(
    {
        "workload": Table(
            {
                "device": Text(),
                "batch": Number(1, 2**48, whole=True),
                "precision": Text(30),
                "runtime": Text(30),
                "cuda_graph": Flag(),
            },
            ("device",),
            others=Anything(),
        ),
        "latency_ms": _INTERVAL,
        "throughput_per_s": _INTERVAL,
        "peak_memory_bytes": _INTERVAL,
        "mig": Table({"profile": Maybe(Text(40, empty=True))}, ("profile",), others=Anything()),
        "support": Table({"level": Text(20)}, ("level",), others=Anything()),
    },
    ("workload", "latency_ms", "throughput_per_s", "peak_memory_bytes", "mig", "support"),
    others=Anything(),
)
_INSTANCE = Table(
    {
        "profile": Text(40),
        "start": Number(0, 64, whole=True),
        "model": Text(63),
        "processes": Number(1, 1000, whole=True),
    },
    ("profile", "start", "model", "processes"),
    others=Anything(),
)
_GPU = Table({"name": Text(200), "instances": Items(_INSTANCE, 16)}, ("name", "instances"), others=Anything())
_LAYOUT = Table({"gpus": Items(_GPU, 100_000)}, ("gpus",), others=Anything())
_NO_SLICES = (
    "carries no figures of slices: there memory alone decides, by its hint, and times are those of the device that was "
    "predicted for; on a smaller slice a run takes longer. Annotate or build it anew"
)
_NO_TARGET = (
    "no target was stated: memory alone decides, and times are those of the slices. --latency states one, and so do "
    "limits when a model is annotated or built"
)


def standing(path: str | os.PathLike[str]) -> dict[str, tuple[Standing, ...]]:
    """What stands on each GPU by a layout's JSON. Raises FileError, LimitError, FormatError."""
    content = read_json(path, "a layout", _MOST_BYTES)
    if not isinstance(content, Mapping):
        raise FormatError(f"{path}: not a layout; give what `perfpass pack --json` printed")
    found = _LAYOUT.take(content, str(path))
    return {
        gpu["name"]: tuple(Standing(i["profile"], i["start"], i["model"], i["processes"]) for i in gpu["instances"])
        for gpu in found["gpus"]
    }


def hinted(
    predictions: Sequence[tuple[str, Mapping[str, Any]]],
    *,
    copies: int = 1,
    time_limit_s: float = TIME_LIMIT_S,
    limits: Mapping[str, float] | None = None,
) -> Layout:
    """Models on slices that keep their limits, by the decisions that `annotate` and TVM builds keep with a model.

    ``predictions``: the file of each model and its prediction as `Prediction.to_dict` gives it, whose batch, precision
    and runtime are those that it is deployed with. ``limits``: those of
    `perfpass.Limits` that take the place of what the files state. Where a file has a decision, time, energy and memory
    on each slice decide by their intervals; else the memory hint alone, which a note says. Raises FormatError for a
    prediction that is none, ArgumentError, DeviceError.
    """
    if copies < 1 or copies > 10_000:
        raise ArgumentError(f"copies {copies}; it is a whole number from 1 to 10,000")
    start = time.monotonic()
    models: list[Model] = []
    found: list[list[Option]] = []
    devices: list[str] = []
    decisions: dict[str, Decision] = {}
    notes: list[str] = []
    for path, prediction in predictions:
        content = _PREDICTION.take(prediction, f"the prediction of {path}")
        target = find_device(content["workload"]["device"])
        whole = target.parent or target.id
        if whole not in devices:
            devices.append(whole)
        name = _name(path, [m.name for m in models])
        how = {key: content["workload"][key] for key in _DEPLOYED if key in content["workload"]}
        pool = devices.index(whole)
        if "decision" not in content:
            models.append(Model(name, path, options=how, copies=copies))
            notes.append(f"{name} {_NO_SLICES}")
            found.append([_option(content, target.id, whole, pool)])
            continue
        decision = Decision.from_dict(content["decision"], f"the decision of {path}")
        decision = decision.under(replace(decision.limits, **(limits or {})))
        decisions[name] = decision
        models.append(Model(name, path, options=how, copies=copies, latency_ms=decision.limits.latency_ms))
        found.append([_placed(one, decision.limits, whole, pool) for one in (*decision.slices, decision.place)])
    if decisions and not any(one.limits.stated for one in decisions.values()):
        notes.append(_NO_TARGET)
    notes += [f"{name}: {one.headline}" for name, one in decisions.items()]
    # One confidence serves all: the highest that is asked for.
    sure = max((one.limits.confidence for one in decisions.values()), default=CONFIDENCE)
    pools = tuple(Pool(find_device(name), copies * len(models)) for name in devices)
    fleet = Fleet(pools, tuple(models), confidence=sure)
    return pack_options(fleet, found, time_limit_s=time_limit_s, notes=tuple(notes), start=start)


def _name(path: str, taken: Sequence[str]) -> str:
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(path).stem).strip("-._")[:50] or "model"
    same = sum(1 for name in taken if name == plain or name.startswith(f"{plain}-"))
    return f"{plain}-{same + 1}" if plain in taken else plain


def _placed(place: Place, limits: Limits, whole: str, pool: int) -> Option:
    """The option that a place of a decision is. Raises FormatError for a place without times or of another device."""
    device = find_device(place.device)
    if (device.parent or device.id) != whole or place.latency_ms is None or place.throughput_per_s is None:
        raise FormatError(f"a decision has {place.device} without times, or beside {whole}; annotate or build anew")
    each = place.probabilities(limits)
    p_fits = min(each.pop("fits"), each.pop("memory_bytes", 1.0))
    return Option(
        pool=pool,
        profile=device.mig_profile or WHOLE,
        processes=1,
        latency_ms=place.latency_ms,
        rate_per_s=assured(place.throughput_per_s, limits.confidence),
        p_meets=together(each.values()),
        p_fits=p_fits,
        memory_bytes=place.memory_bytes,
        available_bytes=place.available_bytes,
        support=place.support,
    )


def _option(content: Mapping[str, Any], device: str, whole: str, pool: int) -> Option:
    target, gpu = find_device(device), find_device(whole)
    profile = target.mig_profile or content["mig"]["profile"] or WHOLE
    if profile != WHOLE and gpu.mig is None:
        raise FormatError(f"a prediction names the MIG profile {profile} of {gpu.name}, which has no MIG")
    instance = gpu if profile == WHOLE else gpu.mig_slice(profile)
    memory = _interval(content["peak_memory_bytes"])
    # The driver's share is in what a whole GPU has in use, and not in a slice's memory.
    available = instance.usable_bytes + (driver_bytes(target) - driver_bytes(instance))
    return Option(
        pool=pool,
        profile=profile,
        processes=1,
        latency_ms=_interval(content["latency_ms"]),
        rate_per_s=content["throughput_per_s"]["low"],
        p_meets=1.0,
        p_fits=MemoryFigures(memory).probability_fits(available),
        memory_bytes=memory,
        available_bytes=int(available),
        support=content["support"]["level"],
    )


def _interval(found: Mapping[str, Any]) -> Interval:
    coverage = {"coverage": found["coverage"]} if "coverage" in found else {}
    return Interval(found["median"], found["low"], found["high"], found["unit"], **coverage)
