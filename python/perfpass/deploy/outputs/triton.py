"""Triton's model repository: a config.pbtxt for every model, with instances and dynamic batching.

Source: triton-inference-server/common, protobuf/model_config.proto.
"""

from __future__ import annotations

from perfpass.deploy.outputs.deployed import Deployment, deployments
from perfpass.deploy.pack import Layout
from perfpass.errors import ArgumentError

_BACKENDS = {
    "torch": 'platform: "pytorch_libtorch"',
    "torch.compile": 'platform: "pytorch_libtorch"',
    "onnxruntime": 'backend: "onnxruntime"',
    "tensorrt": 'platform: "tensorrt_plan"',
}


def files(layout: Layout, name: str) -> dict[str, str]:
    """A configuration for every model. Raises ArgumentError for a runtime without a backend, and for no model at all.

    Of a model on several kinds of instance that with most processes is written: all read one repository.
    """
    found: dict[str, Deployment] = {}
    for one in deployments(layout):
        if one.model.kind == "graph":
            best = found.get(one.model.name)
            if best is None or one.option.processes > best.option.processes:
                found[one.model.name] = one
    if not found:
        raise ArgumentError(f"{name}: the fleet has no graph; language models are served by vllm, sglang or llama.cpp")
    return {f"{model}/config.pbtxt": _config(one) for model, one in found.items()}


def _config(one: Deployment) -> str:
    runtime = str(one.model.options.get("runtime", "torch"))
    if runtime not in _BACKENDS:
        raise ArgumentError(f"{one.model.name}: Triton has no backend for {runtime}; it has {', '.join(_BACKENDS)}")
    batch = int(one.model.options.get("batch") or 1)
    lines = [
        f'name: "{one.model.name}"',
        _BACKENDS[runtime],
        f"max_batch_size: {batch}",
        f"instance_group [ {{ count: {one.option.processes} kind: KIND_GPU }} ]",
    ]
    if batch > 1:
        delay = f"max_queue_delay_microseconds: {_delay_us(one)}"
        lines.append(f"dynamic_batching {{ preferred_batch_size: [ {batch} ] {delay} }}")
    return "\n".join([*lines, ""])


def _delay_us(one: Deployment) -> int:
    """Half of what the target leaves beyond the upper bound of a run: the other half is for what nobody counted."""
    if one.model.latency_ms is None:
        return 0
    return max(0, int(500 * (one.model.latency_ms - one.option.latency_ms.high)))
