"""The resident process of `perfpass serve --socket`: everything imported and read once, a fork for every question.

A child runs the very command with the arguments, folder, environment and open files of whoever asks, and ends: so an
answer is that of a process of its own, byte by byte, no question sees another's, and memory stays flat.
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
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from perfpass.cli import asking
from perfpass.errors import ArgumentError, FileError, UnsupportedError

_LARGEST_QUESTION = 1 << 20  # bytes; arguments and environment
_MOST_AT_ONCE = 64  # whoever comes then runs its command itself
_PATIENCE_S = 0.5
_BOARD = "a100-sxm4-80gb"
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
    from perfpass.cli import parser
    from perfpass.devices import device, lookup
    from perfpass.prediction import prediction_table
    from perfpass.predictors.assemble import predict
    from perfpass.predictors.inference.analytic import AnalyticPredictor
    from perfpass.predictors.inference.cpu import CpuPredictor
    from perfpass.predictors.inference.engines import EngineTimes
    from perfpass.predictors.inference.operators import OperatorTimes
    from perfpass.predictors.inference.predictor import InferencePredictor
    from perfpass.predictors.memory.host import HostMemory
    from perfpass.predictors.memory.predictor import MemoryPredictor
    from perfpass.predictors.training_step.predictor import StepPredictor

    for command in parser.COMMANDS:
        if command.replace("_", "-") in asking.HANDED:
            import_module(f"perfpass.cli.{command}")
    lookup.read_beforehand()
    for predictor in (InferencePredictor, StepPredictor):
        predictor.load().read_beforehand()
    for each in (AnalyticPredictor, CpuPredictor, EngineTimes, OperatorTimes, HostMemory, MemoryPredictor):
        each.load()
    # What is made at first use is made here: classes, patterns, modules imported inside functions.
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


class _Resident:
    def __init__(self, path: str) -> None:
        self._path = path
        self._files: list[str] = []
        self._states: list[tuple[int, int]] = []
        self._asking: dict[int, socket.socket] = {}  # by the process of the child
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
            print(f"perfpass answers on {self._path}", file=sys.stderr, flush=True)
            while not self._ending:
                watched: list[Any] = [door, woken, *self._asking.values()]
                ready, _, _ = select.select(watched, [], [])
                if woken in ready:
                    os.read(woken, 4096)
                self._bury()
                for child, line in list(self._asking.items()):
                    if line in ready and child in self._asking:
                        os.kill(child, signal.SIGKILL)  # who asked has gone
                if door in ready:
                    self._answer(door)
        finally:
            door.close()
            with contextlib.suppress(OSError):
                os.unlink(self._path)
            for child in self._asking:
                with contextlib.suppress(OSError):
                    os.kill(child, signal.SIGKILL)
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
        return door

    def _bury(self) -> None:
        """Tells those who ask what their command ended with."""
        while self._asking:
            child, status = os.waitpid(-1, os.WNOHANG)
            if child == 0:
                return
            line = self._asking.pop(child)
            with contextlib.suppress(OSError):
                if os.WIFEXITED(status):
                    line.sendall(b"%d\n" % os.WEXITSTATUS(status))
            line.close()

    def _answer(self, door: socket.socket) -> None:
        line, _ = door.accept()
        files: list[int] = []
        try:
            line.settimeout(_PATIENCE_S)
            if len(self._asking) >= _MOST_AT_ONCE or not asking.same_user(line):
                raise ValueError
            content = line.recv(1 << 16)
            while not content.endswith(b"\n"):
                more = line.recv(1 << 16)
                if not more or len(content) > _LARGEST_QUESTION:
                    raise ValueError
                content += more
            question = json.loads(content)
            if question["identity"] != asking.identity() or question["words"][0] not in asking.HANDED:
                raise ValueError
            if _states(self._files) != self._states:  # installed or edited since: what is in memory is another's
                raise ValueError
            line.sendall(asking.ACCEPTED)
            _, files, _, _ = socket.recv_fds(line, 1, 3)
            if len(files) != 3:
                raise ValueError
            child = os.fork()
            if child == 0:
                _run(question, files, [door, line, *self._asking.values()])
            self._asking[child] = line
        except Exception:  # whatever was asked: who asked runs it
            line.close()
        finally:
            for file in files:
                os.close(file)


def _run(question: dict[str, Any], files: list[int], inherited: list[socket.socket]) -> NoReturn:
    """The command, in the child; never returns."""
    code = asking.EXIT_INTERNAL
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        for line in inherited:
            line.close()
        for place, file in enumerate(files):
            os.dup2(file, place)
            os.close(file)
        os.environ.clear()
        os.environ.update(question["environment"])
        sys.path[:] = question["path"]
        os.umask(question["umask"])
        os.chdir(question["folder"])
        modes = ("r", "w", "w")
        for name, place, mode, (encoding, errors, lines) in zip(
            ("stdin", "stdout", "stderr"), range(3), modes, question["streams"], strict=True
        ):
            stream: Any = open(place, mode, -1, encoding, errors)  # noqa: SIM115 - it stays open
            stream.reconfigure(line_buffering=lines)
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)
        sys.argv = ["perfpass", *question["words"]]
        from perfpass.cli.entry import main

        try:
            code = main(question["words"])
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else 0 if left.code is None else 1
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # as the interpreter ends: PERFPASS_DEBUG=1 lets it through
        code = 1
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
    finally:
        os._exit(code)
