"""ProgramDesc of Paddle 1 and 2 (``.pdmodel``, ``__model__``): protobuf, brought to the names of PIR.

Source of the form: paddle/fluid/framework/framework.proto; of the names: paddle/phi/ops/yaml/op_compat.yaml of
PaddlePaddle 3.x (Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from perfpass.bounded_file import read_file
from perfpass.errors import FormatError, LimitError
from perfpass.importers.formats.paddle.program import MOST_DEPTH, MOST_OPERATORS, Block, Op, Program, Slot, Value
from perfpass.importers.formats.protobuf import FieldBudget, Message, Span, listed, message_of

_MOST_BYTES = 1 << 28
_MOST_FIELDS = 1 << 25  # an operator has some 30
_MOST_BLOCKS = 1 << 16
_DTYPES = {
    0: "bool",
    1: "int16",
    2: "int32",
    3: "int64",
    4: "float16",
    5: "float32",
    6: "float64",
    19: "int64",
    20: "uint8",
    21: "int8",
    22: "bfloat16",
    23: "complex64",
    24: "complex128",
    32: "float8",
    33: "float8",
    36: "uint16",
    37: "uint32",
    38: "uint64",
}
# An older name -> PIR's.
_RENAMED = (
    "matmul_v2=matmul elementwise_add=add elementwise_sub=subtract elementwise_mul=multiply "
    "elementwise_div=divide elementwise_max=maximum elementwise_min=minimum elementwise_mod=remainder "
    "elementwise_floordiv=floor_divide elementwise_fmax=fmax elementwise_fmin=fmin grad_add=add reshape2=reshape "
    "transpose2=transpose squeeze2=squeeze unsqueeze2=unsqueeze flatten2=flatten_to_matrix "
    "flatten=flatten_to_matrix flatten_contiguous_range=flatten lookup_table_v2=embedding lookup_table=embedding "
    "fill_constant=full fill_any_like=full_like fill_zeros_like=full_like fill_any=full_like hard_swish=hardswish "
    "hard_sigmoid=hardsigmoid hard_shrink=hardshrink brelu=hardtanh arg_max=argmax arg_min=argmin reduce_sum=sum "
    "reduce_mean=mean reduce_max=max reduce_min=min reduce_prod=prod reduce_all=all reduce_any=any "
    "reduce_amax=amax reduce_amin=amin top_k_v2=topk top_k=topk expand_v2=expand expand_as_v2=expand_as "
    "expand=tile one_hot_v2=one_hot nearest_interp_v2=nearest_interp bilinear_interp_v2=bilinear_interp "
    "bicubic_interp_v2=bicubic_interp trilinear_interp_v2=trilinear_interp linear_interp_v2=linear_interp "
    "mul=matmul_with_flatten range=arange size=numel sum=add_n where_index=nonzero sync_batch_norm=batch_norm "
    "grid_sampler=grid_sample gaussian_random=gaussian uniform_random=uniform "
    "softmax_with_cross_entropy=cross_entropy_with_softmax tril_triu=tril lookup_table_dequant=embedding "
    "logsigmoid=logsigmoid conditional_block=if conditional_block_infer=if crop_tensor=crop pad2d=pad3d "
    "deformable_conv_v1=deformable_conv quantize=quantize_linear dequantize=dequantize_linear "
    "fill_constant_batch_size_like=full_batch_size_like bitwise_invert=bitwise_not assign_value=assign_value "
    "shuffle_channel=channel_shuffle unique_v2=unique linspace=linspace graph_send_recv=send_u_recv "
    "group_norm_silu=add_group_norm_silu conv2d_fusion=fused_conv2d_add_act "
    "conv2d_fusion_cutlass=fused_conv2d_add_act fused_conv2d=fused_conv2d_add_act skip_layernorm=skip_layernorm "
)
_NAMES = dict(pair.split("=") for pair in _RENAMED.split())
# Operands in PIR's order, of operators that do not begin with X and Y or Input; "A|B": whichever is there.
_SLOTS = {
    name: slots.split()
    for names, slots in (
        ("conv2d conv3d depthwise_conv2d", "Input Filter Bias"),
        ("conv2d_transpose conv3d_transpose depthwise_conv2d_transpose", "Input Filter output_size Bias"),
        ("fused_conv2d_add_act", "Input Filter Bias ResidualData"),
        ("deformable_conv", "Input Offset Filter Mask"),
        ("batch_norm", "X Mean Variance Scale Bias"),
        ("layer_norm group_norm instance_norm", "X Scale Bias"),
        ("embedding", "Ids W"),
        ("full", "ShapeTensor|ShapeTensorList ValueTensor"),
        ("reshape", "X ShapeTensor|Shape"),
        ("expand", "X expand_shapes_tensor|Shape"),
        ("expand_as", "X Y"),
        ("tile", "X repeat_times_tensor|RepeatTimes|expand_times_tensor|ExpandTimes"),
        ("slice", "Input StartsTensorList|StartsTensor EndsTensorList|EndsTensor"),
        (
            "strided_slice",
            "Input StartsTensorList|StartsTensor EndsTensorList|EndsTensor StridesTensorList|StridesTensor",
        ),
        ("unsqueeze", "X AxesTensorList|AxesTensor"),
        ("split", "X SectionsTensorList AxisTensor"),
        ("concat", "X AxisTensor"),
        ("gather", "X Index Axis"),
        ("where", "Condition X Y"),
        ("scatter", "X Ids Updates"),
        ("topk", "X K"),
        ("arange", "Start End Step"),
        ("linspace", "Start Stop Num"),
        ("one_hot", "X depth_tensor"),
        (
            "nearest_interp bilinear_interp bicubic_interp trilinear_interp linear_interp",
            "X OutSize SizeTensor Scale",
        ),
        ("multihead_matmul", "Input W Bias BiasQK"),
        ("fc", "Input W Bias"),
        ("prelu", "X Alpha"),
        ("rnn", "Input PreState WeightList SequenceLength"),
        ("quantize_linear dequantize_linear", "X|Input Scale ZeroPoint"),
        ("gaussian uniform randint", "ShapeTensor|ShapeTensorList"),
        ("pad3d pad", "X Paddings"),
        ("roi_align roi_pool", "X ROIs RoisNum"),
        ("grid_sample", "X Grid"),
        ("index_select index_sample take_along_axis", "X|Input Index"),
        ("assign", "X"),
        ("set_value", "Input StartsTensorList EndsTensorList StepsTensorList ValueTensor"),
        ("while", "Condition X"),
        ("if", "Cond Input"),
        ("select_input", "Mask X"),
        ("argmax argmin softmax cumsum", "X"),
        ("fused_embedding_eltwise_layernorm", "Ids Embs Bias Scale"),
        ("skip_layernorm", "X Y Scale Bias"),
        ("cross_entropy_with_softmax", "Logits Label"),
        ("addmm", "Input X Y"),
        ("affine_grid", "Theta OutputShape"),
    )
    for name in names.split()
}
_FIRST = ("X", "Input", "x", "Y", "y")
_RESULTS = ("Out", "Output", "Y", "Logits", "Boxes", "out")  # the slot that holds an operator's first result
_OTHERS = frozenset({"XShape", "MeanOut", "VarianceOut", "SavedMean", "SavedVariance", "ReserveSpace", "Mask"})
_ATTRIBUTE_FIELDS = {
    0: 3,
    1: 4,
    2: 5,
    3: 6,
    4: 7,
    5: 8,
    6: 10,
    7: 11,
    8: 12,
    9: 13,
    11: 15,
    12: 16,
    15: 19,
}  # type -> field


def read(path: Path) -> Program:
    """The program of a file. Raises FileError, FormatError, LimitError."""
    content = read_file(path, "a Paddle program", _MOST_BYTES)
    try:
        return _Reader(content).program()
    except (IndexError, ValueError) as error:
        if isinstance(error, FormatError | LimitError):
            raise
        raise FormatError(
            f"a Paddle program with a field that is not as ProgramDesc has it ({type(error).__name__}: {error}); "
            "export it again with paddle.jit.save"
        ) from error


def _name(message: Message, field: int) -> str:
    if not message.has(field):
        raise FormatError("a damaged Paddle program: an operator or an attribute without a name; export it again")
    return message.text(field)


class _Reader:
    def __init__(self, content: bytes) -> None:
        whole = message_of(Span(content, 0, len(content)), FieldBudget(_MOST_FIELDS, "Paddle program"))
        self.blocks = listed(whole.all(1), _MOST_BLOCKS, "blocks of a Paddle program")
        self.found = Program()
        self.count = 0
        self.next = 0
        self.declared: dict[str, Value] = {}
        self.parameters: set[str] = set()
        self.now: dict[str, int] = {}  # variable -> the value that it holds

    def program(self) -> Program:
        if not self.blocks:
            raise FormatError("a Paddle program without a block; export it again with paddle.jit.save")
        self.found.block = self.block(0, 0)
        return self.found

    def variables(self, messages: Iterable[Message]) -> None:
        for message in messages:
            name, (shape, dtype) = message.text(1), self.type_of(message.one(2))
            self.declared[name] = Value(dtype, shape, name)
            kept = message.integer(3) or message.integer(5)
            if kept and shape is not None and name not in ("feed", "fetch"):
                self.parameters.add(name)

    def type_of(self, kind: Message) -> tuple[tuple[int, ...] | None, str]:
        if not kind.has(3) or not (described := kind.one(3)).has(1):  # DenseTensorDesc -> TensorDesc
            return None, "undefined"
        tensor = described.one(1)
        dims = tuple(tensor.integers(2))
        if len(dims) > 64 or any(not -1 <= size < 1 << 48 for size in dims):
            raise FormatError(f"a Paddle program with a tensor of sizes {str(dims)[:80]}; sizes are -1 or more")
        return dims, _DTYPES.get(tensor.integer(1, 5), "undefined")

    def make(self, name: str) -> int:
        """A new value of a variable: programs write one several times."""
        self.next += 1
        declared = self.declared.get(name, Value("undefined", None, name))
        self.found.values[self.next] = declared
        self.now[name] = self.next
        return self.next

    def holds(self, name: str) -> int:
        found = self.now.get(name)
        if found is None:
            found = self.make(name)
            if name in self.parameters:
                self.found.parameters.append(found)
        return found

    def block(self, index: int, depth: int) -> Block:
        if depth > MOST_DEPTH:
            raise LimitError(f"a Paddle program with more than {MOST_DEPTH} blocks within blocks")
        message = self.blocks[index]
        self.variables(message.all(3))
        block = Block()
        for operator in message.all(4):
            self.count += 1
            if self.count > MOST_OPERATORS:
                raise LimitError(f"a Paddle program of more than {MOST_OPERATORS} operators")
            self.operator(operator, block, depth)
        return block

    def operator(self, message: Message, block: Block, depth: int) -> None:
        source = _name(message, 3)
        given, made = ({slot.text(1): slot.texts(2) for slot in message.all(side)} for side in (1, 2))
        attributes = dict(map(self.attribute, message.all(4)))
        if source == "feed":
            self.found.inputs += [self.make(name) for name in made.get("Out", ())]
            return
        if source == "fetch":
            self.found.outputs += [self.holds(name) for name in given.get("X", ())]
            return
        name = _NAMES.get(source, source)
        inputs = self.operands(name, given)
        for slot in ("Scope", "StepScopes"):  # of the executor: no tensors
            made.pop(slot, None)
        inner = attributes.get("sub_block")
        blocks = []
        if isinstance(inner, int):
            before = dict(self.now)
            blocks = [self.block(inner, depth + 1)]
            results = [self.holds(n) for names in made.values() for n in names]
            blocks[0].operators.append(Op("yield", "yield", list(results), []))
            self.now = before
        wanted = sorted(made, key=lambda s: (_RESULTS.index(s) if s in _RESULTS else len(_RESULTS), s in _OTHERS))
        outputs = [self.make(n) for slot in wanted for n in made[slot]]
        block.operators.append(Op(name, source, inputs, outputs, attributes, blocks))

    def operands(self, name: str, given: dict[str, list[str]]) -> list[Slot]:
        order = _SLOTS.get(name) or [s for s in _FIRST if s in given] + [s for s in given if s not in _FIRST]
        found: list[Slot] = []
        for slot in order:
            names = next((given[s] for s in slot.split("|") if given.get(s)), [])
            several = len(names) > 1 or slot.endswith("TensorList") or name in ("concat", "stack", "add_n")
            held = [self.holds(n) for n in names if n != "@EMPTY@"]
            found.append(held if several and held else held[0] if held else None)
        return found

    def attribute(self, message: Message) -> tuple[str, Any]:
        name, kind = _name(message, 1), message.integer(2)
        at = _ATTRIBUTE_FIELDS.get(kind)
        if at is None or (not message.has(at) and kind in (0, 1, 2, 6, 8, 9, 15)):
            return name, None
        if kind in (2, 5):  # texts of any length: an engine within a program is one
            texts = [one.decode("utf-8", "replace") for one in message.contents(at)]
            return name, texts if kind == 5 else texts[0]
        if kind in (1, 4, 12, 15):
            numbers: list[Any] = message.reals(at, "f" if kind in (1, 4) else "d")
        else:
            numbers = message.integers(at)
        return name, numbers if kind in (3, 4, 7, 11, 12) else numbers[0]
