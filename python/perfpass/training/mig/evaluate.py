"""Grading of latency in MIG slices shared by processes: random rows, networks left out, a language model left out."""

from __future__ import annotations

from typing import Any

import numpy as np

from perfpass.predictors.mig.latency import MigModel
from perfpass.training.mig import slices, widths
from perfpass.training.mig.dataset import LANGUAGE_MODEL, Dataset, load
from perfpass.training.mig.fit import fit, vision_efficiency
from perfpass.training.section import Section

_METRIC, _UNIT, _AIM = "latency in a slice", "ms", 10.0
_INTRO = """ParvaGPU: inference in one MIG instance of an A100 80 GB (1g to 7g) that 1 to 5 MPS processes share, batch 1
to 256; the time holds the copy of the input, is not synchronised, and is taken from the throughput, because latencies
are whole milliseconds. Ten torchvision networks and BERT-large. The networks (not their times in slices) are known to
the vision predictor, whose efficiencies the fit starts from. BERT-large is the only language model: its host spends
some 2 ms a sample that no other model shows, so it is also graded apart. Bounds: 90 %, widths by causes
from what else was held out alone; a user's laboratory, another one, adds its width to them.

Slices: for every network, batch and number of processes the smallest slice on which it ran (`fits`), and within targets
of 10 ms to 1 s (`fits and meets`), against what `perfpass pack` chooses by P(meets) and P(fits), what medians would
choose, and DIPPM's four thresholds on predicted memory (twice their size on this board). Memory is that of networks
with autograd left on and the last output held, as the source ran them. Too small: it did not run, or missed the
target. Given up: none was chosen though one would do."""


def evaluate(folder: str | None = None, seed: int = 0, *, quiet: bool = False) -> Section:
    """Grade random rows, networks left out, and BERT-large left out. Raises FileError."""
    data = load(folder)
    section = Section("mig", "MIG slices shared by processes", _INTRO)
    section.corpus = {"rows": len(data.latency_s), "did not run": data.refused, "models": len(set(data.model))}
    held = widths.hold_out(data, seed)
    _add(section, "random", "networks", held, "random", data, None)
    _add(section, "model", "networks", held, "model", data, _AIM)
    networks, predicted = held["model"].rows, held["model"].predicted
    work, measured, names = data.work.take(networks), data.latency_s[networks], data.model[networks]
    section.add_worst_groups(_METRIC, "model", "model", names.tolist(), predicted * 1e3, measured * 1e3)
    rows = data.rows.iloc[networks]
    section.add_worst_groups(_METRIC, "model", "profile", rows.mig_profile, predicted * 1e3, measured * 1e3)
    section.add_worst_groups(_METRIC, "model", "processes", rows.processes, predicted * 1e3, measured * 1e3)
    section.add_points(_METRIC, _UNIT, "model", names.tolist(), predicted * 1e3, measured * 1e3)
    whole = MigModel(fit(work, measured).parameters, vision_efficiency())
    rate = _rate_only(work, measured, names)
    section.add(_METRIC, "model", "roofline x processes x one rate", "networks", rate * 1e3, measured * 1e3)
    unfitted = whole.seconds(work)
    section.add(_METRIC, "none", "efficiencies of vision unchanged", "networks", unfitted * 1e3, measured * 1e3)
    _add(section, "model", LANGUAGE_MODEL, held, LANGUAGE_MODEL, data, None)
    language, at = held[LANGUAGE_MODEL].rows, held[LANGUAGE_MODEL].predicted
    together = np.concatenate([predicted, at]), np.concatenate([measured, data.latency_s[language]])
    section.add(_METRIC, "model", "perfpass", "all eleven", together[0] * 1e3, together[1] * 1e3, aim_pct=_AIM)
    section.slices = slices.grades(data, held, folder)
    return section


def _rate_only(work: Any, measured: np.ndarray, names: np.ndarray) -> np.ndarray:
    """The baseline: roofline seconds times processes times the median factor of the other models."""
    roof = work.group_s.sum(axis=1) * work.processes
    out = np.empty(len(measured))
    for name in np.unique(names):
        inside = names == name
        out[inside] = roof[inside] * np.median(measured[~inside] / roof[~inside])
    return out


def _add(
    section: Section,
    split: str,
    judged_on: str,
    held: dict[str, widths.Held],
    name: str,
    data: Dataset,
    aim: float | None,
) -> None:
    low, high = widths.graded(held, name)
    ms, measured = 1e3 * held[name].predicted, 1e3 * data.latency_s[held[name].rows]
    section.add(_METRIC, split, "perfpass", judged_on, ms, measured, ms * np.exp(low), ms * np.exp(high), aim_pct=aim)
