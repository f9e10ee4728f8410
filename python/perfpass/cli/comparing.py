"""`perfpass compare`: one ONNX file through several readers, and what every difference is."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfpass.errors import ArgumentError, FileError, FormatError, UnsupportedError

if TYPE_CHECKING:
    from perfpass.graph import OpGraph
    from perfpass.graph.difference import Comparison, Difference, Summary

READERS = ("file", "onnxruntime", "relay", "relax")
_NAMES_SHOWN = 6
_MOST_WHAT = 34


def run(options: Any) -> int:
    """Reads, compares, prints; a reader that is not there is named and left out."""
    from perfpass.graph.difference import Summary, compare

    readers = [name for part in options.readers or READERS for name in part.split(",") if name]
    unknown = [name for name in readers if name not in READERS]
    if unknown or not readers:
        raise ArgumentError(f"unknown reader {', '.join(unknown) or 'of no name'}; allowed are {', '.join(READERS)}")
    pythons = dict(options.python)
    if options.export is not None:
        if len(readers) != 1:
            raise ArgumentError(f"--export writes the graph of one reader, but --readers names {len(readers)}")
        _write(options.export, _summary(options, readers[0], pythons).to_dict())
        return 0
    summaries: list[Summary] = []
    missing: dict[str, str] = {}
    for name in dict.fromkeys(readers):
        try:
            summaries.append(_summary(options, name, pythons))
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


def _summary(options: Any, reader: str, pythons: dict[str, str]) -> Summary:
    if reader in pythons:
        return _elsewhere(options, reader, pythons[reader])
    from perfpass.graph.difference import summarise

    graph, version = _READ[reader](options)
    return summarise(graph, reader, version)


def _shapes(options: Any) -> dict[str, Any]:
    from perfpass.cli.options import once

    return {
        "dims": once(options.dim, "--dim"),
        "input_shapes": once(options.input_shape, "--input-shape"),
        "batch": options.batch,
    }


def _from_file(options: Any) -> tuple[OpGraph, str]:
    from perfpass import __version__
    from perfpass.importers import onnx

    return onnx.read(options.model, **_shapes(options)), __version__


def _from_onnxruntime(options: Any) -> tuple[OpGraph, str]:
    from ort_extension.partition import optimised_graph

    graph = optimised_graph(options.model, _shapes(options))
    import onnxruntime

    return graph, str(onnxruntime.__version__)


def _from_relay(options: Any) -> tuple[OpGraph, str]:
    with _tvm() as version:
        from tvm_perfpass.onnx_model import relay_graph

        return relay_graph(options.model, _input_shapes(options)), version


def _from_relax(options: Any) -> tuple[OpGraph, str]:
    with _tvm() as version:
        from tvm_perfpass.onnx_model import relax_graph

        return relax_graph(options.model, _input_shapes(options)), version


_READ: dict[str, Callable[[Any], tuple[OpGraph, str]]] = {
    "file": _from_file,
    "onnxruntime": _from_onnxruntime,
    "relay": _from_relay,
    "relax": _from_relax,
}


@contextlib.contextmanager
def _tvm() -> Iterator[str]:
    """TVM's version; its frontends print what they could not convert, which is no result of ours."""
    os.environ.setdefault("TOPHUB_LOCATION", "NONE")  # no download of tuning logs
    try:
        import onnx  # noqa: F401
        import tvm
    except ImportError as error:
        raise UnsupportedError(
            f"the package {error.name} is not installed here; --python READER=PYTHON names one"
        ) from error
    with contextlib.redirect_stdout(io.StringIO()):
        yield str(tvm.__version__)


def _input_shapes(options: Any) -> dict[str, list[int]]:
    """Whole shapes of all inputs, with the sizes that were given."""
    graph, _ = _from_file(options)
    return {graph.string(int(graph.tensor_name[t])): list(graph.shape(int(t))) for t in graph.graph_inputs}


def _elsewhere(options: Any, reader: str, python: str) -> Summary:
    """The reader in another Python: the same code, found by PYTHONPATH."""
    from perfpass.graph.difference import Summary

    folders = dict.fromkeys(str(Path(path).resolve()) for path in _own_folders())
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    given = [f"--dim={name}={size}" for name, size in options.dim]
    given += [f"--input-shape={name}={'x'.join(map(str, shape))}" for name, shape in options.input_shape]
    given += [] if options.batch is None else [f"--batch={options.batch}"]
    with tempfile.TemporaryDirectory(prefix="perfpass-") as folder:
        target = os.path.join(folder, "summary.json")
        command = [python, "-m", "perfpass", "compare", options.model, "--readers", reader, "--export", target, *given]
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        except OSError as error:
            raise FileError(f"{python}: cannot be started: {error.strerror}") from error
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1].removeprefix("perfpass: error: ")
            raise UnsupportedError(f"{python}: {last}")
        return Summary.from_dict(_read(target))


def _own_folders() -> Iterator[Path]:
    import perfpass

    yield Path(perfpass.__file__).parent.parent
    from importlib.util import find_spec

    for name in ("tvm_perfpass", "ort_extension"):
        spec = find_spec(name)
        if spec is not None and spec.origin:
            yield Path(spec.origin).parent.parent


def _read(path: str) -> Any:
    try:
        return json.loads(Path(path).read_bytes())
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: no graph summary of `perfpass compare --export`: {error}") from error


def _write(path: str, value: Any) -> None:
    try:
        Path(path).write_text(json.dumps(value, allow_nan=False))
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {error.strerror}") from error


def table(model: str, summaries: list[Summary], found: list[Comparison], missing: dict[str, str], explain: bool) -> str:
    """Features of every reader, and the differences from the first by kind."""
    from perfpass.graph.difference import FEATURES
    from perfpass.text import columns, paragraph, printable

    rows: list[tuple[str, ...]] = [("", *(f"{s.reader} {s.version}".strip() for s in summaries))]
    rows += [(name, *(_value(s.totals[name], summaries[0].totals[name]) for s in summaries)) for name in FEATURES]
    lines = [f"{printable(model)}, read by {len(summaries)}", "", columns(rows, right=range(1, len(rows[0])))]
    for one in found:
        aligned = f"{one.aligned} operators have their like"
        lines += ["", f"{one.reference} and {one.other}: {aligned}, {len(one.unexplained)} differences unexplained"]
        kinds: list[tuple[str, ...]] = [("difference", "what", "times", "nodes", "FLOPs", "bytes")]
        kinds += [_row(d) for d in (*one.differences, *one.unexplained)]
        lines.append(columns(kinds, right=(2, 3, 4, 5)) if len(kinds) > 1 else "  no difference")
        if explain:
            lines += [paragraph("", _explained(d)) for d in (*one.differences, *one.unexplained)]
    lines += [paragraph("left out", f"{name}: {why}") for name, why in missing.items()]
    return "\n".join(lines)


def _value(value: int, reference: int) -> str:
    return f"{value:,}" if value == reference or not reference else f"{value:,} ({value / reference:.3g}x)"


def _row(d: Difference) -> tuple[str, ...]:
    from perfpass.text import printable

    what = printable(d.what)
    shown = what if len(what) <= _MOST_WHAT else what[: _MOST_WHAT - 3] + "..."
    nodes = f"{len(d.reference_nodes)} to {len(d.other_nodes)}"
    return d.kind, shown, str(d.count), nodes, f"{d.flops:+.3g}", f"{d.moved_bytes:+.3g}"


def _explained(d: Difference) -> str:
    return f"{d.kind}, {d.what[:60]}: {_names(d.reference_nodes)} -> {_names(d.other_nodes)}"


def _names(names: list[str]) -> str:
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return (", ".join(names[:_NAMES_SHOWN]) or "nothing") + more
