"""What one model of the coverage table is: its reading, made by a group's module, and its row, made by `run.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfpass.graph import OpGraph

OUTCOMES = ("imported", "refused", "failed")


@dataclass(frozen=True)
class Reading:
    """A model's graph, what a public counter or the model's own library says of it, and why the two may differ."""

    graph: OpGraph
    reference_macs: int | None = None
    reference_parameters: int | None = None
    explained: str = ""


class NotMadeError(Exception):
    """The model's own library, or its exporter, could not make it: nothing was there to be read."""


@dataclass(frozen=True)
class Row:
    """One model. ``unknown``: operators without a rule, which are named in the graph and have a shape but no cost."""

    group: str
    model: str
    outcome: str  # of OUTCOMES; refused: one of perfpass's errors or NotMadeError; failed: anything else
    reason: str = ""
    operators: int | None = None
    unknown: tuple[str, ...] = ()
    parameters: int | None = None
    macs: int | None = None
    reference_parameters: int | None = None
    reference_macs: int | None = None
    explained: str = ""
    seconds: float = 0.0
    read_on: str = ""  # day, UTC
    code: str = ""  # commit of perfpass that read it

    @property
    def agrees(self) -> bool | None:
        """Whether MACs and parameters are the reference's; None where there is no reference."""
        pairs = [(self.macs, self.reference_macs), (self.parameters, self.reference_parameters)]
        known = [ours == theirs for ours, theirs in pairs if theirs is not None]
        return all(known) if known else None


@dataclass(frozen=True)
class Group:
    """A module of this folder: what it says of itself, the names of its models and how one of them is read."""

    name: str
    title: str
    packages: tuple[str, ...]
    models: Callable[[], list[str]]
    read: Callable[[str], Reading]

    @classmethod
    def of(cls, module: ModuleType) -> Group:
        """The group of a module with TITLE, PACKAGES, models() and read(model)."""
        said: Any = module
        return cls(module.__name__, said.TITLE, said.PACKAGES, said.models, said.read)
