"""llama.cpp's server: slots that share one context, layers on the device, and the type of the cache.

Memory is counted as `perfpass fit` does for llama.cpp; times are those of one request, since no record has several.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perfpass.deploy.fit import DeviceFit, fit
from perfpass.deploy.tune.result import shell_lines
from perfpass.errors import ArgumentError, UnsupportedError
from perfpass.llm.architecture import LanguageModel
from perfpass.predictors.generation import predictor
from perfpass.text import columns, item, size

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.predictors.generation.prediction import Offline

# From the cache as it is to the smallest that llama.cpp quantizes keys and values to without the model's own help.
_CACHES = ("f16", "q8_0")
# More layers than any model has: all of them.
_ALL_LAYERS = 999


@dataclass(frozen=True)
class SlotFlag:
    """A flag, and what fits without it (as llama.cpp does by itself), None where it moves no memory."""

    name: str
    words: tuple[str, ...]
    without: DeviceFit | None


@dataclass(frozen=True)
class SlotTuning:
    """Settings of llama-server. ``slots`` of ``context`` tokens each, of ``wanted``; ``memory`` with all flags;
    ``times``: of one request alone, None with layers on the host, which no record has.
    """

    model: str
    device: Device
    wanted: int
    slots: int
    context: int
    memory: DeviceFit
    flags: tuple[SlotFlag, ...]
    times: Offline | None

    @property
    def command(self) -> list[str]:
        """The command line; the model's name stands for its file."""
        return ["llama-server", "-m", self.model, *(word for flag in self.flags for word in flag.words)]

    def to_dict(self) -> dict[str, Any]:
        """The proposal as strict JSON."""
        return {
            "schema_version": 1,
            "engine": "llama.cpp",
            "command": self.command,
            "slots": self.slots,
            "slots_wanted": self.wanted,
            "memory": self.memory.to_dict(),
            "flags": [
                {"name": f.name, "words": list(f.words), "without": f.without.to_dict() if f.without else None}
                for f in self.flags
            ],
            "one_request": self.times.to_dict() if self.times else None,
        }

    def __str__(self) -> str:
        needed = self.memory.needed
        lines = [
            f"{self.model} on {self.device.name}, llama.cpp, {self.slots} slots of {self.context:,} tokens"
            + ("" if self.slots == self.wanted else f" of {self.wanted} that were asked for"),
            shell_lines(self.command),
            f"  memory        {size(needed.median)}, {size(needed.low)} to {size(needed.high)} of "
            f"{size(self.memory.limit_bytes)}; it fits with a probability of {self.memory.probability or 0:.2f}",
        ]
        times = (("first token", self.times.prompt_s), ("token", self.times.token_s)) if self.times else ()
        for label, found in times:
            if found:
                low, median, high = (f"{1e3 * getattr(found, n):.4g}" for n in ("low", "median", "high"))
                lines.append(f"  {label:<13} {median} ms, {low} to {high} (90%), one request alone")
        rows = [["without the flag", "memory", "P(fits)"]]
        for flag in self.flags:
            if flag.without:
                fits = f"{flag.without.probability or 0:.2f}"
                rows.append([flag.name, size(flag.without.needed.median), fits])
        lines += [*columns(rows).splitlines(), "  several slots at once: no record tells how they slow each other down"]
        if self.times is None:
            lines.append("  no times: none were measured with layers on the host")
        else:
            lines.append(f"  support: {self.times.support.level}")
            lines += [item(reason) for reason in self.times.support.reasons]
        return "\n".join(lines)


def tune_slots(
    model: str | os.PathLike[str] | Mapping[str, Any] | LanguageModel,
    device: Device,
    *,
    input_length: int | None = None,
    output_length: int | None = None,
    concurrency: int | None = None,
    precision: str | None = None,
    confidence: float = 0.9,
) -> SlotTuning:
    """Flags of llama-server for as many requests at once as are asked (1).

    The cache stays as wide as activations where all slots fit with ``confidence``, else it is at 8 bits; where even
    then they do not, as many slots as fit; where not one fits, as many layers as do are on the device. Raises
    ArgumentError for a confidence that `fit` does not take, UnsupportedError where no layer fits.
    """
    batch, _ = predictor.assumed_batch(
        model,
        device,
        runtime="llama.cpp",
        tp=1,
        input_length=input_length,
        output_length=output_length,
        precision=precision,
    )
    wanted, context = 1 if concurrency is None else concurrency, batch.input_tokens + batch.output_tokens
    if wanted < 1:
        raise ArgumentError(f"concurrency must be at least 1, got {wanted}")

    def found(slots: int, kind: str, layers: int | None = None, of: int = context) -> DeviceFit:
        options: dict[str, Any] = {"kv_cache": kind, "gpu_layers": layers, "precision": precision}
        asked = fit(model, device, context=of, concurrency=slots, runtime="llama.cpp", confidence=confidence, **options)
        return asked.answers[0]

    slots, kind, layers = wanted, _CACHES[0], None
    memory = found(slots, kind)
    if memory.answer != "yes":
        kind = _CACHES[1]
        memory = found(slots, kind)
    if memory.answer != "yes" and (most := memory.largest.concurrency):
        slots = min(most, wanted)
        memory = found(slots, kind)
    if memory.answer != "yes":
        slots, layers = 1, _most_layers(lambda n: found(1, kind, n).answer == "yes", batch.model.layer_count)
        if not layers:
            raise UnsupportedError(f"{batch.model.name}: not one layer fits on {device.name} beside {context} tokens")
        memory = found(1, kind, layers)
    positions = batch.model.max_positions or context
    flags = [
        SlotFlag("layers on the device", ("-ngl", str(layers or _ALL_LAYERS)), found(slots, kind) if layers else None),
        SlotFlag("context (one, the model's own)", ("-c", str(slots * context)), found(1, kind, layers, positions)),
        SlotFlag("slots", ("-np", str(slots)), None),
    ]
    if kind != _CACHES[0]:
        words = ("-ctk", kind, "-ctv", kind, "-fa", "on")  # a quantized cache of values needs flash attention
        flags.append(SlotFlag("cache type", words, found(slots, _CACHES[0], layers)))
    times = None if layers else predictor.offline(batch)
    return SlotTuning(batch.model.name, device, wanted, slots, context, memory, tuple(flags), times)


def _most_layers(fits: Any, layers: int) -> int:
    """The largest number of layers that fits, 0 where none does; more layers need more."""
    low, high = 0, layers
    while low < high:
        middle = math.ceil((low + high) / 2)
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
