"""Kills a writer before any of the steps that it takes, with no clock in it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

# What a writer asks of the system; it may be killed before each.
STEPS = ("open", "mkdir", "ftruncate", "write", "fchmod", "fsync", "replace", "rename", "unlink", "rmdir")


def killed_before_step(work: Callable[[], object], number: int) -> bool:
    """Runs ``work`` in a child that kills itself before its step ``number``; False where it takes fewer."""
    child = os.fork()
    if child == 0:
        taken = 0

        def counted(step):
            def act(*arguments, **options):
                nonlocal taken
                taken += 1
                if taken == number:
                    os.kill(os.getpid(), signal.SIGKILL)
                return step(*arguments, **options)

            return act

        for name in STEPS:
            setattr(os, name, counted(getattr(os, name)))
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the writer failed"
    return os.WIFSIGNALED(status)
