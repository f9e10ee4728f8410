"""Recording a forward pass: a dispatch mode that writes every ATen operator on a tape, and the tape as an OpGraph.

Each record has shapes, tensor identity, views and in-place writes, so that edges are the true data flow.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from perfpass import _core
from perfpass.errors import PerfPassError, UnsupportedError
from perfpass.graph import OpGraph
from perfpass.importers import operators
from perfpass.importers.draft import Draft, Node
from perfpass.importers.torch_operators import Call, describe, tensors_in, written_arguments
from perfpass.importers.torch_shapes import Shapes
from perfpass.importers.torch_values import Values

# Operators without a kernel whose output is their input under another name.
_SAME_TENSOR = frozenset({"detach", "alias", "lift", "lift_fresh", "positive"})
_NO_KERNEL = frozenset(
    {"_assert_async", "_assert_tensor_metadata", "sym_size", "sym_numel", "sym_stride", "is_same_size"}
)
_FILLS = frozenset({"masked_fill", "masked_fill_"})
_INDEXED = frozenset({"index", "index_put", "index_put_", "_unsafe_index", "_unsafe_index_put"})
_ALLOCATIONS = frozenset({"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted"})

_DTYPES = {getattr(torch, name): name for name in _core.DTYPES if isinstance(getattr(torch, name, None), torch.dtype)}
_FLOAT8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
_DTYPES |= {getattr(torch, name): "float8" for name in _FLOAT8 if hasattr(torch, name)}
# Forward passes ask such questions to skip a mask or to warn of padding: the usual input has neither.
_ASKED = {"all": True, "_is_all_true": True, "any": False, "_is_any_true": False}
_ASSUMED = {True: "all() of a mask: nothing is padded", False: "any(): nothing unusual is there"}


class Recorder(TorchDispatchMode):
    """Records every ATen operator that touches a meta tensor."""

    def __init__(self, assume: Mapping[str, int] | None = None) -> None:
        super().__init__()
        self.tape = Draft()
        self.values = Values(assume or {}, self._say)
        self.shapes = Shapes()
        self.paused = False
        self.modules: list[str] = []  # names of the modules whose forward is running
        self.notes: dict[str, bool] = {}  # as of a draft
        self._names: dict[str, int] = {}
        self._mask_sums: set[int] = set()  # ids of sums over whole masks
        self._assumed: dict[int, bool] = {}  # id(result of all() or any()) -> the value that a forward pass may read
        self._known: dict[int, tuple[int, int]] = {}  # id(tensor) -> tensor on the tape, version of its storage
        self._written: dict[int, tuple[int, int]] = {}  # storage -> version, tensor on the tape written last
        self._host: dict[int, torch.Tensor] = {}  # id(host tensor) -> its meta twin
        self._alive: list[torch.Tensor] = []  # ids and storages stay unique only while their tensors live

    def _say(self, note: str) -> None:
        self.notes[note] = False

    # -- tensors ---------------------------------------------------------------------------------------------------

    def put(self, tensor: torch.Tensor, role: str = "activation", name: str = "") -> int:
        """A new tensor on the tape, of a framework's."""
        return self.tape.tensor(_DTYPES.get(tensor.dtype, "undefined"), map(int, tensor.shape), role, name)

    def declare(self, tensor: torch.Tensor, role: str, name: str) -> int:
        """Put a tensor that no operator produced on the tape."""
        index = self.put(tensor, role, name)
        self.remember(tensor, index)
        if role == "input" and not tensor.is_floating_point():
            self.values.tokens.add(id(tensor))
        return index

    def remember(self, tensor: torch.Tensor, index: int) -> None:
        """A tensor of the program is the tape's of that index, as it is now."""
        self._alive.append(tensor)
        self._known[id(tensor)] = (index, self._written.get(storage(tensor), (0, 0))[0])

    def name(self, tensor: torch.Tensor, name: str) -> None:
        """Call a tensor that an operator produced ``name``."""
        self.tape.tensors[self.index_of(tensor)].name = name

    def index_of(self, tensor: torch.Tensor) -> int:
        """The tape's index of a tensor, after any write to memory that it shares."""
        known = self._known.get(id(tensor))
        if known is None:
            return self.declare(tensor, "literal", "")
        index, version = known
        current, writer = self._written.get(storage(tensor), (0, 0))
        if version == current:
            return index
        # The memory was written through another view: reading it now depends on that write.
        merged = self.put(tensor)
        self.node("identity", "alias_after_write", {"view": 1}, [index, writer], [merged])
        self._known[id(tensor)] = (merged, current)
        return merged

    def settled(self, tensors: Sequence[torch.Tensor]) -> list[int] | None:
        """The tape's indices of tensors of which nothing but the shape bears on what is recorded of a call on them.

        None where one is new here or was written through another view, or something of its values is known.
        """
        found = []
        for tensor in tensors:
            known = self._known.get(id(tensor))
            if (
                known is None
                or self.values.knows(tensor)
                or id(tensor) in self._assumed
                or id(tensor) in self._mask_sums
            ):
                return None
            if self._written and known[1] != self._written.get(storage(tensor), (0, 0))[0]:
                return None
            found.append(known[0])
        return found

    def seen(self) -> tuple[int, ...]:
        """How much is known beside the tape: unchanged by a call that wrote no memory and says nothing of values."""
        writes = sum(version for version, _ in self._written.values())
        own = (len(self.notes), len(self._assumed), len(self._mask_sums), len(self._host))
        return (writes, *own, *self.values.seen())

    # -- operators -------------------------------------------------------------------------------------------------

    def node(self, kind: str, source: str, attributes: dict[str, int], inputs: list[int], outputs: list[int]) -> None:
        """Records one node over tensors of the tape, in the module that is running."""
        path = self.modules[-1] if self.modules else ""
        name = f"{path}.{source}" if path else source
        count = self._names.get(name, 0)
        self._names[name] = count + 1
        self.tape.nodes.append(Node(kind, source, f"{name}_{count}" if count else name, attributes, inputs, outputs))

    def record(self, kind: str, source: str, attributes: dict[str, int], inputs: Sequence[Any], outputs: Any) -> None:
        """Record one node over tensors; outputs are new tensors."""
        ids = [-1 if t is None else self.index_of(t) for t in inputs]
        made = []
        for tensor in tensors_in(outputs):
            made.append(self.put(tensor))
            self.remember(tensor, made[-1])
        self.node(kind, source, attributes, ids, made)

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if self.paused:
            return func(*args, **kwargs)
        name = func._schema.name.split("::")[-1]
        given = tensors_in([args, kwargs])
        on_meta = any(t.device.type == "meta" for t in given)
        asked = args, kwargs
        if on_meta and name not in ("_to_copy", "copy_") and any(t.device.type != "meta" for t in given):
            args, kwargs = self._to_meta(name, args, kwargs)
        if name == "_local_scalar_dense" and id(given[0]) in self._assumed and self.values.of(given[0]) is None:
            value = self._assumed[id(given[0])]
            self.notes[f"{self.place()} branches on a tensor's values; assumed {value} ({_ASSUMED[value]})"] = False
            return value
        if name == "_grouped_mm" and on_meta and len(args) > 2:
            args = (args[0], self._experts_hit(*args[1:3]), *args[2:])
        if name in _FILLS and on_meta and isinstance(args[2], torch.Tensor) and args[2].device.type != "meta":
            # The shape rule takes no value of the host.
            func, args = getattr(torch.ops.aten, name).Scalar, (*args[:2], args[2].item())
        try:
            out = self._selection(name, args) if on_meta else None
            if out is None:
                if name in _INDEXED and on_meta:
                    args = (args[0], [i for given in args[1] for i in self._as_indices(given)], *args[2:])
                out = self.shapes.run(func, args, kwargs) if on_meta else func(*args, **kwargs)
        except PerfPassError:
            raise
        except (RuntimeError, NotImplementedError, TypeError) as error:
            if on_meta and (described := self._described(func, given, args, kwargs)) is not None:
                self._record_call(func, name, args, kwargs, tensors_in(described))
                return described
            if not on_meta or not _depends_on_data(error, name):
                raise
            found = self.values.result(func, *asked)
            if found is None:
                raise self.needs_values(name) from error
            if not tensors_in(found):
                return found
            out = pytree.tree_map(self._on_meta, found)
        results = tensors_in(out)
        self.values.note(func, name, *asked, results)
        if name in _NO_KERNEL or not (on_meta or any(t.device.type == "meta" for t in results)):
            return self._followed(given, results, out)
        if name in _SAME_TENSOR and len(results) == 1 and given:
            index = self.index_of(tensors_in([args, kwargs])[0])
            if not any(results[0] is t for t in given):
                self.remember(results[0], index)
            return out
        self._record_call(func, name, args, kwargs, results)
        return self._named_by(args[0], out) if name == "nonzero" else out

    @staticmethod
    def _described(func: Any, given: list[torch.Tensor], args: tuple, kwargs: dict) -> Any:
        """The outputs of an operator without a kernel for shapes, where its user describes them; else None."""
        named = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | kwargs
        attributes = {n: v for n, v in named.items() if isinstance(v, (int, float, str, list)) and not tensors_in([v])}
        reads = [(_DTYPES.get(t.dtype, "undefined"), tuple(t.shape)) for t in given]
        found = operators.outputs_of(source_name(func), reads, attributes, len(func._schema.returns))
        if found is None:
            return None
        made = [torch.empty(shape, dtype=getattr(torch, dtype), device="meta") for dtype, shape in found]
        return made[0] if len(made) == 1 else tuple(made)

    # -- what depends on values ------------------------------------------------------------------------------------

    def _selection(self, name: str, args: tuple) -> torch.Tensor | None:
        """The output of an operator whose size depends on values, where it is known or assumed (torch_values)."""
        if name == "_grouped_mm":
            # [S, K] rows, each by its expert's [K, N] of [E, K, N]: shapes for every type (the kernel takes bfloat16).
            rows, experts = args[:2]
            grouped = rows.dim() == 2 and experts.dim() == 3
            return rows.new_empty((rows.shape[0], experts.shape[2])) if grouped else None
        if name == "nms":
            return args[0].new_empty((self.values.kept(args[0]),), dtype=torch.int64)
        if name in ("nonzero", "masked_select"):
            mask = args[0 if name == "nonzero" else 1]
            if (count := self.values.selected(mask)) is None:
                return None
            shape = (count, mask.dim()) if name == "nonzero" else (count,)
            out = args[0].new_empty(shape, dtype=torch.int64 if name == "nonzero" else args[0].dtype)
            if self.values.assumes(mask):
                self.values.select(out)
            return out
        return None

    def _as_indices(self, index: Any) -> list[Any]:
        """A mask as the indices that a kernel makes of it first, one an axis; any other index as it is."""
        if not isinstance(index, torch.Tensor) or index.device.type != "meta" or index.dtype != torch.bool:
            return [index]
        if not index.dim() or (count := self.values.selected(index)) is None:
            return [index]
        found = [index.new_empty((count,), dtype=torch.int64) for _ in range(index.dim())]
        self.record("non_zero", "aten.nonzero", {}, [index], found)
        value = self.values.of(index)
        for axis, places in enumerate(found):
            if value is not None:
                self.values.put(places, value.nonzero()[:, axis])
            elif self.values.assumes(index):
                self.values.select(places)
        return found

    def _on_meta(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        out = torch.empty_like(value, device="meta")
        self.values.put(out, value)
        return out

    def _named_by(self, mask: torch.Tensor, found: torch.Tensor) -> torch.Tensor:
        """Which of a row hold, as numbers where they are known: programs call modules by them (experts)."""
        value = self.values.of(found) if mask.dim() == 1 else None
        if value is None:
            return found
        self._host[id(value)] = found
        self._alive.append(value)
        return value

    def _followed(self, given: list[torch.Tensor], results: list[torch.Tensor], out: Any) -> Any:
        """Results of host arithmetic become constants where they meet the model, or parts of what it made."""
        made = [self._host[id(t)] for t in given if id(t) in self._host and id(self._host[id(t)]) in self._known]
        if made:
            for tensor in results:
                twin = torch.empty_like(tensor, device="meta")
                self.record("slice", "aten.select", {"view": 1}, made, twin)
                self.values.put(twin, tensor)
                self._host[id(tensor)] = twin
                self._alive.append(tensor)
        return out

    def _experts_hit(self, experts: torch.Tensor, ends: Any) -> torch.Tensor:
        """Of [E, K, N] weights those that a grouped product reads; ``ends`` [E] is where each one's rows end."""
        last = self.values.of(ends) if isinstance(ends, torch.Tensor) and experts.dim() == 3 else None
        if last is None:
            return experts
        hit = int((torch.diff(last, prepend=last.new_zeros(1)) > 0).sum())
        if not 0 < hit < experts.shape[0]:
            return experts
        read = experts.new_empty((hit, *experts.shape[1:]))
        self.record("slice", "aten.narrow", {"view": 1}, [experts], read)
        return read

    def _to_meta(self, name: str, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """Replace host tensors by meta twins. Scalars stay, for type promotion; index masks stay, for their values."""

        def twin(value: Any) -> Any:
            if not isinstance(value, torch.Tensor) or value.device.type == "meta" or value.dim() == 0:
                return value
            if value.dtype == torch.bool and name.startswith(("index", "_unsafe_index")):
                return value
            if id(value) not in self._host:
                self.paused = True
                self._host[id(value)] = torch.empty_like(value, device="meta")
                self.paused = False
                self._alive.append(value)
            return self._host[id(value)]

        return pytree.tree_map(twin, args), pytree.tree_map(twin, kwargs)

    def _record_call(self, func: Any, name: str, args: tuple, kwargs: dict, results: list[torch.Tensor]) -> None:
        schema = func._schema.arguments
        arguments = {a.name: a.default_value if a.has_default_value() else None for a in schema}
        arguments |= dict(zip((a.name for a in schema), args, strict=False)) | kwargs
        written = [tensor for _, argument in written_arguments(func) for tensor in tensors_in(arguments[argument])]
        plain = name if name.startswith("__") else name.removesuffix("_")
        description = describe(Call(plain, arguments, results))
        inputs = [-1 if t is None else self.index_of(t) for t in description.inputs]
        attributes = description.attributes
        memory = {storage(t) for t in tensors_in(list(arguments.values()))}
        if not written and results and any(storage(t) in memory for t in results):
            attributes["view"] = 1
        outputs = []
        for tensor in results or written:
            is_write = any(tensor is w for w in written)
            index = self.put(tensor)
            if is_write:
                memory_of = storage(tensor)
                self._written[memory_of] = (self._written.get(memory_of, (0, 0))[0] + 1, index)
                if name.endswith("_"):
                    attributes["in_place"] = 1
            self.remember(tensor, index)
            outputs.append(index)
        if plain in _ASKED and results[0].numel() == 1:
            self._assumed[id(results[0])] = _ASKED[plain]
        elif plain == "sum" and results[0].numel() == 1 and tensors_in(arguments["self"])[0].dtype == torch.bool:
            self._mask_sums.add(id(results[0]))
        elif plain == "eq" and id(arguments["self"]) in self._mask_sums:
            self._assumed[id(results[0])] = True  # mask.sum() == mask.numel() is all() in other words
        self.node(description.kind, source_name(func), attributes, inputs, outputs)

    def needs_values(self, name: str) -> UnsupportedError:
        """The error of an operator that asks for values that are not known."""
        return UnsupportedError(
            f"{name} in {self.place()} needs the values of tensors, and a trace has only shapes; "
            "trace the part of the model before it, or export the model to ONNX and pass that file"
        )

    def place(self) -> str:
        return f"module '{self.modules[-1]}'" if self.modules and self.modules[-1] else "the model's own forward"

    # -- module names ----------------------------------------------------------------------------------------------

    @contextmanager
    def naming(self, model: torch.nn.Module) -> Iterator[None]:
        """Keep `modules` at the path of the module that is running."""
        names = weakref.WeakKeyDictionary({m: n for n, m in model.named_modules()})

        def enter(module: torch.nn.Module, _: Any) -> None:
            self.modules.append(names.get(module, self.modules[-1] if self.modules else ""))

        def leave(module: torch.nn.Module, _: Any, __: Any) -> None:
            if self.modules:
                self.modules.pop()

        hooks = torch.nn.modules.module
        handles = [hooks.register_module_forward_pre_hook(enter), hooks.register_module_forward_hook(leave)]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def source_name(func: Any) -> str:
    namespace, _, name = func._schema.name.partition("::")
    return f"{namespace}.{name}"


def _depends_on_data(error: Exception, operator: str) -> bool:
    text = str(error).lower()
    return (
        isinstance(error, NotImplementedError)
        or operator in ("_local_scalar_dense", "nonzero", "equal")
        or ("meta tensor" in text or "data-dependent" in text or "'meta' backend" in text)
    )


def build(recorder: Recorder, inputs: list[int], outputs: list[torch.Tensor]) -> OpGraph:
    """The recorded nodes as a graph with these inputs and outputs."""
    return assemble(recorder, inputs, outputs)[0]


def assemble(recorder: Recorder, inputs: list[int], outputs: list[torch.Tensor]) -> tuple[OpGraph, list[Node]]:
    """The graph, and the recorded node behind each of its nodes."""
    tape = recorder.tape
    results = list(dict.fromkeys(recorder.index_of(t) for t in outputs))
    nodes = _without_idle(tape, _with_folded_weights(tape), results)
    graph = Draft(tape.tensors, nodes, inputs, results, recorder.notes).graph()
    return OpGraph(graph.core, assumed=tuple(recorder.values.used.values())), nodes


def _with_folded_weights(tape: Draft) -> list[Node]:
    """Matrix products with a constant become dense layers on the weight itself: `t(weight)` is a flag, not a node."""
    transposed: dict[int, int] = {}
    for node in tape.nodes:
        if node.kind == "transpose" and node.inputs and tape.is_constant(node.inputs[0]):
            shape = tape.tensors[node.inputs[0]].shape
            if len(shape) == 2 and tape.tensors[node.outputs[0]].shape == shape[::-1]:
                transposed[node.outputs[0]] = node.inputs[0]
        elif node.kind == "matmul" and len(node.inputs) > 1:
            weight = node.inputs[1]
            if weight in transposed:
                node.kind, node.inputs[1], node.attributes["transpose_b"] = "dense", transposed[weight], 1
            elif tape.tensors[weight].role == "weight" and len(tape.tensors[weight].shape) == 2:
                node.kind = "dense"
    return tape.nodes


def _without_idle(tape: Draft, nodes: list[Node], results: list[int]) -> list[Node]:
    """Drop what runs no kernel and has no reader: allocations, folded transposes of weights."""
    read = set(results)
    kept = []
    for node in reversed(nodes):
        source = node.source.split(".")[-1].removesuffix("_")
        constant_view = node.attributes.get("view") and all(t < 0 or tape.is_constant(t) for t in node.inputs)
        if (source in _ALLOCATIONS or constant_view) and not any(t in read for t in node.outputs):
            continue
        read.update(node.inputs)
        kept.append(node)
    return kept[::-1]
