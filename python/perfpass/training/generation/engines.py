"""Fits the habits of engines that run without a server on what was measured of them, and how wide their times are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from perfpass.devices import device as find_device
from perfpass.llm.costs import peak_flops
from perfpass.predictors.generation.engines import (
    CAUSES,
    ENGINES,
    LLAMA_CPP,
    least,
    middle,
    seconds,
    standing_in,
)
from perfpass.predictors.generation.habits import KINDS_OF_ENGINES, SHARES, Habits, Parts
from perfpass.predictors.learned.spread import Spread
from perfpass.training import spread
from perfpass.training.generation.engine_runs import NEWEST, Run, load, reached_by_vllm
from perfpass.training.spread import Errors

# How far a fit may leave `KINDS_OF_ENGINES` (of logits of shares, of logarithms of the others). By hand.
_LOOSE: Mapping[str, float] = {
    "weights": 0.5, "packed": 0.7, "cache": 0.7, "flops": 0.5, "packed_flops": 0.7, "link": 0.7, "host": 0.7,
    "streamed": 0.5, "again": 0.7, "activations": 0.7, "host_intensity": 0.7, "kernel_s": 0.7, "message_s": 0.5,
    "layer_s": 0.4, "packed_s": 1.0, "experts_s": 1.0, "step_s": 0.7, "request_s": 1.0,
}  # fmt: skip
# What a measurement is taken to be off by; errors far beyond it count by their size alone.
_NOISE = 0.12
# Log half-widths that fits are drawn to. By hand: a laboratory's host and software may be a third faster or slower.
WIDTHS = {
    "measurement": 0.1, "builds": 0.2, "model": 0.15, "device": 0.2, "laboratory": 0.25, "engine": 0.4,
    "stacked memory": 0.8, "file type": 0.2, "host": 0.4, "prompts": 0.5, "depth": 0.3,
}  # fmt: skip
_WIDTH_ROWS = 40
_RANDOM_PARTS = 5
KINDS = ("token", "prompt")
_WITH_HBM = ("(HBM)", "(Instinct)")


@dataclass(frozen=True)
class Table:
    """The steps of N runs in a row."""

    parts: Parts
    count: np.ndarray
    run: np.ndarray
    runs: int

    @classmethod
    def of(cls, runs: Sequence[Run]) -> Table:
        """All steps of ``runs``."""
        flat = [(i, count, parts) for i, r in enumerate(runs) for count, parts in r.steps]
        run, count, parts = zip(*flat, strict=True)
        return cls(Parts.joined(parts), np.array(count, dtype=np.float64), np.array(run), len(runs))

    def seconds(self, habits: Habits) -> np.ndarray:
        """[runs]"""
        return np.bincount(self.run, weights=self.count * self.parts.seconds(habits), minlength=self.runs)


def fit(runs: Sequence[Run], prior: Habits) -> Habits:
    """The habits that runs and what is taken beforehand make likely; errors count by their root where they are large.

    Runs of one model, device and kind of time share the weight of the root of their number.
    """
    from scipy.optimize import least_squares

    table, measured = Table.of(runs), np.log([r.seconds for r in runs])
    names = np.array([f"{r.kind}|{r.model}|{r.device}|{r.source}|{r.packed}" for r in runs])
    _, inverse, count = np.unique(names, return_inverse=True, return_counts=True)
    weight = count[inverse] ** -0.25
    origin = _coordinates(prior)
    loose = np.array([_LOOSE[f.name] for f in fields(Habits)])

    def residual(theta: np.ndarray) -> np.ndarray:
        off = (np.log(table.seconds(_habits(theta))) - measured) / _NOISE
        bent = np.sign(off) * np.sqrt(2.0 * (np.sqrt(1.0 + off**2) - 1.0))
        return np.concatenate([weight * bent, (theta - origin) / loose])

    return _habits(least_squares(residual, origin, x_scale=loose, max_nfev=200).x)


def _coordinates(habits: Habits) -> np.ndarray:
    return np.array([np.log(v / (1.0 - v)) if n in SHARES else np.log(v) for n, v in vars(habits).items()])


def _habits(theta: np.ndarray) -> Habits:
    names = (f.name for f in fields(Habits))
    return Habits(
        *(float(1 / (1 + np.exp(-v)) if n in SHARES else np.exp(v)) for n, v in zip(names, theta, strict=True))
    )


def by_engine(runs: Sequence[Run]) -> dict[str, Habits]:
    """`fit` of each engine."""
    return {n: _own([r for r in runs if r.engine == n]) for n in sorted({r.engine for r in runs})}


def _own(runs: Sequence[Run]) -> Habits:
    return fit(runs, KINDS_OF_ENGINES[ENGINES[runs[0].engine].kind])


# What tells of prompts alone.
_OF_PROMPTS = ("flops", "packed_flops", "again", "activations", "request_s")


def today(habits: Mapping[str, Habits], runs: Sequence[Run], vllm_flops: float) -> dict[str, Habits]:
    """Habits as they ship. An engine whose prompts were not timed takes them as those that it is like. Of llama.cpp,
    kernels are issued as in the newest builds, not as years ago; and NVIDIA's boards multiply 16 bits as with vLLM.
    """
    timed = {r.engine for r in runs if r.kind == "prompt"}
    newest = [n for n in habits if any(r.engine == n and r.source == NEWEST for r in runs)]
    out = dict(habits)
    for name, own in habits.items():
        like = [habits[n] for n in ENGINES[name].like if n in timed]
        if name not in timed and like:
            found = middle(like)
            own = replace(own, **{habit: getattr(found, habit) for habit in _OF_PROMPTS})
        if name.startswith(LLAMA_CPP) and name not in newest and newest:
            kernel_s = min(own.kernel_s, middle([habits[n] for n in newest]).kernel_s)
            own = replace(own, kernel_s=kernel_s, flops=vllm_flops if "CUDA" in name else own.flops)
        if not any(r.packed for r in runs if r.engine == name):  # packed weights are read no better than others
            own = replace(own, packed=min(own.packed, own.weights))
        out[name] = own
    return out


def vector_share(habits: Mapping[str, Habits], runs: Sequence[Run]) -> float:
    """The share of the fp32 peak that llama.cpp's prompts reach on devices without matrix units: half way, in
    logarithms, from what those with them reach of their fp32 peak to all of it.
    """
    out = []
    for name in sorted(habits):
        own = [r for r in runs if r.engine == name and r.kind == "prompt"]
        if name.startswith(LLAMA_CPP) and own:
            peaks = [find_device(board).peak_flops for board in sorted({r.device for r in own})]
            out += [min(habits[name].packed_flops * peak_flops(p, "fp16") / p["fp32"], 1.0) for p in peaks]
    return float(np.sqrt(np.median(out))) if out else 0.5


@dataclass(frozen=True)
class Held:
    """A run, what was said of it by others, what that lacked, and what was left out ("split:engine, name").

    Beside it what plain means say: ``roofline_s``, the least time times what others took over theirs in the middle;
    ``copied_s``, the most alike of the others, scaled by the least times.
    """

    run: Run
    seconds: float
    roofline_s: float
    copied_s: float
    lacks: Mapping[str, float]
    left: str


def held_out(runs: Sequence[Run]) -> list[Held]:
    """Each run as others tell it: rows, models, devices, sources and engines left out."""
    out: list[Held] = []
    for name in sorted({r.engine for r in runs}):
        own = [r for r in runs if r.engine == name]
        out += _parts_left_out(own, "known", lambda r: str(_part(r)))
        splits: tuple[tuple[str, Callable[[Run], str]], ...] = (
            ("model", lambda r: r.model),
            ("device", lambda r: r.device),
            ("source", lambda r: r.source),
        )
        for split, key in splits:
            if len({key(r) for r in own}) > 1:
                out += _parts_left_out(own, split, key)
    known = by_engine(runs)
    for name in sorted(known):
        pooled = standing_in(name, {n: h for n, h in known.items() if n != name and not _twins(n, name)})
        others = [r for r in runs if r.engine != name and not _twins(r.engine, name)]
        out += _judged(
            [r for r in runs if r.engine == name], others, pooled, f"engine:{name}", engine=1.0, **_stacked(name)
        )
    return out


def _twins(one: str, other: str) -> bool:
    """Whether two engines are one software with other kernels."""
    return {one, other} == {"transformers", "bitsandbytes"}


def _stacked(name: str) -> dict[str, float]:
    return {"stacked memory": 1.0} if name.startswith(LLAMA_CPP) and name.endswith(_WITH_HBM) else {}


def _part(run: Run) -> int:
    return sum(f"{run.model}{run.device}{run.seconds:.6g}".encode()) % _RANDOM_PARTS


_LACKS = {"known": {}, "model": {"model": 1.0}, "device": {"device": 1.0}, "source": {"laboratory": 1.0}}


def _parts_left_out(own: Sequence[Run], split: str, key: Callable[[Run], str]) -> Iterable[Held]:
    out: list[Held] = []
    for name in sorted({key(r) for r in own}):
        left, others = [r for r in own if key(r) == name], [r for r in own if key(r) != name]
        if not others:
            continue
        lacks = dict(_LACKS[split])
        if split == "source":  # what else the other laboratory did not measure
            lacks["device"] = float(not {r.device for r in left} & {r.device for r in others})
        out += _judged(left, others, _own(others), f"{split}:{own[0].engine}, {name}", **lacks)
    return out


def _judged(own: Sequence[Run], others: Sequence[Run], habits: Habits, left: str, **lacks: float) -> list[Held]:
    found = {**dict.fromkeys(CAUSES, 0.0), "measurement": 1.0, **lacks}
    found["builds"] = float(any(r.engine.startswith(LLAMA_CPP) for r in own))
    out = []
    for kind in KINDS:
        asked, known = ([r for r in runs if r.kind == kind] for runs in (own, others))
        known = known or list(others)
        floors = np.array([least(r.steps) for r in known])
        ratios = np.array([r.seconds for r in known]) / floors
        for r in asked:
            floor = least(r.steps)
            far = np.abs(np.log(floors / floor))
            far += [1.0 * (k.model != r.model) + 1.0 * (k.device != r.device) + (k.packed != r.packed) for k in known]
            copied = float(floor * ratios[np.argmin(far)])
            out.append(Held(r, seconds(r.steps, habits), float(floor * np.median(ratios)), copied, found, left))
    return out


def errors_of(held: Sequence[Held], kind: str) -> Errors:
    """Errors of a kind of time."""
    own = [h for h in held if h.run.kind == kind]
    lacks = {cause: np.array([h.lacks[cause] for h in own]) for cause in CAUSES}
    residual = np.log([h.run.seconds / h.seconds for h in own])
    return Errors.of(residual, lacks, np.array([h.left for h in own], dtype=object))


def widths(errors: Errors) -> Spread:
    """The widths that ship, of one kind of time."""
    return spread.fit(errors.thinned(_WIDTH_ROWS), WIDTHS)


def section(folder: str | None = None) -> dict[str, Any]:
    """The habits and widths that ship, for the artefact's manifest."""
    runs = load(folder)
    held = held_out(runs)
    habits = today(by_engine(runs), runs, reached_by_vllm(folder))
    measured = {}
    for name in sorted(habits):
        own = [r for r in runs if r.engine == name]
        measured[name] = {
            "devices": sorted({r.device for r in own}),
            "models": sorted({r.model for r in own}),
            "files": sorted({"packed" if r.packed else "plain" for r in own}),
            "kinds": sorted({r.kind for r in own}),
        }
    return {
        "habits": {name: found.to_dict() for name, found in habits.items()},
        "vector": round(vector_share(habits, runs), 4),
        "measured": measured,
        "spread": {kind: widths(errors_of(held, kind)).to_dict() for kind in KINDS},
        "corpus": {
            "name": "public runs of these engines (docs/predictors/generation.md)",
            "sources": sorted({r.source for r in runs}),
            "rows": len(runs),
            "models": sorted({r.model for r in runs}),
            "devices": sorted({r.device for r in runs}),
            "runtimes": sorted(habits),
        },
    }
