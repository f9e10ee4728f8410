"""The HTTP application: questions, devices, health, metrics, and the description of all of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from perfpass import __version__
from perfpass.errors import PerfPassError
from perfpass.serve import described
from perfpass.serve.guard import Guard
from perfpass.serve.kinds import KINDS, Kind
from perfpass.serve.observed import Metrics, event
from perfpass.serve.problems import TYPES, Problem
from perfpass.serve.settings import Settings
from perfpass.serve.uploads import JSON, asked
from perfpass.serve.work import Work

# An ONNX file of one Relu, asked about before the first question: what predicts is then in memory.
SMALLEST = bytes.fromhex(
    "080812003a3a0a0c0a0178120179220452656c7512005a130a0178120e0a0c080112080a0208010a02080862130a0179120e0a0c0801"
    "12080a0208010a02080842040a001011"
)
WARMED_ON = "t4"
_CLIENT_GONE = 499  # of nginx, for the log; nobody reads the answer
_DESCRIPTION = """\
What a deep-learning model costs on a device, before it runs there. A model is the name of a known network, the \
content of a Hugging Face config.json, or a model's file: as the body, or as a part of a form. Answers are those of \
the command line's --json. Errors are problem documents (RFC 9457)."""


def written(value: Any) -> bytes:
    """A document of an answer."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


def _predicted() -> bytes:
    from perfpass.predictors import predict

    return written(predict(SMALLEST, WARMED_ON).to_dict())


class Application:
    """One worker's application of ASGI: `Guard` around FastAPI, and what is behind both."""

    def __init__(self, settings: Settings, warm: Callable[[], bytes] = _predicted) -> None:
        """``settings``: its limits; ``warm``: what is answered before the first question."""
        self.settings = settings
        self._first = warm
        self.work = Work(settings)
        self.metrics = Metrics(self.work)
        self.warm = False
        self.api = FastAPI(
            title="perfpass",
            version=__version__,
            summary="What a model costs on a device",
            description=_DESCRIPTION,
            docs_url=None,  # pages that fetch scripts from elsewhere
            redoc_url=None,
            lifespan=self._lifespan,
            responses=described.PROBLEMS,
        )
        self.guard = Guard(self.api, settings, self.metrics)
        self._add_routes()
        self._add_handlers()
        self.api.openapi = self._openapi  # type: ignore[method-assign]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As any ASGI application."""
        await self.guard(scope, receive, send)

    # ---- routes

    def _add_routes(self) -> None:
        for kind in KINDS.values():
            answer = {"$ref": f"#/components/schemas/{kind.asked.__name__}Answer"}
            self.api.add_api_route(
                f"/{kind.name}",
                self._asking(kind),
                methods=["POST"],
                operation_id=kind.name.replace("-", "_"),
                summary=kind.summary,
                response_class=Response,
                responses={200: {"description": "The answer", "content": {JSON: {"schema": answer}}}},
                openapi_extra=described.operation(kind),
            )
        document = {"description": "The document", "content": {JSON: {"schema": {"type": "object"}}}}
        text = {"description": "Prometheus metrics", "content": {"text/plain": {}}}
        for path, answer_of, summary in (
            ("/devices", self._devices, "All devices with their figures and sources"),
            ("/devices/{name}", self._device, "One device, by any of its names"),
            ("/problems", self._problems, "Every type of problem"),
            ("/problems/{name}", self._problem, "One type of problem"),
            ("/health", self._health, "Whether the worker lives"),
            ("/ready", self._ready, "Whether questions are answered"),
            ("/metrics", self._metrics, "Metrics"),
        ):
            found: dict[int | str, dict[str, Any]] = {200: text if path == "/metrics" else document}
            self.api.add_api_route(path, answer_of, summary=summary, responses=found, response_class=Response)

    def _asking(self, kind: Kind) -> Callable[[Request], Awaitable[Response]]:
        async def ask(request: Request) -> Response:
            found = await asked(request, kind)
            body, how = await self.work.answer(await found.key(), found.lane, lambda: found.compute(written))
            request.scope["facts"] |= {"how": how}
            self.metrics.answers.labels(kind.name, how).inc()
            return _json(body, {"X-Cache": how})

        return ask

    async def _devices(self) -> Response:
        from perfpass.devices import catalogue

        def compute() -> bytes:
            return written({"schema_version": 1, "devices": [device.to_dict() for device in catalogue()]})

        body, how = await self.work.answer("devices", "graphs", compute)
        return _json(body, {"X-Cache": how})

    async def _device(self, name: str) -> Response:
        from perfpass.devices import device

        def compute() -> bytes:
            return written({"schema_version": 1, "device": device(name).to_dict()})

        body, how = await self.work.answer(f"device {name}", "graphs", compute)
        return _json(body, {"X-Cache": how})

    async def _problems(self) -> Response:
        return _json(written({"problems": [_type(name) for name in TYPES]}))

    async def _problem(self, name: str) -> Response:
        if name not in TYPES:
            raise Problem("not-found", "there is no such type of problem; GET /problems lists them")
        return _json(written(_type(name)))

    async def _health(self) -> Response:
        if self.work.stuck:
            raise Problem("not-ready", "a question has been computed for ten times its limit; restart this worker")
        return _json(written({"status": "ok"}))

    async def _ready(self) -> Response:
        if self.guard.draining or not self.warm or self.work.stuck:
            said = "stopping" if self.guard.draining else "stuck" if self.work.stuck else "starting"
            raise Problem("not-ready", said, {"Retry-After": "1"})
        return _json(written({"status": "ready"}))

    async def _metrics(self) -> Response:
        body, media_type = self.metrics.text()
        return Response(body, media_type=media_type)

    # ---- errors

    def _add_handlers(self) -> None:
        add = self.api.add_exception_handler

        def refused(request: Request, error: Exception) -> Response:
            problem = Problem.of_error(error)
            facts = request.scope["facts"]
            facts["problem"] = problem.name
            return problem.response(facts["request_id"])

        for one in (Problem, PerfPassError, HTTPException, MemoryError, Exception):
            add(one, refused)
        add(ClientDisconnect, lambda request, error: Response(status_code=_CLIENT_GONE))

    # ---- description

    def _openapi(self) -> dict[str, Any]:
        if self.api.openapi_schema is None:
            found = get_openapi(
                title=self.api.title,
                version=self.api.version,
                summary=self.api.summary,
                description=self.api.description,
                routes=self.api.routes,
            )
            parts = found.setdefault("components", {})
            schemas = parts.setdefault("schemas", {})
            schemas |= described.SCHEMAS | described.answers() | described.question_schemas()
            if self.settings.token:
                parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
                found["security"] = [{"token": []}]
            for path in ("/health", "/ready"):
                found["paths"][path]["get"]["security"] = []
            for path in found["paths"].values():  # problems say what FastAPI would say of parameters
                for operation in path.values():
                    operation["responses"].pop("422", None)
            for name in ("HTTPValidationError", "ValidationError"):
                schemas.pop(name, None)
            self.api.openapi_schema = found
        return self.api.openapi_schema

    # ---- life

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        own_process = threading.current_thread() is threading.main_thread()
        tasks = [asyncio.create_task(self._warm())]
        if own_process:
            self._drain_first()
            tasks.append(asyncio.create_task(self._leave_if_stuck()))
        yield
        for task in tasks:
            task.cancel()
        running = self.work.running
        self.work.close()
        event("stopped")
        if own_process and running:
            # Nobody waits for the answer any more, but Python would wait for its thread.
            threading.Timer(1.0, os._exit, (0,)).start()

    async def _leave_if_stuck(self) -> None:
        """Stops this worker when a thread is lost; who supervises it starts another."""
        while not self.work.stuck:
            await asyncio.sleep(min(self.settings.question_seconds, 5.0))
        event("a thread is lost to a question; the worker stops", logging.ERROR)
        os.kill(os.getpid(), signal.SIGTERM)

    async def _warm(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self.work.lanes["graphs"].executor, self._first)
        self.warm = True
        event("ready")

    def _drain_first(self) -> None:
        """Between the signal to stop and the stop, connections are still taken, and every answer ends its own.

        Who asks then goes to another server, and nobody's request is on its way to a socket that closes.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            stop: Any = signal.getsignal(number)

            def begin(number: int = number, stop: Any = stop) -> None:
                if self.guard.draining:
                    stop(number, None)
                    return
                self.guard.draining = True
                event("draining", seconds=self.settings.drain_seconds)
                loop.call_later(self.settings.drain_seconds, stop, number, None)

            if callable(stop):
                with contextlib.suppress(NotImplementedError):  # Windows: uvicorn's own handler stops at once
                    loop.add_signal_handler(number, begin)


def _json(body: bytes, headers: dict[str, str] | None = None) -> Response:
    return Response(body, headers=headers, media_type=JSON)


def _type(name: str) -> dict[str, Any]:
    status, title = TYPES[name]
    return {"type": f"/problems/{name}", "title": title, "status": status}
