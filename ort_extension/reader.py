"""ONNX Runtime as a reader of perfpass: the graph that it partitions. Registers that, and `perfpass partition`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ort_extension.partition import optimised_graph, partition
from perfpass import extensions
from perfpass.importers.readers import Reader, register

if TYPE_CHECKING:
    from perfpass.graph import OpGraph


class _OnnxRuntime(Reader):
    """A session on the CPU, after its basic optimisations; files alone."""

    name = "onnxruntime"

    def read_file(self, path: str, sizes: Mapping[str, Any]) -> tuple[OpGraph, str]:
        """The graph as ONNX Runtime has it, and its version."""
        graph = optimised_graph(path, sizes)
        import onnxruntime

        return graph, str(onnxruntime.__version__)


onnxruntime = _OnnxRuntime()
register(onnxruntime)
extensions.register("perfpass.commands", "partition", partition)
