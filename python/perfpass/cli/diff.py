"""`perfpass diff`: what changed from one model to another, and by which factor each figure did."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from perfpass.cli.options import (
    add_device_files,
    add_json,
    add_quantize,
    add_sizes,
    add_workload,
    find_device,
    model_sizes,
    new_command,
    once,
    print_json,
    texts,
    workload,
)
from perfpass.errors import ArgumentError
from perfpass.text import unknown
from perfpass.whole_file import write_whole

if TYPE_CHECKING:
    from perfpass.deploy.difference import Difference

_EPILOG = """\
OLD and NEW are models as `perfpass predict` takes them, or git:REV:PATH: a file as it was at a commit (an empty REV is
the index). With --base REV, each FILE here is compared with itself at that commit, and one that is new is passed over.
Ratios are NEW over OLD. What both runs share cancels in them, so their intervals are far narrower than those of either
figure. Weights are neither needed nor read: other values of the same shapes are no change.

exit status: 0 within the limits, 1 a limit broken, 2 cannot say; errors have the codes of every command, none below 2
(docs/reference/errors.md).

examples:
  perfpass diff old.onnx new.onnx --device t4
  perfpass diff git:origin/main:net.onnx net.onnx --device t4 --device a10 --fail latency=5% --fail memory=0
  perfpass diff --base origin/main models/*.onnx --device l4 --fail latency=5% --confidence 0.9 --write sarif=diff.sarif
  perfpass diff resnet50 resnet50 --device t4 --change precision=fp16 --change runtime=tensorrt
  perfpass diff old.onnx new.onnx --fail parameters=0          what is counted needs no device"""
_FORMATS = ("text", "json", "markdown", "junit", "sarif")


def add(commands: Any) -> None:
    """The command's options."""
    command = new_command(
        commands, "diff", run, "compare two models: what changed, and the ratio of every figure with its interval",
        _EPILOG,
    )  # fmt: skip
    command.add_argument("models", nargs="+", metavar="MODEL", help="OLD NEW; or with --base the files to compare")
    command.add_argument("--base", metavar="REV", help="compare each FILE with itself at this commit of the repository")
    command.add_argument(
        "--device",
        action="extend",
        type=texts,
        default=[],
        metavar="NAME",
        help="devices, with commas between them; may be repeated",
    )
    add_sizes(command)
    add_workload(command)
    command.add_argument(
        "--change", action="append", default=[], type=_pair, metavar="WHAT=VALUE",
        help="what is otherwise for NEW: batch, precision, runtime, layout, cuda_graph (true, false), "
        "version (of the runtime); may be repeated",
    )  # fmt: skip
    add_quantize(command)
    command.add_argument(
        "--fail", action="append", default=[], type=_pair, metavar="FIGURE=N%",
        help="how much worse a figure may get: latency, throughput, memory, energy, parameters, flops; may be repeated",
    )  # fmt: skip
    command.add_argument(
        "--confidence", type=float, default=0.5, metavar="C",
        help="probability from which on a limit counts as held or broken, 0.5 to below 1 (default: 0.5, the median)",
    )  # fmt: skip
    command.add_argument(
        "--write", action="append", default=[], type=_pair, metavar="FORM=FILE",
        help="also write text, json, markdown, junit or sarif to a file; may be repeated",
    )  # fmt: skip
    command.add_argument("--markdown", action="store_true", help="Markdown on stdout instead of the table")
    add_json(command)


def run(options: Any) -> int:
    """Compares, prints, writes; the worst of several answers is the status."""
    from perfpass.deploy.difference.found import EXIT
    from perfpass.deploy.difference.git_file import NotThere

    if options.json and options.markdown:
        raise ArgumentError("--json and --markdown are two forms of one output; give one of them, or --write")
    files = once(options.write, "--write") or {}
    for form in files:
        if form not in _FORMATS:
            raise ArgumentError(unknown("form of --write", form, _FORMATS))
    compare = _comparison(options)
    found: list[Difference] = []
    for old, new in _asked(options):
        try:
            found.append(compare(old, new))
        except NotThere as error:
            if options.base is None:
                raise
            print(f"perfpass: {error}: new, nothing to compare", file=sys.stderr)
    shown = "json" if options.json else "markdown" if options.markdown else "text"
    if shown == "json":
        print_json(_json(found, options.base is not None))
    elif found:
        print(_written(shown, found, options.base is not None), end="")
    for form, path in files.items():
        write_whole(path, _written(form, found, options.base is not None))
    statuses = {one.exit_status for one in found}
    return next((EXIT[answer] for answer in ("broken", "cannot say") if EXIT[answer] in statuses), 0)


def _asked(options: Any) -> Sequence[tuple[str, str]]:
    """Pairs of old and new. Raises ArgumentError."""
    if options.base is not None:
        if not options.base or ":" in options.base:
            raise ArgumentError(f"--base {options.base!r} is not a commit (as HEAD, origin/main, a hash)")
        return [(f"git:{options.base}:{_from_here(path)}", path) for path in options.models]
    if len(options.models) != 2:
        raise ArgumentError(
            f"diff compares two models, OLD and NEW, and got {len(options.models)}; with --base REV any number of files"
        )
    return [tuple(options.models)]


def _from_here(path: str) -> str:
    """As git sees a path from the current folder."""
    import os

    return f"./{os.path.relpath(path)}".replace(os.sep, "/")


def _comparison(options: Any) -> Callable[[str, str], Difference]:
    from perfpass.deploy.difference import diff

    how = workload(options)
    if how.pop("predictor") != "perfpass":
        raise ArgumentError("diff has the ratios of perfpass's own predictor alone; leave out --predictor")
    change: dict[str, Any] = once(options.change, "--change") or {}
    if options.quantize is not None:
        if "precision" in change:
            raise ArgumentError("--quantize changes the precision of NEW; leave out --change precision")
        change["precision"] = options.quantize
    if "batch" in change:
        change["batch"] = int(change["batch"]) if change["batch"].isdecimal() else change["batch"]
    if "cuda_graph" in change:
        change["cuda_graph"] = {"true": True, "false": False}.get(change["cuda_graph"], change["cuda_graph"])
    add_device_files(options)
    devices = [find_device(options, name) for name in dict.fromkeys(options.device)]
    given = {"change": change, "fail": once(options.fail, "--fail"), "confidence": options.confidence}
    sizes = model_sizes(options)
    return lambda old, new: diff(old, new, devices, **sizes, **how, **given)


def _json(found: Sequence[Difference], several: bool) -> Any:
    """One difference, or with --base a list of them."""
    return [one.to_dict() for one in found] if several else found[0].to_dict()


def _written(form: str, found: Sequence[Difference], several: bool) -> str:
    from perfpass.deploy.difference.junit import junit
    from perfpass.deploy.difference.sarif import sarif

    if form == "junit":
        return junit(found)
    if form in ("json", "sarif"):
        value = sarif(found) if form == "sarif" else _json(found, several)
        return json.dumps(value, indent=2, allow_nan=False) + "\n"
    if form == "markdown":
        return "\n".join(one.to_markdown() for one in found)
    return "".join(f"{one}\n" for one in found)


def _pair(text: str) -> tuple[str, str]:
    """NAME=VALUE."""
    import argparse

    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, got {text!r}")
    return name, value
