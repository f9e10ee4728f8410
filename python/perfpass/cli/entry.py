"""Where a command begins: by a resident process that takes it (`perfpass.cli.asking`), else here.

Only what asks is imported until it is known that nobody takes the command: to ask costs little more than Python itself.
"""

from __future__ import annotations

import sys

from perfpass.cli.asking import ask

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
