"""Memory of inference runs: the plan of each graph, passed through the allocator of its runtime.

PyTorch on a GPU holds segments (`perfpass.graph.allocators.caching`), onnxruntime an arena beside the initializers, TVM
shared storage, TensorRT what it planned; on a CPU, PyTorch asks the C library and gives back at once. What an allocator
holds beyond live tensors is the part "allocator".
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from perfpass import _core
from perfpass.graph import OPERATOR_CLASS_OF, OPERATOR_CLASSES, kept_outputs
from perfpass.graph.costs import count as counted_costs
from perfpass.graph.saved import SavedActivations, saved_activations
from perfpass.graph.table import Tables
from perfpass.predictors.estimate import PlannedRun, Run, Runs
from perfpass.predictors.inference.fusion import as_run
from perfpass.predictors.way import STANDING_IN
from perfpass.predictors.workload import PRECISIONS

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.graph import OpGraph
    from perfpass.predictors.estimate import Columns
    from perfpass.predictors.way import Way

# PyTorch's caching allocator rounds every block up to 512 bytes (c10/cuda/CUDACachingAllocator.cpp, kMinBlockSize).
BLOCK_BYTES = 512
# Of other runtimes: a cache line; their allocators round on by rules of their own.
_ALIGNMENT_BYTES = 64
# Autocast keeps the fp32 weights and caches 16-bit copies: three times the 16-bit count. In a compiled graph a copy is
# a tensor like any other, gone after its one reader.
_AUTOCAST_COPIES = {"torch.compile": 2}
_CACHED_COPIES = 3
# TensorRT plans an engine's activations when it is built, and holds the plan.
_ALLOCATORS = {"onnxruntime": "arena", "tvm": "storage_sharing", "relax": "storage_sharing", "tensorrt": "none"}
_PACKS = ("cpu", "onnxruntime")
_SEARCHES = ("gpu", "onnxruntime")
_CONVOLUTION = OPERATOR_CLASSES.index("convolution")
_ATTENTION = OPERATOR_CLASSES.index("attention")
_LAYOUTS = 2.0
_MIB = 2.0**20
# Winograd's product by tiles of 4 x 4 makes 36 numbers of a tile's 16 and of a 3 x 3 filter's 9 (Lavin and Gray, "Fast
# Algorithms for Convolutional Neural Networks", 2016).
_TILE, _FILTER, _TRANSFORMED = 16.0, 9.0, 36.0


def allocator(device: Device, runtime: str) -> str:
    """The allocator between a runtime's tensors and a device, by the core's names."""
    runtime = STANDING_IN.get(runtime, runtime)
    if runtime in _ALLOCATORS:
        return _ALLOCATORS[runtime]
    return "none" if runtime in ("torch", "torch.compile") and device.kind == "cpu" else "caching"


def alignment_bytes(runtime: str) -> int:
    """What buffers are rounded up to when they are planned."""
    return BLOCK_BYTES if runtime in ("torch", "torch.compile") else _ALIGNMENT_BYTES


def weight_copies(precision: str, runtime: str = "torch") -> int:
    """How many times inference keeps the weights, in units of what they take at the width of the products."""
    return _AUTOCAST_COPIES.get(runtime, _CACHED_COPIES) if autocasts(precision) else 1


def autocasts(precision: str) -> bool:
    """Whether operators choose between 16 bits and fp32, over weights of fp32."""
    return precision in ("amp", "amp_bf16")


def packs(way: Way) -> bool:
    """Whether the runtime packs convolutions when it opens a model (`opened_bytes`)."""
    return (way.device.kind, way.as_measured.runtime) == _PACKS


def narrows(kind: str, runtime: str) -> bool:
    """Whether a runtime on a ``kind`` of device holds in 8 bits what a file widens and narrows again: ONNX Runtime on
    CPUs, whose weights and tensors then take a byte. Elsewhere none was measured.
    """
    return (kind, STANDING_IN.get(runtime, runtime)) == _PACKS


def as_held(graph: OpGraph, device: Device, runtime: str) -> OpGraph:
    """``graph`` whose tensors are those that a runtime holds, for a plan of its memory."""
    return replace(graph, core=_core.narrowed(graph.core)) if narrows(device.kind, runtime) else graph


def searches(way: Way) -> bool:
    """Whether the runtime tries the workspaces of convolutions (`searched_bytes`)."""
    return (way.device.kind, way.runtime) == _SEARCHES


def _copies(way: Way) -> int:
    return weight_copies(way.precision, way.runtime)


def reserved_bytes(planned: PlannedRun) -> int:
    """Bytes that the runtime's allocator takes from the device, weights included."""
    of, copies = allocator(planned.way.device, planned.way.runtime), _copies(planned.way)
    if of == "caching" and kept_outputs.float_logits_bytes(planned.graph, planned.float_as):
        return kept_outputs.reserved_with_float_logits(planned.graph, planned.float_as, copies)
    held = as_held(planned.graph, planned.way.device, planned.way.runtime)
    found: int = _core.reserved_bytes(
        held.core, of, copies, planned.float_as, planned.plan.weight_bytes
    )  # fmt: skip
    return found


def opened_bytes(tables: Tables, way: Way, arena: np.ndarray) -> np.ndarray:
    """[N] what ONNX Runtime holds on a CPU beside the weights and its ``arena`` [N] of a run.

    Convolutions are packed in blocks of channels (NCHWc), the file's weights beside them; what reads no input is folded
    when the model is opened, and kept beside the block that it was made in. The largest while it opens: of one
    convolution the weights in both layouts once more, before there is an arena.
    """
    if not packs(way):
        return np.zeros(len(tables))
    table = tables.table
    weights = np.where(
        np.asarray(table.op_class) == _CONVOLUTION, np.asarray(table.weight_bytes, dtype=np.float64), 0.0
    )
    constant = (np.asarray(table.constant) & 1) > 0
    folded = tables.sums(np.where(constant, np.asarray(table.bytes_written, dtype=np.float64), 0.0) * tables.count)
    reordered = _LAYOUTS * tables.most(weights)
    running = folded + arena
    return tables.sums(weights * tables.count) + folded + np.maximum(reordered, running) - arena


def searched_bytes(tables: Tables, way: Way) -> np.ndarray:
    """[N] the largest workspace that ONNX Runtime's search for convolutions asks its arena on a GPU for.

    By default it tries every algorithm of cuDNN, with all the workspace that one wants (cudnn_conv_algo_search
    EXHAUSTIVE, and since 1.14 cudnn_conv_use_max_workspace). Counted is Winograd's: inputs, outputs and filters
    transformed. FFT's, which some boards take, may be up to 2 GiB larger.
    """
    return winograd_bytes(tables) if searches(way) else np.zeros(len(tables))


def winograd_bytes(tables: Tables) -> np.ndarray:
    """[N] the largest workspace of Winograd's algorithm: inputs, outputs and filters of a 3 x 3 convolution."""
    table = tables.table
    outputs = np.asarray(table.output_elements, dtype=np.float64)
    width = np.asarray(table.bytes_written, dtype=np.float64) / np.maximum(outputs, 1.0)
    tiles = width * (np.asarray(table.input_elements, dtype=np.float64) + outputs) / _TILE
    filters = np.asarray(table.weight_bytes, dtype=np.float64) / _FILTER
    searched = (np.asarray(table.op_class) == _CONVOLUTION) & (np.asarray(table.kernel_area) == _FILTER)
    searched &= (np.asarray(table.stride) == 1) & (np.asarray(table.groups) == 1)
    return tables.most(np.where(searched, _TRANSFORMED * (tiles + filters), 0.0))


def grown_bytes(wanted: np.ndarray) -> np.ndarray:
    """[N] what ONNX Runtime's arena holds once it had room for ``wanted`` bytes: chunks of 1, 2, 4, ... MiB."""
    return np.asarray((2.0 ** np.ceil(np.log2(wanted / _MIB + 1.0)) - 1.0) * _MIB)


def beside_plan(tables: Tables, way: Way, columns: Columns) -> np.ndarray:
    """[N] what the runtime holds beyond the "reserved_bytes" of ``columns``: opening's copies, a search's workspace."""
    held = columns["reserved_bytes"] - float(_copies(way)) * columns["weight_bytes"]
    if packs(way):
        return opened_bytes(tables, way, held)
    searched = searched_bytes(tables, way)
    grown = grown_bytes(columns["activation_bytes"] + searched)
    return np.where(searched > 0, np.maximum(grown - held, 0.0), 0.0)


def columns_of(planned: PlannedRun) -> dict[str, np.ndarray]:
    """What the memory of one run is made from, as N = 1."""
    plan = planned.plan
    facts = (plan.weight_bytes, plan.peak_activation_bytes, reserved_bytes(planned))
    names = ("weight_bytes", "activation_bytes", "reserved_bytes")
    found = {name: np.array([value], dtype=np.float64) for name, value in zip(names, facts, strict=True)}
    classes = OPERATOR_CLASS_OF[np.asarray(planned.graph.core.op)]
    found["convolutional"] = np.array([(classes == _CONVOLUTION).any()], dtype=np.float64)
    if planned.way.as_measured.runtime == "onnxruntime":
        counted = counted_costs(planned.graph, float_as=planned.float_as)
        table = as_run(planned.graph, counted, planned.way.runtime, planned.way.device.kind)
        found["reserved_bytes"] += beside_plan(Tables.one(table), planned.way, found)
    return found


def convolutional(tables: Tables) -> np.ndarray:
    """[N] 1 where a network has convolutions, else 0."""
    return tables.any(np.asarray(tables.table.op_class) == _CONVOLUTION).astype(np.float64)


def keeps_no_scores(way: Way) -> bool:
    """Whether PyTorch's own attention has a kernel that keeps no scores: flash, or memory-efficient, which knows fp32.

    Of NVIDIA's GPUs since Maxwell, and of AMD's by AOTriton; none of fp64 (aten/.../cuda/sdp_utils.cpp). The CPU's is
    flash in every precision of floats.
    """
    if way.device.kind == "cpu":
        return True
    return way.device.vendor in ("NVIDIA", "AMD") and PRECISIONS[way.precision][0] != "float64"


def score_bytes(tables: Tables, way: Way) -> np.ndarray:
    """[N] what autograd keeps of the scores of attention that a graph has as one operator, where no fused kernel runs.

    Softmax and what dropout makes of it, in fp32 under autocast (its list of CUDA operators that run in fp32), and a
    byte of dropout's mask.
    """
    table = tables.table
    scores = np.asarray(table.b, dtype=np.float64) * np.asarray(table.m) * np.asarray(table.n)
    scores = np.where(np.asarray(table.op_class) == _ATTENTION, scores, 0.0)
    wide = autocasts(way.precision) or PRECISIONS[way.precision][0] in ("float32", "float64")
    return tables.sums(scores * np.asarray(table.count)) * (2.0 * (4.0 if wide else 2.0) + 1.0)


def runs_of(run: Run, *, training: bool = False) -> Runs:
    """One run, or the step of one forward graph, as N = 1."""
    graph, plan = run.graph, run.plan
    reserved = alive = gradients = 0
    if training:
        alive, gradients = _backward(run)
    else:
        reserved = reserved_bytes(run)
    tables = Tables.one(run.table)
    elements = [float(prod(shape)) for shape in map(graph.core.shape, graph.graph_inputs.tolist())]
    facts = (plan.weight_bytes, plan.peak_activation_bytes, reserved, sum(elements), *(elements or [0.0])[:1])
    described = float(graph.by_description)
    runs = Runs(
        tables,
        np.array([run.batch]),
        *(np.array([value], dtype=np.float64) for value in (*facts, alive, gradients, described)),
    )
    return runs if training else with_beside_plan(runs, run.way)


def with_beside_plan(runs: Runs, way: Way) -> Runs:
    """``runs`` of inference whose reserved bytes hold what `beside_plan` counts."""
    if way.as_measured.runtime != "onnxruntime":
        return runs
    beside = beside_plan(runs.tables, way, vars(runs))
    return replace(runs, reserved_bytes=runs.reserved_bytes + beside) if beside.any() else runs


def saved(run: PlannedRun) -> SavedActivations:
    """What a step of ``run``'s graph keeps between its passes, without what is frozen, and its backward pass."""
    return saved_activations(followed(run), run.float_as, BLOCK_BYTES, autocast=autocasts(run.way.precision))


def followed(run: PlannedRun) -> OpGraph:
    """What autograd follows of ``run``'s graph: all but what stands before anything that is trained."""
    graph = run.graph
    if graph.frozen:
        from perfpass.graph import frozen

        graph = frozen.backward_part(graph, frozen.flags(graph, graph.frozen))
    return graph


def _backward(run: Run) -> tuple[int, int]:
    """Bytes of activations and their gradients alive in the backward pass, and of gradients of weights then."""
    kept = saved(run)
    if not run.graph.frozen or kept.backward > run.plan.peak_activation_bytes:
        return kept.backward, kept.gradients
    # What is frozen before all that is trained runs as in inference, whose peak may be the larger one.
    return run.plan.peak_activation_bytes, 0
