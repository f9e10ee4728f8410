"""1,000 random ONNX graphs, each checked by ONNX and by what its maker counted; the seed is the graph's number."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from row import NotMadeError, Reading

import perfpass

TITLE = "random ONNX graphs"
PACKAGES = ("onnx",)
GRAPHS = 1_000
_MOST_NODES = 40
_UNARY = ("Relu", "Sigmoid", "Tanh", "Abs", "Neg", "Exp", "Erf", "Softplus", "HardSwish", "Gelu", "Identity", "Mish")
_BINARY = ("Add", "Mul", "Sub", "Div", "Max", "Min")
Shape = tuple[int, ...]


def models() -> list[str]:
    """The seeds."""
    return [f"seed {seed}" for seed in range(GRAPHS)]


def read(model: str) -> Reading:
    """The graph, whose outputs have the shapes that its maker gave them; MACs and parameters as it counted them."""
    made = Maker(int(model.removeprefix("seed ")))
    proto = made.model()
    try:
        onnx.checker.check_model(proto)
        onnx.shape_inference.infer_shapes(proto, strict_mode=True)
    except Exception as error:
        raise NotMadeError(f"onnx refuses the graph: {error}") from error
    graph = perfpass.load(proto)
    for tensor, (name, shape) in zip(graph.graph_outputs, made.ends(), strict=True):
        if graph.shape(int(tensor)) != shape:
            raise AssertionError(f"{name} has the shape {graph.shape(int(tensor))}, and {shape} is right")
    return Reading(graph, made.macs, made.parameters)


class Maker:
    """A graph grown operator by operator from one image, with branches, and its MACs by the closed forms."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.macs = self.parameters = 0
        self.image: Shape = (self._of(1, 2, 4), self._of(1, 3, 8), self._of(8, 17, 32), self._of(8, 17, 32))
        self.shapes: dict[str, Shape] = {"image": self.image}
        self.used: set[str] = set()
        self.whole: set[str] = set()  # results that are no float32
        self.made = 0
        steps: tuple[Callable[[str, Shape], None], ...] = (
            *(self.convolution, self.transposed, self.pooling, self.norm, self.unary, self.binary, self.product),
            *(self.concat, self.reshape, self.transpose, self.reduce, self.softmax, self.slice, self.pad, self.split),
            *(self.gather, self.expand, self.where, self.cast, self.attention, self.layer_norm, self.resize),
        )
        for _ in range(self.random.randint(3, _MOST_NODES)):
            name = self.random.choice(self._floats()[-6:])
            self.random.choice(steps)(name, self.shapes[name])
        if not self.nodes:
            self.unary("image", self.image)

    def model(self) -> onnx.ModelProto:
        """The graph; shapes of its input and outputs alone are declared."""
        info = helper.make_tensor_value_info
        outputs = [info(name, TensorProto.FLOAT, shape) for name, shape in self.ends()]
        image = info("image", TensorProto.FLOAT, self.image)
        graph = helper.make_graph(self.nodes, "random", [image], outputs, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)

    def ends(self) -> list[tuple[str, Shape]]:
        """Results that nothing reads, by name."""
        return [(name, self.shapes[name]) for name in self._floats() if name not in self.used and name != "image"]

    def _floats(self) -> list[str]:
        return [name for name in self.shapes if name not in self.whole]

    def _of(self, *values: int) -> int:
        return self.random.choice(values)

    def _add(self, kind: str, inputs: list[str], *shapes: Shape, **attributes: object) -> str:
        outputs = [f"t{self.made + i}" for i in range(len(shapes))]
        self.made += len(shapes)
        self.nodes.append(helper.make_node(kind, inputs, outputs, name=f"n{len(self.nodes)}", **attributes))
        self.used.update(inputs)
        self.shapes.update(zip(outputs, shapes, strict=True))
        return outputs[0]

    def _weight(self, *shape: int) -> str:
        name = f"w{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.full(shape, 0.5, "float32"), name))
        self.parameters += math.prod(shape)
        return name

    def _whole(self, *values: int) -> str:
        name = f"w{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(values, "int64"), name))
        return name

    def convolution(self, name: str, shape: Shape) -> None:
        """Grouped or not, strided, dilated."""
        if len(shape) != 4 or min(shape[2:]) < 4:
            return
        groups = self._of(*[g for g in (1, 1, 2, shape[1]) if shape[1] % g == 0])
        out, kernel, stride, dilation = groups * self._of(1, 2, 4), self._of(1, 3), self._of(1, 2), self._of(1, 1, 2)
        pad = self._of(0, kernel // 2)
        size = [(n + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1 for n in shape[2:]]
        if min(size) < 1:
            return
        inputs = [name, self._weight(out, shape[1] // groups, kernel, kernel)]
        inputs += [self._weight(out)] if self._of(0, 1) else []
        keys = {"strides": [stride] * 2, "dilations": [dilation] * 2, "pads": [pad] * 4, "group": groups}
        self._add("Conv", inputs, (shape[0], out, *size), **keys)
        self.macs += shape[0] * out * math.prod(size) * (shape[1] // groups) * kernel * kernel

    def transposed(self, name: str, shape: Shape) -> None:
        """A transposed convolution of stride 2."""
        if len(shape) != 4 or max(shape[1:]) > 64:
            return
        out, kernel = self._of(2, 3), self._of(2, 3)
        size = [2 * (n - 1) + kernel for n in shape[2:]]
        self._add(
            "ConvTranspose", [name, self._weight(shape[1], out, kernel, kernel)], (shape[0], out, *size), strides=[2, 2]
        )
        self.macs += math.prod(shape) * out * kernel * kernel

    def pooling(self, name: str, shape: Shape) -> None:
        """Windows of two, or all."""
        if len(shape) != 4 or min(shape[2:]) < 2:
            return
        if self._of(0, 1, 2) == 0:
            self._add("GlobalAveragePool", [name], (*shape[:2], 1, 1))
            return
        up = self._of(0, 1)
        size = [-(-(n - 2) // 2) + 1 if up else (n - 2) // 2 + 1 for n in shape[2:]]
        kind = self.random.choice(("MaxPool", "AveragePool"))
        self._add(kind, [name], (*shape[:2], *size), kernel_shape=[2, 2], strides=[2, 2], ceil_mode=up)

    def norm(self, name: str, shape: Shape) -> None:
        """Batch normalisation."""
        if len(shape) == 4:
            self._add("BatchNormalization", [name, *(self._weight(shape[1]) for _ in range(4))], shape)

    def layer_norm(self, name: str, shape: Shape) -> None:
        """Layer normalisation over the last axis."""
        if shape:
            self._add("LayerNormalization", [name, self._weight(shape[-1]), self._weight(shape[-1])], shape)

    def unary(self, name: str, shape: Shape) -> None:
        """An elementwise operator."""
        self._add(self.random.choice(_UNARY), [name], shape)

    def binary(self, name: str, shape: Shape) -> None:
        """Two tensors, broadcast."""
        others = [n for n in self._floats() if self._broadcasts(self.shapes[n], shape)]
        other = self.random.choice(others)
        self._add(self.random.choice(_BINARY), [name, other], np.broadcast_shapes(shape, self.shapes[other]))

    @staticmethod
    def _broadcasts(one: Shape, other: Shape) -> bool:
        return all(a == b or 1 in (a, b) for a, b in zip(one[::-1], other[::-1], strict=False))

    def product(self, name: str, shape: Shape) -> None:
        """A matrix product with a weight, or Gemm."""
        if len(shape) < 2 or shape[-1] > 4096:
            return
        out = self._of(4, 10, 16)
        if len(shape) == 2 and self._of(0, 1):
            self._add("Gemm", [name, self._weight(out, shape[1]), self._weight(out)], (shape[0], out), transB=1)
        else:
            self._add("MatMul", [name, self._weight(shape[-1], out)], (*shape[:-1], out))
        self.macs += math.prod(shape) * out

    def attention(self, name: str, shape: Shape) -> None:
        """Two products of activations with a softmax between."""
        if len(shape) < 2 or math.prod(shape) * shape[-2] > 1 << 22:
            return
        order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
        keys = self._add("Transpose", [name], (*shape[:-2], shape[-1], shape[-2]), perm=order)
        scores = (*shape[:-2], shape[-2], shape[-2])
        made = self._add("Softmax", [self._add("MatMul", [name, keys], scores)], scores, axis=-1)
        self._add("MatMul", [made, name], shape)
        self.macs += 2 * math.prod(shape) * shape[-2]

    def concat(self, name: str, shape: Shape) -> None:
        """A tensor beside itself."""
        if shape:
            axis = self.random.randrange(len(shape))
            size = (*shape[:axis], 2 * shape[axis], *shape[axis + 1 :])
            if math.prod(size) < 1 << 20:
                self._add("Concat", [name, name], size, axis=axis)

    def reshape(self, name: str, shape: Shape) -> None:
        """Flattened from some axis on, by an inferred size."""
        if len(shape) > 1:
            self._add("Reshape", [name, self._whole(0, -1)], (shape[0], math.prod(shape[1:])))

    def transpose(self, name: str, shape: Shape) -> None:
        """Axes in another order."""
        order = self.random.sample(range(len(shape)), len(shape))
        if order:
            self._add("Transpose", [name], tuple(shape[i] for i in order), perm=order)

    def reduce(self, name: str, shape: Shape) -> None:
        """Over one axis, kept or not."""
        if len(shape) > 1:
            axis, keep = self.random.randrange(len(shape)), self._of(0, 1)
            size = (*shape[:axis], *([1] if keep else []), *shape[axis + 1 :])
            kind = self.random.choice(("ReduceMean", "ReduceSum", "ReduceMax"))
            self._add(kind, [name, self._whole(axis - self._of(0, len(shape)))], size, keepdims=keep)

    def softmax(self, name: str, shape: Shape) -> None:
        """Along one axis."""
        if shape:
            self._add("Softmax", [name], shape, axis=self.random.randrange(len(shape)))

    def slice(self, name: str, shape: Shape) -> None:
        """Every so many of an axis."""
        if shape:
            axis, step = self.random.randrange(len(shape)), self._of(1, 2)
            start = self.random.randrange(shape[axis])
            ends = [self._whole(value) for value in (start, 1 << 31, axis, step)]
            size = -(-(shape[axis] - start) // step)
            self._add("Slice", [name, *ends], (*shape[:axis], size, *shape[axis + 1 :]))

    def pad(self, name: str, shape: Shape) -> None:
        """Zeros on both sides of the last axis."""
        if shape:
            none = [0] * (len(shape) - 1)
            self._add("Pad", [name, self._whole(*none, 1, *none, 2)], (*shape[:-1], shape[-1] + 3))

    def split(self, name: str, shape: Shape) -> None:
        """Two unequal parts."""
        if shape and shape[0] > 1:
            parts = self._whole(1, shape[0] - 1)
            self._add("Split", [name, parts], (1, *shape[1:]), (shape[0] - 1, *shape[1:]), axis=0)

    def gather(self, name: str, shape: Shape) -> None:
        """Chosen places of an axis."""
        if shape:
            axis = self.random.randrange(len(shape))
            self._add("Gather", [name, self._whole(0, -1, 0)], (*shape[:axis], 3, *shape[axis + 1 :]), axis=axis)

    def expand(self, name: str, shape: Shape) -> None:
        """Repeated along a new axis, by the sizes that Shape gives."""
        if math.prod(shape) < 1 << 16:
            sizes = self._add("Shape", [name], (len(shape),))
            longer = self._add("Concat", [self._whole(2), sizes], (len(shape) + 1,), axis=0)
            self._add("Expand", [name, longer], (2, *shape))
            self.whole |= {sizes, longer}

    def where(self, name: str, shape: Shape) -> None:
        """One of two by a comparison."""
        made = self._add("Greater", [name, name], shape)
        self._add("Where", [made, name, name], shape)
        self.whole.add(made)

    def cast(self, name: str, shape: Shape) -> None:
        """To half precision and back."""
        made = self._add("Cast", [name], shape, to=TensorProto.FLOAT16)
        self._add("Cast", [made], shape, to=TensorProto.FLOAT)
        self.whole.add(made)

    def resize(self, name: str, shape: Shape) -> None:
        """Twice as large."""
        if len(shape) == 4 and math.prod(shape) < 1 << 18:
            scales = f"w{len(self.constants)}"
            self.constants.append(numpy_helper.from_array(np.array([1, 1, 2, 2], "float32"), scales))
            self._add("Resize", [name, "", scales], (*shape[:2], 2 * shape[2], 2 * shape[3]), mode="nearest")
