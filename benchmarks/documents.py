"""Fenced blocks of the documents: run, and what they print written under them.

Blocks of a page run in their order, in one folder and one Python namespace, as a reader would run them:

- ``console``: lines that start with ``$`` are run, what they print stands under them. It is remade.
- ``bash``: run; must end well. Output is not shown.
- ``python``: run. A ``text`` block behind it, with ``<!-- prints -->`` before the fence, is remade.

Other languages are only shown. A comment line before the fence changes this: ``<!-- not run: REASON -->``, or
``<!-- file: PATH -->`` for a block that is a part of a program of this repository, which a test of its own runs.
What installs, clones or builds is never run here (`INSTALLS`); tests look whether it exists.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from perfpass.devices import lookup

ROOT = Path(__file__).resolve().parent.parent
INSTALLS = ("pip", "git", "cd", "source", "bash", "python", "taskset")
_FENCE = re.compile(
    r"(?P<comment><!-- (?P<kind>not run|file|prints)(?:: (?P<said>[^>]*?))? -->\n)?"
    r"^(?P<indent> *)```(?P<language>\w*)\n(?P<code>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """One fenced block: language, text, and what the comment before it says (kind and words)."""

    language: str
    code: str
    kind: str | None
    said: str | None

    @property
    def commands(self) -> list[str]:
        """Command lines of a console or bash block as they stand, continued lines and ``$`` included."""
        found = re.findall(r"^(?:.*\\\n)*.*$", self.code, re.MULTILINE)
        if self.language == "console":
            return [lines for lines in found if lines.startswith("$ ")]
        return [lines for lines in found if shlex.split(lines, comments=True)]

    @property
    def runs(self) -> bool:
        """Whether the block is run here."""
        return self.kind not in ("not run", "file") and self.language in ("console", "bash", "python")


def blocks(text: str) -> list[Block]:
    """All fenced blocks of a page."""
    return [Block(m["language"], m["code"], m["kind"], m["said"]) for m in _FENCE.finditer(text)]


@contextlib.contextmanager
def workplace() -> Iterator[Path]:
    """A temporary folder as the working directory, with ``examples/``, ``data/`` and a small ``model.onnx`` in it.

    Devices that a page adds are gone after it.
    """
    before, environment = Path.cwd(), dict(os.environ)
    with tempfile.TemporaryDirectory() as name, mock.patch.dict(lookup._added):
        folder = Path(name)
        for part in ("examples", "data"):
            (folder / part).symlink_to(ROOT / part)
        _small_model(folder / "model.onnx")
        programs = folder / ".programs"
        programs.mkdir()
        (programs / "perfpass").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m perfpass "$@"\n')
        (programs / "perfpass").chmod(0o755)
        os.environ["PATH"] = f"{programs}{os.pathsep}{os.environ['PATH']}"
        os.environ["XDG_CONFIG_HOME"] = str(folder / ".config")
        os.environ["COLUMNS"] = "100"
        os.environ.pop("PERFPASS_DEVICES", None)
        os.chdir(folder)
        try:
            yield folder
        finally:
            os.chdir(before)
            os.environ.clear()
            os.environ.update(environment)


def _small_model(path: Path) -> None:
    """A convolutional network of some kilobytes, with its weights, that onnxruntime can run at any batch size."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    numbers = np.random.default_rng(0)
    weights = {"kernel": (8, 3, 3, 3), "bias": (8,), "dense": (8, 10)}
    nodes = [
        helper.make_node("Conv", ["image", "kernel", "bias"], ["conv"], name="conv", pads=[1] * 4, strides=[2, 2]),
        helper.make_node("Relu", ["conv"], ["relu"], name="relu"),
        helper.make_node("GlobalAveragePool", ["relu"], ["pool"], name="pool"),
        helper.make_node("Flatten", ["pool"], ["flat"], name="flatten"),
        helper.make_node("MatMul", ["flat", "dense"], ["logits"], name="dense"),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, 64, 64])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10])],
        [numpy_helper.from_array(numbers.normal(size=s).astype("f"), name) for name, s in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, path)


def remade(text: str) -> str:
    """The page with every block run and its output as it is now; RuntimeError for a block that fails."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed = ""

    def replace(match: re.Match[str]) -> str:
        nonlocal printed
        block = Block(match["language"], match["code"], match["kind"], match["said"])
        code = block.code
        if block.kind == "file":
            if code not in (ROOT / (block.said or "")).read_text():
                raise RuntimeError(f"this block is no part of {block.said}:\n{code}")
        elif block.kind == "prints":
            code = printed
        elif block.kind == "not run":
            pass
        elif block.language == "console":
            code = "".join(f"{command}\n{run(command.removeprefix('$ '))}" for command in block.commands)
        elif block.language == "bash":
            for command in block.commands:
                run(command, may_fail=False)
        elif block.language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile(code, "<document>", "exec"), namespace)
            printed = out.getvalue()
        start, end = (place - match.start() for place in match.span("code"))
        return match[0][:start] + code + match[0][end:]

    if not any(block.runs or block.kind == "file" for block in blocks(text)):
        return text
    with workplace():
        return _FENCE.sub(replace, text)


def run(command: str, may_fail: bool = True) -> str:
    """What one command line prints. RuntimeError where it fails, but for errors of perfpass that are to be shown.

    A `perfpass` command runs in this process, which saves its start, also where a pipe takes what it prints; the shell
    runs everything else.
    """
    command = command.replace("\\\n", " ")
    if shlex.split(command, comments=True)[0] in INSTALLS:
        return ""
    ours, pipe, rest = command.partition(" | ")
    arguments = ours.removesuffix(" 2>&1")
    if not arguments.startswith("perfpass ") or set(arguments) & set("|<>;&$`*"):
        printed, code = _in_shell(command)
    else:
        from perfpass.cli import main

        out, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors if pipe and arguments == ours else out):
            code = main(shlex.split(arguments, comments=True)[1:])
        printed = out.getvalue()
        if pipe:
            printed, code = _in_shell(rest, printed)
            printed += errors.getvalue()
    if code and not (may_fail and "perfpass: error:" in printed):
        raise RuntimeError(f"{command!r} ended with {code}:\n{printed}")
    return printed.rstrip() + "\n" if printed.strip() else ""


def _in_shell(command: str, given: str | None = None) -> tuple[str, int]:
    """What a command line prints, errors behind the rest, and its exit code; ``given`` is its input."""
    done = subprocess.run(["bash", "-c", command], input=given, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr, done.returncode
