"""HTTP/1.1 of uvicorn, with bounds on what stands before a body: headers and connections."""

from __future__ import annotations

import json
from asyncio.events import TimerHandle
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from perfpass.serve.problems import MEDIA_TYPE, Problem
from perfpass.serve.settings import Settings

MOST_HEADERS = 100
MOST_HEAD_BYTES = 32 * 1024
_BUFFER_BYTES = 2**18  # what a loop reads at once: the beginning of a body may be in it


class TooManyHeadersError(Exception):
    """Ends the parsing; llhttp hands it on as an error of its own."""


class BoundedProtocol(HttpToolsProtocol):
    """Closes connections over the limit, and those whose headers do not come, do not end or are too many.

    uvicorn bounds neither: a socket that sends nothing would stay for ever, and a header is kept as long as it grows.
    """

    def __init__(self, settings: Settings, **named: Any) -> None:
        """``settings``: the limits; the rest is uvicorn's."""
        super().__init__(**named)
        self._settings = settings
        self._timer: TimerHandle | None = None
        self._received = 0  # bytes since the last body's end, a part of a body perhaps among them
        self._head_bytes = 0  # of the target and the headers that are whole
        self._headers = 0
        self._in_head, self._too_many = True, False

    def connection_made(self, transport: Any) -> None:
        """A socket was accepted."""
        super().connection_made(transport)
        if len(self.connections) > self._settings.connections:
            self._refuse(Problem("busy", "as many connections are open as the server bounds", {"Retry-After": "1"}))
            return
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        if self.transport.is_closing():
            return
        if self._in_head:
            self._received += len(data)
            if self._received > MOST_HEAD_BYTES + _BUFFER_BYTES:
                self._refuse(_headers_problem())
                return
        super().data_received(data)

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._in_head, self._received, self._head_bytes, self._headers = True, 0, 0, 0
        if self._timer is None:
            self._await_head()

    def on_url(self, url: bytes) -> None:
        """A part of its target."""
        self._grow(len(url), 0)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._grow(len(name) + len(value), 1)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The headers are there."""
        self._in_head = False
        self._stop_waiting()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone."""
        self._stop_waiting()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """What could not be parsed."""
        self._refuse(_headers_problem() if self._too_many else Problem("malformed", msg))

    def _grow(self, size: int, headers: int) -> None:
        self._head_bytes += size
        self._headers += headers
        if self._headers > MOST_HEADERS or self._head_bytes > MOST_HEAD_BYTES:
            self._too_many = True
            raise TooManyHeadersError

    def _await_head(self) -> None:
        self._timer = self.loop.call_later(self._settings.head_seconds, self._late)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        self._refuse(Problem("slow", f"no headers within {self._settings.head_seconds:g} s"))

    def _refuse(self, problem: Problem) -> None:
        """Answers without the application, and closes."""
        if self.transport.is_closing():
            return
        self._stop_waiting()
        content = json.dumps(problem.document("")).encode()
        lines = [
            f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}",
            f"content-type: {MEDIA_TYPE}",
            f"content-length: {len(content)}",
            "connection: close",
            *(f"{name}: {value}" for name, value in problem.headers.items()),
        ]
        self.transport.write("\r\n".join((*lines, "", "")).encode("latin-1") + content)
        self.transport.close()


def _headers_problem() -> Problem:
    return Problem("headers", f"at most {MOST_HEADERS} headers of {MOST_HEAD_BYTES >> 10} KiB are read")
