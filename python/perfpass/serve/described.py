"""What the OpenAPI description says beyond what FastAPI finds: bodies, answers, problems, examples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic.json_schema import models_json_schema

from perfpass.serve.kinds import KINDS, Kind
from perfpass.serve.problems import MEDIA_TYPE
from perfpass.serve.uploads import FILE, FORM, JSON

_REF = "#/components/schemas/{model}"
_BINARY = {"type": "string", "format": "binary", "description": "An ONNX file; its weights are not read."}
_NUMBER = {"type": "number", "minimum": 0}
SCHEMAS: dict[str, Any] = {
    "Interval": {
        "type": "object",
        "description": "The measured value lies between low and high with probability coverage.",
        "required": ["median", "low", "high", "unit", "coverage"],
        "properties": {
            **dict.fromkeys(("median", "low", "high"), _NUMBER),
            "unit": {"type": "string"},
            "coverage": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        },
    },
    "Support": {
        "type": "object",
        "description": "How far measurements stand behind the figures.",
        "required": ["level", "reasons"],
        "properties": {
            "level": {"enum": ["in range", "near", "outside"]},
            "reasons": {"type": "array", "items": {"type": "string"}},
        },
    },
    "Problem": {
        "type": "object",
        "description": "RFC 9457. Of an error of perfpass, error is its class and exit_code that of the command line.",
        "required": ["type", "title", "status", "detail", "request_id"],
        "properties": {
            "type": {"type": "string", "format": "uri-reference"},
            **{name: {"type": "string"} for name in ("title", "detail", "request_id", "error")},
            "status": {"type": "integer", "minimum": 400, "maximum": 599},
            "exit_code": {"type": "integer"},
        },
        "examples": [
            {
                "type": "/problems/DeviceError",
                "title": "An unknown device, or a device without the figure that was asked for",
                "status": 422,
                "detail": "unknown device 'h1000'; did you mean h100?",
                "request_id": "4f1c0a6f2b9d8e35",
                "error": "DeviceError",
                "exit_code": 9,
            }
        ],
    },
}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    code: {"description": said, "content": {MEDIA_TYPE: {"schema": {"$ref": _REF.format(model="Problem")}}}}
    for code, said in (
        ("4XX", "What was asked is wrong; the problem says what is allowed"),
        ("5XX", "Too much is asked at once, it takes too long, or a fault of the server"),
    )
}
_INTERVALS = frozenset(
    ("latency_ms", "throughput_per_s", "peak_memory_bytes", "energy_j", "power_w", "ttft_ms", "tpot_ms")
)


def answers() -> dict[str, Any]:
    """The schema of every question's answer, by name."""
    return {f"{kind.asked.__name__}Answer": _answer(kind) for kind in KINDS.values()}


def _answer(kind: Kind) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for name in (*kind.required, *kind.searched):
        if name in _INTERVALS:
            properties[name] = {"$ref": _REF.format(model="Interval")}
        elif name == "support":
            properties[name] = {"$ref": _REF.format(model="Support")}
        elif name in ("headline", "text", "answer", "decision"):
            properties[name] = {"type": "string"}
        elif name in ("schema_version", "schema"):
            properties[name] = {"const": 1}
    return {"description": kind.summary, **kind.answer_schema, "properties": properties}


def question_schemas() -> dict[str, Any]:
    """The schemas of all questions and of what stands in them, by name."""
    _, found = models_json_schema([(kind.asked, "validation") for kind in KINDS.values()], ref_template=_REF)
    schemas: dict[str, Any] = found["$defs"]
    return schemas


def operation(kind: Kind) -> dict[str, Any]:
    """The request body and, for a file as the body, the parameters of the address."""
    schema = {"$ref": _REF.format(model=kind.asked.__name__)}
    examples = {name: {"value": dict(value)} for name, value in kind.examples.items()}
    content: dict[str, Any] = {JSON: {"schema": schema, "examples": examples}}
    if kind.file is None:
        return {"requestBody": {"required": True, "content": content}}
    uploads = kind.asked.uploads
    parts = {"question": schema, **dict.fromkeys(uploads, _BINARY)}
    content[FORM] = {
        "schema": {"type": "object", "required": ["question", *uploads], "properties": parts},
        "encoding": {"question": {"contentType": JSON}, **{name: {"contentType": FILE} for name in uploads}},
    }
    if len(uploads) > 1:
        return {"requestBody": {"required": True, "content": content}}
    content[FILE] = {"schema": _BINARY}
    return {"requestBody": {"required": True, "content": content}, "parameters": _parameters(kind)}


def _parameters(kind: Kind) -> list[dict[str, Any]]:
    """Fields of the question as parameters of the address, for a file that is the whole body."""
    properties: Mapping[str, Any] = question_schemas()[kind.asked.__name__]["properties"]
    found = []
    for name, schema in properties.items():
        if name in kind.asked.uploads:
            continue
        kinds = {one.get("type") for one in schema.get("anyOf", [schema])}
        plain = kinds <= {"string", "integer", "number", "boolean", "null"}
        stated: dict[str, Any] = {"schema": _without_null(schema)} if plain else {"content": {JSON: {"schema": schema}}}
        said = f"With {FILE} alone. {schema.get('description', '')}".strip()
        found.append({"name": name, "in": "query", "required": False, "description": said, **stated})
    return found


def _without_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    kinds = [dict(one) for one in schema.get("anyOf", [schema]) if one.get("type") != "null"]
    return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
