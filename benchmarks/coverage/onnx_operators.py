"""ONNX's own tests: every operator's node tests and the small networks of the same suite, with the shapes they give."""

from __future__ import annotations

import contextlib
import io
import warnings
from pathlib import Path

import onnx
from onnx import numpy_helper
from row import Reading

import perfpass
from perfpass.graph import OpGraph
from perfpass.importers.onnx import inputs

TITLE = "ONNX's operator tests"
PACKAGES = ("onnx",)
_MADE = Path(__file__).resolve().parents[2] / "build" / "coverage" / f"onnx_operators_{onnx.__version__}"
_STORED = Path(onnx.__file__).parent / "backend" / "test" / "data"


class WrongShapeError(Exception):
    """An output of the graph has another shape than the test expects."""


def models() -> list[str]:
    """Names of the tests: those that onnx makes, once, and those that it ships as files."""
    if not (_MADE / "all").exists():
        _make()
    stored = (f"{path.parent.parent.name}/{path.parent.name}" for path in _STORED.glob("*/*/model.onnx"))
    return sorted([*(path.stem for path in _MADE.glob("*.onnx")), *stored])


def read(model: str) -> Reading:
    """The test's model; every output has the shape of the expected one where the test ships it."""
    path = _STORED / model / "model.onnx" if "/" in model else _MADE / f"{model}.onnx"
    graph = perfpass.load(path, dims=_sizes(path))
    expected = path.with_name("expected") if "/" in model else path.with_suffix(".shapes")
    if expected.exists():
        _compare(graph, expected)
    return Reading(graph)


def _sizes(path: Path) -> dict[str, int]:
    """Sizes of what the file leaves open: any, as nothing that has such a size is compared."""
    axes = (axis for declared in inputs(path) for axis in declared.shape or ())
    return {axis: 3 for axis in axes if isinstance(axis, str)}


def _compare(graph: OpGraph, expected: Path) -> None:
    outputs = [graph.shape(int(t)) for t in graph.graph_outputs]
    wanted = [
        None if line == "none" else tuple(map(int, line.split())) for line in expected.read_text().split("\n")[:-1]
    ]
    for shape, right in zip(outputs, wanted, strict=False):
        if right is not None and shape != right:
            raise WrongShapeError(f"an output of shape {shape}, and the test expects {right}")


def _make() -> None:
    """Models and the shapes of their outputs as files; a line an output, none for what is no tensor."""
    from onnx.backend.test.case import model as networks
    from onnx.backend.test.case import node as nodes

    _MADE.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        cases = [*nodes.collect_testcases(None), *networks.collect_testcases()]
    for case in cases:
        if case.model is None:
            continue
        onnx.save(case.model, str(_MADE / f"{case.name}.onnx"))
        shapes = [_shape(value) for _, outputs in case.data_sets[:1] for value in outputs]
        (_MADE / f"{case.name}.shapes").write_text("".join(f"{shape}\n" for shape in shapes))
    (_MADE / "all").touch()


def _shape(value: object) -> str:
    if isinstance(value, onnx.TensorProto):
        value = numpy_helper.to_array(value)
    shape = getattr(value, "shape", None)
    return "none" if shape is None else " ".join(map(str, shape))
