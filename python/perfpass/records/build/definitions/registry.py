"""Our own definitions by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from perfpass.graph import OpGraph


@dataclass(frozen=True)
class Own:
    """A network that is defined here.

    ``build`` makes the module; ``inputs`` gives the shapes of its inputs at a size, without the batch, as
    `perfpass.importers.torch.trace` takes them. ``paper``: where the definition stands; ``parameters``: as stated
    there, and ``stated_in`` says by whom.
    """

    build: Callable[[], torch.nn.Module]
    inputs: Callable[[int], Any]
    paper: str
    parameters: float = 0.0
    stated_in: str = ""

    def module(self) -> torch.nn.Module:
        """The network on the meta device."""
        import torch

        with torch.device("meta"):
            return self.build().eval()

    def tracer(self, size: int) -> Callable[[int], OpGraph]:
        """The graph at ``size``, by batch."""
        from perfpass.importers.torch import trace_owned

        module = self.module()
        return lambda batch: trace_owned(module, self.inputs(size), batch=batch)


DEFINITIONS: dict[str, Own] = {}
