"""llama.cpp where it was not measured: other file types than 16 bits, other boards; counted, not learned.

A token reads the active weights, in the bits of their file type, and the cache at its depth; a prompt passes in pieces
of n_ubatch tokens, each of which reads the weights that it touches and multiplies them. Seconds at the vendor's peak
rates over the share of them that a backend reaches, and the time to issue kernels. The shares are of records
(perfpass.training.generation.llama_cpp); a backend without records takes the middle of those that have some. One
sequence runs; several devices hold layers each, so none is faster. NumPy alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from perfpass.devices import Device
from perfpass.errors import ArtefactError
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.costs import GGUF_BITS, Parallelism, Quantization, Step, peak_flops, step_costs
from perfpass.prediction import Interval, Support, SupportLevel
from perfpass.predictors.generation.features import ONE_SEQUENCE, Batch
from perfpass.predictors.generation.prediction import Offline, costs_of
from perfpass.predictors.learned import artefacts, width_words
from perfpass.predictors.learned.spread import Spread

# What the section of the generation artefact's manifest is called.
SECTION = "llama_cpp"
# Tokens that llama.cpp takes at a time by itself (-ub).
PIECE_TOKENS = 512
_16_BITS = ("fp16", "bf16")
CAUSES = ("measurement", "model", "device", "laboratory", "backend", "file type", "prompts", "depth")
WORDS: Mapping[str, str] = {
    "measurement": "kernels and settings of one set-up differ",
    "model": "an architecture that was not measured",
    "device": "a device that was not measured",
    "laboratory": "another laboratory's software and settings",
    "backend": "a backend of llama.cpp that was not measured",
    "file type": "a kind of file that was not measured with this backend",
    "prompts": "prompts, which this backend was timed with in small pieces or not at all",
    "depth": "more tokens than were measured",
}
# Routing is no kernel of its own in ggml: its parts are issued one by one, about so many for each that others take.
_ROUTING_LAUNCHES = 3.0
# Tokens up to which prompts and depths were measured.
_MEASURED_TOKENS = 65_536


@dataclass(frozen=True)
class Rates:
    """What one backend reaches: shares of the bandwidth for weights and for the cache, and of the 16-bit matrix peak;
    how many times more a piece of many tokens reads its weights (they are unpacked); seconds to issue a kernel.
    """

    weights: float
    cache: float
    flops: float
    again: float
    launch_s: float

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Rates:
        """Raises ArtefactError for shares that are none."""
        found = cls(*(float(values[name]) for name in ("weights", "cache", "flops", "again", "launch_s")))
        shares = found.weights, found.cache, found.flops
        if not all(0 < v <= 1 for v in shares) or not (0 <= found.again < 100 and 0 <= found.launch_s < 1):
            raise ArtefactError("an artefact's rates of llama.cpp are no shares; run `perfpass train` again")
        return found


def backend_of(device: Device, stack: str = "") -> str:
    """The backend that llama.cpp takes on a device by default; ``stack`` "Vulkan" asks for that one.

    AMD's boards with HBM are told from the others: they reach other shares.
    """
    if stack.lower() == "vulkan":
        return "Vulkan"
    if device.vendor == "AMD":
        return "HIP (Instinct)" if device.memory_type.upper().startswith("HBM") else "HIP (Radeon)"
    return {"NVIDIA": "CUDA", "Apple": "Metal", "Intel": "SYCL"}.get(device.vendor, "another backend")


def quantization(model: LanguageModel, precision: str) -> Quantization:
    """How a file stores a model: mxfp4 files keep all but the experts in 16 bits."""
    beside = "bf16" if precision == "mxfp4" and model.expert_parameters else precision
    return Quantization(beside, precision, "fp32" if precision == "fp32" else "fp16")


@dataclass(frozen=True)
class Seconds:
    """Seconds of parts of a time at the peak rates, and how many kernels it issues.

    ``exposed``: of ``flops``, what does not hide behind the reading of weights: those of all tokens but one a piece;
    ``again``: of ``weights``, those of pieces, by the same share.
    """

    weights: float
    again: float
    cache: float
    flops: float
    exposed: float
    launches: float

    def at(self, rates: Rates) -> float:
        """Seconds at the shares of a backend."""
        weights = (self.weights + rates.again * self.again) / rates.weights
        parts = weights + self.cache / rates.cache + self.exposed / rates.flops
        return parts + self.launches * rates.launch_s

    def least(self) -> float:
        """Seconds that no software goes below: all read at the full bandwidth, all multiplied at the peak."""
        return max(self.weights + self.cache, self.flops)

    def __add__(self, other: Seconds) -> Seconds:
        return Seconds(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def times(self, count: float) -> Seconds:
        """So many of them."""
        return Seconds(*(a * count for a in astuple(self)))


def token(model: LanguageModel, device: Device, precision: str, depth: float) -> Seconds:
    """One token after ``depth`` others."""
    return _of(model, device, precision, Step.of_decode(1, depth))


def prompt(model: LanguageModel, device: Device, precision: str, tokens: int, piece: int, past: float = 0.0) -> Seconds:
    """A prompt in pieces of ``piece`` tokens, after ``past`` others."""
    whole, rest = divmod(tokens, piece)
    found = []
    if whole:
        mean = past + (whole - 1) * piece / 2
        found.append(_of(model, device, precision, Step.of_prefill(1, piece, mean)).times(whole))
    if rest:
        found.append(_of(model, device, precision, Step.of_prefill(1, rest, past + whole * piece)))
    return found[0] + found[1] if len(found) > 1 else found[0]


def _of(model: LanguageModel, device: Device, precision: str, step: Step) -> Seconds:
    work = step_costs(model, Parallelism(), quantization(model, precision), step)
    bandwidth, tokens = device.memory_bandwidth_bytes_s, float(step.tokens)
    peak = peak_flops(device.peak_flops, "fp32" if precision == "fp32" else "fp16")
    flops, weights = float(work.total("flops")) / peak, float(work.total("weight_bytes")) / bandwidth
    routing = sum(work.parts[name].launches for name in ("experts", "shared_experts"))
    return Seconds(
        weights=weights,
        again=weights * (1.0 - 1.0 / tokens),
        cache=float(work.total("cache_bytes")) / bandwidth,
        flops=flops,
        exposed=flops * (1.0 - 1.0 / tokens),
        launches=float(work.total("launches")) + (_ROUTING_LAUNCHES - 1.0) * routing,
    )


class LlamaCpp:
    """Times of a token and of a prompt from a trained artefact."""

    def __init__(self, folder: Any = None) -> None:
        """Raises ArtefactError for an artefact without these rates."""
        section = artefacts.Artefact(folder or artefacts.shipped("generation")).manifest.get(SECTION)
        if not isinstance(section, dict):
            raise ArtefactError("the artefact has no rates of llama.cpp; run `perfpass train` again")
        try:
            self.rates = {name: Rates.from_dict(values) for name, values in section["rates"].items()}
            self.prompts = frozenset(section["prompts"])
            self.vector = float(section["vector"])
            self.middle = Rates.from_dict(section["middle"])
            self.measured = {(str(d), bool(packed)) for d, packed in section["measured"]}
            self.packed = {(str(b), bool(packed)) for b, packed in section["kinds"]}
            self.models = frozenset(section["models"])
            self.spread = {name: Spread.from_dict(section["spread"][name]) for name in ("token", "prompt")}
            self.corpus = dict(section["corpus"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ArtefactError(
                f"the artefact's rates of llama.cpp cannot be read ({error}); run `perfpass train` again"
            ) from None

    @staticmethod
    @lru_cache(maxsize=1)
    def load() -> LlamaCpp:
        """The shipped one, read once per process."""
        return LlamaCpp()

    def answers(self, batch: Batch) -> bool:
        """Whether a batch is asked of this module: llama.cpp, and no 16-bit run of it on this device was measured."""
        if batch.runtime not in ONE_SEQUENCE:
            return False
        return batch.precision not in _16_BITS or (batch.device.id, False) not in self.measured

    def lacks(self, batch: Batch, depth: float, *, prompt: bool = False) -> dict[str, np.ndarray | float]:
        """What is not known of a batch, by cause."""
        backend, packed = backend_of(batch.device, batch.stack), is_packed(batch.precision)
        return {
            "measurement": 1.0,
            "model": float(batch.model.name not in self.models),
            "device": float((batch.device.id, packed) not in self.measured),
            "laboratory": 1.0,
            "backend": float(backend not in self.rates),
            "file type": float(backend in self.rates and (backend, packed) not in self.packed),
            "prompts": float(prompt and backend not in self.prompts),
            "depth": max(float(np.log2(depth / _MEASURED_TOKENS)), 0.0),
        }

    def rates_of(self, batch: Batch) -> Rates:
        """The shares that a batch reaches. A device without matrix units reaches more of its peak, which is lower."""
        found = self.rates.get(backend_of(batch.device, batch.stack), self.middle)
        peaks = batch.device.peak_flops
        plain = peak_flops(peaks, "fp16") <= peaks.get("fp32", 0.0)
        return replace(found, flops=max(found.flops, self.vector)) if plain else found

    def predict(self, batch: Batch) -> Offline:
        """Times of one batch. Raises UnsupportedError for a time whose bounds say nothing."""
        rates = self.rates_of(batch)
        asked = batch.model, batch.device, batch.precision
        inputs, outputs = int(batch.input_tokens), int(batch.output_tokens)
        first = prompt(*asked, inputs, min(int(batch.batch), inputs))
        each = token(*asked, inputs + outputs / 2)
        prompt_s = self._interval("prompt", first, rates, self.lacks(batch, inputs, prompt=True))
        token_s = self._interval("token", each, rates, self.lacks(batch, inputs + outputs))
        whole = [p + outputs * t for p, t in zip(_values(prompt_s), _values(token_s), strict=True)]
        latency = Interval(whole[0], whole[1], whole[2], "s")
        support = self._support(batch, latency)
        provenance = {"kind": "counted", "evidence": "llama.cpp by backend", "corpus": self.corpus}
        provenance |= {"prompt": support.to_dict(), "token": support.to_dict()}
        found = costs_of(batch, latency, support, provenance)
        return replace(found, prompt_s=prompt_s, token_s=token_s if outputs > 1 else None)

    def _interval(self, name: str, parts: Seconds, rates: Rates, lacks: Mapping[str, np.ndarray | float]) -> Interval:
        median, least = parts.at(rates), parts.least()
        low, high = self.spread[name].bounds(lacks)
        return Interval(median, max(median * float(np.exp(low[0])), least), median * float(np.exp(high[0])), "s")

    def _support(self, batch: Batch, latency: Interval) -> Support:
        backend = backend_of(batch.device, batch.stack)
        lacks = self.lacks(batch, batch.input_tokens + batch.output_tokens)
        reasons = ["counted from weights, cache and FLOPs at the share of the peak rates that a backend reaches"]
        if backend not in self.rates:
            reasons.append(f"no measurement of llama.cpp with {backend}: the middle of {', '.join(self.rates)}")
        elif lacks["device"]:
            reasons.append(
                f"no measurement of llama.cpp on {batch.device.name} in such a file; {backend} on other boards carries "
                "over"
            )
        if lacks["file type"]:
            timed = "16-bit" if is_packed(batch.precision) else "packed"
            reasons.append(f"with {backend}, {timed} files alone were timed")
        reasons.append(
            f"one sequence runs, its prompt in pieces of {batch.batch} tokens (-ub); nothing is left to the host"
        )
        said = width_words.reason("latency", latency, self.spread["token"], lacks, WORDS)
        level: SupportLevel = "outside" if lacks["device"] or lacks["backend"] or lacks["depth"] else "near"
        return Support(width_words.level_of(latency, level), (*reasons, *said))


def is_packed(precision: str) -> bool:
    """Whether weights are stored in other than 16 or 32 bits."""
    return precision in GGUF_BITS or precision not in (*_16_BITS, "fp32")


def _values(found: Interval) -> tuple[float, float, float]:
    return found.median, found.low, found.high
