"""A command run in this process: `perfpass COMMAND`, a module of this package for each command.

Results go to stdout, one-line errors to stderr; the exit code says which kind of failure it was
(docs/reference/errors.md).
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TextIO, cast

from perfpass.bounded_file import reason
from perfpass.errors import FileError, InputWarning, PerfPassError, shown

EXIT_INTERNAL = 70  # EX_SOFTWARE of sysexits.h
EXIT_OUTPUT = 74  # EX_IOERR: the result could not be written
EXIT_INTERRUPTED = 130  # 128 + SIGINT
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE


class _Output:
    """A stream that keeps what went wrong in it: writers may pass over that (argparse does), and buffers drop it."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.failed: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """As that of the stream."""
        return self._kept(self._stream.write, text)

    def flush(self) -> None:
        """As that of the stream."""
        self._kept(self._stream.flush)

    def _kept(self, act: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return act(*arguments)
        except OSError as error:
            self.failed = error
            raise


def run(arguments: Sequence[str] | None = None) -> int:
    """As `perfpass.cli.entry.main`, by nobody else."""
    # Before anything is opened: a file of ours would get the number of a closed stream, and what others print with it.
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - it stays open
    if sys.stdout is None:
        _say("error: the output is closed; give it a place (a file, or /dev/null)")
        return EXIT_OUTPUT
    output = _Output(sys.stdout)
    left: SystemExit | None = None
    code = EXIT_INTERNAL
    with contextlib.redirect_stdout(cast(TextIO, output)), warnings.catch_warnings():
        warnings.showwarning = _as_lines(warnings.showwarning)
        try:
            code = _run(arguments)
        except SystemExit as error:  # --help, --version
            left = error
        except KeyboardInterrupt:
            _say("interrupted")
            code = EXIT_INTERRUPTED
        except OSError as error:
            if error is not output.failed:
                code = _of_the_system(error)
        with contextlib.suppress(OSError):
            output.flush()
    if output.failed is not None:
        output.failed.__traceback__ = None  # its frames would keep the predictors alive to the very end
        code = _lost(output.failed, code)
    elif left is not None:
        raise left
    return code


def _run(arguments: Sequence[str] | None) -> int:
    from perfpass.cli.parser import build_parser

    try:
        words = sys.argv[1:] if arguments is None else arguments
        options = build_parser(words).parse_args(words)
        if getattr(options, "operators", None):
            from perfpass.importers.operators import add_file

            for path in options.operators:
                add_file(path)
        code: int = options.run(options)
        return code
    except PerfPassError as error:
        if os.environ.get("PERFPASS_DEBUG") == "1":
            raise
        _say(f"error: {error.subject}: {error}" if error.subject else f"error: {error}")
        return error.exit_code
    except MemoryError:
        _say("error: out of memory; use a smaller model or batch, or more memory")
        return EXIT_INTERNAL
    except OSError:
        raise
    except Exception as error:
        if os.environ.get("PERFPASS_DEBUG") == "1":
            raise
        _say(
            f"error: internal error ({type(error).__name__}: {_one_line(str(error))[:300]}); please "
            "report it with the output of the same command under PERFPASS_DEBUG=1"
        )
        return EXIT_INTERNAL


def _of_the_system(error: OSError) -> int:
    """The exit code of what the operating system refused, after the line that says it."""
    if os.environ.get("PERFPASS_DEBUG") == "1":
        raise error
    where = f"{shown(os.fsdecode(error.filename))}: " if isinstance(error.filename, (str, bytes)) else ""
    _say(f"error: {where}{reason(error)}")
    return FileError.exit_code


def _lost(error: OSError, code: int) -> int:
    """The exit code where stdout did not take all of it; that of a command that had failed before stays."""
    # What is left in the buffer goes nowhere: Python would complain of it at exit.
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return EXIT_BROKEN_PIPE  # the reader (head, a pager) has gone
    if code in (0, EXIT_INTERNAL):
        _say(f"error: the output cannot be written: {reason(error)}; the result is not complete")
        return EXIT_OUTPUT
    return code


def _say(text: str) -> None:
    """A line on stderr, if it can still be written."""
    with contextlib.suppress(OSError):
        print(f"perfpass: {_one_line(text)}", file=sys.stderr)


def _as_lines(show: Callable[..., None]) -> Callable[..., None]:
    """Warnings about an input as lines of ours; others as they are."""

    def shown_as_line(message: Warning | str, category: type[Warning], *rest: Any, **named: Any) -> None:
        if issubclass(category, InputWarning):
            _say(f"warning: {message}")
        else:
            show(message, category, *rest, **named)

    return shown_as_line


def _one_line(text: str) -> str:
    from perfpass.text import printable

    return printable(" ".join(text.split()))
