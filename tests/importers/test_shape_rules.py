"""Rules of sizes that readers of formats share."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfpass.errors import LimitError, ShapeError
from perfpass.importers.formats.paddle.call import Call, Tensor, value_of
from perfpass.importers.formats.paddle.program import Op, Value
from perfpass.importers.formats.shapes import Followed, broadcast, columns, einsum, places, same_padding, spread, tiled
from perfpass.importers.formats.tensorflow.folding import fold
from perfpass.importers.formats.tensorflow.graph_def import Attributes, NodeDef

SHAPES = st.lists(st.lists(st.integers(0, 4), max_size=4).map(tuple), max_size=4)
WINDOW = (st.integers(1, 40), st.integers(1, 7), st.integers(1, 5), st.integers(1, 3))


@given(SHAPES)
def test_broadcasting_is_numpys(shapes: list[tuple[int, ...]]) -> None:
    try:
        expected = np.broadcast_shapes(*shapes)
    except ValueError:
        with pytest.raises(ShapeError, match="add of shapes"):
            broadcast(shapes, "add")
    else:
        assert broadcast(shapes, "add") == expected


@given(st.lists(st.integers(0, 4), max_size=4), st.lists(st.integers(0, 4), max_size=4))
def test_tiling_is_numpys(shape: list[int], times: list[int]) -> None:
    assert tiled(shape, times) == np.tile(np.zeros(shape), times).shape


@given(*WINDOW)
def test_same_padding_gives_a_place_for_every_stride(extent: int, kernel: int, stride: int, dilation: int) -> None:
    before, after = same_padding(extent, kernel, stride, dilation)
    assert 0 <= after - before <= 1
    if before + after:
        assert places(extent, kernel, stride, dilation, before, after) == -(-extent // stride)
    assert places(extent, kernel, stride, dilation, before, after) >= -(-extent // stride)


@given(*WINDOW, st.integers(0, 3), st.integers(0, 3))
def test_a_window_has_as_many_places_as_it_can_be_put(
    extent: int, kernel: int, stride: int, dilation: int, before: int, after: int
) -> None:
    last = extent + before + after - dilation * (kernel - 1) - 1  # the last cell at which it can begin
    if last < 0:
        return
    assert places(extent, kernel, stride, dilation, before, after) == len(range(0, last + 1, stride))
    hanging = places(extent, kernel, stride, dilation, before, after, ceil=True)
    assert hanging == len(range(0, last + 1, stride)) + (last % stride > 0)


@given(*WINDOW)
def test_a_transposed_convolution_undoes_the_sizes_of_a_convolution(
    extent: int, kernel: int, stride: int, dilation: int
) -> None:
    wide = spread(extent, kernel, stride, dilation, 0, 0)
    assert places(wide, kernel, stride, dilation) == extent
    assert places(spread(extent, kernel, stride, dilation, 1, 2, 3), kernel, stride, dilation, 1, 2) >= extent


def test_equations_tell_sizes_and_what_is_summed() -> None:
    assert einsum("bij, bjk -> bik", [(2, 3, 5), (2, 5, 7)]) == ({"b": 2, "i": 3, "j": 5, "k": 7}, "bik", 5)
    with pytest.raises(ValueError, match="zip"):
        einsum("ij,jk->ik", [(2, 3)])
    assert einsum("ij,jk->ik", [(2, 3)], strict=False) == ({"i": 2, "j": 3}, "ik", 3)


def test_columns_keep_three_axes_within_32_bits() -> None:
    assert columns(kernel=(3, 2**40, -(2**40), 9), stride=[1]) == {
        "kernel_0": 3, "kernel_1": 2**31 - 1, "kernel_2": -(2**31), "stride_0": 1,
    }  # fmt: skip


def test_numbers_that_are_followed_have_an_end() -> None:
    followed = Followed()
    followed.take(1 << 22)
    with pytest.raises(LimitError, match="shape arithmetic"):
        followed.take(1)


@pytest.mark.parametrize(
    ("name", "op", "count"), [("AddV2", "add", 2), ("GatherV2", "gather", 2), ("Pack", "stack", 500)]
)
def test_arithmetic_that_would_make_much_of_little_is_not_followed(name: str, op: str, count: int) -> None:
    wide, tall = np.zeros((1, 1000), np.int32), np.zeros((1000, 1), np.int32)
    values = [wide, tall] if count == 2 else [wide] * count
    given = [Tensor(0, "int32", value.shape, value=value) for value in values]
    slots: list[Tensor | list[Tensor] | None] = [*given] if count == 2 else [given]
    tracemalloc.start()
    assert fold(NodeDef("n", name, [], Attributes(b"", {})), values) is None
    assert value_of(Call(Op(op, op, [], []), slots, [Value("int32", None)])) is None
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
