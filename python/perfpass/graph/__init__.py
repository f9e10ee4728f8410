"""What a model is and exactly costs: the operator graph, its costs, its memory plan, a training step of it."""

from __future__ import annotations

from perfpass.graph.opgraph import (
    ATTRIBUTES,
    DTYPES,
    OPERATOR_CLASS_OF,
    OPERATOR_CLASSES,
    OPERATORS,
    ROLES,
    OpGraph,
    at_batch,
)

__all__ = [
    "ATTRIBUTES",
    "DTYPES",
    "OPERATORS",
    "OPERATOR_CLASSES",
    "OPERATOR_CLASS_OF",
    "ROLES",
    "OpGraph",
    "allocators",
    "assumed",
    "at_batch",
    "blocks",
    "changes",
    "checkpointed",
    "costs",
    "difference",
    "formula",
    "frozen",
    "held_batch",
    "joined",
    "kept_outputs",
    "liveness",
    "optimizers",
    "polynomial",
    "quantised",
    "quotient",
    "saved",
    "single",
    "step",
    "table",
    "traced_step",
]
