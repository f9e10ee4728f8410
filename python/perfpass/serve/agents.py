"""`perfpass mcp`: the questions as tools of the Model Context Protocol, by its SDK, over stdio or streamable HTTP."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from perfpass import __version__
from perfpass.errors import ArgumentError, PerfPassError
from perfpass.serve.kinds import KINDS, Kind, document
from perfpass.serve.problems import Problem
from perfpass.serve.process import bound
from perfpass.serve.rooted import Root
from perfpass.serve.settings import Settings
from perfpass.text import shown_value

_INSTRUCTIONS = """\
What a deep-learning model costs on a device before it runs there: latency, throughput, memory, energy, money, each \
with an interval that holds nine times in ten and the support of measurements behind it. Ask before a change is made \
or run: `diff` for what a change of a model or of its settings costs, `fit` before anything is downloaded, `advise` \
for changes that are surely better, `choose` for the cheapest devices that keep targets, `explain` for where the time \
goes. Models are ONNX files and config.json files below the root (weights are not needed), or names such as resnet50 \
and llama-3.1-8b."""
_MODEL = (
    "An ONNX file, a config.json or its folder, a GGUF or safetensors file, each as a path below the root; the name of "
    "a known network or language model; or the content of a config.json."
)
_OF_DIFF = f"{_MODEL} Or git:REV:PATH, a file as it was at a commit."
_DEVICES = types.Tool(
    name="devices",
    description="The devices that questions are about; with a name, one of them with every figure and its source.",
    input_schema={
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 200, "description": "As h100, or a100-80gb:1g.10gb."}},
        "additionalProperties": False,
    },
    output_schema={"type": "object", "required": ["schema_version", "devices"]},
    annotations=types.ToolAnnotations(read_only_hint=True, open_world_hint=False),
)
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def tools() -> dict[str, types.Tool]:
    """What agents can call, by name."""
    found = {kind.name.replace("-", "_"): _tool(kind) for kind in KINDS.values()}
    return {**found, "devices": _DEVICES}


def _tool(kind: Kind) -> types.Tool:
    schema = kind.asked.model_json_schema()
    for name in kind.asked.uploads:
        schema["properties"][name] = {
            "anyOf": [{"type": "string", "minLength": 1, "maxLength": 1000}, {"type": "object"}],
            "description": _OF_DIFF if kind.name == "diff" else _MODEL,
        }
    schema["required"] = [*kind.asked.uploads, *schema.get("required", ())]
    return types.Tool(
        name=kind.name.replace("-", "_"),
        description=kind.summary,
        input_schema=schema,
        output_schema=kind.answer_schema,
        annotations=types.ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False),
    )


class Agents:
    """The tools, answered: files below a root alone, one question at a time, each within a time."""

    def __init__(self, root: Root, question_seconds: float) -> None:
        """``root``: below which files are read; ``question_seconds``: for an answer."""
        self._root, self._seconds = root, question_seconds
        self._tools = tools()
        self._one = anyio.CapacityLimiter(1)
        self.server: Server[Any] = Server(
            "perfpass",
            version=__version__,
            instructions=_INSTRUCTIONS,
            on_list_tools=self._list,
            on_call_tool=self._call,
        )

    async def _list(self, context: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=list(self._tools.values()))

    async def _call(self, context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        answer = partial(self._answer, params.name, dict(params.arguments or {}))
        try:
            with anyio.fail_after(self._seconds):
                text, content = await anyio.to_thread.run_sync(answer, abandon_on_cancel=True, limiter=self._one)
        except PerfPassError as error:
            problem = Problem.of(error)
            return _failed(f"{problem.name}: {problem.detail}")
        except TimeoutError:
            return _failed(f"no answer within {self._seconds:g} s; ask about fewer devices or a smaller model")
        return types.CallToolResult(content=[types.TextContent(text=text)], structured_content=content)

    def _answer(self, name: str, arguments: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """What a tool says, as text and as a document. Raises PerfPassError."""
        if name == "devices":
            return _devices(arguments)
        kind = KINDS.get(name.replace("_", "-"))
        if kind is None:
            raise ArgumentError(f"no tool {shown_value(name)}; there are {', '.join(self._tools)}")
        uploads = kind.asked.uploads
        models = {one: self._model(arguments[one]) for one in uploads if arguments.get(one) is not None}
        question = kind.read({one: value for one, value in arguments.items() if one not in uploads})
        found = document(kind, question, models)
        return str(found), found.to_dict()

    def _model(self, given: Any) -> Any:
        if isinstance(given, str):
            return self._root.model(given)
        if not isinstance(given, dict):
            raise ArgumentError(f"a model is a text or the content of a config.json, got {shown_value(given)}")
        return given


def _devices(arguments: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    from perfpass.devices import catalogue, device
    from perfpass.devices.sheet import device_list, device_sheet

    if unknown := sorted(set(arguments) - {"name"}):
        raise ArgumentError(f"devices has no {shown_value(unknown[0])}; it has name")
    if (name := arguments.get("name")) is not None:
        one = device(name)
        return device_sheet(one), {"schema_version": 1, "devices": [one.to_dict()]}
    # A line of each: with all figures and sources the list would fill an agent's context.
    known = catalogue()
    told = ("id", "name", "vendor", "architecture", "memory_bytes", "power_limit_w")
    listed = [{name: getattr(one, name) for name in told} for one in known]
    return device_list(known), {"schema_version": 1, "devices": listed}


def _failed(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)


def over_stdio(root: Root, question_seconds: float) -> None:
    """Answers one agent on stdin and stdout until it closes them."""
    agents = Agents(root, question_seconds)
    _stand(root)

    async def run() -> None:
        async with stdio_server() as (read, write):
            await agents.server.run(read, write, agents.server.create_initialization_options())

    anyio.run(run)


def over_http(root: Root, settings: Settings, host: str, port: int) -> None:
    """Answers agents at http://``host``:``port``/mcp until SIGTERM.

    Raises ArgumentError for another address than loopback without a token: files below the root are read for who asks.
    """
    import signal

    import uvicorn

    from perfpass.serve.guard import Guard
    from perfpass.serve.observed import Metrics, event, log_config
    from perfpass.serve.protocol import BoundedProtocol
    from perfpass.serve.work import Work

    if host not in LOOPBACK and not settings.token:
        raise ArgumentError(f"{host} is open to others, for whom files below the root would be read; give --token-file")
    listening = bound(host, port)
    app = Agents(root, settings.question_seconds).server.streamable_http_app(host=host)
    config = uvicorn.Config(
        Guard(app, settings, Metrics(Work(settings))),
        http=partial(BoundedProtocol, settings),  # type: ignore[arg-type] # uvicorn calls it
        ws="none",
        log_config=log_config("info"),
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=settings.stop_seconds,  # type: ignore[arg-type]
    )
    _stand(root)
    event("listening", url=f"http://{host}:{listening.getsockname()[1]}/mcp", token=bool(settings.token))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    uvicorn.Server(config).run(sockets=[listening])


def _stand(root: Root) -> None:
    """In the root, so that what a model's name could be there is what `Root` has looked at."""
    os.chdir(root.folder)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
