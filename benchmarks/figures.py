"""Writes what the documents quote: tables between `<!-- table NAME -->` and `<!-- end -->`, and what commands print.

Tables come from benchmarks/results/*.json and data/results; the fenced blocks of the pages are run (documents.py).

    python benchmarks/figures.py [--check] [PAGE ...]

Without a PAGE all of them. With --check nothing is written, and the exit code says whether they show what is stored
and what the commands print.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import sys
import textwrap
from pathlib import Path

import accuracy_tables
import coverage_tables
import documents
import weak_points
from result_tables import SHARED, TABLES

ROOT = documents.ROOT
RESULTS = ROOT / "benchmarks" / "results"
# Pages that are made or run; the other documents show no output.
PAGES = (
    "README.md",
    "docs/index.md",
    "docs/quickstart.md",
    "docs/benchmarks.md",
    "docs/coverage.md",
    "docs/weak-points.md",
    "docs/guides",
)
_TABLE = re.compile(r"(<!-- table (?P<name>\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_COLUMNS = 120  # of the notes under a table


def pages() -> list[Path]:
    """All pages, those of folders one by one."""
    found = [ROOT / name for name in PAGES]
    return [page for path in found for page in (sorted(path.glob("*.md")) if path.is_dir() else [path])]


def filled(text: str, page: Path) -> str:
    """A page with every marked table made from its results; a marker without results is an error."""

    def replace(match: re.Match[str]) -> str:
        name = match["name"]
        if name == "errors":
            made = accuracy_tables.errors()
        elif name == "accuracy":
            made = accuracy_tables.accuracy(os.path.relpath(accuracy_tables.ACCURACY, page.parent) + "/")
        elif name == "predictors":
            made = accuracy_tables.predictors()
        elif name == "weak":
            made = weak_points.weak_points()
        elif name in coverage_tables.TABLES:
            made = coverage_tables.TABLES[name]()
        elif name in TABLES:
            made = TABLES[name](json.loads((RESULTS / f"{SHARED.get(name, name)}.json").read_text()))
        else:
            known = ", ".join(["errors", "accuracy", "predictors", "weak", *coverage_tables.TABLES, *TABLES])
            raise SystemExit(f"the table {name!r} is asked for; known are {known}")
        return f"{match[1]}\n{_wrapped(made)}\n\n{match[3]}"

    return _TABLE.sub(replace, text)


def _wrapped(made: str) -> str:
    lines = []
    for line in made.splitlines():
        text = not line.startswith("|") and len(line) > _COLUMNS
        lines += textwrap.wrap(line, _COLUMNS, break_long_words=False, break_on_hyphens=False) if text else [line]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path, metavar="PAGE", help="only these")
    parser.add_argument("--check", action="store_true", help="only compare")
    options = parser.parse_args()
    stale = False
    for page in [p.resolve() for p in options.pages] or pages():
        before = page.read_text()
        try:
            after = documents.remade(filled(before, page))
        except RuntimeError as error:
            raise RuntimeError(f"{page.relative_to(ROOT)}: {error}") from error
        if not options.check:
            page.write_text(after)
        elif after != before:
            stale = True
            lines = difflib.unified_diff(before.splitlines(), after.splitlines(), page.name, "now", lineterm="", n=1)
            print("\n".join(lines), file=sys.stderr)
    if stale:
        sys.exit("the documents do not show what is stored or printed now; run: bash bootstrap.sh figures")


if __name__ == "__main__":
    main()
