"""What a model's own values decide and a graph without values has to assume: its load.

``experts``: over how many of a router's experts the tokens of a layer are shared, evenly. ``detections``: how many
boxes of an image pass a score's threshold, and non-maximum suppression behind it. ``steps``: how often a pipeline of
diffusion runs its network. ``frames``: how long a token of a text is spoken. All can be stated (``assume``); what is
not is named in the support of a prediction, whose interval then holds the loads that are usual.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from perfpass.errors import ArgumentError, UnsupportedError
from perfpass.late import dataclass
from perfpass.text import shown_value, unknown

EXPERTS, DETECTIONS, STEPS, FRAMES = "experts", "detections", "steps", "frames"
NAMES = (EXPERTS, DETECTIONS, STEPS, FRAMES)
# COCO's evaluation counts 100 boxes an image, and detectors are cut there; its images hold 7 objects on average.
USUAL_DETECTIONS = 100
FEWEST_DETECTIONS = 10
# 340 frames of 256 samples for a sentence of 89 letters, 179 tokens with those between them: transformers' own test
# of facebook/mms-tts-eng. Phonemes, and texts without tokens between, last twice as long.
USUAL_FRAMES = 2
FEWEST_FRAMES, MOST_FRAMES = 1, 8
_MOST = 1 << 20


@dataclass(frozen=True)
class Assumed:
    """One assumption in a graph: ``value`` of ``of``, where ``least`` to ``most`` are usual.

    ``stated``: whether the user gave it.
    """

    name: str
    value: int
    of: int
    least: int
    most: int
    stated: bool

    @classmethod
    def detections(cls, of: int | None, stated: int | None) -> Assumed:
        """So many of ``of`` boxes (None: of more than can be asked for), or the usual number of them."""
        most = _MOST if of is None else of
        value = min(most, USUAL_DETECTIONS if stated is None else stated)
        return cls(DETECTIONS, value, most, min(FEWEST_DETECTIONS, value), value, stated is not None)

    @classmethod
    def steps(cls, usual: int, stated: int | None) -> Assumed:
        """So many steps, or those that the pipeline takes where nobody says."""
        value = usual if stated is None else stated
        return cls(STEPS, value, value, value, value, stated is not None)

    @classmethod
    def frames(cls, stated: int | None) -> Assumed:
        """So many frames of sound for a token, or the usual number of them."""
        value = USUAL_FRAMES if stated is None else stated
        least, most = (FEWEST_FRAMES, MOST_FRAMES) if stated is None else (value, value)
        return cls(FRAMES, value, most, least, most, stated is not None)

    @property
    def exact(self) -> bool:
        """Whether no value could change it: one token reads as many experts as it chooses."""
        return self.least == self.value == self.most

    def sentence(self) -> str:
        """What is assumed, for the support of a prediction."""
        if self.name == EXPERTS:
            said = f"each layer's tokens are shared evenly over {self.value} of {self.of} experts"
        elif self.name == STEPS:
            whose = "" if self.stated else ", those of the pipeline where nobody states them"
            said = f"{self.value} step{'s' * (self.value > 1)}{whose}"
        elif self.name == FRAMES:
            said = f"a token of the text is spoken for {self.value} frame{'s' * (self.value > 1)} of sound"
        else:
            said = f"{self.value} boxes of an image pass each threshold of a detector and its non-maximum suppression"
        if self.stated:
            return f"{said}, as stated"
        if self.exact:
            return said
        return f"assumed: {said}; {self.least} to {self.most} are usual (stated by assume {self.name}=N)"

    def check(self, stated: int) -> None:
        """Raises ArgumentError where the model's routers cannot share tokens over so many experts."""
        if self.name == EXPERTS and (stated > self.of or stated < self.least):
            raise ArgumentError(
                f"assume experts={stated}: routers of this model choose {self.least} of {self.of} and more; give "
                f"{self.least} to {self.of}"
            )


def is_assumed(found: Iterable[Assumed]) -> bool:
    """Whether values could change something that nobody stated."""
    return any(not (one.stated or one.exact) for one in found)


def merged(before: Assumed | None, found: Assumed) -> Assumed:
    """Two assumptions of one name: that of the largest number, and all that is usual of either."""
    if before is None:
        return found
    larger = max(before, found, key=lambda a: (a.value, a.of))
    return replace(larger, least=max(before.least, found.least), most=max(before.most, found.most))


def check_trains(assumed: Iterable[Assumed]) -> None:
    """Raises UnsupportedError for a pipeline of diffusion: a training step runs its denoiser once, at one of its steps,
    and changes neither its text encoders nor its decoder.
    """
    for one in assumed:
        if one.name == STEPS:
            raise UnsupportedError(
                f"this is a whole pipeline of diffusion, which runs its denoiser {one.value} times and decodes what "
                "comes out; training runs the denoiser once a step and nothing else of it: give the denoiser alone "
                "(its torch module, or an ONNX file of it; with adapters the module, by perfpass.torch.estimate)"
            )


def checked(assume: Mapping[str, Any] | None) -> dict[str, int]:
    """``assume`` as whole numbers by `NAMES`. Raises ArgumentError."""
    if assume is None:
        return {}
    if not isinstance(assume, Mapping):
        raise ArgumentError(f"assume {shown_value(assume)}; it maps names to numbers: assume={{'detections': 20}}")
    found = {}
    for name, value in assume.items():
        if name not in NAMES:
            raise ArgumentError(unknown("assumption", name, NAMES))
        if isinstance(value, bool) or not hasattr(value, "__index__") or not 1 <= value.__index__() <= _MOST:
            raise ArgumentError(f"assume {name}={shown_value(value)}; it must be a whole number from 1 to {_MOST}")
        found[name] = value.__index__()
    return found
