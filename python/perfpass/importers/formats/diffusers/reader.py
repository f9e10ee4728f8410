"""From a pipeline's folder to one graph of its networks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from perfpass.errors import ArgumentError, UnsupportedError, shown
from perfpass.importers.formats.diffusers.pipeline import networks, read_index
from perfpass.importers.onnx import Input
from perfpass.text import nearest

if TYPE_CHECKING:
    from perfpass.graph import OpGraph
    from perfpass.graph.joined import Part
    from perfpass.importers.formats.sizes import Sizes


def inputs(path: Path) -> tuple[Input, ...]:
    """A prompt; sizes are those of the pipeline, and set by height, width, frames and tokens."""
    read_index(_split(path)[0])
    return (Input("prompt", "int64", None),)


def read(path: Path, sizes: Sizes) -> OpGraph:
    """One graph of every network that a prompt runs, in order and as often as it runs; of FOLDER:PART one run of that
    network alone.

    Raises FileError, FormatError, LimitError, ArgumentError, ShapeError, UnsupportedError (also for another part, with
    those there are).
    """
    from perfpass.graph.joined import joined

    whole, part = _split(path)
    found = networks(read_index(whole), _batch(sizes), sizes.dims, sizes.assume)
    if not part:
        return replace(joined(found.parts, found.notes, (found.steps,)), unasked=found.unasked)
    by_name = {one.name: one.graph for one in found.parts}
    if part not in by_name:
        raise UnsupportedError(
            f"{whole} has no part {shown(part)};{nearest(part, by_name)} its parts are {', '.join(by_name)}"
        )
    return replace(by_name[part], unasked=found.unasked)


def _split(path: Path) -> tuple[Path, str]:
    """The pipeline and the part of it that FOLDER:PART names, "" for all of it."""
    whole, _, part = ("", "", "") if path.exists() else str(path).rpartition(":")
    return (Path(whole), part) if whole else (path, "")


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
