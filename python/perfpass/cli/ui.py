"""`perfpass ui`: the questions as a web page."""

from __future__ import annotations

from typing import Any

from perfpass.cli.options import add_device_file, add_device_files, new_command, whole
from perfpass.errors import ArgumentError

_EPILOG = """\
A page with Fit, Predict, Compare devices, Serve an LLM, Train and Place a fleet. A model is a dropped file, a name,
or a pasted config.json. It listens on this machine alone and asks nothing of another; files stay in memory while
a question is answered. There is no --share: a tunnel would send models and answers through somebody else's server.
docs/guides/ui.md has how to reach it from another machine.

examples:
  perfpass ui                                  on http://127.0.0.1:7860
  perfpass ui --port 0                         on any free port
  ssh -L 7860:127.0.0.1:7860 HOST perfpass ui  of another machine, through ssh"""


def add(commands: Any) -> None:
    """The command's options."""
    command = new_command(commands, "ui", run, "a web page: drop a model, see what it costs", _EPILOG)
    command.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="to listen on (default: 127.0.0.1)")
    command.add_argument("--port", type=int, default=7860, metavar="N", help="to listen on, 0: any (default: 7860)")
    command.add_argument(
        "--body-mib", type=whole, default=128, metavar="N", help="MiB of the largest file (default: 128)"
    )
    command.add_argument(
        "--token-file",
        metavar="FILE",
        help="the browser asks for its content as a password, of any user (default: PERFPASS_TOKEN, else none)",
    )
    command.add_argument("--share", action="store_true", help="refused, with the reason")
    add_device_file(command)


def run(options: Any) -> int:
    """Shows the page until it is told to stop."""
    from perfpass.serve.process import token_of
    from perfpass.ui.process import show

    if options.share:
        raise ArgumentError(
            "--share is off: a public tunnel would carry your models and answers through somebody else's server, to "
            "anybody who has the address; from another machine use ssh -L 7860:127.0.0.1:7860 HOST"
        )
    add_device_files(options)
    show(options.host, options.port, options.body_mib, options.device_file, token_of(options.token_file))
    return 0
