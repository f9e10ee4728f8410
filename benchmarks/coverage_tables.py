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


def _outcome(row: dict[str, Any]) -> str:
    return "not made" if row.get("reason", "").startswith("NotMadeError") else row["outcome"]


def coverage() -> str:
    """A line a group: outcomes, agreement with the public counter, seconds."""
    lines, total = [], Counter[str]()
    for document in _documents():
        rows = document["rows"]
        count = Counter(_outcome(row) for row in rows)
        count["unknown"] = sum(bool(row.get("unknown")) for row in rows)
        count.update(kind for row in rows if (kind := _agrees(row)))
        count["models"], count["listed"] = len(rows), document.get("models", len(rows))
        total += count
        lines.append([document["title"], *_cells(count)])
    lines.append(["all", *_cells(total)])
    head = ["models of", "models", "unmade", "imported", "%", "refused", "failed", "unknown"]
    head += ["equal", "explained", "differ"]
    return (
        f"{table(head, lines)}\n\nUnmade: its own library or exporter could not make it; no part of the share. "
        "Refused: by an error of ours that gives the reason. "
        "Failed: anything else. Unknown: imported with operators that have no rule, which are named. Equal: MACs and "
        "parameters are those of the public counter or of the model's own library; explained: they differ, for the "
        "reason below; the rest has no such counter."
    )


def _cells(count: Counter[str]) -> list[str]:
    made = count["models"] - count["not made"]
    share = f"{100 * count['imported'] / made:.1f}" if made else ""
    names = ("refused", "failed", "unknown", "equal", "explained", "different")
    listed = f" of {count['listed']:,}" if count["listed"] > count["models"] else ""
    first = [f"{count['models']:,}{listed}", f"{count['not made']:,}", f"{count['imported']:,}", share]
    return [*first, *(f"{count[name]:,}" for name in names)]


def not_imported() -> str:
    """What was refused or failed, and which operators are unknown, by reason."""
    parts = []
    for document in _documents():
        reasons: dict[str, list[str]] = {}
        for row in document["rows"]:
            if row["outcome"] != "imported":
                reasons.setdefault(f"{_outcome(row)}, {row['reason']}", []).append(row["model"])
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
    """Versions of what the groups were made with, and the days and commits that their models were read by."""
    lines = []
    for document in _documents():
        versions = ", ".join(f"{name} {version}" for name, version in document["versions"].items())
        models = Counter(row.get("reading", 0) for row in document["rows"])
        read = [
            f"{models[at]:,} on {reading['read_on']} ({reading['code']})"
            for at, reading in enumerate(document["readings"])
        ]
        made = f"{document['machine']['processor']}; read {', '.join(read)}"
        lines.append(f"- {document['title']}: {versions}; {made}")
    return "\n".join(lines)


def routes() -> str:
    """The same network by every route, beside torch's own trace."""
    document = json.loads((RESULTS.parent / "coverage_routes.json").read_text())
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in document["rows"]:
        rows.setdefault(row["model"], []).append(row)
    lines = []
    for model, found in rows.items():
        whole = [row for row in found if "macs" in row]
        first = next((row for row in whole if row["route"] == "torch"), None)
        for row in whole if first else []:
            counts = [
                f"{row[n]:,}" if row is first else "=" if row[n] == first[n] else f"{row[n] - first[n]:+,}"
                for n in ("parameters", "macs")
            ]
            megabytes = f"{row['bytes_written'] / 1e6:,.0f}"
            asked = row.get("predictors") == first.get("predictors")  # of the same, else they are not beside torch's
            times = [
                f"{figure(row[n])} ({row[n] / first[n] - 1:+.0%})" if asked else "-" for n in ("gpu_ms", "processor_ms")
            ]
            lines.append(
                [model if row is first else "", row["route"], *counts, str(row["operators"]), megabytes, *times]
            )
    head = ["network", "route", "parameters", "MACs", "operators", "MB written", document["gpu"], document["processor"]]
    missing = [row for row in document["rows"] if "macs" not in row]
    said = "; ".join(f"{row['model']} by {row['route']}, {row.get('refused') or row['not_made']}" for row in missing)
    versions = ", ".join(f"{name} {version}" for name, version in document["versions"].items())
    return (
        f"{table(head, lines)}\n\nMilliseconds at batch 1 and fp32 with {document['runtime']}, beside torch's; -: not "
        f"asked of these predictors. {f'Not there: {said}. ' if said else ''}{versions}."
    )


TABLES = {
    "coverage_routes": routes,
    "coverage": coverage,
    "coverage_reasons": not_imported,
    "coverage_differences": differences,
    "coverage_versions": settings,
}
