"""The parser: a loop over the commands. Nothing heavy is imported: `perfpass --help` answers at once."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

from perfpass import __version__
from perfpass.cli.completion import SHELLS, PrintCompletion
from perfpass.errors import ArgumentError
from perfpass.text import nearest, unknown

# The modules of perfpass.cli that are a command, in the order of the help. Each has `add(commands)`, which adds its
# parser, and `run(options)`, which executes it.
COMMANDS = (
    "predict",
    "evidence",
    "plot",
    "report",
    "annotate",
    "compare",
    "diff",
    "partition",
    "inspect",
    "features",
    "export_core",
    "devices",
    "pack",
    "measure",
    "llm",
    "fit",
    "choose",
    "advise",
    "sweep",
    "train_cost",
    "serve",
    "ui",
    "mcp",
    "operator",
    "calibrate",
    "roofline",
    "records",
    "train",
    "evaluate",
    "completion",
)

_DESCRIPTION = """\
What a deep-learning model costs on a device before it runs there: latency, throughput, peak memory,
energy, power and the MIG profile it fits into, each with an interval that holds in nine of ten cases."""

_EPILOG = """\
examples:
  perfpass predict resnet50.onnx --device a100                     one prediction, as a table
  perfpass predict resnet50.onnx --device h100 --batch 32 --precision amp --explain
  perfpass predict encoder.onnx --device l4 --dim batch=8 --dim sequence=128 --json
  perfpass predict model.onnx --device a100-80gb:1g.10gb           on a MIG slice
  perfpass predict hf_model/config.json --device cpu               no weights needed
  perfpass llm llama-3.1-8b --device h100 --input-length 1024 --output-length 128 --concurrency 64
  perfpass choose llama-3.1-8b --rate 20 --ttft 500 --tpot 30      the cheapest devices that keep targets
  perfpass advise model.onnx --device cpu -o faster                what surely runs faster, and that file
  perfpass evidence model.onnx --device t4 --batch 8               the measured records nearest to a prediction
  perfpass diff git:HEAD:net.onnx net.onnx --device t4 --fail latency=5%    a change, as ratios; status 1 over a limit
  perfpass inspect model.onnx                                      operators, totals, inputs
  perfpass annotate model.onnx --device a100                       the prediction into the file's metadata
  perfpass features model.onnx --schema dippm -o model.npz         tensors for your own predictor
  perfpass devices                                                 all devices; with a NAME, its figures and sources
  perfpass measure timm:resnet50 --batch 1,8                       measure on this machine, into records

exit codes:
  0 done             4 damaged file       8 not supported        70 internal error
  1 other failure    5 a limit exceeded   9 unknown device       74 output not written
  2 wrong argument   6 broken graph      10 predictor damaged    130 interrupted
  3 file not usable  7 unresolved shape                          141 reader of the output gone

Errors are one line on stderr. PERFPASS_DEBUG=1 adds the traceback. PERFPASS_DEVICES names further device files."""

# What users look for as a command, and where it is.
_ELSEWHERE = {
    "mig": "a slice is a device, `perfpass predict MODEL --device a100:1g.5gb`; the answer of a GPU names one",
    "step": "a training step is `perfpass predict MODEL --device NAME --mode training`",
    "search": "many models are scored in Python, by perfpass.search.Scorer",
    "memory": "`perfpass predict MODEL --device NAME` has the peak memory, the energy and the power too",
    "energy": "`perfpass predict MODEL --device NAME` has the energy, the power and the peak memory too",
}


class _Parser(argparse.ArgumentParser):
    """argparse with our error line: one line, what was wrong and where the help is."""

    _adding = False

    def add_argument(self, *names: Any, **settings: Any) -> argparse.Action:
        """As argparse, which lays out every option as it is added to see whether its metavar is of the right length."""
        self._adding = True
        try:
            return super().add_argument(*names, **settings)
        finally:
            self._adding = False

    def _get_formatter(self) -> argparse.HelpFormatter:
        # The width that nobody sees is stated: to ask the terminal for it takes a module and what that imports.
        return self.formatter_class(prog=self.prog, width=80) if self._adding else super()._get_formatter()  # type: ignore[call-arg]

    def error(self, message: str) -> NoReturn:
        raise ArgumentError(f"{message}{'' if message.endswith('?') else ';'} see `{self.prog} --help`")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse, but an option that there is not is named first: what is missing is mostly its misspelling."""
        words = list(sys.argv[1:] if args is None else args)
        commands = any(isinstance(action, argparse._SubParsersAction) for action in self._actions)
        for word in words:
            option = word.partition("=")[0]
            if word == "--" or (commands and not word.startswith("-")):
                break  # what follows is no option, or a command's own
            if not word.startswith("-") or word == "-" or option in self._option_string_actions:
                continue
            if _is_number(word) or (word[:2] in self._option_string_actions and not word.startswith("--")):
                continue  # a value, or -oFILE
            like = nearest(option, [name for name in self._option_string_actions if name.startswith("--")])
            self.error(f"there is no option {option}{';' * bool(like)}{like}")
        return super().parse_known_args(words, namespace)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            if action.dest == "command" and value in _ELSEWHERE:
                self.error(f"there is no command {value!r}; {_ELSEWHERE[value]}")
            what = action.dest if action.dest in ("command", "operator") else argparse._get_action_name(action)
            self.error(unknown(str(what), value, map(str, action.choices)))


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def build_parser(words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """The parser; ``options.run(options)`` executes the command, ``options.parser`` is the parser itself.

    ``words``: what is asked; where the first is a command, no other is built.
    """
    parser = _Parser(
        prog="perfpass",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(parser=parser)
    parser.add_argument("--version", action="version", version=f"perfpass {__version__}")
    parser.add_argument(
        "--print-completion",
        action=PrintCompletion,
        choices=SHELLS,
        help="print a shell completion script (as `perfpass completion SHELL`)",
    )
    commands = parser.add_subparsers(prog="perfpass", dest="command", metavar="COMMAND", required=True)
    asked = {name.replace("_", "-"): name for name in COMMANDS}.get(words[0], "") if words else ""
    # A script of completions names every command.
    for name in (asked,) if asked and asked != "completion" else COMMANDS:
        import_module(f"perfpass.cli.{name}").add(commands)
    return parser
