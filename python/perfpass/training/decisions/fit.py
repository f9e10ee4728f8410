"""P(fits) against measured memory: Brier score, reliability, and the decisions made of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.deploy.fit import Load, Settings, Subject, need, shown_in_use
from perfpass.devices import catalogue, device
from perfpass.errors import PerfPassError
from perfpass.llm import language_model
from perfpass.prediction import Interval, MemoryFigures
from perfpass.records import schema
from perfpass.records.location import data_directory
from perfpass.training.llm_training import memory as held_beside
from perfpass.training.llm_training.evaluate import load as load_training
from perfpass.training.memory import dataset, sources
from perfpass.training.memory.fit import fit as fit_contexts
from perfpass.training.memory.fit import nvidia_contexts
from perfpass.training.section import Line, Section, Table

CONFIDENCE = 0.9
_MIB = 2.0**20
_DECILES = np.linspace(0.0, 1.0, 11)
_SPLITS = ("source", "network", "laboratory")
_METRICS = {"memory GiB": "memory held, training of language models"}
# Runtimes of the records by the one that is asked: each takes what it needs, and fills no share of a device.
_HOLD = {"llama.cpp": "llama.cpp", "torch": "transformers", "exllama": "llama.cpp", "exllamav2": "llama.cpp"}
_ASKED = {"argonne": ("vllm", "trtllm", "llama.cpp"), "mlenergy": ("vllm",), "splitwise": ("vllm",)}


@dataclass
class _Collected(Section):
    """A section that keeps the rows behind its lines: (metric, split, judged on, predicted, measured, low, high)."""

    kept: list[tuple[Any, ...]] = field(default_factory=list)

    def add(self, metric: str, split: str, method: str, judged_on: str, *values: Any, **named: Any) -> Line:
        """As that of `Section`."""
        if method == "perfpass" and len(values) >= 4:
            self.kept.append((metric, split, judged_on, *values[:4]))
        return super().add(metric, split, method, judged_on, *values, **named)


@dataclass(frozen=True, eq=False)
class Asked:
    """[N] questions of one kind: P(fits), whether it did, what the median alone says, the weight of each, and whether
    the limit is within the bounds, so that no is not said. ``reached`` [runs]: P(fits) of just what was measured.
    """

    what: str
    split: str
    runs: int
    probability: np.ndarray
    fits: np.ndarray
    by_median: np.ndarray
    weight: np.ndarray
    possible: np.ndarray
    reached: np.ndarray


def limits_mib() -> np.ndarray:
    """The memory of every GPU of the catalogue and of every slice of one, each size once, in MiB, rising."""
    found: set[float] = set()
    for one in catalogue():
        if one.is_gpu:
            found.add(round(one.usable_bytes / _MIB))
            found |= {round(profile.memory_bytes / _MIB) for profile in (one.mig.profiles if one.mig else ())}
    return np.array(sorted(found), dtype=np.float64)


def questions(folder: Path | None = None) -> Iterator[Asked]:
    """Of every laboratory and runtime. Raises FileError and FormatError."""
    collected = _Collected("memory", "", "")
    rows, _ = dataset.load(folder)
    sources.add(collected, nvidia_contexts(rows, fit_contexts(rows)), folder)
    yield from _kept(collected)
    yield from _language(folder)
    collected = _Collected("llm_training", "", "")
    held_beside.grade(collected, load_training(None if folder is None else str(folder)))
    yield from _kept(collected)


def _kept(collected: _Collected) -> Iterator[Asked]:
    """Of the lines of an area whose laboratory, or network, was left out."""
    for metric, split, judged_on, *values in collected.kept:
        if split in _SPLITS and judged_on != "all":
            unit = 1024.0 if "GiB" in metric else 1.0
            median, measured, low, high = (unit * np.asarray(value) for value in values)
            bounds = zip(np.minimum(low, median), median, np.maximum(high, median), strict=True)
            figures = [MemoryFigures(Interval(m, lo, hi, "MiB")) for lo, m, hi in bounds]
            what = f"{_METRICS.get(metric, metric.partition(' (')[0])}: {judged_on}"
            yield _asked(what, split, [f.in_use for f in figures], measured, [f.probability_fits for f in figures])


def _asked(
    what: str, split: str, said: Sequence[Interval], measured: Any, chances: Sequence[Callable[[float], float]]
) -> Asked:
    """The questions of N runs (MiB): of each, the limits near what is ``said`` of it."""
    limits = limits_mib()
    found: list[tuple[float, bool, bool, float, bool]] = []
    for one, came, chance in zip(said, measured, chances, strict=True):
        near = limits[(limits >= one.median / 2) & (limits <= 2 * one.median)]
        found += [
            (chance(float(limit)), came <= limit, one.median <= limit, 1.0 / len(near), one.low <= limit)
            for limit in near
        ]
    table = np.array(found, dtype=np.float64).reshape(-1, 5)
    probability, fitted, by_median, weight, possible = table.T
    reached = np.array([chance(float(came)) for came, chance in zip(measured, chances, strict=True)])
    return Asked(what, split, len(said), probability, fitted, by_median, weight, possible > 0, reached)


def _language(folder: Path | None) -> Iterator[Asked]:
    """Batches of language models whose memory was measured, by the count of `perfpass fit` itself."""
    base = (Path(folder) if folder else data_directory()) / "records"
    rows = schema.read(base / "generation_outside.parquet", "generation")
    rows = rows[rows.runtime.isin(list(_HOLD)) & (rows.peak_memory_bytes > 0) & (rows.precision != "")]
    rows = rows[~(rows.runtime.str.startswith("exllama") & (rows.input_tokens < 1))]  # of a full context
    for (runtime, source), part in rows.groupby(["runtime", "source"]):
        said, measured = [], []
        for row in part.itertuples():
            found = _counted(
                row.network or row.model,
                row.device,
                _HOLD[row.runtime],
                max(int(row.n_devices), 1),
                max(int(row.batch), 1) if runtime == "torch" else 1,
                max(1, max(int(row.input_tokens), 0) + max(int(row.context_tokens), 0)),
                max(int(row.output_tokens), 1),
                row.precision,
            )
            if found is not None:
                said.append(found)
                measured.append(row.peak_memory_bytes / _MIB)
        if said:
            what = f"memory in use, language models: {runtime}, {source}"
            yield _asked(what, "none fitted", said, measured, [one.probability_fits for one in said])


@lru_cache(maxsize=1 << 13)
def _counted(
    name: str, on: str, runtime: str, devices: int, batch: int, prompt: int, answer: int, precision: str
) -> Interval | None:
    """What the device shows in use, in MiB; None where the question cannot be asked."""
    try:
        subject = Subject(name, language_model(name))
        settings = Settings(runtime, pp=devices, precision=precision)
        load, target = Load(prompt + answer, batch, answer), device(on)
        shown, _ = shown_in_use(subject, target, settings, load, need(subject, target, settings, load))
    except PerfPassError:
        return None
    return Interval(shown.median / _MIB, shown.low / _MIB, shown.high / _MIB, "MiB", shown.coverage)


def _mean(values: np.ndarray, weight: np.ndarray) -> float:
    return float(np.average(values, weights=weight)) if weight.sum() > 0 else float("nan")


def _row(asked: Asked) -> tuple[Any, ...]:
    p, came, w = asked.probability, asked.fits, asked.weight
    yes, no = p >= CONFIDENCE, (p <= 1 - CONFIDENCE) & ~asked.possible
    return (
        asked.what,
        asked.split,
        asked.runs,
        _mean((p - came) ** 2, w),
        _mean((asked.by_median - came) ** 2, w),
        100 * _mean(p, w),
        100 * _mean(came, w),
        100 * _mean(1 - came[yes], w[yes]) if yes.any() else None,
        100 * _mean(came[no], w[no]) if no.any() else None,
        100 * _mean((~yes & ~no).astype(float), w),
    )


def add(section: Section, folder: Path | None = None) -> None:
    """Tables of P(fits), and of runs that are known to have fitted."""
    every = list(questions(folder))
    heads = ("P(fits) of", "left out", "runs", "Brier", "Brier, median alone", "mean P %", "came %")
    last = ("fits, wrong %", "does not, wrong %", "cannot say %")
    # Every laboratory and runtime counts alike in the sum.
    pooled = Asked(
        "all, every line alike",
        "",
        sum(a.runs for a in every),
        np.concatenate([a.probability for a in every]),
        np.concatenate([a.fits for a in every]),
        np.concatenate([a.by_median for a in every]),
        np.concatenate([a.weight / a.weight.sum() for a in every]),
        np.concatenate([a.possible for a in every]),
        np.concatenate([a.reached for a in every]),
    )
    section.corpus = {"runs": pooled.runs, "questions": len(pooled.weight), "limits": len(limits_mib())}
    section.tables.append(Table("P(fits), by laboratory", (*heads, *last), tuple(_row(a) for a in (*every, pooled))))
    section.tables.append(_reliability(every))
    section.told = [_told(asked) for asked in (*every, pooled)]
    section.tables.append(_reached(every))
    section.tables.append(_ran(folder))


def _reliability(every: Sequence[Asked]) -> Table:
    """The diagram as numbers: of the answers in each tenth, how often it did fit; and how much of it one line is."""
    rows = []
    for low, high in itertools.pairwise(_DECILES):
        parts = []  # of each line: its weight in this tenth, and what it said and what came, times it
        questions = 0
        for asked in every:
            here = (asked.probability >= low) & ((asked.probability < high) | (high == 1.0))
            w = asked.weight[here] / asked.weight.sum()
            questions += int(here.sum())
            if here.any():
                parts.append((w.sum(), w @ asked.probability[here], w @ asked.fits[here]))
        if parts:
            found = np.array(parts)
            weight, said, came = found.sum(axis=0)
            largest = int(np.argmax(found[:, 0]))
            others = np.delete(found, largest, axis=0).sum(axis=0)
            rows.append(
                (
                    f"{low:.1f} to {high:.1f}",
                    questions,
                    100 * said / weight,
                    100 * came / weight,
                    len(parts),
                    100 * found[largest, 0] / weight,
                    100 * others[2] / others[0] if len(parts) > 1 else None,
                )
            )
    heads = ("P(fits)", "questions", "said %", "came %", "lines", "the largest line's share %", "came without it %")
    return Table("Reliability of P(fits), every line alike", heads, tuple(rows))


def _told(asked: Asked) -> dict[str, Any]:
    """A curve of the reliability diagram: of each tenth of P that has a hundredth of the questions, said and came."""
    place = np.clip(np.digitize(asked.probability, _DECILES) - 1, 0, len(_DECILES) - 2)
    share = np.bincount(place, asked.weight) / asked.weight.sum()
    here = np.flatnonzero(share >= 0.01)
    said, came = (np.bincount(place, asked.weight * of) for of in (asked.probability, asked.fits))
    total = share[here] * asked.weight.sum()
    return {
        "line": asked.what,
        "runs": asked.runs,
        "said_pct": (100 * said[here] / total).tolist(),
        "came_pct": (100 * came[here] / total).tolist(),
        "share_pct": (100 * share[here]).tolist(),
        "reached_pct": (100 * np.quantile(asked.reached, (0.1, 0.5, 0.9))).tolist(),
    }


def _reached(every: Sequence[Asked]) -> Table:
    """How far up P each line lies, one after the other: what is honest is spread as evenly as lines can be."""
    rows = [
        (
            asked.what,
            asked.runs,
            *(100 * float(q) for q in np.quantile(asked.reached, (0.1, 0.5, 0.9))),
            100 * (place + 0.5) / len(every),
        )
        for place, asked in enumerate(sorted(every, key=lambda asked: float(np.median(asked.reached))))
    ]
    heads = ("P(fits) of what was measured, in %", "runs", "tenth run", "middle run", "nine in ten", "evenly spread")
    return Table("Where each line lies", heads, tuple(rows))


def _ran(folder: Path | None) -> Table:
    """Servers and batches of language models that ran: what `perfpass fit` says of one request, default settings."""
    base = (Path(folder) if folder else data_directory()) / "records"
    rows = schema.read(base / "generation.parquet", "generation")
    keys = ["source", "model", "device", "n_devices", "runtime", "precision", "input_tokens", "output_tokens"]
    found: dict[tuple[str, str], list[tuple[float, str]]] = {}
    for row in rows[keys].drop_duplicates().itertuples():
        if row.runtime not in _ASKED.get(row.source, ()):
            continue
        try:
            language = language_model(row.model)
            settings = Settings(row.runtime, tp=max(1, int(row.n_devices)), precision=row.precision or None)
            context = max(1, int(row.input_tokens)) + max(0, int(row.output_tokens))
            one = need(Subject(row.model, language), device(row.device), settings, Load(context))
        except PerfPassError:
            continue
        found.setdefault((row.source, row.runtime), []).append((one.probability, one.answer(CONFIDENCE)))
    out = []
    for (source, runtime), said in sorted(found.items()):
        mean = 100 * float(np.mean([p for p, _ in said]))
        no, unsure = (100 * float(np.mean([a == what for _, a in said])) for what in ("no", "cannot say"))
        out.append((f"{source}, {runtime}", len(said), mean, no, unsure))
    heads = ("ran, one request by default settings", "configurations", "mean P %", "does not, wrong %", "cannot say %")
    return Table("Configurations that ran", heads, tuple(out))
