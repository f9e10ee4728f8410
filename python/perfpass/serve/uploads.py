"""A question and its models out of a request: JSON, a file as the body, or a form of both. Nothing touches a disk."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio.to_thread
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from perfpass import json_text
from perfpass.errors import ArgumentError, PerfPassError
from perfpass.serve.kinds import Kind, document
from perfpass.serve.names import known_name
from perfpass.serve.problems import Problem
from perfpass.serve.questions import Question

JSON, FILE, FORM = "application/json", "application/octet-stream", "multipart/form-data"
_LARGEST_JSON_BYTES = 16 << 20  # as of a config.json
_QUESTION = "question"  # the part of a form that is JSON
# What a file is tried on many devices for, or in many layouts: seconds, not milliseconds.
_MANY = ("choose", "train-cost")
# What is parsed or hashed at once, while other requests wait; of more it takes milliseconds, and a thread does it.
_AT_ONCE_BYTES = 32 << 10
_T = TypeVar("_T")


async def aside(size: int, work: Callable[[], _T]) -> _T:
    """What ``work`` gives, which takes as long as ``size`` bytes do."""
    return work() if size <= _AT_ONCE_BYTES else await anyio.to_thread.run_sync(work)


class _InMemory(MultiPartParser):
    # Starlette would write larger parts to temporary files; the whole body is bounded already.
    spool_max_size = 1 << 62


@dataclass(frozen=True)
class Asked:
    """A question with its models: names and configurations as they came, files as bytes."""

    kind: Kind
    question: Question
    models: dict[str, Any]

    async def key(self) -> str:
        """Of equal questions about equal content."""
        sizes = (len(model) for model in self.models.values() if isinstance(model, bytes))
        return await aside(sum(sizes), self._key)

    def _key(self) -> str:
        whole = hashlib.sha256(f"{self.kind.name}\n{self.question.model_dump_json(exclude_none=True)}\n".encode())
        for name, model in sorted(self.models.items()):
            if isinstance(model, bytes):
                whole.update(f"{name}={hashlib.sha256(model).hexdigest()}\n".encode())
        return whole.hexdigest()

    @property
    def lane(self) -> str:
        """Of `perfpass.serve.work.LANES`."""
        files = all(isinstance(model, bytes) for model in self.models.values())
        return "graphs" if files and self.kind.name not in _MANY else "others"

    def compute(self, written: Callable[[Any], bytes]) -> bytes:
        """The answer's document, ``written``. Raises PerfPassError."""
        return written(document(self.kind, self.question, self.models).to_dict())


async def asked(request: Request, kind: Kind) -> Asked:
    """What a request asks. Raises Problem for a body of another type, PerfPassError for one that is wrong."""
    kinds = (JSON, FILE, FORM) if kind.file is not None else (JSON,)
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in kinds:
        raise Problem(
            "media-type", f"{media_type[:80] or 'no Content-Type'!r} is not read here; send {', '.join(kinds)}"
        )
    files: dict[str, Any] = {}
    if media_type == JSON:
        if request.query_params:
            raise ArgumentError("the question is in the body; parameters of the address are for uploaded files")
        content = await _whole(request)
        question = await aside(len(content), lambda: kind.read(_parsed(content)))
    elif media_type == FILE:
        if len(kind.asked.uploads) > 1:
            raise ArgumentError(f"{' and '.join(kind.asked.uploads)} are two files; send them as {FORM}")
        question = kind.read(fields(request.query_params.multi_items()), strict=False)
        files = {kind.asked.uploads[0]: await request.body()}
    else:
        question, files = await _of_form(request, kind)
    models = {name: files.get(name, getattr(question, name)) for name in kind.asked.uploads}
    for name, model in models.items():
        if name in files and getattr(question, name) is not None:
            raise ArgumentError(f"{name} is a file and a name; send one of them")
        if isinstance(model, bytes) and not model:
            raise ArgumentError(f"{name} is an empty file")
        if isinstance(model, str):
            known_name(model)
    return Asked(kind, question, models)


async def _whole(request: Request) -> bytes:
    body = await request.body()
    if len(body) > _LARGEST_JSON_BYTES:
        raise Problem(
            "too-large", f"JSON of over {_LARGEST_JSON_BYTES >> 20} MiB; files are uploaded as {FILE} or {FORM}"
        )
    return body


def _parsed(content: bytes) -> Any:
    """Any number: configurations have them; a question's own fields refuse what is not finite."""
    try:
        return json_text.parse(content, "the question", any_number=True)
    except UnicodeDecodeError as error:
        raise Problem("malformed", f"the question is no text ({error.reason})") from None
    except PerfPassError as error:
        raise Problem("malformed", str(error)) from None


def fields(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """What an address or a form says of a question; values that are tables or lists are JSON. Raises ArgumentError."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ArgumentError(f"{name[:80]!r} is given twice; lists are JSON")
        found[name] = _parsed(value.encode("utf-8", "surrogatepass")) if value[:1] in ("{", "[") else value
    return found


@dataclass(frozen=True)
class Part:
    """One part of a form; ``file``: the name that a browser gives a file, None where the part is none."""

    content: bytes
    file: str | None = None


async def parts(request: Request, names: Collection[str], texts: int = 1) -> dict[str, Part]:
    """The parts of a form by name, all of them among ``names``, ``texts`` of them no files; nothing touches a disk.

    Raises Problem, ArgumentError.
    """
    parser = _InMemory(
        request.headers, request.stream(), max_files=len(names), max_fields=texts, max_part_size=_LARGEST_JSON_BYTES
    )
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise Problem("malformed", f"the form is damaged: {error.message}") from None
    except (KeyError, ValueError, UnicodeDecodeError) as error:
        raise Problem("malformed", f"the form is damaged: {str(error)[:200]}") from None
    found: dict[str, Part] = {}
    try:
        for name, part in form.multi_items():
            if name not in names or name in found:
                raise ArgumentError(f"the part {name[:80]!r}; a form has each of {', '.join(names)} once")
            if isinstance(part, UploadFile):
                found[name] = Part(await part.read(), part.filename or "")
            else:
                found[name] = Part(part.encode("utf-8", "surrogatepass"))
    finally:
        await form.close()
    return found


async def _of_form(request: Request, kind: Kind) -> tuple[Question, dict[str, bytes]]:
    """The question and the files of a form. Raises Problem."""
    if request.query_params:
        raise ArgumentError(f"the question is the part {_QUESTION!r}; parameters of the address are for {FILE}")
    found = await parts(request, (_QUESTION, *kind.asked.uploads))
    content = found.pop(_QUESTION, Part(b"{}")).content
    for name, part in found.items():
        if part.file is None:
            raise ArgumentError(f"the part {name!r} is no file; a name or a configuration stands in {_QUESTION!r}")
    files = {name: part.content for name, part in found.items()}
    if len(content) > _LARGEST_JSON_BYTES:
        raise Problem("too-large", f"a question of over {_LARGEST_JSON_BYTES >> 20} MiB")
    return await aside(len(content), lambda: kind.read(_parsed(content))), files
