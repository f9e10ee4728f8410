"""A small convolutional network, as a graph made by hand: for tests that ask what any graph costs."""

from __future__ import annotations

from perfpass import _core
from perfpass.graph import OpGraph


def network(batch: int = 4, width: int = 64, blocks: int = 3, op: str = "relu", dtype: str = "float32") -> OpGraph:
    """Convolutions of 3 x 3 on a 32 x 32 image, each with an activation, and a classifier."""
    b = _core.GraphBuilder()
    x = b.add_tensor("image", dtype, [batch, width, 32, 32], "input")
    inputs = [x]
    for i in range(blocks):
        w = b.add_tensor(f"w{i}", dtype, [width, width, 3, 3], "weight")
        y = b.add_tensor(f"c{i}", dtype, [batch, width, 32, 32], "activation")
        z = b.add_tensor(f"a{i}", dtype, [batch, width, 32, 32], "activation")
        attributes = {
            **{f"{name}_{axis}": 1 for name in ("stride", "pad_begin", "pad_end", "dilation") for axis in (0, 1)},
            "kernel_0": 3,
            "kernel_1": 3,
            "spatial_rank": 2,
            "groups": 1,
        }
        b.add_node("conv", "Conv", f"conv{i}", attributes, [x, w], [y])
        b.add_node(op, op.title(), f"act{i}", {}, [y], [z])
        x = z
    return OpGraph(b.finish(inputs, [x]))
