"""A program that tests run in a mount namespace of its own: campaigns and writers on a small file system that is full.

    unshare --mount [--map-root-user] python tests/measure/full_file_system.py campaign|writers PLACE

Mounts a tmpfs at PLACE anew for every case and prints one JSON list of what happened. A campaign's measurements are
made up (its worker is), everything else is that of `perfpass measure`.
"""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.errors import FileError

SIZE_BYTES = 2**19
PAGE_BYTES = 4096
BATCHES = list(range(1, 21))
PADDING = "x" * 700  # a record's usual length


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


@contextlib.contextmanager
def file_system(place: Path) -> Iterator[Path]:
    mount("-t", "tmpfs", "-o", f"size={SIZE_BYTES},nr_inodes=40", "tmpfs", str(place))
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def fill(place: Path, pages: int) -> Path:
    """Leave room for so many pages."""
    filler = place / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(bytes(PAGE_BYTES)) == PAGE_BYTES:
            pass
    with filler.open("r+b") as file:
        file.truncate(max(0, filler.stat().st_size // PAGE_BYTES - pages) * PAGE_BYTES)
    return filler


class MadeUp:
    """A worker whose answers are there at once."""

    def __init__(self, devices: list[str], log: Path) -> None:
        self.waiting: list[Any] = []

    def facts(self) -> dict[str, Any]:
        return {"cpu": {"id": "here"}}

    def describe(self, name: str) -> dict[str, Any]:
        return {"id": "here", "capability": {"notes": PADDING[:300]}}

    def submit(self, name: str, configuration: Any, protocol: Any) -> None:
        self.waiting.append((name, configuration))

    def collect(self) -> list[Any]:
        from perfpass.measure.pool import Measured

        name, configuration = self.waiting.pop()
        record = {"key": configuration.key, "environment": "here", "status": "ok", "message": PADDING}
        return [Measured(name, {**record, "configuration": configuration.to_dict()})]

    def close(self) -> None:
        pass


def measure(folder: Path) -> tuple[int, str]:
    """The exit code of `perfpass measure` and what it says on stderr."""
    from perfpass.cli import main

    said = io.StringIO()
    batches = ",".join(map(str, BATCHES))
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        code = main(["measure", "timm:resnet18", "--batch", batches, "-o", str(folder)])
    return code, said.getvalue()


def campaign(place: Path) -> Iterator[dict[str, Any]]:
    """A campaign with room for so many pages, on a read-only file system, without a name left; then with room."""
    from perfpass.measure import local
    from perfpass.measure.journal import read

    local.LocalPool = MadeUp  # type: ignore[assignment,misc]
    for case in (*range(6), "read-only", "no names"):
        with file_system(place):
            folder = place / "records"
            if case == "read-only":
                mount("-o", "remount,ro", str(place))
            elif case == "no names":
                names = [place / str(i) for i in range(100)]
                with contextlib.suppress(OSError):
                    for name in names:
                        name.touch()
            else:
                fill(place, int(case))
            code, said = measure(folder)
            path = folder / "records.jsonl"
            before = path.read_bytes() if path.exists() else b""
            records = len(read(path).records) if path.exists() else 0
            if case == "read-only":
                mount("-o", "remount,rw", str(place))
            for leftover in place.glob("[f0-9]*"):
                leftover.unlink()
            code_then, said_then = measure(folder)
            content = read(path)
            yield {
                "case": case,
                "code": code,
                "said": said,
                "records": records,
                "code_then": code_then,
                "said_then": said_then,
                "kept": path.read_bytes().startswith(before[: before.rfind(b"\n") + 1]),
                "batches": sorted(record["configuration"]["batch"] for record in content.records),
                "facts": path.read_bytes().count(b'{"kind":"facts"'),
                "torn_bytes": content.torn_bytes,
                "files": sorted(found.name for found in folder.iterdir()),
            }


def writers() -> dict[str, Callable[[Path, int], object]]:
    """By name: writes some ``size`` bytes under a folder."""
    import pandas
    from matplotlib.figure import Figure

    from ort_extension.partition import NodeStatistics, Partition
    from perfpass.features import Features, save
    from perfpass.measure.roofline import figure
    from perfpass.predictors.calibration import posterior
    from perfpass.predictors.learned import artefacts
    from perfpass.records import schema
    from perfpass.study.table import Cell, Journal
    from perfpass.whole_file import append_line, write_whole

    random = np.random.default_rng(0)

    def features(size: int) -> Features:
        values = random.normal(size=(size // 4, 1)).astype(np.float32)
        return Features(values, np.zeros((2, 0), np.int32), np.zeros(1, np.float32), ("a",), ("b",), "operator", 1)

    def calibration(folder: Path, size: int) -> object:
        n = size // 60
        names, traits = ("inference",) * n, np.full((n, len(posterior.TRAITS)), np.nan)
        drawn = random.normal(size=n)
        found = posterior.Calibration("l4", "gpu", {"inference": "0"}, names, names, traits, drawn)
        return posterior.write(found, folder)

    def partition(folder: Path, size: int) -> object:
        nodes = tuple(NodeStatistics(f"node{i}", 0, 0, i, 0) for i in range(size // 16))
        return Partition(nodes, 1000, "file", "", 0).write(folder / "model.csv")

    def records(folder: Path, size: int) -> object:
        table = pandas.DataFrame({"model": [str(value) for value in random.normal(size=size // 8)]})
        return schema.write(folder / "records.parquet", "vision", table)

    def drawing(folder: Path, size: int) -> object:
        drawn = Figure()
        drawn.subplots().plot(random.normal(size=size // 8))
        return figure.save(drawn, folder / "figure.svg")

    def comparison(folder: Path, size: int) -> object:
        kept = Journal(folder / "journal.jsonl")
        kept.open()
        return kept.add(Cell("a", "b", "c"), {"value": 1}, {"test": random.normal(size=size // 8)})

    return {
        "text": lambda folder, size: write_whole(folder / "text.json", "x" * size),
        "line": lambda folder, size: append_line(folder / "lines.jsonl", json.dumps({"text": "x" * size})),
        "features.npz": lambda folder, size: save(features(size), folder / "features.npz"),
        "features.safetensors": lambda folder, size: save(features(size), folder / "features.safetensors"),
        "artefact": lambda folder, size: artefacts.write(folder / "artefact", {}, {"a.bin": bytes(size)}),
        "manifest": lambda folder, size: manifest(folder / "artefact", size),
        "calibration": calibration,
        "partition": partition,
        "records": records,
        "figure": drawing,
        "comparison": comparison,
        "annotation": lambda folder, size: annotate(folder / "model.onnx", size),
        "annotated copy": lambda folder, size: annotated_copy(folder, size),
    }


def manifest(folder: Path, size: int) -> None:
    from perfpass.predictors.learned import artefacts

    if not folder.exists():
        artefacts.write(folder, {}, {"a.bin": b"a"})
    artefacts.annotate(folder, {"note": "x" * size})


def model_of(path: Path, weights: int) -> Path:
    """A product, if it is not there yet."""
    if not path.exists():
        import onnx
        from onnx import TensorProto, helper

        ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, weights]) for name in ("x", "y")]
        weight = helper.make_tensor("w", TensorProto.FLOAT, [1, weights], np.zeros(weights, np.float32))
        graph = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"])], "g", ends[:1], ends[1:], [weight])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def annotate(path: Path, size: int) -> None:
    """In place, for more devices where more is to be written."""
    import perfpass

    for device in ("l4", "t4", "a100", "h100")[: 1 if size < PAGE_BYTES else 4]:
        perfpass.annotate(model_of(path, 8), device)


def annotated_copy(folder: Path, size: int) -> None:
    """A copy of two pages and more that takes the place of another."""
    import perfpass

    perfpass.annotate(
        model_of(folder / "model.onnx", 2048), "l4" if size < PAGE_BYTES else "h100", folder / "copy.onnx"
    )


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def writing(place: Path) -> Iterator[dict[str, Any]]:
    """Every writer writes a little, then much where there is room for so many pages, then much with room."""
    for name, write in writers().items():
        for pages in (0, 1):
            with file_system(place):
                folder = place / "folder"
                folder.mkdir()
                write(folder, 100)
                before, said = contents(folder), ""
                filler = fill(place, pages)
                try:
                    write(folder, 5 * PAGE_BYTES)
                except FileError as error:
                    said = str(error)
                after = contents(folder)
                filler.unlink()
                write(folder, 5 * PAGE_BYTES)
                yield {
                    "case": f"{name}, {pages} pages",
                    "said": said,
                    "as_before": after == before,
                    "differs": sorted(path for path in {*after, *before} if after.get(path) != before.get(path)),
                    "then": sorted(contents(folder)),
                }


if __name__ == "__main__":
    what, where = sys.argv[1:]
    print(json.dumps(list({"campaign": campaign, "writers": writing}[what](Path(where)))))
