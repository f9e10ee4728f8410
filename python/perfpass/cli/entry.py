"""Command line: `perfpass COMMAND`, a module of this package for each command.

Results go to stdout, one-line errors to stderr; the exit code says which kind of failure it was
(docs/reference/errors.md).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from perfpass.errors import FileError, FormatError, GraphError, LimitError, PerfPassError, ShapeError

EXIT_INTERNAL = 70  # EX_SOFTWARE of sysexits.h
EXIT_INTERRUPTED = 130  # 128 + SIGINT
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code. No traceback unless PERFPASS_DEBUG=1."""
    from perfpass.cli.parser import build_parser

    options = None
    try:
        options = build_parser().parse_args(arguments)
        code: int = options.run(options)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader (head, a pager) has gone. Python would complain again when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except KeyboardInterrupt:
        print("perfpass: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except PerfPassError as error:
        if os.environ.get("PERFPASS_DEBUG") == "1":
            raise
        print(f"perfpass: error: {_one_line(_about_model(error, options))}", file=sys.stderr)
        return error.exit_code
    except MemoryError:
        print("perfpass: error: out of memory; use a smaller model or batch, or more memory", file=sys.stderr)
        return EXIT_INTERNAL
    except Exception as error:
        if os.environ.get("PERFPASS_DEBUG") == "1":
            raise
        print(
            f"perfpass: error: internal error ({type(error).__name__}: {_one_line(str(error))[:300]}); please "
            "report it with the output of the same command under PERFPASS_DEBUG=1",
            file=sys.stderr,
        )
        return EXIT_INTERNAL


def _about_model(error: PerfPassError, options: Any) -> str:
    """The error's message, with the model's path in front where it is about the model and does not name it."""
    message, model = str(error), getattr(options, "model", None)
    about_model = isinstance(error, (FileError, FormatError, GraphError, LimitError, ShapeError))
    if model is None or not about_model or os.path.basename(model) in message or getattr(error, "filename", None):
        return message
    return f"{model}: {message}"


def _one_line(text: str) -> str:
    from perfpass.text import printable

    return printable(" ".join(text.split()))
