"""Every command is a module of its own that brings its help and its execution."""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path

import pytest

from perfpass import cli
from perfpass.cli.parser import COMMANDS, build_parser

# Modules of perfpass.cli that are no command: what the commands share.
SHARED = {"carried", "__init__", "compare_table", "options", "entry", "parser", "session"}
SHARED |= {"asking", "resident", "running", "inspect_kernels", "inspect_symbolic"}  # a resident process; `inspect`
SHARED |= {"llm_arrivals", "llm_host", "llm_seams", "llm_switches"}  # options of `perfpass llm`


def parsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parser and all below it, by what a user types."""
    found = {parser.prog: parser}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                found |= parsers(below)
    return found


def test_the_commands_are_the_modules_of_the_package():
    files = {path.stem for path in Path(cli.__file__).parent.glob("*.py")}
    assert files == SHARED | set(COMMANDS) and len(set(COMMANDS)) == len(COMMANDS)
    found = parsers(build_parser())
    typed = [name.replace("_", "-") for name in COMMANDS]
    assert [name.split()[1] for name in found if name.count(" ") == 1] == typed
    for name, word in zip(COMMANDS, typed, strict=True):
        assert found[f"perfpass {word}"].get_default("run") is import_module(f"perfpass.cli.{name}").run


@pytest.mark.parametrize("command", parsers(build_parser()))
def test_every_command_has_help_that_fits_a_terminal(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as left:
        cli.main([*command.split()[1:], "--help"])
    said = capsys.readouterr()
    assert left.value.code == 0 and said.err == ""
    assert said.out.startswith(f"usage: {command} ") and max(map(len, said.out.splitlines())) <= 120
    below = ("command", "operator")  # which list what is below them
    undescribed = [a.dest for a in parsers(build_parser())[command]._actions if a.help is None and a.dest not in below]
    # The sizes of `perfpass operator` say by their names what they are.
    assert not undescribed or command.startswith("perfpass operator ")


@pytest.mark.parametrize("command", [name.replace("_", "-") for name in COMMANDS])
def test_a_command_that_is_built_alone_is_the_one_among_all(command):
    among, alone = parsers(build_parser()), parsers(build_parser([command, "--help"]))
    below = [name for name in among if name.startswith(f"perfpass {command} ") or name == f"perfpass {command}"]
    assert [alone[name].format_help() for name in below] == [among[name].format_help() for name in below]
    assert command == "completion" or len(alone) == 1 + len(below)


def test_an_option_that_several_commands_have_means_one_thing():
    same = {"--dim", "--input-shape", "--batch", "--region", "--pue", "--price-table", "--grid-table"}
    seen: dict[tuple[str, str], str] = {}
    for command, parser in parsers(build_parser()).items():
        if command.startswith(("perfpass operator", "perfpass measure")):
            continue  # a kernel's sizes, and lists of values
        for action in parser._actions:
            for option in set(action.option_strings) & same:
                assert seen.setdefault((option, "help"), action.help) == action.help, (command, option)
