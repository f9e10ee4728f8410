"""MkDocs hook: what documents link to outside docs/ (results, examples, the README) becomes part of the site.

Markdown pages are taken in as pages under ``repository/``, other files as they are, so that a link that works in a
checkout works on the site. A link to a folder leads to its README.md. What does not exist is left for the strict mode.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).resolve().parents[2]
PLACE = "repository"
_LINK = re.compile(r"(\]\()([^)#\s:]+)(#[^)\s]*)?(\))")
_FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def _home(source: str) -> str:
    """A page's path in the repository, from its path on the site."""
    return source.removeprefix(f"{PLACE}/") if source.startswith(f"{PLACE}/") else f"docs/{source}"


def _target(page: str, link: str) -> str:
    """What a link on a page leads to, as a path in the repository."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), link))
    return f"{path}/README.md" if (ROOT / path / "README.md").is_file() else path


def _place(path: str) -> str:
    """A file's path on the site, from its path in the repository."""
    return path.removeprefix("docs/") if path.startswith("docs/") else f"{PLACE}/{path}"


def _links(page: str) -> list[str]:
    text = _FENCED.sub("", (ROOT / page).read_text())
    return [_target(page, match[2]) for match in _LINK.finditer(text)]


def on_files(files: Files, config: Any) -> Files:
    """Adds what is linked from the pages, and from what was added."""
    known = {_home(file.src_uri) for file in files}
    pending = [home for home in known if home.endswith(".md")]
    while pending:
        for path in _links(pending.pop()):
            if path in known or not (ROOT / path).is_file():
                continue
            known.add(path)
            added = File.generated(
                config,
                _place(path),
                abs_src_path=str(ROOT / path),
                inclusion=InclusionLevel.NOT_IN_NAV if path.endswith(".md") else InclusionLevel.INCLUDED,
            )
            files.append(added)
            if path.endswith(".md"):
                pending.append(path)
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turns links that leave docs/ to where their targets are on the site."""
    home = _home(page.file.src_uri)

    def turned(match: re.Match[str]) -> str:
        path = _target(home, match[2])
        if not (ROOT / path).is_file():
            return match[0]
        link = posixpath.relpath(_place(path), posixpath.dirname(page.file.src_uri) or ".")
        return f"{match[1]}{link}{match[3] or ''}{match[4]}"

    # Code is left as it is.
    parts = re.split(r"(^```.*?^```)", markdown, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if part.startswith("```") else _LINK.sub(turned, part) for part in parts)
