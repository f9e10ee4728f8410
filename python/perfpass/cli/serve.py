"""`perfpass serve`: predictions over HTTP."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from perfpass.cli.options import add_device_file, add_device_files, add_operators, new_command, whole

_EPILOG = """\
POST /predict, /explain, /fit, /choose, /llm, /diff, /train-cost; GET /devices, /health, /ready, /metrics,
/openapi.json. A model is a name, the content of a config.json, or an uploaded ONNX file; files of this machine are
never read for a client. The log is lines of JSON on stderr. SIGTERM ends what was accepted, then the server; SIGHUP
replaces the workers one by one, where there are several. docs/guides/server.md has TLS by a proxy, a container and
Kubernetes.

examples:
  perfpass serve                                                on http://127.0.0.1:8000
  perfpass serve --socket                                       a resident process: commands of this user answer at once
  perfpass serve --port 9000 --workers 4 --token-file token     who asks sends Authorization: Bearer
  curl -T net.onnx -H 'Content-Type: application/octet-stream' -X POST 'http://127.0.0.1:8000/predict?device=t4&batch=8'
  curl -H 'Content-Type: application/json' -d '{"model": "llama-3.1-8b", "device": "h100"}' http://127.0.0.1:8000/llm"""
_LEVELS = ("debug", "info", "warning", "error")
_HELP = {
    "body_mib": "MiB of the largest body",
    "bodies_mib": "MiB of all bodies at once",
    "question_seconds": "until an answer is there",
    "body_seconds": "until a body has come",
    "head_seconds": "until the headers have come",
    "idle_seconds": "that a connection may be silent",
    "queue": "questions that wait",
    "connections": "that are open",
    "cache_mib": "MiB of answers that are kept",
    "drain_seconds": "after SIGTERM, while new connections are still answered",
    "stop_seconds": "after these, for what was accepted",
}


def add(commands: Any) -> None:
    """The command's options."""
    from perfpass.serve.settings import Settings

    command = new_command(
        commands, "serve", run, "answer over HTTP: predict, fit, choose, llm, diff, train-cost", _EPILOG
    )
    command.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="to listen on (default: 127.0.0.1)")
    command.add_argument("--port", type=int, default=8000, metavar="N", help="to listen on, 0: any (default: 8000)")
    command.add_argument("--workers", type=whole, default=1, metavar="N", help="processes (default: 1)")
    command.add_argument(
        "--token-file",
        metavar="FILE",
        help="who asks must send its content (default: PERFPASS_TOKEN, else anybody may)",
    )
    command.add_argument("--log-level", choices=_LEVELS, default="info", metavar="L", help=", ".join(_LEVELS))
    limits = command.add_argument_group("limits of a worker")
    for field in fields(Settings):
        if field.name in _HELP:
            kind = int if isinstance(field.default, int) else float
            said = f"{_HELP[field.name]} (default: {field.default:g})"
            limits.add_argument(
                f"--{field.name.replace('_', '-')}", type=kind, default=field.default, metavar="N", help=said
            )
    command.add_argument(
        "--socket",
        nargs="?",
        const="",
        metavar="PATH",
        help="no HTTP: answer this user's own commands on a socket of this path, where they find it by themselves "
        "(default: PERFPASS_SOCKET, else perfpass.sock in XDG_RUNTIME_DIR)",
    )
    add_device_file(command)
    add_operators(command)


def _resident(path: str) -> None:
    from perfpass.cli import asking, resident
    from perfpass.errors import ArgumentError

    where = path or asking.place()
    if where is None:
        raise ArgumentError(f"--socket needs a path here: neither {asking.PLACE} nor XDG_RUNTIME_DIR is set")
    resident.serve(where)


def run(options: Any) -> int:
    """Serves until it is told to stop."""
    if options.socket is not None:
        _resident(options.socket)
        return 0
    from perfpass.serve.process import serve, token_of
    from perfpass.serve.settings import Settings

    add_device_files(options)
    settings = Settings(**{name: getattr(options, name) for name in _HELP}, token=token_of(options.token_file))
    files = options.device_file, options.operators
    serve(settings, options.host, options.port, options.workers, options.log_level, *files)
    return 0
