"""The figures of a language model's memory as rows of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfpass.text import size

if TYPE_CHECKING:
    from perfpass.llm.serving import MemoryFit

_ROWS = (("  alive", "alive"), ("  reserved", "reserved"), ("  in use", "in_use"), ("  needed", "needed"))


def memory_rows(memory: MemoryFit) -> list[str]:
    """A row for each figure with an interval; in use is told with what stands behind it."""
    lines = []
    for label, name in _ROWS:
        found = getattr(memory, name)
        if found is None:
            continue
        value, unit = size(found.median).split()
        behind = f" ({memory.basis})" if name == "in_use" and memory.basis != "measured" else ""
        lines.append(f"  {label:<22} {value:>10} {unit:<10} {size(found.low)} to {size(found.high)}{behind}")
    return lines
