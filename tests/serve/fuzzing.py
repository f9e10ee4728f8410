"""Questions that schemathesis makes of the description, many about models and devices that there are.

``python tests/serve/fuzzing.py EXAMPLES`` asks so many of every operation, at random, and prints what came back.
"""

from __future__ import annotations

import collections
import sys
import zlib
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from perfpass.serve.app import Application
from perfpass.serve.kinds import KINDS
from perfpass.serve.settings import Settings
from perfpass.serve.uploads import FILE, JSON
from serve.test_answers import network

CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.unsupported_method,
]
SCHEMA = schemathesis.openapi.from_asgi("/openapi.json", Application(Settings(question_seconds=600)))
OPERATIONS = {found.ok().label: found.ok() for found in SCHEMA.get_all_operations()}
_REAL: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "device": "l4",
    "devices": ["l4"],
    "old": "mobilenet_v2",
    "new": "mobilenet_v2",
}


def asked(case: Any) -> Any:
    """Asks, checks the answer, and gives it."""
    chosen = zlib.crc32(repr((case.body, case.query)).encode())
    kind = KINDS.get(case.path.strip("/"))
    if kind is not None and chosen % 4:
        # Which models and devices there are no description says; what is left out would be tried on all of them. Of
        # the other fields a few stay: of twenty at random one is always wrong.
        fields = kind.asked.model_fields
        some = {name for i, name in enumerate(fields) if chosen >> (i % 24) & 7 == 0}
        if case.media_type == JSON and isinstance(case.body, dict):
            case.query = {}
            case.body = {name: value for name, value in case.body.items() if name in some}
            case.body |= {name: value for name, value in _REAL.items() if name in fields}
            if kind.name in ("predict", "explain"):
                case.body["model"] = _REAL["old"]  # smaller than a language model, whose every layer is traced
        if case.media_type == FILE:
            case.body = network(chosen % 4)
            case.query = {name: value for name, value in case.query.items() if name in some} | {"device": "t4"}
    answer = case.call(timeout=600)
    case.validate_response(answer, checks=CHECKS)
    return answer


def fuzz(operation: str, examples: int, *, at_random: bool = False) -> collections.Counter[int]:
    """How often each status came back to ``examples`` questions. Raises what a check does."""
    found: collections.Counter[int] = collections.Counter()

    @given(case=OPERATIONS[operation].as_strategy())
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=not at_random,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    def ask(case: Any) -> None:
        found[asked(case).status_code] += 1

    ask()
    return found


if __name__ == "__main__":
    for label in OPERATIONS:
        print(f"{label:24} {dict(sorted(fuzz(label, int(sys.argv[1]), at_random=True).items()))}", flush=True)
