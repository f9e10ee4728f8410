"""The tools of `perfpass mcp`, called by the SDK's own client: in this process, over stdio, and over HTTP."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import jsonschema
import pytest
from mcp import Client, MCPError, StdioServerParameters

import perfpass
from perfpass.errors import ArgumentError, FileError
from perfpass.serve.agents import Agents, over_http
from perfpass.serve.kinds import KINDS
from perfpass.serve.rooted import Root
from perfpass.serve.settings import Settings
from serve.servers import PATIENCE_S
from serve.test_answers import network

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    """A folder with models, which the server stands in; a secret is beside it."""
    folder = tmp_path / "models"
    (folder / "inner").mkdir(parents=True)
    (folder / "net.onnx").write_bytes(network(1))
    (folder / "inner" / "other.onnx").write_bytes(network(2, nodes=5))
    shutil.copy(ROOT / "python/perfpass/configurations/llama-3.1-8b.json", folder / "inner" / "config.json")
    (tmp_path / "secret.onnx").write_bytes(network(3))
    (folder / "link.onnx").symlink_to(folder / "net.onnx")
    monkeypatch.chdir(folder)
    return folder


def asked(server: Any, talk: Callable[[Client], Awaitable[Any]]) -> Any:
    async def session() -> Any:
        async with Client(server, read_timeout_seconds=600) as client:
            return await talk(client)

    return anyio.run(session)


def called(root: Path, tool: str, **arguments: Any) -> Any:
    return asked(Agents(Root(root), 600).server, lambda client: client.call_tool(tool, arguments))


def content(result: Any) -> Any:
    assert not result.is_error, result.content[0].text
    return result.structured_content


def test_tools_have_schemas_that_their_answers_keep(root):
    tools = {tool.name: tool for tool in asked(Agents(Root(root), 600).server, lambda c: c.list_tools()).tools}
    assert set(tools) == {kind.replace("-", "_") for kind in KINDS} | {"devices"}
    for tool in tools.values():
        jsonschema.Draft202012Validator.check_schema(tool.input_schema)
        assert (
            tool.description and tool.annotations.read_only_hint and tool.input_schema["additionalProperties"] is False
        )
    for name, arguments in (
        ("predict", {"model": "net.onnx", "device": "t4", "batch": 4, "limits": {"latency_ms": 5}}),
        ("explain", {"model": "net.onnx", "device": "t4"}),
        ("fit", {"model": "llama-3.1-8b", "device": "l4"}),
        ("diff", {"old": "net.onnx", "new": "inner/other.onnx", "device": ["t4"]}),
        ("llm", {"model": "inner", "device": "h100"}),
        ("train_cost", {"model": "llama-3.1-8b", "device": "h100", "gpus": 8, "sharding": "zero3"}),
        ("choose", {"model": "net.onnx", "devices": ["t4", "l4"], "latency_ms": 5.0}),
        ("advise", {"model": "net.onnx", "device": ["t4", "l4"], "target": "price"}),
        ("devices", {"name": "a100-80gb:1g.10gb"}),
        ("devices", {}),
    ):
        jsonschema.validate(arguments, tools[name].input_schema)
        result = called(root, name, **arguments)
        jsonschema.validate(content(result), tools[name].output_schema)
        assert result.content[0].text.strip()


def test_answers_are_those_of_the_functions(root):
    expected = perfpass.predict("net.onnx", "t4", batch=4)
    result = called(root, "predict", model="net.onnx", device="t4", batch=4)
    assert content(result) == expected.to_dict() and result.content[0].text == str(expected)
    told = perfpass.fit("llama-3.1-70b", "h100")
    assert content(called(root, "fit", model="llama-3.1-70b", device="h100")) == told.to_dict()


@pytest.mark.parametrize(
    "path",
    ["../secret.onnx", "{outside}/secret.onnx", "inner/../../secret.onnx", "/etc/passwd", "onnx:../secret.onnx",
     "hf:{outside}", "git:HEAD:../secret.onnx", "git:HEAD:/etc/passwd", "~/secret.onnx", "no.onnx", "a\x00b", "",
     "leads_out.onnx", "led/secret.onnx", "pair/net.onnx", "pair", "loop"],
)  # fmt: skip
def test_no_tool_reads_outside_of_the_root(root, path):
    outside = root.parent
    (root / "leads_out.onnx").symlink_to(outside / "secret.onnx")
    (root / "led").symlink_to(outside)
    (root / "loop").symlink_to("loop")
    (root / "pair").mkdir()
    (root / "pair" / "net.onnx").write_bytes(network(1))
    (root / "pair" / "config.json").symlink_to(outside / "secret.onnx")
    given = path.format(outside=outside)
    for tool, arguments in (
        ("predict", {"model": given, "device": "t4"}),
        ("fit", {"model": given}),
        ("diff", {"old": given, "new": "net.onnx"}),
    ):
        result = called(root, tool, **arguments)
        assert result.is_error and "FileError" in result.content[0].text, result.content[0].text


def test_links_inside_are_followed(root):
    assert content(called(root, "predict", model="link.onnx", device="t4"))


def test_a_file_at_a_commit_is_seen_from_the_root(root):
    top = root.parent
    for command in (["init", "-q"], ["add", "."], ["-c", "user.name=x", "-c", "user.email=x@y", "commit", "-qm", "x"]):
        subprocess.run(["git", *command], cwd=top, check=True)
    (root / "net.onnx").write_bytes(network(1, nodes=6))
    found = content(called(root, "diff", old="git:HEAD:net.onnx", new="net.onnx"))
    assert len(found["changes"]["operators"]) == 3
    assert called(root, "diff", old="git:HEAD:secret.onnx", new="net.onnx").is_error


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("predict", {"model": "net.onnx", "device": "h1000"}, "DeviceError: unknown device"),
        ("predict", {"model": "net.onnx", "device": "t4", "batch": "4"}, "ArgumentError: batch"),
        ("predict", {"model": "net.onnx", "device": "t4", "colour": "red"}, "ArgumentError: colour"),
        ("predict", {"device": "t4"}, "ArgumentError: model is missing"),
        ("predict", {"model": 7, "device": "t4"}, "ArgumentError: a model is a text"),
        ("devices", {"nme": "h100"}, "ArgumentError: devices has no"),
        ("no_such_tool", {}, "ArgumentError: no tool"),
    ],
)
def test_what_is_wrong_is_told_so_that_an_agent_can_mend_it(root, tool, arguments, said):
    try:
        result = called(root, tool, **arguments)
    except MCPError as error:  # the SDK's client may look first whether there is such a tool
        assert tool in str(error)
        return
    assert result.is_error and result.content[0].text.startswith(said)


# Each tool that an agent needs for a change: what it costs now, whether it fits, what to take, what differs, why.
EVERY: tuple[tuple[str, dict[str, Any]], ...] = (
    ("predict", {"model": "net.onnx", "device": "t4"}),
    ("fit", {"model": "llama-3.1-8b", "device": "l4"}),
    ("choose", {"model": "net.onnx", "devices": ["t4", "l4"], "latency_ms": 5.0}),
    ("diff", {"old": "net.onnx", "new": "inner/other.onnx", "device": ["t4"]}),
    ("explain", {"model": "net.onnx", "device": "t4"}),
    ("devices", {"name": "a100-80gb:1g.10gb"}),
)


async def every(client: Client) -> list[Any]:
    return [content(await client.call_tool(name, arguments)) for name, arguments in EVERY]


def test_an_agent_that_starts_the_server_is_answered_over_stdio(root):
    arguments = ["-m", "perfpass", "mcp", "--root", str(root)]
    server = StdioServerParameters(command=sys.executable, args=arguments, env=dict(os.environ), cwd=str(root.parent))
    found = asked(server, every)
    assert found == asked(Agents(Root(root), 600).server, every)
    assert found[0] == perfpass.predict("net.onnx", "t4").to_dict()


def test_agents_are_answered_over_http_where_they_have_the_token(root, tmp_path):
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    (tmp_path / "token").write_text("the-token-of-this-test")
    log = tmp_path / "mcp.log"
    command = [sys.executable, "-m", "perfpass", "mcp", "--http", "--port", "0", "--root", str(root)]
    with log.open("wb") as file:
        process = subprocess.Popen([*command, "--token-file", str(tmp_path / "token")], stderr=file)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while '"url": "' not in log.read_text():
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        url = log.read_text().split('"url": "')[1].split('"')[0]
        headers = {"Authorization": "Bearer the-token-of-this-test"}

        async def talk() -> Any:
            async with (
                httpx2.AsyncClient(headers=headers, timeout=PATIENCE_S) as http,
                Client(streamable_http_client(url, http_client=http)) as client,
            ):
                return await every(client)

        assert anyio.run(talk) == asked(Agents(Root(root), 600).server, every)
        assert httpx2.post(url, json={}).status_code == 401
        foreign = {**headers, "Host": "evil.example", "Accept": "application/json, text/event-stream"}
        assert httpx2.post(url, json={}, headers=foreign).status_code in (403, 421)
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()


def test_files_are_not_offered_to_others_without_a_token(root):
    with pytest.raises(ArgumentError, match="--token-file"):
        over_http(Root(root), Settings(), "0.0.0.0", 0)


def test_a_root_is_a_folder(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    for wrong in ("file", "nothing"):
        with pytest.raises(FileError):
            Root(tmp_path / wrong)


@pytest.mark.parametrize("model", ["missing.onnx", "no such model", "", "inner/../../net.onnx"])
def test_a_file_that_is_not_there_is_told_without_talk_of_uploads(root, model):
    found = called(root, "predict", model=model, device="t4")
    assert found.is_error and "upload" not in found.content[0].text and "FileError" in found.content[0].text


def test_the_scripted_agent_finds_settings_that_keep_its_limit(monkeypatch):
    monkeypatch.chdir(ROOT)
    program = runpy.run_path(str(ROOT / "examples" / "agent" / "agent.py"))
    path = anyio.run(program["improve"], "resnet50.onnx", "t4", 12.0)
    assert path[0]["step"] == "as it is" and path[0]["probability"] < 0.5 and path[-1]["probability"] >= 0.9
    times = [step["latency_ms"] for step in path]
    assert times == sorted(times, reverse=True) and len(path) > 1
    last = perfpass.predict("examples/resnet50.onnx", "t4", **path[-1]["settings"])
    assert last.latency_ms.median == times[-1]
