"""Arguments of the command line: a JSON list, as a shell would pass it; "> full" first writes to a full disk."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
from collections.abc import Sequence
from functools import cache
from typing import Any

import hostile_files
from perfpass.cli import main
from perfpass.cli.parser import build_parser

from .documents import Json
from .mutations import TEXTS
from .on_annotations import _annotated
from .on_files import _DEVICE, _PRICES
from .on_models import _LLAMA
from .on_records import _journal_seeds
from .oracle import Violation, figures
from .target import Target, folder

EXIT_CODES = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 74)  # docs/reference/errors.md, without what a user's signal makes
# Commands that measure, train or read data sets for minutes: of them the arguments alone are read.
_LONG = ("measure", "roofline", "records", "train", "evaluate", "calibrate")
FULL = "> full"
_FILES = {
    "model.onnx": hostile_files.plain(),
    "open.onnx": hostile_files.small_network(),
    "annotated.onnx": b"",  # made below: it takes a prediction
    "config.json": json.dumps(_LLAMA).encode(),
    "devices.toml": _DEVICE.encode(),
    "prices.toml": _PRICES.encode(),
    "records.jsonl": b"",
    "empty": b"",
}
_PATHS = (*_FILES, "missing.onnx", ".", "x/y", "/dev/null", "/dev/full", "out.npz", "-", "a" * 300 + ".onnx")
_DEVICES = (
    "h100",
    "a100",
    "a100-80gb:1g.10gb",
    "h100:",
    "t4",
    "big-gpu",
    "cpu",
    "mi300x",
    "g5.xlarge",
    "2 x a100",
    "?",
)
_WORDS = (
    *("fp32", "amp", "int8", "fp8", "torch", "tensorrt", "tvm", "nchw", "training", "adamw", "dippm", "perfpass"),
    *("N=2", "x=1x3x8x8", "x=", "=1", "N=0", "N=-1", "batch=99999999999", "x=2x3", "llama-3.1-8b", "bert-tiny", "FR"),
    *("1", "0", "-1", "8", "64", "1e9", "99999999999999999999", "0.5", "nan", "inf", "1,2", "vllm", "sglang", "gemm"),
)
_LOAD = ("--input-length", "64", "--output-length", "16", "--concurrency", "4")
_STARTS: tuple[tuple[str, ...], ...] = (
    ("predict", "model.onnx", "--device", "h100", "--batch", "2", "--json"),
    ("predict", "model.onnx", "--device", "a100-80gb:1g.10gb", "--precision", "amp", "--explain", "--region", "FR"),
    ("predict", "config.json", "--device", "l4", "--batch", "2"),
    ("predict", "model.onnx", "--device", "big-gpu", "--device-file", "devices.toml", "--mode", "training", "--json"),
    ("predict", "model.onnx", "--device", "h100", "--price-table", "prices.toml", "--carbon-intensity", "50"),
    ("llm", "config.json", "--device", "h100", *_LOAD, "--json"),
    ("llm", "llama-3.1-8b", "--device", "a100-80gb", *_LOAD, "--tp", "2", "--precision", "int8"),
    ("llm", "config.json", "--device", "h100", "--offline", *_LOAD, "--json"),
    ("annotate", "annotated.onnx", "--show", "--json"),
    ("annotate", "annotated.onnx", "--remove"),
    ("annotate", "model.onnx", "--device", "t4", "--batch", "2", "-o", "out.onnx"),
    ("inspect", "model.onnx"),
    ("inspect", "open.onnx", "--batch", "2", "--json"),
    ("features", "model.onnx", "--batch", "2", "--schema", "dippm", "-o", "out.npz"),
    ("devices", "h100", "--json"),
    ("devices",),
    ("operator", "gemm", "--device", "h100", "--m", "64", "--n", "64", "--k", "64"),
    ("compare", "model.onnx", "--readers", "file"),
    ("partition", "model.onnx", "--device", "h100", "--batch", "2", "-o", "out.csv", "--source", "file"),
    ("completion", "bash"),
    ("measure", "timm:resnet18", "--batch", "1,8", "--budget", "25m", "--mode", "inference,training"),
    ("calibrate", "--device", "h100", "--records", "records.jsonl"),
    ("evaluate", "--area", "inference", "--predictors", "all", "--seed", "1"),
    ("train", "--area", "inference"),
    (FULL, "devices", "h100"),
    ("--version",),
)  # fmt: skip


@cache
def _options() -> tuple[dict[str, list[str]], list[str]]:
    """Option strings by command, and all values that options allow."""
    parser = build_parser()
    found: dict[str, list[str]] = {}
    choices: list[str] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                found[name] = [s for a in command._actions for s in a.option_strings]
                choices += [str(c) for a in command._actions for c in (a.choices or ()) if isinstance(c, str)]
    return found, choices


class _Arguments(Json):
    """A list of arguments: one is replaced, doubled, dropped, moved or damaged, or an option comes in."""

    def mutated(self, data: bytes, rng: random.Random) -> bytes:
        """Another list of arguments."""
        try:
            arguments = [str(a) for a in json.loads(data)]
        except (ValueError, RecursionError, TypeError):
            arguments = list(rng.choice(_STARTS))
        options, choices = _options()
        for _ in range(rng.choice((1, 1, 2, 3))):
            at = rng.randrange(len(arguments) + 1)
            kind = rng.randrange(10)
            if kind < 3 and at < len(arguments):
                arguments[at] = rng.choice((*_WORDS, *_PATHS, *_DEVICES, *choices))
            elif kind < 6:
                command = next((a for a in arguments if a in options), "predict")
                arguments[at:at] = [rng.choice(options[command]), rng.choice((*_WORDS, *_PATHS, *_DEVICES, *choices))]
            elif kind == 6 and at < len(arguments):
                del arguments[at]
            elif kind == 7 and arguments:
                arguments.insert(at, rng.choice(arguments))
            elif kind == 8 and at < len(arguments):
                arguments[at] = rng.choice(TEXTS)
            elif arguments:
                word = rng.choice(arguments)
                cut = rng.randrange(len(word) + 1)
                changed = rng.choice(
                    (word[:cut], word[cut:], word.upper(), f"{word}{word}", f"{word[:cut]}=", f" {word}")
                )
                arguments[arguments.index(word)] = changed
            if not rng.randrange(40):
                arguments.insert(0, FULL)
        return json.dumps([_harmless(a) for a in arguments]).encode()


def _harmless(argument: str) -> str:
    """No path out of the folder but those to devices: some commands write."""
    return argument if argument in _PATHS or "/" not in argument else argument.replace("/", "_")


def _run(data: bytes) -> None:
    """One command: a documented exit code, one line on stderr where it failed, strict JSON where that was asked."""
    try:
        arguments = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not isinstance(arguments, list) or not all(isinstance(a, str) and _harmless(a) == a for a in arguments):
        return
    if any(name in arguments for name in _LONG):
        with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
            build_parser().parse_args(arguments)
        return
    content = {**_FILES, "annotated.onnx": _annotated(), "records.jsonl": _journal_seeds()[0]}
    place = folder() / "commands"
    place.mkdir(exist_ok=True)
    for old in place.iterdir():
        if old.name not in content and old.is_file():
            old.unlink()
    for name, held in content.items():
        (place / name).write_bytes(held)
    full = arguments[:1] == [FULL]
    code, out, said = _called(arguments[1:] if full else arguments, place, full)
    _judged(arguments, code, out, said)


def _called(arguments: Sequence[str], place: Any, full: bool) -> tuple[int, str, str]:
    before = os.getcwd()
    out, said = io.StringIO(), io.StringIO()
    stream: Any = open("/dev/full", "w", encoding="utf-8") if full else out  # noqa: SIM115 - closed below
    os.chdir(place)
    try:
        with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(said):
            try:
                code = main(arguments)
            except SystemExit as error:  # --help, --version
                code = int(error.code or 0)
    finally:
        os.chdir(before)
        if full:
            with contextlib.suppress(OSError):
                stream.close()
    return code, out.getvalue(), said.getvalue()


def _judged(arguments: Sequence[str], code: int, out: str, said: str) -> None:
    lines = said.splitlines()
    if code not in EXIT_CODES:
        what = lines[-1].partition("internal error (")[2].split(":")[0] if "internal error" in said else ""
        raise Violation(f"exit code {code} {what}".strip(), said[:300])
    if "Traceback" in said:
        raise Violation("a traceback", said[:300])
    errors = [line for line in lines if line.startswith("perfpass: error: ")]
    if (code != 0) != bool(errors) or len(errors) > 1:
        raise Violation(f"exit code {code} with {len(errors)} lines of error", said[:300])
    if any(not line.startswith("perfpass: ") for line in lines):
        raise Violation("a line on stderr that does not say whose it is", said[:300])
    if errors and len(errors[0]) > 1500:
        raise Violation("an error without end", errors[0][:300])
    if code == 0 and "--json" in arguments and out.startswith(("{", "[")):
        found = json.loads(out, parse_constant=lambda name: _refuse(name))
        if arguments[0] in ("predict", "llm"):
            figures({k: v for k, v in found.items() if k != "breakdown"})
    if code and out:
        raise Violation(f"a result and the exit code {code}", out[:200])


def _refuse(name: str) -> None:
    raise Violation(f"{name} in JSON")


TARGETS = (
    Target(
        "command-line",
        _run,
        lambda: [json.dumps(start).encode() for start in _STARTS],
        _Arguments(),
        tuple(f"python/perfpass/cli/{name}.py" for name in (
            *("entry", "parser", "options", "predict", "llm", "annotate", "inspect", "features", "devices", "operator"),
            *("partition", "completion", "compare"),
        )),
    ),
)  # fmt: skip
