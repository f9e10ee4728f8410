"""What can be asked, as schemas: one class a question, whose fields are the arguments of the function that answers.

What a field leaves out is not given to the function, whose own default then holds. Types are checked here; ranges and
names by the function, whose errors say what is allowed.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

_Name = Annotated[str, Field(min_length=1, max_length=200)]
_Model = Annotated[
    _Name | dict[str, Any] | None,
    Field(description="Name of a known network or language model, or the content of a Hugging Face config.json."),
]
_Device = Annotated[_Name, Field(description='A name of `GET /devices`, with a MIG profile after a colon; or "cpu".')]
_Devices = Annotated[
    list[_Name] | None, Field(max_length=200, description="Devices; the catalogue's common ones if left out.")
]
_Sizes = Annotated[dict[str, int] | None, Field(description="Values of symbolic dimensions by name.")]
_Shapes = Annotated[dict[str, list[int]] | None, Field(description="Whole shapes of inputs by name.")]
_Whole = int | None
_Number = float | None
_Text = Annotated[str | None, Field(max_length=200)]


class Question(BaseModel):
    """What all have in common. ``uploads``: its models, which may come as files."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
    uploads: ClassVar[tuple[str, ...]] = ("model",)

    def given(self) -> dict[str, Any]:
        """The arguments that were given, without the models."""
        found: dict[str, Any] = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: value for name, value in found.items() if value is not None and name not in self.uploads}


class Limits(BaseModel):
    """What a run is to keep."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    latency_ms: _Number = None
    memory_bytes: _Number = None
    energy_j: _Number = None
    confidence: float = 0.9


class Predict(Question):
    """One run of a model on a device: time, throughput, memory, energy, power, each with an interval."""

    model: _Model = None
    device: _Device
    batch: _Whole = Field(None, description="The model's own if left out.")
    precision: _Text = Field(
        None, description="fp64, fp32 (default), tf32, fp16, bf16, amp, amp_bf16, int8, fp8, w8a8, w8a16, w4a16, nf4."
    )
    mode: _Text = Field(None, description="inference (default) or training: one step.")
    runtime: _Text = Field(
        None, description="torch (default), torch.compile, onnxruntime, tensorrt, tvm, relax, openvino, litert."
    )
    layout: _Text = Field(None, description="nchw (default) or nhwc.")
    dims: _Sizes = None
    input_shape: _Shapes = None
    optimizer: _Text = Field(None, description="Of training: none, sgd, momentum (default), adam, adamw.")
    frozen: list[_Name] | None = Field(None, max_length=1000, description="Parameters that are not trained.")
    assume: dict[str, int] | None = Field(None, description="What values decide: experts, detections, frames.")
    sparsity: _Text = Field(None, description='"2:4" where weights are so sparse.')
    cuda_graph: bool | None = Field(None, description="Kernels replayed: tensorrt, onnxruntime, torch.compile.")
    processes: _Whole = Field(None, description="MPS processes that share the device.")
    limits: Limits | None = Field(None, description="What to keep; the answer then has a decision.")


class Explain(Predict):
    """The same, with what stands behind it in words: time by operator, memory at the peak, sources."""


class Fit(Question):
    """Whether a model fits a device, and what would change it."""

    model: _Model = None
    device: _Name | list[_Name] | None = Field(None, description="One or several; without, the smallest that hold it.")
    runtime: _Text = Field(None, description="vllm, sglang, trtllm, llama.cpp, transformers; of networks as predict.")
    precision: _Text = None
    confidence: _Number = Field(None, description="Above 0.5 and below 1 (0.9).")
    context: _Whole = Field(None, description="Tokens of a sequence, prompt and answer.")
    concurrency: _Whole = Field(None, description="Sequences at once.")
    kv_cache: _Text = None
    tp: _Whole = None
    pp: _Whole = None
    utilization: _Number = None
    step_tokens: _Whole = Field(None, description="Tokens that an engine takes in one step.")
    gpu_layers: _Whole = None
    host_experts: _Whole = None
    cache_on_host: bool | None = None
    memory_map: bool | None = None
    offload_gib: _Number = None
    max_sequences: _Whole = Field(None, description="vLLM's --max-num-seqs.")
    runtime_version: _Text = Field(None, description="Of vLLM or SGLang; without, the newest.")
    batch: _Whole = None
    dims: _Sizes = None
    input_shape: _Shapes = None
    mode: _Text = None
    optimizer: _Text = None
    layout: _Text = None


class Choose(Question):
    """The cheapest devices, slices, counts and batches that keep targets with a stated probability."""

    model: _Model = None
    devices: _Devices = None
    rate: _Number = Field(None, description="Requests or samples a second.")
    concurrency: _Number = Field(None, description="Requests in flight; instead of a rate.")
    input_length: _Whole = None
    output_length: _Whole = None
    ttft_ms: _Number = None
    tpot_ms: _Number = None
    latency_ms: _Number = None
    p99_ms: _Number = None
    max_usd_per_hour: _Number = None
    max_power_w: _Number = None
    confidence: _Number = None
    slices: bool | None = Field(None, description="MIG slices too.")
    precisions: list[_Name] | None = Field(None, max_length=20)
    runtimes: list[_Name] | None = Field(None, max_length=20)
    tensor_parallel: list[int] | None = Field(None, max_length=20)
    pipeline_parallel: list[int] | None = Field(None, max_length=20)
    data_parallel: list[int] | None = Field(None, max_length=20)
    expert_parallel: list[int] | None = Field(None, max_length=20)
    batches: list[int] | None = Field(None, max_length=100)
    layouts: list[_Name] | None = Field(None, max_length=2)
    cuda_graph: bool | None = Field(None, description="Of a network: as predict.")
    dims: _Sizes = None
    input_shape: _Shapes = None


class Advise(Question):
    """Changes to how a model runs that surely better a target: runtime, precision, layout, batch, device, MIG slice."""

    model: _Model = None
    device: _Name | list[_Name] = Field(description="Where it runs; of several the first, others may be changed to.")
    target: _Text = Field(None, description="latency (default), throughput, memory, energy, price.")
    batch: _Whole = None
    precision: _Text = Field(None, description="What it runs in now.")
    runtime: _Name | list[_Name] | None = Field(
        None, description="What it runs in; of several the first, others may be changed to; any if left out."
    )
    layout: _Text = None
    mode: _Text = None
    optimizer: _Text = None
    dims: _Sizes = None
    input_shape: _Shapes = None
    assume: dict[str, int] | None = None
    slices: bool | None = Field(None, description="MIG slices too.")
    keep_precision: bool | None = Field(None, description="Nothing that changes numbers beyond rounding.")
    keep_batch: bool | None = None
    limits: Limits | None = Field(None, description="What to keep, and the confidence with which a gain is sure (0.9).")


class Split(BaseModel):
    """How one replica is split over GPUs: tensor, pipeline, attention-data and expert parallelism."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1


class Llm(Question):
    """Serving a language model: time to the first token and per token, throughput, energy, memory."""

    model: _Model = None
    device: _Device
    input_length: _Whole = Field(None, description="Mean tokens of a prompt (1,024).")
    output_length: _Whole = Field(None, description="Mean tokens of an answer (128).")
    concurrency: _Number = Field(None, description="Requests in flight (1).")
    runtime: _Text = Field(None, description="vllm (default), trtllm, sglang, tgis.")
    runtime_version: _Text = None
    precision: _Text = Field(None, description="As stored if left out.")
    kv_precision: _Text = None
    tp: _Whole = Field(None, description="GPUs of tensor parallelism (the fewest that hold the model, up to 8).")
    pp: _Whole = None
    dp: _Whole = None
    ep: _Whole = None
    workers: _Whole = None
    prefill: Split | None = Field(None, description="The split of a prefill worker; then workers only decode.")
    prefill_workers: _Whole = None
    decode_batch: _Whole = Field(
        None, description="Requests that a decode rank runs at most beside prefill workers (as many as fit)."
    )
    equal_answers: bool | None = Field(None, description="Every answer has this length, as benchmarks ask (false).")


class Diff(Question):
    """What changed from one model to another, and by which factor each figure did."""

    uploads: ClassVar[tuple[str, ...]] = ("old", "new")

    old: _Model = None
    new: _Model = None
    device: _Name | list[_Name] | None = Field(None, description="Without one, what is counted exactly alone.")
    batch: _Whole = None
    precision: _Text = None
    mode: _Text = None
    runtime: _Text = None
    layout: _Text = None
    cuda_graph: bool | None = None
    optimizer: _Text = None
    dims: _Sizes = None
    input_shape: _Shapes = None
    assume: dict[str, int] | None = None
    processes: _Whole = None
    change: dict[str, int | _Name] | None = Field(
        None, description="What is otherwise for NEW: batch, precision, runtime, layout, cuda_graph, version."
    )
    fail: dict[str, float | _Name] | None = Field(
        None, description="By figure, how many per cent worse it may get: latency, throughput, memory, energy, ..."
    )
    confidence: _Number = None


class TrainCost(Question):
    """Training a model in a layout: memory, whether it fits, step time, hours, energy, money. Networks that are no
    language models have sharding, recompute (none, full), offload (none, optimizer, parameters).
    """

    model: _Model = None
    device: _Device
    gpus: _Whole = None
    tensor: _Whole = None
    pipeline: _Whole = None
    virtual: _Whole = None
    schedule: _Text = Field(None, description="Of a pipeline: 1f1b (default), zb_h1, zb_h2.")
    context: _Whole = None
    expert: _Whole = None
    expert_tensor: _Whole = None
    sharding: _Text = Field(None, description="none, zero1, zero2, zero3.")
    sharding_group: _Whole = None
    sequence: _Whole = None
    micro_batch: _Whole = None
    global_batch: _Whole = None
    precision: _Text = None
    optimizer: _Text = None
    recompute: _Text = Field(None, description="none (default), selective, full, offloaded.")
    offload: _Text = Field(None, description="To the host's memory: none (default), states, optimizer, parameters.")
    host_gb_s: _Number = None
    attention: _Text = None
    loss: _Text = None
    framework: _Text = None
    lora_rank: _Whole = None
    lora_targets: list[_Name] | None = Field(None, max_length=20)
    frozen: _Text = Field(None, description="Of weights beside adapters: none, int8, nf4.")
    dora: bool | None = None
    equal_lengths: bool | None = None
    towers: _Text = Field(None, description="What reads pictures or sound: frozen (default), trained, none.")
    fabric_gb_s: _Number = None
    layout: _Text = Field(None, description="Of a network: nchw (default) or nhwc.")
    dims: _Sizes = None
    input_shape: _Shapes = None
    tokens: _Number = Field(None, description="Of the run; the answer then has hours, energy and money.")
    samples: _Number = Field(None, description="Of an epoch, instead of tokens.")
    epochs: _Number = Field(None, description="Of the samples (1).")
    region: _Text = None
    carbon_intensity: _Number = None
    pue: _Number = None
    advise: bool | None = Field(
        None, description="What takes less memory, also where it fits; where it does not, the answer always says so."
    )
    search: bool | None = Field(
        None,
        description="Every layout of a step of global_batch, the quickest that fits first; what is given stays.",
    )
