"""What a batch of equal requests costs physically, as the components that the predictor weighs.

Prefill of all prompts, then one decode step per output token with a growing cache. Where the cache of all sequences
does not fit beside the weights, they run in waves. Seconds at the vendor's peak rates; efficiencies are fitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from perfpass.devices import Device
from perfpass.errors import ArgumentError
from perfpass.llm import costs
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.costs import ELEMENT_BYTES, Quantization, experts_in_file
from perfpass.llm.eager import in_eager_pytorch
from perfpass.llm.llama_cpp import layers_alone
from perfpass.llm.memory import alone
from perfpass.llm.serving import MemoryFit
from perfpass.predictors.learned.components import Form, Rows, Term

RUNTIMES = ("vllm", "trtllm", "deepspeed-mii", "deepspeed", "llama.cpp", "sambaflow")
# Generation in PyTorch, whose memory is simulated.
EAGER = frozenset({"transformers", "bitsandbytes", "transformers-compiled"})
# Engines that are counted by their habits wherever they run (`generation.engines`).
COUNTED = (
    *("transformers", "bitsandbytes", "transformers-compiled", "megatron", "tgi", "tgis", "fastertransformer"),
    *("lmdeploy", "exllama", "exllamav2", "mlc", "ktransformers"),
)
# Engines that leave layers, or experts, to the host.
ON_THE_HOST = frozenset({"llama.cpp", "ollama", "ktransformers"})
# llama.cpp was timed with one sequence: `batch` is the number of prompt tokens that it processes at a time, and more
# devices hold a part of the layers each (a pipeline), so a token is no faster. ollama is it, with its own defaults.
ONE_SEQUENCE = frozenset({"llama.cpp", "ollama"})
ASKED_RUNTIMES = (*RUNTIMES, "ollama", *COUNTED)
# Of a device's memory a server leaves a tenth to itself (vLLM's gpu_memory_utilization is 0.9).
USABLE = 0.9
# A cache that hardly fits: at least so much of all memory is taken as free, and sequences run in waves.
LEAST_FREE = 0.03

# Length scales, amplitudes and noise: chosen on seven models set aside by hash (docs/research/generation.md).
FORM = Form(
    components=(
        "weights",
        "cache",
        "decode_flops",
        "prefill_weights",
        "prefill_flops",
        "prefill_attention",
        "issue",
        "collectives",
        "messages",
        "sequences",
        "steps",
        "vocabulary",
        "constant",
    ),
    workload={"log2_devices": 2.0, "log2_batch": 6.0, "log2_input": 7.0, "log2_output": 7.0, "log_overflow": 3.0},
    traits={"log_parameters": 2.0, "log2_cache": 6.0, "log2_experts": 4.0, "log_vocabulary": 6.0},
    categories=("runtime", "vendor", "device"),
    levels=((), ("runtime",), ("runtime", "vendor"), ("runtime", "vendor", "device")),
    averaged=(1, 3),
    terms=(
        Term(0.05, ("runtime", "device")),
        Term(0.03, ("runtime", "device"), traits=False),
        Term(0.02, ("runtime", "device"), workload=False),
        Term(0.02, ("runtime", "vendor")),
        Term(0.01, ("runtime", "vendor"), traits=False),
        Term(0.01, ("runtime",)),
        Term(0.01, ("vendor",)),
        Term(0.005),
    ),
    noise=0.003,
    support=("runtime unseen", "vendor unseen", "device unseen", "seen"),
)


@dataclass(frozen=True)
class Batch:
    """One batch of equal requests: ``batch`` prompts of ``input_tokens`` tokens, ``output_tokens`` generated for each.

    ``devices`` share the model (tensor parallel; for llama.cpp by layers). ``precision``: of the weights, one of
    `perfpass.llm.costs.ELEMENT_BYTES`; the cache is kept in 16 bits, or in fp32 as they are.
    ``stack``: tells software stacks of one device apart where a source does, else empty. ``host_layers`` of the model,
    and the experts of ``host_experts`` layers, are left to the host (llama.cpp, ktransformers), whose memory has
    ``host_bandwidth_bytes_s``, 0 where it is not known. ``runtime_version``: of vLLM, where it is older than what was
    learned from (`generation.old_hosts`), or of transformers (`perfpass.llm.eager`).
    """

    model: LanguageModel
    device: Device
    runtime: str
    devices: int
    batch: int
    input_tokens: int
    output_tokens: int
    precision: str = "fp16"
    stack: str = ""
    host_layers: int = 0
    host_experts: int = 0
    host_bandwidth_bytes_s: float = 0.0
    runtime_version: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.host_bandwidth_bytes_s < 1e15:
            raise ArgumentError(
                f"host bandwidth {self.host_bandwidth_bytes_s / 1e9:g} GB/s; allowed are 0 to 1,000,000"
            )
        layers = self.model.layer_count
        if not (0 <= self.host_layers <= layers and 0 <= self.host_experts <= layers):
            raise ArgumentError(
                f"{self.host_layers} layers and the experts of {self.host_experts} are left to the host; "
                f"{self.model.name} has {layers} layers"
            )
        if (self.host_layers or self.host_experts) and self.runtime not in ON_THE_HOST:
            raise ArgumentError(
                f"{self.runtime} leaves nothing to the host here; take {', '.join(sorted(ON_THE_HOST))}"
            )
        for name, most in (("devices", 1024), ("batch", 65536), ("input_tokens", 10**7), ("output_tokens", 10**7)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= most:
                raise ArgumentError(f"{name} must be a whole number from 1 to {most}, got {value!r}")
        if self.precision not in ELEMENT_BYTES:
            raise ArgumentError(f"precision {self.precision!r}; allowed are {costs.listed(ELEMENT_BYTES)}")

    @property
    def cache_bytes(self) -> float:
        """Bytes of an element of the cache."""
        return 4.0 if self.precision == "fp32" else 2.0

    @property
    def experts_left(self) -> int:
        """Layers whose experts are left to the host; in ktransformers all, unless it is said how many."""
        every = self.runtime == "ktransformers" and not self.host_experts
        return self.model.layer_count if every else self.host_experts

    @property
    def sequences(self) -> int:
        """Sequences that run: all of the batch, or one (llama.cpp)."""
        return 1 if self.runtime in ONE_SEQUENCE else self.batch


@dataclass(frozen=True)
class Facts:
    """Counts of a model that do not depend on the workload."""

    parameters: float
    experts: float
    expert_share: float
    expert_count: float
    body: float
    head: float
    pair_width: float
    layers: float
    hidden: float


@lru_cache(maxsize=256)
def facts(model: LanguageModel) -> Facts:
    """The counts that the components are made of."""
    mixtures = [(count, layer.experts) for count, layer in model.layers if layer.experts]
    routed = sum(count for count, _ in mixtures)
    attention = [(count, layer.attention) for count, layer in model.layers if layer.attention]
    head = float(model.hidden * model.vocabulary)
    return Facts(
        parameters=float(model.parameters),
        experts=float(model.expert_parameters),
        expert_share=sum(n * e.active / e.count for n, e in mixtures) / routed if routed else 1.0,
        expert_count=sum(n * e.count for n, e in mixtures) / routed if routed else 1.0,
        body=float(model.active_parameters) - head,
        head=head,
        pair_width=float(sum(n * a.heads * (a.head_dim + a.value_dim) for n, a in attention)),
        layers=float(model.layer_count),
        hidden=float(model.hidden),
    )


def touched(f: Facts, tokens: costs.Number) -> costs.Number:
    """Parameters that a step of ``tokens`` tokens reads: experts by chance, each token routed on its own."""
    return f.parameters - f.experts + f.experts * (1.0 - (1.0 - f.expert_share) ** tokens)


def peak_flops(device: Device, precision: str) -> float:
    """FLOP/s of the unit that multiplies matrices of this precision."""
    return costs.peak_flops(device.peak_flops, precision)


def link_bytes_s(device: Device, devices: int) -> float:
    """Bytes per second that one of ``devices`` sends to others, one direction; AMD's, as learned, PCIe's.

    With the rate of Infinity Fabric boards and engines that are left out are 4 and 8 points worse (docs/decisions.md).
    """
    joined = device.vendor != "AMD" and device.link_bytes_s(devices)
    link = device.nvlink_bandwidth_bytes_s / 2 if joined else 0.0
    return max(link, device.pcie_bandwidth_bytes_s, 1e10)


@dataclass(frozen=True)
class Sizes:
    """N batches of one model on one device, as Batch names them; [N] each."""

    batch: np.ndarray
    input_tokens: np.ndarray
    output_tokens: np.ndarray

    @classmethod
    def of(cls, b: Batch) -> Sizes:
        """A batch's own [1]."""
        return cls(*(np.array([float(v)]) for v in (b.batch, b.input_tokens, b.output_tokens)))

    @classmethod
    def lattice(cls, batch: Sequence[float], inputs: Sequence[float], outputs: Sequence[float]) -> Sizes:
        """Every combination, ordered by inputs, then outputs, then batch."""
        grid = np.meshgrid(*(np.array(v, dtype=np.float64) for v in (inputs, outputs, batch)), indexing="ij")
        return cls(grid[2].ravel(), grid[0].ravel(), grid[1].ravel())


def sequences(b: Batch, batch: np.ndarray) -> np.ndarray:
    """[N] sequences that run of so many: all of them, or one (llama.cpp)."""
    return np.ones(len(batch)) if b.runtime in ONE_SEQUENCE else batch


def overflow(b: Batch, sizes: Sizes) -> np.ndarray:
    """[N] sequences over those whose cache fits at once: above 1 they run in waves."""
    f = facts(b.model)
    size = ELEMENT_BYTES[b.precision]
    memory = b.device.memory_bytes * b.devices
    free = max(memory * USABLE - f.parameters * size, memory * LEAST_FREE)
    each = b.cache_bytes * b.model.cache_elements(sizes.input_tokens + 0.75 * sizes.output_tokens)
    # A model without attention has no cache.
    return np.asarray(sequences(b, sizes.batch) / np.maximum(free / np.maximum(each, 1e-9), 1.0))


def memory(b: Batch) -> MemoryFit:
    """The memory of one of the devices: whether they hold the weights and a sequence at all, and how many sequences."""
    experts = experts_in_file(b.model.experts_stored_as, b.precision)
    stored = Quantization(b.precision, experts, "fp32" if b.precision == "fp32" else "fp16")
    devices, context = int(b.devices), int(b.input_tokens + b.output_tokens)
    if b.runtime in ON_THE_HOST:
        hosted = {"host_layers": b.host_layers, "host_experts": b.experts_left}
        return layers_alone(b.model, b.device, devices, stored, context=context, **hosted)
    if b.runtime in EAGER:
        lengths = {"prompt": int(b.input_tokens), "answer": int(b.output_tokens), "sequences": int(b.sequences)}
        return in_eager_pytorch(b.model, b.device, devices, stored, version=b.runtime_version, **lengths)
    return alone(
        b.model,
        b.device,
        devices,
        stored,
        context=context,
        sequences=int(b.sequences),
        runtime=b.runtime,
        version=b.runtime_version,
    )


def vendors_of(rows: Rows) -> np.ndarray:
    """[N] the vendors of the boards of rows of `FORM`, and of the forms of the phases."""
    return np.asarray(rows.categories[:, FORM.categories.index("vendor")])


def rows_of(batches: Sequence[Batch]) -> Rows:
    """The batches as rows of `FORM`."""
    return Rows.joined([rows_at(b, Sizes.of(b)) for b in batches])


def rows_at(b: Batch, sizes: Sizes) -> Rows:
    """N sizes of a batch as rows of `FORM`."""
    components, workload, traits = (np.stack(np.broadcast_arrays(sizes.batch, *v)[1:], axis=1) for v in _row(b, sizes))
    category = (b.runtime, b.device.vendor, f"{b.device.id} {b.stack}".strip())
    rows = len(sizes.batch)
    return Rows(
        components=components,
        workload=workload,
        traits=traits,
        categories=np.array([category] * rows, dtype=object).reshape(-1, 3),
        apart=np.full(rows, b.runtime in ONE_SEQUENCE),
    )


def _row(b: Batch, sizes: Sizes) -> tuple[list[costs.Number], list[costs.Number], list[costs.Number]]:
    f = facts(b.model)
    size = ELEMENT_BYTES[b.precision]
    single = b.runtime in ONE_SEQUENCE
    n, inputs, outputs = float(b.devices), sizes.input_tokens, sizes.output_tokens
    share = 1.0 if single else n
    bandwidth, flops = share * b.device.memory_bandwidth_bytes_s, share * peak_flops(b.device, b.precision)
    over = overflow(b, sizes)
    running = sequences(b, sizes.batch)
    waves = np.maximum(over, 1.0)
    together = running / waves
    steps = outputs * waves
    # llama.cpp feeds the prompt in chunks, which its devices pass along as a pipeline.
    chunks = np.ceil(inputs / sizes.batch) / n if single else waves
    chunk = np.minimum(sizes.batch, inputs) if single else running * inputs
    cache = b.cache_bytes * b.model.cache_elements(inputs + outputs / 2, together)
    parallel = n > 1 and not single
    messages = running * (inputs + outputs) * f.hidden * 2 * 2 * (n - 1) / n if parallel else 0.0
    components = [
        touched(f, together) * size / bandwidth * steps,
        cache / bandwidth * steps,
        2 * (f.body + f.head) * together * steps / flops,
        touched(f, chunk) * size / bandwidth * chunks,
        2 * f.body * running * inputs / flops,
        f.pair_width * running * inputs**2 / flops,
        f.layers * 1e-5 * (steps + (chunks if single else 0.0)),
        f.layers * 2e-5 * np.log2(n) * steps,
        f.layers * messages / link_bytes_s(b.device, b.devices),
        running * outputs * 1e-5,
        steps * 1e-3,
        running * outputs * f.head / f.hidden * 1e-10,
        1e-2,
    ]
    workload = [
        np.log2(n),
        np.log2(sizes.batch),
        np.log2(inputs),
        np.log2(outputs),
        np.clip(np.log(np.maximum(over, 0.3)), -1.2, 2.5),
    ]
    per_token = b.model.cache_elements(1.0) / f.layers
    traits = [
        np.log(f.parameters),
        np.log2(max(per_token, 1.0)),
        np.log2(max(f.expert_count, 1.0)),
        np.log(f.head / f.hidden),
    ]
    return components, workload, traits
