"""A question handed to the resident process of `perfpass serve --socket`, where one of the same user and code listens.

Whatever is not right (no socket, another owner, another version, no answer) is silently no resident process: the
command runs here, as it would have. Nothing but the standard library is imported, and little of it: `_socket` without
`socket`, whose enumerations take longer than the question.

A question is its length in digits, a line's end, and `packed` sections: identity, words, (folder, umask), environment,
path, streams. ``cpp_kernels/client/ask.cpp`` asks in the same way and leaves path and streams to the process.
"""

from __future__ import annotations

import os
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
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


def packed(*sections: Iterable[str | bytes]) -> bytes:
    """A question of ``sections``, with its length: the number of each one's texts, then they, each ended by a zero."""
    parts: list[bytes] = []
    for section in sections:
        texts = [os.fsencode(text) for text in section]
        parts += [b"%d" % len(texts), *texts]
    content = b"".join(part + b"\0" for part in parts)
    return b"%d\n" % len(content) + content


def unpacked(content: bytes) -> list[list[bytes]]:
    """The sections of a question without its length. Raises ValueError."""
    parts = content.split(b"\0")
    sections, at = [], 0
    while at < len(parts) - 1:
        end = at + 1 + int(parts[at])
        if not at < end < len(parts):
            raise ValueError("a section that ends behind the question")
        sections.append(parts[at + 1 : end])
        at = end
    return sections


def ask(words: Sequence[str]) -> int | None:
    """The exit code of the command ``words``, which the resident process has run; None where there is none."""
    if not words or words[0] not in HANDED or not hasattr(os, "fork"):
        return None
    path = place()
    if path is None or not owned(path) or None in (sys.stdin, sys.stdout, sys.stderr):
        return None
    import _socket

    streams: list[Any] = [sys.stdin, sys.stdout, sys.stderr]
    try:
        umask = os.umask(0)
        os.umask(umask)
        question = packed(
            identity(),
            words,
            (os.getcwd(), str(umask)),
            (name + b"=" + value for name, value in os.environb.items()),
            sys.path,
            (text for s in streams for text in (s.encoding, s.errors, "lines" if s.line_buffering else "")),
        )
        sys.stdout.flush()
        sys.stderr.flush()
        line = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            line.settimeout(_PATIENCE_S)
            line.connect(path)
            if not same_user(line):
                return None
            line.sendall(question)
            if line.recv(1) != ACCEPTED:
                return None
            # Not before: whoever holds a file of a pipeline keeps its readers waiting.
            files = b"".join(s.fileno().to_bytes(4, sys.byteorder) for s in streams)
            line.sendmsg([b"\n"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)])
            line.settimeout(None)
            code = _end(line)
        finally:
            line.close()
    except (OSError, ValueError, AttributeError, TypeError):
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
    told = b""
    try:
        while not told.endswith(b"\n") and (more := line.recv(16)):
            told += more
    except OSError:
        return b""
    return told


def same_user(line: Any) -> bool:
    """Whether the other end of a connection is this user's, where the system tells."""
    import _socket

    if not hasattr(_socket, "SO_PEERCRED"):
        return True  # the file's owner and mode stand for it
    told = line.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)  # process, user and group, of 4 bytes each
    return int.from_bytes(told[4:8], sys.byteorder) == os.geteuid()
