"""How a language model is served, and what memory of a GPU that takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from perfpass.decision import CONFIDENCE, FitAnswer, answer_on_fit, shown_fit
from perfpass.errors import ArgumentError, DeviceError
from perfpass.llm.costs import PRECISIONS, WEIGHTS_ALONE, Parallelism, Quantization, lacking, listed
from perfpass.llm.in_use import SERVERS, Room, chance
from perfpass.prediction import Interval
from perfpass.text import unknown

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.llm.architecture import LanguageModel

# tgis: the text generation inference server that IBM forked from Hugging Face's in 2023.
RUNTIMES = ("vllm", "trtllm", "sglang", "tgis")
MODES = ("agg", "disagg")
CONCURRENCY = (1e-6, 10_000_000)  # least and most; below 1 it is the share of the time with a request in flight
DECODE_BATCH = 1_000_000  # most
WORKERS = 1_000_000  # most


def check_gpu(device: Device) -> None:
    """Raises ArgumentError for a CPU."""
    if not device.is_gpu:
        raise ArgumentError(
            f"{device.id}: serving was measured on GPUs only; choose one (`perfpass devices`), or ask for one "
            "request in llama.cpp, which runs there: --offline --runtime llama.cpp (predict_offline)"
        )


def check_runtime(runtime: str, device: Device) -> None:
    """Raises DeviceError for a device that a runtime has no kernels for: TensorRT-LLM builds for NVIDIA's GPUs alone,
    and servers for none before Volta (compute capability 7.0 by vLLM's installation guide; the others ask for more).
    """
    if runtime == "trtllm" and device.vendor != "NVIDIA":
        raise DeviceError(
            f"TensorRT-LLM runs on NVIDIA GPUs only, and {device.name} is none ({device.vendor}); take another "
            "runtime, as vllm, or an NVIDIA device"
        )
    if runtime in SERVERS and _is_before_volta(device):
        raise DeviceError(
            f"{runtime} does not run on {device.name} ({device.architecture}): its kernels need NVIDIA GPUs from Volta "
            "on; take llama.cpp (--runtime llama.cpp) or another device"
        )


def _is_before_volta(device: Device) -> bool:
    """By the compute capability; a device file may state none, and calls its architecture what it likes."""
    if device.vendor != "NVIDIA":
        return False
    if device.compute_capability is not None:
        return device.compute_capability < (7, 0)
    return device.architecture.removeprefix("jetson-").startswith(("kepler", "maxwell", "pascal"))


def beyond_positions(model: LanguageModel, prompt: int, answer: int = 0) -> str:
    """A sentence where prompt and answer are longer than a model's positions, else empty."""
    tokens = max(prompt, answer) if model.counts_sides_apart else prompt + answer
    if not 0 < model.max_positions < tokens:
        return ""
    most = f"the {model.max_positions:,} positions of {model.name}"
    if model.counts_sides_apart:
        return f"a prompt or an answer of {tokens:,} tokens is beyond {most}"
    return f"{tokens:,} tokens, prompt and answer together, are beyond {most}"


def check_split(model: LanguageModel, tensor: int, pipeline: int = 1) -> None:
    """Serving stacks split whole attention heads and whole layers. Raises ArgumentError."""
    if pipeline > model.layer_count:
        raise ArgumentError(
            f"{model.name} has {model.layer_count} layers, which do not fill {pipeline} pipeline stages; "
            f"choose 1 to {model.layer_count}"
        )
    for _, layer in model.layers:
        if layer.attention and layer.attention.heads % tensor:
            heads = layer.attention.heads
            fits = ", ".join(str(n) for n in range(1, heads + 1) if heads % n == 0)
            raise ArgumentError(f"{heads} attention heads do not divide into {tensor} tensor ranks; choose {fits}")


def check_arithmetic(device: Device, *precisions: str, asked: str = "", runtime: str = "") -> None:
    """Raises DeviceError where a device, or ``runtime`` on it, cannot compute in one of ``precisions``, with those that
    it can.

    ``asked``: the name that stands for them.
    """
    for precision in precisions:
        if unit := missing(device, precision, runtime):
            can = [n for n, parts in PRECISIONS.items() if not any(missing(device, p, runtime) for p in parts)]
            by = "" if lacking(device.peak_flops, precision) else f" by {runtime}"
            raise DeviceError(
                f"{device.name} has no {unit} arithmetic, which precision {(asked or precision)!r} needs{by}; it can "
                f"run {listed(can)}"
            )


def missing(device: Device, precision: str, runtime: str = "") -> str:
    """The unit that a precision needs by ``runtime`` and a device lacks, else "". Without a runtime, as `lacking`: one
    that unpacks narrow floats to whatever the device multiplies.
    """
    unit = _NARROW_FLOATS.get(precision, "")
    if unit and unit not in device.peak_flops and not _expands(device, precision, runtime):
        return "bf16" if precision == "mxfp4" and runtime != "trtllm" else unit
    return lacking(device.peak_flops, precision)


# Weights kept in narrow floats and multiplied in 16 bits, with the unit that multiplies them as they are.
_NARROW_FLOATS = {"fp8_wo": "fp8", "nvfp4_wo": "fp4", "mxfp4": "fp4"}


def _expands(device: Device, precision: str, runtime: str) -> bool:
    """Whether a runtime has kernels for ``precision`` of _NARROW_FLOATS on a device without its unit.

    vLLM's Marlin kernels take fp8 and nvfp4 on NVIDIA GPUs since Turing, mxfp4 where bf16 is (vllm-project/vllm, pull
    request 29901, in 0.14); SGLang's fp8 since Ampere (its Fp8Config). Of AMD boards without fp8 neither has any.
    TensorRT-LLM has none on Ada and before: fp8 since Ada, fp4 since Blackwell (its support matrix), and mxfp4 experts
    on Hopper, whose runs of gpt-oss were measured.
    """
    peaks = device.peak_flops
    if runtime == "trtllm":
        return precision == "mxfp4" and device.architecture == "hopper"
    if runtime not in SERVERS:
        return True
    if precision == "mxfp4":
        return "bf16" in peaks
    turing = runtime == "vllm" and device.architecture == "turing"
    return device.vendor == "NVIDIA" and ("bf16" in peaks or turing)


def usable(device: Device, precision: str, runtime: str = "") -> str:
    """What a checkpoint that stores ``precision`` is run in by ``runtime`` on a device that may lack its arithmetic.

    bf16 as fp16 where there is no bf16 (and fp32 where there is neither), fp8 and nvfp4 as weights alone where the
    server has kernels for it (`missing`; in others where bf16 is); else what was stored, which
    `check_arithmetic` refuses.
    """
    peaks = device.peak_flops
    if not lacking(peaks, precision):
        return precision
    if precision in ("bf16", "fp16"):
        return next((other for other in ("fp16", "bf16", "fp32") if other in peaks), precision)
    alone = WEIGHTS_ALONE.get(precision, precision)
    runs = not missing(device, alone, runtime) if runtime in SERVERS else "bf16" in peaks
    return alone if runs else precision


@dataclass(frozen=True)
class Serving:
    """How a model is served, and under which load.

    ``input_length`` and ``output_length``: mean tokens of a request. ``concurrency``: requests in flight over the whole
    deployment (closed loop). ``mode`` "agg": every replica prefills and decodes; "disagg": ``prefill_workers``
    replicas split by ``prefill`` do the first, ``workers`` replicas split by ``parallelism`` the second.
    ``decode_batch``: of these, requests that a rank of attention runs at most by its settings, the others waiting for a
    place; 0: as many as its cache holds.
    ``equal_answers``: every answer has the stated length, as benchmarks ask for; SGLang, which lets prompts go before
    decodes, then serves requests in waves.
    ``runtime_version`` empty: the newest measured one.
    """

    input_length: int
    output_length: int
    concurrency: float
    runtime: str = "vllm"
    runtime_version: str = ""
    mode: str = "agg"
    parallelism: Parallelism = field(default_factory=Parallelism)
    workers: int = 1
    prefill: Parallelism | None = None
    prefill_workers: int = 0
    decode_batch: int = 0
    equal_answers: bool = False
    quantization: Quantization = field(default_factory=Quantization)

    def __post_init__(self) -> None:
        for name in ("input_length", "output_length"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10_000_000:
                raise ArgumentError(f"{name} must be a whole number from 1 to 10,000,000, got {value!r}")
        least, most = CONCURRENCY
        if not least <= self.concurrency <= most:
            raise ArgumentError(f"concurrency must be from {least} to {most:,}, got {self.concurrency!r}")
        if self.runtime not in RUNTIMES:
            raise ArgumentError(
                f"{unknown('runtime', self.runtime, RUNTIMES)}. Others were measured without a server: ask "
                "perfpass.predict_offline, or `perfpass llm` without options of a server"
            )
        if self.mode not in MODES:
            raise ArgumentError(f"mode {self.mode!r}; allowed are {', '.join(MODES)}")
        if self.workers < 1 or self.prefill_workers < (1 if self.mode == "disagg" else 0):
            raise ArgumentError(
                f"{self.workers} workers and {self.prefill_workers} prefill workers; one of each is needed"
            )
        if (workers := max(self.workers, self.prefill_workers)) > WORKERS:
            raise ArgumentError(f"{workers} workers of a kind; at most {WORKERS:,} are counted")
        if self.mode == "disagg" and self.prefill is None:
            raise ArgumentError("disaggregated serving needs the split of its prefill workers")
        most, found = DECODE_BATCH, self.decode_batch
        if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= most:
            raise ArgumentError(
                f"decode_batch must be a whole number from 1 to {most:,} (0: as many as fit), got {found!r}"
            )
        if not isinstance(self.equal_answers, bool):
            raise ArgumentError(f"equal_answers must be True or False, got {self.equal_answers!r}")
        if found and self.mode != "disagg":
            raise ArgumentError(
                f"decode_batch {found:,} is of decode workers beside prefill workers, of which there are none; give "
                "prefill workers (--prefill-workers) or leave it out (--decode-batch)"
            )

    @property
    def waves(self) -> bool:
        """Whether requests that begin together end together: no answer is longer and prompts wait for no decode."""
        return self.equal_answers and self.runtime == "sglang" and self.mode == "agg"

    @property
    def gpus(self) -> int:
        """GPUs of the whole deployment."""
        prefill = self.prefill.gpus * self.prefill_workers if self.prefill and self.mode == "disagg" else 0
        return self.parallelism.gpus * self.workers + prefill

    @property
    def decoded(self) -> float:
        """Requests in flight on one replica that decodes: no more than have a place by ``decode_batch``."""
        places = self.decode_batch * self.parallelism.attention_data
        each = self.concurrency / self.workers
        return min(each, places) if places else each

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        q = self.quantization
        return {
            "input_length": self.input_length,
            "output_length": self.output_length,
            "concurrency": self.concurrency,
            "runtime": self.runtime,
            "runtime_version": self.runtime_version,
            "mode": self.mode,
            "parallelism": vars(self.parallelism),
            "workers": self.workers,
            "prefill": vars(self.prefill) if self.prefill else None,
            "prefill_workers": self.prefill_workers,
            "decode_batch": self.decode_batch,
            "equal_answers": self.equal_answers,
            "quantization": {"gemm": q.gemm, "moe": q.moe, "kv_cache": q.kv_cache},
            "gpus": self.gpus,
        }


@dataclass(frozen=True)
class MemoryFit:
    """Memory of one GPU: what the deployment takes, and how many requests fit beside the weights.

    Bytes, by the runtime's own settings. ``cache`` is that of the load's own requests at full length.
    ``most_requests``: requests of full length whose cache fits at once over the whole deployment. ``fits``: whether one
    does at all, settings by hand included (`perfpass.llm.memory`); then ``most_requests`` is at least 1, else 0.
    ``reason``: one line, empty where there is nothing to say; where it does not fit, why. ``host_layers`` of
    ``layers``: those that llama.cpp would leave to the host; both 0 for other runtimes.

    With intervals whose upper bounds are stated for 98 in 100 (`perfpass.llm.in_use`): ``alive`` tensors at the peak,
    ``reserved`` by the runtime, ``in_use`` on the device (what nvidia-smi shows: of a server that fills the device
    beforehand a share of it, whatever the load); ``needed`` by the load (the parts above together), ``least`` by one
    request. ``basis``: what stands behind ``reserved`` and ``in_use``: "measured", "documented settings", "not known".
    ``room``: of a server, one request against what it may fill (`perfpass.llm.in_use.Room`).
    """

    weights_bytes: int
    cache_bytes: int
    activation_bytes: int
    runtime_bytes: int
    usable_bytes: int
    most_requests: int
    fits: bool
    reason: str
    layers: int = 0
    host_layers: int = 0
    alive: Interval | None = None
    reserved: Interval | None = None
    in_use: Interval | None = None
    needed: Interval | None = None
    least: Interval | None = None
    basis: str = ""
    room: Room | None = None

    @property
    def limit_bytes(self) -> int:
        """What the runtime may fill by itself, by its own accounting."""
        return self.usable_bytes if self.room is None else int(self.room.limit_bytes)

    @property
    def probability(self) -> float:
        """That one request fits with the settings that the runtime has by itself, 0 to 1."""
        if self.room is not None:
            return self.room.probability
        if self.least is None:
            return float(self.fits_by_default)
        return chance(self.least, self.usable_bytes)

    @property
    def answer(self) -> FitAnswer:
        """Whether one request fits (`perfpass.decision.answer_on_fit`): no where it does not even by hand."""
        return shown_fit(answer_on_fit(self.probability, CONFIDENCE, possible=self.fits))

    @property
    def total_bytes(self) -> int:
        """Everything together."""
        return self.weights_bytes + self.cache_bytes + self.activation_bytes + self.runtime_bytes

    @property
    def fits_by_default(self) -> bool:
        """Whether it fits with the settings that the runtime has by itself."""
        return self.fits and self.total_bytes <= self.usable_bytes

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON, with the total, and the limit and the probability of one request."""
        found = {name: v.to_dict() if isinstance(v, Interval | Room) else v for name, v in vars(self).items()}
        of_one = {"limit_bytes": self.limit_bytes, "probability": self.probability}
        return {**found, "total_bytes": self.total_bytes, **of_one}
