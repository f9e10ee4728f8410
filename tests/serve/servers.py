"""Servers in processes of their own, as a user starts them, and what is said to them over bare sockets."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PATIENCE_S = 60.0  # on a busy machine


@dataclass
class Running:
    """A server: its process, its port, and the log that it has written."""

    process: subprocess.Popen[bytes]
    log: Path
    port: int = 0
    events: list[dict[str, Any]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def said(self, event: str) -> list[dict[str, Any]]:
        """Lines of the log, by their event."""
        lines = [line for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [one for one in map(json.loads, lines) if one["event"] == event]

    def await_event(self, event: str, count: int = 1) -> list[dict[str, Any]]:
        deadline = time.monotonic() + PATIENCE_S
        while len(found := self.said(event)) < count:
            assert time.monotonic() < deadline and (self.process.poll() is None or event == "stopped"), (
                f"no {event}:\n{self.log.read_text()[-3000:]}"
            )
            time.sleep(0.02)
        return found

    def stop(self, number: int = signal.SIGTERM) -> int:
        """The exit code after a signal."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


@contextlib.contextmanager
def serving(
    folder: Path, *options: str, workers: int = 1, environment: Mapping[str, str] | None = None
) -> Iterator[Running]:
    """`perfpass serve` on a free port, once all workers are ready."""
    log = folder / "serve.log"
    command = [sys.executable, "-m", "perfpass", "serve", "--port", "0", "--workers", str(workers), *options]
    with log.open("wb") as file:
        process = subprocess.Popen(command, stderr=file, stdout=file, env={**os.environ, **(environment or {})})
    server = Running(process, log)
    try:
        server.port = int(server.await_event("listening")[0]["url"].rpartition(":")[2])
        server.await_event("ready", workers)
        yield server
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def said_to(port: int, *parts: bytes, wait_s: float = PATIENCE_S, pause_s: float = 0.0) -> bytes:
    """What a server answers to ``parts`` on one socket until it closes, or the time is over."""
    with socket.create_connection(("127.0.0.1", port), timeout=wait_s) as connection:
        connection.settimeout(wait_s)
        with contextlib.suppress(OSError):  # it may close before all is sent
            for part in parts:
                connection.sendall(part)
                time.sleep(pause_s)
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while block := connection.recv(1 << 16):
                answer += block
        return answer


def status(answer: bytes) -> int:
    """Of an answer's first line; 0 without one."""
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0
