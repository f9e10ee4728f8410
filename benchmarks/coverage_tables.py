"""The coverage page's tables, from what `benchmarks/coverage/run.py` and `benchmarks/coverage/routes.py` stored."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from report import figure, table

RESULTS = Path(__file__).resolve().parent / "results" / "coverage"
_SHOWN = 12  # models of one reason or difference


def _documents() -> list[dict[str, Any]]:
    """Results of all groups, by title."""
    found = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]
    return sorted((document for document in found if "rows" in document), key=lambda document: document["title"])


def _agrees(row: dict[str, Any]) -> str | None:
    """Equal, explained, different; None where nothing was there to compare with."""
    pairs = [(row.get(name), row.get(f"reference_{name}")) for name in ("macs", "parameters")]
    known = [ours == theirs for ours, theirs in pairs if theirs is not None]
    if row["outcome"] != "imported" or not known:
        return None
    return "equal" if all(known) else "explained" if row.get("explained") else "different"


def coverage() -> str:
    """A line a group: outcomes, agreement with the public counter, seconds."""
    lines, total = [], Counter[str]()
    for document in _documents():
        rows = document["rows"]
        count = Counter(row["outcome"] for row in rows)
        count["unknown"] = sum(bool(row.get("unknown")) for row in rows)
        count.update(kind for row in rows if (kind := _agrees(row)))
        count["models"] = len(rows)
        seconds = sorted(row["seconds"] for row in rows)
        total += count
        lines.append([document["title"], *_cells(count), figure(seconds[len(seconds) // 2])])
    lines.append(["all", *_cells(total), ""])
    head = ["models of", "models", "imported", "%", "refused", "failed", "unknown"]
    head += ["equal", "explained", "different", "median s"]
    return (
        f"{table(head, lines)}\n\nRefused: by an error of ours that gives the reason, or not made by its own library. "
        "Failed: anything else. Unknown: imported with operators that have no rule, which are named. Equal: MACs and "
        "parameters are those of the public counter or of the model's own library; explained: they differ, for the "
        "reason below; the rest has no such counter. Seconds: from the model's definition or file to its graph, with "
        "the counters."
    )


def _cells(count: Counter[str]) -> list[str]:
    share = f"{100 * count['imported'] / count['models']:.1f}" if count["models"] else ""
    names = ("refused", "failed", "unknown", "equal", "explained", "different")
    return [f"{count['models']:,}", f"{count['imported']:,}", share, *(f"{count[name]:,}" for name in names)]


def not_imported() -> str:
    """What was refused or failed, and which operators are unknown, by reason."""
    parts = []
    for document in _documents():
        reasons: dict[str, list[str]] = {}
        for row in document["rows"]:
            if row["outcome"] != "imported":
                reasons.setdefault(f"{row['outcome']}, {row['reason']}", []).append(row["model"])
            for name in row.get("unknown", ()):
                reasons.setdefault(f"imported, {name} unknown", []).append(row["model"])
        if reasons:
            parts.append(f"**{document['title']}**\n\n" + _listed(reasons))
    return "\n\n".join(parts) or "Nothing."


def differences() -> str:
    """Where MACs or parameters are not the counter's, by explanation."""
    parts = []
    for document in _documents():
        reasons: dict[str, list[str]] = {}
        for row in document["rows"]:
            if _agrees(row) in ("explained", "different"):
                reasons.setdefault(row.get("explained") or "unexplained", []).append(row["model"])
        if reasons:
            parts.append(f"**{document['title']}**\n\n" + _listed(reasons))
    return "\n\n".join(parts) or "None."


def _listed(reasons: dict[str, list[str]]) -> str:
    lines = []
    for reason, models in sorted(reasons.items(), key=lambda pair: (-len(pair[1]), pair[0])):
        names = ", ".join(models[:_SHOWN]) + (f" and {len(models) - _SHOWN} more" if len(models) > _SHOWN else "")
        lines.append(f"- {_plain(reason)}: {names}")
    return "\n".join(lines)


def _plain(text: str) -> str:
    """Text that Markdown shows as it is."""
    for sign in "\\`*_<>|[]":
        text = text.replace(sign, f"\\{sign}")
    return text


def settings() -> str:
    """Versions of what the groups were made with."""
    lines = []
    for document in _documents():
        versions = ", ".join(f"{name} {version}" for name, version in document["versions"].items())
        lines.append([document["title"], versions, document["machine"]["processor"]])
    return table(["models of", "versions", "processor"], lines)


TABLES = {
    "coverage": coverage,
    "coverage_reasons": not_imported,
    "coverage_differences": differences,
    "coverage_versions": settings,
}
