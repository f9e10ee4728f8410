"""Where a command begins: by a resident process that takes it (`perfpass.cli.asking`), else here.

Only what asks is imported until it is known that nobody takes the command: to ask costs little more than Python itself.
"""

from __future__ import annotations

import os
import sys

from perfpass.cli.asking import HANDED, ask

# Objects made before Python looks for garbage among them. Its own setting is 700: it would look a hundred times while a
# command imports what it needs.
_COLLECTED_AFTER = 100_000

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code. No traceback unless PERFPASS_DEBUG=1."""
    if arguments is None and (answered := ask(sys.argv[1:])) is not None:
        return answered
    if arguments is None:
        import gc

        gc.set_threshold(_COLLECTED_AFTER)
    from perfpass.cli.running import run

    return run(arguments)


def command() -> int:
    """`main` as a process of its own, which ends at once: nothing that it holds is taken apart first.

    What is to be done at the end is done (files flushed, temporary folders removed). A command that may have started
    threads or left a file half written ends as Python ends it.
    """
    code = main()
    if sys.argv[1:2] and sys.argv[1] in HANDED and _alone():
        import atexit

        try:
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        except Exception:
            return code  # Python says what is wrong
        os._exit(code)
    return code


def _alone() -> bool:
    """Whether no other thread runs that the end of a process waits for."""
    threading = sys.modules.get("threading")
    return threading is None or all(
        thread.daemon or thread is threading.main_thread() for thread in threading.enumerate()
    )
