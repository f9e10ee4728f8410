"""The graph + language model: training and variants. Its packages are imported when they are used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfpass.training.published.graph_language.methods import method
    from perfpass.training.published.graph_language.ship import train

_HOME = {
    "method": "perfpass.training.published.graph_language.methods",
    "train": "perfpass.training.published.graph_language.ship",
}
__all__ = [
    "corpus",
    "method",
    "methods",
    "settings",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'perfpass.training.published.graph_language' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
