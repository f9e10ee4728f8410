"""Errors as documents: application/problem+json (RFC 9457), one type for every error class and every limit."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.responses import Response

from perfpass import errors
from perfpass.errors import PerfPassError

MEDIA_TYPE = "application/problem+json"
# HTTP's own refusals: name, status, title.
_OF_HTTP = {
    "malformed": (400, "The request is not what it claims to be"),
    "token": (401, "The bearer token is missing or wrong"),
    "not-here": (403, "The page is asked under another name, or by another site"),
    "not-found": (404, "There is nothing at this path"),
    "method": (405, "The path does not take this method"),
    "slow": (408, "The request came too slowly"),
    "too-large": (413, "The body is larger than the limit"),
    "media-type": (415, "The body is of a type that is not read"),
    "headers": (431, "The headers are too many or too large"),
    "internal": (500, "A fault of the server"),
    "busy": (503, "As much is being asked as the server bounds"),
    "time": (503, "The answer took longer than the limit"),
    "not-ready": (503, "The server is starting, stopping or stuck"),
}
# What an asker can mend is 4xx.
_OF_ERRORS = {errors.ArtefactError: 500, errors.FileError: 404, errors.LimitError: 413}
_WITHOUT_STATUS = 422
_BY_HTTP_STATUS = {status: name for name, (status, _) in reversed(_OF_HTTP.items())}


@dataclass
class Problem(Exception):
    """A refusal. ``name``: of `TYPES`; ``headers`` go with the answer."""

    name: str
    detail: str
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, error: PerfPassError) -> Problem:
        """Of an error of the product, by its nearest documented class."""
        known = next(c for c in type(error).__mro__ if c.__name__ in TYPES)
        said = f"{error.subject}: {error}" if error.subject else str(error)
        # Where this machine keeps things is nobody's business.
        return cls(known.__name__, said.replace(str(Path.home()), "~"))

    @classmethod
    def of_error(cls, error: Exception) -> Problem:
        """Of anything that was raised while a request was answered."""
        if isinstance(error, Problem):
            return error
        if isinstance(error, PerfPassError):
            return cls.of(error)
        if isinstance(error, HTTPException):
            return cls.of_status(error.status_code, str(error.detail))
        if isinstance(error, MemoryError):
            return cls("busy", "out of memory; ask about a smaller model or batch", {"Retry-After": "1"})
        return cls("internal", "the server's log has it under this request's id; please report it")

    @classmethod
    def of_status(cls, status: int, detail: str) -> Problem:
        """Of a refusal by HTTP itself."""
        return cls(_BY_HTTP_STATUS.get(status, "malformed"), detail)

    @property
    def status(self) -> int:
        """The HTTP status."""
        return TYPES[self.name][0]

    def document(self, request_id: str) -> dict[str, object]:
        """The members of RFC 9457, with the request's id; of an error of ours its class and exit code."""
        status, title = TYPES[self.name]
        found: dict[str, object] = {
            "type": f"/problems/{self.name}",
            "title": title,
            "status": status,
            "detail": self.detail,
            "request_id": request_id,
        }
        if (error := getattr(errors, self.name, None)) is not None:
            found |= {"error": self.name, "exit_code": error.exit_code}
        return found

    def response(self, request_id: str) -> Response:
        """The answer."""
        content = json.dumps(self.document(request_id)).encode()
        return Response(content, self.status, dict(self.headers), MEDIA_TYPE)


def _classes() -> dict[str, tuple[int, str]]:
    found = {}
    for name, one in inspect.getmembers(errors, inspect.isclass):
        if issubclass(one, PerfPassError):
            status = next((s for base, s in _OF_ERRORS.items() if issubclass(one, base)), _WITHOUT_STATUS)
            found[name] = (500 if one is PerfPassError else status, (one.__doc__ or "").partition("\n")[0].rstrip("."))
    return found


# Every type of problem: its status and title.
TYPES: Mapping[str, tuple[int, str]] = {**_OF_HTTP, **_classes()}
