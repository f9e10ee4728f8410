"""Writes the commands and options of docs/reference/cli.md, read off the parser.

python benchmarks/publish/cli_reference.py
"""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path

from perfpass.cli.parser import build_parser

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "cli.md"
BEGIN, END = "<!-- commands -->", "<!-- end -->"
_WIDTH = 118


def reference() -> str:
    """Every command with its options and examples, as Markdown."""
    return "\n\n".join(_command(name, parser) for name, parser in _commands(build_parser()).items())


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The commands of a parser by name; none for one without."""
    found = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(found[0].choices) if found else {}


def _command(name: str, parser: argparse.ArgumentParser) -> str:
    parts = [f"## {name}", _wrapped(f"{parser.description}")]
    if options := _options(parser):
        parts.append(options)
    for kind, one in _commands(parser).items():
        parts += [f"### {name} {kind}", _options(one)]
    if parser.epilog:
        parts.append(f"```text\n{parser.epilog.strip()}\n```")
    return "\n\n".join(parts)


def _options(parser: argparse.ArgumentParser) -> str:
    own, parts = list[str](), list[str]()
    for group in parser._action_groups:
        lines = [_option(action) for action in group._group_actions if _shown(action)]
        if group.title in ("positional arguments", "options"):
            own += lines
        elif lines:
            said = f"{group.title}: {group.description}" if group.description else f"{group.title}:"
            parts += [_wrapped(said[0].upper() + said[1:]), "\n".join(lines)]
    return "\n\n".join(["\n".join(own), *parts] if own else parts)


def _shown(action: argparse.Action) -> bool:
    return not isinstance(action, argparse._HelpAction | argparse._SubParsersAction)


def _option(action: argparse.Action) -> str:
    metavar = action.metavar if isinstance(action.metavar, str) else action.dest
    names = ", ".join(action.option_strings) or metavar
    if action.option_strings and action.nargs != 0:
        choices = "|".join(map(str, action.choices)) if action.choices and not action.metavar else ""
        names += f" {choices or metavar}"
    # A size of `operator` has no help: its name says it.
    text = action.help or (f"default: {action.default}" if action.default is not None else "a whole number")
    needed = " (required)" if action.option_strings and action.required else ""
    optional = " (optional)" if not action.option_strings and action.nargs in ("?", "*") else ""
    return _wrapped(f"- `{names}`: {text}{needed}{optional}")


def _wrapped(text: str) -> str:
    indent = "  " if text.startswith("- ") else ""
    return textwrap.fill(text, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def filled(text: str) -> str:
    """The page with its commands made anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{reference()}\n\n{END}{after}"


def main() -> None:
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
