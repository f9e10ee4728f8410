"""Per-node memory statistics for ONNX Runtime's resource partitioning, from the graph instead of a profiling run.

With ``session.resource_cuda_partitioning_settings`` = "limit in KB,file.csv" ONNX Runtime gives nodes to its CUDA
provider until their statistics add up to the limit. The file usually comes from a run of the whole model on the GPU
(``session.collect_node_memory_stats_to_file``), which the models that need it most do not fit on. Format, names and
what is added up: onnxruntime, core/framework/resource_accountant.cc and sequential_executor.cc (1.31).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from perfpass.errors import ArgumentError, LimitError, PerfPassError, UnsupportedError
from perfpass.whole_file import write_whole

if TYPE_CHECKING:
    from perfpass.graph import OpGraph

COLUMNS = ("name", "input_sizes", "initializers_sizes", "total_dynamic_sizes", "total_temp_allocations")
SETTING = "session.resource_cuda_partitioning_settings"
_CONTROL = frozenset({"If", "Loop", "Scan"})


@dataclass(frozen=True)
class NodeStatistics:
    """One line of the file: the node by ONNX Runtime's unique name, sizes in bytes.

    Every tensor counts once in a run: a weight or an input of the model at the first node that reads it
    (``input_sizes``; onnxruntime 1.31 leaves ``initializers_sizes`` at 0), any other at the node that makes it.
    """

    name: str
    input_sizes: int
    initializers_sizes: int
    total_dynamic_sizes: int
    total_temp_allocations: int

    @property
    def total(self) -> int:
        """What ONNX Runtime charges for the node."""
        return self.input_sizes + self.initializers_sizes + self.total_dynamic_sizes + self.total_temp_allocations


@dataclass(frozen=True)
class Partition:
    """The statistics of a model's nodes and the device memory that they may take.

    ``limit_kb`` is what the device has beyond context and workspace; ``source`` says whose graph it is ("onnxruntime"
    after its basic optimisations, as its partitioning sees it, or "file"), ``left_out`` how many nodes of subgraphs
    have no line (ONNX Runtime charges nothing for those), ``name`` that of the session's setting.
    """

    nodes: tuple[NodeStatistics, ...]
    limit_kb: int
    source: str
    why_file: str
    left_out: int
    name: ClassVar[str] = SETTING

    @property
    def total_bytes(self) -> int:
        """What ONNX Runtime would charge for the whole model."""
        return sum(node.total for node in self.nodes)

    def setting(self, file: str | os.PathLike[str]) -> str:
        """The value of ``session.resource_cuda_partitioning_settings`` for a file; relative to the model's folder."""
        if "," in os.fspath(file):
            raise ArgumentError(f"{os.fspath(file)}: onnxruntime separates limit and file by a comma; name it without")
        return f"{self.limit_kb},{os.fspath(file)}"

    def write(self, path: str | os.PathLike[str]) -> None:
        """The CSV file, put in its place whole. Raises FileError."""
        lines = ["#" + ",".join(COLUMNS)]
        lines += [",".join(str(getattr(node, column)) for column in COLUMNS) for node in self.nodes]
        write_whole(path, "\n".join(lines) + "\n")


def partition(
    model: str | os.PathLike[str],
    device: Any,
    *,
    batch: int | None = None,
    dims: Mapping[str, int] | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    source: str = "auto",
) -> Partition:
    """The statistics of every node of an ONNX file, for partitioning it on ``device``.

    ``dims``, ``batch`` and ``input_shapes`` are those of `perfpass.load`; give the largest shapes that will run.
    ``source``: "onnxruntime" has ONNX Runtime optimise the graph in a session on the CPU (needs weights, the native
    provider and onnxruntime 1.23 or later), "file" takes the nodes as the file has them, "auto" the first if possible.
    Names must be those of the graph that ONNX Runtime partitions, so "file" misses nodes that it folds or fuses.

    Raises what `perfpass.load` raises, DeviceError, and UnsupportedError where a session cannot be observed.
    """
    from perfpass.devices import device as find_device

    if source not in ("auto", "onnxruntime", "file"):
        raise ArgumentError(f"unknown source {source!r}; allowed are auto, onnxruntime, file")
    target = find_device(device)
    shapes: dict[str, Any] = {"dims": dims, "input_shapes": input_shapes, "batch": batch}
    problem = ""
    graph = None
    if source != "file":
        try:
            graph = optimised_graph(model, shapes)
        except UnsupportedError as error:
            if source == "onnxruntime":
                raise
            problem = str(error)
    if graph is None:
        from perfpass.importers import onnx

        graph = onnx.read(model, **shapes)
    nodes, left_out = statistics(graph)
    return Partition(
        nodes, _limit_kb(target), "file" if problem or source == "file" else "onnxruntime", problem, left_out
    )


def optimised_graph(model: str | os.PathLike[str], shapes: Mapping[str, Any]) -> OpGraph:
    """The graph that ONNX Runtime partitions, after its basic optimisations, from a session on the CPU.

    ``shapes``: dims, input_shapes and batch as `perfpass.importers.onnx.read` takes them. Raises UnsupportedError where
    onnxruntime or the native provider is not there or refuses the model, and what reading the graph raises.
    """
    from ort_extension.observer import observe, why_not

    if why_not():
        raise UnsupportedError(why_not())
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    # Later levels work on what was partitioned: fused nodes have other names.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    observation = observe(options)
    try:
        onnxruntime.InferenceSession(os.fspath(model), options)
        return observation.read(**shapes)
    except PerfPassError:
        raise
    except Exception as error:  # onnxruntime raises classes of its own, all of them below Exception
        if observation.seen:
            return observation.read(**shapes)
        reason = " ".join(str(error).split())[:200]
        raise UnsupportedError(f"onnxruntime does not open the model: {reason}; take source='file'") from error
    finally:
        observation.close()


def statistics(graph: OpGraph) -> tuple[tuple[NodeStatistics, ...], int]:
    """A line per node, in execution order, and the number of nodes of subgraphs, which are left out."""
    sizes = _tensor_bytes(graph)
    names = [graph.string(int(name)) for name in graph.tensor_name]
    counted: set[int] = set()
    nodes: dict[str, NodeStatistics] = {}
    inside = _within_control(graph)
    for node in range(graph.node_count):
        if node in inside:
            continue
        inputs = [int(t) for t in graph.node_inputs(node)]
        outputs = [int(t) for t in graph.node_outputs(node)]
        read = [t for t in dict.fromkeys(inputs) if t >= 0 and t not in counted]
        made = [t for t in outputs if t >= 0]
        counted.update(read, made)
        tensors = [names[t] if t >= 0 else "" for t in (*inputs, *outputs)]
        label = graph.string(int(graph.node_name[node])) or graph.source_op_name(node)
        name = unique_name(label, tensors)
        if "," in name or "\n" in name:
            raise UnsupportedError(f"node {label!r} has a comma in its name, which onnxruntime's file cannot hold")
        nodes[name] = NodeStatistics(name, sum(sizes[t] for t in read), 0, sum(sizes[t] for t in made), 0)
    return tuple(nodes.values()), len(inside)


def _within_control(graph: OpGraph) -> set[int]:
    """Nodes of subgraphs, and the control nodes: what those read in our graph is not what they read in the file."""
    prefixes = tuple(
        f"{graph.label(node)}/" for node in range(graph.node_count) if graph.source_op_name(node) in _CONTROL
    )
    if not prefixes:
        return set()
    return {
        node
        for node in range(graph.node_count)
        if graph.source_op_name(node) in _CONTROL or graph.label(node).startswith(prefixes)
    }


def _tensor_bytes(graph: OpGraph) -> list[int]:
    import numpy as np

    from perfpass import _core

    bits = np.asarray(_core.DTYPE_BITS)[graph.tensor_dtype]
    found = []
    for tensor, width in enumerate(bits.tolist()):
        count = 1
        for size in graph.shape(tensor):
            count *= size
        found.append(-(-count * width // 8))
    if sum(found) >= 1 << 62:
        raise LimitError("the model's tensors add up to more than 2^62 bytes")
    return found


def _limit_kb(device: Any) -> int:
    """Device memory without what the driver's context and the libraries' workspace take."""
    from perfpass.predictors.memory.process import beside_high_bytes

    return max(0, int(device.usable_bytes - beside_high_bytes(device)) // 1024)


def unique_name(label: str, tensors: Sequence[str]) -> str:
    """ONNX Runtime's name of a node in the file: its name (its operator if it has none), "_" and a hash.

    ``tensors``: the names of its inputs, then of its outputs; "" for an absent one. The hash is MurmurHash3 (x86, 128
    bits) of one name after another, each seeded with the first word of the hash before; its first two words count.
    """
    hashed = (0, 0, 0, 0)
    for text in tensors:
        hashed = murmur3(text.encode(), hashed[0])
    return f"{label}_{hashed[0] | hashed[1] << 32}"


_MASK = 0xFFFFFFFF
_FACTORS = (0x239B961B, 0xAB0E9789, 0x38B34AE5, 0xA1E38B93)
_ROTATIONS = ((15, 19), (16, 17), (17, 15), (18, 13))
_ADDENDS = (0x561CCD1B, 0x0BCAA747, 0x96CD1C35, 0x32AC3B17)


def murmur3(data: bytes, seed: int) -> tuple[int, int, int, int]:
    """MurmurHash3_x86_128 by Austin Appleby (public domain), as four words."""
    h = [seed] * 4
    whole = len(data) // 16 * 16
    for start in range(0, whole, 16):
        for i in range(4):
            h[i] ^= _mixed(int.from_bytes(data[start + 4 * i : start + 4 * i + 4], "little"), i)
            h[i] = _rotated(h[i], _ROTATIONS[i][1])
            h[i] = ((h[i] + h[(i + 1) % 4]) * 5 + _ADDENDS[i]) & _MASK
    for i in range(4):
        rest = data[whole + 4 * i : whole + 4 * i + 4]
        if rest:
            h[i] ^= _mixed(int.from_bytes(rest, "little"), i)
    h = _spread([word ^ len(data) for word in h])
    first, *others = _spread([_avalanche(word) for word in h])
    return (first, *others)  # type: ignore[return-value]


def _mixed(word: int, i: int) -> int:
    word = word * _FACTORS[i] & _MASK
    return _rotated(word, _ROTATIONS[i][0]) * _FACTORS[(i + 1) % 4] & _MASK


def _rotated(word: int, by: int) -> int:
    return (word << by | word >> (32 - by)) & _MASK


def _spread(h: list[int]) -> list[int]:
    first = sum(h) & _MASK
    return [first, *((word + first) & _MASK for word in h[1:])]


def _avalanche(word: int) -> int:
    word = (word ^ word >> 16) * 0x85EBCA6B & _MASK
    word = (word ^ word >> 13) * 0xC2B2AE35 & _MASK
    return word ^ word >> 16
