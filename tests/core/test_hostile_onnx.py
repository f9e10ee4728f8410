"""Broken and hostile files give one typed error of one line, in under a second and under 200 MB."""

from __future__ import annotations

import ctypes
import json
import os
import random
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

import hostile_files
from perfpass import errors
from perfpass.importers import onnx as importer

MEGABYTES = 200.0

# One process imports the library once and forks a child per file: the child's peak memory and time are the reader's.
READ_EACH = """
import json, os, resource, sys
from perfpass.errors import PerfPassError
from perfpass.importers import onnx

for path in sys.stdin.read().splitlines():
    sys.stdout.flush()
    child = os.fork()
    if child:
        status = os.waitpid(child, 0)[1]
        if status:
            print(json.dumps({"path": path, "error": f"the process died with status {status}"}), flush=True)
        continue
    # Seconds of the processor, for files that would be read without end: the kernel then ends the child.
    resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
    found = {"path": path, "error": "", "message": ""}
    try:
        onnx.read(path)
    except PerfPassError as e:
        found |= {"error": type(e).__name__, "message": str(e)}
    found["megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(json.dumps(found), flush=True)
    os._exit(0)
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    """What reading each file gave, by the file's name."""
    directory = tmp_path_factory.mktemp("hostile")
    paths = hostile_files.write(directory)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    run = subprocess.run(
        [sys.executable, "-c", READ_EACH],
        input="\n".join(map(str, paths)),
        capture_output=True,
        text=True,
        env=environment,
        timeout=1800,
    )
    assert run.returncode == 0, run.stderr
    return {Path(row["path"]).stem: row for row in map(json.loads, run.stdout.splitlines())}


@pytest.mark.parametrize("hostile", hostile_files.FILES, ids=lambda h: h.name)
def test_gives_one_clear_error_in_little_memory(hostile: hostile_files.Hostile, outcomes: dict) -> None:
    found = outcomes[hostile.name]
    if hostile.error == "*":  # refused, whether as a size past the bound or as a shape that cannot be
        assert found["error"] in ("LimitError", "ShapeError"), found
    else:
        assert found["error"] == hostile.error, found
    if hostile.error:
        assert re.search(hostile.says, found["message"]), found["message"]
        assert "\n" not in found["message"]
        assert 10 < len(found["message"]) < 1_200
        assert found["message"].isprintable()
    assert found["megabytes"] < MEGABYTES


def test_there_are_enough_of_them() -> None:
    assert sum(1 for hostile in hostile_files.FILES if hostile.error) >= 45


def test_good_models_of_the_corpus_are_read() -> None:
    assert importer.read(hostile_files.plain()).node_count == 3
    graph = importer.read(hostile_files.small_network(), batch=2)
    assert sorted(graph.op_name(n) for n in range(graph.node_count)) == sorted(
        ["conv", "relu", "neg", "conditional", "identity", "sigmoid", "loop", "tanh", "reshape"]
    )


@pytest.mark.parametrize("name", ["plain", "small_network"])
def test_any_single_flipped_bit_gives_a_graph_or_a_typed_error(name: str) -> None:
    good = getattr(hostile_files, name)()
    for bit in range(len(good) * 8):
        data = bytearray(good)
        data[bit // 8] ^= 1 << bit % 8
        try:
            importer.read(data, batch=2 if name == "small_network" else None)
        except errors.PerfPassError as e:
            assert str(e)


def test_every_truncation_gives_a_typed_error() -> None:
    good = hostile_files.small_network()
    opset = len(hostile_files.model(b"")) - len(hostile_files.model(b"", opset=None))
    for length in range(len(good)):
        try:
            importer.read(good[:length], batch=2)
        except errors.PerfPassError:
            continue
        # What is cut is the function, the opset or a later field: never the graph.
        assert length > len(good) - opset - 60


def test_random_edits_give_a_graph_or_a_typed_error() -> None:
    rng = random.Random(11)
    seeds = [hostile_files.plain(), hostile_files.small_network()]
    for _ in range(3_000):
        data = bytearray(rng.choice(seeds))
        for _ in range(rng.randint(1, 6)):
            at = rng.randrange(len(data))
            edit = rng.randrange(4)
            if edit == 0:
                data[at] = rng.randrange(256)
            elif edit == 1:
                del data[at : at + rng.randint(1, 8)]
            elif edit == 2:
                data[at:at] = data[at : at + rng.randint(1, 30)]
            else:
                data[at:at] = struct.pack("<Q", rng.getrandbits(64))[: rng.randint(1, 8)]
        try:
            importer.read(bytes(data), batch=2)
        except errors.PerfPassError as e:
            assert str(e)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("directory", "directory"),
        ("pipe", "pipe"),
        ("loop", "symbolic links"),
        ("missing", "No such file"),
        ("file/below", "Not a directory"),
        ("n" * 300, "too long"),
    ],
)
def test_what_is_no_file_is_named(name: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").write_bytes(b"x")
    os.mkfifo(tmp_path / "pipe")  # opening a pipe that nobody writes must not wait
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(errors.FileError, match=says):
        importer.read(tmp_path / name)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "secret.onnx"
    path.write_bytes(hostile_files.plain())
    path.chmod(0)
    with pytest.raises(errors.FileError, match="Permission denied"):
        importer.read(path)


def test_a_path_with_a_zero_byte_or_not_utf_8_is_a_file_error() -> None:
    with pytest.raises(errors.FileError, match="zero byte"):
        importer.read("a\0b.onnx")
    with pytest.raises(errors.FileError, match=r"\\xff"):
        importer.read("/nowhere/\udcff.onnx")


def test_external_data_is_never_opened(tmp_path: Path) -> None:
    data = tmp_path / "weights.bin"
    data.write_bytes(bytes(6 * 4 * 3 * 3 * 4))
    model = tmp_path / "model.onnx"
    model.write_bytes(hostile_files._external("weights.bin"))
    libc = ctypes.CDLL(None, use_errno=True)
    watch = libc.inotify_init1(os.O_NONBLOCK)
    assert watch >= 0
    try:
        everything_but_changes = 0x01 | 0x20  # IN_ACCESS | IN_OPEN
        assert libc.inotify_add_watch(watch, os.fsencode(data), everything_but_changes) >= 0
        graph = importer.read(model)
        with pytest.raises(BlockingIOError):
            os.read(watch, 4096)
        data.read_bytes()  # the watch does see an access
        assert os.read(watch, 4096)
    finally:
        os.close(watch)
    weight = next(t for t in range(graph.tensor_count) if graph.tensor_role[t] == 2)
    assert graph.shape(weight) == (6, 4, 3, 3)


def test_limits_can_be_tightened() -> None:
    from perfpass import _core

    limits = _core.OnnxLimits()
    limits.file_bytes = 10
    with pytest.raises(errors.LimitError, match="at most 10"):
        _core.read_onnx_bytes(hostile_files.plain(), limits=limits)
    limits = _core.OnnxLimits()
    limits.nodes = 2
    with pytest.raises(errors.LimitError, match="3 nodes"):
        _core.read_onnx_bytes(hostile_files.plain(), limits=limits)
