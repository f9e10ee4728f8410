"""Large ONNX files are read without their tensor data: the same answers, in memory that the weights do not decide."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hostile_files
from hostile_files import field, graph, model, node, tensor, value, varint
from perfpass import _core, errors
from perfpass.graph import OpGraph
from perfpass.importers import onnx as importer

SKIMMING = _core.OnnxLimits()
SKIMMING.whole_file = 0

# Peak memory of a process that reads a file, in bytes; without a file, of the imports.
PEAK = """
import re, sys
from perfpass.importers import onnx
for path in sys.argv[1:]:
    onnx.read(path)
print(int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) * 1024)
"""


def outcome(read) -> object:  # type: ignore[no-untyped-def]
    """Everything that a graph holds, or the error's class and message."""
    try:
        found = OpGraph(read())
    except errors.PerfPassError as e:
        return type(e).__name__, str(e)
    names = [found.label(n) for n in range(found.node_count)]
    columns = (found.op, found.inputs, found.dims, found.tensor_dtype, found.tensor_role, found.edge_tensor)
    return names, [np.asarray(column).tolist() for column in columns]


def both(data: bytes, path: Path, **options: object) -> tuple[object, object]:
    """What reading gives from memory, and from a file without its tensor data."""
    path.write_bytes(data)
    return (
        outcome(lambda: _core.read_onnx_bytes(data, **options)),
        outcome(lambda: _core.read_onnx_file(os.fsencode(path), limits=SKIMMING, **options)),
    )


@pytest.mark.parametrize("hostile", hostile_files.FILES, ids=lambda h: h.name)
def test_skimmed_files_give_the_same_graph_or_error(hostile: hostile_files.Hostile, tmp_path: Path) -> None:
    memory, file = both(hostile.build(), tmp_path / "model.onnx")
    assert file == memory


def test_a_skimmed_file_keeps_what_shapes_need(tmp_path: Path) -> None:
    memory, file = both(hostile_files.weighted_network(), tmp_path / "model.onnx", dims={"batch": 1})
    assert isinstance(memory[0], list), memory  # type: ignore[index]
    assert file == memory


def test_damage_to_a_skimmed_file_gives_the_same_error(tmp_path: Path) -> None:
    rng = random.Random(3)
    good = hostile_files.weighted_network()
    path = tmp_path / "model.onnx"
    differing = 0
    for run in range(1_500):
        data = bytearray(good)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(data))
            edit = rng.randrange(4)
            if edit == 0:
                data[at] ^= 1 << rng.randrange(8)
            elif edit == 1:
                del data[at : at + rng.randint(1, 8)]
            elif edit == 2:
                data[at:at] = rng.randbytes(rng.randint(1, 8))
            else:
                del data[at:]
                data.append(0)
        memory, file = both(bytes(data), path, dims={"batch": 1})
        if file != memory:
            # Only what a list holds that is too long for what it says to be; what is found is an error in both.
            assert isinstance(memory[0], str), run  # type: ignore[index]
            assert isinstance(file[0], str), run  # type: ignore[index]
            differing += 1
    assert differing < 15


def weighted_file(path: Path, weight_bytes: int) -> Path:
    """One MatMul whose weight of so many bytes lies inside the file, as a hole that takes no room on the disk."""
    rows = weight_bytes // 4096
    head = tensor("w", [1024, rows])
    before = field(1, node("MatMul", ["x", "w"], ["y"])) + field(11, value("x", [2, 1024])) + field(12, field(1, "y"))
    payload = varint(9 << 3 | 2) + varint(weight_bytes)
    weight = varint(5 << 3 | 2) + varint(len(head) + len(payload) + weight_bytes) + head + payload
    graph_head = varint(7 << 3 | 2) + varint(len(before) + len(weight) + weight_bytes)
    opset = field(8, field(1, "") + field(2, 17))
    with path.open("wb") as file:
        file.write(field(1, 8) + graph_head + before + weight)
        file.seek(weight_bytes, os.SEEK_CUR)
        file.write(opset)
    return path


def bytes_read() -> int:
    """Bytes that this process has asked the kernel for so far."""
    return int(Path("/proc/self/io").read_text().split()[1])


def peak_bytes(*paths: Path) -> int:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    run = subprocess.run(
        [sys.executable, "-c", PEAK, *map(str, paths)], check=True, capture_output=True, text=True, env=environment
    )
    return int(run.stdout)


def test_three_gigabytes_inside_the_file_are_neither_read_nor_held(tmp_path: Path) -> None:
    path = weighted_file(tmp_path / "model.onnx", 3 << 30)
    assert path.stat().st_size > 3 << 30
    before = bytes_read()
    found = importer.read(path)
    assert bytes_read() - before < 1 << 20
    assert found.shape(found.node_outputs(0)[0]) == (2, (3 << 30) // 4096)
    assert peak_bytes(path) - peak_bytes() < 8e6


def test_memory_of_real_weights_is_not_made_resident(tmp_path: Path) -> None:
    """Written weights, in the page cache, are what a mapping would make resident around each header."""
    weights = [tensor(f"w{i}", [256, 256]) + field(9, bytes([i]) * (4 << 16)) for i in range(200)]
    nodes = [node("MatMul", [f"t{i}", f"w{i}"], [f"t{i + 1}"]) for i in range(200)]
    path = tmp_path / "model.onnx"
    path.write_bytes(model(graph(nodes, [value("t0", [1, 256])], [field(1, "t200")], weights)))
    assert path.stat().st_size > 50e6
    assert peak_bytes(path) - peak_bytes() < 8e6


def test_the_place_of_damage_behind_large_weights_is_its_place_in_the_file(tmp_path: Path) -> None:
    path = weighted_file(tmp_path / "model.onnx", 64 << 20)
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(b"\x0f")
    with pytest.raises(errors.FormatError, match=re.escape(f"(at byte {size})")):
        importer.read(path)
