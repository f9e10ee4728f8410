"""The processes of a server: one worker in this process, or several that a supervisor replaces when they die."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from perfpass.bounded_file import reason
from perfpass.errors import ArgumentError, needs
from perfpass.importers.operators import FILES
from perfpass.scratch import held, hold
from perfpass.serve.settings import Settings

if TYPE_CHECKING:
    from perfpass.serve.app import Application

MOST_WORKERS = 256
_DEVICES = "PERFPASS_DEVICES"
_BACKLOG = 2048


def serve(
    settings: Settings,
    host: str,
    port: int,
    workers: int = 1,
    log_level: str = "info",
    device_files: Sequence[str] = (),
    operator_files: Sequence[str] = (),
    make: Callable[[Settings, str], Any] | None = None,
    tell: Callable[[str], None] | None = None,
) -> None:
    """Answers on ``host``:``port`` (0: any free one) until SIGTERM or SIGINT; then ends what was accepted.

    ``device_files``, ``operator_files``: TOML of more devices, and of operators that no reader knows. ``make``: what
    answers in place of `application`, from the settings and an empty folder; ``tell`` is told the address.

    Raises UnsupportedError without the packages of the extra, ArgumentError for an address that cannot be had.
    """
    with needs("serve", "`perfpass serve`"):
        import uvicorn
        from uvicorn.supervisors import Multiprocess

        from perfpass.serve.observed import event, log_config
        from perfpass.serve.protocol import BoundedProtocol
    if isinstance(workers, bool) or not isinstance(workers, int) or not 1 <= workers <= MOST_WORKERS:
        raise ArgumentError(f"workers must be a whole number from 1 to {MOST_WORKERS}, got {workers!r}")
    # Workers stand in another folder, and know what their environment says.
    for variable, more in ((_DEVICES, device_files), (FILES, operator_files)):
        files = (*filter(None, os.environ.get(variable, "").split(os.pathsep)), *more)
        os.environ[variable] = os.pathsep.join(os.path.abspath(os.path.expanduser(path)) for path in files)
    listening = bound(host, port)
    # Until uvicorn listens for signals: what was made is removed.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    with _folder(workers > 1) as folder:
        config = uvicorn.Config(
            partial(make or application, settings, folder),
            factory=True,
            http=partial(BoundedProtocol, settings),  # type: ignore[arg-type] # uvicorn calls it
            ws="none",
            lifespan="on",
            log_config=log_config(log_level),
            access_log=False,
            proxy_headers=False,
            server_header=False,
            workers=workers,
            backlog=_BACKLOG,
            timeout_keep_alive=settings.idle_seconds,  # type: ignore[arg-type] # of call_later
            timeout_graceful_shutdown=settings.stop_seconds,  # type: ignore[arg-type]
        )
        address = listening.getsockname()
        shown = f"[{address[0]}]" if ":" in address[0] else address[0]
        url = f"http://{shown}:{address[1]}"
        event("listening", url=url, workers=workers, token=bool(settings.token))
        if tell is not None:
            tell(url)
        if not settings.token and not ipaddress.ip_address(address[0]).is_loopback:
            event("anybody who reaches this address may ask: there is no token", logging.WARNING)
        if workers > 1:
            Multiprocess(config, sockets=[listening]).run()
            return
        server = uvicorn.Server(config)

        def stop(*_: object) -> None:
            server.should_exit = True

        # Told before uvicorn listens for signals, or by uvicorn again when it has stopped.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        server.run(sockets=[listening])


def application(settings: Settings, folder: str) -> Application:
    """The application of a worker."""
    from perfpass.serve.app import Application

    stand(folder)
    return Application(settings)


def stand(folder: str) -> None:
    """In an empty folder, so that no name of a model is that of a file; it is held as long as this process lives."""
    os.chdir(folder)
    hold(os.path.dirname(folder))
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # repositories are looked up where the operator says 0


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises ArgumentError."""
    if not 0 <= port <= 65535:
        raise ArgumentError(f"port {port}; it must be from 0 to 65535")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        found = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except (OSError, UnicodeError) as error:
        raise ArgumentError(f"{host}:{port} cannot be served on ({reason(error)}); choose another address") from error
    found.set_inheritable(True)
    return found


@contextlib.contextmanager
def _folder(several: bool) -> Iterator[str]:
    """An empty folder of this server; beside it one through which the metrics of several workers are summed."""
    with held("perfpass-serve-") as place:
        empty, shared = place / "empty", place / "metrics"
        empty.mkdir(0o500)
        shared.mkdir(0o700)
        if several:
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(shared)
        try:
            yield str(empty)
        finally:
            if several:
                os.environ.pop("PROMETHEUS_MULTIPROC_DIR", None)


def token_of(path: str | None) -> str:
    """The token that a file or the variable PERFPASS_TOKEN holds; "" without either. Raises as `read_file`."""
    from perfpass.bounded_file import read_file

    if path is None:
        return os.environ.get("PERFPASS_TOKEN", "")
    content: Any = read_file(path, "a file with a token", 4096).decode("latin-1").strip()
    if not content:
        raise ArgumentError(f"{path}: holds no token")
    return str(content)
