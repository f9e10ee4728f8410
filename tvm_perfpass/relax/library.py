"""relax.build with the prediction in what it builds, and beside the library that is exported from it.

The executable gets a function ``perfpass_prediction`` that returns the prediction's JSON as bytes: it survives
``export_library`` and ``tvm.runtime.load_module``. Exporting also writes the JSON beside the library, to be read
without loading native code.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax

from perfpass.bounded_file import reason
from perfpass.decision import Limits
from perfpass.devices import Device
from perfpass.errors import ArgumentError, FileError, FormatError, LimitError
from perfpass.json_text import read_json
from perfpass.whole_file import write_whole
from tvm_perfpass.attributes import prediction_of
from tvm_perfpass.relax.passes import PredictPerformance

FUNCTION = "perfpass_prediction"
SCHEMA_VERSION = 1
_LARGEST_SIDECAR_BYTES = 1 << 24


class PredictedExecutable(relax.VMExecutable):
    """What relax.build returns, with its ``prediction``; ``export_library`` also writes the sidecar."""

    def __init__(self, module: Any, prediction: dict[str, Any]) -> None:
        super().__init__(module)
        self.prediction = prediction

    def export_library(self, file_name: Any, **kwargs: Any) -> Any:
        """As TVM's, and ``<file_name>.perfpass.json`` beside it. Raises FileError where that cannot be written."""
        path = Path(os.fspath(file_name))
        sidecar(path).unlink(missing_ok=True)  # of an older library: worse than none
        result = super().export_library(str(path), **kwargs)
        document = {
            "schema_version": SCHEMA_VERSION,
            "library_bytes": path.stat().st_size,
            "prediction": self.prediction,
        }
        write_whole(sidecar(path), json.dumps(document))
        return result


def build(
    mod: tvm.IRModule,
    target: Any = None,
    params: Mapping[str, Any] | None = None,
    *,
    device: str | Device,
    bindings: Mapping[str, int] | None = None,
    precision: str | None = None,
    batch: int | None = None,
    layout: str | None = None,
    calibration: Any = True,
    limits: Limits | None = None,
    **kwargs: Any,
) -> PredictedExecutable:
    """``relax.build(mod, target, params, **kwargs)``, with the prediction for ``device`` kept in the result.

    Read it with ``read_prediction``: from the executable, from a library loaded by ``tvm.runtime.load_module``, or from
    the sidecar beside an exported library, by the library's path. ``bindings``, ``precision``, ``batch``, ``layout``,
    ``calibration`` and ``limits`` are those of PredictPerformance; outputs are those of ``relax.build``. Raises
    ArgumentError for something other than a module, and what the pass raises.
    """
    if not isinstance(mod, tvm.IRModule):
        raise ArgumentError(f"expected a tvm.IRModule, got {type(mod).__name__}")
    # relax.build's params are the values of constants that the module names, not parameters of main.
    predict: Any = PredictPerformance(
        device,
        bindings=bindings,
        precision=precision,
        batch=batch,
        layout=layout,
        calibration=calibration,
        limits=limits,
    )
    annotated = predict(mod)
    prediction = prediction_of(annotated)
    executable = relax.build(_with_function(annotated, prediction), target, dict(params or {}), **kwargs)
    return PredictedExecutable(executable.mod, prediction)


def read_prediction(source: Any) -> dict[str, Any]:
    """The prediction of a module, an executable or a library, as ``Prediction.to_dict`` gives it.

    ``perfpass.Decision.from_dict(found["decision"])`` is its decision.
    ``source``: a tvm.IRModule that the pass has seen, what ``build`` returned, what ``tvm.runtime.load_module``
    returned for a library exported from it, or the path of such a library (its sidecar is read, the library is not
    loaded). Raises GraphError or ArgumentError where there is none, FileError for a path without a sidecar, FormatError
    for a sidecar that is damaged or of another library.
    """
    if isinstance(source, tvm.IRModule):
        return prediction_of(source)
    if isinstance(source, PredictedExecutable):
        return source.prediction
    if isinstance(source, str | os.PathLike):
        return _read_sidecar(Path(source))
    if isinstance(source, tvm.runtime.Executable):
        source = source.mod
    if not isinstance(source, tvm.runtime.Module):
        raise ArgumentError(
            f"expected a tvm.IRModule, an executable, a loaded library or a path, got {type(source).__name__}"
        )
    try:
        return json.loads(bytes(relax.VirtualMachine(source, tvm.cpu())[FUNCTION]().numpy()))
    except (AttributeError, ValueError, RuntimeError) as error:
        raise ArgumentError(
            "the library carries no prediction; read_prediction needs one built by tvm_perfpass.relax.build"
        ) from error


def sidecar(library: Path) -> Path:
    """Where the prediction of an exported library lies: model.so.perfpass.json beside model.so."""
    return library.with_name(library.name + ".perfpass.json")


def _with_function(mod: tvm.IRModule, prediction: dict[str, Any]) -> tvm.IRModule:
    if any(var.name_hint == FUNCTION for var, _ in mod.functions.items()):
        raise ArgumentError(f"the module has a function {FUNCTION} already; build the module as it was before")
    text = relax.const(np.frombuffer(json.dumps(prediction).encode(), dtype=np.uint8).copy())
    function = relax.Function([], relax.SeqExpr([], text), text.ty).with_attr("global_symbol", FUNCTION)
    out = tvm.IRModule(dict(mod.functions.items()), attrs=mod.attrs, global_infos=mod.global_infos)
    out[FUNCTION] = function
    return out


def _read_sidecar(library: Path) -> dict[str, Any]:
    path = sidecar(library)
    try:
        document = read_json(
            path, "a prediction beside a library", _LARGEST_SIDECAR_BYTES, way_out="export the library again"
        )
        size = library.stat().st_size
    except OSError as error:
        found = str(error) if isinstance(error, FileError) else f"{library}: {reason(error)}"
        raise FileError(
            f"{found}; export_library of what tvm_perfpass.relax.build returned writes it. "
            "A library also carries its prediction inside: read_prediction(tvm.runtime.load_module(path))"
        ) from error
    except LimitError as error:
        raise LimitError(f"{error}; export the library again") from error
    wrong = None
    if not isinstance(document, dict) or document.get("schema_version") != SCHEMA_VERSION:
        wrong = f"is not of schema version {SCHEMA_VERSION}"
    elif not isinstance(document.get("prediction"), dict):
        wrong = "holds no prediction"
    elif document.get("library_bytes") != size:
        wrong = f"was written for a library of {document.get('library_bytes')} bytes, {library.name} has {size}"
    if wrong:
        raise FormatError(f"{path} {wrong}; export the library again")
    return document["prediction"]
