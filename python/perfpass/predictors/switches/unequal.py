"""Answers of unequal length as a transformation of a load: long ones are met more often, with more in the cache."""

from __future__ import annotations

from dataclasses import replace

from perfpass.llm.answer_lengths import AnswerLengths
from perfpass.llm.memory import NOTHING
from perfpass.predictors.switches.load import Change, Deployment, Load

_SPREAD = 0.1


def vary(deployment: Deployment, load: Load, variation: float) -> Change:
    """Answers with a coefficient of variation, of the same mean."""
    lengths = AnswerLengths(load.output, variation)
    marks = ", ".join(f"p{percent} {lengths.quantile(percent):,.0f}" for percent in (50, 90, 99))
    context = load.context - load.output / 2.0 + lengths.seen
    return Change(
        replace(load, context=context),
        f"answers of {load.output:,.0f} tokens on average, {marks}",
        NOTHING,
        _SPREAD if variation else 0.0,
        "no record has answers of stated unequal lengths" if variation else "",
    )
