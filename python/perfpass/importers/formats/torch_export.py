"""Archives of torch.export (``.pt2``): the program's JSON, replayed on tensors without memory.

Weights, constants and sample inputs stay unread: the program and the configuration of its weights have their shapes.
Schema: torch/_export/serde/schema.py of PyTorch; archives: docs of torch.export.pt2_archive.
"""

from __future__ import annotations

import math
import operator as python_operator
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfpass import json_text
from perfpass.errors import FormatError, LimitError, PerfPassError, ShapeError, UnsupportedError, shown
from perfpass.importers.formats import archive, symbolic_size
from perfpass.importers.formats.batch import scaled
from perfpass.importers.formats.bounded_arithmetic import computed
from perfpass.importers.formats.marks import OLD_PROGRAM
from perfpass.importers.formats.sizes import fixed
from perfpass.importers.onnx import Input

if TYPE_CHECKING:
    import torch

    from perfpass.graph import OpGraph
    from perfpass.importers.formats.sizes import Sizes
    from perfpass.importers.formats.torch_replay import Replay

_MOST_PROGRAM_BYTES = 1 << 29
_LONGEST_MODULE = 2000  # characters of what names a module, which are kept from one file to the next
_MOST_CONFIGURATION_BYTES = 1 << 28
_SCHEMA_MAJORS = range(5, 9)  # 5: torch 2.3; 8: torch 2.5 to 2.13
_DEEPEST = 16  # graphs within one another
_DTYPES = {
    1: "uint8",
    2: "int8",
    3: "int16",
    4: "int32",
    5: "int64",
    6: "float16",
    7: "float32",
    8: "float64",
    9: "complex32",
    10: "complex64",
    11: "complex128",
    12: "bool",
    13: "bfloat16",
    28: "uint16",
    29: "float8_e4m3fn",
    30: "float8_e5m2",
    31: "float8_e4m3fnuz",
    32: "float8_e5m2fnuz",
    33: "float8_e8m0fnu",
    34: "uint32",
    35: "uint64",
}
_MEMORY_FORMATS = {1: "contiguous_format", 2: "channels_last", 3: "channels_last_3d", 4: "preserve_format"}
_INLINED = frozenset({"wrap_with_set_grad_enabled", "wrap_with_autocast", "wrap", "hints_wrapper"})
_ARITHMETIC: dict[str, Callable[..., Any]] = {
    **{
        f"_operator.{name}": getattr(python_operator, name)
        for name in [
            "add",
            "sub",
            "mul",
            "floordiv",
            "truediv",
            "mod",
            "neg",
            "pos",
            "eq",
            "ne",
            "lt",
            "le",
            "gt",
            "ge",
            "and_",
            "or_",
            "not_",
            "getitem",
        ]
    },
    "_operator.pow": lambda a, b: a**b if abs(a) < 1 << 31 and 0 <= b <= 4 else _too_large(),
    "math.ceil": math.ceil,
    "math.floor": math.floor,
    "math.trunc": math.trunc,
    "torch.sym_max": max,
    "torch.sym_min": min,
    "torch.sym_int": int,
    "torch.sym_float": float,
    "torch.sym_not": python_operator.not_,
    "torch.sym_ite": lambda c, a, b: a if c else b,
    "torch.sym_sum": sum,
    "torch._sym_sqrt": math.sqrt,
}
_OF_LISTS = frozenset({"_operator.getitem", "torch.sym_sum"})  # the others take numbers alone
# A library's operator for one of PyTorch's, with the same arguments in the same order: transformers writes a product a
# group of rows as its own where the experts are in another type than the kernel takes (integrations/moe.py, 5.23).
_ALIKE = {"transformers.grouped_mm_fallback.default": "aten._grouped_mm.default"}
_MODULE = re.compile(r"L\['self'\]\.?|L__self__[^,]*$")


def read(path: Path, sizes: Sizes) -> OpGraph:
    """The operators of the program. Raises as `perfpass.load` does; UnsupportedError without PyTorch."""
    program = _Program(path)
    wanted = fixed(program.inputs(), sizes)
    return scaled(_Run(program, wanted.shapes, sizes.assume).graph(), wanted.declared_batch, wanted.batch)


def inputs(path: Path) -> tuple[Input, ...]:
    """The tensors that the program is called with."""
    return _Program(path).inputs()


class _Program:
    """An archive's program, its JSON checked where it is used."""

    def __init__(self, path: Path) -> None:
        with archive.Archive(path) as opened:
            self._read(opened)

    def _read(self, opened: archive.Archive) -> None:
        names = opened.entries()
        found = [n for n in names if n.endswith(".json") and "/models/" in f"/{n}"]
        old = [n for n in names if n == OLD_PROGRAM or n.endswith(f"/{OLD_PROGRAM}")]
        if not found and not old:
            if any("/data/aotinductor/" in f"/{n}" for n in names):
                raise UnsupportedError(
                    "a package of AOTInductor holds machine code and no operators; pass the archive that it was "
                    "compiled from (torch.export.save)"
                )
            raise FormatError("an archive of torch.export without a program (models/*.json); save it again")
        if len(found) > 1:
            raise UnsupportedError(
                f"the archive holds {len(found)} programs ({', '.join(Path(n).stem for n in sorted(found)[:5])}); "
                "save one of them alone (torch.export.save)"
            )
        entry = (found or old)[0]
        content = opened.member(entry, "the program", _MOST_PROGRAM_BYTES)
        whole = json_text.parse(content, entry, any_number=True)
        try:
            version = whole["schema_version"]["major"] if isinstance(whole["schema_version"], dict) else 0
            if version not in _SCHEMA_MAJORS:
                raise UnsupportedError(
                    f"a program of schema {shown(str(version)[:40])}; {_SCHEMA_MAJORS.start} to "
                    f"{_SCHEMA_MAJORS.stop - 1} are read (torch 2.3 to 2.13): save it again with such a version"
                )
            module = whole["graph_module"]
            self.graph: dict[str, Any] = module["graph"]
            self.input_specs: list[dict[str, Any]] = module["signature"]["input_specs"]
            self.values: dict[str, Any] = self.graph["tensor_values"]
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise _damaged(error) from error
        self.same = self._tied(opened, names)

    @staticmethod
    def _tied(opened: archive.Archive, names: Sequence[str]) -> dict[str, str]:
        """Names of weights -> the entry that has their bytes: tied ones share it."""
        entry = next((n for n in names if n.endswith("weights_config.json")), None)
        if entry is None:
            return {}
        content = opened.member(entry, "the configuration of the weights", _MOST_CONFIGURATION_BYTES)
        found = json_text.parse(content, entry, any_number=True)
        try:
            return {name: meta["path_name"] for name, meta in found["config"].items()}
        except (KeyError, TypeError, AttributeError) as error:
            raise _damaged(error) from error

    def user_inputs(self) -> list[str]:
        """Names of the tensors that a caller gives."""
        found = []
        for spec in self.input_specs:
            if isinstance(given := spec.get("user_input"), dict):
                kind, value = _only(given["arg"])
                if kind == "as_tensor":
                    found.append(value["name"])
        return found

    def sizes_of(self, name: str) -> list[int | str]:
        """Sizes of a tensor, an expression where one is open."""
        meta = self.values[name]
        return [_size(one) for one in meta["sizes"]]

    def dtype_of(self, name: str) -> str:
        """Its type as PyTorch names it."""
        found = _DTYPES.get(self.values[name]["dtype"])
        if found is None:
            raise UnsupportedError(f"tensor {shown(name)} is of type {self.values[name]['dtype']}, which is not known")
        return found

    def inputs(self) -> tuple[Input, ...]:
        """As `inputs` of this module."""
        try:
            return tuple(
                Input(
                    name,
                    self.dtype_of(name),
                    tuple(
                        size if isinstance(size, int) else symbolic_size.symbol(size) or f"{name}:{axis}"
                        for axis, size in enumerate(self.sizes_of(name))
                    ),
                )
                for name in self.user_inputs()
            )
        except (KeyError, TypeError, AttributeError, IndexError, ValueError, OverflowError) as error:
            if isinstance(error, PerfPassError):
                raise
            raise _damaged(error) from error


class _Run:
    """One run of a program at given shapes."""

    def __init__(self, program: _Program, shapes: Mapping[str, Sequence[int]], assume: Mapping[str, int]) -> None:
        try:
            from perfpass.importers.formats import torch_replay
        except ImportError as error:
            raise UnsupportedError(
                "archives of torch.export are read with PyTorch's operators, and torch is not installed; install "
                "perfpass[torch], or export the model to ONNX (torch.onnx.export)"
            ) from error
        self.program, self.shapes = program, shapes
        self.replay: Replay = torch_replay.Replay(assume)
        self.is_known = torch_replay.is_known
        self.symbols: dict[str, int] = {}

    def graph(self) -> OpGraph:
        """The program's operators."""
        try:
            values, given = self._declared()
            with self.replay.recording():
                outputs = self._run(self.program.graph, values, 0)
            return self.replay.graph(given, outputs)
        except PerfPassError:
            raise
        except (KeyError, TypeError, AttributeError, IndexError, ValueError, OverflowError) as error:
            raise _damaged(error) from error

    def _declared(self) -> tuple[dict[str, Any], list[int]]:
        """Values of the graph's arguments by name, and the tape's indices of those that a caller gives."""
        program = self.program
        values: dict[str, Any] = {}
        given: list[int] = []
        stored: dict[str, torch.Tensor] = {}
        for name in program.user_inputs():
            for axis, expression in enumerate(program.sizes_of(name)):
                if isinstance(expression, str):
                    where = f"dimension {axis} of input {name!r}"
                    symbolic_size.bind(expression, self.shapes[name][axis], self.symbols, where)
        for spec in program.input_specs:
            kind, what = _only(spec)
            if kind == "user_input":
                kind, what = _only(what["arg"])
                if kind == "as_tensor":
                    name = what["name"]
                    values[name] = self._tensor(name, self.shapes[name])
                    given.append(self.replay.input(values[name], name))
                elif kind in ("as_sym_int", "as_sym_float", "as_sym_bool"):
                    raise UnsupportedError(
                        f"the program takes the number {what.get('as_name')!r} from its caller; export it with that "
                        "number fixed"
                    )
            elif kind in ("parameter", "buffer", "tensor_constant"):
                name = what["arg"]["name"]
                full = what.get(f"{kind}_name") or name
                if not isinstance(full, str):
                    raise FormatError(f"a {kind} of the program has the name {full!r:.80}; save it again")
                entry = program.same.get(full, full)
                sizes = self._sizes(name)
                if entry not in stored or tuple(stored[entry].shape) != tuple(sizes):
                    stored[entry] = self._tensor(name, sizes)
                    if kind != "tensor_constant":
                        self.replay.parameter(stored[entry], full)
                values[name] = stored[entry]
        return values, given

    def _tensor(self, name: str, shape: Sequence[int]) -> torch.Tensor:
        import torch

        return self.replay.tensor([int(s) for s in shape], getattr(torch, self.program.dtype_of(name)))

    def _sizes(self, name: str, within: Mapping[str, Any] | None = None) -> list[int]:
        metas = within if within is not None else self.program.values
        found = []
        for one in map(_size, metas[name]["sizes"]):
            size = one if isinstance(one, int) else symbolic_size.value(one, self.symbols)
            if size is None:
                raise ShapeError(f"the size {shown(str(one)[:80])} of {shown(name)} follows from no input")
            found.append(size)
        return found

    # -- the graph -----------------------------------------------------------------------------------------------------

    def _run(self, graph: Mapping[str, Any], values: dict[str, Any], depth: int) -> list[Any]:
        """The graph's outputs; ``values`` by name, added to."""
        if depth > _DEEPEST:
            raise LimitError(f"graphs of the program stand over {_DEEPEST} deep in one another")
        for node in graph["nodes"]:
            target = node["target"]
            found = self._node(target, node, graph, values, depth)
            _bind(node["outputs"], found, values)
        return [self._argument(entry, values) for entry in graph["outputs"]]

    def _node(
        self, target: str, node: Mapping[str, Any], graph: Mapping[str, Any], values: dict[str, Any], depth: int
    ) -> Any:
        if target.startswith("torch.ops.higher_order."):
            return self._higher_order(target.rpartition(".")[2], node, values, depth)
        positional = [n for n in node["inputs"] if n.get("kind") != 2]
        if target in _ARITHMETIC:
            given = [self._argument(n["arg"], values) for n in positional]
            if target not in _OF_LISTS and not all(isinstance(v, (int, float, complex)) for v in given):
                raise FormatError(f"the program computes {target} of what is no number; save it again")
            return computed(_ARITHMETIC[target], given)
        module = _module_of(node.get("metadata") or {})
        name = target.removeprefix("torch.ops.")
        if name == target:
            raise UnsupportedError(f"the program calls {shown(target[:80])}, which is not called here")
        if alike := _ALIKE.get(name):
            return self.replay.call(alike, [self._argument(n["arg"], values) for n in node["inputs"]], {}, module)
        if not self.is_known(name):
            return self._unknown(name, node, graph, values, module)
        # Older schemas name no kind: names are those of the operator's schema, and serve for both; but for `self` and
        # what stands before it (where's condition).
        named = {n["name"]: self._argument(n["arg"], values) for n in node["inputs"]}
        leading = [*named][: [*named].index("self") + 1] if "self" in named else []
        return self.replay.call(name, [named.pop(n) for n in leading], named, module)

    def _unknown(
        self, name: str, node: Mapping[str, Any], graph: Mapping[str, Any], values: dict[str, Any], module: str
    ) -> Any:
        import torch

        given = [self._argument(n["arg"], values) for n in node["inputs"]]
        made: list[torch.Tensor] = []

        def tensor(what: Mapping[str, Any]) -> torch.Tensor:
            meta = graph["tensor_values"][what["name"]]
            dtype = getattr(torch, _DTYPES.get(meta["dtype"], "float32"))
            made.append(self.replay.tensor(self._sizes(what["name"], graph["tensor_values"]), dtype))
            return made[-1]

        results: list[Any] = []
        for output in node["outputs"]:
            kind, what = _only(output)
            if kind == "as_tensor":
                results.append(tensor(what))
            elif kind == "as_tensors":
                results.append([tensor(one) for one in what])
            else:
                raise UnsupportedError(
                    f"the custom operator {shown(name[:80])} returns a number, which only it knows; export the model "
                    "without it"
                )
        if made:
            self.replay.unknown(name, given, made, module)
        return results[0] if len(results) == 1 else results

    def _higher_order(self, name: str, node: Mapping[str, Any], values: dict[str, Any], depth: int) -> Any:
        arguments = [self._argument(n["arg"], values) for n in node["inputs"]]
        graphs = [a for a in arguments if isinstance(a, dict) and "nodes" in a]
        if name in _INLINED and len(graphs) == 1:
            place = next(i for i, a in enumerate(arguments) if a is graphs[0])
            return self._call(graphs[0], arguments[place + 1 :], depth)
        if name == "cond" and len(graphs) == 2:
            say = self.replay.recorder.notes
            say["of a branch that only values decide, the longer part is counted"] = False
            longer = max(graphs, key=lambda g: len(g["nodes"]))
            return self._call(longer, arguments[-1], depth)
        raise UnsupportedError(
            f"the program has the control flow {shown(name[:80])}, which is not followed; export the model to ONNX "
            "(torch.onnx.export), or without it"
        )

    def _call(self, graph: Mapping[str, Any], operands: Sequence[Any], depth: int) -> Any:
        names = [_named(entry) for entry in graph["inputs"]]
        inner = dict(zip(names, operands, strict=False))
        results = self._run(graph, inner, depth + 1)
        return results[0] if graph.get("is_single_tensor_return") else results

    def _argument(self, argument: Mapping[str, Any], values: Mapping[str, Any]) -> Any:
        """An argument of a node as a value: a tensor, a number, a list of them, a graph."""
        import torch

        kind, what = _only(argument)
        match kind:
            case "as_none":
                return None
            case "as_tensor":
                return values[what["name"]]
            case "as_tensors":
                return [values[one["name"]] for one in what]
            case "as_nested_tensors":
                return [[values[one["name"]] for one in some] for some in what]
            case "as_optional_tensor":
                return self._argument(what, values)
            case "as_optional_tensors":
                return [self._argument(one, values) for one in what]
            case "as_sym_int" | "as_sym_bool" | "as_sym_float":
                inner, number = _only(what)
                return values[number] if inner == "as_name" else number
            case "as_sym_ints" | "as_sym_bools" | "as_sym_floats":
                return [values[one["as_name"]] if "as_name" in one else _only(one)[1] for one in what]
            case "as_scalar_type":
                return getattr(torch, _DTYPES[what])
            case "as_memory_format":
                return getattr(torch, _MEMORY_FORMATS[what])
            case "as_layout":
                if what not in (0, 7):
                    raise UnsupportedError("the program makes sparse tensors, whose work only their values decide")
                return torch.strided
            case "as_device":
                return torch.device("meta")
            case "as_complex":
                return complex(what["real"], what["imag"])
            case "as_float":
                return float(what)  # "Infinity" and "NaN" are texts
            case "as_graph":
                return what["graph"]
            case "as_string_to_argument":
                return {key: self._argument(one, values) for key, one in what.items()}
            case "as_custom_obj" | "as_operator":
                return None
            case _:
                return what


# -- the JSON ----------------------------------------------------------------------------------------------------------


def _bind(outputs: Sequence[Mapping[str, Any]], found: Any, values: dict[str, Any]) -> None:
    """Results by the names that the node gives them."""
    results = found if len(outputs) > 1 else [found]
    if len(outputs) == 1 and isinstance(found, (list, tuple)) and _only(outputs[0])[0] != "as_tensors":
        results = found[:1]
    if not isinstance(results, (list, tuple, type(None))):
        raise ValueError(f"one result for {len(outputs)} outputs")
    for output, value in zip(outputs, results or (), strict=False):
        kind, what = _only(output)
        if kind == "as_tensors":
            values.update((one["name"], part) for one, part in zip(what, value, strict=False))
        elif kind == "as_tensor":
            values[what["name"]] = value
        elif kind in ("as_sym_int", "as_sym_bool", "as_sym_float"):
            values[what["as_name"]] = value


def _only(union: Mapping[str, Any]) -> tuple[str, Any]:
    """The one alternative that a union of the schema holds."""
    ((kind, value),) = union.items()
    return kind, value


def _named(argument: Mapping[str, Any]) -> str:
    kind, what = _only(argument)
    if kind == "as_tensor":
        return str(what["name"])
    return str(what.get("as_name", "")) if isinstance(what, dict) else ""


def _size(size: Mapping[str, Any]) -> int | str:
    kind, what = _only(size)
    if kind == "as_int":
        if not isinstance(what, int) or isinstance(what, bool) or not 0 <= what <= 1 << 48:
            raise FormatError(f"a tensor of the program has a dimension of size {what!r}")
        return what
    return str(what["expr_str"])


def _module_of(metadata: Mapping[str, Any]) -> str:
    """The path of the module that a node comes from."""
    stack = metadata.get("nn_module_stack", "")
    return _path_of(stack.rpartition(";")[2][:_LONGEST_MODULE]) if isinstance(stack, str) else ""


@lru_cache(maxsize=4096)
def _path_of(module: str) -> str:
    """The path in "key,path,type", the last of those of a node's "key,path,type;key,path,type"."""
    parts = module.split(",")
    return _MODULE.sub("", parts[1])[:200] if len(parts) > 1 else ""


def _damaged(error: Exception) -> FormatError:
    what = f"{type(error).__name__}: {error}"[:120]
    return FormatError(f"the program of the archive is damaged ({what}); save it again (torch.export.save)")


def _too_large() -> int:
    raise LimitError("a size of the program is a power that passes what is read")
