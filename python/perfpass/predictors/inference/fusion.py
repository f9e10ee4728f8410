"""The operator table of a graph as a runtime runs it, when the source wrote operators out in parts.

Exporters spell out what every runtime runs as one kernel: a GELU as five operators, a layer norm as nine, attention as
two products around a softmax, and each shape as a page of integer arithmetic. Predictors learn from graphs in which
these are one operator (torch's own trace), so the parts are put together again, in the table alone: the graph, its
costs and its totals stay exact. A graph that has none of the patterns keeps its table as it is. The patterns are in the
core (cpp_kernels/src/features/fusion.cpp).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfpass import _core
from perfpass.graph.table import OperatorTable

if TYPE_CHECKING:
    from perfpass.graph import OpGraph
    from perfpass.graph.costs import Costs

# Runtimes that fold normalisations into convolutions and write activations and sums with the product before them.
FUSING = ("torch.compile", "onnxruntime", "tensorrt", "tvm", "relax")


def strided(runtime: str, kind: str) -> bool:
    """Whether transposes, splits and slices of a file are views in what predictors learned of a runtime on a ``kind``
    of device: PyTorch shows by strides, and what was measured on GPUs was learned from traces, in which that is so. On
    CPUs they are counted as other runtimes run them, also those that a trace shows by strides.
    """
    return kind == "gpu" or not folds(runtime)


def folds(runtime: str) -> bool:
    """Whether a runtime computes what constants and shapes alone decide when it loads a model; PyTorch does it in
    every pass, compiled as well, because what it runs may be trained.
    """
    return runtime not in ("torch", "torch.compile")


def fuses(runtime: str, kind: str) -> bool:
    """Whether a runtime on a ``kind`` of device makes one kernel of an activation or an attention that a model's own
    code computes in parts (transformers' gelu_new, gelu_fast and quick_gelu; Swin's windows with their bias and mask),
    by whatever road the model came, and none of the whole numbers that shapes decide. PyTorch runs each part, and what
    was measured on CPUs was learned with the parts apart.
    """
    return kind == "gpu" and runtime in FUSING


def as_run(graph: OpGraph, costs: Costs, runtime: str, kind: str) -> OperatorTable:
    """The operator table of ``graph`` on a ``kind`` of device ("gpu", "cpu") with written-out operators put together,
    without shape arithmetic and operators that do nothing. Raises ArgumentError when ``costs`` belong to another graph.
    """
    core = _core.table_as_run(graph.core, costs.core, strided(runtime, kind), folds(runtime), fuses(runtime, kind))
    return OperatorTable.of_core(core)
