"""Inside PyTorch: what a training step of a module takes, before it runs and beside what it took."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfpass.torch.estimation import Estimate, estimate
    from perfpass.torch.watch import Watch

# Imported on first use: the callbacks need packages that not everyone has.
_HOME = {
    "Estimate": "perfpass.torch.estimation",
    "estimate": "perfpass.torch.estimation",
    "Watch": "perfpass.torch.watch",
}
__all__ = ["Estimate", "Watch", "estimate"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'perfpass.torch' has no attribute {name!r}")
