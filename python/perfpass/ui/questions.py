"""What the page asks beside the questions of `perfpass.serve`: several devices, a search of layouts, a fleet."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from perfpass.serve.questions import Question, TrainCost

MOST_ROWS = 8  # of a fleet's GPUs and of its models, in the form
_Name = Annotated[str, Field(min_length=1, max_length=200)]


class Train(TrainCost):
    """Training a language model: one layout, or the quickest of all that fit."""

    search: bool | None = Field(None, description="Try every layout of the devices; what is stated stays.")


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Gpus(_Row):
    """GPUs of one type that may be used."""

    device: _Name
    count: int
    mode: _Name | None = None


class Placed(_Row):
    """A model of the fleet; ``file``: what an uploaded one is called, in the place of ``model``."""

    name: _Name | None = None
    file: _Name | None = None
    model: _Name | None = None
    kind: Literal["graph", "llm"] | None = None
    batch: int | None = None
    precision: _Name | None = None
    input_length: int | None = None
    output_length: int | None = None
    latency_ms: float | None = None
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    rate: float | None = None
    copies: int | None = None


class Fleet(Question):
    """Models onto GPUs and MIG slices: the fewest GPUs, or the cheapest."""

    uploads: ClassVar[tuple[str, ...]] = ()

    gpu: list[Gpus] = Field(max_length=MOST_ROWS)
    model: list[Placed] = Field(max_length=MOST_ROWS)
    objective: Literal["gpus", "price"] | None = None
    confidence: float | None = None


def nested(flat: dict[str, Any]) -> dict[str, Any]:
    """Names with points as tables and lists: ``gpu.0.count`` is the count of the first of gpu; gaps are closed."""
    found: dict[str, Any] = {}
    for name, value in flat.items():
        place = found
        *path, last = name.split(".")
        for part in path:
            inner = place.setdefault(part, {})
            if not isinstance(inner, dict):
                break
            place = inner
        else:
            place[last] = value
    return {name: _listed(value) for name, value in found.items()}


def _listed(value: Any) -> Any:
    """A table whose keys are numbers as the list that it is."""
    if isinstance(value, dict) and value and all(key.isdecimal() for key in value):
        return [_listed(value[key]) for key in sorted(value, key=int)]
    return value
