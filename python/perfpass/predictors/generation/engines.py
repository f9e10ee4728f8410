"""Engines that people run without a server, each by its own habits; counted, not learned.

A prompt and every token after it are steps, whose work is counted (`perfpass.llm.costs`) and priced by the habits of
the engine (`generation.habits`): eager PyTorch waits for its host, llama.cpp runs one sequence and takes its prompt in
pieces. The habits are of records (perfpass.training.generation.engines); an engine without records takes those of the
engines that it is most like, and its bounds widen. NumPy alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from perfpass.devices import Device
from perfpass.errors import ArtefactError
from perfpass.llm.costs import GGUF_BITS, Number, Parallelism, Step
from perfpass.llm.costs import peak_flops as unit_flops
from perfpass.llm.versions import release
from perfpass.prediction import Interval, Support, SupportLevel
from perfpass.predictors.generation.features import COUNTED, ONE_SEQUENCE, Batch, Sizes, overflow
from perfpass.predictors.generation.habits import NOTHING, Arithmetic, Habits, Host, Parts, parts_of
from perfpass.predictors.generation.prediction import Offline, costs_of
from perfpass.predictors.generation.stated import Stated, stated
from perfpass.predictors.learned import artefacts, width_words
from perfpass.predictors.learned.spread import Spread

# What the section of the generation artefact's manifest is called.
SECTION = "engines"
# Tokens that llama.cpp takes at a time by itself (-ub).
PIECE_TOKENS = 512
# The host's memory where none is stated: two channels of DDR5-5200. And how little is left unknown where it is.
HOST_BANDWIDTH_BYTES_S = 83e9
_STATED_HOST = 0.25
# How much of a cause is left where llama.cpp's developers state the figures of a kind of board (`generation.stated`): a
# board among others of its kind; of prompts, what builds and libraries of one board do to them (a factor of ten on a
# Strix Halo; stated figures of 2023 to 2026 lie within 0.74 to 1.36 of what one habit says).
_STATED_DEVICE, _STATED_BUILDS = 0.5, 0.25
# Devices of one machine share a layer; further machines hold layers each.
NODE_DEVICES = 8
_16_BITS = ("fp16", "bf16")
WORDS: Mapping[str, str] = {
    "measurement": "kernels and settings of one set-up differ",
    "builds": "builds and drivers of llama.cpp differ",
    "model": "an architecture that was not learned from",
    "device": "a device that was not learned from",
    "laboratory": "another laboratory's host, software and settings",
    "engine": "an engine that was not learned from",
    "stacked memory": "boards with HBM, of whose bandwidth llama.cpp reaches very unlike shares",
    "file type": "a kind of file that was not learned from with this engine",
    "host": "memory and processors of the host, to which a part is left",
    "prompts": "prompts, which were not timed with this engine",
    "depth": "more tokens than were learned from",
}
CAUSES = tuple(WORDS)
# Tokens of a prompt with its answer up to which an engine was measured; of all backends of llama.cpp, and of others.
_MEASURED_TOKENS = {"llama.cpp": 65_536, "ktransformers": 32_768, "lmdeploy": 4_096}
_MEASURED_TOKENS |= dict.fromkeys(("exllama", "exllamav2"), 2_048)
_OTHERS_TOKENS = 1_536


# How transformers runs a layer's experts, by release (`looped`).
_LOOPING, _AT_ONCE = ("transformers", "bitsandbytes"), ("gpt_oss", "llama4_text")
_CHOSEN_SINCE, _GROUPED_SINCE, _LAST_OVER_ALL = (4, 53), (5,), "4.52"
# Mixtures that the last of the releases that loop over all experts reads (their modeling files of 4.52.4).
_READ_OVER_ALL = frozenset({
    "dbrx", "deepseek_v3", "jamba", "mixtral", "olmoe", "phimoe", "qwen2_moe", "qwen3_moe",
})  # fmt: skip
_EXPERTS_OF_HABIT, _UNCHOSEN = 8.0, 0.4

_PLAIN, _EAGER, _HALVES = Arithmetic(), Arithmetic(scores_kept=True), Arithmetic(half_sums=True)


def _measured_tokens(batch: Batch) -> int:
    name = "llama.cpp" if batch.runtime in ONE_SEQUENCE else engine_of(batch)
    return _MEASURED_TOKENS.get(name, _OTHERS_TOKENS)


@dataclass(frozen=True)
class Engine:
    """``shown``: its name in words. ``kind``: whose habits a fit is drawn to: eager PyTorch, native kernels, ggml.
    ``like``: engines whose middle it takes where none of its runs was measured, or no prompt; ``host_of``: the one
    whose host times it takes then. ``layers_each``: several devices hold layers each, so none is faster.
    """

    shown: str
    kind: str
    arithmetic: Arithmetic = _PLAIN
    like: tuple[str, ...] = ()
    host_of: str = ""
    layers_each: bool = False


# cuBLAS in 16 bits for 16-bit files, integers for packed ones (ggml-cuda: mmq.cu, ggml_cuda_op_mul_mat_cublas).
_GGML = Arithmetic(half_sums=True, integers=True)
_NEWEST_GGML = ("llama.cpp, HIP (Radeon)", "llama.cpp, Vulkan")
LLAMA_CPP = "llama.cpp, "
ENGINES: Mapping[str, Engine] = {
    "transformers": Engine("transformers' generate, eager", "eager", _EAGER, layers_each=True),
    "bitsandbytes": Engine("transformers with bitsandbytes' kernels", "eager", _EAGER, layers_each=True),
    "transformers-compiled": Engine(
        "transformers, compiled, with CUDA graphs", "native", like=("transformers",), host_of="lmdeploy",
        layers_each=True,
    ),
    "megatron": Engine("Megatron-LM's generation", "eager", _EAGER),
    "tgi": Engine("TGI of 2023 (IBM's fork)", "eager"),
    "fastertransformer": Engine("FasterTransformer", "native"),
    "lmdeploy": Engine("LMDeploy's TurboMind", "native"),
    "exllama": Engine("ExLlama", "native", _HALVES, layers_each=True),
    "exllamav2": Engine("ExLlamaV2", "native", _HALVES, like=("exllama",), layers_each=True),
    "ktransformers": Engine("KTransformers", "native", layers_each=True),
    "mlc": Engine("MLC LLM", "native", like=("exllamav2", "lmdeploy")),
    "deepspeed": Engine("DeepSpeed-Inference", "native", like=("fastertransformer", "lmdeploy")),
    **{
        f"{LLAMA_CPP}{backend}": Engine(f"llama.cpp with {backend}", "ggml", arithmetic, _NEWEST_GGML, "", True)
        for backend, arithmetic in (
            ("CUDA (HBM)", _GGML), ("CUDA (GDDR)", _GGML), ("HIP (Instinct)", _GGML), ("HIP (Radeon)", _GGML),
            ("Vulkan", Arithmetic()), ("Metal", Arithmetic()), ("SYCL (HBM)", Arithmetic()), ("SYCL", Arithmetic()),
            ("CPU", Arithmetic()), ("another backend", Arithmetic()),
        )
    },
}  # fmt: skip
# Names of the command line that are another's engine with its own defaults.
_SAME = {"tgis": "tgi", "ollama": "llama.cpp"}


def backend_of(device: Device, stack: str = "") -> str:
    """The backend that llama.cpp takes on a device by default; ``stack`` "Vulkan" asks for that one.

    Boards with HBM are told from the others: they reach other shares.
    """
    if stack.lower() == "vulkan":
        return "Vulkan"
    if device.kind == "cpu":
        return "CPU"
    if device.vendor == "AMD":
        return "HIP (Instinct)" if is_stacked(device) else "HIP (Radeon)"
    if device.vendor == "NVIDIA":
        return "CUDA (HBM)" if is_stacked(device) else "CUDA (GDDR)"
    if device.vendor == "Intel":
        return "SYCL (HBM)" if is_stacked(device) else "SYCL"
    return "Metal" if device.vendor == "Apple" else "another backend"


def is_stacked(device: Device) -> bool:
    """Whether the memory is HBM."""
    return device.memory_type.upper().startswith("HBM")


def engine_of(batch: Batch) -> str:
    """The name in ENGINES of what runs a batch."""
    name = _SAME.get(batch.runtime, batch.runtime)
    if name in ONE_SEQUENCE:
        return LLAMA_CPP + backend_of(batch.device, batch.stack)
    # What transformers calls int8 are bitsandbytes' kernels; weights alone in 8 bits (GPTQ, EETQ, torchao) have others.
    return "bitsandbytes" if name == "transformers" and batch.precision == "int8" else name


def split_of(engine: Engine, devices: int) -> Parallelism:
    """How devices share a model: its layers' matrices within a machine, its layers between machines."""
    if engine.layers_each:
        return Parallelism(pipeline=devices)
    tensor = max(n for n in range(1, NODE_DEVICES + 1) if devices % n == 0)
    return Parallelism(tensor=tensor, pipeline=devices // tensor, expert_tensor=tensor)


def is_packed(precision: str) -> bool:
    """Whether weights are stored in other than 16 or 32 bits."""
    return precision in GGUF_BITS or precision not in (*_16_BITS, "fp32")


Steps = tuple[tuple[float, Parts], ...]


def seconds(steps: Steps, habits: Habits) -> float:
    """Seconds of steps, so many of each."""
    return float(sum(count * np.asarray(parts.seconds(habits)).sum() for count, parts in steps))


def least(steps: Steps) -> float:
    """Seconds that no software goes below."""
    return float(sum(count * np.asarray(parts.least()).sum() for count, parts in steps))


def host_of(batch: Batch) -> Host:
    """What a batch leaves to the host."""
    layers, experts = batch.host_layers, batch.experts_left
    mixtures = sum(count for count, layer in batch.model.layers if layer.experts)
    if not layers and not (experts and mixtures):
        return NOTHING
    return Host(
        layers / batch.model.layer_count,
        min(experts / mixtures, 1.0) if mixtures else 0.0,
        batch.host_bandwidth_bytes_s or HOST_BANDWIDTH_BYTES_S,
        streams=batch.runtime in ONE_SEQUENCE,
    )


def looped(batch: Batch, tokens: Number) -> Number:
    """How many times as long as `Habits.experts_s`, which is of eight experts that tokens chose, the host takes for a
    layer's experts in a step of ``tokens`` [N].

    transformers loops over every expert up to 4.52, from 4.53 on over those that are chosen (modeling_qwen3_moe.py of
    4.51.3, 4.52.4, 4.53.3 and 4.57.1; gpt-oss has a product over all), from 5 on over none. An expert that nobody chose
    costs its calls, which start no kernels: two fifths, by hand.
    """
    found = release(batch.runtime_version)
    counts = [(count, layer.experts) for count, layer in batch.model.layers if layer.experts]
    if not _has_looped(batch) or found >= _GROUPED_SINCE:
        return 1.0
    layers = sum(count for count, _ in counts)
    every = sum(count * e.count for count, e in counts) / layers
    chosen = sum(n * e.count * (1.0 - (1.0 - e.active / e.count) ** np.asarray(tokens)) for n, e in counts) / layers
    visited = chosen + (_UNCHOSEN * (every - chosen) if found < _CHOSEN_SINCE else 0.0)
    return np.maximum(visited / _EXPERTS_OF_HABIT, 1.0)


def _has_looped(batch: Batch) -> bool:
    """Whether some release loops over the experts of this model."""
    model = batch.model
    return engine_of(batch) in _LOOPING and model.is_mixture and model.model_type not in _AT_ONCE


def _may_loop(batch: Batch) -> bool:
    """Whether no release is stated and one that loops over all experts reads this model."""
    return _has_looped(batch) and not batch.runtime_version and batch.model.model_type in _READ_OVER_ALL


def token(batch: Batch, split: Parallelism, sequences: Number, depth: Number) -> Parts:
    """One token of each of ``sequences`` after ``depth`` others."""
    arithmetic = ENGINES[engine_of(batch)].arithmetic
    step = Step.of_decode(sequences, depth)
    return _parts(batch, split, step, arithmetic)


def _parts(batch: Batch, split: Parallelism, step: Step, arithmetic: Arithmetic) -> Parts:
    found = parts_of(batch.model, batch.device, split, batch.precision, step, arithmetic, host_of(batch))
    return replace(found, mixtures=found.mixtures * looped(batch, step.tokens))


def prompt(batch: Batch, split: Parallelism, sequences: Number, past: float = 0.0) -> Steps:
    """The prompts of ``sequences``; of llama.cpp one, in pieces of ``batch.batch`` tokens, after ``past`` others."""
    tokens = int(batch.input_tokens)
    piece = min(int(batch.batch), tokens) if batch.runtime in ONE_SEQUENCE else tokens
    arithmetic = ENGINES[engine_of(batch)].arithmetic

    def parts(length: int, before: float) -> Parts:
        step = Step.of_prefill(sequences, length, before)
        return _parts(batch, split, step, arithmetic)

    whole, rest = divmod(tokens, piece)
    found = [(float(whole), parts(piece, past + (whole - 1) * piece / 2))]
    if rest:
        found.append((1.0, parts(rest, past + whole * piece)))
    return tuple(found)


class Engines:
    """Times of a prompt and of a token from a trained artefact."""

    def __init__(self, folder: Any = None) -> None:
        """Raises ArtefactError for an artefact without these habits."""
        section = artefacts.Artefact(folder or artefacts.shipped("generation")).manifest.get(SECTION)
        if not isinstance(section, dict):
            raise ArtefactError("the artefact has no habits of engines; run `perfpass train` again")
        try:
            self.habits = {name: Habits.from_dict(values) for name, values in section["habits"].items()}
            self.vector = float(section["vector"])
            self.measured = {
                name: {what: frozenset(values) for what, values in own.items()}
                for name, own in section["measured"].items()
            }
            self.spread = {name: Spread.from_dict(section["spread"][name]) for name in ("token", "prompt")}
            self.corpus = dict(section["corpus"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ArtefactError(
                f"the artefact's habits of engines cannot be read ({error}); run `perfpass train` again"
            ) from None

    @staticmethod
    @lru_cache(maxsize=1)
    def load() -> Engines:
        """The shipped one, read once per process."""
        return Engines()

    def answers(self, batch: Batch) -> bool:
        """Whether a batch is asked of this module: an engine that is always counted; llama.cpp, whose runs had prompts
        as long as answers, so that what is learned tells neither from the other; DeepSpeed on NVIDIA's boards.
        """
        if batch.runtime == "deepspeed":
            return batch.device.vendor == "NVIDIA"
        return batch.runtime in COUNTED or batch.runtime in ONE_SEQUENCE

    def habits_of(self, batch: Batch) -> Habits:
        """Those that a batch meets. A device without matrix units reaches more of its peak, which is lower."""
        found = self.named(engine_of(batch))
        peaks = batch.device.peak_flops
        if batch.runtime in ONE_SEQUENCE and unit_flops(peaks, "fp16") <= peaks.get("fp32", 0.0):
            found = replace(
                found, flops=max(found.flops, self.vector), packed_flops=max(found.packed_flops, self.vector)
            )
        return replace(found, **{name: value for s in self._stated(batch) for name, value in s.habits.items()})

    def _stated(self, batch: Batch) -> tuple[Stated, ...]:
        """What llama.cpp's developers state of a board without records of its own (`generation.stated`)."""
        name = engine_of(batch)
        if batch.runtime not in ONE_SEQUENCE or batch.device.id in self.measured.get(name, {}).get("devices", ()):
            return ()
        packed, mixture = is_packed(batch.precision), batch.model.is_mixture
        return stated(name.removeprefix(LLAMA_CPP), batch.device, packed=packed, mixture=mixture)

    def named(self, name: str) -> Habits:
        """Of an engine by its name in ENGINES, its own or of those that it is like."""
        return standing_in(name, self.habits)

    def lacks(self, batch: Batch, depth: float, *, prompt: bool = False) -> dict[str, np.ndarray | float]:
        """What is not known of a batch, by cause."""
        own = self.measured.get(engine_of(batch))
        known = own or {}
        packed = "packed" if is_packed(batch.precision) else "plain"
        told = any(s.of == ("prompts" if prompt else "tokens") for s in self._stated(batch))
        device = float(batch.device.id not in known.get("devices", ()))
        builds = float(batch.runtime in ONE_SEQUENCE)
        return {
            "measurement": 1.0,
            "builds": builds * (_STATED_BUILDS if told and prompt else 1.0),
            "model": float(batch.model.name not in known.get("models", ())),
            "device": device * (_STATED_DEVICE if told else 1.0),
            "laboratory": 1.0,
            "engine": float(own is None and not told),
            "stacked memory": float(own is None and batch.runtime in ONE_SEQUENCE and is_stacked(batch.device))
            * float(not any(s.of == "tokens" for s in self._stated(batch))),
            "file type": float(own is not None and packed not in known["files"]),
            "host": (1.0 if not batch.host_bandwidth_bytes_s else _STATED_HOST) * float(host_of(batch) != NOTHING),
            "prompts": float(prompt and not told and "prompt" not in known.get("kinds", ())),
            "depth": max(float(np.log2(depth / _measured_tokens(batch))), 0.0),
        }

    def predict(self, batch: Batch) -> Offline:
        """Times of one batch. Raises UnsupportedError for a time whose bounds say nothing."""
        habits, split = self.habits_of(batch), split_of(ENGINES[engine_of(batch)], batch.devices)
        inputs, outputs = int(batch.input_tokens), int(batch.output_tokens)
        # Where the cache of all sequences does not fit beside the weights, they run in waves.
        waves = max(float(overflow(batch, Sizes.of(batch))[0]), 1.0)
        together = batch.sequences / waves
        first = prompt(batch, split, together)
        each = ((1.0, token(batch, split, together, inputs + outputs / 2)),)
        prompt_s = self._interval("prompt", first, habits, self.lacks(batch, inputs, prompt=True))
        token_s = self._interval("token", each, habits, self.lacks(batch, inputs + outputs))
        if _may_loop(batch):
            # No release is stated: upper bounds are those of the slowest, as a plan of memory has them.
            slowest = self.predict(replace(batch, runtime_version=_LAST_OVER_ALL))
            assert slowest.prompt_s
            prompt_s = replace(prompt_s, high=max(prompt_s.high, slowest.prompt_s.high))
            if slowest.token_s:
                token_s = replace(token_s, high=max(token_s.high, slowest.token_s.high))
        whole = [waves * (p + outputs * t) for p, t in zip(_values(prompt_s), _values(token_s), strict=True)]
        latency = Interval(whole[0], whole[1], whole[2], "s")
        support = self._support(batch, latency)
        provenance = {"kind": "counted", "evidence": ENGINES[engine_of(batch)].shown, "corpus": self.corpus}
        provenance |= {"prompt": support.to_dict(), "token": support.to_dict()}
        found = costs_of(batch, latency, support, provenance)
        return replace(found, prompt_s=prompt_s, token_s=token_s if outputs > 1 else None)

    def _interval(self, kind: str, steps: Steps, habits: Habits, lacks: Mapping[str, np.ndarray | float]) -> Interval:
        floor = least(steps)
        median = max(seconds(steps, habits), floor)
        # What was not measured of long contexts makes them take longer, not less.
        low, high = self.spread[kind].bounds({**lacks, "depth": 0.0})[0], self.spread[kind].bounds(lacks)[1]
        return Interval(median, max(median * float(np.exp(low[0])), floor), median * float(np.exp(high[0])), "s")

    def _support(self, batch: Batch, latency: Interval) -> Support:
        name = engine_of(batch)
        engine = ENGINES[name]
        lacks = self.lacks(batch, batch.input_tokens + batch.output_tokens)
        reasons = [f"counted from weights, cache and FLOPs by the habits of {engine.shown}"]
        if lacks["engine"]:
            like = ", ".join(ENGINES[n].shown for n in engine.like if n in self.habits)
            reasons.append(f"no run of {engine.shown} to learn from: what {like or 'engines of its kind'} reach")
        elif lacks["device"]:
            reasons.append(f"no run of {engine.shown} on {batch.device.name} to learn from; other boards carry over")
        for by, of in sorted({(s.by, s.of) for s in self._stated(batch)}):
            reasons.append(f"{of} by figures of {by}")
        if lacks["file type"]:
            timed = "16-bit" if is_packed(batch.precision) else "packed"
            reasons.append(f"with {engine.shown}, {timed} weights alone were timed")
        if engine.kind == "eager":
            own = self.named(name).layer_s
            reasons.append(f"the host's time counts, {own * 1e3:.2f} ms a layer and step; another host differs")
        if (again := float(looped(batch, batch.sequences))) > 1.0:
            reasons.append(
                f"transformers {batch.runtime_version} runs a layer's experts one after another: "
                f"{again:.1f} times the host's time of eight (present releases in groups)"
            )
        elif _may_loop(batch):
            reasons.append(
                "a present release; up to 4.52 all experts of a layer are looped over, which the upper bounds hold "
                "(--runtime-version)"
            )
        host = host_of(batch)
        left = "nothing is left to the host"
        if host != NOTHING:
            stated = "stated" if batch.host_bandwidth_bytes_s else "assumed"
            parts = ((host.layers, "layers"), (host.experts, "experts"))
            shares = " and ".join(f"{share:.0%} of the {part}" for share, part in parts if share)
            left = f"{shares} are left to the host, whose memory is {stated} at {host.bandwidth_bytes_s / 1e9:.0f} GB/s"
        if batch.runtime in ONE_SEQUENCE:
            reasons.append(f"one sequence runs, its prompt in pieces of {batch.batch} tokens (-ub); {left}")
        elif host != NOTHING:
            reasons.append(left)
        said = width_words.reason("latency", latency, self.spread["token"], lacks, WORDS)
        level: SupportLevel = "outside" if lacks["device"] or lacks["engine"] or lacks["depth"] > 1 else "near"
        return Support(width_words.level_of(latency, level), (*reasons, *said))


def standing_in(name: str, known: Mapping[str, Habits]) -> Habits:
    """The habits of an engine, or the middle of those that it is like, of its kind, of all; host times of another."""
    if name in known:
        return known[name]
    engine = ENGINES[name]
    like = [known[n] for n in engine.like if n in known]
    like = like or [h for n, h in known.items() if ENGINES[n].kind == engine.kind] or list(known.values())
    found = middle(like)
    if engine.host_of not in known:
        return found
    host = known[engine.host_of]
    return replace(
        found, layer_s=host.layer_s, packed_s=host.packed_s, experts_s=host.experts_s, step_s=host.step_s,
        request_s=host.request_s, kernel_s=host.kernel_s,
    )  # fmt: skip


def middle(habits: list[Habits]) -> Habits:
    """The median of each habit."""
    return Habits(*(float(v) for v in np.median([astuple(h) for h in habits], axis=0)))


def _values(found: Interval) -> tuple[float, float, float]:
    return found.median, found.low, found.high
