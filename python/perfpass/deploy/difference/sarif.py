"""Differences as SARIF 2.1.0 (OASIS, Static Analysis Results Interchange Format), which code scanning reads."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from perfpass import __version__
from perfpass.deploy.difference.ratio import METRICS
from perfpass.deploy.difference.text import LABELS, said, times
from perfpass.text import printable

if TYPE_CHECKING:
    from perfpass.deploy.difference.found import Found
    from perfpass.deploy.difference.ratio import Verdict

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {"broken": "error", "cannot say": "warning", "held": "none"}
_KINDS = {"broken": "fail", "cannot say": "open", "held": "pass"}


def sarif(found: Sequence[Found]) -> dict[str, Any]:
    """One run, a rule for each figure, a result for each limit on each device; of SARIF's kinds fail, open and pass."""
    rules = [
        {
            "id": f"perfpass/{metric}",
            "name": f"{metric.capitalize()}Limit",
            "shortDescription": {"text": f"{LABELS[metric]}: how much worse a change may make it"},
            "fullDescription": {
                "text": f"Predicted {LABELS[metric]} of the new model over that of the old one, with its 90 % interval."
            },
            "defaultConfiguration": {"level": "error"},
        }
        for metric in METRICS
    ]
    results = [_result(one, verdict) for one in found for verdict in one.verdicts]
    driver = {"name": "perfpass", "semanticVersion": __version__, "rules": rules}
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "columnKind": "utf16CodeUnits", "results": results}],
    }


def _result(found: Found, verdict: Verdict) -> dict[str, Any]:
    where = f" on {verdict.device}" if verdict.device else ""
    name = printable(found.new)
    key = f"{found.new}\0{verdict.metric}\0{verdict.device or ''}".encode(errors="surrogatepass")
    return {
        "ruleId": f"perfpass/{verdict.metric}",
        "ruleIndex": list(METRICS).index(verdict.metric),
        "kind": _KINDS[verdict.answer],
        "level": _LEVELS[verdict.answer],
        "message": {"text": f"{LABELS[verdict.metric]}{where} {times(verdict.ratio)}; {said(verdict)} ({name})"},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": _uri(found.new)},
                    "region": {"startLine": 1},
                }
            }
        ],
        "partialFingerprints": {"perfpassLimit/v1": hashlib.sha256(key).hexdigest()},
        "properties": verdict.ratio.to_dict() | {"probability_within": verdict.probability},
    }


def _uri(name: str) -> str:
    """A relative reference; of a file at a commit its path, of a name that is no path the name."""
    path = name.rpartition(":")[2] if name.startswith("git:") else name
    return quote(PurePath(path).as_posix(), safe="/-._~", errors="replace") or "model"
