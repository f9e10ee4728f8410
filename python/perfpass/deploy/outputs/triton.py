"""Triton's model repository: a config.pbtxt for every model, with instances and dynamic batching.

Source: triton-inference-server/common, protobuf/model_config.proto.
"""

from __future__ import annotations

from perfpass.deploy.outputs.deployed import Deployment, deployments
from perfpass.deploy.pack import Layout
from perfpass.errors import ArgumentError

# Of a graph's types; a server takes no others as tensors.
_TYPES = {
    **{f"float{bits}": f"TYPE_FP{bits}" for bits in (16, 32, 64)},
    **{f"{sign}int{bits}": f"TYPE_{sign.upper()}INT{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "bfloat16": "TYPE_BF16",
    "bool": "TYPE_BOOL",
    "string": "TYPE_STRING",
}
_FLOATING = ("float16", "bfloat16", "float32", "float64")
_OF_PYTORCH = ("torch", "torch.compile")
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
    tensors: list[str] = []
    if runtime in _OF_PYTORCH:
        batch, tensors = _tensors(one)
    lines = [
        f'name: "{one.model.name}"',
        _BACKENDS[runtime],
        f"max_batch_size: {batch}",
        *tensors,
        f"instance_group [ {{ count: {one.option.processes} kind: KIND_GPU }} ]",
    ]
    if one.model.options.get("cuda_graph"):
        if runtime != "tensorrt":
            raise ArgumentError(
                f"{one.model.name}: Triton captures CUDA graphs of tensorrt, not of {runtime}; leave cuda_graph out"
            )
        lines.append("optimization { cuda { graphs: true } }")
    if batch > 1:
        delay = f"max_queue_delay_microseconds: {_delay_us(one)}"
        lines.append(f"dynamic_batching {{ preferred_batch_size: [ {batch} ] {delay} }}")
    return "\n".join([*lines, ""])


def _tensors(one: Deployment) -> tuple[int, list[str]]:
    """The batch, and inputs and outputs of a network: TorchScript does not say them, other files do.

    They are named by their place (``INPUT__0``), which the backend reads whatever the arguments of ``forward`` are
    called. The batch is 0, no dimension left out, where not all of them have it first. Raises what reading the model
    does, and ArgumentError for a type that Triton does not have.
    """
    from perfpass.graph import DTYPES
    from perfpass.importers import load
    from perfpass.predictors.workload import PRECISIONS, leading_dim

    asked = one.model.options
    sizes = {name: asked[name] for name in ("batch", "dims") if asked.get(name)}
    graph = load(one.model.model if one.model.content is None else one.model.content, **sizes)
    ends = {"input": graph.graph_inputs, "output": graph.graph_outputs}
    shapes = {kind: [graph.shape(int(tensor)) for tensor in tensors] for kind, tensors in ends.items()}
    batch = leading_dim(graph)
    if any(not shape or shape[0] != batch for all_ in shapes.values() for shape in all_):
        batch = 0
    # Under autocast a network takes and gives fp32.
    precision = str(asked.get("precision", "fp32"))
    wide = "float32" if precision.startswith("amp") else PRECISIONS[precision][0]
    lines = []
    for kind, tensors in ends.items():
        parts = []
        for i, (tensor, shape) in enumerate(zip(tensors, shapes[kind], strict=True)):
            dtype = DTYPES[int(graph.tensor_dtype[int(tensor)])]
            dtype = wide if dtype in _FLOATING and wide in _FLOATING else dtype
            if dtype not in _TYPES:
                raise ArgumentError(
                    f"{one.model.name}: its {kind} {i} is of type {dtype}; Triton has {', '.join(_TYPES)}"
                )
            parts.append(f'{{ name: "{kind.upper()}__{i}" data_type: {_TYPES[dtype]} {_dims(shape, batch)} }}')
        lines.append(f"{kind} [ {', '.join(parts)} ]")
    return batch, lines


def _dims(shape: tuple[int, ...], batch: int) -> str:
    """Dimensions without the batch; of a tensor that has no other, one that is shaped away."""
    left = shape[1:] if batch else shape
    return f"dims: [ {', '.join(str(n) for n in left)} ]" if left else "dims: [ 1 ] reshape: { shape: [ ] }"


def _delay_us(one: Deployment) -> int:
    """Half of what the target leaves beyond the upper bound of a run: the other half is for what nobody counted."""
    if one.model.latency_ms is None:
        return 0
    return max(0, int(500 * (one.model.latency_ms - one.option.latency_ms.high)))
