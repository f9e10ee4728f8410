"""The resident process of `perfpass serve --socket`: the same answer, byte by byte, or none of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from perfpass.cli import asking

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")

EXAMPLES = Path(__file__).parents[2] / "examples"
QUESTIONS = (
    ["predict", "resnet50.onnx", "--device", "a100"],
    ["predict", "resnet50.onnx", "--device", "t4", "--mode", "training", "--json"],
    ["predict", "vit_base_patch16_224.onnx", "--device", "cpu", "--runtime", "onnxruntime", "--explain"],
    ["predict", "resnet50.onnx", "--device", "mine"],  # of a device file that PERFPASS_DEVICES names
    ["inspect", "resnet50.onnx"],
    ["devices", "t4"],
    ["predict", "none.onnx", "--device", "t4"],
    ["predict", "resnet50.onnx", "--device", "nonsense"],
    ["predict", "--help"],
    ["predict", "--no-such-option"],
)


def command(*words: str, **environment: str) -> tuple[int, bytes, bytes]:
    """Exit code, stdout and stderr of a command, run among the examples."""
    here = {**os.environ, "PERFPASS_DEVICES": str(EXAMPLES / "custom_device.toml"), **environment}
    done = subprocess.run(
        [sys.executable, "-m", "perfpass", *words], capture_output=True, env=here, cwd=EXAMPLES, timeout=300
    )
    return done.returncode, done.stdout, done.stderr


def listening(path: Path) -> subprocess.Popen[bytes]:
    """A resident process that answers on ``path``."""
    words = [sys.executable, "-m", "perfpass", "serve", "--socket", str(path)]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, cwd="/")
    assert process.stderr is not None
    assert process.stderr.readline() == f"perfpass answers on {path}\n".encode()
    return process


@pytest.fixture(scope="module")
def place():
    folder = Path(tempfile.mkdtemp(dir="/tmp"))  # the path of a socket has 100 characters
    yield folder / "perfpass.sock"
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def resident(place):
    process = listening(place)
    yield process
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 0
    assert not place.exists()
    assert process.stderr.read() == b""


def children(process: subprocess.Popen[bytes]) -> float:
    """Seconds of processor that the children of a process took, whose ends it saw."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("words", QUESTIONS, ids=" ".join)
def test_the_answer_is_that_of_a_process_of_its_own(resident, place, words):
    alone = command(*words, PERFPASS_SOCKET="")
    assert command(*words, PERFPASS_SOCKET=str(place)) == alone


def test_a_question_is_answered_by_the_resident_process(resident, place):
    before = children(resident)
    for _ in range(5):
        command("predict", "resnet50.onnx", "--device", "a100", PERFPASS_SOCKET=str(place))
    assert children(resident) > before


def test_questions_at_once_do_not_meet(resident, place):
    words = [["predict", "resnet50.onnx", "--device", "t4", "--batch", str(n)] for n in range(1, 7)]
    here = {**os.environ, "PERFPASS_SOCKET": str(place)}
    running = [
        subprocess.Popen([sys.executable, "-m", "perfpass", *w], stdout=subprocess.PIPE, env=here, cwd=EXAMPLES)
        for w in words
    ]
    for n, process in enumerate(running, 1):
        assert f"batch {n}," in process.communicate()[0].decode()


def test_only_this_user_can_ask(resident, place):
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    place.chmod(0o660)
    try:
        assert not asking.owned(str(place))
    finally:
        place.chmod(0o600)
    assert asking.owned(str(place))
    assert not asking.owned(str(place.parent))


@pytest.mark.parametrize(
    "change",
    [
        {"identity": ["0.0.0"]},
        {"words": ["serve"]},
        {"words": []},
        {},
    ],
    ids=["another version", "a command that is not handed", "no command", "no files"],
)
def test_what_is_not_of_the_same_code_is_sent_away(resident, place, change):
    question = {"identity": asking.identity(), "words": ["devices"], "folder": "/", "environment": {}, "umask": 18}
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(place))
        content = json.dumps({**question, "streams": [["utf-8", "strict", False]] * 3, **change}).encode() + b"\n"
        line.sendall(content)
        if not change:
            assert line.recv(1) == asking.ACCEPTED
            line.sendall(b"\n")
        assert line.recv(1) == b""


def test_damaged_questions_end_no_process(resident, place):
    for content in (b"", b"\n", b"{}\n", b"\xff\n", b"[" * 5000 + b"\n", b"no end"):
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(place))
            line.sendall(content)
    assert command("devices", "t4", PERFPASS_SOCKET=str(place))[0] == 0
    assert resident.poll() is None


def test_a_second_process_is_refused_on_the_same_socket(resident, place):
    code, _, said = command("serve", "--socket", str(place))
    assert code == 2 and b"another process answers there" in said


def test_a_socket_that_was_left_behind_is_none_and_is_taken_over(place):
    path = place.with_name("left.sock")
    process = listening(path)
    process.kill()
    process.wait()
    process.stderr.close()
    assert path.exists()
    words = ("devices", "t4")
    assert command(*words, PERFPASS_SOCKET=str(path)) == command(*words, PERFPASS_SOCKET="")
    again = listening(path)
    again.terminate()
    assert again.wait(timeout=60) == 0
    again.stderr.close()
    assert not path.exists()


def test_a_socket_that_never_answers_costs_half_a_second(place):
    path = place.with_name("silent.sock")
    with socket.socket(socket.AF_UNIX) as door:
        before = os.umask(0o177)
        door.bind(str(path))
        os.umask(before)
        door.listen(1)
        words = ("devices", "t4")
        assert command(*words, PERFPASS_SOCKET=str(path)) == command(*words, PERFPASS_SOCKET="")
    path.unlink()


def test_who_goes_away_takes_the_command_along(resident, place):
    here = {**os.environ, "PERFPASS_SOCKET": str(place)}
    read, write = os.pipe()
    words = [sys.executable, "-m", "perfpass", "devices"]
    with subprocess.Popen(words, stdout=write, env=here) as process:
        os.close(write)
        os.read(read, 1)
        process.kill()
    os.close(read)
    deadline = time.monotonic() + 60
    while Path(f"/proc/{resident.pid}/task/{resident.pid}/children").read_text().split():
        assert time.monotonic() < deadline, "the command of one who has gone still runs"
        time.sleep(0.05)


def test_without_a_place_the_command_says_where_one_is_named():
    code, _, said = command("serve", "--socket", PERFPASS_SOCKET="", XDG_RUNTIME_DIR="")
    assert code == 2 and b"PERFPASS_SOCKET" in said
