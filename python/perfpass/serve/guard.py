"""Around every request: its id, who may ask, bounds on its body, and what is said of it afterwards."""

from __future__ import annotations

import base64
import hmac
import logging
import re
import secrets
import time
from typing import Any

import anyio
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from perfpass.serve.observed import LOG, Metrics, event, milliseconds_since
from perfpass.serve.problems import Problem
from perfpass.serve.settings import Settings

_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
# Asked by who knows no token: they say nothing but that the server is there.
OPEN = frozenset({"/health", "/ready"})


def check_token(settings: Settings, headers: Headers) -> None:
    """Raises Problem where a token is asked for and this is not it: as a bearer, or as a browser sends a password."""
    if not settings.token:
        return
    scheme, _, given = headers.get("authorization", "").partition(" ")
    found = given.strip().encode()
    if scheme.lower() == "basic":
        found = _password(found)
    elif scheme.lower() != "bearer":
        found = b""
    if not hmac.compare_digest(found, settings.token.encode()):
        # A browser asks its user for a password where Basic is all that it is offered.
        how = 'Basic realm="perfpass", charset="UTF-8"' if "text/html" in headers.get("accept", "") else "Bearer"
        raise Problem("token", "send Authorization: Bearer with the server's token", {"WWW-Authenticate": how})


def _password(credentials: bytes) -> bytes:
    """Of RFC 7617, whoever the user is; empty where there is none."""
    try:
        return base64.b64decode(credentials, validate=True).partition(b":")[2]
    except ValueError:
        return b""


class Bodies:
    """Bytes of all bodies that a worker holds now."""

    def __init__(self, most_bytes: int) -> None:
        """``most_bytes``: together."""
        self._most_bytes, self._held = most_bytes, 0

    def take(self, size: int) -> None:
        """Raises Problem where there is no room for ``size`` more."""
        if self._held + size > self._most_bytes:
            raise Problem(
                "busy", "bodies of others fill the memory for them; ask again in a second", {"Retry-After": "1"}
            )
        self._held += size

    def give_back(self, size: int) -> None:
        """What was taken."""
        self._held -= size


class _Body:
    """The body of one request as it comes: bounded in size and time."""

    def __init__(self, receive: Receive, settings: Settings, bodies: Bodies) -> None:
        self._receive, self._settings, self._bodies = receive, settings, bodies
        self._end: float | None = None
        self.size, self.complete = 0, False

    async def receive(self) -> Message:
        if self.complete:
            return await self._receive()
        if self._end is None:
            self._end = time.monotonic() + self._settings.body_seconds
        try:
            with anyio.fail_after(max(0.0, self._end - time.monotonic())):
                message = await self._receive()
        except TimeoutError:
            raise Problem("slow", f"the body did not come within {self._settings.body_seconds:g} s") from None
        if message["type"] == "http.request":
            part = len(message.get("body", b""))
            check_size(self.size + part, self._settings)
            self._bodies.take(part)
            self.size += part
            self.complete = not message.get("more_body", False)
        return message

    def release(self) -> None:
        self._bodies.give_back(self.size)


def check_size(size: int, settings: Settings) -> None:
    """Raises Problem for a body that is too large."""
    if size > settings.most_body_bytes:
        raise Problem(
            "too-large",
            f"the body has over {settings.body_mib} MiB, the limit here; structure is enough: save the model with its "
            "weights as external data (onnx.save, save_as_external_data=True) and send the .onnx file alone",
        )


class Guard:
    """Middleware of ASGI. ``draining``: every answer closes its connection, so that who asks goes elsewhere."""

    def __init__(self, app: ASGIApp, settings: Settings, metrics: Metrics) -> None:
        """``app``: what is guarded."""
        self._app, self._settings, self._metrics = app, settings, metrics
        self._bodies = Bodies(settings.most_bodies_bytes)
        self.draining = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the beginning and end of the server."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, headers = time.perf_counter(), Headers(scope=scope)
        given = headers.get("x-request-id", "")
        request_id = given if _ID.fullmatch(given) else secrets.token_hex(8)
        facts: dict[str, Any] = {"request_id": request_id}
        scope["facts"] = facts
        body, answered, whole = _Body(receive, self._settings, self._bodies), 0, False

        async def answer(message: Message) -> None:
            nonlocal answered, whole
            if message["type"] == "http.response.start":
                answered = message["status"]
                out = MutableHeaders(scope=message)
                out["X-Request-Id"] = request_id
                out["X-Content-Type-Options"] = "nosniff"
                out.setdefault("Cache-Control", "no-store")
                if self.draining or (not body.complete and _has_body(headers)):
                    out["Connection"] = "close"
            with anyio.fail_after(self._settings.body_seconds):
                await send(message)
            whole = message["type"] == "http.response.body" and not message.get("more_body", False)

        self._metrics.active.inc()
        try:
            try:
                self._check(scope["path"], headers)
                await self._app(scope, body.receive, answer)
            except Problem as problem:
                facts["problem"] = problem.name
                await problem.response(request_id)(scope, receive, answer)
        except TimeoutError:
            event("the answer was not taken", logging.WARNING, request_id=request_id)
            raise
        except Exception:
            LOG.exception("fault", extra={"facts": {"request_id": request_id}})
            if not whole:
                raise
        finally:
            body.release()
            self._say(scope, facts, answered, body.size, started)

    def _check(self, path: str, headers: Headers) -> None:
        if path not in OPEN:
            check_token(self._settings, headers)
        if headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
            # A compressed body has no size before it is unpacked.
            raise Problem("media-type", "compressed bodies are not read; send it without Content-Encoding")
        length = headers.get("content-length", "")
        if length.isdecimal():
            check_size(int(length[:20]), self._settings)

    def _say(self, scope: Scope, facts: dict[str, Any], status: int, size: int, started: float) -> None:
        route, method = getattr(scope.get("route"), "path", "none"), scope["method"]
        method = method if method in ("GET", "HEAD", "POST", "OPTIONS", "PUT", "DELETE", "PATCH") else "other"
        milliseconds = milliseconds_since(started)
        metrics = self._metrics
        metrics.active.dec()
        metrics.requests.labels(route, method, str(status)).inc()
        metrics.seconds.labels(route).observe(1e-3 * milliseconds)
        metrics.received.inc(size)
        if "problem" in facts:
            metrics.refused.labels(facts["problem"]).inc()
        event("request", route=route, method=method, status=status, ms=milliseconds, body_bytes=size, **facts)


def _has_body(headers: Headers) -> bool:
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
