"""SavedModel folders and frozen graphs -> OpGraph: a signature's inputs at fixed sizes, and a walk to its outputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from perfpass.errors import FormatError, UnsupportedError
from perfpass.graph import OpGraph
from perfpass.importers.formats.batch import scaled
from perfpass.importers.formats.channels_last import Program, Tensor, shown
from perfpass.importers.formats.protobuf import Span, entry, fields, inside, mapped, text
from perfpass.importers.formats.sizes import Sizes, fixed
from perfpass.importers.formats.tensorflow.compute import COMPUTE
from perfpass.importers.formats.tensorflow.control import CONTROL
from perfpass.importers.formats.tensorflow.fusing import fused
from perfpass.importers.formats.tensorflow.graph_def import Declared, Graph, Signature, graph, signature
from perfpass.importers.formats.tensorflow.movement import MOVEMENT
from perfpass.importers.formats.tensorflow.run import Run, Value
from perfpass.importers.onnx import Input
from perfpass.text import shown_value

SAVED_MODEL = "saved_model.pb"
_DEFAULT = "serving_default"
_INITIALISER = "__saved_model_init_op"
_SERVE = "serve"
_OPERATORS = {**COMPUTE, **MOVEMENT, **CONTROL}
_PLACEHOLDERS = ("Placeholder", "PlaceholderV2")
# What does not count as a result of a frozen graph, although nothing reads it.
_NO_RESULT = frozenset({"Const", "NoOp", "Assert", "SaveV2", "Assign", "VarHandleOp", *_PLACEHOLDERS})


@dataclass
class _Model:
    graph: Graph
    signature: Signature


def read(path: Path, sizes: Sizes) -> OpGraph:
    """The operator graph of a SavedModel folder, its saved_model.pb, or a frozen graph, at ``sizes``.

    Raises FileError, FormatError, LimitError, ShapeError, GraphError and UnsupportedError.
    """
    with _opened(path) as model:
        declared = model.signature.inputs
        program = Program()
        at = fixed(_inputs(declared), sizes)
        made: dict[str, Sequence[Value]] = {}
        for own in declared:
            node, _, number = own.result.partition(":")
            if number not in ("", "0"):
                raise UnsupportedError(f"the input {shown_value(own.key)} is result {number} of a node")
            made[node] = [program.input(own.key, at.shapes[own.key], own.dtype)]
        batch = next((shape[0] for shape in at.shapes.values() if shape), 1)
        run = Run(model.graph, program, _OPERATORS, batch)
        found = run.results(model.graph.nodes, made, [own.result for own in model.signature.outputs])
        outputs = [run.weight(value) for value in found if isinstance(value, Tensor)]
        if not outputs or not program.nodes:
            raise UnsupportedError("the model's signature computes nothing from its inputs")
        fused(run, outputs)
        return scaled(shown(program, outputs), at.declared_batch, at.batch)


def inputs(path: Path) -> tuple[Input, ...]:
    """The inputs of the signature that `read` takes. Raises as `read`."""
    with _opened(path) as model:
        return _inputs(model.signature.inputs)


def _inputs(declared: Sequence[Declared]) -> tuple[Input, ...]:
    found = []
    for own in declared:
        shape = own.shape
        symbols = None
        if shape is not None:
            symbols = tuple(
                s if s >= 0 else "batch" if axis == 0 else f"{own.key}:{axis}" for axis, s in enumerate(shape)
            )
        found.append(Input(own.key, own.dtype, symbols))
    return tuple(found)


@contextmanager
def _opened(path: Path) -> Iterator[_Model]:
    """The graph and the signature of a model, whose file stays mapped while they are read."""
    file = path / SAVED_MODEL if path.is_dir() else path
    with mapped(file, "a TensorFlow model") as whole:
        yield _frozen(whole) if whole.data[0] == 0x0A else _saved(whole)


def _saved(whole: Span) -> _Model:
    """The graph of a SavedModel that is tagged to be served, and its signature."""
    chosen, tagged = None, False
    for number, _, part in fields(whole):
        if number == 2:
            serves = _SERVE in _tags(inside(part))
            if chosen is None or (serves and not tagged):
                chosen, tagged = inside(part), serves
    if chosen is None:
        raise FormatError("a SavedModel without a graph; the file is damaged or no SavedModel")
    body, signatures = None, {}
    for number, _, part in fields(chosen):
        if number == 2:
            body = inside(part)
        elif number == 5:
            key, value = entry(part)
            signatures[key] = value
    if body is None:
        raise FormatError("a SavedModel without a graph; the file is damaged")
    named = sorted(set(signatures) - {_INITIALISER})
    if _DEFAULT in signatures:
        name = _DEFAULT
    elif len(named) == 1:
        name = named[0]
    else:
        has = f"the signatures {', '.join(shown_value(n) for n in named[:8])}" if named else "no signature"
        raise UnsupportedError(
            f"a SavedModel with {has} and none called {_DEFAULT}; save it with signatures={{'{_DEFAULT}': "
            "model.the_function}"
        )
    return _Model(graph(body), signature(signatures[name]))


def _tags(span: Span) -> set[str]:
    for number, _, part in fields(span):
        if number == 1:
            return {text(p) for n, _, p in fields(inside(part)) if n == 4}
    return set()


def _frozen(whole: Span) -> _Model:
    """A GraphDef by itself: its placeholders are the inputs, what nothing reads are the outputs."""
    body = graph(whole)
    read_: set[str] = set()
    nodes = body.nodes.all()
    for node in nodes:
        read_.update(reference.partition(":")[0] for reference in node.inputs)
    given = [node for node in nodes if node.op in _PLACEHOLDERS]
    results = [node for node in nodes if node.name not in read_ and node.op not in _NO_RESULT]
    if not given or not results:
        raise FormatError(
            f"a TensorFlow graph of {len(body.nodes)} nodes with {len(given)} placeholders and {len(results)} results; "
            "a frozen graph has both"
        )
    return _Model(
        body,
        Signature(
            tuple(Declared(n.name, n.name, n.attributes.dtype("dtype"), n.attributes.shape("shape")) for n in given),
            tuple(Declared(n.name, n.name, "float32", None) for n in results),
        ),
    )
