"""A scripted agent: finds settings under which a model keeps a time, asking `perfpass mcp` before each change.

    python examples/agent/agent.py resnet50.onnx t4 12

The server's own advice comes first, then a list, where a language model would choose. What an agent needs of the server
is the same: what a change costs, with which certainty, before anything is run.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters

MODELS = Path(__file__).resolve().parents[1]
# Each a change of one argument of `predict`; what does not help is not kept.
CHANGES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("16 bits by autocast", {"precision": "amp"}),
    ("channels last", {"layout": "nhwc"}),
    ("half precision throughout", {"precision": "fp16"}),
    ("TensorRT", {"runtime": "tensorrt"}),
    ("8 bits", {"precision": "int8"}),
)
BATCH = 8
RUNTIMES = ["torch", "tensorrt"]  # what it runs in now, and what it may run in
SURE = 0.9


async def improve(model: str, device: str, limit_ms: float) -> list[dict[str, Any]]:
    """The changes that are kept, in order, until a run of the batch keeps ``limit_ms`` with probability SURE."""
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "perfpass", "mcp", "--root", str(MODELS)], env=dict(os.environ)
    )
    async with Client(command) as client:
        settings: dict[str, Any] = {"batch": BATCH}
        tried: list[dict[str, Any]] = []
        path = [await _asked(client, "as it is", model, device, settings, limit_ms)]
        for step, change in (*await _advised(client, model, device), *CHANGES):
            if path[-1]["probability"] >= SURE:
                break
            if change in tried:
                continue
            tried.append(change)
            compared = await client.call_tool(
                "diff", {"old": model, "new": model, "device": device, **settings, "change": change}
            )
            if compared.is_error:  # the device, or the runtime, does not have it
                print(f"- {step}: {compared.content[0].text}")
                continue
            ratio = compared.structured_content["devices"][0]["ratios"]["latency"]
            if ratio["high"] >= 1.0:
                print(f"- {step}: not surely quicker ({ratio['low']:.2f} to {ratio['high']:.2f} of the time)")
                continue
            settings |= change
            path.append(await _asked(client, step, model, device, settings, limit_ms))
        return path


async def _advised(client: Client, model: str, device: str) -> list[tuple[str, dict[str, Any]]]:
    """Changes that the server advises, which `predict` and `diff` take one by one."""
    found = await client.call_tool("advise", {"model": model, "device": device, "batch": BATCH, "runtime": RUNTIMES})
    if found.is_error:
        raise SystemExit(found.content[0].text)
    print(f"advised: {found.structured_content['headline']}")
    return [(step["words"], step["changes"]) for step in found.structured_content["steps"]]


async def _asked(
    client: Client, step: str, model: str, device: str, settings: dict[str, Any], limit_ms: float
) -> dict[str, Any]:
    """One prediction of the server, as a step of the path."""
    arguments = {"model": model, "device": device, **settings, "limits": {"latency_ms": limit_ms}}
    found = await client.call_tool("predict", arguments)
    if found.is_error:
        raise SystemExit(found.content[0].text)
    answer = found.structured_content
    latency, kept = answer["latency_ms"], answer["decision"]["probabilities"]["latency_ms"]
    print(f"- {step}: {latency['median']:.2f} ms ({latency['low']:.2f} to {latency['high']:.2f}), P(kept) {kept:.2f}")
    return {"step": step, "settings": dict(settings), "latency_ms": latency["median"], "probability": kept}


if __name__ == "__main__":
    anyio.run(improve, sys.argv[1], sys.argv[2], float(sys.argv[3]))
