"""The tables of `perfpass compare`: features by reader, differences by kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfpass.text import columns, paragraph, printable

if TYPE_CHECKING:
    from perfpass.graph.difference import Comparison, Difference, Summary

_NAMES_SHOWN = 6
_MOST_WHAT = 34


def table(model: str, summaries: list[Summary], found: list[Comparison], missing: dict[str, str], explain: bool) -> str:
    """Features of every reader, and the differences from the first by kind."""
    from perfpass.graph.difference import FEATURES

    rows: list[tuple[str, ...]] = [("", *(f"{s.reader} {s.version}".strip() for s in summaries))]
    rows += [(name, *(_value(s.totals[name], summaries[0].totals[name]) for s in summaries)) for name in FEATURES]
    lines = [f"{printable(model)}, read by {len(summaries)}", "", columns(rows, right=range(1, len(rows[0])))]
    for one in found:
        aligned = f"{one.aligned} operators have their like"
        lines += ["", f"{one.reference} and {one.other}: {aligned}, {len(one.unexplained)} differences unexplained"]
        kinds: list[tuple[str, ...]] = [("difference", "what", "times", "nodes", "FLOPs", "bytes")]
        kinds += [_row(d) for d in (*one.differences, *one.unexplained)]
        lines.append(columns(kinds, right=(2, 3, 4, 5)) if len(kinds) > 1 else "  no difference")
        if explain:
            lines += [paragraph("", _explained(d)) for d in (*one.differences, *one.unexplained)]
    lines += [paragraph("left out", f"{name}: {why}") for name, why in missing.items()]
    return "\n".join(lines)


def _value(value: int, reference: int) -> str:
    return f"{value:,}" if value == reference or not reference else f"{value:,} ({value / reference:.3g}x)"


def _row(d: Difference) -> tuple[str, ...]:
    what = printable(d.what)
    shown = what if len(what) <= _MOST_WHAT else what[: _MOST_WHAT - 3] + "..."
    nodes = f"{len(d.reference_nodes)} to {len(d.other_nodes)}"
    return d.kind, shown, str(d.count), nodes, f"{d.flops:+.3g}", f"{d.moved_bytes:+.3g}"


def _explained(d: Difference) -> str:
    return f"{d.kind}, {d.what[:60]}: {_names(d.reference_nodes)} -> {_names(d.other_nodes)}"


def _names(names: list[str]) -> str:
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return (", ".join(names[:_NAMES_SHOWN]) or "nothing") + more
