"""A worker process on this machine: measures what it is sent, and may be killed without harm to the campaign."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfpass.bounded_file import open_regular
from perfpass.errors import DeviceError, FileError, PerfPassError
from perfpass.measure import host
from perfpass.measure.configuration import Configuration, Protocol
from perfpass.measure.pool import Answer, Died, Measured, TimedOut

if TYPE_CHECKING:
    from perfpass.measure.collector import Collector

_START_TIMEOUT_S = 300.0


class LocalPool:
    """One worker process per device of this machine. What workers print goes to ``log``.

    Raises PerfPassError with the worker's reason where a device cannot be used.
    """

    def __init__(self, devices: list[str], log: Path) -> None:
        self._log = log
        self._workers: dict[str, _Worker] = {device: _Worker(device, log) for device in devices}

    def facts(self) -> dict[str, dict[str, Any]]:
        """Facts by worker."""
        return {name: worker.facts for name, worker in self._workers.items()}

    def describe(self, name: str) -> dict[str, Any]:
        """The facts with measured capability; the worker must be idle."""
        described: dict[str, Any] = self._workers[name].ask({"task": "describe"}, _START_TIMEOUT_S)
        return described

    def submit(self, name: str, configuration: Configuration, protocol: Protocol) -> None:
        """Starts a measurement; `collect` gives its end."""
        self._workers[name].start(configuration, protocol)

    def collect(self) -> list[Answer]:
        """Waits until at least one measurement has ended, in whatever way. A dead worker is started anew."""
        busy = [worker for worker in self._workers.values() if worker.busy]
        if not busy:
            return []
        soonest = min(worker.deadline for worker in busy)
        wait([worker.connection for worker in busy], timeout=max(0.0, soonest - time.monotonic()))
        answers = [answer for worker in busy if (answer := worker.answer()) is not None]
        for answer in answers:
            if not isinstance(answer, Measured):
                self._workers[answer.worker].close()
                self._workers[answer.worker] = _Worker(answer.worker, self._log)
        return answers

    def close(self) -> None:
        """Ends all workers at once, whatever they do."""
        for worker in self._workers.values():
            worker.close()


class _Worker:
    """A process started afresh, not by multiprocessing, which would need the main module of whoever runs a campaign."""

    def __init__(self, device: str, log: Path) -> None:
        output = open_regular(log, "the log of workers", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.connection, theirs = Pipe()
        command = [sys.executable, "-m", "perfpass.measure.local", str(theirs.fileno()), device]
        try:
            # A session of its own: Ctrl-C stays with the campaign, and one kill of its group reaches the children.
            self.process = subprocess.Popen(
                command,
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        finally:
            theirs.close()
            os.close(output)
        self.device = device
        self.log = log
        self.busy = False
        self.deadline = 0.0
        try:
            self.facts: dict[str, Any] = self._receive(_START_TIMEOUT_S)
        except BaseException:
            self.close()
            raise

    def ask(self, request: dict[str, Any], timeout_s: float) -> Any:
        self.connection.send_bytes(json.dumps(request).encode())
        return self._receive(timeout_s)

    def _receive(self, timeout_s: float) -> Any:
        try:
            if not self.connection.poll(timeout_s):
                raise DeviceError(f"{self.device}: the measuring process gave no answer in {timeout_s:.0f} s")
            answer = json.loads(self.connection.recv_bytes())
        except EOFError as error:
            ending = f"the measuring process ended ({self._ending()})"
            raise DeviceError(f"{self.device}: {ending}; its last words are in {self.log}") from error
        if "error" in answer:
            raise _error(answer)
        return answer["result"]

    def start(self, configuration: Configuration, protocol: Protocol) -> None:
        request = {"task": "measure", "configuration": configuration.to_dict(), "protocol": asdict(protocol)}
        self.deadline = time.monotonic() + protocol.timeout_s
        self.busy = True
        with contextlib.suppress(OSError):  # it died meanwhile: `answer` tells
            self.connection.send_bytes(json.dumps(request).encode())

    def answer(self) -> Answer | None:
        """How the measurement ended, if it has. Raises FileError where this machine's disks refuse to work."""
        try:
            if self.connection.poll(0):
                content = json.loads(self.connection.recv_bytes())
                self.busy = False
                if "error" in content:
                    raise _error(content)
                return Measured(self.device, content["result"])
        except PerfPassError:
            raise
        except (EOFError, OSError):
            return Died(self.device, self._ending())
        return TimedOut(self.device) if time.monotonic() >= self.deadline else None

    def _ending(self) -> str:
        try:
            code = self.process.wait(5)
        except subprocess.TimeoutExpired:
            return "it closed its connection"
        if code < 0:
            name = signal.Signals(-code).name
            return f"killed by {name}" + ("; the system kills so when memory runs out" if name == "SIGKILL" else "")
        return f"exit code {code}"

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.connection.close()


def _error(answer: dict[str, Any]) -> PerfPassError:
    from perfpass import errors

    kind = getattr(errors, answer["error"], PerfPassError)
    error: PerfPassError = kind(answer["message"])
    return error


def serve(connection: Connection, device: str) -> None:
    """The worker's loop: JSON requests in, JSON answers out, until the parent is gone."""
    _die_with_parent()
    try:
        from perfpass.measure.collector import Collector

        collector = Collector(device)
    except PerfPassError as error:
        connection.send_bytes(_refusal(error))
        return
    pages = []
    if device == "cpu":
        preload()
        pages = host.mapped_file_pages()
    _reply(connection, collector.facts)
    with contextlib.suppress(EOFError, OSError):
        while True:
            request = json.loads(connection.recv_bytes())
            if device == "cpu":
                _in_a_child(lambda: _answer(connection, collector, request), pages)  # noqa: B023
            else:
                _answer(connection, collector, request)
    collector.close()


def preload() -> None:
    """Imports what runs models, so that the children of this process need not. What cannot be imported tells on use."""
    for name in ("torch", "timm", "transformers", "onnxruntime"):
        with contextlib.suppress(Exception):
            if name == "timm":
                from perfpass.importers import torchvision_schemas

                torchvision_schemas.define()
            importlib.import_module(name)


def _in_a_child(work: Callable[[], None], pages: list[tuple[int, int]]) -> None:
    """Every configuration starts from the same process image: its peak of resident memory is its own.

    A CPU worker has run no model, so no thread pool exists that a fork would break. Ends this process as the child
    ended.
    """
    worker = os.getpid()
    child = os.fork()
    if child == 0:
        _die_with_parent()
        if os.getppid() != worker:  # it died before it could be told
            os._exit(1)
        code = 1
        try:
            host.map_pages(pages)
            work()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        # The default action of the signals that end a process is to end it: nobody here has changed it.
        os.kill(os.getpid(), os.WTERMSIG(status))
    elif os.WEXITSTATUS(status):
        os._exit(os.WEXITSTATUS(status))


def _die_with_parent() -> None:
    """A killed campaign leaves nobody behind who keeps the machine busy (prctl(2), PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def _perform(collector: Collector, request: dict[str, Any]) -> dict[str, Any]:
    if request["task"] == "describe":
        return collector.describe()
    configuration = Configuration.from_dict(request["configuration"])
    return collector.measure(configuration, Protocol.from_dict(request["protocol"]))


def _answer(connection: Connection, collector: Collector, request: dict[str, Any]) -> None:
    try:
        result = _perform(collector, request)
    except FileError as error:
        connection.send_bytes(_refusal(error))
    else:
        _reply(connection, result)


def _reply(connection: Connection, result: Any) -> None:
    connection.send_bytes(json.dumps({"result": result}).encode())


def _refusal(error: PerfPassError) -> bytes:
    return json.dumps({"error": type(error).__name__, "message": str(error)}).encode()


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])), sys.argv[2])
