"""How a model is to run: runtime, split, precisions, offloads; checked before anything is counted."""

from __future__ import annotations

from dataclasses import dataclass

from perfpass.devices import Device
from perfpass.errors import ArgumentError
from perfpass.llm import cache, precision
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.costs import (
    ELEMENT_BYTES,
    FORMATS,
    PRECISIONS,
    Parallelism,
    Quantization,
    experts_in_file,
    file_type,
    is_as_stored,
    listed,
    named_precision,
    packed_format,
)
from perfpass.llm.in_use import SERVERS as SERVERS
from perfpass.llm.in_use import SINCE
from perfpass.llm.llama_cpp import check_file
from perfpass.llm.precision import loaded, quantization
from perfpass.llm.serving import check_arithmetic, usable
from perfpass.llm.versions import check_version
from perfpass.text import unknown

RUNTIMES = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "trtllm": "TensorRT-LLM",
    "llama.cpp": "llama.cpp",
    "transformers": "transformers",
}
# Those whose defaults of memory differ between releases, and which are counted where nobody says.
NEWEST = {name: f"{'.'.join(map(str, since))} or newer" for name, since in SINCE.items()}

_ANSWER = 128
_MOST_TOKENS, _MOST_SEQUENCES, _MOST_LAYERS, _MOST_GIB = 10**8, 10**7, 10**4, 10**5


@dataclass(frozen=True)
class Load:
    """``sequences`` at once, each of ``context`` tokens, prompt and answer together. ``answer``: of these tokens, those
    that are written one by one (a cache that grows leaves holes); 0: the last `_ANSWER` at most.
    """

    context: int
    sequences: int = 1
    answer: int = 0

    def __post_init__(self) -> None:
        for name, most in (("context", _MOST_TOKENS), ("sequences", _MOST_SEQUENCES)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
                said = "concurrency" if name == "sequences" else name
                raise ArgumentError(f"{said} must be a whole number from 1 to {most:,}, got {value!r}")

    @property
    def lengths(self) -> tuple[int, int]:
        """Tokens of the prompt and of the answer."""
        answer = min(self.answer or _ANSWER, max(1, self.context - 1))
        return max(1, self.context - answer), answer


@dataclass(frozen=True)
class Settings:
    """What a runtime is told; None: what it does by itself.

    ``precision`` of the weights: a name of PRECISIONS or FORMATS. ``kv_cache``: a type of
    `perfpass.llm.cache.OF_RUNTIME`, in llama.cpp also two with a comma between them, of keys and of values.
    ``utilization``: vLLM's gpu_memory_utilization, SGLang's mem_fraction_static, TensorRT-LLM's
    free_gpu_memory_fraction. Of llama.cpp: ``gpu_layers`` (-ngl), ``host_experts`` (--n-cpu-moe: layers whose experts
    stay on the host), ``cache_on_host`` (--no-kv-offload), ``memory_map`` (mmap), ``step_tokens`` (-ub). Of vLLM:
    ``offload_gib`` (--cpu-offload-gb, on each GPU), ``max_sequences`` (--max-num-seqs). ``runtime_version``:
    of vLLM or SGLang, by whose defaults it is counted; empty for the newest.
    """

    runtime: str = "vllm"
    tp: int = 1
    pp: int = 1
    precision: str | None = None
    kv_cache: str | None = None
    utilization: float | None = None
    gpu_layers: int | None = None
    host_experts: int = 0
    cache_on_host: bool = False
    memory_map: bool = True
    step_tokens: int | None = None
    offload_gib: float = 0.0
    max_sequences: int | None = None
    runtime_version: str = ""

    def __post_init__(self) -> None:
        if self.runtime not in RUNTIMES:
            raise ArgumentError(unknown("runtime", self.runtime, RUNTIMES))
        if self.precision is not None:
            named_precision(self.precision)
        for kind in cache_types(self.kv_cache, self.runtime) if self.kv_cache is not None else ():
            cache.type_bytes(kind, self.runtime)
        for name, least, most in (
            ("tp", 1, 1024),
            ("pp", 1, 1024),
            ("gpu_layers", 0, _MOST_LAYERS),
            ("host_experts", 0, _MOST_LAYERS),
            ("step_tokens", 1, _MOST_TOKENS),
            ("max_sequences", 1, _MOST_TOKENS),
        ):
            value = getattr(self, name)
            if value is None and name in ("gpu_layers", "step_tokens", "max_sequences"):
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise ArgumentError(f"{name} must be a whole number from {least} to {most:,}, got {value!r}")
        share = self.utilization
        if share is not None and not (isinstance(share, (int, float)) and 0 < share <= 1):
            raise ArgumentError(f"utilization is a share of the device above 0 and up to 1, got {share!r}")
        if not (isinstance(self.offload_gib, (int, float)) and 0 <= self.offload_gib <= _MOST_GIB):
            raise ArgumentError(f"offload_gib must be from 0 to {_MOST_GIB:,}, got {self.offload_gib!r}")
        check_version(self.runtime_version)
        self._refuse_foreign()

    def _refuse_foreign(self) -> None:
        """Raises ArgumentError for what another runtime than this one is told."""
        if self.runtime != "vllm" and self.offload_gib:
            raise ArgumentError(f"offload_gib is vLLM's --cpu-offload-gb, and the runtime is {RUNTIMES[self.runtime]}")
        if self.runtime != "vllm" and self.max_sequences is not None:
            raise ArgumentError(f"max_sequences is vLLM's --max-num-seqs, and the runtime is {RUNTIMES[self.runtime]}")
        if self.runtime_version and self.runtime not in NEWEST:
            asked = " and ".join(RUNTIMES[name] for name in NEWEST)
            raise ArgumentError(
                f"runtime_version is asked of {asked}, whose releases differ in memory by their defaults; the runtime "
                f"is {RUNTIMES[self.runtime]}"
            )
        if self.runtime != "llama.cpp":
            own = {
                "gpu_layers": self.gpu_layers is not None,
                "host_experts": self.host_experts > 0,
                "cache_on_host": self.cache_on_host,
                "step_tokens": self.step_tokens is not None,
                "memory_map": not self.memory_map,
            }
            if given := next((name for name, is_given in own.items() if is_given), None):
                raise ArgumentError(f"{given} is llama.cpp's, and the runtime is {RUNTIMES[self.runtime]}")
        if self.runtime not in SERVERS and self.utilization is not None:
            raise ArgumentError(f"{RUNTIMES[self.runtime]} fills no share of a device; leave utilization out")

    @property
    def gpus(self) -> int:
        """Devices together."""
        return self.tp * self.pp

    @property
    def split(self) -> Parallelism:
        """Over tensor ranks and stages; llama.cpp and transformers hand out whole layers."""
        if self.runtime in SERVERS:
            return Parallelism.of(self.tp, self.pp)
        return Parallelism(pipeline=self.gpus)


@dataclass(frozen=True)
class Stored:
    """The precisions of the weights as they are asked for: bytes of an element by precision, at least and usually."""

    quantization: Quantization
    sizes: dict[str, float]
    as_stored: bool
    name: str


def stored(model: LanguageModel, settings: Settings, device: Device) -> Stored:
    """What a runtime loads on a device, by `perfpass.llm.precision.loaded`; llama.cpp keeps the file as it is. Whether
    the device computes in it is asked by `computed`.
    """
    name, sizes = settings.precision, dict(ELEMENT_BYTES)
    if settings.runtime == "llama.cpp":
        check_file(name, model.experts_stored_as)
    if packed := packed_format(name):
        kind, size = packed
        return Stored(Quantization(kind, kind), sizes | {kind: size}, False, str(name).lower())
    if settings.runtime == "llama.cpp":
        gemm, moe = model.stored_as, model.experts_stored_as
        name = name or file_type(gemm, moe)
        if name is not None:
            gemm, moe = named_precision(name, mixture=model.is_mixture)
        used = Quantization(gemm, experts_in_file(model.experts_stored_as, moe))
    else:
        used = Quantization(*loaded(model, name, device, settings.runtime)[:2])
    same = is_as_stored(model, used)
    if same or name is None:
        sizes |= dict(model.packed_bytes)
    return Stored(used, sizes, same, name.lower() if name else _name(used.gemm, used.moe))


def computed(model: LanguageModel, device: Device, settings: Settings) -> str:
    """A sentence where what is loaded is not in the precision that a checkpoint stores, and why.

    llama.cpp unpacks weights to what the device has, and so do formats of weights alone (of FORMATS all but w8a8, whose
    products are in int8). Raises DeviceError for a precision that it does not compute in, as serving does.
    """
    if settings.runtime == "llama.cpp" or not device.is_gpu:
        return ""
    if packed := packed_format(settings.precision):
        check_arithmetic(device, packed[0], asked=str(settings.precision))
        return ""
    return quantization(model, settings.precision, None, device, settings.runtime)[1]


def _name(gemm: str, moe: str) -> str:
    found = next((name for name, pair in PRECISIONS.items() if pair == (gemm, moe)), None)
    return found or (gemm if gemm == moe else f"{gemm}/{moe}")


def cache_type(model: LanguageModel, settings: Settings, weights: Stored, device: Device) -> str:
    """The type of the cache: as asked, else that which the runtime takes by itself."""
    if settings.kv_cache is not None:
        return settings.kv_cache
    if settings.runtime == "llama.cpp":
        return "f16"
    found = precision.cache_type(model, weights.quantization, settings.precision, device, settings.runtime)
    return usable(device, found) if found == weights.quantization.activations else found


def cache_types(kind: str, runtime: str) -> tuple[str, ...]:
    """The type of keys and that of values. Raises ArgumentError for another number of them."""
    found = tuple(part.strip() for part in kind.split(",")) if runtime == "llama.cpp" else (kind,)
    if len(found) > 2:
        raise ArgumentError(f"a cache has one type, or in llama.cpp that of keys and that of values; got {kind!r}")
    return found if runtime != "llama.cpp" or len(found) == 2 else (found[0], found[0])


def precisions() -> str:
    """Names of precisions, for a sentence."""
    return listed((*PRECISIONS, *FORMATS))
