"""Promises of the documents: blocks run and show what is printed now, links lead somewhere, lines fit a page."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import documents
import figures
import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [str(page.relative_to(ROOT)) for page in figures.pages()]
ALL = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "examples" / "README.md"})
COLUMNS, README_LINES = 140, 150
LANGUAGES = {"console", "bash", "python", "text", "toml", "yaml", "c", "cpp"}
FENCED = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.slow
def test_every_block_of_every_page_runs_and_shows_what_is_stored_and_printed_now():
    """In one process of their own: blocks import what they like, which took half of the time page by page."""
    command = [sys.executable, "benchmarks/figures.py", "--check"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def not_run() -> list[tuple[str, str]]:
    """Command lines of the pages that `figures.py` leaves alone: those of blocks not run, and what installs."""
    found = []
    for page in PAGES:
        for block in documents.blocks((ROOT / page).read_text()):
            if block.language not in ("bash", "console"):
                continue
            for command in block.commands:
                line = command.removeprefix("$ ").replace("\\\n", " ")
                if not block.runs or shlex.split(line)[0] in documents.INSTALLS:
                    found.append((page, line))
    return found


@pytest.mark.parametrize(("page", "line"), not_run())
def test_a_command_that_is_not_run_here_could_be(page, line):
    words = shlex.split(line.split(" > ")[0], comments=True)
    if words[0] in ("perfpass", "perfpass-ask"):
        from perfpass.cli.parser import build_parser

        build_parser().parse_args(words[1:])
    elif words[0] == "pip":
        wanted = re.fullmatch(r"perfpass(?:\[([\w,]+)\])?", words[2])
        project = (ROOT / "pyproject.toml").read_text()
        extras = re.findall(r"^([\w-]+) = \[", project.partition("[project.optional-dependencies]")[2], re.MULTILINE)
        assert words[1] == "install" and wanted and {*(wanted[1] or "all").split(",")} <= {*extras}, words
    elif words[0] == "bash":
        help_text = subprocess.run(["bash", "bootstrap.sh"], cwd=ROOT, capture_output=True, text=True, check=True)
        assert words[1] == "bootstrap.sh" and re.search(rf"^  {words[2]} ", help_text.stdout, re.MULTILINE), words
    elif words[0] == "cmake":
        folders = [Path(after) for before, after in pairwise(words) if before == "-S"]
        assert all((ROOT / folder / "CMakeLists.txt").is_file() for folder in folders), words
    else:
        assert words[0] in ("python", "build/example/predict_c") and (ROOT / words[1]).is_file(), words


def test_every_block_is_run_or_says_why_not():
    for page in PAGES:
        for block in documents.blocks((ROOT / page).read_text()):
            assert block.language in LANGUAGES, f"{page}: ```{block.language}"
            assert block.kind != "not run" or block.said, f"{page}: a block that is not run gives no reason"
            assert block.language != "text" or block.kind == "prints", f"{page}: text that nothing prints"


def test_a_block_that_fails_or_prints_something_else_is_found():
    page = "```python\nprint(1)\n```\n\n<!-- prints -->\n```text\n2\n```\n"
    assert documents.remade(page) == page.replace("2\n", "1\n")
    with pytest.raises(RuntimeError, match="ended with 2"):
        documents.remade("```bash\nperfpass predict\n```\n")
    with pytest.raises(RuntimeError, match="no part of"):
        documents.remade("<!-- file: examples/relay_example.py -->\n```python\nprint(1)\n```\n")


def test_the_readme_is_one_that_a_newcomer_finishes():
    assert len((ROOT / "README.md").read_text().splitlines()) <= README_LINES


@pytest.mark.parametrize("page", ALL, ids=named)
def test_no_line_of_a_document_is_wider_than_the_page(page):
    lines = page.read_text().splitlines()
    wide = [f"{i}: {len(line)}" for i, line in enumerate(lines, 1) if len(line) > COLUMNS]
    assert not wide, f"over {COLUMNS} columns: {', '.join(wide)}"


def test_no_document_needs_a_script_to_be_read():
    assert [named(page) for page in ALL if "```mermaid" in page.read_text()] == []


def anchors(page: Path) -> set[str]:
    """The ids that headings get, on the site and where Markdown is shown beside code."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", re.sub(r"[`*]", "", text)).strip().lower().replace(" ", "-") for text in headings}


@pytest.mark.parametrize("page", ALL, ids=named)
def test_links_between_documents_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([^)]*))?\)", FENCED.sub("", page.read_text())):
        to = page.parent / target if target else page
        assert to.exists(), target
        assert not anchor or anchor in anchors(to), f"{target}#{anchor}"


def test_every_page_of_docs_has_its_place_on_the_site():
    placed = re.findall(r"[\w/.-]+\.md", (ROOT / "mkdocs.yml").read_text())
    assert sorted(placed) == sorted(str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md"))
