"""Memory of a network's training step where replicas share its states, blocks are checkpointed, or the host holds some.

What differs from the step on one device is counted, and added to what is predicted of that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from perfpass.graph.checkpointed import checkpointed
from perfpass.graph.optimizers import OPTIMIZERS
from perfpass.graph.saved import saved_activations
from perfpass.graph.traced_step import PHASES
from perfpass.predictors.by_node import node_times
from perfpass.predictors.memory import allocation
from perfpass.predictors.memory.step import SLACK
from perfpass.predictors.training_step import replicas, sharded
from perfpass.predictors.workload import DEFAULT_OPTIMIZER

if TYPE_CHECKING:
    from perfpass.graph import OpGraph
    from perfpass.prediction import Interval, Prediction
    from perfpass.predictors.estimate import Run

# An element of a parameter, of its gradient and of its state; single precision under autocast.
FLOAT_BYTES = {"fp16": 2.0, "bf16": 2.0, "fp64": 8.0}
# Autocast's 16-bit copies of parameters of 4 bytes.
_COPIES = 0.5


@dataclass(frozen=True, eq=False)
class Held:
    """Of the fullest device: ``memory`` in use; ``rank``: the bytes that are counted; ``again``: the share of the
    forward pass's time that runs twice; ``parameters``: what is shared.
    """

    memory: Interval
    rank: sharded.Rank
    parameters: sharded.Parameters
    again: float


def held(
    step: Prediction, precision: str, gpus: int, *, sharding: str, recompute: str, offload: str, micro_batches: int
) -> Held:
    """What a device holds of ``step``, which is of one device alone. Raises UnsupportedError for a network whose blocks
    are unknown, where they are to be checkpointed.
    """
    run = step.asked.run()
    copies = _COPIES if allocation.autocasts(precision) else 0.0
    found = sharded.parameters(run.graph, FLOAT_BYTES.get(precision, 4.0), copies=copies)
    optimizer, gpu = OPTIMIZERS[run.way.optimizer or DEFAULT_OPTIMIZER], run.way.device.is_gpu
    whole = sharded.rank(found, "none", 1, optimizer, lists=gpu)
    shared = sharded.rank(found, sharding, gpus, optimizer, lists=gpu)
    mine = sharded.offloaded(shared, found, offload)
    backward, early = backward_bytes(run)
    kept, again = (backward, early), 0.0
    if recompute == "full":
        kept, again = _checkpointed(run, backward)
    # Gradients that micro-batches add to are all there from the second one on.
    exist = 1.0 if micro_batches > 1 else min(kept[1] / found.bytes, 1.0)
    change = mine.alive(kept[0], exist) - whole.alive(backward, min(early / found.bytes, 1.0))
    change *= SLACK if gpu else 1.0
    beside = dict.fromkeys(("low", "median", "high"), change)
    if gpus > 1:
        messages = replicas.held_bytes(run.way.device, gpus, mine.buckets)
        beside = {name: value + messages[name] for name, value in beside.items()}
    memory = step.memory.in_use
    if any(beside.values()):
        least = mine.alive(0.0, 0.0)
        values = {name: max(getattr(memory, name) + beside[name], least) for name in ("low", "median", "high")}
        memory = replace(memory, **values)
    return Held(memory, mine, found, again)


def backward_bytes(run: Run) -> tuple[float, float]:
    """Bytes of the backward pass's peak beside weights and states, and of gradients of weights then."""
    kept = allocation.saved(run)
    return float(kept.backward), float(kept.gradients)


def _checkpointed(run: Run, backward: float) -> tuple[tuple[float, float], float]:
    """As `backward_bytes` of blocks that are checkpointed, and as `Held.again`.

    Under autocast a block by itself does not tell in how many bits its inputs come: the share that is left is that of
    single precision.
    """
    graph, autocast = allocation.followed(run), allocation.autocasts(run.way.precision)
    float_as = "float32" if autocast else run.float_as
    less = checkpointed(graph, float_as, allocation.BLOCK_BYTES)
    whole = saved_activations(graph, float_as, allocation.BLOCK_BYTES).backward
    return (backward * less.backward / whole, float(less.gradients)), _share_again(run, graph, less.again)


def _share_again(run: Run, graph: OpGraph, again: np.ndarray) -> float:
    """The share of the forward pass's time that the nodes ``again`` of ``graph`` take, which the run's graph has."""
    labels = {graph.label(node) for node in np.flatnonzero(again).tolist()}
    ms = node_times(run, True, 1.0).ms[PHASES.index("forward")]
    twice = np.array([run.graph.label(node) in labels for node in range(run.graph.node_count)])
    return float(ms[twice].sum() / ms.sum())
