"""What to switch on where a training run does not fit, by its price in time, or to take less memory where it does."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

from perfpass.decision import CONFIDENCE
from perfpass.deploy.train_cost import TrainCost, train_cost
from perfpass.errors import PerfPassError
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.configuration import language_model
from perfpass.llm.recipe import OFFLOADS, RECOMPUTATIONS, SHARDINGS
from perfpass.predictors.llm_training.constants import SPREAD
from perfpass.text import columns, size

if TYPE_CHECKING:
    from perfpass.deploy.train_network import NetworkTrainCost
    from perfpass.devices import Device

# Less than this of the memory is no advice.
WORTH = 0.01
_SHOWN, _OTHERS = 6, 3
_RANK = 16


@dataclass(frozen=True)
class Change:
    """One thing to switch on, or up to three: ``words``, what to ask `perfpass.train_cost` for, what it then answers
    (None where only the figures below came over HTTP).

    ``memory`` and ``time``: of the fullest device and of a step, relative to what was asked (-0.4 is 40 % less);
    ``time_low`` and ``time_high``: the bounds of nine in ten.
    ``same_training``: the same weights come out, but for rounding.
    """

    words: str
    changes: dict[str, Any]
    found: TrainCost | NetworkTrainCost | None
    memory_in_use_bytes: float
    step_s: float
    fits_probability: float
    memory: float
    time: float
    time_low: float
    time_high: float
    same_training: bool

    @property
    def fits(self) -> bool:
        """Whether the run then fits with nine chances in ten."""
        return self.fits_probability >= CONFIDENCE

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return {
            "words": self.words,
            "changes": {name: list(v) if isinstance(v, tuple) else v for name, v in self.changes.items()},
            "memory": self.memory,
            "time": self.time,
            "time_low": self.time_low,
            "time_high": self.time_high,
            "memory_in_use_bytes": self.memory_in_use_bytes,
            "step_s": self.step_s,
            "fits_probability": self.fits_probability,
            "same_training": self.same_training,
        }


@dataclass(frozen=True)
class Advice:
    """What was asked, and the changes to it: those that fit by their price in time, then the others by memory."""

    asked: TrainCost | NetworkTrainCost
    changes: tuple[Change, ...]

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return {"schema": 1, "asked": self.asked.to_dict(), "changes": [one.to_dict() for one in self.changes]}

    def __str__(self) -> str:
        if not self.changes:
            return "nothing to switch on takes less memory"
        rows = [("switch on", "memory", "", "step", "", "90 %", "P fits")]
        alike = [one for one in self.changes if one.same_training]
        others = [one for one in self.changes if not one.same_training]
        for one in (*alike[:_SHOWN], *others[:_OTHERS]):
            rows.append(
                (
                    one.words if one.same_training else f"{one.words} *",
                    size(one.memory_in_use_bytes),
                    f"{100 * one.memory:+.0f} %",
                    f"{one.step_s:.3g} s",
                    f"{100 * one.time:+.0f} %",
                    f"{100 * one.time_low:+.0f} to {100 * one.time_high:+.0f}",
                    f"{one.fits_probability:.2f}",
                )
            )
        told = "\n* trains otherwise: other weights come out" if others else ""
        return columns(rows, right=(1, 2, 3, 4, 5)) + told


def train_advice(model: Any, device: str | Device, **asked: Any) -> Advice:
    """What less memory would cost; ``asked`` as for `perfpass.train_cost`, whose errors it raises.

    Each change is asked for alone; where none fits alone, all pairs; where none of these does, three together.
    """
    read = model if isinstance(model, LanguageModel) else language_model(model)
    first = train_cost(read, device, **asked)
    # Whatever is changed, a step has as many sequences as before.
    asked = asked | {
        "global_batch": first.recipe.micro_batch * first.recipe.micro_batches * first.layout.data,
        "micro_batch": first.recipe.micro_batch,
    }

    def answer(words: str, changes: dict[str, Any], same: bool) -> Change | None:
        return _asked(read, device, first, asked, words, changes, same)

    return Advice(first, weighed(list(_alone(first)), answer))


def weighed(
    alone: list[tuple[str, dict[str, Any], bool]], answer: Callable[[str, dict[str, Any], bool], Change | None]
) -> tuple[Change, ...]:
    """Changes as `Advice` has them, of what may be switched on ``alone``: words, what to ask for, and whether the same
    is trained; ``answer``: what they then answer, None where that is refused or takes no less.
    """
    found = [one for words, changes, same in alone if (one := answer(words, changes, same))]
    for count in (2, 3):
        if any(one.fits for one in found):
            break
        for several in combinations(alone, count):
            words, changes, same = zip(*several, strict=True)
            if len({name for each in changes for name in each}) == sum(map(len, changes)):
                together = {name: value for each in changes for name, value in each.items()}
                one = answer(", ".join(words), together, all(same))
                found += [one] if one and one.fits else []
    fit = sorted((one for one in found if one.fits), key=lambda one: (not one.same_training, one.time))
    others = sorted((one for one in found if not one.fits), key=lambda one: one.memory)
    return (*fit, *others)


def _asked(
    model: LanguageModel,
    device: str | Device,
    first: TrainCost,
    asked: dict[str, Any],
    words: str,
    changes: dict[str, Any],
    same: bool,
) -> Change | None:
    try:
        found = train_cost(model, device, **(asked | changes))
    except PerfPassError:
        return None  # what the device or the layout does not allow is no advice
    predicted = found.predicted
    in_use, step_s, fits = predicted.in_use.median, predicted.step_s.median, predicted.fits_probability
    memory, time = in_use / first.predicted.in_use.median - 1, step_s / first.predicted.step_s.median - 1
    low, high = (math.exp(side * _half_width(model)) * (1 + time) - 1 for side in (-1, 1))
    change = Change(words, changes, found, in_use, step_s, fits, memory, time, low, high, same)
    return change if memory < -WORTH else None


def _half_width(model: LanguageModel) -> float:
    """Of the logarithm of two steps' ratio: what either layout is off by alone, since all else is off alike in both.

    Nine in ten pairs of BLOOM's and of InternEvo's layouts lie within it (docs/decisions.md).
    """
    lacks = dict.fromkeys(SPREAD.causes, 0.0) | {"layout": 1.0, "experts": float(model.is_mixture)}
    return math.sqrt(2) * float(SPREAD.bounds(lacks)[1][0])


def _alone(first: TrainCost) -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Words, what to ask for, and whether the same is trained."""
    recipe, layout = first.recipe, first.layout
    if recipe.kernels.attention != "flash":
        yield "fused attention", {"attention": "flash"}, True
    if recipe.loss != "fused":
        yield "a fused loss", {"loss": "fused"}, True
    if layout.data * layout.context > 1:
        for sharding in SHARDINGS[SHARDINGS.index(layout.sharding) + 1 :]:
            yield f"sharding {sharding}", {"sharding": sharding}, True
    for micro_batch in sorted({recipe.micro_batch // 2, 1} - {0, recipe.micro_batch}):
        yield f"micro-batch {micro_batch}", {"micro_batch": micro_batch}, True
    for recompute in RECOMPUTATIONS[RECOMPUTATIONS.index(recipe.recompute) + 1 :]:
        yield f"recompute {recompute}", {"recompute": recompute}, True
    # Megatron-LM offloads states alone; of the others' ways these are what gradients come with.
    ways = ("none", "states") if first.framework == "megatron" else tuple(o for o in OFFLOADS if o != "states")
    for offload in OFFLOADS[OFFLOADS.index(recipe.offload) + 1 :]:
        if offload in ways:
            yield f"offload {offload}", {"offload": offload}, True
    if recipe.optimizer in ("adam", "adamw"):
        yield "states of 8 bits", {"optimizer": "adamw_8bit"}, False
    if first.precision != "bf16_true":
        yield "16 bits throughout", {"precision": "bf16_true"}, False
    if recipe.adapter is None:
        yield f"LoRA of rank {_RANK}", {"lora_rank": _RANK}, False
        yield f"QLoRA of rank {_RANK}", {"lora_rank": _RANK, "frozen": "nf4"}, False
    elif recipe.adapter.frozen == "none":
        yield "frozen weights of 4 bits", {"frozen": "nf4"}, False
