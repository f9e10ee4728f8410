"""Where the specification of a Core ML model is: the file itself, or what the manifest of a package names.

Fields by number: Model.proto, MIL.proto, NeuralNetwork.proto and FeatureTypes.proto of Core ML's specification
(coremltools 9.0).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from perfpass.errors import FormatError, shown
from perfpass.importers.formats.protobuf import FieldBudget, Message, mapped, message_of
from perfpass.json_text import read_json
from perfpass.text import shown_value

_LARGEST_MANIFEST = 1 << 20
_MOST_FIELDS = 4_000_000
_ROOT = "com.apple.CoreML"


@contextmanager
def opened(path: Path) -> Iterator[Message]:
    """The model at ``path``, a `.mlmodel` file or a `.mlpackage` folder, mapped while it is read.

    Raises FileError, FormatError for a manifest that names no such file or one outside the folder, LimitError.
    """
    with mapped(specification(path), "a Core ML model") as whole:
        yield message_of(whole, FieldBudget(_MOST_FIELDS, "Core ML model"))


def specification(path: Path) -> Path:
    """The file that holds the specification. Raises FileError and FormatError."""
    if not path.is_dir():
        return path
    name = shown(path)
    manifest = read_json(path / "Manifest.json", "the manifest of a Core ML package", _LARGEST_MANIFEST)
    try:
        root = manifest["itemInfoEntries"][manifest["rootModelIdentifier"]]["path"]
    except (KeyError, TypeError, IndexError):
        raise FormatError(f"{name}: its Manifest.json names no root model; the package is damaged") from None
    if not isinstance(root, str) or len(root) > 4096 or "\0" in root:
        raise FormatError(f"{name}: its Manifest.json names {shown_value(root)} as root model, which is no path")
    parts = PurePosixPath(root)
    if parts.is_absolute() or ".." in parts.parts:
        raise FormatError(f"{name}: its Manifest.json names {shown_value(root)}, which lies outside the package")
    folder = (path / "Data").resolve()
    found = (folder / parts).resolve()
    if not found.is_relative_to(path.resolve()):
        raise FormatError(f"{name}: {shown_value(root)} is a link that leads out of the package; nothing there is read")
    return found
