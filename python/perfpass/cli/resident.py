"""The resident process of `perfpass serve --socket`: everything imported and read once, a fork for every question.

A child runs the very command with the arguments, folder, environment and open files of whoever asks, and ends: so an
answer is that of a process of its own, byte by byte, no question sees another's, and memory stays flat. One child is
forked before it is asked and has answered a fixed question: what it writes to is its own already. It takes the next
question at the door itself, so that nobody waits for this process to have its turn.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from perfpass import __version__
from perfpass.cli import asking
from perfpass.errors import ArgumentError, FileError, UnsupportedError

_LARGEST_QUESTION = 1 << 20  # bytes; arguments and environment
_MOST_AT_ONCE = 64  # whoever comes then runs its command itself
_PATIENCE_S = 0.5
_BOARD = "a100"  # a name of several boards, of a product with few records of each: what that takes is made as well
# y = Relu(x) of 1 x 4 floats, as an ONNX file.
_MODEL = bytes.fromhex(
    "08083a3b0a0c0a0178120179220452656c751201675a130a0178120e0a0c080112080a0208010a02080462130a01"
    "79120e0a0c080112080a0208010a02080442040a001011"
)


def serve(path: str) -> None:
    """Answers on the socket ``path``, which it makes, until SIGTERM or SIGINT.

    Raises UnsupportedError where the system has no fork, ArgumentError where another process listens there, and
    FileError where the socket cannot be made.
    """
    if not hasattr(os, "fork"):
        raise UnsupportedError("a resident process needs fork, which this system has not; use `perfpass serve`")
    _Resident(path).run()


def _read_beforehand() -> None:
    """What questions need whatever they ask, and no file of the user or variable of the environment decides."""
    from perfpass import late
    from perfpass.cli import parser
    from perfpass.devices import lookup
    from perfpass.predictors.inference.analytic import AnalyticPredictor
    from perfpass.predictors.inference.cpu import CpuPredictor
    from perfpass.predictors.inference.engines import EngineTimes
    from perfpass.predictors.inference.operators import OperatorTimes
    from perfpass.predictors.inference.predictor import InferencePredictor
    from perfpass.predictors.memory.host import HostMemory
    from perfpass.predictors.memory.predictor import MemoryPredictor
    from perfpass.predictors.training_step.predictor import StepPredictor

    late.without_delay()
    for command in parser.COMMANDS:
        if command.replace("_", "-") in asking.HANDED:
            import_module(f"perfpass.cli.{command}")
    lookup.read_beforehand()
    for predictor in (InferencePredictor, StepPredictor):
        predictor.load().read_beforehand()
    for each in (AnalyticPredictor, CpuPredictor, EngineTimes, OperatorTimes, HostMemory, MemoryPredictor):
        each.load()
    _answer_once()


def _answer_once() -> None:
    """Makes what is made at first use (classes, patterns, modules imported inside functions).

    In a child: also its own copies of the pages that an answer writes to, which take longer than the answer.
    """
    from perfpass.cli import parser
    from perfpass.devices import device
    from perfpass.prediction import prediction_table
    from perfpass.predictors.assemble import predict

    for mode, runtime in (("inference", "torch"), ("inference", "tensorrt"), ("training", "torch")):
        found = predict(_MODEL, device(_BOARD), mode=mode, runtime=runtime, calibration=False)
        prediction_table(found)
        json.dumps(found.to_dict())
    parser.build_parser(["predict"]).parse_args(["predict", "model", "--device", _BOARD])


def _files() -> list[str]:
    """The files of perfpass that may be in memory: modules that are imported, and whatever is no module."""
    ours = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] == "perfpass"]
    home = Path(asking.__file__).resolve().parents[1]
    data = (str(path) for path in home.rglob("*") if path.suffix not in (".py", ".pyc") and path.is_file())
    return [*filter(None, (getattr(module, "__file__", None) for module in ours)), *data]


def _states(files: list[str]) -> list[tuple[int, int]]:
    """When each file was written, and its size. Raises OSError where one has gone."""
    return [(found.st_mtime_ns, found.st_size) for found in map(os.stat, files)]


@dataclass(frozen=True)
class _Question:
    """What `asking` hands over; ``path`` and ``streams`` are empty where this process's own stand for them."""

    identity: list[str]
    words: list[str]
    folder: str
    umask: int
    environment: dict[bytes, bytes]
    path: list[str]
    streams: list[str]

    @classmethod
    def of(cls, content: bytes) -> _Question:
        """Raises ValueError."""
        identity, words, (folder, umask), environment, path, streams = asking.unpacked(content)
        texts = [[os.fsdecode(text) for text in section] for section in (identity, words, path, streams)]
        pairs = (variable.partition(b"=") for variable in environment)
        variables = {name: value for name, _, value in pairs if name}
        return cls(texts[0], texts[1], os.fsdecode(folder), int(umask), variables, texts[2], texts[3])


class _Start:
    """How this process was started, which has to be the same for whoever asks."""

    def __init__(self) -> None:
        self._identity = asking.identity()
        # A compiled client can tell neither flags nor encodings: the script beside it, run as it is, has those of this
        # process where it is that script's and the environment's variables for them are the same.
        plain = sys.orig_argv[1:2] == sys.argv[:1] and None not in (sys.stdin, sys.stdout, sys.stderr)
        self._beside = [__version__, os.path.realpath(sys.argv[0])] if plain else None
        self._environment = _of_python(os.environb)
        streams = (sys.stdin, sys.stdout, sys.stderr) if plain else ()
        self._streams = [(stream.encoding, stream.errors or "strict") for stream in streams]

    def is_of(self, question: _Question) -> bool:
        """Whether a process of who asks would be as this one."""
        if question.identity == self._identity:
            return len(question.streams) == 9
        return question.identity == self._beside and _of_python(question.environment) == self._environment

    def streams(self, question: _Question) -> list[tuple[str, str, bool]]:
        """Encoding, handling of errors and whether lines are written at once, of stdin, stdout and stderr."""
        if told := question.streams:
            return [(told[at], told[at + 1], bool(told[at + 2])) for at in (0, 3, 6)]
        lines = [os.isatty(place) or place == 2 for place in range(3)]
        return [(encoding, errors, each) for (encoding, errors), each in zip(self._streams, lines, strict=True)]


def _of_python(environment: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    return {name: value for name, value in environment.items() if name.startswith((b"PYTHON", b"LC_", b"LANG"))}


class _Resident:
    def __init__(self, path: str) -> None:
        self._path = path
        self._start = _Start()
        self._files: list[str] = []
        self._states: list[tuple[int, int]] = []
        self._asking: dict[int, socket.socket] = {}  # by the process of the child
        self._standby: _Standby | None = None
        self._ending = False

    def run(self) -> None:
        _read_beforehand()
        self._files = _files()
        self._states = _states(self._files)
        gc.collect()
        gc.freeze()  # what is there stays shared with the children
        woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) if hasattr(os, "pipe2") else os.pipe()
        os.set_blocking(wake, False)
        before = signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        door = self._door()
        try:
            self._standby = self._stand_by(door)
            print(f"perfpass answers on {self._path}", file=sys.stderr, flush=True)
            while not self._ending:
                standby = self._standby
                watched: list[Any] = [woken, *self._asking.values()]
                if standby is not None:
                    watched.append(standby.line)
                if standby is None or not standby.is_ready:  # else that child takes whoever comes
                    watched.append(door)
                ready, _, _ = select.select(watched, [], [])
                if woken in ready:
                    os.read(woken, 4096)
                if standby is not None and standby.line in ready:
                    self._hear(standby)
                ended = self._bury()
                for child, line in list(self._asking.items()):
                    if line in ready and child in self._asking:
                        os.kill(child, signal.SIGKILL)  # who asked has gone
                if door in ready:
                    self._answer(door)
                elif ended and self._standby is None and not self._asking:  # while nobody waits for a processor
                    self._standby = self._stand_by(door)
        finally:
            door.close()
            with contextlib.suppress(OSError):
                os.unlink(self._path)
            for child in self._asking:
                with contextlib.suppress(OSError):
                    os.kill(child, signal.SIGKILL)
            if self._standby is not None:
                self._standby.line.close()  # which ends it
            signal.set_wakeup_fd(before)
            gc.unfreeze()  # or the core's objects outlive the interpreter

    def _end(self, *_: Any) -> None:
        self._ending = True

    def _door(self) -> socket.socket:
        door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            if asking.owned(self._path):
                with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
                    if other.connect_ex(self._path) == 0:
                        raise ArgumentError(f"{self._path}: another process answers there; end it, or name another")
                os.unlink(self._path)  # left by one that was killed
            door.bind(self._path)
        except OSError as error:
            raise FileError(f"{self._path}: no socket can be made: {error.strerror or error}") from error
        finally:
            os.umask(before)
        door.listen(_MOST_AT_ONCE)
        door.setblocking(False)  # a child may be quicker
        return door

    def _bury(self) -> bool:
        """Ends the connections of commands that have ended; whether there were any."""
        ended = False
        while self._asking or self._standby is not None:
            child, _ = os.waitpid(-1, os.WNOHANG)
            if child == 0:
                break
            if self._standby is not None and child == self._standby.child:
                ended = ended or self._standby.is_ready
                self._standby.line.close()
                self._standby = None
            elif line := self._asking.pop(child, None):
                line.close()
                ended = True
        return ended

    def _stand_by(self, door: socket.socket) -> _Standby | None:
        """A child that has answered once and waits at the door; None where there can be no further process."""
        line, other = socket.socketpair()
        child = _forked()
        if child is None:
            line.close()
            other.close()
            return None
        if child == 0:
            self._wait(other, door, line)
        other.close()
        return _Standby(child, line)

    def _hear(self, standby: _Standby) -> None:
        """The child says that it is ready, or gives the connection of whom it answers."""
        word, lines, _, _ = socket.recv_fds(standby.line, 1, 1)
        if lines:
            self._asking[standby.child] = socket.socket(fileno=lines[0])
            standby.line.close()
            self._standby = None
        elif word:
            standby.is_ready = True

    def _wait(self, resident: socket.socket, door: socket.socket, other: socket.socket) -> NoReturn:
        """In the child: answers once, then the question that comes; ends with the resident process."""
        try:
            _as_child([other])
            _answer_once()
            resident.sendall(asking.ACCEPTED)
            taken = None
            while taken is None:
                ready, _, _ = select.select([door, resident], [], [])
                if resident in ready:
                    os._exit(0)
                taken = self._taken(door)
            question, line, files = taken
            socket.send_fds(resident, [asking.ACCEPTED], [line.fileno()])
        except BaseException:
            os._exit(asking.EXIT_INTERNAL)
        _run(question, self._start, line, files, [door, resident])

    def _taken(self, door: socket.socket) -> tuple[_Question, socket.socket, list[int]] | None:
        """A question of somebody at the door, the connection and three streams; None where it is not answered here."""
        try:
            line, _ = door.accept()
        except BlockingIOError:  # another process of ours was quicker
            return None
        files: list[int] = []
        try:
            line.settimeout(_PATIENCE_S)
            if len(self._asking) >= _MOST_AT_ONCE or not asking.same_user(line):
                raise ValueError
            question = _Question.of(_received(line))
            if not self._start.is_of(question) or question.words[0] not in asking.HANDED:
                raise ValueError
            if _states(self._files) != self._states:  # installed or edited since: what is in memory is another's
                raise ValueError
            line.sendall(asking.ACCEPTED)
            _, files, _, _ = socket.recv_fds(line, 1, 3)
            if len(files) != 3:
                raise ValueError
        except Exception:  # whatever was asked: who asked runs it
            line.close()
            for file in files:
                os.close(file)
            return None
        return question, line, files

    def _answer(self, door: socket.socket) -> None:
        """Has a new process answer: no child is ready."""
        taken = self._taken(door)
        if taken is None:
            return
        question, line, files = taken
        child = _forked()
        if child == 0:
            inherited = [door, *self._asking.values(), *([self._standby.line] if self._standby else [])]
            _run(question, self._start, line, files, inherited)
        if child is None:
            line.close()
        else:
            self._asking[child] = line
        for file in files:
            os.close(file)


@dataclass
class _Standby:
    """A child that takes the next question itself, once it is ready; at the other end of ``line``."""

    child: int
    line: socket.socket
    is_ready: bool = False


def _forked() -> int | None:
    """As of os.fork; None where the system makes no further process, which is no reason to end this one."""
    try:
        return os.fork()
    except OSError:
        return None


def _as_child(inherited: list[socket.socket]) -> None:
    """Leaves the signals and connections of the resident process to it."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    for line in inherited:
        line.close()


def _received(line: socket.socket) -> bytes:
    """A question without its length, which comes within the patience for it. Raises OSError and ValueError."""
    until = time.monotonic() + _PATIENCE_S
    told, end, content = line.recv(1 << 16).partition(b"\n")
    size = int(told) if end else -1
    if not 0 <= size <= _LARGEST_QUESTION:
        raise ValueError("no question, or a large one")
    while len(content) < size:
        line.settimeout(max(until - time.monotonic(), 0.0))
        more = line.recv(1 << 16)
        if not more:
            raise ValueError("the question ends early")
        content += more
    line.settimeout(_PATIENCE_S)
    return content


def _run(
    question: _Question, start: _Start, line: socket.socket, files: list[int], inherited: list[socket.socket]
) -> NoReturn:
    """The command, in the child; never returns."""
    code = asking.EXIT_INTERNAL
    try:
        _as_child(inherited)
        for place, file in enumerate(files):
            os.dup2(file, place)
            os.close(file)
        os.environ.clear()
        os.environb.update(question.environment)
        sys.path[:] = question.path or sys.path
        os.umask(question.umask)
        os.chdir(question.folder)
        modes = ("r", "w", "w")
        for name, place, mode, (encoding, errors, lines) in zip(
            ("stdin", "stdout", "stderr"), range(3), modes, start.streams(question), strict=True
        ):
            stream: Any = open(place, mode, -1, encoding, errors)  # noqa: SIM115 - it stays open
            stream.reconfigure(line_buffering=lines)
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)
        sys.argv = ["perfpass", *question.words]
        from perfpass.cli.running import run

        try:
            code = run(question.words)
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else 0 if left.code is None else 1
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # as the interpreter ends: PERFPASS_DEBUG=1 lets it through
        code = 1
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
    finally:
        with contextlib.suppress(OSError):
            os.closerange(0, 3)  # whoever reads them waits for nothing more, while this process ends
            line.sendall(b"%d\n" % (code & 0xFF))
        os._exit(code)
