"""Random valid operator graphs for property tests: every operator kind, every layout that the costs distinguish."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from hypothesis import strategies as st

from perfpass import _core
from perfpass.graph import OPERATORS, OpGraph

FLOATS = ("float32", "float32", "float32", "float16", "bfloat16", "float64")
OTHERS = ("int64", "int32", "int8", "uint8", "int4", "uint4", "bool", "float8", "float4", "complex64", "undefined")
STRUCTURED = frozenset(("conv", "conv_transpose", "deform_conv", "matmul", "dense", "einsum", "bilinear", "attention"))
STRUCTURED |= {"lstm", "gru", "rnn", "quantized_conv", "quantized_matmul", "matmul_nbits", "moe", "state_space_scan"}
LOOSE = tuple(op for op in OPERATORS if op not in STRUCTURED)  # their costs accept any tensors


class Maker:
    """Grows one graph, node by node; every method adds one node whose shapes are consistent."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.builder = _core.GraphBuilder()
        self.shapes: dict[int, tuple[int, ...]] = {}
        self.pool: list[int] = []  # tensors that later nodes may read
        self.inputs: list[int] = []
        self.made: list[int] = []

    def tensor(self, shape: tuple[int, ...], role: str, dtype: str = "float32") -> int:
        index = self.builder.add_tensor(f"t{len(self.shapes)}", dtype, list(shape), role)
        self.shapes[index] = tuple(shape)
        return index

    def data(self, shape: tuple[int, ...], dtype: str = "float32") -> int:
        """An earlier tensor of that shape, if there is one, else a new graph input."""
        fitting = [t for t in self.pool if self.shapes[t] == tuple(shape)]
        if fitting and self.random.random() < 0.7:
            return self.random.choice(fitting)
        index = self.tensor(shape, "input", dtype)
        self.inputs.append(index)
        self.pool.append(index)
        return index

    def weight(self, shape: tuple[int, ...], dtype: str = "float32") -> int:
        return self.tensor(shape, self.random.choice(("weight", "weight", "weight", "literal")), dtype)

    def maybe(self, index: Callable[[], int]) -> int:
        return index() if self.random.random() < 0.5 else -1

    def node(self, op: str, inputs: list[int], outputs: list[tuple], source: str = "", **attributes: int) -> None:
        """Add the node; ``outputs`` holds (shape, dtype) pairs, None where an optional output is absent."""
        made = [-1 if o is None else self.tensor(o[0], "activation", o[1]) for o in outputs]
        repeat = self.random.choice((1.0, 1.0, 1.0, 1.0, 3.0, 0.0, 2.5))
        self.builder.add_node(op, source or op, "", attributes, inputs, made, repeat)
        self.made.extend(t for t in made if t >= 0)
        self.pool.extend(t for t in made if t >= 0)

    def size(self, low: int = 1, high: int = 6) -> int:
        return self.random.randint(low, high)

    def convolution(self) -> None:
        rank, groups = self.size(1, 3), self.size(1, 3)
        into, made = groups * self.size(1, 3), groups * self.size(1, 3)
        kernel = tuple(self.size(1, 3) for _ in range(rank))
        batch, space = self.size(1, 2), tuple(self.size(3, 6) for _ in range(rank))
        out_space = tuple(self.size(1, 6) for _ in range(rank))
        last = self.random.random() < 0.3
        attributes = {"spatial_rank": rank, "groups": groups, "channels_last": int(last), "weight_layout": int(last)}
        for axis in range(rank):
            attributes |= {f"kernel_{axis}": kernel[axis], f"stride_{axis}": self.size(1, 2), f"dilation_{axis}": 1}
            attributes |= {f"pad_begin_{axis}": self.size(0, 1), f"pad_end_{axis}": self.size(0, 1)}
        op = self.random.choice(("conv", "conv", "conv_transpose", "deform_conv", "quantized_conv"))
        x = self.data((batch, *space, into) if last else (batch, into, *space))
        out = (batch, *out_space, made) if last else (batch, made, *out_space)
        if op == "conv_transpose":
            shape = (*kernel, made // groups, into) if last else (into, made // groups, *kernel)
            attributes["weight_layout"] = 2
        else:
            shape = (*kernel, into // groups, made) if last else (made, into // groups, *kernel)
        bias = self.maybe(lambda: self.weight((made,)))
        if op == "deform_conv":
            offset, mask = self.data((batch, 2, *out_space)), self.maybe(lambda: self.data((2, 2)))
            inputs = [x, self.weight(shape), offset, bias, mask]
        elif op == "quantized_conv" and self.random.random() < 0.5:
            scalar = self.tensor((), "literal", "uint8")
            inputs = [x, scalar, scalar, self.weight(shape, "int8"), scalar, scalar, scalar, scalar, bias]
        else:
            inputs = [x, self.weight(shape), bias]
        self.node(op, inputs, [(out, self.random.choice(("float32", "uint8")))], **attributes)

    def product(self) -> None:
        op = self.random.choice(("matmul", "matmul", "dense", "quantized_matmul", "matmul_nbits"))
        m, n, k = self.size(), self.size(), self.size()
        if op == "matmul_nbits":
            k, block = 32 * self.size(1, 3), 32
            blocks = k // block
            scales = self.weight((n * blocks,))
            zero = self.maybe(lambda: self.weight((n * ((blocks + 1) // 2),), "uint8"))
            packed = self.weight((n, blocks, block // 2), "uint8")
            inputs = [self.data((2, m, k)), packed, scales, zero, -1, self.maybe(lambda: self.weight((n,)))]
            self.node(op, inputs, [((2, m, n), "float32")], weight_bits=4, block_size=block)
            return
        flip_a, flip_b = (int(self.random.random() < 0.3) for _ in range(2))
        batch = tuple(self.size(1, 3) for _ in range(self.size(0, 2))) if op != "dense" else ()
        a_shape = (*batch, k, m) if flip_a else (*batch, m, k)
        b_batch = () if op == "dense" or self.random.random() < 0.5 else tuple(1 for _ in batch)
        b_shape = (*b_batch, n, k) if flip_b else (*b_batch, k, n)
        out = (*batch, m, n)
        if op == "matmul" and self.random.random() < 0.15:  # by a vector
            flip_b, b_shape, out = 0, (k,), (*batch, m)
        a, b = self.data(a_shape), self.weight(b_shape)
        bias = self.maybe(lambda: self.weight((n,)))
        if op == "quantized_matmul":
            scalar = self.tensor((), "literal")
            inputs = [a, scalar, scalar, b, scalar, scalar] if self.random.random() < 0.5 else [a, b, scalar, scalar]
        else:
            inputs = [a, b] if bias < 0 else [a, b, bias]
        dtype = self.random.choice(("float32", "int8", "int32"))
        self.node(op, inputs, [(out, dtype)], transpose_a=flip_a, transpose_b=flip_b)

    def attention(self) -> None:
        batch, q, k, dim, v_dim = self.size(1, 2), self.size(), self.size(), self.size(2, 4), self.size(2, 4)
        kv = self.size(1, 2)
        heads = kv * self.size(1, 2)
        past = self.size(0, 3)
        present = [((batch, kv, k + past, dim), "float32")] if self.random.random() < 0.5 else []
        counts = {"num_heads": heads, "num_kv_heads": kv, "causal": int(self.random.random() < 0.5)}
        layout = self.random.randrange(7)
        out = ((batch, q, heads * v_dim), "float32")
        if layout == 0:
            inputs = [(batch, heads, q, dim), (batch, kv, k, dim), (batch, kv, k, v_dim)]
            out = ((batch, heads, q, v_dim), "float32")
        elif layout == 6:  # tokens of all sequences in a row, projected or not
            out, present = ((q, heads * v_dim), "float32"), []
            if self.random.random() < 0.5:
                weight = self.weight((heads * v_dim, 2 * heads * dim + heads * v_dim))
                self.node("attention", [self.data((q, heads * v_dim)), weight, -1], [out], num_heads=heads)
                return
            inputs = [(q, heads * dim), (k, kv * dim), (k, kv * v_dim)]
        elif layout == 1:
            inputs = [(batch, q, heads * dim), (batch, k, kv * dim), (batch, k, kv * v_dim)]
        elif layout == 2:
            inputs = [(batch, q, heads * dim), (batch, kv, k, dim), (batch, kv, k, v_dim)]
        elif layout == 3:
            present = []
            self.node("attention", [self.data((batch, q, (heads + 2 * kv) * dim)), -1, -1], [out, *present], **counts)
            return
        elif layout == 4:
            inputs = [(batch, q, heads, 3, dim)]
        else:
            hidden = heads * v_dim
            weight = self.weight((hidden, 2 * heads * dim + hidden))
            self.node("attention", [self.data((batch, q, hidden)), weight, -1], [out], num_heads=heads)
            return
        self.node("attention", [self.data(s) for s in inputs], [out, *present], **counts)

    def recurrence(self) -> None:
        op, gates = self.random.choice((("lstm", 4), ("gru", 3), ("rnn", 1)))
        steps, batch, width = self.size(), self.size(), self.size()
        hidden, directions = self.size(7, 9), self.size(1, 2)
        x = self.data((steps, batch, width))
        out = ((steps, directions, batch, hidden), "float32")
        attributes = {"hidden_size": hidden, "directions": directions}
        if self.random.random() < 0.5:  # ONNX
            w = self.weight((directions, gates * hidden, width))
            r = self.weight((directions, gates * hidden, hidden))
            inputs = [x, w, r, self.maybe(lambda: self.weight((directions, 2 * gates * hidden)))]
        else:  # torch: state, then weights of each layer and direction
            inputs = [x, self.data((directions, batch, hidden))]
            for _ in range(directions):
                inputs += [self.weight((gates * hidden, width)), self.weight((gates * hidden, hidden))]
        self.node(op, inputs, [out], **attributes)

    def rare_product(self) -> None:
        kind = self.random.randrange(4)
        if kind == 0:
            b, i, j, k = (self.size() for _ in range(4))
            inputs = [self.data((b, i, k)), self.weight((j, k))]
            self.node("einsum", inputs[: self.size(1, 2)], [((b, i, j), "float32")], contraction=k)
        elif kind == 1:
            b, i, j, o = (self.size() for _ in range(4))
            operands = [self.data((b, i)), self.data((b, j)), self.weight((o, i, j))]
            if self.random.random() < 0.5:
                operands = [operands[0], operands[2], operands[1]]
            self.node("bilinear", [*operands, self.maybe(lambda: self.weight((o,)))], [((b, o), "float32")])
        elif kind == 2:
            tokens, hidden, inner, experts = (self.size() for _ in range(4))
            x, router = self.data((tokens, hidden)), self.data((tokens, experts))
            width = self.random.choice((0, 4))
            packing, dtype = (2, "uint8") if width else (1, "float32")
            first = self.weight((experts, hidden * packing, inner), dtype)
            second = self.weight((experts, inner * packing, hidden), dtype)
            inputs = [x, router, first, self.maybe(lambda: self.weight((experts, inner))), second]
            self.node("moe", inputs, [((tokens, hidden), "float32")], contraction=self.size(1, 2), weight_bits=width)
        else:
            b, d, length, n = (self.size() for _ in range(4))
            if self.random.random() < 0.5:  # linear attention
                heads, kv = 2 * d, d
                inputs = [
                    self.data((b, length, heads * n)),
                    self.data((b, length, kv * n)),
                    self.data((b, length, kv * 3)),
                ]
                out = ((b, length, heads * 3), "float32")
                self.node("state_space_scan", inputs, [out], num_heads=heads, num_kv_heads=kv)
                return
            x = self.data((b, d, length))
            inputs = [x, self.data((b, d, length)), self.weight((d, n)), self.data((b, n, length))]
            self.node("state_space_scan", inputs, [((b, d, length), "float32")])

    def shape(self) -> tuple[int, ...]:
        return tuple(self.random.choice((0, 1, 1, 2, 3, 4, 7)) for _ in range(self.size(0, 5)))

    def any_tensor(self) -> int:
        """An earlier tensor, a new one of any type, or none."""
        choice = self.random.random()
        if choice < 0.6 and self.pool:
            return self.random.choice(self.pool)
        if choice < 0.7:
            return -1
        role = self.random.choice(("weight", "literal", "input"))
        index = self.tensor(self.shape(), role, self.random.choice(FLOATS + OTHERS))
        self.pool.append(index)
        if role == "input":
            self.inputs.append(index)
        return index

    def loose(self, op: str = "") -> None:
        """A node whose operands, attributes and results are anything at all; of any loose kind unless one is given."""
        op = op or self.random.choice(LOOSE)
        attributes = {
            "spatial_rank": self.size(0, 3),
            "axis": self.size(-3, 3),
            "groups": self.size(0, 2),
            "view": int(self.random.random() < 0.2),
            "in_place": int(self.random.random() < 0.2),
            "weight_bits": self.random.choice((0, 0, 0, 4)),
            "channels_last": self.size(0, 1),
        }
        attributes |= {f"kernel_{axis}": self.size(0, 3) for axis in range(3)}
        attributes |= {f"stride_{axis}": self.size(0, 3) for axis in range(3)}
        if self.random.random() < 0.3:
            del attributes["axis"]
        outputs = [(self.shape(), self.random.choice(FLOATS + OTHERS)) for _ in range(self.size(1, 3))]
        if self.random.random() < 0.1:
            outputs[0] = None
        source = self.random.choice(("", "nearest", "Squeeze", "Floor", "None", "Conv", "nn.bias_add"))
        self.node(op, [self.any_tensor() for _ in range(self.size(0, 4))], outputs, source, **attributes)

    def finish(self) -> OpGraph:
        outputs = self.random.sample(self.made, min(len(self.made), self.size(0, 2)))
        return OpGraph(self.builder.finish(self.inputs, outputs))


@st.composite
def graphs(draw: st.DrawFn, max_nodes: int = 14) -> OpGraph:
    """Graphs of up to ``max_nodes`` nodes with branches, shared weights, views, absent operands and zero sizes."""
    maker = Maker(Random(draw(st.integers(0, 2**32 - 1))))
    makers = [maker.convolution, maker.product, maker.attention, maker.recurrence, maker.rare_product]
    for _ in range(draw(st.integers(1, max_nodes))):
        maker.random.choice([*makers, *[maker.loose] * 5])()
    return maker.finish()


class Writer(Maker):
    """Writes patterns out as exporters do, and now and then not quite: an operand turned, a second reader, a loop.

    ``prefix``: of the operators' names in their source.
    """

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.prefix = "aten." if random.random() < 0.25 else ""

    def step(self, op: str, *inputs: int, shape: tuple[int, ...] | None = None, source: str = "") -> int:
        """One node; its output has the shape of its first input unless one is given."""
        made = self.tensor(shape or self.shapes[inputs[0]], "activation")
        given = list(inputs)
        if self.random.random() < 0.06 and len(given) < 3:
            given.reverse()
        if self.random.random() < 0.04:
            op = self.random.choice(("add", "mul", "cast", "identity", "transpose", "sub"))
        repeat = self.random.choice((1.0,) * 30 + (3.0, 0.0, 2.5))
        self.builder.add_node(op, source or self.prefix + op, "", {}, given, [made], repeat)
        self.made.append(made)
        self.pool.append(made)
        return made

    def constant(self) -> int:
        made = self.given((1,), ("literal", "weight", "input", "literal"))
        if self.random.random() < 0.8:
            return made
        return self.step("sqrt", self.step(self.random.choice(("cast", "shape_of", "random", "dequantize")), made))

    def given(self, shape: tuple[int, ...], roles: tuple[str, ...]) -> int:
        """A tensor that no node makes."""
        role = self.random.choice(roles)
        made = self.tensor(shape, role)
        if role == "input":
            self.inputs.append(made)
        return made

    def turned(self, x: int) -> int:
        """The same sizes behind a transpose (of an attention) or copy, its axes split, joined or left, an index."""
        shape = (2, 4, 8)
        if self.random.random() < 0.3:
            x = self.step("attention", x, x, x)
            x = self.step("reshape", x) if self.random.random() < 0.5 else x
        x = self.step("transpose", x, shape=(*shape[:-2], shape[-1], shape[-2]))
        if self.random.random() < 0.5:
            x = self.step("copy", x, source=self.random.choice(("aten.clone", "aten.contiguous", "aten.copy_", "copy")))
            if self.random.random() < 0.3:
                self.step("identity", x, self.step("fill", x), source="alias_after_write")
        joined = self.random.choice((shape, (1, *shape), (shape[0], shape[1] * shape[2]), (2, 2, 2, *shape[2:])))
        x = self.step("reshape", x, shape=joined)
        if self.random.random() < 0.5:
            index = self.given(self.random.choice(((), (1,), (2,))), ("literal", "input"))
            index = self.step("where", index, index) if self.random.random() < 0.3 else index
            x = self.step("gather", x, index)
        if self.random.random() < 0.2:
            x = self.step("add", x, self.step("scatter", self.constant(), self.constant(), self.constant()))
        return self.step("reshape", x, shape=shape)

    def layer_norm(self, x: int) -> int:
        mean = self.step("reduce_mean", x, shape=(2, 4, 1))
        centred = self.step("sub", x, mean)
        if self.random.random() < 0.4:
            read = self.random.choice(([x], [x, mean], [x, mean], [centred]))
            variance = self.step("reduce_variance", *read, shape=(2, 4, 1))
        else:
            square = self.step("mul", centred, centred) if self.random.random() < 0.5 else self.step("pow", centred)
            variance = self.step("reduce_mean", square, shape=(2, 4, 1))
        epsilon = self.constant()
        summed = [variance, epsilon] if self.random.random() < 0.5 else [epsilon, variance]
        summed = [self.step("add", *summed, shape=(2, 4, 1))]
        if self.random.random() < 0.5:
            out = self.step("div", centred, self.step("sqrt", *summed))
        else:
            direct = self.random.random() < 0.5
            inverse = self.step("rsqrt", *summed) if direct else self.step("sqrt", *summed)
            inverse = inverse if direct else self.step("div", self.constant(), inverse, shape=(2, 4, 1))
            out = self.step("mul", centred, inverse)
        for op in ("mul", "add")[: self.size(0, 2)]:
            out = self.step(op, out, self.constant())
        return out

    def layer_norm_by_sums(self, x: int) -> int:
        """By x s + (bias - mean s), with reshapes or without."""
        row = (2, 4, 1)
        small = self.random.choice((row, (8,)))

        def shown(t: int) -> int:
            return self.step("reshape", t, shape=row) if small != row or self.random.random() < 0.2 else t

        mean = self.step("reduce_mean", x, shape=small)
        square = self.step("sub", x, shown(mean))
        square = self.step("mul", square, square) if self.random.random() < 0.5 else square
        variance = self.step("reduce_mean", square if self.random.random() < 0.9 else x, shape=small)
        scale = self.step("rsqrt", self.step("add", variance, self.constant(), shape=small))
        weighted = self.random.random() < 0.4
        scale = self.step("mul", shown(scale), self.tensor((8,), "weight"), shape=(2, 4, 8)) if weighted else scale
        product = self.step("mul", x, scale if weighted else shown(scale))
        moved = self.step("mul", *((scale, shown(mean)) if self.random.random() < 0.5 else (shown(mean), scale)))
        moved = self.step("sub", self.constant(), moved, shape=self.shapes[moved])
        moved = moved if weighted else shown(moved)
        out = self.step("add", *((product, moved) if self.random.random() < 0.5 else (moved, product)), shape=(2, 4, 8))
        for op in ("mul", "add")[: self.size(0, 2)]:
            out = self.step(op, out, self.constant())
        return out

    def gelu(self, x: int) -> int:
        before = self.random.random() < 0.5
        half = self.step("mul", x, self.constant()) if before else x
        erf = self.step("erf", self.step("div", x, self.constant()))
        out = self.step("mul", self.by_number("add", erf), half)
        return out if before else self.step("mul", out, self.constant())

    def by_number(self, op: str, x: int) -> int:
        """An operator with a number, which is an input or, as PyTorch records it, none."""
        return self.step(op, x) if self.random.random() < 0.3 else self.step(op, x, self.constant())

    def gelu_by_tanh(self, x: int) -> int:
        halved = self.random.choice(("x", "x", "sum", "product", "not at all"))
        half = self.by_number(self.random.choice(("mul", "div")), x) if halved == "x" else x
        if self.random.random() < 0.4:  # c x * (1 + 0.044715 x * x)
            square = self.step("mul", self.by_number("mul", x), x)
            cubic = self.step("mul", self.by_number("mul", x), self.by_number("add", square))
        else:  # c (x + 0.044715 x^3)
            by_power = self.random.random() < 0.5
            cube = self.by_number("pow", x) if by_power else self.step("mul", self.step("mul", x, x), x)
            cubic = self.by_number("mul", self.step("add", x, self.by_number("mul", cube)))
        total = self.by_number("add", self.step("tanh", cubic))
        if halved == "sum":
            total = self.by_number("mul", total)
        out = self.step("mul", half, total)
        return self.by_number("mul", out) if halved == "product" else out

    def silu(self, x: int) -> int:
        scaled = self.by_number("mul", x) if self.random.random() < 0.3 else x
        return self.step("mul", x, self.step("sigmoid", scaled))

    def hard_swish(self, x: int) -> int:
        if self.random.random() < 0.2:
            return self.step("mul", x, self.step("hard_sigmoid", x))
        sixth = self.random.choice(
            ((), ("first",), ("before",), ("behind",), ("first", "behind"), ("before", "behind"))
        )
        scaled = self.step("mul", x, self.constant()) if "first" in sixth else x
        clipped = self.step("clip", self.step("add", scaled, self.constant()))
        if "before" in sixth:
            clipped = self.step("div", clipped, self.constant())
        gated = self.random.choice((x, x, x, self.constant()))
        out = self.step("mul", gated, clipped, shape=(2, 4, 8))
        return self.step("mul", out, self.constant()) if "behind" in sixth else out

    def biased(self, x: int) -> int:
        """A convolution or a dense layer of two axes, and one constant a channel, or what has nearly its shape."""
        dense = self.random.random() < 0.5
        if dense:
            read = self.step("reshape", x, shape=(8, 8))
            given = [read, self.tensor((8, 8), "weight")]
        else:
            given = [x, self.tensor((4, 4, 1), "weight")]
        if self.random.random() < 0.2:
            given.append(self.tensor((8 if dense else 4,), "weight"))
        operator = "dense" if dense else self.random.choice(("conv", "conv", "conv_transpose", "max_pool"))
        if not dense and self.random.random() < 0.4:
            given[0] = self.step("pad", x, shape=(2, 4, 10), source=self.random.choice(("PAD", "PADV2", "Pad")))
        out = self.step(operator, *given, shape=self.shapes[x] if not dense else None)
        if dense and self.random.random() < 0.7:
            out = self.step("reshape", out, shape=self.random.choice(((2, 4, 8), (2, 4, 8), (8, 4, 2))))
        channels = ((8,), (1, 8), (8, 1)) if dense else ((4,), (4, 1), (1, 4, 1))
        bias = self.given(
            self.random.choice((*channels * 2, (1,), (2, 4, 8))), ("weight", "literal", "weight", "input")
        )
        bias = self.step("reshape", bias) if self.random.random() < 0.3 else bias
        return self.step("add", *((out, bias) if self.random.random() < 0.7 else (bias, out)), shape=(2, 4, 8))

    def linear(self, x: int) -> int:
        weight = self.tensor((8, 8), "weight")
        if self.random.random() < 0.4:
            weight = self.step(self.random.choice(("transpose", "transpose", "cast")), weight)
        out = self.step("matmul", x, weight)
        return self.step("add", out, self.constant()) if self.random.random() < 0.7 else out

    def narrowed(self, x: int) -> int:
        """Between dequantized operands and a quantized output, as quantisation tools write it, or almost."""
        weight = self.tensor((8, 8), "weight")
        x = self.step("dequantize", self.step("quantize", x))
        op = self.random.choice(("matmul", "dense", "add", "mul", "silu", "max_pool", "concat"))
        if op in ("matmul", "dense"):
            out = self.step(op, x, self.step("dequantize", weight))
        else:
            out = self.step(op, x, self.constant()) if op in ("add", "mul") else self.step(op, x)
        if self.random.random() < 0.5:
            out = self.step(self.random.choice(("relu", "clip", "sigmoid")), out)
        return self.step("dequantize", self.step("quantize", out)) if self.random.random() < 0.8 else out

    def scaled(self, x: int) -> int:
        return self.step("mul", x, self.constant()) if self.random.random() < 0.4 else x

    def reshaped(self, x: int, shape: tuple[int, ...]) -> int:
        """Behind a reshape as a rule, and behind transposes and a multiplication by a constant."""
        if self.random.random() < 0.3:
            x = self.scaled(self.step("transpose", x))
        x = self.step("reshape", x, shape=shape) if self.random.random() < 0.9 else x
        return self.scaled(x) if self.random.random() < 0.2 else x

    def softmax_attention(self, x: int) -> int:
        query, key, value = (self.scaled(self.linear(x)) for _ in range(3))
        flat = self.random.random() < 0.4  # products of three axes, between reshapes
        if flat:
            query, key, value = (self.reshaped(t, (2, 4, 8)) for t in (query, key, value))
        key = self.step("transpose", key, shape=(2, 8, 4))
        scores = self.step("matmul", query, key, shape=(2, 4, 4))
        scores = self.reshaped(scores, (1, 2, 4, 4)) if flat else scores
        for op in self.random.sample(("div", "add", "where", "cast", "clip"), self.size(0, 4)):
            scores = self.step(op, *([scores, self.constant()] if self.random.random() < 0.8 else [scores, scores]))
        probabilities = self.step("softmax", scores)
        if self.random.random() < 0.3:
            test = self.step("is_special", probabilities)
            probabilities = self.step("where", test, self.constant(), probabilities)
        if self.random.random() < 0.3:
            probabilities = self.step("dropout", probabilities)
        probabilities = self.reshaped(probabilities, (2, 4, 4)) if flat else probabilities
        out = self.step("matmul", probabilities, value, shape=(2, 4, 8))
        if self.random.random() < 0.3:
            for _ in range(self.size(1, 3)):
                out = self.step("reshape", out, shape=self.random.choice(((1, 2, 4, 8), (2, 4, 2, 4), (8, 8))))
        if self.random.random() < 0.6:
            out = self.step("transpose", out)
        return self.step("reshape", out) if self.random.random() < 0.6 else out


@st.composite
def written_out(draw: st.DrawFn, max_patterns: int = 6) -> OpGraph:
    """Chains of patterns as exporters write them out, with what almost is one among them."""
    maker = Writer(Random(draw(st.integers(0, 2**32 - 1))))
    x = maker.data((2, 4, 8))
    for _ in range(draw(st.integers(1, max_patterns))):
        pattern = maker.random.choice(
            [
                *(maker.layer_norm, maker.gelu, maker.silu, maker.hard_swish, maker.linear, maker.biased, maker.turned),
                *(maker.softmax_attention, maker.softmax_attention, maker.layer_norm_by_sums, maker.gelu_by_tanh),
                *(maker.narrowed, maker.narrowed),
            ]
        )
        x = pattern(x)
        if maker.random.random() < 0.2:
            x = maker.step("add", x, maker.random.choice([t for t in maker.pool if maker.shapes[t] == (2, 4, 8)]))
    return maker.finish()
