"""Public definitions of the networks that records name: what no installed library has, written from the papers."""

from __future__ import annotations

__all__ = [
    "diffusion",
    "registry",
    "transformer_models",
]
