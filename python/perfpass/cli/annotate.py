"""`perfpass annotate`: predictions into the metadata of an ONNX file, shown, or taken out again."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfpass.cli.options import (
    add_json,
    add_limits,
    add_model,
    add_workload,
    find_device,
    limits,
    model_sizes,
    new_command,
    onnx_file,
    print_json,
    workload,
)
from perfpass.errors import ArgumentError

if TYPE_CHECKING:
    from perfpass.annotation.file import Found

_EPILOG = """\
MODEL is an ONNX file. Its weights are neither read nor rewritten: some kilobytes of metadata are appended, which
ONNX Runtime (custom_metadata_map), onnx.checker and Netron show. Annotating again replaces the prediction for the
same device; predictions for several devices stand side by side. See docs/reference/annotate-format.md.

With each goes the decision: the probabilities that the run fits and keeps --latency, --memory and --energy, on the
device and in each of its MIG slices, which `perfpass pack --from` reads.

examples:
  perfpass annotate model.onnx --device a100-80gb --device l4 --dim batch=8
  perfpass annotate model.onnx --device a100-80gb --latency 20 --confidence 0.95
  perfpass annotate model.onnx --device h100 --precision fp16 --runtime onnxruntime -o annotated.onnx
  perfpass annotate model.onnx --show
  perfpass annotate model.onnx --remove                            the file is what it was, byte for byte"""


def add(commands: Any) -> None:
    """The command's options."""
    command = new_command(commands, "annotate", run, "write the prediction into an ONNX file's metadata", _EPILOG)
    add_model(command)
    command.add_argument(
        "--device",
        action="append",
        default=[],
        metavar="NAME",
        help="device to predict for; may be given more than once",
    )
    add_workload(command)
    add_limits(command)
    command.add_argument("-o", "--output", metavar="FILE", help="write a copy instead of changing the file")
    what = command.add_mutually_exclusive_group()
    what.add_argument("--show", action="store_true", help="show the predictions that the file holds")
    what.add_argument("--remove", action="store_true", help="take the metadata out again")
    add_json(command, "a table")


def run(options: Any) -> int:
    """Annotates, shows or removes."""
    from perfpass.annotation import file as annotated_file

    options.model = onnx_file(
        options,
        "`perfpass annotate` writes into a file: it",
        "export it to ONNX (torch.onnx.export) and annotate that file, or keep `perfpass predict --json` beside it",
    )
    if options.show or options.remove:
        if options.device or (options.show and options.output):
            raise ArgumentError("--show takes no --device and no -o, --remove no --device")
        return _show(options) if options.show else _remove(options)
    if not options.device:
        raise ArgumentError("give --device NAME to predict for, --show or --remove; see `perfpass annotate --help`")
    how = workload(options)
    annotated_file.annotate(
        options.model,
        [find_device(options, name) for name in options.device],
        options.output,
        **model_sizes(options),
        **how,
        limits=limits(options),
    )
    _print(options.output or options.model, options.json)
    if options.output is not None:
        _warn_of_external_data(options.model, options.output)
    return 0


def _show(options: Any) -> int:
    _print(options.model, options.json)
    return 0


def _remove(options: Any) -> int:
    from perfpass.annotation import file as annotated_file
    from perfpass.text import printable

    removed = annotated_file.remove(options.model, options.output)
    name = printable(Path(options.output or options.model).name)
    if options.json:
        json.dump({"removed": removed}, sys.stdout)
        print()
    else:
        print(f"{name}: metadata removed" if removed else f"{name}: there was no metadata of perfpass")
    return 0


def _print(path: str, as_json: bool) -> None:
    from perfpass.annotation import file as annotated_file

    found = annotated_file.read(path)
    if as_json:
        facts = {"predictions": found.annotation.predictions, "stale": list(found.stale)}
        print_json({**facts, "interrupted": found.interrupted})
    else:
        print(_table(Path(path).name, found))


def _table(name: str, found: Found) -> str:
    """What a file holds, for people."""
    from perfpass.text import columns, digits, paragraph, printable, size

    rows = [("device", "latency ms", "90% interval", "memory up to", "J/run", "workload", "support")]
    for device, p in found.annotation.predictions.items():
        latency, workload = p["latency_ms"], p["workload"]
        rows.append(
            (
                printable(device),
                digits(latency["median"]),
                f"{digits(latency['low'])} to {digits(latency['high'])}",
                size(p["peak_memory_bytes"]["high"]),
                digits(p["energy_j"]["median"]),
                printable(" ".join(["batch", *(str(workload[k]) for k in ("batch", "precision", "runtime"))])),
                printable(p["support"]["level"]),
            )
        )
    lines = [f"{printable(name)}: {len(rows) - 1} prediction{'s' * (len(rows) != 2)} in its metadata"]
    lines += ["", columns(rows, right=(1, 3, 4))] if len(rows) > 1 else []
    decisions = found.annotation.decisions.values()
    lines += ["", *(paragraph("decision", one.headline) for one in decisions)] if decisions else []
    if found.stale:
        lines.append(paragraph("stale", f"made from a file of another size: {', '.join(found.stale)}; annotate again"))
    if found.interrupted:
        lines.append(paragraph("damaged", "an interrupted write left bytes behind; annotate again, or --remove"))
    return "\n".join(lines)


def _warn_of_external_data(model: str, output: str) -> None:
    """External weights are found beside the model file: a copy elsewhere needs them too."""
    from perfpass.annotation.file import external_data

    source, target = Path(model).resolve().parent, Path(output).resolve().parent
    names = [name for name in external_data(model) if source != target and not (target / name).exists()]
    if names:
        print(
            f"perfpass: the copy's weights are expected in {target}: {', '.join(names[:3])}"
            f"{' and others' if len(names) > 3 else ''}; link or copy them from {source}",
            file=sys.stderr,
        )
