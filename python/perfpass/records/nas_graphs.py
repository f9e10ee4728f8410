"""Operator graphs of two public search spaces, built without weights: NAS-Bench-201 and FBNet on CIFAR.

NAS-Bench-201 (Dong, Yang, ICLR 2020): a stem, three stages of five equal cells at 16, 32 and 64 channels and 32, 16 and
8 pixels, residual blocks between them, a classifier. A cell has four nodes, each the sum of its incoming edges. FBNet
(Wu et al., CVPR 2019) in the CIFAR-100 form of HW-NAS-Bench (Li et al., ICLR 2021): 22 layers, each one of
eight inverted-residual blocks or a skip, in stages of 1, 4, 4, 4, 4, 4 and 1.
"""

from __future__ import annotations

from perfpass import _core
from perfpass.errors import ArgumentError
from perfpass.graph import OpGraph

SPACES = ("nasbench201", "fbnet")
_CELL_OPS = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
# Edges of a cell in the order of its string: (from node, to node).
_EDGES = ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3))
_CELLS = 5
_STAGES = ((16, 32), (32, 16), (64, 8))
_FBNET_STAGES = ((16, 1, 1), (24, 4, 1), (32, 4, 2), (64, 4, 2), (112, 4, 1), (184, 4, 2), (352, 1, 1))
_FBNET_STEM, _FBNET_HEAD, _FBNET_CLASSES = 16, 1504, 100
FBNET_BLOCKS = ("k3_e1", "k3_e1_g2", "k3_e3", "k3_e6", "k5_e1", "k5_e1_g2", "k5_e3", "k5_e6", "skip")


def connected(ops: tuple[str, ...]) -> bool:
    """Whether a NAS-Bench-201 cell has a path of operators other than ``none`` from its input to its output."""
    return bool(_used(ops))


def _used(ops: tuple[str, ...]) -> tuple[int, ...]:
    """Edges that lie on a path of operators other than ``none`` from input to output."""
    alive = [i for i, op in enumerate(ops) if op != "none"]
    ahead, behind = {0}, {3}
    for _ in range(3):
        ahead |= {_EDGES[i][1] for i in alive if _EDGES[i][0] in ahead}
        behind |= {_EDGES[i][0] for i in alive if _EDGES[i][1] in behind}
    return tuple(i for i in alive if _EDGES[i][0] in ahead and _EDGES[i][1] in behind)


def graph(space: str, ops: tuple[str, ...], batch: int = 1, *, optimised: bool = False) -> OpGraph:
    """The graph of a network: ``ops`` are the six operators of a cell, or the 22 blocks of an FBNet.

    ``optimised``: without the work that a runtime leaves out when it sees the graph as a whole: edges off every path,
    the multiplication by zero that ``none`` is in PyTorch, and the sums' additions to a first zero. Raises
    ArgumentError for an unknown space, operator or number of operators.
    """
    allowed, count = {"nasbench201": (_CELL_OPS, 6), "fbnet": (FBNET_BLOCKS, 22)}.get(space, ((), 0))
    if not count:
        raise ArgumentError(f"unknown search space {space!r}; allowed are {', '.join(SPACES)}")
    strange = sorted(set(ops) - set(allowed))
    if len(ops) != count or strange:
        raise ArgumentError(f"{space} has {count} operators of {', '.join(allowed)}; got {len(ops)}, {strange}")
    builder = _Builder(batch)
    last = _nasbench(builder, ops, optimised) if space == "nasbench201" else _fbnet(builder, ops)
    return OpGraph(builder.core.finish([builder.input], [last]))


class _Builder:
    """Layers of a network, one after the other; a tensor is (id, channels, side)."""

    def __init__(self, batch: int) -> None:
        self.core = _core.GraphBuilder()
        self.batch = batch
        self.input = self.core.add_tensor("image", "float32", [batch, 3, 32, 32], "input")
        self._names = 0

    def tensor(self, shape: list[int], role: str = "activation") -> int:
        self._names += 1
        return int(self.core.add_tensor(f"t{self._names}", "float32", shape, role))

    def node(self, op: str, inputs: list[int], shape: list[int], attributes: dict[str, int] | None = None) -> int:
        out = self.tensor(shape)
        self.core.add_node(op, op, f"{op}_{out}", attributes or {}, inputs, [out])
        return out

    def conv(self, x: int, channels: int, out: int, side: int, kernel: int, stride: int = 1, groups: int = 1) -> int:
        weight = self.tensor([out, channels // groups, kernel, kernel], "weight")
        attributes = {"spatial_rank": 2, "groups": groups}
        for axis in (0, 1):
            attributes |= {f"kernel_{axis}": kernel, f"stride_{axis}": stride, f"dilation_{axis}": 1}
            attributes |= {f"pad_begin_{axis}": kernel // 2, f"pad_end_{axis}": kernel // 2}
        return self.node("conv", [x, weight], [self.batch, out, side // stride, side // stride], attributes)

    def pool(self, x: int, channels: int, side: int, kernel: int, stride: int) -> int:
        attributes = {"spatial_rank": 2}
        for axis in (0, 1):
            attributes |= {f"kernel_{axis}": kernel, f"stride_{axis}": stride}
            attributes |= {f"pad_begin_{axis}": (kernel - 1) // 2, f"pad_end_{axis}": (kernel - 1) // 2}
        return self.node("avg_pool", [x], [self.batch, channels, side // stride, side // stride], attributes)

    def norm(self, x: int, channels: int, side: int) -> int:
        parameters = [self.tensor([channels], "weight") for _ in range(4)]
        return self.node("batch_norm", [x, *parameters], [self.batch, channels, side, side])

    def same(self, op: str, inputs: list[int], channels: int, side: int) -> int:
        return self.node(op, inputs, [self.batch, channels, side, side])

    def relu_conv_norm(self, x: int, channels: int, out: int, side: int, kernel: int, stride: int = 1) -> int:
        x = self.conv(self.same("relu", [x], channels, side), channels, out, side, kernel, stride)
        return self.norm(x, out, side // stride)

    def classifier(self, x: int, channels: int, side: int, classes: int) -> int:
        pooled = self.node("global_avg_pool", [x], [self.batch, channels, 1, 1])
        flat = self.node("reshape", [pooled], [self.batch, channels])
        weight = self.tensor([classes, channels], "weight")
        return self.node("dense", [flat, weight], [self.batch, classes])


def _nasbench(b: _Builder, ops: tuple[str, ...], optimised: bool) -> int:
    channels, side = _STAGES[0]
    x = b.norm(b.conv(b.input, 3, channels, side, 3), channels, side)
    for stage, (out, smaller) in enumerate(_STAGES):
        if stage:
            left = b.relu_conv_norm(x, channels, out, side, 3, 2)
            left = b.relu_conv_norm(left, out, out, smaller, 3)
            right = b.conv(b.pool(x, channels, side, 2, 2), channels, out, smaller, 1)
            x, channels, side = b.same("add", [left, right], out, smaller), out, smaller
        for _ in range(_CELLS):
            x = _cell(b, x, ops, channels, side, optimised)
    x = b.same("relu", [b.norm(x, channels, side)], channels, side)
    return b.classifier(x, channels, side, 10)


def _cell(b: _Builder, x: int, ops: tuple[str, ...], channels: int, side: int, optimised: bool) -> int:
    edges = _used(ops) if optimised else range(len(ops))
    nodes: dict[int, int] = {0: x}
    for target in (1, 2, 3):
        sums: int | None = None
        for i in edges:
            source, end = _EDGES[i]
            if end != target or source not in nodes:
                continue
            made = _edge(b, nodes[source], ops[i], channels, side)
            if sums is None:
                # Python's sum starts from 0, and adding a tensor to it is a kernel.
                sums = made if optimised else b.same("add", [made], channels, side)
            else:
                sums = b.same("add", [sums, made], channels, side)
        if sums is not None:
            nodes[target] = sums
    return nodes.get(3, x)


def _edge(b: _Builder, x: int, op: str, channels: int, side: int) -> int:
    if op == "skip_connect":
        return x
    if op == "none":
        return b.same("mul", [x], channels, side)
    if op == "avg_pool_3x3":
        return b.pool(x, channels, side, 3, 1)
    return b.relu_conv_norm(x, channels, channels, side, 3 if op == "nor_conv_3x3" else 1)


def _fbnet(b: _Builder, blocks: tuple[str, ...]) -> int:
    side, channels = 32, _FBNET_STEM
    x = b.same("relu", [b.norm(b.conv(b.input, 3, channels, side, 3), channels, side)], channels, side)
    layer = 0
    for out, repeats, first in _FBNET_STAGES:
        for i in range(repeats):
            stride = first if i == 0 else 1
            x = _block(b, x, blocks[layer], channels, out, side, stride)
            channels, side, layer = out, side // stride, layer + 1
    head = b.norm(b.conv(x, channels, _FBNET_HEAD, side, 1), _FBNET_HEAD, side)
    return b.classifier(b.same("relu", [head], _FBNET_HEAD, side), _FBNET_HEAD, side, _FBNET_CLASSES)


def _block(b: _Builder, x: int, block: str, channels: int, out: int, side: int, stride: int) -> int:
    if block == "skip":
        if stride == 1 and channels == out:
            return x
        x = b.norm(b.conv(x, channels, out, side, 1, stride), out, side // stride)
        return b.same("relu", [x], out, side // stride)
    parts = block.split("_")
    kernel, wide = int(parts[0][1:]), channels * int(parts[1][1:])
    groups = int(parts[2][1:]) if len(parts) == 3 else 1
    y = b.same("relu", [b.norm(b.conv(x, channels, wide, side, 1, 1, groups), wide, side)], wide, side)
    if groups > 1:
        y = b.same("transpose", [y], wide, side)  # the shuffle of channels between groups
    smaller = side // stride
    y = b.same("relu", [b.norm(b.conv(y, wide, wide, side, kernel, stride, wide), wide, smaller)], wide, smaller)
    y = b.norm(b.conv(y, wide, out, smaller, 1, 1, groups), out, smaller)
    return b.same("add", [y, x], out, smaller) if stride == 1 and channels == out else y
