"""ML Programs (MIL): typed operations of a block, bodies of loops and branches within, into a draft.

Operations after coremltools' MIL operator sets, iOS15 to iOS18 (coremltools 9.0). Every output has its type and sizes
in the file; of constants small whole numbers and texts are read, since attributes are constants here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from perfpass.errors import FormatError, LimitError, PerfPassError, ShapeError, UnsupportedError
from perfpass.importers.draft import Draft
from perfpass.importers.formats.coreml.operators import KIND_OF, ORDER
from perfpass.importers.formats.coreml.weights import Compressed, Weights, bits_of_table
from perfpass.importers.formats.protobuf import FieldBudget, Message
from perfpass.importers.formats.shapes import Shape, columns, einsum, same_padding
from perfpass.text import shown_value

DTYPES = {
    1: "bool", 2: "string", 10: "float16", 11: "float32", 12: "float64", 13: "bfloat16", 21: "int8", 22: "int16",
    23: "int32", 24: "int64", 25: "int4", 31: "uint8", 32: "uint16", 33: "uint32", 34: "uint64", 35: "uint4",
    36: "uint4", 37: "uint4", 38: "uint8", 39: "uint4", 40: "float8", 41: "float8",
}  # fmt: skip
_BITS = {25: 4, 35: 4, 36: 2, 37: 1, 38: 6, 39: 3, 21: 8, 31: 8}
_MOST_VALUES = 4096
_DEEPEST = 32
_WIDEST = 2**48


@dataclass(slots=True)
class Value:
    """What a name stands for: its type and sizes, its tensor (-1: none yet), and what is known of it."""

    dtype: str
    shape: Shape
    tensor: int = -1
    numbers: list[int] | None = None
    text: str = ""
    compressed: Compressed | None = None
    bits: int = 0


@dataclass(slots=True)
class Operation:
    """One operation: arguments by name, in the order of the definition of its kind."""

    kind: str
    name: str
    arguments: dict[str, list[Value]]
    outputs: list[tuple[str, Value]]
    repeat: float = 1.0
    attributes: dict[str, int] = field(default_factory=dict)

    def one(self, name: str) -> Value | None:
        found = self.arguments.get(name)
        return found[0] if found else None

    def numbers(self, name: str) -> list[int]:
        found = self.one(name)
        return [] if found is None or found.numbers is None else found.numbers

    def flag(self, name: str) -> int:
        return int(self.numbers(name)[:1] == [1])


def typed(message: Message, what: str) -> Value:
    """Type and sizes of a ValueType. Raises ShapeError for an open size, LimitError."""
    if message.has(5):  # a state wraps its tensor
        return typed(message.one(5).one(1), what)
    if not message.has(1):
        return Value("undefined", ())  # lists, tuples and dictionaries
    tensor = message.one(1)
    sizes: list[int] = []
    for dimension in tensor.all(3):
        if not dimension.has(1):
            raise ShapeError(
                f"{what} has a size that is open in the file; convert the model with fixed sizes "
                "(coremltools.TensorType(shape=...)), and give the batch with --batch"
            )
        sizes.append(dimension.one(1).integer(1))
    if len(sizes) > 16 or any(not 0 <= size <= _WIDEST for size in sizes):
        raise LimitError(f"{what} has the shape {sizes[:20]}; at most 16 axes of 0 to 2^48 are read")
    kind = tensor.integer(1)
    return Value(DTYPES.get(kind, "undefined"), tuple(sizes), bits=_BITS.get(kind, 0))


class Program:
    """Reads blocks into a draft."""

    def __init__(self, draft: Draft, names: dict[str, Value]) -> None:
        self.draft = draft
        self.weights = Weights(draft)
        self.names = names
        self._types: dict[bytes, Value] = {}  # a network has few types, and a type a dozen messages

    def typed(self, content: bytes, budget: FieldBudget, what: str) -> Value:
        """A new value of the type in these bytes. Raises as `typed`."""
        known = self._types.get(content)
        if known is None:
            known = self._types[content] = typed(Message(content, 0, len(content), budget), what)
        return Value(known.dtype, known.shape, bits=known.bits)

    def given(self, message: Message, kind: str) -> Value:
        """A constant that is written where it is read."""
        value = self.typed(message.content(2), message.budget, f"an argument of {kind}")
        return self.constant(message, value, "")

    def block(self, block: Message, prefix: str = "", repeat: float = 1.0, depth: int = 0) -> list[str]:
        """The operations of a block; the names of its outputs. Raises LimitError for blocks too deep."""
        if depth > _DEEPEST:
            raise LimitError(f"blocks more than {_DEEPEST} deep")
        for message in block.all(3):
            try:
                self.operation(message, prefix, repeat, depth)
            except PerfPassError:
                raise
            except (IndexError, ValueError, OverflowError, ZeroDivisionError) as error:
                raise FormatError(
                    f"an operation {shown_value(message.text(1))} has arguments or outputs that do not fit it; the "
                    "file is damaged"
                ) from error
        return block.texts(2)

    def operation(self, message: Message, prefix: str, repeat: float, depth: int) -> None:
        kind, written, read = message.operation()
        outputs = [(made, self.typed(content, message.budget, f"the output of {kind}")) for made, content in written]
        name = prefix + (outputs[0][0] if outputs else kind)
        if kind == "const":
            for output, value in outputs:
                self.names[output] = self.constant(message.map(5).get("val"), value, output)
            return
        found = Operation(kind, name, self.arguments(read, kind), outputs, repeat)
        if message.has(4):
            self.control(found, message.all(4), prefix, depth)
        elif kind.startswith("constexpr_"):
            for key, given in message.map(5).items():  # until iOS17 what is unpacked are attributes
                found.arguments[key] = [self.given(given, kind)]
            self.constexpr(found)
        else:
            self.add(found)

    def arguments(self, read: dict[str, list[str | Message]], kind: str) -> dict[str, list[Value]]:
        """Values of the arguments, in the order of the definition."""
        found: dict[str, list[Value]] = {}
        for name in sorted(read, key=_place) if len(read) > 1 else read:
            values = found[name] = []
            for one in read[name]:
                if not isinstance(one, str):
                    values.append(self.given(one, kind))
                elif one in self.names:
                    values.append(self.names[one])
                else:
                    raise FormatError(f"an operation {kind} reads '{one[:200]}', which nothing writes before it")
        return found

    def constant(self, given: Message | None, value: Value, name: str) -> Value:
        """A constant; its tensor is made where an operator reads it as data."""
        if given is not None and given.has(3) and math.prod(value.shape) <= _MOST_VALUES:
            tensor = given.one(3).one(1)
            for number in (2, 3, 5):
                if tensor.has(number):
                    value.numbers = tensor.one(number).integers(1)
            if tensor.has(4):
                value.text = (tensor.one(4).texts(1) or [""])[0]
            if tensor.has(7) and value.dtype in _WHOLE:
                value.numbers = _whole(tensor.one(7).content(1), value.dtype)
        value.tensor = -2 if value.dtype == "string" else self.draft.constant(value.dtype, value.shape, name)
        return value

    def tensor(self, value: Value, repeat: float) -> int:
        return value.tensor if value.compressed is None else self.weights.plain(value.compressed, repeat)

    # -- operations ----------------------------------------------------------------------------------------------------

    def add(self, op: Operation) -> None:
        if op.kind in ("read_state", "identity") and op.outputs and (source := op.one("input") or op.one("x")):
            self.names[op.outputs[0][0]] = source
            return
        kind = KIND_OF.get(op.kind, "unknown")
        operands = [v for values in op.arguments.values() for v in values if self.is_data(kind, v)]
        packed = self.packed(op, kind, operands)
        if packed is not None:
            kind, inputs = packed
        else:
            inputs = [self.tensor(v, op.repeat) for v in operands]
            kind, inputs = self.lowered(kind, op, inputs)
        self.draft.node(kind, op.kind, op.name, op.attributes, inputs, self.made(op), op.repeat)

    def made(self, op: Operation) -> list[int]:
        tensors = []
        for name, value in op.outputs:
            value.tensor = self.draft.tensor(value.dtype, value.shape, "activation", name)
            self.names[name] = value
            tensors.append(value.tensor)
        return tensors

    def is_data(self, kind: str, value: Value) -> bool:
        """Whether an operator reads a value as a tensor: activations, and constants of floats or of some size."""
        if value.tensor < 0 or value.dtype == "string":
            return False
        if value.compressed is not None or not self.draft.is_constant(value.tensor):
            return True
        return math.prod(value.shape) > 1 and (value.dtype.startswith(("float", "bfloat")) or kind in _BY_INDEX)

    def packed(self, op: Operation, kind: str, operands: list[Value]) -> tuple[str, list[int]] | None:
        """A product or a look-up that reads a compressed weight as it is stored."""
        slot = {"linear": 1, "matmul": 1, "gather": 0}.get(op.kind, -1)
        if slot < 0 or slot >= len(operands) or (packed := operands[slot].compressed) is None:
            return None
        rest = [self.tensor(v, op.repeat) for i, v in enumerate(operands) if i != slot]
        op.attributes["weight_bits"] = packed.bits
        if op.kind == "gather":
            return "gather", [packed.weight, *rest, *packed.parts]
        if len(packed.shape) != 2 or (op.kind == "matmul" and not op.flag("transpose_y")):
            del op.attributes["weight_bits"]
            return None
        op.attributes |= {"transpose_b": 1}
        return "matmul_nbits", [rest[0], packed.weight, *packed.parts, *rest[1:]]

    def lowered(self, kind: str, op: Operation, inputs: list[int]) -> tuple[str, list[int]]:
        """Kind and inputs as other readers show them; attributes go into the operation's."""
        found, shapes = op.attributes, [self.draft.tensors[t].shape for t in inputs]
        x = shapes[0] if shapes else ()
        out = op.outputs[0][1].shape if op.outputs else ()
        if kind in ("conv", "conv_transpose") and len(shapes) > 1:
            self.convolution(kind, op, x, shapes[1])
        elif kind in ("max_pool", "avg_pool", "lp_pool"):
            kernel = op.numbers("kernel_sizes")
            self.window(op, x, kernel, [1] * len(kernel))
        elif op.kind == "linear":
            found["transpose_b"] = 1
        elif op.kind == "matmul":
            found |= {"transpose_a": op.flag("transpose_x"), "transpose_b": op.flag("transpose_y")}
            if len(inputs) > 1 and self.draft.is_constant(inputs[1]) and len(shapes[1]) == 2:
                kind = "dense"
        elif kind == "batch_norm" and len(inputs) >= 3:
            x_id, mean, variance, *scale = inputs
            inputs = [x_id, *scale, mean, variance]
        elif kind == "reduce_mean" and len(x) in (4, 5) and out == (*x[:2], *(1,) * (len(x) - 2)):
            kind = "global_avg_pool"
            found |= {"spatial_rank": len(x) - 2} | columns(kernel=x[2:])
        elif kind == "layer_norm":
            axes = [a % max(len(x), 1) for a in op.numbers("axes")]
            found["axis"] = min(axes, default=max(len(x) - 1, 0))
        elif kind == "attention" and len(shapes) > 1:
            heads = [s[-3] if len(s) > 3 else 1 for s in shapes[:2]]
            found |= {"num_heads": heads[0], "num_kv_heads": heads[1]}
        elif kind in ("lstm", "gru", "rnn"):
            hidden = op.one("weight_hh")
            found["hidden_size"] = hidden.shape[-1] if hidden is not None and hidden.shape else 0
            found["directions"] = 2 if op.one("weight_hh_back") is not None else 1
        elif kind == "einsum":
            equation = op.one("equation")
            summed = einsum(equation.text if equation else "", shapes, strict=False)[2]
            found["contraction"] = min(summed, 2**31 - 1)
        elif kind == "resize":
            found["spatial_rank"] = max(len(x) - 2, 0)
        elif kind in _WITH_AXIS and (axis := op.numbers("axis")) and x:
            found["axis"] = axis[0] % len(x)
        elif kind == "reshape":
            found["view"] = 1
        return kind, inputs

    def convolution(self, kind: str, op: Operation, x: Shape, weight: Shape) -> None:
        groups = (op.numbers("groups") or [1])[0]
        op.attributes |= {"groups": groups, "weight_layout": 2 if kind == "conv_transpose" else 0}
        self.window(op, x, list(weight[2:]), op.numbers("dilations"))

    @staticmethod
    def window(op: Operation, x: Shape, kernel: list[int], dilations: list[int]) -> None:
        rank = len(kernel)
        strides, dilation = op.numbers("strides") or [1] * rank, dilations or [1] * rank
        pad_type, pad = op.one("pad_type"), op.numbers("pad")
        begin, end = [0] * rank, [0] * rank
        if pad_type is not None and pad_type.text == "custom" and len(pad) == 2 * rank:
            begin, end = pad[0::2], pad[1::2]
        elif pad_type is not None and pad_type.text.startswith("same") and len(x) == rank + 2:
            for i, extent in enumerate(x[2:]):
                begin[i], end[i] = same_padding(extent, kernel[i], max(strides[i], 1), dilation[i])
        op.attributes["spatial_rank"] = min(rank, 3)
        op.attributes |= columns(kernel=kernel, stride=strides, dilation=dilation, pad_begin=begin, pad_end=end)

    def constexpr(self, op: Operation) -> None:
        """A weight that is unpacked as the model is loaded: shown as it is stored."""
        name, out = op.outputs[0]
        self.names[name] = out
        values = [v[0] for v in op.arguments.values() if v]
        first = next(
            (v for n in ("data", "quantized_data", "indices", "nonzero_data", "source_val") if (v := op.one(n))), None
        )
        if first is None or first.tensor < 0:
            raise UnsupportedError(f"{op.kind} without the data that it unpacks; convert the model anew")
        if op.kind == "constexpr_cast":
            out.tensor = first.tensor
            return
        if first.compressed is not None:  # a sparse table of a table: the innermost is what is stored
            out.compressed = Compressed(
                first.compressed.weight, out.shape, out.dtype, first.compressed.parts, first.compressed.bits
            )
            out.tensor = first.tensor
            return
        parts = tuple(v.tensor for v in values if v is not first and v.tensor >= 0 and math.prod(v.shape) > 1)
        bits = first.bits or 8
        table = op.one("lut")
        if table is not None and first.dtype == "uint8" and first.bits == 8 and len(table.shape) == 1:
            bits = bits_of_table(math.prod(table.shape))  # indices of iOS16, packed to whole bytes
            rows = out.shape[0] if out.shape else 1
            first = Value(first.dtype, first.shape, self.weights.stored(name, math.prod(first.shape), rows))
        self.draft.tensors[first.tensor].role = "weight"
        out.compressed = Compressed(first.tensor, out.shape, out.dtype, parts, bits)
        out.tensor = first.tensor

    # -- blocks --------------------------------------------------------------------------------------------------------

    def control(self, op: Operation, blocks: Iterator[Message], prefix: str, depth: int) -> None:
        """Bodies before the operation itself, which reads what they give: a loop's counts once, of a branch's one."""
        loop = "while" in op.kind
        carried = next((v for v in op.arguments.values() if len(v) == len(op.outputs)), [])
        carried = (
            [v for values in op.arguments.values() for v in values] if len(carried) != len(op.outputs) else carried
        )
        read, marks = [self.tensor(v, op.repeat) for v in carried if v.tensor >= 0], []
        for block in blocks:
            for one, value in zip(block.all(1), carried if loop else [], strict=False):
                self.names[one.text(1)] = value
            first = len(self.draft.nodes)
            results = self.block(block, f"{op.name}/", op.repeat, depth + 1)
            marks.append(self.draft.nodes[first:])
            for result in results:
                if result not in self.names:
                    raise FormatError(f"a block of {op.kind} gives '{result[:200]}', which nothing writes")
                value = self.names[result]
                if value.tensor >= 0:
                    read.append(self.tensor(value, op.repeat))
        if loop:
            self.draft.notes[f"{op.name}: the file does not say how often it runs; its body is counted once"] = True
        elif len(marks) == 2:
            self.draft.branches.append((marks[0], marks[1]))
        kind = "loop" if loop else "conditional"
        self.draft.node(kind, op.kind, op.name, {}, list(dict.fromkeys(read)), self.made(op), op.repeat)


_ORDER = {name: i for i, name in enumerate(ORDER)}
_WHOLE = {"int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8, "bool": 1}
_WITH_AXIS = ("softmax", "log_softmax", "concat", "split", "top_k", "cumulative", "gather", "scatter", "one_hot")
_BY_INDEX = ("gather", "scatter", "embedding")


def _place(name: str) -> tuple[int, str]:
    return _ORDER.get(name, len(_ORDER)), name


def _whole(content: bytes, dtype: str) -> list[int]:
    width = _WHOLE[dtype]
    content = content[: _MOST_VALUES * 8]
    signed = dtype.startswith("int")
    return [int.from_bytes(content[i : i + width], "little", signed=signed) for i in range(0, len(content), width)]
