"""From the file of a Paddle program to its graph at the sizes that were asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from perfpass.errors import FormatError
from perfpass.importers.formats.batch import scaled
from perfpass.importers.formats.content import Content
from perfpass.importers.formats.paddle import pir, program_desc
from perfpass.importers.formats.paddle.lowering import lowered
from perfpass.importers.formats.paddle.program import Program
from perfpass.importers.formats.sizes import Sizes, fixed
from perfpass.importers.onnx import Input

if TYPE_CHECKING:
    from perfpass.graph import OpGraph


def inputs(path: Path) -> tuple[Input, ...]:
    """The inputs of a program; a size of -1 is open. Raises as `read`."""
    return _declared(_program(path))


def read(path: Path, sizes: Sizes) -> OpGraph:
    """The graph of a program. Raises FileError, FormatError, LimitError, ShapeError, ArgumentError, GraphError."""
    program = _program(path)
    found = fixed(_declared(program), sizes)
    shapes = {number: found.shapes[program.values[number].name] for number in program.inputs}
    return scaled(lowered(program, shapes), found.declared_batch, found.batch)


def _program(path: Path) -> Program:
    is_json = Content.of(path).head.lstrip().startswith(b"{")
    program = (pir if is_json else program_desc).read(path)
    if not program.outputs:
        raise FormatError(
            "a Paddle program that fetches nothing, as one of a training step; export it with paddle.jit.save"
        )
    return program


def _declared(program: Program) -> tuple[Input, ...]:
    found = []
    for number in program.inputs:
        value = program.values[number]
        shape = value.shape or ()
        axes = tuple(size if size >= 0 else f"{value.name}:{axis}" for axis, size in enumerate(shape))
        found.append(Input(value.name, value.dtype, axes if value.shape is not None else None))
    return tuple(found)
