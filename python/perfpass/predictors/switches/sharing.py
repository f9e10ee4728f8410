"""A share of a GPU as a transformation of a load: others run in the rest of its time and memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from perfpass.llm.batch import EngineBatch, StepTime
from perfpass.llm.memory import NOTHING
from perfpass.predictors.switches.load import Change, Deployment, Load

# What a change of the running process costs, and what others leave of the time when they are idle. By hand.
_SPREAD = 0.3


@dataclass(frozen=True)
class SharedSteps:
    """A `StepTime` that runs for a ``share`` of the time."""

    steps: StepTime
    share: float

    def seconds(self, batch: EngineBatch) -> np.ndarray:
        """Seconds [N] of N steps."""
        return np.asarray(self.steps.seconds(batch) / self.share)

    def one(self, *sizes: float) -> float:
        """Seconds of one step."""
        return self.steps.one(*sizes) / self.share

    def decode_run(self, decodes: float, decode_context: float, steps: float) -> float:
        """Seconds of ``steps`` decode steps in a row."""
        return self.steps.decode_run(decodes, decode_context, steps) / self.share


def confine(deployment: Deployment, load: Load, share: float) -> Change:
    """The GPU's time is cut into slices, of which a ``share`` is this deployment's while the others are busy (time
    slicing of Kubernetes' device plug-in, HAMi, Run:ai); MIG slices are devices of their own. ``deployment`` has the
    memory of the share.
    """
    return Change(
        replace(load, steps=SharedSteps(load.steps, share)),
        f"{share:.0%} of each GPU's time and memory, the rest busy",
        NOTHING,
        _SPREAD if share < 1.0 else 0.0,
        "no record has language models that share a GPU in time" if share < 1.0 else "",
    )
