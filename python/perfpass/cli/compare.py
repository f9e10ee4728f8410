"""`perfpass compare`: one ONNX file through several readers, and what every difference is."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfpass.cli.options import add_model, model_sizes, new_command, onnx_file
from perfpass.errors import ArgumentError, FileError, UnsupportedError, about
from perfpass.json_text import read_json
from perfpass.text import unknown
from perfpass.whole_file import write_whole

if TYPE_CHECKING:
    from perfpass.graph.difference import Summary
    from perfpass.importers.readers import Reader

_EPILOG = """\
MODEL is an ONNX file. The first reader is what the others are compared with; one that is not installed or refuses
the model is named and left out. All but `file` read the weights. See docs/internals/readers.md.

examples:
  perfpass compare model.onnx                                      file, onnxruntime, relay and relax, where installed
  perfpass compare model.onnx --readers file,relax --python relax=venv/bin/python --explain
  perfpass compare model.onnx --readers relax --export relax.json  in another environment, then here:
  perfpass compare model.onnx --readers file --summary relax.json"""

_LARGEST_SUMMARY_BYTES = 2**28


def add(commands: Any) -> None:
    """The command's options."""
    command = new_command(
        commands,
        "compare",
        run,
        "read a model by several tools, and explain every difference between their graphs",
        _EPILOG,
    )
    add_model(command, assumes=False)
    command.add_argument(
        "--readers", action="append", default=[], metavar="R,..", help="file, onnxruntime, relay, relax (default: all)"
    )
    command.add_argument(
        "--python", action="append", default=[], type=_pair, metavar="R=PYTHON", help="run a reader in another Python"
    )
    command.add_argument("--summary", action="append", default=[], metavar="FILE", help="a graph that --export wrote")
    command.add_argument("--export", metavar="FILE", help="write the graph of one reader, and stop")
    command.add_argument("--explain", action="store_true", help="also name the nodes of every difference")
    command.add_argument("--json", action="store_true", help="JSON on stdout instead of tables, with all names")


def run(options: Any) -> int:
    """Reads, compares, prints; a reader that is not there is named and left out."""
    from perfpass.cli.compare_table import table
    from perfpass.graph.difference import Summary, compare
    from perfpass.importers import readers

    options.model = onnx_file(
        options, "`perfpass compare`, whose readers share one file,", "export it to ONNX (torch.onnx.export) first"
    )
    known = readers.names()
    wanted = [name for part in options.readers or known for name in part.split(",") if name]
    strange = [name for name in wanted if name not in known]
    if strange or not wanted:
        raise ArgumentError(unknown("reader", ", ".join(strange), known))
    if options.export is not None:
        if len(wanted) != 1:
            raise ArgumentError(f"--export writes the graph of one reader, but --readers names {len(wanted)}")
        _write(options.export, _summary(options, wanted[0]).to_dict())
        return 0
    summaries: list[Summary] = []
    missing: dict[str, str] = {}
    for name in dict.fromkeys(wanted):
        try:
            summaries.append(_summary(options, name))
        except UnsupportedError as error:
            missing[name] = str(error)
    summaries += [Summary.from_dict(_read(path)) for path in options.summary]
    if not summaries:
        raise UnsupportedError("; ".join(f"{name}: {why}" for name, why in missing.items()))
    found = [compare(summaries[0], other) for other in summaries[1:]]
    if options.json:
        facts = {"missing": missing, "comparisons": [one.to_dict() for one in found]}
        json.dump(facts, sys.stdout, indent=2)
        print()
    else:
        print(table(Path(options.model).name, summaries, found, missing, options.explain))
    return 0


def _pair(text: str) -> tuple[str, str]:
    """READER=PYTHON."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"expected READER=PYTHON, got {text!r}")
    return name, value


def _summary(options: Any, name: str) -> Summary:
    from perfpass.graph.difference import summarise
    from perfpass.importers import readers

    reader = readers.reader(name)
    pythons = dict(options.python)
    if name in pythons:
        return _elsewhere(options, reader, pythons[name])
    sizes = model_sizes(options)
    sizes["input_shapes"] = sizes.pop("input_shape")
    with about(options.model):
        graph, version = reader.read_file(options.model, sizes)
        return summarise(graph, name, version)


def _elsewhere(options: Any, reader: Reader, python: str) -> Summary:
    """The reader in another Python: the same code, found by PYTHONPATH; importing its module registers the reader."""
    import perfpass
    from perfpass.graph.difference import Summary
    from perfpass.importers import readers

    module, folder = readers.home(reader)
    folders = dict.fromkeys((str(Path(perfpass.__file__).resolve().parent.parent), str(folder)))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    given = [f"--dim={name}={size}" for name, size in (model_sizes(options)["dims"] or {}).items()]
    given += [f"--input-shape={name}={'x'.join(map(str, shape))}" for name, shape in options.input_shape]
    given += [] if options.batch is None else [f"--batch={options.batch}"]
    program = f"import sys, {module}; from perfpass.cli import main; sys.exit(main())"
    with tempfile.TemporaryDirectory(prefix="perfpass-") as scratch:
        target = os.path.join(scratch, "summary.json")
        command = [python, "-c", program, "compare", options.model, "--readers", reader.name, "--export", target]
        try:
            done = subprocess.run([*command, *given], env=environment, capture_output=True, text=True, check=False)
        except OSError as error:
            raise FileError(f"{python}: cannot be started: {error.strerror}") from error
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1].removeprefix("perfpass: error: ")
            raise UnsupportedError(f"{python}: {last}")
        return Summary.from_dict(_read(target))


def _read(path: str) -> Any:
    way_out = "write it with `perfpass compare --export`"
    return read_json(path, "a graph summary", _LARGEST_SUMMARY_BYTES, way_out=way_out)


def _write(path: str, value: Any) -> None:
    write_whole(path, json.dumps(value, allow_nan=False))
