"""Predictions inside ONNX files: the metadata's text, and the bytes of an annotated file."""

from __future__ import annotations

import json
from functools import cache

import hostile_files
import perfpass
from perfpass.annotation import file as annotated_file
from perfpass.annotation import metadata
from perfpass.annotation.layout import block_of
from perfpass.errors import PerfPassError

from .documents import Binary, Json
from .oracle import Violation, figures, naming
from .target import Target, file

_MODEL = hostile_files.plain()


@cache
def _metadata() -> dict[str, str]:
    found = metadata.Annotation()
    for device in ("h100", "t4"):
        found = found.with_prediction(perfpass.predict(_MODEL, device, batch=2), len(_MODEL))
    return found.to_metadata()


@cache
def _annotated() -> bytes:
    return _MODEL + block_of(_metadata())


def _text(data: bytes) -> None:
    """The text of the predictions, in a file whose seal is right: shown, written again, taken out."""
    text = data.decode("utf-8", "replace")
    path = file("model.onnx", _MODEL + block_of({**_metadata(), metadata.PREDICTIONS_KEY: text}))
    try:
        found = annotated_file.read(path)
    except PerfPassError:
        found = None
    if found is not None:
        for prediction in found.annotation.predictions.values():
            for key in ("latency_ms", "peak_memory_bytes", "energy_j"):
                low, median, high = (prediction[key][name] for name in ("low", "median", "high"))
                figures([low, median, high])
                if not low <= median <= high:
                    raise Violation("an interval out of order", f"{low}, {median}, {high}")
        found.annotation.to_metadata()
        assert isinstance(found.stale, tuple)
        _shown(path)
    if not annotated_file.remove(path) or path.read_bytes() != _MODEL:
        raise Violation("a removal that does not give the model back")


def _shown(path: object) -> None:
    from perfpass.cli.annotate import _table

    _table("model.onnx", annotated_file.read(path))  # type: ignore[arg-type]


def _bytes(data: bytes) -> None:
    """A damaged file: read and removed, or refused and left as it was."""
    path = file("model.onnx", data)
    try:
        with naming(path):
            annotated_file.read(path)
    except PerfPassError:
        pass
    else:
        _shown(path)
    try:
        with naming(path):
            removed = annotated_file.remove(path)
    except PerfPassError:
        if path.read_bytes() != data:
            raise Violation("a refused removal that changed the file") from None
        raise
    after = path.read_bytes()
    if not removed and after != data:
        raise Violation("a removal of nothing that changed the file")
    if removed and data.startswith(_MODEL) and not after.startswith(_MODEL):
        raise Violation("a removal that cut into a whole model")
    if removed:
        found = annotated_file.read(path)
        if found.annotation.predictions or found.interrupted or annotated_file.remove(path):
            raise Violation("a removal that left something of ours")
        if b"perfpass." in after and data.startswith(_MODEL):
            raise Violation("a removal that left our bytes")


def _p(*names: str) -> tuple[str, ...]:
    return tuple(f"python/perfpass/annotation/{name}" for name in names)


TARGETS = (
    Target(
        "annotation",
        _text,
        lambda: [json.dumps(json.loads(_metadata()[metadata.PREDICTIONS_KEY]), indent=1).encode()],
        Json(("predictions", "model_bytes", "schema_version", "median", "low", "high", "workload", "support")),
        _p("metadata.py", "file.py", "layout.py"),
    ),
    Target(
        "annotated-file", _bytes, lambda: [_annotated(), _MODEL], Binary(), _p("layout.py", "file.py", "metadata.py")
    ),
)
