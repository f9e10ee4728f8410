"""What was learned of a device, as a file of its own: written in one step, found by the device, checked when read."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfpass import _core
from perfpass.bounded_file import reason
from perfpass.declared import Table
from perfpass.errors import ArtefactError, FileError, FormatError
from perfpass.json_text import read_json

MAX_FILE_BYTES = 8 << 20
SUFFIX = ".calibration.json"
AGAIN = "run `perfpass calibrate` again, or predict with --no-calibration"


def digested(content: Mapping[str, Any]) -> dict[str, Any]:
    """``content`` with its SHA-256."""
    return {**content, "sha256": _digest(content)}


def path_of(device: str, folder: Path, suffix: str) -> Path:
    """The file of a device."""
    return folder / _name(device, suffix)


def _name(device: str, suffix: str) -> str:
    return device.replace(":", "_") + suffix


def write(device: str, suffix: str, content: Mapping[str, Any], folder: Path | str | None = None) -> Path:
    """Write ``content`` to ``folder`` (default: the user's), in one step. Raises FileError."""
    from perfpass.devices.lookup import user_folder

    path = path_of(device, Path(folder).expanduser() if folder else user_folder(), suffix)
    advice = "choose another folder with -o"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{path}: {reason(error)}; {advice}") from error
    from perfpass.whole_file import write_whole

    write_whole(path, json.dumps(content, allow_nan=False) + "\n", advice)
    return path


def find(device: str, suffix: str) -> tuple[Path, int] | None:
    """The file of a device and when it was last written (ns): the user's, else of a folder that PERFPASS_DEVICES
    names; None without any.
    """
    from perfpass.devices.lookup import user_path

    # Names as text: every prediction asks, and mostly there is none.
    entries = filter(None, os.environ.get("PERFPASS_DEVICES", "").split(os.pathsep))
    for folder in [user_path(), *(path for entry in entries if os.path.isdir(path := os.path.expanduser(entry)))]:
        path = os.path.join(folder, _name(device, suffix))
        try:
            written = os.stat(path).st_mtime_ns
        except OSError:
            continue
        return Path(path), written
    return None


def opened(path: Path, what: str, version: int) -> dict[str, Any]:
    """The content of a file of schema ``version``, whole by its SHA-256.

    Raises FileError, FormatError for a damaged one, ArtefactError for another schema, LimitError.
    """
    content = read_json(path, f"{what} ({AGAIN})", MAX_FILE_BYTES, way_out=AGAIN)
    found = content.get("schema_version") if isinstance(content, dict) else None
    if found != version:
        raise ArtefactError(f"{path}: {what} of schema {found!r}, this version reads {version}; {AGAIN}")
    digest = content.pop("sha256", None)
    if digest != _digest(content):
        raise FormatError(f"{path}: its content does not match its SHA-256; {AGAIN}")
    return dict(content)


def declared(content: Mapping[str, Any], table: Table, path: Path) -> None:
    """Raises FormatError for ``content`` that ``table`` does not declare."""
    try:
        table.take(content, str(path))
    except FormatError as error:
        raise FormatError(f"{error}; {AGAIN}") from error


def _digest(content: Mapping[str, Any]) -> str:
    digest: str = _core.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())
    return digest
