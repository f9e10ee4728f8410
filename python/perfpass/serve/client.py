"""`perfpass.Client`: the questions of `perfpass serve`, with the answers that the functions here would give.

By the standard library alone, over one connection a thread. Questions change nothing, so what a stopping server did not
begin to answer is asked again.
"""

from __future__ import annotations

import dataclasses
import http.client
import json
import os
import secrets
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from perfpass import errors, json_text
from perfpass.bounded_file import read_file
from perfpass.errors import ArgumentError, FileError, FormatError, LimitError, PerfPassError, shown
from perfpass.text import shown_value

if TYPE_CHECKING:
    from perfpass.deploy.advise import Advice
    from perfpass.deploy.choose import Choice
    from perfpass.deploy.difference import Difference
    from perfpass.deploy.fit import Fit
    from perfpass.deploy.train_advice import Advice as TrainAdvice
    from perfpass.deploy.train_cost import Layouts, TrainCost
    from perfpass.deploy.train_network import NetworkTrainCost
    from perfpass.deploy.train_network_advice import NetworkLayouts
    from perfpass.devices import Device
    from perfpass.prediction import Prediction
    from perfpass.predictors.serving.prediction import LlmPrediction

_Found = TypeVar("_Found", "Advice", "Choice", "Difference", "Fit", "TrainCost | NetworkTrainCost")
_TRIES = 3
_MOST_WAIT_S = 5.0
_LARGEST_ANSWER_BYTES = 256 << 20
_LARGEST_MODEL_BYTES = 2 << 30
_LARGEST_CONFIG_BYTES = 16 << 20


class ServerError(PerfPassError):
    """A server cannot be reached, refuses to answer, or answers something else. ``status``: of HTTP, 0 without one."""

    status = 0


class Client:
    """Asks a server of `perfpass serve`. Its methods have the arguments and the answers of the functions of that name.

    A model is a name that the server knows, the path of a model's file or of a config.json here, the bytes of such a
    file, an ``onnx.ModelProto``, or the content of a configuration. May be used from many threads.

    >>> client = Client("http://127.0.0.1:8000")
    >>> client.predict("net.onnx", "t4", batch=8).latency_ms.median
    """

    def __init__(self, url: str, token: str = "", *, timeout_s: float = 60.0) -> None:
        """``token``: sent as `Authorization: Bearer`. ``timeout_s``: without a byte from the server.

        Raises ArgumentError for an address that is none of HTTP, a token that no header holds, a time that is none.
        """
        try:
            parts = urllib.parse.urlsplit(url)
            port = parts.port
            host = "" if parts.query or parts.fragment or parts.scheme not in ("http", "https") else parts.hostname
        except (AttributeError, TypeError, ValueError):
            host = ""
        if not host:
            raise ArgumentError(f"{shown_value(url)} is no address of a server; give one as http://127.0.0.1:8000")
        if not (token.isascii() and token.isprintable()):
            raise ArgumentError("a token is of printable ASCII letters alone; is there a line break at its end?")
        if not 0 < timeout_s < threading.TIMEOUT_MAX:
            raise ArgumentError(f"timeout_s is {shown_value(timeout_s)}; give seconds over 0")
        self._host, self._port, self._path = host, port, parts.path.rstrip("/")
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._timeout_s = timeout_s
        self._own = threading.local()

    def predict(self, model: Any, device: str, **how: Any) -> Prediction:
        """As `perfpass.predict`."""
        from perfpass.serve import results

        return results.prediction(self._ask("predict", {"model": model}, {"device": device, **how}))

    def explain(self, model: Any, device: str, **how: Any) -> str:
        """`predict` in words: the table, time by operator, memory at the peak, sources."""
        from perfpass.serve import results

        return results.explanation(self._ask("explain", {"model": model}, {"device": device, **how}))

    def fit(self, model: Any, device: Any = None, **how: Any) -> Fit:
        """As `perfpass.fit`."""
        from perfpass.serve import results

        return _with_paths(results.fit(self._ask("fit", {"model": model}, {"device": device, **how})), model=model)

    def choose(self, model: Any, devices: Any = None, **how: Any) -> Choice:
        """As `perfpass.choose`."""
        from perfpass.serve import results

        found = results.choice(self._ask("choose", {"model": model}, {"devices": devices, **how}))
        return _with_paths(found, os.path.basename, model=model)

    def advise(self, model: Any, device: Any, **how: Any) -> Advice:
        """As `perfpass.advise` without rewrites: a server runs no file."""
        from perfpass.serve import results

        found = results.advice(self._ask("advise", {"model": model}, {"device": device, **how}))
        return _with_paths(found, os.path.basename, model=model)

    def predict_llm(self, model: Any, device: str, **how: Any) -> LlmPrediction:
        """As `perfpass.predict_llm`."""
        from perfpass.serve import results

        if (split := how.get("prefill")) is not None:
            names = {"tp": "tensor", "pp": "pipeline", "dp": "attention_data", "ep": "expert"}
            how["prefill"] = {name: getattr(split, long) for name, long in names.items()}
        return results.llm_prediction(self._ask("llm", {"model": model}, {"device": device, **how}))

    def diff(self, old: Any, new: Any, device: Any = None, **how: Any) -> Difference:
        """As `perfpass.diff`."""
        from perfpass.serve import results

        found = results.difference(self._ask("diff", {"old": old, "new": new}, {"device": device, **how}))
        return _with_paths(found, old=old, new=new)

    def train_cost(self, model: Any, device: str, **how: Any) -> TrainCost | NetworkTrainCost:
        """As `perfpass.train_cost`, or `perfpass.train_network_cost` of what is no language model."""
        from perfpass.serve import results

        found = results.train_cost(self._ask("train-cost", {"model": model}, {"device": device, **how}))
        return _with_paths(found, model=model)

    def train_advice(self, model: Any, device: str, **how: Any) -> TrainAdvice:
        """What takes less memory than `train_cost` says, by its price in time."""
        from perfpass.serve import results

        how["advise"] = True
        found = results.train_advice(self._ask("train-cost", {"model": model}, {"device": device, **how}))
        return dataclasses.replace(found, asked=_with_paths(found.asked, model=model))

    def search_layouts(self, model: Any, device: str, **how: Any) -> Layouts | NetworkLayouts:
        """Every layout of a step of ``global_batch``, the quickest that fits first; the first five come whole."""
        from perfpass.serve import results

        how["search"] = True
        found: Any = results.train_layouts(self._ask("train-cost", {"model": model}, {"device": device, **how}))
        best, others = (tuple(_with_paths(one, model=model) for one in some) for some in (found.best, found.others))
        layouts: Layouts | NetworkLayouts = dataclasses.replace(found, best=best, others=others)
        return layouts

    def devices(self) -> tuple[Device, ...]:
        """The server's devices."""
        from perfpass.serve import results

        return results.devices(self._json("GET", "/devices"))

    def device(self, name: str) -> Device:
        """One of them, by any of its names."""
        from perfpass.serve import results

        return results.device(self._json("GET", f"/devices/{urllib.parse.quote(name, safe='')}"))

    def ready(self) -> bool:
        """Whether the server answers questions now."""
        try:
            self._json("GET", "/ready", tries=1)
        except ServerError:
            return False
        return True

    def close(self) -> None:
        """Closes this thread's connection."""
        if (connection := getattr(self._own, "connection", None)) is not None:
            connection.close()
            self._own.connection = None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- asking

    def _ask(self, kind: str, models: Mapping[str, Any], how: Mapping[str, Any]) -> Any:
        question = {name: _sendable(value) for name, value in how.items() if value is not None}
        files = {}
        for name, model in models.items():
            sent = _sent(model)
            if isinstance(sent, bytes):
                files[name] = sent
            else:
                question[name] = sent
        try:
            content = json.dumps(question, allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"{kind}: what is asked cannot be sent ({error}); give numbers, texts, lists") from None
        if not files:
            return self._json("POST", f"/{kind}", content, "application/json")
        boundary = secrets.token_hex(16)
        parts = [_part(boundary, "question", "application/json", content, "")]
        parts += [_part(boundary, name, "application/octet-stream", data, name) for name, data in files.items()]
        body = b"".join((*parts, f"--{boundary}--\r\n".encode()))
        return self._json("POST", f"/{kind}", body, f"multipart/form-data; boundary={boundary}")

    def _json(self, method: str, path: str, body: bytes | None = None, kind: str = "", tries: int = _TRIES) -> Any:
        """The document at a path. Raises the error that a problem names, or ServerError."""
        headers = {**self._headers, "Accept": "application/json", **({"Content-Type": kind} if kind else {})}
        for left in reversed(range(tries)):
            try:
                status, waits, content = self._exchange(method, path, body, headers)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if left:
                    continue
                raise ServerError(
                    f"{self._host}: no answer ({_reason(error)}); is `perfpass serve` running?"
                ) from error
            if status == 503 and left:
                time.sleep(waits)
                continue
            break
        try:
            document = json_text.parse(content, "the server's answer", any_number=True)
        except FormatError as error:
            raise _refused(status, f"the server answered {status} and no JSON ({error})") from error
        if status != 200:
            raise _error_of(status, document)
        return document

    def _exchange(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, float, bytes]:
        connection = getattr(self._own, "connection", None)
        if connection is None:
            connection = self._own.connection = self._connected()
        connection.request(method, f"{self._path}{path}", body, dict(headers))
        answer = connection.getresponse()
        content = answer.read(_LARGEST_ANSWER_BYTES + 1)
        if len(content) > _LARGEST_ANSWER_BYTES:
            self.close()
            raise LimitError(f"{self._host}: an answer of over {_LARGEST_ANSWER_BYTES >> 20} MiB")
        if answer.will_close:
            self.close()
        waits = answer.headers.get("Retry-After", "1")
        return answer.status, min(float(waits) if waits.isdecimal() else 1.0, _MOST_WAIT_S), content

    def _connected(self) -> http.client.HTTPConnection:
        if self._tls is not None:
            return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout_s, context=self._tls)
        return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)


def _sent(model: Any) -> Any:
    """A model as it is sent: the bytes of a file, a configuration, or a name."""
    if isinstance(model, (bytes, bytearray, memoryview)):
        return bytes(model)
    if isinstance(model, Mapping):
        return dict(model)
    if isinstance(model, (str, os.PathLike)):
        path = Path(model)
        if path.is_dir() and (path / "config.json").is_file():
            path /= "config.json"
        if path.suffix.lower() == ".json" and path.is_file():
            return json_text.read_json(path, "a config.json", _LARGEST_CONFIG_BYTES, any_number=True)
        if path.is_file():
            return read_file(path, "a model", _LARGEST_MODEL_BYTES)
        if path.suffix.lower() in (".onnx", ".json"):
            raise FileError(f"{shown(path)}: no such file")
        return os.fspath(model)
    if hasattr(model, "SerializeToString"):
        return bytes(model.SerializeToString())
    raise ArgumentError(
        f"a {type(model).__name__} cannot be sent to a server; give a name, a file or its bytes, or a config.json"
    )


def _with_paths(found: _Found, as_shown: Callable[[str], str] = str, **models: Any) -> _Found:
    """An answer about files, whose names are not sent, with their paths as the functions show them."""
    paths = {name: os.fsdecode(one) for name, one in models.items() if isinstance(one, (str, os.PathLike))}
    named: dict[str, Any] = {name: as_shown(path) for name, path in paths.items() if _is_onnx(path)}
    return dataclasses.replace(found, **named)


def _is_onnx(path: str) -> bool:
    return os.path.isfile(path) and not path.lower().endswith(".json")


def _sendable(value: Any) -> Any:
    """An argument as JSON has it."""
    from perfpass.decision import Limits
    from perfpass.devices import Device

    if isinstance(value, Limits):
        return value.to_dict()
    if isinstance(value, Device):
        return value.id
    if isinstance(value, (list, tuple)):
        return [_sendable(one) for one in value]
    return value


def _part(boundary: str, name: str, kind: str, content: bytes, file: str) -> bytes:
    named = f'; filename="{file}"' if file else ""
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"{named}\r\nContent-Type: {kind}\r\n\r\n'
    return head.encode() + content + b"\r\n"


def _error_of(status: int, document: Any) -> PerfPassError:
    """The error that a problem document names."""
    known = document if isinstance(document, dict) else {}
    detail = str(known.get("detail", f"the server answered {status}"))
    found = getattr(errors, str(known.get("error", "")), None)
    if isinstance(found, type) and issubclass(found, PerfPassError):
        error: PerfPassError = found(detail)
        return error
    return _refused(status, f"{known.get('title', 'refused')}: {detail}")


def _refused(status: int, text: str) -> ServerError:
    error = ServerError(text)
    error.status = status
    return error


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__
