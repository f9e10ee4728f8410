"""From a pipeline's folder to one graph of its networks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from perfpass.errors import ArgumentError
from perfpass.importers.formats.diffusers.pipeline import networks, read_index
from perfpass.importers.onnx import Input

if TYPE_CHECKING:
    from perfpass.graph import OpGraph
    from perfpass.graph.joined import Part
    from perfpass.importers.formats.sizes import Sizes


def inputs(path: Path) -> tuple[Input, ...]:
    """A prompt; sizes are those of the pipeline, and set by height, width, frames and tokens."""
    read_index(path)
    return (Input("prompt", "int64", None),)


def read(path: Path, sizes: Sizes) -> OpGraph:
    """One graph of every network that a prompt runs, in order and as often as it runs.

    Raises FileError, FormatError, LimitError, ArgumentError, ShapeError, UnsupportedError.
    """
    from perfpass.graph.joined import joined

    found = networks(read_index(path), _batch(sizes), sizes.dims, sizes.assume)
    return joined(found.parts, found.notes, (found.steps,))


def components(path: Path, sizes: Sizes) -> tuple[Part, ...]:
    """The same, network by network: each one's graph and how often it runs."""
    return tuple(networks(read_index(path), _batch(sizes), sizes.dims, sizes.assume).parts)


def _batch(sizes: Sizes) -> int:
    if sizes.input_shapes:
        raise ArgumentError("a pipeline's sizes are set by --dim height=, width=, frames= and tokens=, and --batch")
    if sizes.batch is None:
        return 1
    if isinstance(sizes.batch, bool) or not isinstance(sizes.batch, int) or not 1 <= sizes.batch <= 1 << 16:
        raise ArgumentError(f"batch = {sizes.batch}; it must be a whole number from 1 to 65536")
    return sizes.batch
