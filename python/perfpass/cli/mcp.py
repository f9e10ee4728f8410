"""`perfpass mcp`: tools for agents, by the Model Context Protocol."""

from __future__ import annotations

from typing import Any

from perfpass.cli.options import add_device_file, add_device_files, add_operators, new_command
from perfpass.errors import needs

_EPILOG = """\
Tools: predict, explain, fit, choose, advise, llm, diff, train_cost, devices; docs/guides/agents.md. Without --http the
agent starts this command itself and speaks over stdin and stdout. Files are read below --root alone; links that lead
out are refused. Repositories of the hub are looked up where the environment says HF_HUB_OFFLINE=0.

examples:
  perfpass mcp --root models                          for an agent's settings: command "perfpass", args ["mcp", ...]
  perfpass mcp --http --port 8001 --root models       http://127.0.0.1:8001/mcp"""


def add(commands: Any) -> None:
    """The command's options."""
    command = new_command(commands, "mcp", run, "answer agents by the Model Context Protocol", _EPILOG)
    command.add_argument("--root", default=".", metavar="DIR", help="below which files are read (default: here)")
    command.add_argument("--http", action="store_true", help="streamable HTTP instead of stdin and stdout")
    command.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="of --http (default: 127.0.0.1)")
    command.add_argument("--port", type=int, default=8001, metavar="N", help="of --http, 0: any (default: 8001)")
    command.add_argument(
        "--token-file", metavar="FILE", help="of --http: who asks must send its content (default: PERFPASS_TOKEN)"
    )
    command.add_argument(
        "--question-seconds", type=float, default=120.0, metavar="N", help="until an answer is there (default: 120)"
    )
    add_device_file(command)
    add_operators(command)


def run(options: Any) -> int:
    """Answers until the agent leaves, or it is told to stop."""
    from perfpass.serve.process import token_of
    from perfpass.serve.rooted import Root
    from perfpass.serve.settings import Settings

    with needs("mcp", "`perfpass mcp`"):
        from perfpass.serve.agents import over_http, over_stdio
    add_device_files(options)
    root = Root(options.root)
    settings = Settings(question_seconds=options.question_seconds, body_mib=4, token=token_of(options.token_file))
    if options.http:
        over_http(root, settings, options.host, options.port)
    else:
        over_stdio(root, settings.question_seconds)
    return 0
