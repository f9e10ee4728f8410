"""TVM as a reader of perfpass: modules in memory, and ONNX files through TVM's own frontends."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from perfpass.errors import needs
from perfpass.importers.readers import Reader, register
from tvm_perfpass.releases import has

if TYPE_CHECKING:
    from perfpass.graph import OpGraph


class _Relay(Reader):
    """TVM up to 0.19."""

    name = "relay"

    def owns(self, model: Any) -> bool:
        """Every module of a TVM that has Relay."""
        return _of_tvm(model) and has("relay")

    def load(self, model: Any, dims: Mapping[str, int] | None) -> OpGraph:
        """The graph of a Relay module, whose shapes are all set."""
        from tvm_perfpass.relay.module_walk import import_module

        return import_module(model)

    def read_file(self, path: str, sizes: Mapping[str, Any]) -> tuple[OpGraph, str]:
        """The graph that Relay's frontend makes, and TVM's version."""
        with _frontend(self.name, "tvm") as version:
            from tvm_perfpass.onnx_model import relay_graph

            return relay_graph(path, _whole_shapes(path, sizes)), version


class _Relax(Reader):
    """Today's TVM."""

    name = "relax"

    def owns(self, model: Any) -> bool:
        """Every module of a TVM without Relay; `load` says what a TVM lacks that has neither."""
        return _of_tvm(model) and not has("relay")

    def load(self, model: Any, dims: Mapping[str, int] | None) -> OpGraph:
        """The graph of a Relax module."""
        from tvm_perfpass import relax

        return relax.load(model, dims)

    def read_file(self, path: str, sizes: Mapping[str, Any]) -> tuple[OpGraph, str]:
        """The graph that Relax's frontend makes, and TVM's version."""
        with _frontend(self.name, "relax") as version:
            from tvm_perfpass.onnx_model import relax_graph

            return relax_graph(path, _whole_shapes(path, sizes)), version


def _of_tvm(model: Any) -> bool:
    return "tvm" in {base.__module__.partition(".")[0] for base in type(model).__mro__}


@contextlib.contextmanager
def _frontend(reader: str, extra: str) -> Iterator[str]:
    """TVM's version; its frontends print what they could not convert, which is no result of ours."""
    os.environ.setdefault("TOPHUB_LOCATION", "NONE")  # no download of tuning logs
    what = f"the reader {reader} (unless --python {reader}=PYTHON names one that has it)"
    with needs("onnx", what):
        import onnx  # noqa: F401
    with needs(extra, what):
        import tvm
    with contextlib.redirect_stdout(io.StringIO()):
        yield str(tvm.__version__)


def _whole_shapes(path: str, sizes: Mapping[str, Any]) -> dict[str, list[int]]:
    """Shapes of all inputs, with the sizes that were given."""
    from perfpass.importers import onnx

    graph = onnx.read(path, **sizes)
    return {graph.string(int(graph.tensor_name[t])): list(graph.shape(int(t))) for t in graph.graph_inputs}


relay, relax = _Relay(), _Relax()
register(relay)
register(relax)
