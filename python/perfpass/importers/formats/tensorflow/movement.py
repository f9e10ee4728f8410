"""TensorFlow's operators that move, choose or make elements: shapes, slices, gathers, resizes, fills."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from perfpass.errors import FormatError, ShapeError
from perfpass.importers.formats.channels_last import AXIS, FOLDED, FREE, IMAGE, ROWS, Tensor
from perfpass.importers.formats.tensorflow import folding
from perfpass.importers.formats.tensorflow.compute import tensors
from perfpass.importers.formats.tensorflow.graph_def import NodeDef
from perfpass.importers.formats.tensorflow.run import Operator, Resource, Run, Value
from perfpass.text import shown_value


def same(run: Run, node: NodeDef, inputs: list[Value]) -> list[Value]:
    """Nothing is computed."""
    return list(inputs) if node.op == "IdentityN" else inputs[:1]


def constant(run: Run, node: NodeDef, inputs: list[Value]) -> list[Value]:
    """Const: a weight, or a literal."""
    found = node.attributes.constant("value")
    if found.dtype in ("resource", "variant"):
        return [None]
    made = run.program.weight(node.name, found.shape, found.dtype)
    if found.known is not None:
        run.follow(made, found.known)
    return [made]


def variable(run: Run, node: NodeDef, inputs: list[Value]) -> list[Value]:
    """VarHandleOp: the variable itself."""
    if node.name not in run.resources:
        a = node.attributes
        run.resources[node.name] = Resource(a.text("shared_name") or node.name, a.shape("shape"), a.dtype("dtype"))
    return [run.resources[node.name]]


def reference_variable(run: Run, node: NodeDef, inputs: list[Value]) -> list[Value]:
    """VariableV2 of TensorFlow 1."""
    found = variable(run, node, inputs)[0]
    assert isinstance(found, Resource)
    return [held(run, found)]


def held(run: Run, resource: Resource) -> Tensor:
    """The weight that a variable holds. Raises ShapeError where its shape is open."""
    if resource.tensor is None:
        if resource.shape is None or any(s < 0 for s in resource.shape):
            raise ShapeError(
                f"the variable {shown_value(resource.name)} has no fixed shape in the file; save the model after it "
                "was built"
            )
        resource.tensor = run.program.weight(resource.name, resource.shape, resource.dtype)
    return resource.tensor


def read_variable(run: Run, node: NodeDef, inputs: list[Value]) -> list[Value]:
    """ReadVariableOp."""
    source = inputs[0]
    if not isinstance(source, Resource):
        raise FormatError(f"node {shown_value(node.name)} reads a variable that is none; the file is damaged")
    return [held(run, source)]


def shape_of(run: Run, node: NodeDef, inputs: list[Value]) -> list[Value]:
    """Shape, ShapeN, Rank and Size: known, since every size is."""
    form = np.int64 if node.attributes.dtype("out_type", "int32") == "int64" else np.int32
    found = []
    for x in tensors(node, inputs):
        value = {"Rank": len(x.shape), "Size": math.prod(x.shape)}.get(node.op, list(x.shape))
        found.append(run.literal(np.array(value, form)))
    return list(found)


def _shaped(run: Run, node: NodeDef, x: Tensor, shape: Sequence[int]) -> Tensor:
    if math.prod(shape) != math.prod(x.shape):
        raise ShapeError(f"node {shown_value(node.name)} makes {tuple(shape)} of {x.shape}, which holds other elements")
    if x.constant or x.role == FOLDED:
        found = run.constant_expression("reshape", node.op, [x], shape)
        if found is not None:
            return found
    return run.program.reshape(x, shape, node.op)


def reshape(run: Run, node: NodeDef, inputs: list[Value]) -> list[Value]:
    """Reshape; -1 is worked out."""
    x = tensors(node, inputs[:1])[0]
    shape = run.integers(inputs[1], f"the shape that node {shown_value(node.name)} gives")
    rest = math.prod(s for s in shape if s != -1)
    if -1 in shape and rest:
        shape = [math.prod(x.shape) // rest if s == -1 else s for s in shape]
    return [_shaped(run, node, x, shape)]


def expand_dims(run: Run, node: NodeDef, inputs: list[Value]) -> list[Value]:
    """ExpandDims."""
    x = tensors(node, inputs[:1])[0]
    axis = run.integer(inputs[1], f"the axis of node {shown_value(node.name)}")
    at = axis % (len(x.shape) + 1)
    return [_shaped(run, node, x, [*x.shape[:at], 1, *x.shape[at:]])]


def squeeze(run: Run, node: NodeDef, inputs: list[Value]) -> list[Value]:
    """Squeeze."""
    x = tensors(node, inputs)[0]
    axes = [a % len(x.shape) for a in node.attributes.integers("squeeze_dims") or node.attributes.integers("axis")]
    shape = [s for a, s in enumerate(x.shape) if not (a in axes if axes else s == 1)]
    return [_shaped(run, node, x, shape)]


def transpose(run: Run, node: NodeDef, inputs: list[Value]) -> list[Value]:
    """Transpose."""
    x = tensors(node, inputs[:1])[0]
    order = run.integers(inputs[1], f"the axes of node {shown_value(node.name)}")
    if order == list(range(len(x.shape))):
        return [x]
    if x.role == FOLDED or x.constant:
        found = run.constant_expression("transpose", node.op, [x], [x.shape[a] for a in order])
        if found is not None:
            return [found]
    return [run.program.transpose(x, order, node.op)]


def concat(run: Run, node: NodeDef, inputs: list[Value]) -> list[Value]:
    """ConcatV2 and Concat."""
    at = inputs[0] if node.op == "Concat" else inputs[-1]
    x = tensors(node, inputs[1:] if node.op == "Concat" else inputs[:-1])
    axis = run.integer(at, f"the axis of node {shown_value(node.name)}") % len(x[0].shape)
    if len({tuple(s for a, s in enumerate(t.shape) if a != axis) for t in x}) != 1:
        raise ShapeError(f"node {shown_value(node.name)} joins {', '.join(str(t.shape) for t in x[:4])}")
    shape = list(x[0].shape)
    shape[axis] = sum(t.shape[axis] for t in x)
    return [run.program.one("concat", node.op, x, shape, layout=AXIS, axis=axis)]


def pack(run: Run, node: NodeDef, inputs: list[Value]) -> list[Value]:
    """Pack."""
    x = tensors(node, inputs)
    axis = node.attributes.integer("axis") % (len(x[0].shape) + 1)
    shape = (*x[0].shape[:axis], len(x), *x[0].shape[axis:])
    return [run.program.one("concat", node.op, x, shape, axis=axis)]


def split(run: Run, node: NodeDef, inputs: list[Value]) -> list[Value]:
    """Split, SplitV and Unpack."""
    what = f"the parts of node {shown_value(node.name)}"
    if node.op == "Unpack":
        x, axis = tensors(node, inputs[:1])[0], node.attributes.integer("axis")
        axis %= len(x.shape)
        shape = (*x.shape[:axis], *x.shape[axis + 1 :])
        return list(run.program.add("split", node.op, [x], [shape] * _parts(x.shape[axis]), x.dtype, AXIS, axis=axis))
    if node.op == "Split":
        x, axis = tensors(node, inputs[1:2])[0], run.integer(inputs[0], what)
        axis %= len(x.shape)
        count = _parts(node.attributes.integer("num_split", 1))
        sizes = [x.shape[axis] // count] * count
    else:
        x, axis = tensors(node, inputs[:1])[0], run.integer(inputs[2], what)
        axis %= len(x.shape)
        sizes = run.integers(inputs[1], what)
        rest = x.shape[axis] - sum(s for s in sizes if s >= 0)
        sizes = [rest if s < 0 else s for s in sizes]
    if sum(sizes) != x.shape[axis]:
        raise ShapeError(f"{what} of {x.shape} have the sizes {sizes[:8]}")
    if x.role == FOLDED:
        x = run.weight(x)
    shapes = [(*x.shape[:axis], size, *x.shape[axis + 1 :]) for size in sizes]
    return list(run.program.add("split", node.op, [x], shapes, x.dtype, AXIS, axis=axis))


def _parts(count: int) -> int:
    if not 1 <= count <= 65_536:
        raise ShapeError(f"a split in {count} parts; 1 to 65,536 are read")
    return count


def strided_slice(run: Run, node: NodeDef, inputs: list[Value]) -> list[Value]:
    """StridedSlice: x[...] by numbers and slices."""
    x = tensors(node, inputs[:1])[0]
    begin, end, steps = (run.integers(v, f"the part that node {shown_value(node.name)} takes") for v in inputs[1:4])
    shape: list[int] = []
    axis = 0
    for key in folding.indices(node, begin, end, steps, len(x.shape)):
        if key is None:
            shape.append(1)
            continue
        if isinstance(key, slice):
            shape.append(len(range(*key.indices(x.shape[axis]))))
        axis += 1
    return [_taken(run, node, x, [*shape, *x.shape[axis:]])]


def _taken(run: Run, node: NodeDef, x: Tensor, shape: Sequence[int]) -> Tensor:
    if tuple(shape) == x.shape:
        return x
    if math.prod(shape) == math.prod(x.shape):
        return _shaped(run, node, x, shape)
    layout = AXIS if len(shape) == len(x.shape) else ROWS
    return run.program.one("slice", node.op, [run.weight(x)], shape, layout=layout)


def slice_(run: Run, node: NodeDef, inputs: list[Value]) -> list[Value]:
    """Slice; a size of -1 is the rest."""
    x = tensors(node, inputs[:1])[0]
    what = f"the size that node {shown_value(node.name)} takes"
    sizes = run.integers(inputs[2], what)
    if -1 in sizes:
        begins = run.integers(inputs[1], what)
        sizes = [
            s if n == -1 else n
            for n, s in zip(sizes, (d - b for d, b in zip(x.shape, begins, strict=True)), strict=True)
        ]
    return [_taken(run, node, x, sizes)]


def gather(run: Run, node: NodeDef, inputs: list[Value]) -> list[Value]:
    """Gather, GatherV2 and ResourceGather: an embedding where the rows are a weight's."""
    source = inputs[0]
    table = held(run, source) if isinstance(source, Resource) else run.weight(tensors(node, inputs[:1])[0])
    ids = tensors(node, inputs[1:2])[0]
    axis = run.integer(inputs[2], f"the axis of node {shown_value(node.name)}") if len(inputs) > 2 else 0
    axis %= len(table.shape)
    shared = node.attributes.integer("batch_dims") % (len(ids.shape) + 1)
    shape = (*table.shape[:axis], *ids.shape[shared:], *table.shape[axis + 1 :])
    embedding = table.role == "weight" and axis == 0 and len(table.shape) == 2
    return [run.program.one("embedding" if embedding else "gather", node.op, [table, ids], shape, axis=axis)]


def gather_nd(run: Run, node: NodeDef, inputs: list[Value]) -> list[Value]:
    """GatherNd."""
    source = inputs[0]
    data = held(run, source) if isinstance(source, Resource) else tensors(node, inputs[:1])[0]
    ids = tensors(node, inputs[1:2])[0]
    depth, shared = ids.shape[-1], node.attributes.integer("batch_dims")
    return [run.program.one("gather", node.op, [data, ids], (*ids.shape[:-1], *data.shape[shared + depth :]))]


def scatter(run: Run, node: NodeDef, inputs: list[Value]) -> list[Value]:
    """ScatterNd and TensorScatterUpdate."""
    if node.op == "ScatterNd":
        shape = run.integers(inputs[2], f"the shape that node {shown_value(node.name)} gives")
        given = tensors(node, inputs[:2])
        return [run.program.one("scatter", node.op, given, shape, given[1].dtype)]
    given = tensors(node, inputs)
    return [run.program.one("scatter", node.op, given, given[0].shape)]


def tile(run: Run, node: NodeDef, inputs: list[Value]) -> list[Value]:
    """Tile."""
    x = tensors(node, inputs[:1])[0]
    times = run.integers(inputs[1], f"the repetitions of node {shown_value(node.name)}")
    if all(t == 1 for t in times):
        return [x]
    return [run.program.one("tile", node.op, [run.weight(x)], [s * t for s, t in zip(x.shape, times, strict=True)])]


def broadcast_to(run: Run, node: NodeDef, inputs: list[Value]) -> list[Value]:
    """BroadcastTo."""
    x = tensors(node, inputs[:1])[0]
    shape = run.integers(inputs[1], f"the shape that node {shown_value(node.name)} gives")
    return [x if tuple(shape) == x.shape else run.program.one("expand", node.op, [run.weight(x)], shape)]


def pad(run: Run, node: NodeDef, inputs: list[Value]) -> list[Value]:
    """Pad, PadV2 and MirrorPad."""
    x = tensors(node, inputs[:1])[0]
    cells = run.integers(inputs[1], f"the cells that node {shown_value(node.name)} adds")
    if len(cells) != 2 * len(x.shape):
        raise ShapeError(f"node {shown_value(node.name)} adds {cells[:8]} to {x.shape}")
    shape = [s + b + e for s, b, e in zip(x.shape, cells[::2], cells[1::2], strict=True)]
    return [run.program.one("pad", node.op, [run.weight(x)], shape, layout=AXIS)]


def resize(run: Run, node: NodeDef, inputs: list[Value]) -> list[Value]:
    """ResizeBilinear, ResizeNearestNeighbor and others of [N, H, W, C]."""
    x = tensors(node, inputs[:1])[0]
    height, width = run.integers(inputs[1], f"the size that node {shown_value(node.name)} gives")
    source = "ResizeNearestNeighbor.nearest" if node.op == "ResizeNearestNeighbor" else node.op
    shape = (x.shape[0], height, width, x.shape[3])
    return [run.program.one("resize", source, [x], shape, x.dtype, IMAGE, spatial_rank=2)]


def crop_and_resize(run: Run, node: NodeDef, inputs: list[Value]) -> list[Value]:
    """CropAndResize of boxes."""
    x, boxes = tensors(node, inputs[:2])
    height, width = run.integers(inputs[3], f"the size that node {shown_value(node.name)} gives")
    shape = (boxes.shape[0], height, width, x.shape[3])
    return [run.program.one("roi_pool", node.op, [x, boxes], shape, "float32", IMAGE, spatial_rank=2)]


def blocks(run: Run, node: NodeDef, inputs: list[Value]) -> list[Value]:
    """SpaceToDepth and DepthToSpace of [N, H, W, C]."""
    x, size = tensors(node, inputs)[0], node.attributes.integer("block_size", 1)
    n, h, w, c = x.shape
    if node.op == "SpaceToDepth":
        shape, kind = (n, h // size, w // size, c * size * size), "space_to_depth"
    else:
        shape, kind = (n, h * size, w * size, c // (size * size)), "depth_to_space"
    return [run.program.one(kind, node.op, [x], shape, layout=IMAGE)]


def space_batch(run: Run, node: NodeDef, inputs: list[Value]) -> list[Value]:
    """SpaceToBatchND and BatchToSpaceND, by which older graphs write dilation."""
    x = tensors(node, inputs[:1])[0]
    what = f"the blocks of node {shown_value(node.name)}"
    sizes, cells = run.integers(inputs[1], what), run.integers(inputs[2], what)
    pairs = list(zip(cells[::2], cells[1::2], strict=True))
    total = math.prod(sizes)
    shape = list(x.shape)
    forward = node.op == "SpaceToBatchND"
    for axis, (size, (before, after)) in enumerate(zip(sizes, pairs, strict=True), 1):
        shape[axis] = (shape[axis] + before + after) // size if forward else shape[axis] * size - before - after
    shape[0] = shape[0] * total if forward else shape[0] // total
    return [run.program.one("space_to_depth" if forward else "depth_to_space", node.op, [x], shape, layout=AXIS)]


def one_hot(run: Run, node: NodeDef, inputs: list[Value]) -> list[Value]:
    """OneHot."""
    x = tensors(node, inputs[:1])[0]
    depth = run.integer(inputs[1], f"the depth of node {shown_value(node.name)}")
    axis = node.attributes.integer("axis", -1) % (len(x.shape) + 1)
    shape = (*x.shape[:axis], depth, *x.shape[axis:])
    return [run.program.one("one_hot", node.op, [x], shape, node.attributes.dtype("T"))]


def top_k(run: Run, node: NodeDef, inputs: list[Value]) -> list[Value]:
    """TopKV2."""
    x = tensors(node, inputs[:1])[0]
    count = (
        run.integer(inputs[1], f"the number of node {shown_value(node.name)}")
        if len(inputs) > 1
        else node.attributes.integer("k")
    )
    shape = (*x.shape[:-1], count)
    made = run.program.add("top_k", node.op, [x], [shape, shape], x.dtype, axis=len(shape) - 1)
    made[1].dtype = "int32"
    return list(made)


def generated(kind: str) -> Operator:
    """Fill, RandomUniform and others whose shape is the first operand."""

    def compute(run: Run, node: NodeDef, inputs: list[Value]) -> list[Value]:
        shape = run.integers(inputs[0], f"the shape that node {shown_value(node.name)} gives")
        given = next((t.dtype for t in inputs[1:2] if isinstance(t, Tensor)), "float32")
        dtype = node.attributes.dtype("dtype", given if kind == "fill" else "float32")
        return [run.program.one(kind, node.op, [], shape, dtype, FREE)]

    return compute


def filled_like(run: Run, node: NodeDef, inputs: list[Value]) -> list[Value]:
    """ZerosLike and OnesLike."""
    x = tensors(node, inputs)[0]
    return [run.program.one("fill", node.op, [], x.shape, x.dtype, FREE)]


def boxes_kept(run: Run, node: NodeDef, inputs: list[Value]) -> list[Value]:
    """NonMaxSuppression: as many boxes as it may keep."""
    given = tensors(node, inputs[:2])
    count = min(run.integer(inputs[2], f"the boxes that node {shown_value(node.name)} keeps"), given[0].shape[0])
    made = run.program.one("non_max_suppression", node.op, given, (count,), "int32")
    scores = run.program.tensor((count,), given[1].dtype)
    number = run.program.tensor((), "int32")
    more = [scores, number] if node.op.endswith("V5") else [number]
    run.program.nodes[-1].outputs += more
    return [made, *more]


def patches(run: Run, node: NodeDef, inputs: list[Value]) -> list[Value]:
    """ExtractImagePatches, whose shape the file declares."""
    x = tensors(node, inputs[:1])[0]
    kernel, strides = node.attributes.integers("ksizes"), node.attributes.integers("strides")
    same_size = node.attributes.text("padding") == "SAME"
    shape = [x.shape[0]]
    for axis in (1, 2):
        size = x.shape[axis] if same_size else x.shape[axis] - kernel[axis] + 1
        shape.append(-(-size // strides[axis]))
    shape.append(x.shape[3] * kernel[1] * kernel[2])
    columns = {f"kernel_{i}": k for i, k in enumerate(kernel[1:3])} | {
        f"stride_{i}": s for i, s in enumerate(strides[1:3])
    }
    return [run.program.one("unfold", node.op, [x], shape, layout=IMAGE, spatial_rank=2, columns=columns)]


_SAME = """Identity IdentityN StopGradient PreventGradient Snapshot CheckNumerics Enter RefEnter Exit RefExit LoopCond
RefIdentity EnsureShape PlaceholderWithDefault DisableCopyOnRead NextIteration RefNextIteration OptimizationBarrier
XlaSharding Copy"""
_RANDOM = """RandomUniform RandomStandardNormal TruncatedNormal RandomUniformInt StatelessRandomUniform
StatelessRandomUniformV2 StatelessRandomNormal StatelessRandomNormalV2 StatelessTruncatedNormal"""
_RESIZES = "ResizeBilinear ResizeNearestNeighbor ResizeBicubic ResizeArea"

MOVEMENT: dict[str, Operator] = {
    **dict.fromkeys(_SAME.split(), same),
    **dict.fromkeys(_RANDOM.split(), generated("random")),
    **dict.fromkeys(_RESIZES.split(), resize),
    **dict.fromkeys(["Shape", "ShapeN", "Rank", "Size"], shape_of),
    **dict.fromkeys(["VarHandleOp", "VarHandle"], variable),
    **dict.fromkeys(["Variable", "VariableV2"], reference_variable),
    **dict.fromkeys(["Concat", "ConcatV2"], concat),
    **dict.fromkeys(["Split", "SplitV", "Unpack"], split),
    **dict.fromkeys(["Gather", "GatherV2", "ResourceGather"], gather),
    **dict.fromkeys(["GatherNd", "ResourceGatherNd"], gather_nd),
    **dict.fromkeys(["ScatterNd", "TensorScatterUpdate", "TensorScatterAdd"], scatter),
    **dict.fromkeys(["Pad", "PadV2", "MirrorPad"], pad),
    **dict.fromkeys(["SpaceToDepth", "DepthToSpace"], blocks),
    **dict.fromkeys(["SpaceToBatchND", "BatchToSpaceND"], space_batch),
    **dict.fromkeys(["TopK", "TopKV2"], top_k),
    **dict.fromkeys(["ZerosLike", "OnesLike"], filled_like),
    **dict.fromkeys(
        ["NonMaxSuppressionV2", "NonMaxSuppressionV3", "NonMaxSuppressionV4", "NonMaxSuppressionV5"], boxes_kept
    ),
    "Const": constant,
    "ReadVariableOp": read_variable,
    "Reshape": reshape,
    "ExpandDims": expand_dims,
    "Squeeze": squeeze,
    "Transpose": transpose,
    "Pack": pack,
    "StridedSlice": strided_slice,
    "Slice": slice_,
    "Tile": tile,
    "BroadcastTo": broadcast_to,
    "CropAndResize": crop_and_resize,
    "OneHot": one_hot,
    "Fill": generated("fill"),
    "ExtractImagePatches": patches,
}
