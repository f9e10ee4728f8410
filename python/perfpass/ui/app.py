"""The page's application: that of `perfpass serve`, with the page, its questions and what can be downloaded."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qsl

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from perfpass import json_text
from perfpass.errors import ArgumentError, shown
from perfpass.serve.app import SMALLEST, WARMED_ON, Application
from perfpass.serve.names import known_name
from perfpass.serve.observed import LOG
from perfpass.serve.problems import Problem
from perfpass.serve.settings import Settings
from perfpass.serve.uploads import Part, aside, fields, parts
from perfpass.ui.answers import ANSWERS, Asked, Model, Progress
from perfpass.ui.page import page
from perfpass.ui.questions import MOST_ROWS

_POLL_S = 0.1
_MOST_FIELDS = 400
_ROWS = {f"model.{i}": i for i in range(MOST_ROWS)}
_MEDIA = {"html": "text/html; charset=utf-8", "json": "application/json"}


class Pages:
    """The page, for one user or a few: `Application` with more paths."""

    def __init__(self, settings: Settings) -> None:
        """``settings``: its limits."""
        first = Asked("predict", {"device": WARMED_ON}, {"model": Model(SMALLEST, "")})
        self._app = Application(settings, lambda: first.answer(Progress()))
        self._page = page(settings).encode()
        self._told: dict[str, Progress] = {}
        for path, answer, method in (
            ("/", self._show, "GET"),
            ("/ask/{question}", self._ask, "POST"),
            ("/answers/{key}.{kind}", self._download, "GET"),
        ):
            self._app.api.add_api_route(path, answer, methods=[method], include_in_schema=False, response_model=None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As any ASGI application."""
        await self._app(scope, receive, send)

    async def _show(self) -> Response:
        return Response(self._page, headers={"X-Frame-Options": "DENY"}, media_type=_MEDIA["html"])

    async def _ask(self, question: str, request: Request) -> Response:
        """Lines of JSON: how far the answer is, then the answer or a problem."""
        if question not in ANSWERS:
            raise Problem("not-found", f"there is no question {shown(question)}; there are {', '.join(ANSWERS)}")
        asked, key = await _asked(question, request)
        progress = self._told.setdefault(key, Progress("waiting for other questions"))
        files = all(isinstance(model.given, bytes) for model in asked.models.values())
        lane = "graphs" if question == "predict" and files else "others"
        answer = asyncio.ensure_future(self._app.work.answer(key, lane, lambda: asked.answer(progress)))

        def ended(_: asyncio.Future[Any]) -> None:
            self._told.pop(key, None)
            answer.cancelled() or answer.exception()  # nobody may wait for it any more

        answer.add_done_callback(ended)
        lines = self._lines(answer, progress, key, request.scope["facts"])
        return StreamingResponse(lines, media_type="application/x-ndjson")

    async def _lines(
        self, answer: asyncio.Future[Any], progress: Progress, key: str, facts: dict[str, Any]
    ) -> AsyncIterator[bytes]:
        try:
            while not (await asyncio.wait({answer}, timeout=_POLL_S))[0]:
                yield _line(vars(progress))
            content, how = answer.result()
            facts["how"] = how
            found = json.loads(content)
            yield _line({"key": key, "title": found["title"], "fragment": found["fragment"]})
        except Exception as error:
            problem = Problem.of_error(error)
            if problem.name == "internal":
                LOG.exception("fault", extra={"facts": {"request_id": facts["request_id"]}})
            facts["problem"] = problem.name
            yield _line({"problem": problem.document(facts["request_id"])})

    async def _download(self, key: str, kind: str) -> Response:
        """The report or the document of an answer that is still kept."""
        content = self._app.work.cache.find(key)
        if content is None or kind not in _MEDIA:
            raise Problem("not-found", "this answer is no longer kept; ask again")
        found = json.loads(content)
        body = found["report"] if kind == "html" else json.dumps(found["document"], indent=2) + "\n"
        named = {"Content-Disposition": f'attachment; filename="perfpass.{kind}"'}
        return Response(body, headers=named, media_type=_MEDIA[kind])


async def _asked(question: str, request: Request) -> tuple[Asked, str]:
    """What a form asks, and a key of equal questions. Raises Problem, PerfPassError."""
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        raise Problem("media-type", "the page's questions are forms (multipart/form-data)")
    form = await parts(request, ("question", "config", "model", *_ROWS), texts=2)
    pairs = _pairs(form.pop("question", Part(b"")).content)
    given = fields((name, value.strip()) for name, value in pairs if value.strip())
    named = given.pop("model", None)
    models: dict[str, Model] = {}
    for name, part in form.items():
        if name == "config":
            content = await aside(len(part.content), lambda text=part.content: _configuration(text))  # type: ignore[misc]
            models["model"] = Model(content, "config.json")
        elif not part.content:
            raise ArgumentError(f"{shown(part.file or name)} is an empty file")
        else:
            models[name] = Model(part.content, (part.file or "model.onnx")[:200])
    if named is not None:
        if "model" in models:
            raise ArgumentError("two models: a file or a configuration, and a name; give one of them")
        models["model"] = Model(known_name(named), named)
    if "model" in models:
        given.pop("file", None)  # what a link calls a model that is here
    asked = Asked(question, given, models)
    size = sum(len(model.given) for model in models.values() if isinstance(model.given, bytes))
    return asked, await aside(size, lambda: _key(asked))


def _pairs(content: bytes) -> list[tuple[str, str]]:
    try:
        text = content.decode()
        return parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text), max_num_fields=_MOST_FIELDS)
    except (UnicodeDecodeError, ValueError) as error:
        raise Problem("malformed", f"the question is no text of an address ({str(error)[:100]})") from None


def _configuration(text: bytes) -> dict[str, Any]:
    try:
        found = json_text.parse(text, "the configuration", any_number=True)
    except UnicodeDecodeError as error:
        raise ArgumentError(f"the configuration is no text ({error.reason})") from None
    if not isinstance(found, dict):
        raise ArgumentError("the configuration is no table; paste the whole content of a config.json")
    return found


def _key(asked: Asked) -> str:
    whole = hashlib.sha256(json.dumps([asked.question, asked.fields], sort_keys=True).encode())
    for name, model in sorted(asked.models.items()):
        whole.update(f"\n{name}={model.called}:".encode())
        given = model.given
        whole.update(hashlib.sha256(given if isinstance(given, bytes) else json.dumps(given).encode()).digest())
    return whole.hexdigest()


def _line(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode() + b"\n"


class OnlyHere:
    """What listens on loopback answers under its own names, and no other site's page: a name that another site lets
    point here would make this server a part of that site.
    """

    _NAMES = ("127.0.0.1", "localhost", "[::1]")

    def __init__(self, app: Any) -> None:
        """``app``: what is guarded."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As any ASGI application."""
        if scope["type"] == "http" and (refusal := self._refusal(Headers(scope=scope))):
            await Problem("not-here", refusal).response("")(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _refusal(self, headers: Headers) -> str:
        host = headers.get("host", "")
        name = host[: host.rindex(":")] if ":" in host.rpartition("]")[2] else host
        if name.lower() not in self._NAMES:
            return f"this page is asked as 127.0.0.1 or localhost, not as {shown(host)}"
        if headers.get("sec-fetch-site", "none") == "cross-site" and headers.get("sec-fetch-mode") != "navigate":
            return "pages of other sites may not ask here"
        return ""


def application(settings: Settings, folder: str) -> Pages:
    """What answers, in an empty folder, so that no name of a model is that of a file."""
    from perfpass.serve.process import stand

    stand(folder)
    return Pages(settings)


def here_alone(settings: Settings, folder: str) -> OnlyHere:
    """The same, for loopback."""
    return OnlyHere(application(settings, folder))
