"""ONNX files through TVM's own frontends, as operator graphs: Relay (TVM up to 0.19) or Relax, whichever is loaded."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from perfpass.bounded_file import open_regular
from perfpass.errors import LimitError, PerfPassError, UnsupportedError, needs, shown

if TYPE_CHECKING:
    from perfpass.graph import OpGraph


_MOST_BYTES = 2**31 - 1


def relay_graph(model: str | os.PathLike[str], shapes: Mapping[str, list[int]]) -> OpGraph:
    """The graph of `relay.frontend.from_onnx`; ``shapes`` of the inputs. Weights are read.

    Raises UnsupportedError where the loaded TVM has no Relay or its frontend refuses the model.
    """
    with needs("onnx", "Relay's frontend"):
        import onnx
    import tvm

    if not hasattr(tvm, "relay"):
        raise UnsupportedError(f"TVM {tvm.__version__} has no Relay; name a Python that has TVM 0.19")
    from tvm import relay

    from tvm_perfpass.relay.module_walk import import_module

    with _onnx_mapping():
        module, params = _by_frontend(
            lambda: relay.frontend.from_onnx(_opened(onnx, model), shape=dict(shapes), freeze_params=False)
        )
    return import_module(module, params)


def relax_graph(model: str | os.PathLike[str], shapes: Mapping[str, list[int]]) -> OpGraph:
    """The graph of `relax.frontend.onnx.from_onnx`, as `relay_graph`."""
    with needs("onnx", "Relax's frontend"):
        import onnx
    import tvm

    if not hasattr(tvm, "relax"):
        raise UnsupportedError(f"TVM {tvm.__version__} has no Relax; name a Python that has one")
    from tvm.relax.frontend.onnx import from_onnx

    from tvm_perfpass.relax import load

    module = _by_frontend(lambda: from_onnx(_opened(onnx, model), shape_dict=dict(shapes), keep_params_in_input=False))
    return load(module)


def _opened(onnx: Any, model: str | os.PathLike[str]) -> Any:
    """The ModelProto: a regular file, of what protobuf can read, as our own reader takes it."""
    with os.fdopen(open_regular(model, "an ONNX model"), "rb") as file:
        if os.fstat(file.fileno()).st_size > _MOST_BYTES:
            raise LimitError(f"{shown(model)}: over 2 GiB, which protobuf cannot read; keep the weights in other files")
    return onnx.load(model)


def _by_frontend(convert: Any) -> Any:
    try:
        return convert()
    except PerfPassError:
        raise
    except Exception as error:  # TVM's frontends raise whatever their converters do
        lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        raise UnsupportedError(f"TVM's frontend does not read the model: {lines[-1].strip()[:200]}") from error


@contextmanager
def _onnx_mapping() -> Iterator[None]:
    """Relay's frontend asks onnx.mapping for NumPy's types, which onnx dropped in 1.19."""
    import numpy as np

    onnx: Any = import_module("onnx")
    if hasattr(onnx, "mapping"):
        yield
        return
    codes = [code for code in onnx.TensorProto.DataType.values() if code not in (0, 8)]
    mapping: Any = types.ModuleType("onnx.mapping")
    mapping.TENSOR_TYPE_TO_NP_TYPE = {code: np.dtype(onnx.helper.tensor_dtype_to_np_dtype(code)) for code in codes}
    mapping.NP_TYPE_TO_TENSOR_TYPE = {kind: code for code, kind in mapping.TENSOR_TYPE_TO_NP_TYPE.items()}
    sys.modules["onnx.mapping"] = onnx.mapping = mapping
    try:
        yield
    finally:
        del sys.modules["onnx.mapping"], onnx.mapping
