"""`perfpass ui` as a process: the page on an address, until it is told to stop."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from perfpass.errors import needs
from perfpass.serve.settings import Settings

# A person waits longer than a program does, and at the end nobody balances load.
QUESTION_S, STOP_S = 120.0, 5.0


def show(host: str, port: int, body_mib: int = 128, device_files: Sequence[str] = (), token: str = "") -> None:
    """The page on ``host``:``port`` (0: any free one) until SIGTERM or Ctrl-C; its address on stdout.

    ``body_mib``: the largest file; ``token``: the password that a browser asks for, "" for none. Raises
    UnsupportedError without the packages of the extra, ArgumentError for an address that cannot be had.
    """
    from perfpass.serve import process

    with needs("ui", "`perfpass ui`"):
        from perfpass.ui.app import application, here_alone
    settings = Settings(
        body_mib=body_mib, question_seconds=QUESTION_S, drain_seconds=0.0, stop_seconds=STOP_S, token=token
    )

    def tell(url: str) -> None:
        print(f"{url}  (Ctrl-C stops it)", flush=True)

    make = here_alone if _loopback(host) else application
    process.serve(settings, host, port, log_level="warning", device_files=device_files, make=make, tell=tell)


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
