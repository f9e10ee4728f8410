"""A training file, recognised by its content and read by the framework that it is of."""

from __future__ import annotations

import os
from typing import Any

from perfpass.bounded_file import read_file
from perfpass.declared import too_large
from perfpass.deploy.training_files import accelerate, deepspeed, megatron, torchtitan
from perfpass.deploy.training_files.settings import Settings
from perfpass.errors import FormatError, LimitError, needs, shown
from perfpass.json_text import parse as parse_json
from perfpass.toml_table import read_text as read_toml

LARGEST_FILE_BYTES = 2**18
_WHAT = "a training configuration"
_KNOWN = (
    "torchtitan (TOML), DeepSpeed (JSON), Accelerate (YAML), Megatron-LM (a command line, a script or YAML), NeMo and "
    "Megatron-Bridge (YAML)"
)


def read(path: str | os.PathLike[str]) -> Settings:
    """The layout and recipe that a file states.

    Nothing in the file is run, and no file that it names is opened. YAML is read by a safe loader, without aliases.
    Raises FileError, LimitError (over 256 KiB, or more entries or layers than any run has), FormatError for a file that
    is none of these or has values that make no sense, UnsupportedError without PyYAML.
    """
    content, where = read_file(path, _WHAT, LARGEST_FILE_BYTES), shown(path)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(f"{where}: not a text, as {_WHAT} is ({error})") from error
    if text.lstrip().startswith("{"):
        found = _table(parse_json(text, where), where)
        if deepspeed.recognised(found):
            return deepspeed.read(found, where)
    elif (table := _toml(text, where)) is not None:
        found = _table(table, where)
        if torchtitan.recognised(found):
            return torchtitan.read(found, where)
    elif megatron.recognised_script(text) and (loaded := _yaml_or_none(text, where)) is None:
        return megatron.read_script(text, where)
    else:
        found = _table(loaded if megatron.recognised_script(text) else _yaml(text, where), where)
        if accelerate.recognised(found):
            return accelerate.read(found, where)
        if megatron.recognised(found):
            return megatron.read(found, where)
    raise FormatError(f"{where}: no training configuration that is known; read are {_KNOWN}")


def _toml(text: str, where: str) -> dict[str, Any] | None:
    """The document, where the text is TOML."""
    try:
        return read_toml(text, where, _WHAT) or None
    except FormatError:
        return None


def _yaml_or_none(text: str, where: str) -> Any:
    """The document of arguments, where the text is YAML and no script."""
    try:
        found = _yaml(text, where)
    except FormatError:
        return None
    return found if isinstance(found, dict) and megatron.recognised(found) else None


def _yaml(text: str, where: str) -> Any:
    with needs("pack", "reading YAML"):
        import yaml

    class Plain(yaml.SafeLoader):
        """Without aliases, whose copies grow without end."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise FormatError(f"{where}: aliases (*name) are not read; write the value out")
            return super().compose_node(parent, index)

    try:
        return yaml.load(text, Loader=Plain)  # a safe loader, above
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        if isinstance(error, FormatError):
            raise
        said = " ".join(str(error).split())[:300] or type(error).__name__
        raise FormatError(f"{where}: no training configuration that is known ({said}); read are {_KNOWN}") from error


def _table(found: Any, where: str) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise FormatError(f"{where}: no training configuration that is known; read are {_KNOWN}")
    if wrong := too_large(found, finite=False):
        raise LimitError(f"{where}: {wrong}")
    return {str(name): value for name, value in found.items()}
