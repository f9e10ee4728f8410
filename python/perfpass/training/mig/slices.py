"""Which slice is chosen for a workload, graded on the MIG records: right, too small, too large.

A question is a network, a batch, a number of processes and a target; the measured answer is the smallest slice on which
it ran within the target. The network itself is left out of the fit that answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.devices import device
from perfpass.measure.configuration import Configuration
from perfpass.prediction import Interval, MemoryFigures
from perfpass.predictors.assemble import peak_memory, predict_graph
from perfpass.predictors.mig.latency import CAUSES, MigModel, Work, unlike, work_of
from perfpass.predictors.mig.profile import dippm_rule
from perfpass.records import own_device, schema
from perfpass.records.location import data_directory
from perfpass.training.mig import widths
from perfpass.training.mig.dataset import LANGUAGE_MODEL, TOKENS, Dataset, counted
from perfpass.training.mig.fit import fit

# From small to large; two of equal memory by their compute slices.
PROFILES = ("1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")
# What DIPPM's rule says of an A100 40 GB, on the 80 GB board: the same slices, twice the memory.
_AS_80GB = {"1g.5gb": "1g.10gb", "2g.10gb": "2g.20gb", "3g.20gb": "3g.40gb", "7g.40gb": "7g.80gb"}
TARGETS_MS = (10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
CONFIDENCE, MEMORY_CONFIDENCE = 0.9, 0.98  # those of `perfpass pack`

_BOARD = "a100-sxm4-80gb"  # of all records
_TRACED = (2, 3)  # batches whose graphs give those of all others
# The source's script of the networks leaves autograd on and holds the last output until the next one is there
# (scripts/dl_infer_runtime.py: `output = model(images_gpu)` in a loop): two graphs are alive at the end of a run. That
# of BERT does not: 256 sequences of it ran in 3.9 GiB.
_GRAPHS_ALIVE = 2

Key = tuple[str, int, int]  # network, batch, processes


def grades(data: Dataset, held: Mapping[str, widths.Held], folder: Path | str | None) -> list[dict[str, Any]]:
    """By rule and kind of question: how many questions, and how often the slice was right, too small, too large."""
    root = Path(folder) if folder else data_directory()
    rows = schema.read(root / "records" / "mig.parquet", "mig").reset_index(drop=True)
    low_ms, median_ms, high_ms = _latency(rows, data, held, folder)
    memory = _memory(rows)
    measured: dict[Key, dict[str, float]] = {}
    answers: dict[Key, dict[str, int]] = {}
    for at, row in enumerate(rows.itertuples()):
        key = (row.model, int(row.batch), int(row.processes))
        measured.setdefault(key, {})[row.mig_profile] = float(row.latency_ms) if row.fits else np.inf
        answers.setdefault(key, {})[row.mig_profile] = at

    def ours(key: Key, target: float) -> str | None:
        for profile in PROFILES:
            at = answers[key].get(profile)
            if at is None:
                continue
            meets = Interval(median_ms[at], low_ms[at], high_ms[at], "ms").probability_below(target)
            each = device(f"{_BOARD}:{profile}").memory_bytes / key[2]
            fits = MemoryFigures(memory[key[:2]][profile]).probability_fits(each)
            if meets >= CONFIDENCE and fits >= MEMORY_CONFIDENCE:
                return profile
        return None

    def by_median(key: Key, target: float) -> str | None:
        for profile in PROFILES:
            at = answers[key].get(profile)
            each = device(f"{_BOARD}:{profile}").memory_bytes / key[2]
            if at is not None and median_ms[at] <= target and memory[key[:2]][profile].median <= each:
                return profile
        return None

    def four_thresholds(key: Key, target: float) -> str | None:
        found = dippm_rule(key[2] * memory[key[:2]]["7g.80gb"].median / 2)
        return None if found is None else _AS_80GB[found]

    rules = {"perfpass pack": ours, "medians alone": by_median, "DIPPM's four thresholds": four_thresholds}
    return [
        {"question": question, "rule": name, **_graded(measured, targets, rule)}
        for question, targets in (("fits", (np.inf,)), ("fits and meets", TARGETS_MS))
        for name, rule in rules.items()
    ]


def _graded(
    measured: Mapping[Key, Mapping[str, float]],
    targets: tuple[float, ...],
    rule: Callable[[Key, float], str | None],
) -> dict[str, int]:
    found = dict.fromkeys(("asked", "right", "too_small", "too_large", "given_up"), 0)
    for key, latency in measured.items():
        for target in targets:
            good = [p for p in PROFILES if latency.get(p, np.inf) <= target and np.isfinite(latency.get(p, np.inf))]
            chosen = rule(key, target)
            found["asked"] += 1
            if chosen == (good[0] if good else None):
                found["right"] += 1
            elif chosen is None:
                found["given_up"] += 1
            elif chosen not in good:
                found["too_small"] += 1
            else:
                found["too_large"] += 1
    return found


def _latency(
    rows: Any, data: Dataset, held: Mapping[str, widths.Held], folder: Path | str | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """[N] ms of every row, also of those that did not run: low, median, high, by fits without the row's network."""
    work = Work.stacked([work_of(table, way, int(row.processes)) for row, table, way in counted(rows, folder)])
    names = rows.model.to_numpy().astype(str)
    networks = widths.networks(data)
    out = np.empty((3, len(rows)))
    for name in np.unique(names):
        train = np.flatnonzero((data.model != LANGUAGE_MODEL) & (data.model != name))
        model: MigModel = fit(data.work.take(train), data.latency_s[train])
        own = np.flatnonzero(data.model == name)
        errors = [h.errors.take(~np.isin(h.rows, own)) for h in held.values()]
        spread = widths.fit([e for e in errors if len(e)])
        judged = names == name
        mine = work.take(judged)
        others = np.stack([shares for known, shares in networks if known != name])
        lacks = dict.fromkeys(CAUSES, np.zeros(int(judged.sum()))) | {"measurement": np.ones(int(judged.sum()))}
        lacks["network"] = unlike(mine.group_s, others)
        low, high = spread.bounds(lacks)
        ms = 1e3 * model.seconds(mine)
        out[:, judged] = ms * np.exp(low), ms, ms * np.exp(high)
    return out[0], out[1], out[2]


def _memory(rows: Any) -> dict[tuple[str, int], dict[str, Interval]]:
    """Bytes in use of one process, by network and batch and slice."""
    from perfpass.graph import at_batch

    found: dict[tuple[str, int], dict[str, Interval]] = {}
    for name in sorted(set(rows.model)):
        language = name == LANGUAGE_MODEL
        sizes: dict[str, Any] = {"sequence_length": TOKENS} if language else {"image_size": 224}
        source = f"{'hf' if language else 'torchvision'}:{name}"
        two = [
            own_device.graph_of(Configuration(model=source, batch=b, device="cuda", **sizes)) for b in _TRACED
        ]  # fmt: skip
        for batch in sorted(set(rows.batch[rows.model == name])):
            larger = at_batch(two[0], two[1], _TRACED, int(batch))
            kept = 0.0
            if not language:
                kept = predict_graph(larger, _BOARD, batch=int(batch)).memory.gradients_bytes or 0.0
            found[name, int(batch)] = {
                p: _more(peak_memory(larger, f"{_BOARD}:{p}", batch=int(batch)), _GRAPHS_ALIVE * kept) for p in PROFILES
            }
    return found


def _more(found: Interval, counted: float) -> Interval:
    """With so many bytes more, which are counted and not learned."""
    low, median, high = (bound + counted for bound in (found.low, found.median, found.high))
    return Interval(median, low, high, found.unit, found.coverage)
