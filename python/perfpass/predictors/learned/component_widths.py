"""What is not known of a quantity of fitted components: the lacks that make its intervals wide (`learned.spread`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np

from perfpass.predictors.learned.components import UNSEEN_MODEL, Form

# Of times of generation. Those of energy and power: `perfpass.predictors.energy.features.CAUSES`.
WORDS: Mapping[str, str] = {
    "measurement": "runs of one set-up differ",
    "laboratory": "another laboratory's software, settings and way to count",
    "unlike": "no run learned from is much like it",
    "model": "an architecture that was not learned from",
    "device": "a device that was not learned from",
    "vendor": "a vendor whose boards were not learned from with this runtime, or differ much among themselves",
    "runtime": "a runtime that was not learned from",
    "precision": "weights of other than 16 bits, which were not learned from",
    "load": "sizes beyond those learned from",
    "long prompts": "prompts longer than answers",
    "long answers": "answers longer than prompts",
    "llama.cpp's prompts": "llama.cpp's prompts, which were timed in small pieces alone",
    "llama.cpp's file types": "weights in a file type of llama.cpp, none of which was learned from",
}
CAUSES = tuple(WORDS)
# What each evidence lacks (the forms' ``support``).
_OF_EVIDENCE: Mapping[str, tuple[str, ...]] = {
    "seen": (),
    "device unseen": ("device",),
    "vendor unseen": ("device", "vendor"),
    "runtime unseen": ("device", "runtime"),
    "source unseen": ("laboratory",),
    "network unseen": ("network",),
    "data set unseen": ("data set",),
}


# Whose boards reach like shares of their peaks, so that those that were measured vouch for another. Of the lack of a
# vendor none of whose boards was measured, what is left where another one was: half as wide an interval. By hand, with
# 0 and 1 beside it (docs/decisions.md).
_ALIKE_VENDOR, _SIBLING = "NVIDIA", 0.25


def of_boards(evidence: np.ndarray, vendors: np.ndarray) -> dict[str, np.ndarray | float]:
    """What N questions lack of a vendor, by ``evidence`` [N] and the boards' ``vendors`` [N].

    A board of another vendor than NVIDIA is vouched for by its vendor's other boards but in part: of two of AMD's the
    one takes for a prompt four times what the other makes of it, while NVIDIA's lie within a quarter of one another.
    """

    @cache
    def lack(known: str, vendor: str) -> float:
        named = _OF_EVIDENCE.get(known.removesuffix(UNSEEN_MODEL), ("device", "runtime"))
        return 1.0 if "vendor" in named else _SIBLING * ("device" in named and vendor != _ALIKE_VENDOR)

    return {"vendor": np.array([lack(e, v) for e, v in zip(evidence.tolist(), vendors.tolist(), strict=True)])}


def lacks(
    form: Form,
    evidence: np.ndarray,
    spread: np.ndarray,
    more: Mapping[str, np.ndarray | float] | None = None,
    causes: Sequence[str] = CAUSES,
) -> dict[str, np.ndarray | float]:
    """By cause, of N questions of a user. ``evidence`` [N] and ``spread`` [N] as `components.Fitted` gives them;
    ``more``: causes that neither tells of.
    """
    found: dict[str, int] = {}  # a few texts, of thousands of questions
    place = np.array([found.setdefault(e, len(found)) for e in evidence.tolist()], dtype=np.intp)
    plain = [e.removesuffix(UNSEEN_MODEL) for e in found]
    variance = sum(term.amplitude for term in form.terms)
    out: dict[str, np.ndarray | float] = dict.fromkeys(causes, 0.0)
    for cause in {c for named in _OF_EVIDENCE.values() for c in named} & set(causes):
        out[cause] = np.array([float(cause in _OF_EVIDENCE.get(e, ("device", "runtime"))) for e in plain])[place]
    out |= {"measurement": 1.0, "laboratory": 1.0}
    # Errors of what is much like a measured run are small: their widths grow with the variance, not with its root.
    out["unlike"] = np.square(np.clip((np.square(spread) - form.noise) / variance, 0.0, 1.0))
    out["model"] = np.array([float(e.endswith(UNSEEN_MODEL)) for e in found])[place]
    return out | dict(more or {})
