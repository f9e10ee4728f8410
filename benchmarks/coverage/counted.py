"""What PyTorch itself says of a module: its FlopCounterMode's MACs, its parameters."""

from __future__ import annotations

import contextlib
import warnings
from collections import Counter
from typing import Any

import numpy as np
import torch
from row import Reading
from torch.utils.flop_counter import FlopCounterMode

from perfpass.graph import OpGraph, costs
from perfpass.importers.torch import make_inputs

# Operators with MACs that FlopCounterMode does not count.
NOT_COUNTED = {"deform_conv": "deformable convolution is torchvision's own operator"}


def by_torch(module: torch.nn.Module, shape: Any, given: dict[str, Any] | None = None) -> int | None:
    """MACs (FLOPs / 2) of one forward pass on the meta device at batch 1; None where FlopCounterMode cannot run it."""
    args, kwargs = make_inputs(shape, 1, "float32")
    counter = FlopCounterMode(display=False)
    with contextlib.suppress(Exception), warnings.catch_warnings(), torch.no_grad(), counter:
        warnings.simplefilter("ignore")
        module(*args, **kwargs, **(given or {}))
        return int(counter.get_total_flops()) // 2
    return None


def compared(graph: OpGraph, module: torch.nn.Module, macs: int | None) -> Reading:
    """The graph beside the counter's MACs and the module's own parameters, and why they differ where they do.

    Parameters: floating parameters and buffers that have an axis, each tensor once.
    """
    held = {id(t): (n, t.numel()) for n, t in _tensors(module) if t.is_floating_point() and t.dim()}
    counted = costs.count(graph)
    reasons = [*_not_counted(graph, counted, macs), *_not_read(graph, counted.totals["parameters"], held)]
    return Reading(graph, macs, sum(elements for _, elements in held.values()), "; ".join(reasons))


def _tensors(module: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    return [*module.named_parameters(), *module.named_buffers()]


def _not_counted(graph: OpGraph, counted: costs.Costs, macs: int | None) -> list[str]:
    """Operators that the counter leaves out, where they are the difference to the last MAC."""
    excess: Counter[str] = Counter()
    for node in np.flatnonzero(counted.macs):
        if graph.op_name(int(node)) in NOT_COUNTED:
            excess[graph.op_name(int(node))] += int(counted.macs[node])
    if macs is None or not excess or sum(excess.values()) != counted.totals["macs"] - macs:
        return []
    return [NOT_COUNTED[kind] for kind in excess]


def _not_read(graph: OpGraph, ours: int, held: dict[int, tuple[str, int]]) -> list[str]:
    """Modules whose parameters inference does not read, where they are the difference to the last element."""
    names = {graph.string(int(name)) for name in graph.tensor_name}
    unread = [(name, elements) for name, elements in held.values() if name not in names]
    if not unread or sum(elements for _, elements in unread) != sum(n for _, n in held.values()) - ours:
        return []
    parts = sorted({name.partition(".")[0] for name, _ in unread})
    return [f"inference does not read all of {', '.join(parts)}"]
