"""The resident process of `perfpass serve --socket`: the same answer, byte by byte, or none of it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfpass
from perfpass.cli import asking

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")

EXAMPLES = Path(__file__).parents[2] / "examples"
CLIENT = Path(__file__).parents[2] / "cpp_kernels" / "client" / "ask.cpp"
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


# One that has imported a further module of perfpass, from a file that a test may change.
BROUGHT = """
import sys, types
module = types.ModuleType("perfpass.brought")
module.__file__ = sys.argv.pop(1)
sys.modules[module.__name__] = module
from perfpass.cli import main
sys.exit(main())
"""


# One that can make no further process.
ALONE = """
import os, sys
def fork():
    raise BlockingIOError(11, "Resource temporarily unavailable")
os.fork = fork
from perfpass.cli import main
sys.exit(main())
"""


def listening(path: Path, *program: str) -> subprocess.Popen[bytes]:
    """A resident process that answers on ``path``."""
    words = [*(program or (sys.executable, "-m", "perfpass")), "serve", "--socket", str(path)]
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


def question(
    identity: list[str] | None = None, words: Sequence[str] = ("devices",), environment: Sequence[str] = ()
) -> bytes:
    """What `asking.ask` sends."""
    streams = ("utf-8", "strict", "") * 3
    return asking.packed(identity or asking.identity(), words, ("/", "18"), environment, sys.path, streams)


@pytest.mark.parametrize(
    "change",
    [{"identity": ["0.0.0"]}, {"words": ["serve"]}, {"words": []}, {}],
    ids=["another version", "a command that is not handed", "no command", "no files"],
)
def test_what_is_not_of_the_same_code_is_sent_away(resident, place, change):
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(place))
        line.sendall(question(**change))
        if not change:
            assert line.recv(1) == asking.ACCEPTED
            line.sendall(b"\n")
        assert line.recv(1) == b""


@given(st.lists(st.lists(st.binary(max_size=20).map(lambda text: text.replace(b"\0", b"")), max_size=5), max_size=7))
def test_a_question_is_read_as_it_was_packed(sections):
    length, _, content = asking.packed(*sections).partition(b"\n")
    assert int(length) == len(content) and asking.unpacked(content) == sections


@given(st.binary(max_size=60))
def test_sections_that_do_not_fit_are_refused(content):
    try:
        found = asking.unpacked(content)
    except ValueError:
        return
    assert asking.packed(*found).partition(b"\n")[2].count(b"\0") == content.count(b"\0")


def accepted(path: Path) -> bool:
    """Whether a resident process says that it takes a question."""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(path))
        line.sendall(question())
        return line.recv(1) == asking.ACCEPTED


def test_one_whose_code_has_changed_on_the_disk_answers_no_more(place, tmp_path):
    code, path = tmp_path / "brought.py", place.with_name("changed.sock")
    code.write_text("A = 1\n")
    with listening(path, sys.executable, "-c", BROUGHT, str(code)) as process:
        try:
            assert accepted(path)
            code.write_text("A = 1\nB = 2\n")
            assert not accepted(path)
            code.unlink()
            assert not accepted(path)
        finally:
            process.terminate()


def test_modules_are_looked_for_where_who_asks_has_them(resident, place, tmp_path):
    (tmp_path / "brought-1.dist-info").mkdir()
    (tmp_path / "brought-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: brought\nVersion: 1\n")
    (tmp_path / "brought-1.dist-info" / "entry_points.txt").write_text("[perfpass.readers]\nbrought = brought:READER\n")
    here = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    words = ("compare", "resnet50.onnx", "--readers", "nonsense")
    alone = command(*words, PERFPASS_SOCKET="", PYTHONPATH=here)
    assert b"brought" in alone[2]
    assert command(*words, PERFPASS_SOCKET=str(place), PYTHONPATH=here) == alone


def test_a_traceback_that_is_asked_for_is_shown(resident, place):
    words = ("predict", "none.onnx", "--device", "t4")
    code, _, alone = command(*words, PERFPASS_SOCKET="", PERFPASS_DEBUG="1")
    found, _, said = command(*words, PERFPASS_SOCKET=str(place), PERFPASS_DEBUG="1")
    assert found == code == 1
    assert said.splitlines()[-1] == alone.splitlines()[-1] and said.startswith(b"Traceback")


def test_a_command_that_was_killed_is_run_by_nobody_else(tmp_path):
    path = tmp_path / "ends.sock"
    with socket.socket(socket.AF_UNIX) as door:
        before = os.umask(0o177)
        door.bind(str(path))
        os.umask(before)
        door.listen(1)
        here = {**os.environ, "PERFPASS_SOCKET": str(path)}
        words = [sys.executable, "-m", "perfpass", "devices", "t4"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=here) as process:
            line, _ = door.accept()
            with line:
                line.recv(1 << 20)
                line.sendall(asking.ACCEPTED)
                # Its files stay unread: so the other end sees a reset, as of a process that was killed.
                socket.socket.recv(line, 1, socket.MSG_PEEK)
            said, complained = process.communicate()
    assert (process.returncode, said) == (asking.EXIT_INTERNAL, b"") and b"ended without an answer" in complained


def test_damaged_questions_end_no_process(resident, place):
    whole = question()
    endless = b"4\n9\0a\0"
    for content in (b"", b"\n", b"-1\n", b"\xff\n", b"9" * 5000 + b"\n", b"no end", b"0\n", endless, whole[:-20]):
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(place))
            line.sendall(content)
    assert command("devices", "t4", PERFPASS_SOCKET=str(place))[0] == 0
    assert resident.poll() is None


def test_a_question_that_comes_in_crumbs_is_sent_away(resident, place):
    whole, deadline = question(), time.monotonic() + 20
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(place))
        line.sendall(whole[:10])
        with pytest.raises(OSError):  # the connection is closed at the other end
            for at in range(10, len(whole)):
                assert time.monotonic() < deadline, "others have waited for 20 seconds"
                line.sendall(whole[at : at + 1])
                time.sleep(0.2)


def test_one_that_can_make_no_process_says_so_to_who_asks_and_goes_on(place):
    path = place.with_name("alone.sock")
    process = listening(path, sys.executable, "-c", ALONE)
    for _ in range(2):
        code, said, complained = command("devices", "t4", PERFPASS_SOCKET=str(path))
        assert (code, said) == (asking.EXIT_INTERNAL, b"") and b"ended without an answer" in complained
    process.terminate()
    assert process.wait(timeout=60) == 0
    assert process.stderr.read() == b""
    process.stderr.close()


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
    while len(Path(f"/proc/{resident.pid}/task/{resident.pid}/children").read_text().split()) > 1:  # one stands by
        assert time.monotonic() < deadline, "the command of one who has gone still runs"
        time.sleep(0.05)


def standing_by(process: subprocess.Popen[bytes]) -> int:
    """The child that waits for the next question of a resident process."""
    deadline = time.monotonic() + 60
    while len(found := Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()) != 1:
        assert time.monotonic() < deadline, f"no child stands by: {found}"
        time.sleep(0.05)
    return int(found[0])


def test_a_child_that_stands_by_answers_and_another_takes_its_place(resident, place):
    alone = command("devices", "t4", PERFPASS_SOCKET="")
    first, deadline = standing_by(resident), time.monotonic() + 60
    while standing_by(resident) == first:  # until it has answered once, others are made to answer
        assert command("devices", "t4", PERFPASS_SOCKET=str(place)) == alone
        assert time.monotonic() < deadline
    second = standing_by(resident)
    os.kill(second, signal.SIGKILL)
    assert command("devices", "t4", PERFPASS_SOCKET=str(place)) == alone
    assert standing_by(resident) != second


def test_a_child_that_stands_by_takes_a_question_without_the_resident_process(resident, place):
    """That one is stopped meanwhile: nobody waits until it has its turn."""
    standing_by(resident)
    deadline, word = time.monotonic() + 60, b""
    while word != asking.ACCEPTED:  # until the child is ready nobody takes it
        assert time.monotonic() < deadline, "nobody but the resident process takes a question"
        time.sleep(0.2)
        resident.send_signal(signal.SIGSTOP)
        try:
            with socket.socket(socket.AF_UNIX) as line:
                line.settimeout(2)
                line.connect(str(place))
                line.sendall(question())
                with contextlib.suppress(TimeoutError):
                    word = line.recv(1)
        finally:
            resident.send_signal(signal.SIGCONT)
    assert command("devices", "t4", PERFPASS_SOCKET=str(place))[0] == 0


@pytest.fixture(scope="module")
def client(place):
    """The compiled client beside a script `perfpass`, as they are installed."""
    if sys.platform != "linux" or shutil.which("c++") is None:
        pytest.skip("no compiler")
    folder = place.parent
    words = ("-std=c++20", "-Wall", "-Wextra", "-Werror", f'-DPERFPASS_VERSION="{perfpass.__version__}"')
    program = folder / "perfpass-ask"
    subprocess.run(["c++", *words, str(CLIENT), "-o", str(program)], check=True)
    script = folder / "perfpass"
    script.write_text(f"#!{sys.executable}\nimport sys\nfrom perfpass.cli import main\nsys.exit(main())\n")
    script.chmod(0o755)
    return program


@pytest.fixture(scope="module")
def of_the_script(client, place):
    """A resident process of the script beside the client."""
    path = place.with_name("script.sock")
    with listening(path, str(client.with_name("perfpass"))) as process:
        yield path
        process.terminate()


def asked_by(client: Path, *words: str, **environment: str) -> tuple[int, bytes, bytes]:
    """As `command`, by the compiled client."""
    here = {**os.environ, "PERFPASS_DEVICES": str(EXAMPLES / "custom_device.toml"), **environment}
    done = subprocess.run([str(client), *words], capture_output=True, env=here, cwd=EXAMPLES, timeout=300)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("words", QUESTIONS, ids=" ".join)
def test_the_compiled_client_gets_the_answer_of_a_process_of_its_own(client, of_the_script, words):
    assert asked_by(client, *words, PERFPASS_SOCKET=str(of_the_script)) == command(*words, PERFPASS_SOCKET="")


def test_the_compiled_client_starts_no_python_where_a_resident_process_answers(client, of_the_script):
    script = client.with_name("perfpass")
    script.chmod(0o644)  # cannot be run
    try:
        assert asked_by(client, "devices", "t4", PERFPASS_SOCKET=str(of_the_script))[0] == 0
        # Whatever Python reads at its start may differ from what the resident process has read.
        code, _, said = asked_by(client, "devices", "t4", PERFPASS_SOCKET=str(of_the_script), PYTHONOPTIMIZE="1")
        assert code == 127 and b"cannot be run" in said
        assert asked_by(client, "devices", "t4", PERFPASS_SOCKET="")[0] == 127
    finally:
        script.chmod(0o755)


def test_the_compiled_client_leaves_other_commands_to_the_script(client, of_the_script):
    code, said, _ = asked_by(client, "--version", PERFPASS_SOCKET=str(of_the_script))
    assert (code, said.decode()) == (0, f"perfpass {perfpass.__version__}\n")


def test_without_a_place_the_command_says_where_one_is_named():
    code, _, said = command("serve", "--socket", PERFPASS_SOCKET="", XDG_RUNTIME_DIR="")
    assert code == 2 and b"PERFPASS_SOCKET" in said
