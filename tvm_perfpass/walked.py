"""What a walk over a module of TVM gives, and what it takes: the same for Relay and Relax."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfpass.errors import ArgumentError
from perfpass.graph import OpGraph
from perfpass.text import shown_value


@dataclass(frozen=True)
class Walk:
    """A module's operators, and for each the fused function it is in.

    ``kernel_group`` [N] int32: the index of the call of a fused function (after FuseOps: the kernel) whose body holds
    the node; -1 for nodes outside of any.
    """

    graph: OpGraph
    kernel_group: np.ndarray


def parameter_names(params: Mapping[str, Any] | Iterable[str] | None) -> list[str] | None:
    """The names in a ``params`` argument; None where there is none. Raises ArgumentError for a single string."""
    if isinstance(params, str):
        raise ArgumentError(
            f"params must be a mapping or a list of names, got the string '{params}'; write ['{params}']"
        )
    if not isinstance(params, Iterable | type(None)):
        raise ArgumentError(f"params must be a mapping or a list of names, got {shown_value(params)}")
    return None if params is None else [str(name) for name in params]
