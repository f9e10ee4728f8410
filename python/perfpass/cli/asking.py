"""A question handed to the resident process of `perfpass serve --socket`, where one of the same user and code listens.

Whatever is not right (no socket, another owner, another version, no answer) is silently no resident process: the
command runs here, as it would have. Nothing but the standard library is imported, and little of it.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence
from typing import Any

# Commands that read and print, no more.
HANDED = ("choose", "compare", "devices", "diff", "evidence", "fit", "inspect", "llm", "predict", "sweep")
PLACE = "PERFPASS_SOCKET"
_NAME = "perfpass.sock"
_PATIENCE_S = 0.5  # for the word whether a question is taken; the answer may take longer
ACCEPTED = b"+"
EXIT_INTERNAL = 70


def place() -> str | None:
    """Where a resident process of this user listens: ``PERFPASS_SOCKET``, else in the user's runtime folder."""
    if PLACE in os.environ:
        return os.environ[PLACE] or None
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return os.path.join(runtime, _NAME) if runtime else None


def identity() -> list[str]:
    """What has to be the same for the same answer: the interpreter, its flags, and where the code lies."""
    from perfpass import __version__

    return [__version__, os.path.realpath(__file__), sys.version, sys.prefix, str(tuple(sys.flags))]


def owned(path: str) -> bool:
    """Whether ``path`` is a socket of this user that nobody else may use."""
    try:
        found = os.lstat(path)
    except (OSError, ValueError):
        return False
    return stat.S_ISSOCK(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def ask(words: Sequence[str]) -> int | None:
    """The exit code of the command ``words``, which the resident process has run; None where there is none."""
    if not words or words[0] not in HANDED or not hasattr(os, "fork"):
        return None
    path = place()
    if path is None or not owned(path) or None in (sys.stdin, sys.stdout, sys.stderr):
        return None
    import json
    import socket

    streams = [sys.stdin, sys.stdout, sys.stderr]
    try:
        umask = os.umask(0)
        os.umask(umask)
        question = {
            "identity": identity(),
            "words": list(words),
            "folder": os.getcwd(),
            "environment": dict(os.environ),
            "path": sys.path,
            "umask": umask,
            "streams": [[s.encoding, s.errors, s.line_buffering] for s in streams],  # type: ignore[attr-defined]
        }
        content = json.dumps(question).encode() + b"\n"
        sys.stdout.flush()
        sys.stderr.flush()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(_PATIENCE_S)
            line.connect(path)
            if not same_user(line):
                return None
            line.sendall(content)
            if line.recv(1) != ACCEPTED:
                return None
            # Not before: whoever holds a file of a pipeline keeps its readers waiting.
            socket.send_fds(line, [b"\n"], [s.fileno() for s in streams])
            line.settimeout(None)
            code = _end(line)
    except (OSError, ValueError, AttributeError):
        return None
    except KeyboardInterrupt:
        print("perfpass: interrupted", file=sys.stderr)
        return 130
    if not code:
        print(
            "perfpass: error: the resident process, or the command in it, was ended without an answer; ask again, or "
            f"with {PLACE}= for a process of its own",
            file=sys.stderr,
        )
        return EXIT_INTERNAL
    return int(code)


def _end(line: Any) -> bytes:
    """What the command ended with, b"" where it was killed. It may have printed: nobody runs it again."""
    try:
        return bytes(line.makefile("rb").readline())
    except OSError:
        return b""


def same_user(line: object) -> bool:
    """Whether the other end of a connection is this user's, where the system tells."""
    import socket
    import struct

    if not hasattr(socket, "SO_PEERCRED"):
        return True  # the file's owner and mode stand for it
    assert isinstance(line, socket.socket)
    told = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return bool(struct.unpack("3i", told)[1] == os.geteuid())
