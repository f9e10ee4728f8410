"""Peak memory of training beside what is counted: what a framework holds, with layouts and laboratories left out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from perfpass.llm.in_use import CONTEXT_BYTES, CONTEXT_SHARES
from perfpass.predictors.llm_training import constants as shipped
from perfpass.predictors.llm_training.in_use import Held
from perfpass.training.llm_training import questions
from perfpass.training.section import Section, Table

if TYPE_CHECKING:
    import pandas

FRAMEWORKS = {"megatron_lm": "megatron", "training_pages": "torch", "bigscience": "deepspeed", "internevo": "deepspeed"}
# Logarithms in which a source's bytes beside may lie from where they start, and its share of what is counted from one;
# the error at which a row's weight falls.
_BESIDE_BYTES, _BESIDE, _SHARE, _ERROR = 2.0**29, 2.0, 0.1, 0.05
_LOW, _HIGH = 0.05, 0.98  # of measurements below the lower and the upper bound
# What a framework that was not measured may hold less than is counted: by hand, a little more than Megatron-LM's does.
_LESS = -0.1
_FOLDS = 10


def rows(table: pandas.DataFrame) -> tuple[pandas.DataFrame, np.ndarray, np.ndarray, list[str]]:
    """Rows with peak memory that are asked; bytes counted [N]; whether the attention is stated [N]; why others not."""
    found = table[table.peak_memory_bytes.notna()]
    asked, why = questions.asked(found)
    stated = [one for one in asked if one]
    counted = np.array([one.memory.peak for one in stated]) + shipped.WORKSPACE_BYTES
    known = np.array([one.attention_known for one in stated])
    return found[[one is not None for one in asked]].reset_index(drop=True), counted, known, [w for w in why if w]


def fit(counted: np.ndarray, measured: np.ndarray, groups: np.ndarray, *, alone: bool = False) -> Held:
    """What is held beside [N] bytes counted, and its bounds; each of ``groups`` [N] counts alike.

    ``alone``: nothing is taken to be held beside, and the bounds span what others hold of what is counted.
    """
    from scipy.optimize import least_squares

    _, place, count = np.unique(groups, return_inverse=True, return_counts=True)
    weight = 1.0 / count[place]

    def off(x: np.ndarray) -> np.ndarray:
        predicted = _BESIDE_BYTES * np.exp(x[0]) + np.exp(x[1]) * counted
        return np.asarray(np.log(measured / predicted))

    def errors(x: np.ndarray) -> np.ndarray:
        each = off(x) / _ERROR
        robust = np.sign(each) * np.sqrt(2 * (np.sqrt(1 + np.square(each)) - 1))
        return np.concatenate([robust * np.sqrt(weight), [x[0] / _BESIDE, x[1] / _SHARE]])

    found = np.array([-np.inf, 0.0]) if alone else least_squares(errors, np.zeros(2)).x
    left = off(found)
    # A layout that was not measured is one more beside those that were; a source more would be a bound without end.
    unseen = 0.0 if alone else 1.0
    low, high = (_quantile(left, weight, share, unseen) for share in (_LOW, _HIGH))
    beside, share = _BESIDE_BYTES * np.exp(found[0]), np.exp(found[1])
    bounds = float(np.exp(min(low, _LESS if alone else 0.0))), float(np.exp(max(high, 0.0)))
    return Held(float(beside), float(share), *bounds, float(counted.min()))


def _quantile(values: np.ndarray, weight: np.ndarray, share: float, unseen: float) -> float:
    """That of ``values`` [N] which count ``weight``, where ``unseen`` more lie beyond it on the nearer side."""
    order = np.argsort(values)
    total = np.cumsum(weight[order])
    at = share * (total[-1] + unseen) - unseen * (share < 0.5)
    return float(values[order[min(np.searchsorted(total, max(at, 0.0), side="right"), len(values) - 1)]])


def held(table: pandas.DataFrame, counted: np.ndarray) -> dict[str, Held]:
    """What ships: by framework, layouts alike, and "other", of all with sources alike."""
    framework, measured = table.source.map(FRAMEWORKS).to_numpy(dtype=str), table.peak_memory_bytes.to_numpy()
    layout, source = table.configuration.to_numpy(dtype=str), table.source.to_numpy(dtype=str)
    known = _by_framework(counted, measured, framework, layout)
    return known | {"other": unmeasured(counted, measured, source, framework, layout)}


def _by_framework(
    counted: np.ndarray, measured: np.ndarray, framework: np.ndarray, layout: np.ndarray
) -> dict[str, Held]:
    return {
        name: fit(counted[here], measured[here], layout[here])
        for name in dict.fromkeys(FRAMEWORKS.values())
        if (here := framework == name).any()
    }


def unmeasured(
    counted: np.ndarray, measured: np.ndarray, source: np.ndarray, framework: np.ndarray, layout: np.ndarray
) -> Held:
    """Of a framework that was not measured: counting errs less than what the others hold in the middle, and it may hold
    a little more than any of them (buckets and communicators are bytes, whatever is counted).
    """
    others = _by_framework(counted, measured, framework, layout).values()
    alike = tuple(replace(one, high=shipped.UNMEASURED_MORE * one.high) for one in others)
    return replace(fit(counted, measured, source, alone=True), alike=alike)


def grade(section: Section, table: pandas.DataFrame, aim_pct: float | None = None) -> list[str]:
    """Adds lines; why rows are not asked. "layout": rows of one layout are left out; "laboratory": all of a source."""
    found, counted, known, refused = rows(table)
    vague = ~known
    # What a device shows has the context in it, as a prediction of an unmeasured framework adds it to the allocator's.
    shown = (found.memory_kind == "in_use").to_numpy()
    context = CONTEXT_BYTES * np.outer(shown, (CONTEXT_SHARES[0], 1.0, CONTEXT_SHARES[1]))
    section.corpus |= {"memory": len(found), "memory_not_asked": len(refused)}
    measured, source = found.peak_memory_bytes.to_numpy(), found.source.to_numpy(dtype=str)
    layout, framework = found.configuration.to_numpy(dtype=str), found.source.map(FRAMEWORKS).to_numpy(dtype=str)

    def left_out(here: np.ndarray, among: np.ndarray, group: np.ndarray) -> np.ndarray:
        """[n, 3] median and bounds in bytes of the rows ``here``, from rows ``among`` without those of their part."""
        names, out = np.unique(group[here]), np.empty((len(here), 3))
        for part in range(min(_FOLDS, len(names))):
            away = np.isin(group[here], names[part::_FOLDS])
            others = np.setdiff1d(among, here[away])
            if group is source:
                ours = unmeasured(*(of[others] for of in (counted, measured, source, framework, layout)))
            else:
                ours = fit(counted[others], measured[others], group[others])
            out[away] = np.column_stack(ours.of(counted[here[away]]))
        return out

    for split in ("layout", "laboratory"):
        everyone = np.empty((0, 3))
        judged = np.empty(0, dtype=int)
        for name in dict.fromkeys(FRAMEWORKS):
            here = np.flatnonzero((source == name) & known)
            if split == "layout":
                ran = np.flatnonzero(known & (framework == FRAMEWORKS[name]))
                bounds = left_out(here, ran, layout)
            else:
                bounds = left_out(here, np.flatnonzero(known), source) + context[here]
            ours = bounds[:, 1] / 2**30, measured[here] / 2**30, bounds[:, 0] / 2**30, bounds[:, 2] / 2**30
            section.add("memory GiB", split, "perfpass", name, *ours, aim_pct=aim_pct)
            if split == "layout":
                section.add("memory GiB", split, "counted alone", name, counted[here] / 2**30, measured[here] / 2**30)
            everyone, judged = np.concatenate([everyone, bounds]), np.concatenate([judged, here])
        ours = everyone[:, 1] / 2**30, measured[judged] / 2**30, everyone[:, 0] / 2**30, everyone[:, 2] / 2**30
        section.add("memory GiB", split, "perfpass", "all", *ours)
        cases = (found.source + ", " + found.model).to_numpy(dtype=str)[judged].tolist()
        section.add_worst_cases("memory GiB", "GiB", split, cases, ours[0], ours[1])
    kept = held(found[known].reset_index(drop=True), counted[known])
    told = tuple((n, h.beside_bytes / 2**30, h.share, h.low, h.high) for n, h in kept.items())
    columns = ("framework", "beside GiB", "share", "5 %", "98 %")
    section.tables.append(Table("Memory that is held, of what is counted", columns, told))
    if vague.any():
        words = "megatron_lm, attention not stated"
        low, middle, high = (b / 2**30 for b in kept["other"].of(counted[vague]))
        section.add("memory GiB", "layout", "perfpass", words, middle, measured[vague] / 2**30, low, high)
    return refused
