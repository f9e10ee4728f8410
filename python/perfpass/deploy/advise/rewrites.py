"""Rewrites of an ONNX file by ONNX Runtime's own tools, and what its sessions make of a file as they load it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfpass.errors import LimitError, UnsupportedError, needs
from perfpass.text import size

EXTRA = "advise"
# Of a file with its weights. Tools hold a model several times, and protobuf ends at 2 GiB.
MOST_BYTES = 3 << 29
Write = Callable[[Path, Path], None]


@dataclass(frozen=True)
class Rewrite:
    """One way to write a model anew: ``name`` as in the name of the file, and ``words``.

    ``changes_numbers``: the outputs are others than by rounding. ``runtimes`` and ``kinds`` of devices that run it.
    """

    name: str
    words: str
    write: Write
    changes_numbers: bool = False
    runtimes: tuple[str, ...] = ("onnxruntime",)
    kinds: tuple[str, ...] = ("cpu", "gpu")


def session(path: Path, level: str = "all", *, save: Path | None = None, threads: int = 1) -> Any:
    """An `onnxruntime.InferenceSession` on the CPU, optimised to ``level``: "basic" or "all".

    ``save``: where the optimised model is written. Raises UnsupportedError for a model that it does not run.
    """
    with needs(EXTRA, "a rewrite of an ONNX file"):
        import onnxruntime
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{level.upper()}")
    if save is not None:
        options.optimized_model_filepath = str(save)
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except MemoryError:
        raise
    except Exception as error:  # of onnxruntime's own kinds, which have no common root
        raise UnsupportedError(f"onnxruntime does not run the file: {short(error)}") from error


def as_loaded(path: Path, target: Path, kind: str, runtime: str) -> None:
    """Writes to ``target`` what a session makes of ``path``: rewrites that it makes itself bring nothing.

    ``kind`` of device: what is made for a CPU's kernels can be seen here, what for a GPU's cannot.
    """
    session(path, "all" if (kind, runtime) == ("cpu", "onnxruntime") else "basic", save=target)


def _tidy(path: Path, target: Path) -> None:
    session(path, "basic", save=target)


def _fused(path: Path, target: Path) -> None:
    with needs(EXTRA, "a rewrite to fused operators"):
        from onnxruntime.transformers.optimizer import optimize_model
    found = optimize_model(str(path), "bert", num_heads=0, hidden_size=0, opt_level=0)
    if not any(found.get_fused_operator_statistics().values()):
        raise UnsupportedError("no pattern of a transformer is in the file")
    found.save_model_to_file(str(target))


def _half(path: Path, target: Path) -> None:
    with needs(EXTRA, "a rewrite to 16 bits"):
        import onnx
        from onnxruntime.transformers.float16 import convert_float_to_float16
    onnx.save(convert_float_to_float16(onnx.load(str(path)), keep_io_types=True), str(target))


def _products_in_8_bits(path: Path, target: Path) -> None:
    with needs(EXTRA, "a rewrite to 8 bits"):
        from onnxruntime.quantization import QuantType, quantize_dynamic
    quantize_dynamic(str(path), str(target), weight_type=QuantType.QInt8, op_types_to_quantize=["MatMul", "Gemm"])


_ANY = ("onnxruntime", "tensorrt")
# In the order in which they are tried: later ones find what earlier ones have cleared.
REWRITES = (
    Rewrite("tidy", "constants and batch norms folded, idle operators dropped", _tidy, runtimes=_ANY),
    # Not for CPUs: a session fuses what gains there, and SkipLayerNormalization takes some four times its parts' time.
    Rewrite("fused", "norms, GELU and attention as operators of ONNX Runtime", _fused, kinds=("gpu",)),
    Rewrite("fp16", "weights and operators in 16 bits", _half, True, runtimes=_ANY),
    Rewrite("int8", "products in 8 bits, quantized as they come", _products_in_8_bits, True, kinds=("cpu",)),
)


def rewritten(rewrite: Rewrite, path: Path, target: Path) -> Path:
    """``target``, where ``rewrite`` of ``path`` is written. Raises UnsupportedError where it cannot be made."""
    with _quiet():
        try:
            rewrite.write(path, target)
        except (UnsupportedError, MemoryError):
            raise
        except Exception as error:  # the tools raise whatever a pattern that they do not know leads to
            raise UnsupportedError(f"cannot be rewritten: {short(error)}") from error
    return target


def check_weights(path: Path) -> None:
    """Raises UnsupportedError for a file without its weights, LimitError for one that is too large with them."""
    with needs(EXTRA, "a rewrite of an ONNX file"):
        import onnx
        from onnx.external_data_helper import ExternalDataInfo, uses_external_data
    graph = onnx.load(str(path), load_external_data=False).graph
    beside = {path.parent / ExternalDataInfo(t).location for t in graph.initializer if uses_external_data(t)}
    inside = [t for t in graph.initializer if not uses_external_data(t)]
    if not all(each.is_file() for each in beside) or any(_is_empty(t) for t in inside):
        raise UnsupportedError(f"{path.name} is without its weights")
    total = sum(each.stat().st_size for each in (path, *beside))
    if total > MOST_BYTES:
        raise LimitError(f"{path.name} has {size(total)} with its weights; rewrites are made up to {size(MOST_BYTES)}")


def _is_empty(tensor: Any) -> bool:
    """Whether the data of a tensor that has elements is left out."""
    fields = ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")
    return 0 not in tensor.dims and not any(len(getattr(tensor, field)) for field in fields)


def short(error: Exception) -> str:
    """What a tool said, in a line."""
    return " ".join(str(error).split())[:200]


@contextmanager
def _quiet() -> Iterator[None]:
    """The tools log advice of their own to the root logger."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
