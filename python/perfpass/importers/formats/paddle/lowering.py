"""From a Paddle program to the operator graph: sizes, canonical operators and attributes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from perfpass.errors import FormatError, LimitError, PerfPassError, ShapeError
from perfpass.graph import OpGraph
from perfpass.importers.draft import Draft, Node
from perfpass.importers.formats.paddle import shapes
from perfpass.importers.formats.paddle.call import Call, Tensor, value_of
from perfpass.importers.formats.paddle.program import Block, Op, Program, Slot
from perfpass.importers.formats.shapes import Followed, einsum

# Operands in the canonical order (docs/internals/costs.md), where Paddle has another.
_ORDER = {"batch_norm": (0, 3, 4, 1, 2), "deform_conv": (0, 2, 1, 3), "embedding": (1, 0)}
_ORDER_OF = {"addmm": (1, 2, 0), "baddbmm": (1, 2, 0)}
# Operands that say how, and are no data: axes, sizes, kernels.
_HOW_MANY = {
    "pool2d": 1,
    "pool3d": 1,
    "lp_pool2d": 1,
    "conv2d_transpose": 2,
    "conv3d_transpose": 2,
}
_BY_FIRST_NAMES = (
    "reshape squeeze unsqueeze slice strided_slice expand tile split split_with_num topk argmax argmin sum mean "
    "max min prod any all one_hot pad3d pad cumsum nearest_interp bilinear_interp bicubic_interp trilinear_interp "
    "linear_interp scale dropout flip roll clip "
)
_BY_FIRST = frozenset(_BY_FIRST_NAMES.split())
_WITH_AXIS_NAMES = (
    "softmax log_softmax concat split slice cumulative gather scatter top_k sort glu roll tile reverse arg_reduce "
)
_WITH_AXIS = frozenset(_WITH_AXIS_NAMES.split())
_VIEWS = frozenset({"reshape", "squeeze", "unsqueeze", "flatten", "flatten_to_matrix", "legacy_reshape"})
_WITH_BIAS = frozenset({"dense", "conv", "conv_transpose"})
_INTEGER_BITS = {"int8": 8, "uint8": 8, "int4": 4}


def lowered(program: Program, sizes: Mapping[int, tuple[int, ...]]) -> OpGraph:
    """The graph of a program whose inputs have these shapes. Raises ShapeError, FormatError, GraphError, LimitError."""
    return _Lowering(program, sizes).graph()


class _Lowering:
    def __init__(self, program: Program, sizes: Mapping[int, tuple[int, ...]]) -> None:
        self.program, self.sizes = program, sizes
        self.draft = Draft()
        self.now: dict[int, Tensor] = {}
        self.read = Counter(program.outputs)  # value -> how often it is read
        self.maker: dict[int, Node] = {}  # tensor -> the node that makes it
        self.pending: tuple[int, list[Node]] | None = None  # of a conditional block: its condition and its nodes
        self.followed = Followed()
        self.negated: dict[int, int] = {}  # value -> the value that it negates

    # -- tensors ---------------------------------------------------------------------------------------------------

    def tensor(self, dtype: str, shape: tuple[int, ...], role: str, name: str = "") -> Tensor:
        return Tensor(self.draft.tensor(dtype, shape, role, name), dtype, shape, role)

    def find(self, number: int) -> Tensor:
        found = self.now.get(number)
        if found is None:
            raise FormatError(
                f"a Paddle program that reads value {number} before any operator makes it; export it again"
            )
        return found

    def slot(self, slot: Slot) -> Tensor | list[Tensor] | None:
        if isinstance(slot, list):
            return [self.find(number) for number in slot]
        return None if slot is None else self.find(slot)

    # -- the graph -------------------------------------------------------------------------------------------------

    def graph(self) -> OpGraph:
        program = self.program
        for number in program.parameters:
            value = program.values[number]
            shape = value.shape or ()
            if -1 in shape:
                raise FormatError(f"a Paddle program whose parameter {value.name!r} has shape {shape}; export it again")
            weight = shape and (value.dtype.startswith(("float", "bfloat")) or value.dtype in _INTEGER_BITS)
            self.now[number] = self.tensor(value.dtype, shape, "weight" if weight else "literal", value.name)
        for number in program.inputs:
            value = program.values[number]
            self.now[number] = self.tensor(value.dtype, self.sizes[number], "input", value.name)
            self.draft.inputs.append(self.now[number].index)
        self._note_reads(program.block)
        self.block(program.block)
        self.draft.outputs = list(dict.fromkeys(self.find(number).index for number in program.outputs))
        return self.draft.graph()

    def _note_reads(self, block: Block) -> None:
        for op in block.operators:
            for slot in op.inputs:
                self.read.update(slot if isinstance(slot, list) else () if slot is None else (slot,))
            for inner in op.blocks:
                self._note_reads(inner)

    def block(self, block: Block) -> list[Tensor]:
        """The nodes of a block; returns what it yields."""
        for op in block.operators:
            if op.name == "yield":
                return [t for slot in op.inputs for t in _flat(self.slot(slot))]
            try:
                if op.blocks:
                    self.control(op)
                else:
                    self.operator(op)
            except PerfPassError:
                raise
            except (IndexError, ValueError, KeyError, TypeError, OverflowError, ZeroDivisionError) as error:
                raise FormatError(
                    f"{op.source} of a Paddle program has operands or attributes that do not fit it; export it again"
                ) from error
        return []

    # -- control flow ----------------------------------------------------------------------------------------------

    def control(self, op: Op) -> None:
        given = [t for slot in op.inputs for t in _flat(self.slot(slot))]
        kind = "loop" if op.name == "while" else "conditional"
        sides, yields = [], []
        for block in op.blocks:
            carried = given[1:] if kind == "loop" else given
            for number, tensor in zip(block.arguments, carried, strict=False):
                self.now[number] = Tensor(tensor.index, tensor.dtype, tensor.shape, tensor.role)
            if kind == "loop" and not block.arguments:  # by name: what the body writes is no constant in it
                for tensor in carried:
                    tensor.value = None
            begin = len(self.draft.nodes)
            yields.append(self.block(block))
            sides.append(self.draft.nodes[begin:])
        if kind == "loop":
            self.draft.notes["a loop whose number of runs depends on values: its body is counted once"] = True
            yields = [y[1:] if len(y) > len(op.outputs) else y for y in yields]
        self._choice(op, sides)
        made = []
        for i, number in enumerate(op.outputs):
            source = yields[0][i] if yields and i < len(yields[0]) else None
            if source is None:
                raise FormatError(
                    f"{op.source} of a Paddle program yields {i} values of {len(op.outputs)}; export it again"
                )
            made.append(self.tensor(source.dtype, source.shape, "activation"))
            self.now[number] = made[-1]
        read = dict.fromkeys(t.index for t in (*given[:1], *(t for y in yields for t in y)))
        self.draft.node(kind, op.source, "", {}, list(read), [t.index for t in made])

    def _choice(self, op: Op, sides: list[list[Node]]) -> None:
        """Notes both sides of a choice: two blocks, or two operators of one block with opposite conditions."""
        if len(sides) == 2:
            self.draft.branches.append((sides[0], sides[1]))
        elif op.name == "if" and isinstance(op.inputs[0], int | list):
            first = op.inputs[0]
            condition = first if isinstance(first, int) else first[0]
            before, self.pending = self.pending, (condition, sides[0])
            if before is not None and self.negated.get(condition) == before[0]:
                self.draft.branches.append((before[1], sides[0]))
                self.pending = None

    # -- operators -------------------------------------------------------------------------------------------------

    def operator(self, op: Op) -> None:
        call = Call(op, [self.slot(slot) for slot in op.inputs], [self.program.values[n] for n in op.outputs])
        if op.name == "logical_not" and op.outputs and isinstance(op.inputs[0], int):
            self.negated[op.outputs[0]] = op.inputs[0]
        if self._idle(call):
            self.now[op.outputs[0]] = call.members(0)[0]
            return
        if op.name == "add" and self._is_bias(call):
            self.now[op.outputs[0]] = call.members(0)[0]
            return
        value = value_of(call) if op.outputs else None
        made = [
            self.tensor(v.dtype, s, "activation", v.name) for v, s in zip(call.results, self._sizes(call), strict=True)
        ]
        self.now |= zip(op.outputs, made, strict=True)
        if value is not None and value.shape == made[0].shape:  # folded: it only says sizes
            self.followed.take(value.size)
            made[0].value = value
            made[0].role = "literal"
            self.draft.tensors[made[0].index].role = "literal"
            return
        kind, attributes, given = self._described(call)
        if any(not -(1 << 31) <= value < 1 << 31 for value in attributes.values()):
            raise LimitError(f"{op.source} of a Paddle program has an attribute of over 32 bits: {attributes}")
        kept = [t.index for n, t in zip(op.outputs, made, strict=True) if n in self.read or n == op.outputs[0]]
        read = [-1 if t is None else t.index for t in given]
        self.maker[made[0].index] = self.draft.node(kind, op.source, "", attributes, read, kept)

    def _is_bias(self, call: Call) -> bool:
        """Whether an addition is the bias of the layer before it, which takes it then, as runtimes run it."""
        (x, b), slots = call.flat(), call.op.inputs
        maker, last = self.maker.get(x.index), self.maker.get(b.index)
        if maker is None or not isinstance(slots[0], int) or self.read[slots[0]] != 1 or not isinstance(slots[1], int):
            return False
        shown = b
        is_view = last is not None and last is self.draft.nodes[-1] and bool(last.attributes.get("view"))
        if last is not None and is_view and self.read[slots[1]] == 1:
            source = last.inputs[0]
            shown = Tensor(source, b.dtype, b.shape, self.draft.tensors[source].role)
        if maker.kind not in _WITH_BIAS or len(maker.inputs) != 2 or shown.role != "weight":
            return False
        axis = len(x.shape) - 1 if maker.kind == "dense" or maker.attributes.get("channels_last") else 1
        wide = b.shape if len(b.shape) == len(x.shape) else (1,) * (len(x.shape) - len(b.shape)) + b.shape
        if any(size != (x.shape[i] if i == axis else 1) for i, size in enumerate(wide)):
            return False
        if shown is not b:
            self.draft.nodes.pop()
        maker.inputs.append(shown.index)
        return True

    def _idle(self, call: Call) -> bool:
        """What gives its operand back at inference."""
        name, members = call.op.name, call.members(0)
        if not members or not call.op.outputs:
            return False
        if name == "dropout":
            how = call.attribute("mode", "dropout_implementation")
            return bool(call.attribute("is_test")) and how != "downgrade_in_infer"
        if name == "scale" and members[0].value is None:
            by = call.inputs[1].value if len(call.inputs) > 1 and isinstance(call.inputs[1], Tensor) else None
            factor = float(by.reshape(-1)[0]) if by is not None and by.size else call.attribute("scale")
            return factor == 1.0 and not call.attribute("bias")
        return name in ("share_data", "depend", "nop", "identity")

    def _sizes(self, call: Call) -> list[tuple[int, ...]]:
        declared, op = call.declared(), call.op
        if all(shape is not None and -1 not in shape for shape in declared[:1]) and not self._open(op, declared):
            return [shape or () for shape in declared]
        found = shapes.results(call)
        sizes = []
        for i, shape in enumerate(declared):
            rule = found[i] if found is not None and i < len(found) else None
            if rule is None and shape is not None and -1 not in shape:
                sizes.append(shape)
            elif rule is None and op.outputs[i] not in self.read and i:
                sizes.append(tuple(max(size, 1) for size in shape or ()))
            elif rule is None:
                raise ShapeError(
                    f"{op.source}: the size of its result is open in the file ({shape}) and follows from no rule here; "
                    "export the program with fixed shapes (InputSpec without None)"
                )
            else:
                self._agree(op, rule, shape)
                sizes.append(rule)
        return sizes

    def _open(self, op: Op, declared: list[tuple[int, ...] | None]) -> bool:
        return any(
            (shape is None or -1 in shape) and number in self.read
            for number, shape in zip(op.outputs, declared, strict=True)
        )

    def _agree(self, op: Op, found: tuple[int, ...], declared: tuple[int, ...] | None) -> None:
        if any(size < 0 for size in found):
            raise ShapeError(f"{op.source}: the given sizes leave {found} of its result; give larger ones")
        if declared is None or len(declared) != len(found):
            return
        if any(size not in (-1, is_) for size, is_ in zip(declared, found, strict=True)):
            raise ShapeError(
                f"{op.source}: the file says {declared} of its result and the given sizes lead to {found}; give sizes "
                "that the program was exported for"
            )

    # -- canonical form --------------------------------------------------------------------------------------------

    def _described(self, call: Call) -> tuple[str, dict[str, int], list[Tensor | None]]:
        kind, op = call.kind, call.op
        attributes: dict[str, int] = {}
        given = [t for slot in call.inputs for t in (slot if isinstance(slot, list) else [slot])]
        if op.name in _BY_FIRST:
            given = [*call.members(0)[:1]]
        elif op.name in _HOW_MANY:
            given = [t for i, t in enumerate(given) if i != _HOW_MANY[op.name]]
        order = _ORDER_OF.get(op.name) or _ORDER.get(kind)
        if order is not None and len(given) > 1:
            given = [given[i] if i < len(given) else None for i in order]
        if kind in ("conv", "conv_transpose", "deform_conv"):
            self._convolution(call, attributes)
        elif kind == "avg_pool" or (kind == "max_pool" and op.name.startswith("max_pool")):
            kind = self._pool(call, kind, attributes)
        elif kind == "matmul":
            kind = self._product(call, attributes, given)
        elif kind == "attention":
            self._attention(call, attributes)
        elif kind in ("rnn", "lstm", "gru"):
            kind = {"LSTM": "lstm", "GRU": "gru"}.get(str(call.attribute("mode")), kind)
            attributes["hidden_size"] = int(call.attribute("hidden_size") or 0)
            attributes["directions"] = 2 if call.attribute("is_bidirec") else 1
        elif kind == "einsum":
            equation = str(call.attribute("equation") or "")
            attributes["contraction"] = einsum(equation, [t.shape for t in call.members(0)], strict=False)[2]
        elif kind == "group_norm":
            attributes["groups"] = int(call.attribute("groups") or 1)
        elif kind == "layer_norm":
            attributes["axis"] = int(call.attribute("begin_norm_axis") or 1)
        elif kind == "resize":
            attributes["spatial_rank"] = max(len(call.shape(0)) - 2, 0)
        elif kind == "unfold" and op.name == "unfold":
            attributes["spatial_rank"] = 2
            for name, column in (("kernel_sizes", "kernel"), ("strides", "stride")):
                attributes |= {f"{column}_{i}": v for i, v in enumerate(call.numbers(9, name)[:2])}
        elif kind == "reduce_mean" and self._whole_picture(call):
            kind = "global_avg_pool"
            picture = call.shape(0)[2:]
            attributes |= {"spatial_rank": len(picture)} | {f"kernel_{i}": s for i, s in enumerate(picture[:3])}
        elif kind in _WITH_AXIS or kind.startswith("reduce_"):
            self._axis(call, attributes)
        if op.name in _VIEWS:
            attributes["view"] = 1
        return kind, attributes, given

    def _axis(self, call: Call, attributes: dict[str, int]) -> None:
        axis = call.attribute("axis", "dim")
        axis = axis[-1] if isinstance(axis, list) and axis else axis
        if axis is None and call.kind.startswith(("reduce_", "arg_", "concat", "split", "gather")):
            held = [t for t in call.flat()[1:] if t.value is not None and t.value.size]
            axis = int(held[-1].value.reshape(-1)[-1]) if held and held[-1].value is not None else None
        rank = len(call.flat()[0].shape) if call.flat() else 0
        if isinstance(axis, int) and rank:
            attributes["axis"] = axis % rank

    def _whole_picture(self, call: Call) -> bool:
        shape = call.shape(0)
        if len(shape) not in (4, 5) or not call.attribute("keepdim", "keep_dim"):
            return False
        return sorted(a % len(shape) for a in call.numbers(1, "axis", "dim")) == list(range(2, len(shape)))

    def _windows(self, call: Call, attributes: dict[str, int], kernel: list[int]) -> None:
        data = call.shape(0)
        sizes = data[shapes.spatial(call, data)]
        attributes |= {"spatial_rank": len(sizes), "channels_last": int(call.channels_last())}
        columns = ("kernel", "stride", "dilation", "pad_begin", "pad_end")
        for i, window in enumerate(shapes.windows(call, sizes, kernel)[:3]):
            attributes |= {f"{column}_{i}": v for column, v in zip(columns, window, strict=True)}

    def _convolution(self, call: Call, attributes: dict[str, int]) -> None:
        weight = call.shape(call.weight_slot())
        if len(weight) < 3 or len(weight) != len(call.shape(0)):
            raise FormatError(f"{call.op.source} of {call.shape(0)} by a weight of {weight}; export the program again")
        self._windows(call, attributes, list(weight[2:]))
        groups = call.attribute("groups")
        attributes["groups"] = max(int(groups or 1), 1)
        attributes["weight_layout"] = 2 if call.kind == "conv_transpose" else 0

    def _pool(self, call: Call, kind: str, attributes: dict[str, int]) -> str:
        data = call.shape(0)
        sizes = data[shapes.spatial(call, data)]
        if kind == "avg_pool" and str(call.attribute("pooling_type")) == "max":
            kind = "max_pool"
        kernel = call.numbers(1, "kernel_size", "ksize")
        kernel = kernel * len(sizes) if len(kernel) == 1 else kernel
        adaptive = bool(call.attribute("adaptive"))
        if call.attribute("global_pooling") or (adaptive and set(kernel) == {1}):
            attributes |= {"spatial_rank": len(sizes), "channels_last": int(call.channels_last())}
            attributes |= {f"kernel_{i}": size for i, size in enumerate(sizes[:3])}
            return f"global_{kind}"
        if adaptive:  # an output cell reads ceil(in / out) or one more inputs per axis
            attributes |= {"spatial_rank": len(sizes), "channels_last": int(call.channels_last())}
            for i, (size, out) in enumerate(zip(sizes[:3], kernel, strict=False)):
                attributes |= {f"kernel_{i}": -(-size // max(out, 1)), f"stride_{i}": max(size // max(out, 1), 1)}
            return kind
        self._windows(call, attributes, kernel)
        return kind

    def _product(self, call: Call, attributes: dict[str, int], given: list[Tensor | None]) -> str:
        a, b = (given[0], given[1]) if len(given) > 1 else (None, None)
        if a is None or b is None:
            raise FormatError(f"{call.op.source} of a Paddle program has one operand; export it again")
        if call.attribute("transpose_x", "trans_x", "transpose_X"):
            attributes["transpose_a"] = 1
        if call.attribute("transpose_y", "trans_y", "transpose_Y"):
            attributes["transpose_b"] = 1
        if call.op.name == "weight_only_linear":
            attributes["weight_bits"] = 4 if call.attribute("weight_dtype") == "int4" else 8
            return "matmul_nbits"
        if call.op.name == "llm_int8_linear":
            return "quantized_matmul"
        return "dense" if b.role == "weight" and len(b.shape) == 2 else "matmul"

    def _attention(self, call: Call, attributes: dict[str, int]) -> None:
        attributes["causal"] = int(bool(call.attribute("causal")))
        heads = call.attribute("head_number", "num_heads")
        q, k = call.shape(0), call.members(1)
        if heads is None and len(q) == 4:
            heads = q[2]
        attributes["num_heads"] = int(heads or 1)
        attributes["num_kv_heads"] = k[0].shape[2] if k and len(k[0].shape) == 4 else int(heads or 1)


def _flat(slot: Tensor | list[Tensor] | None) -> list[Tensor]:
    return slot if isinstance(slot, list) else [] if slot is None else [slot]
