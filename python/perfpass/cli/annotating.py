"""`perfpass annotate`: predictions into the metadata of an ONNX file, shown, or taken out again."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfpass.errors import ArgumentError

if TYPE_CHECKING:
    from perfpass.annotation.file import Found


def run(options: Any, runtime: str | None) -> int:
    """Annotates, shows or removes; ``runtime`` is that of the prediction."""
    from perfpass.annotation import file as annotated_file

    if options.show or options.remove:
        if options.device or (options.show and options.output):
            raise ArgumentError("--show takes no --device and no -o, --remove no --device")
        return _show(options) if options.show else _remove(options)
    if not options.device:
        raise ArgumentError("give --device NAME to predict for, --show or --remove; see `perfpass annotate --help`")
    from perfpass.cli.options import once
    from perfpass.devices import add_file, device

    for path in options.device_file:
        add_file(path)
    annotated_file.annotate(
        options.model,
        [device(name) for name in options.device],
        options.output,
        batch=options.batch,
        input_shape=once(options.input_shape, "--input-shape"),
        precision=options.precision,
        mode=options.mode,
        runtime=runtime,
        layout=options.layout,
        optimizer=options.optimizer,
        dims=once(options.dim, "--dim"),
        calibration=not options.no_calibration,
        processes=options.processes,
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
        json.dump({**facts, "interrupted": found.interrupted}, sys.stdout, indent=2, allow_nan=False)
        print()
    else:
        print(table(Path(path).name, found))


def table(name: str, found: Found) -> str:
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
