"""The parser: a loop over the commands. Nothing heavy is imported: `perfpass --help` answers at once."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import NoReturn

from perfpass import __version__
from perfpass.cli.completion import SHELLS, PrintCompletion
from perfpass.errors import ArgumentError

# The modules of perfpass.cli that are a command, in the order of the help. Each has `add(commands)`, which adds its
# parser, and `run(options)`, which executes it.
COMMANDS = (
    "predict",
    "annotate",
    "compare",
    "partition",
    "inspect",
    "features",
    "devices",
    "measure",
    "llm",
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


class _Parser(argparse.ArgumentParser):
    """argparse with our error line: one line, what was wrong and where the help is."""

    def error(self, message: str) -> NoReturn:
        raise ArgumentError(f"{message}; see `{self.prog} --help`")


def build_parser() -> argparse.ArgumentParser:
    """The parser; ``options.run(options)`` executes the command, ``options.parser`` is the parser itself."""
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
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        import_module(f"perfpass.cli.{name}").add(commands)
    return parser
