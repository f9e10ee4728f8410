"""The graph + language model: training, variants, studies."""

from __future__ import annotations

from typing import Any


def method(name: str, **changed: object) -> Any:
    """One of `methods.VARIANTS`; ``changed`` overrides its settings. Raises ArgumentError for another name."""
    from perfpass.training.graph_language import methods

    return methods.method(name, **changed)


def train(*given: Any, **options: Any) -> Any:
    """As `ship.train`."""
    from perfpass.training.graph_language import ship

    return ship.train(*given, **options)
