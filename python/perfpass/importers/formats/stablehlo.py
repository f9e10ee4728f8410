"""StableHLO modules: MLIR text, MLIR bytecode, and what ``jax.export`` serialises.

The core parses the text (cpp_kernels/src/stablehlo). Bytecode is turned into text first, by the MLIR bindings of jaxlib
in a process of their own: they are not made for damaged bytes, and such a process may crash alone.
"""

from __future__ import annotations

import importlib.util
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from perfpass import _core
from perfpass.bounded_file import read_file
from perfpass.errors import FormatError, LimitError, UnsupportedError
from perfpass.graph import OpGraph
from perfpass.importers.formats.batch import scaled
from perfpass.importers.formats.mlir_content import BYTECODE, module_at
from perfpass.importers.formats.sizes import fixed
from perfpass.importers.onnx import Input

if TYPE_CHECKING:
    from perfpass.importers.formats.sizes import Sizes

_MOST_BYTES = 1 << 30
_MOST_TEXT_BYTES = 1 << 30
_SECONDS = 120.0
_MOST_MEMORY_BYTES = 8 << 30
_OVER_MOST = 65  # what the process exits with
_AS_TEXT = """
import sys
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import chlo, func, sdy, stablehlo
with ir.Context() as context:
    for dialect in (chlo, sdy, stablehlo):
        dialect.register_dialect(context)
    content = sys.stdin.buffer.read()
    if b"StableHLO_v" in content[:64]:
        module = stablehlo.deserialize_portable_artifact(context, content)
    else:
        module = ir.Module.parse(content)
    out = module.operation.get_asm(binary=True, large_elements_limit=64, enable_debug_info=True)
    if len(out) > most_text_bytes:
        sys.exit(over_most)
    sys.stdout.buffer.write(out)
"""


def read(path: Path, sizes: Sizes) -> OpGraph:
    """The graph of main. Raises as `perfpass.load` does; UnsupportedError for bytecode without jaxlib."""
    text = _text(path)
    wanted = fixed(_inputs(text), sizes)
    graph = OpGraph(_core.read_stablehlo(text, {name: list(shape) for name, shape in wanted.shapes.items()}))
    return scaled(graph, wanted.declared_batch, wanted.batch)


def inputs(path: Path) -> tuple[Input, ...]:
    """The arguments of main that are no parameters (docs/reference/formats.md says how they are told apart)."""
    return _inputs(_text(path))


def _inputs(text: bytes) -> tuple[Input, ...]:
    return tuple(
        Input(
            name,
            dtype,
            tuple(
                size if size >= 0 else symbol or f"{name}:{axis}"
                for axis, (size, symbol) in enumerate(zip(shape, symbols, strict=True))
            ),
        )
        for name, dtype, shape, symbols in _core.stablehlo_inputs(text)
    )


def _text(path: Path) -> bytes:
    content = read_file(path, "a StableHLO module", _MOST_BYTES)
    if content.startswith(BYTECODE):
        return _as_text(content)
    at = module_at(content)
    return content if at is None else _as_text(_exported(content, at))


def _exported(content: bytes, at: int) -> bytes:
    """The bytecode in an export of JAX. Raises FormatError where it points outside the file."""
    if at + 4 <= len(content):
        (size,) = struct.unpack_from("<I", content, at)
        found = content[at + 4 : at + 4 + size]
        if len(found) == size and found.startswith(BYTECODE):
            return found
    raise FormatError("an export of JAX whose MLIR module is damaged; export it again (jax.export.export)")


def _as_text(bytecode: bytes) -> bytes:
    if importlib.util.find_spec("jaxlib") is None:
        raise UnsupportedError(
            "MLIR bytecode is read with jaxlib, which is not installed; install perfpass[jax], or pass the module as "
            "text (jax.export.export(...)(...).mlir_module(), jax.jit(f).lower(...).as_text())"
        )
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XLA_"))}
    environment["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if entry)
    try:
        done = subprocess.run(
            [sys.executable, "-c", _LIMITED + _AS_TEXT],
            input=bytecode,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
            env=environment,
        )
    except subprocess.TimeoutExpired as error:
        raise LimitError(f"MLIR bytecode that is not read within {_SECONDS:.0f} seconds; pass its text") from error
    if done.returncode == _OVER_MOST:
        raise LimitError(f"MLIR bytecode whose text is over {_MOST_TEXT_BYTES} bytes; pass a part of the model")
    if done.returncode != 0:
        lines = [line for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
        why = lines[-1].strip()[:200] if done.returncode > 0 and lines else f"its reader stopped with {done.returncode}"
        raise FormatError(f"MLIR bytecode that jaxlib does not read: {why}; export it again, or pass its text")
    return done.stdout


_LIMITED = f"""
import resource
most_text_bytes, over_most = {_MOST_TEXT_BYTES}, {_OVER_MOST}
resource.setrlimit(resource.RLIMIT_AS, ({_MOST_MEMORY_BYTES}, {_MOST_MEMORY_BYTES}))
"""
