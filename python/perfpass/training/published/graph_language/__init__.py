"""The graph + language model: training, variants, studies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from perfpass.training.tasks.tasks import Task


def method(name: str, unlabelled: Task | None = None, **changed: object) -> Any:
    """One of `methods.VARIANTS`; ``changed`` overrides its settings. Raises ArgumentError for another name."""
    from perfpass.training.published.graph_language import methods

    return methods.method(name, unlabelled, **changed)


def train(name: str, records: str | None = None, output: str | None = None, **options: Any) -> Path:
    """What ships, as `ship.train`."""
    from perfpass.training.published.graph_language import ship

    return ship.train(name, records, output, **options)
