"""Every format that is read beside ONNX and configurations: how its content shows it, and its module."""

from __future__ import annotations

import gc
import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from perfpass.errors import LimitError, about
from perfpass.importers.formats import marks, mlir_content
from perfpass.late import dataclass

if TYPE_CHECKING:
    from perfpass.graph import OpGraph
    from perfpass.importers.formats.content import Content
    from perfpass.importers.formats.sizes import Sizes
    from perfpass.importers.onnx import Input


class _Module(Protocol):
    def read(self, path: Path, sizes: Sizes) -> OpGraph: ...

    def inputs(self, path: Path) -> tuple[Input, ...]: ...


@dataclass(frozen=True)
class Format:
    """A format. ``title`` stands in sentences ("a TensorFlow Lite file"); ``module`` is one of this package.

    ``matches`` is asked of every file that a user names, in the table's order: it looks at `Content` alone. ``own``:
    read by perfpass itself, within bounds; else a library of the framework opens the file.
    """

    name: str
    title: str
    module: str
    matches: Callable[[Content], bool]
    own: bool = True

    def read(self, path: Path, sizes: Sizes) -> OpGraph:
        """The graph at these sizes. Raises as `perfpass.load` does."""
        with about(path), _uncollected():
            try:
                return self._of().read(path, sizes)
            except RecursionError as error:
                raise LimitError(f"{self.title} nested deeper than can be read") from error

    def inputs(self, path: Path) -> tuple[Input, ...]:
        """What the file says of its inputs, before any size is set."""
        with about(path), _uncollected():
            return self._of().inputs(path)

    def _of(self) -> _Module:
        return cast("_Module", importlib.import_module(f"perfpass.importers.formats.{self.module}"))


@contextmanager
def _uncollected() -> Iterator[None]:
    """No search for cycles inside: a document is a hundred thousand young objects, and half of reading it was that."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


FORMATS: tuple[Format, ...] = (
    Format("tflite", "a TensorFlow Lite model", "tflite", marks.is_tflite),
    Format("ort", "a model in ONNX Runtime's format", "ort_format", marks.is_ort),
    Format("executorch", "an ExecuTorch program", "executorch", marks.is_executorch),
    Format("keras", "a Keras model", "keras", marks.is_keras),
    Format("openvino", "an OpenVINO model", "openvino", marks.is_openvino),
    Format("paddle", "a Paddle program", "paddle", marks.is_paddle),
    Format("tensorflow", "a TensorFlow model", "tensorflow", marks.is_tensorflow),
    Format("coreml", "a Core ML model", "coreml", marks.is_coreml),
    Format("diffusers", "a diffusers pipeline", "diffusers", marks.is_pipeline, own=False),
    Format("tensorrt", "a TensorRT engine's list of layers", "tensorrt", marks.is_engine),
    Format("ncnn", "an ncnn network", "ncnn", marks.is_ncnn),
    Format("stablehlo", "a StableHLO module", "stablehlo", mlir_content.is_text),
    Format("mlir_bytecode", "a module of MLIR bytecode", "stablehlo", mlir_content.is_bytecode, own=False),
    Format("torch_export", "an archive of torch.export", "torch_export", marks.is_export),
    Format("torchscript", "a TorchScript archive", "torchscript", marks.is_torchscript),
)


def recognised(content: Content) -> Format | None:
    """The format of a file or folder, or None: then it is ONNX, a configuration or GGUF, or nothing that is read.

    Raises FormatError and LimitError for an archive whose list of entries is damaged or too long.
    """
    with _uncollected():  # an archive's list of entries is thousands of objects too
        return next((one for one in FORMATS if one.matches(content)), None)


def named(name: str) -> Format:
    """A format of the table by its name. Raises KeyError."""
    return {one.name: one for one in FORMATS}[name]
