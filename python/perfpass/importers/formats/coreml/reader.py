"""Core ML models to operator graphs: `.mlpackage` folders and `.mlmodel` files, without their weights.

ML Programs, neural networks and pipelines of them; other kinds of models are refused by name.
"""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

from perfpass.errors import FormatError, UnsupportedError, about
from perfpass.graph import OpGraph
from perfpass.importers.draft import Draft
from perfpass.importers.formats.batch import scaled
from perfpass.importers.formats.coreml import alike, network, package
from perfpass.importers.formats.coreml.program import DTYPES, Program, Value
from perfpass.importers.formats.protobuf import Message, listed
from perfpass.importers.formats.shapes import Shape
from perfpass.importers.formats.sizes import Sizes, fixed
from perfpass.importers.onnx import Input

_NEURAL = (303, 403, 500)  # neural networks: regressor, classifier, plain
_PROGRAM = 502
_PIPELINES = {200: 1, 201: 1, 202: 0}  # where the pipeline is: in a field of its classifier, or itself
_OTHERS = {
    300: "a linear model", 301: "a support vector machine", 302: "a tree ensemble", 304: "a Bayesian probit",
    400: "a linear model", 401: "a support vector machine", 402: "a tree ensemble", 404: "nearest neighbours",
    501: "a recommender", 555: "a custom model", 556: "a linked model", 2000: "a text classifier",
    2001: "a word tagger", 2002: "Apple's own vision features", 2003: "sound preprocessing",
    2004: "a gazetteer", 2005: "a word embedding",
    2006: "Apple's own audio features", 3000: "an encrypted model",
}  # fmt: skip
_STEPS = {
    560: "threshold", 600: "one-hot encoder", 601: "imputer", 602: "feature vectorizer", 603: "dictionary vectorizer",
    604: "scaler", 606: "categorical mapping", 607: "normalizer", 609: "array feature extractor",
    610: "non-maximum suppression", 900: "identity",
}  # fmt: skip
_ARRAY_TYPES = {65568: "float32", 65600: "float64", 131104: "int32", 65552: "float16", 131080: "int8"}
_DEEPEST = 8
_MOST_FUNCTIONS = 4096
_MOST_FEATURES = 65_536


def read(path: Path, sizes: Sizes) -> OpGraph:
    """The model at ``path``.

    Raises FileError, FormatError, LimitError, GraphError, ShapeError for a size that stays open, UnsupportedError for
    a model that is no neural network.
    """
    with about(path), package.opened(path) as model:
        declared = _inputs(model)
        found = fixed(declared, sizes)
        given = [(one.name, one.dtype, found.shapes[one.name]) for one in declared]
        graph = _repeated(model, given)
        if graph is None:
            graph = _one_by_one(model, given)
        return scaled(graph, found.declared_batch, found.batch)


def _repeated(model: Message, given: list[tuple[str, str, Shape]]) -> OpGraph | None:
    """The graph of a program of one function whose operations are all read as `alike` reads them."""
    if not model.has(_PROGRAM):
        return None
    functions = model.one(_PROGRAM).map(2)
    return alike.read(_block(functions, {name for name, _, _ in given}), given) if len(functions) == 1 else None


def _one_by_one(model: Message, given: list[tuple[str, str, Shape]]) -> OpGraph:
    draft, names = Draft(), {}
    for name, dtype, shape in given:
        draft.inputs.append(draft.tensor(dtype, shape, "input", name))
        names[name] = Value(dtype, shape, draft.inputs[-1])
    draft.outputs = list(dict.fromkeys(_add(model, draft, names, 0)))
    return draft.graph()


def inputs(path: Path) -> tuple[Input, ...]:
    """The inputs as the file declares them, states included. Raises as `read`."""
    with about(path), package.opened(path) as model:
        return _inputs(model)


def _add(model: Message, draft: Draft, names: dict[str, Value], depth: int) -> list[int]:
    """A model's operators; the tensors of its outputs."""
    if depth > _DEEPEST:
        raise FormatError(f"pipelines more than {_DEEPEST} deep; the file is damaged")
    if model.has(_PROGRAM):
        return _program(model.one(_PROGRAM), draft, names)
    for number in _NEURAL:
        if model.has(number):
            made = network.add(model.one(number), draft, names)
            return [names[n].tensor for n in _outputs(model) if n in names] or made
    for number, inner in _PIPELINES.items():
        if model.has(number):
            pipeline = model.one(number).one(inner) if inner else model.one(number)
            found: list[int] = []
            for part in pipeline.all(1):
                found = _add(part, draft, names, depth + 1)
            return found
    for number, what in _STEPS.items():
        if model.has(number):
            return _step(model, what, draft, names)
    what = next((what for number, what in _OTHERS.items() if model.has(number)), "no model that is known here")
    raise UnsupportedError(f"the model is {what}; neural networks, ML Programs and pipelines of them are predicted")


def _block(functions: dict[str, Message], known: Container[str]) -> Message:
    """The block that runs, whose function reads inputs that are ``known``. Raises FormatError without one."""
    function = functions.get("main") or next(iter(functions.values()), None)
    if function is None:
        raise FormatError("an ML Program without a function; the file is damaged")
    blocks = function.map(3)
    block = blocks.get(function.text(2)) or next(iter(blocks.values()), None)
    if block is None:
        raise FormatError("an ML Program without a block; the file is damaged")
    for one in function.all(1):
        name = one.text(1)
        if name not in known:
            raise FormatError(f"the program reads '{name[:200]}', which the model does not declare as an input")
    return block


def _program(program: Message, draft: Draft, names: dict[str, Value]) -> list[int]:
    functions = program.map(2)
    block = _block(functions, names)
    if len(functions) > 1:
        draft.notes[f"of {len(functions)} functions the one called main is read, or the first"] = False
    reader = Program(draft, names)
    found = []
    for name in reader.block(block):
        if name not in names:
            raise FormatError(f"the program gives '{name[:200]}', which nothing writes")
        found.append(reader.tensor(names[name], 1.0))
    return [t for t in found if t >= 0]


def _step(model: Message, what: str, draft: Draft, names: dict[str, Value]) -> list[int]:
    """A step of a pipeline beside its networks: an operator that stays unknown, or the choice among boxes."""
    read = [names[i.name].tensor for i in _inputs(model) if i.name in names]
    made = []
    for feature in listed(model.one(2).all(10), _MOST_FEATURES, "outputs"):
        dtype, shape = _feature(feature.one(3))
        sizes = tuple(n if isinstance(n, int) else 1 for n in shape or ())
        made.append(draft.tensor(dtype, sizes, "activation", feature.text(1)))
        names[feature.text(1)] = Value(dtype, sizes, made[-1])
    kind = "non_max_suppression" if what.startswith("non-max") else "unknown"
    draft.node(kind, what, what, {}, read, made)
    return made


def _inputs(model: Message) -> tuple[Input, ...]:
    description = model.one(2)
    if not description.has(1) and description.has(20):  # several functions
        functions = listed(description.all(20), _MOST_FUNCTIONS, "functions")
        wanted = description.text(21)
        description = next((f for f in functions if f.text(1) == wanted), functions[0])
        numbers = (2, 6)
    else:
        numbers = (1, 13)
    features = [one for number in numbers for one in listed(description.all(number), _MOST_FEATURES, "inputs")]
    program = model.one(_PROGRAM).map(2) if model.has(_PROGRAM) else {}
    function = program.get("main") or next(iter(program.values()), None)
    exact = {one.text(1): one.one(2) for one in function.all(1)} if function is not None else {}
    found = []
    for feature in features:
        name = feature.text(1)
        dtype, shape = _feature(feature.one(3))
        if name in exact:
            kind = typed_or_open(exact[name], name)
            dtype, shape = kind.dtype, kind.shape
        found.append(Input(name, dtype, shape))
    return tuple(found)


def typed_or_open(message: Message, name: str) -> Input:
    """A program's input: sizes, or keys for open ones."""
    tensor = message.one(5).one(1).one(1) if message.has(5) else message.one(1)
    axes = tuple(d.one(1).integer(1) if d.has(1) else f"{name}:{axis}" for axis, d in enumerate(tensor.all(3)))
    return Input(name, DTYPES.get(tensor.integer(1), "undefined"), axes)


def _feature(kind: Message) -> tuple[str, tuple[int | str, ...] | None]:
    """Type and sizes of a feature: an array, an image as [1, channels, height, width], or a number."""
    if kind.has(8):
        return _feature_array(kind.one(8).one(1))
    if kind.has(4):
        image = kind.one(4)
        channels = 1 if image.integer(3) in (10, 40) else 3
        return "float32", (1, channels, image.integer(2), image.integer(1))
    if kind.has(5):
        return _feature_array(kind.one(5))
    return ("int64" if kind.has(1) else "float64" if kind.has(2) else "string"), (1,)


def _feature_array(array: Message) -> tuple[str, tuple[int | str, ...] | None]:
    shape = array.integers(1)
    if not shape and (allowed := next(array.one(21).all(1), None)) is not None:
        shape = allowed.integers(1)
    if not shape and array.has(31):
        shape = [max(one.integer(1), 1) for one in array.one(31).all(1)]
    return _ARRAY_TYPES.get(array.integer(2), "float32"), tuple(shape)


def _outputs(model: Message) -> list[str]:
    return [feature.text(1) for feature in model.one(2).all(10)]
