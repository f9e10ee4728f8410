"""Inputs that are kept: one file of JSON lines a target, each with what it is kept for.

``text`` holds an input that is UTF-8, ``base64`` any other.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "corpus"


@dataclass(frozen=True)
class Kept:
    """An input, and why it is kept: "found: ..." (a problem that was mended) or "reaches ..." (lines of code)."""

    data: bytes
    why: str


def read(target: str) -> list[Kept]:
    """The kept inputs of a target, in their order."""
    path = FOLDER / f"{target}.jsonl"
    if not path.exists():
        return []
    return [_of(json.loads(line)) for line in path.read_text(encoding="ascii").splitlines()]


def write(target: str, inputs: Iterable[Kept]) -> None:
    """Keep these inputs, in the place of those kept before."""
    lines = [json.dumps(_as(one)) for one in inputs]
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{target}.jsonl").write_text("\n".join(lines) + "\n", encoding="ascii")


def _of(row: dict[str, str]) -> Kept:
    data = row["text"].encode() if "text" in row else base64.b64decode(row["base64"])
    return Kept(data, row["why"])


def _as(one: Kept) -> dict[str, str]:
    try:
        return {"why": one.why, "text": one.data.decode()}
    except UnicodeDecodeError:
        return {"why": one.why, "base64": base64.b64encode(one.data).decode()}
