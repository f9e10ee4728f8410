"""A difference as Markdown of GitHub's dialect: for a comment on a pull request or the summary of a job."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from perfpass.deploy.difference.text import cells, headline, otherwise, reasons, summary, times, way
from perfpass.text import printable

if TYPE_CHECKING:
    from perfpass.deploy.difference.found import Found

_MARKS = {"held": "✅ held", "broken": "❌ broken", "cannot say": "❔ cannot say"}
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~@&])")
_MOST_CHANGES = 40
_MOST_CELL = 200


def markdown(found: Found) -> str:
    """Headline, a table a device, limits, and what changed, folded."""
    lines = [f"**{_plain(headline(found))}**", ""]
    changed = "".join(f", {words}" for words in otherwise(found.change))
    lines += [f"{_code(found.old)} → {_code(found.new)}{_plain(changed)}", ""]
    head = ["figure", "old", "new", "ratio", "90 % interval"]
    lines += _table(head, [list(cells(ratio)) for ratio in found.exact])
    for on in found.devices:
        lines += ["", f"**{_plain(on.name)}** ({_code(on.device)}), {_plain(way(found, on))}", ""]
        lines += _table(head, [list(cells(ratio)) for ratio in on.ratios])
        lines += ["", *(f"- {label}: {_plain(text)}" for label, text in reasons(on))]
    if found.verdicts:
        rows = [
            [_MARKS[v.answer], v.device or "", v.limit, f"{v.probability:.2f}", times(v.ratio)] for v in found.verdicts
        ]
        lines += ["", f"Limits, at a confidence of {found.verdicts[0].confidence:g}", ""]
        lines += _table(["", "device", "limit", "P(within)", "ratio"], rows)
    lines += ["", "<details><summary>What changed</summary>", ""]
    lines += [f"- {_plain(line)}" for line in summary(found, _MOST_CHANGES)]
    return "\n".join([*lines, "", "</details>", ""])


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    lines = [head, ["---", *(["---:"] * (len(head) - 1))]]
    shown = ["| " + " | ".join(cell for cell in line) + " |" for line in lines]
    return [*shown, *("| " + " | ".join(_plain(cell) for cell in row) + " |" for row in rows)]


def _plain(text: str) -> str:
    """Text as it is: names from a model mean nothing to Markdown or HTML, and mention nobody."""
    text = printable(text)
    return _SPECIAL.sub(r"\\\1", text if len(text) <= 4 * _MOST_CELL else text[: 4 * _MOST_CELL] + "...")


def _code(text: str) -> str:
    text = printable(text).replace("`", "'")
    return f"`{text if len(text) <= _MOST_CELL else '...' + text[-_MOST_CELL:]}`"
