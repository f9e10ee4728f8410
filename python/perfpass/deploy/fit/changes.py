"""What would make a language model fit, each tried by the same count: load, settings, cache, weights, split, offload,
devices. Every change stands alone; where none does, pairs of a quantization and a split are tried.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from perfpass.decision import Change
from perfpass.deploy.fit.need import Need, need
from perfpass.deploy.fit.result import Largest
from perfpass.deploy.fit.settings import SERVERS, Load, Settings, computed, stored
from perfpass.deploy.fit.subject import Subject
from perfpass.devices import Device
from perfpass.devices.larger import nearest
from perfpass.errors import ArgumentError, PerfPassError
from perfpass.llm.assumed import check_together, ranks_of
from perfpass.llm.costs import PRECISIONS, Parallelism, weight_bytes
from perfpass.llm.in_use import default_share
from perfpass.llm.memory import vllm_sequences
from perfpass.llm.serving import check_runtime, check_split, missing, usable
from perfpass.text import size

_GIB = 2.0**30
# Narrower formats in the order of their bytes, by what a runtime loads.
_SERVED = ("fp8", "int8_wo", "nvfp4", "awq")
_LADDERS: Mapping[str, tuple[str, ...]] = {
    "vllm": _SERVED,
    "sglang": _SERVED,
    "trtllm": _SERVED,
    "transformers": ("int8", "nf4", "nf4_double"),
    "llama.cpp": (
        *("q8_0", "q6_k", "q5_k_m", "q4_k_m", "iq4_xs", "q3_k_m", "iq3_xs", "q2_k", "iq2_m", "iq2_xxs", "iq1_s"),
    ),
}
_CACHES: Mapping[str, tuple[str, ...]] = {
    "vllm": ("fp8",),
    "sglang": ("fp8_e4m3",),
    "trtllm": ("fp8", "int8"),
    "llama.cpp": ("q8_0", "q4_0"),
    "transformers": (),
}
_UTILIZATIONS = (0.92, 0.95, 0.97)
_MOST_SEQUENCES = (256, 64, 16)  # of vLLM's --max-num-seqs
_STAGES = (2, 4, 8, 16)
_MOST_PRECISIONS = 2
_MOST_OFFLOADED = 0.95  # of the weights
_MOST = 1 << 24  # tokens or sequences that are ever asked


@dataclass(frozen=True)
class Ask:
    """One question: a model on a device, with its settings and load, and how sure the answer is to be."""

    subject: Subject
    device: Device
    settings: Settings
    load: Load
    confidence: float

    def with_(self, *, device: Device | None = None, load: Mapping[str, int] | None = None, **settings: Any) -> Ask:
        """The question with changes."""
        return replace(
            self,
            device=device or self.device,
            settings=replace(self.settings, **settings),
            load=replace(self.load, **(load or {})),
        )

    def need(self) -> Need:
        """Raises ArgumentError for settings that the model does not have."""
        return need(self.subject, self.device, self.settings, self.load)

    def holds(self) -> Need | None:
        """What it needs where it fits; None where it does not, or cannot be so."""
        try:
            found = self.need()
        except ArgumentError:
            return None
        return found if found.probability >= self.confidence else None


def largest(ask: Ask, positions: int) -> Largest:
    """The most sequences and the longest context that still fit; ``positions``: of the model, 0 where not stated."""

    def sequences(n: int) -> bool:
        return ask.with_(load={"sequences": n}).holds() is not None

    def context(n: int) -> bool:
        return ask.with_(load={"context": n}).holds() is not None

    return Largest(_most(sequences, ask.settings.max_sequences or 1_000_000), _most(context, positions or _MOST))


def _most(fits: Callable[[int], bool], limit: int) -> int | None:
    """The largest number up to ``limit`` that fits; None where 1 does not."""
    if not fits(1):
        return None
    if fits(limit):
        return limit
    low, high = 1, 2
    while high < limit and fits(high):
        low, high = high, 2 * high
    high = min(high, limit)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def changes(ask: Ask, positions: int) -> tuple[Change, ...]:
    """All that would do, the cheapest first."""
    found = [*_load(ask, positions), *_settings(ask), *_caches(ask), *_quantizations(ask)]
    found += [*_splits(ask), *_offloads(ask)]
    if not found:
        found += [*_pairs(ask)]
    return (*found, *_devices(ask))


def _change(kind: str, text: str, options: Mapping[str, Any], found: Need) -> Change:
    return Change(kind, text, options, found.probability, int(found.needed.median))


def _load(ask: Ask, positions: int) -> Iterator[Change]:
    most = largest(ask, positions)
    if most.context is not None and most.context < ask.load.context:
        short = most.context if most.context < 256 else most.context // 256 * 256
        if held := ask.with_(load={"context": short}).holds():
            yield _change("load", f"a context of {short:,} tokens", {"context": short}, held)
    few = most.concurrency
    if few is not None and few < ask.load.sequences and (held := ask.with_(load={"sequences": few}).holds()):
        yield _change("load", f"{few:,} at once", {"concurrency": few}, held)


_FLAGS = {"vllm": "--gpu-memory-utilization", "sglang": "--mem-fraction-static", "trtllm": "free_gpu_memory_fraction"}


def _settings(ask: Ask) -> Iterator[Change]:
    if ask.settings.runtime not in SERVERS:
        return
    now = ask.settings
    filled = now.utilization or default_share(now.runtime, ask.device, now.gpus, now.runtime_version)
    for share in _UTILIZATIONS:
        if filled < share and (held := ask.with_(utilization=share).holds()):
            yield _change("setting", f"{_FLAGS[ask.settings.runtime]} {share}", {"utilization": share}, held)
            break
    at_once = now.max_sequences or vllm_sequences(ask.device, now.runtime_version)
    for most in _MOST_SEQUENCES if now.runtime == "vllm" else ():
        if ask.load.sequences <= most < at_once and (held := ask.with_(max_sequences=most).holds()):
            yield _change("setting", f"--max-num-seqs {most}", {"max_sequences": most}, held)
            return


def _caches(ask: Ask) -> Iterator[Change]:
    for kind in _CACHES[ask.settings.runtime]:
        if ask.settings.kv_cache != kind and (held := ask.with_(kv_cache=kind).holds()):
            yield _change("cache", f"a cache in {kind}", {"kv_cache": kind}, held)
            return


def _narrower(ask: Ask) -> list[str]:
    """Formats that take fewer bytes than the one asked, the widest first."""
    language = ask.subject.language
    assert language is not None
    now = _bytes(ask)
    names = (_as_run(ask, name) for name in _LADDERS[ask.settings.runtime])
    return [name for name in names if name and _bytes(ask.with_(precision=name)) < 0.97 * now]


def _as_run(ask: Ask, precision: str) -> str:
    """The precision as the device runs it: where a server expands weights to 16 bits those of the weights alone; ""
    where it does not run (fp8 on a V100).
    """
    runtime = ask.settings.runtime
    if runtime not in SERVERS or precision not in PRECISIONS:
        return precision
    name = usable(ask.device, precision, runtime)
    return "" if any(missing(ask.device, part, runtime) for part in PRECISIONS[name]) else name


def _bytes(ask: Ask) -> float:
    language = ask.subject.language
    assert language is not None
    loaded = stored(language, ask.settings, ask.device)
    return weight_bytes(language, Parallelism(), loaded.quantization, sizes=loaded.sizes)


def _quantizations(ask: Ask) -> Iterator[Change]:
    told = 0
    for name in _narrower(ask):
        if held := ask.with_(precision=name).holds():
            shown = name.upper() if ask.settings.runtime == "llama.cpp" else name
            yield _change("quantization", f"weights in {shown}", {"precision": name}, held)
            told += 1
            if told == _MOST_PRECISIONS:
                return


def _splits(ask: Ask) -> Iterator[Change]:
    """More of the same device: tensor ranks where heads divide, stages of layers."""
    for tp, pp in _wider(ask):
        if held := ask.with_(tp=tp, pp=pp).holds():
            how = f"tensor parallelism {tp}" if pp == 1 else f"{pp} stages" + (f" of {tp} GPUs" if tp > 1 else "")
            if ask.settings.runtime not in SERVERS:
                how = "layers split over them"
            yield _change("split", f"{tp * pp} x {ask.device.id} ({how})", {"tp": tp, "pp": pp}, held)
            return


def _wider(ask: Ask) -> Iterator[tuple[int, int]]:
    """Splits over more devices than asked, the fewest first."""
    language, now = ask.subject.language, ask.settings.gpus
    assert language is not None
    if len(ranks_of(ask.device)) == 1:
        return
    possible = {(tp, 1) for tp in ranks_of(ask.device)} if ask.settings.runtime in SERVERS else set()
    most = max((tp for tp, _ in possible), default=1)
    possible |= {(tp, pp) for pp in _STAGES for tp in ({1, most} if ask.settings.runtime in SERVERS else {1})}
    for tp, pp in sorted(possible, key=lambda pair: (pair[0] * pair[1], pair[1])):
        if tp * pp <= now:
            continue
        try:
            check_split(language, tp, pp)
        except ArgumentError:
            continue
        yield tp, pp


def _offloads(ask: Ask) -> Iterator[Change]:
    if ask.settings.runtime == "llama.cpp":
        yield from _llama_cpp_offloads(ask)
    elif ask.settings.runtime == "vllm" and not ask.device.unified_memory:
        most = math.floor(_MOST_OFFLOADED * ask.need().weights / _GIB)
        fewest = range(1, most + 1)
        count = bisect.bisect_left(fewest, True, key=lambda gib: ask.with_(offload_gib=float(gib)).holds() is not None)
        if count < most and (held := ask.with_(offload_gib=float(fewest[count])).holds()):
            gib = fewest[count]
            text = f"--cpu-offload-gb {gib}: so much of the weights stays in the host's memory, and crosses PCIe"
            yield _change("offload", f"{text} each step", {"offload_gib": float(gib)}, held)


def _llama_cpp_offloads(ask: Ask) -> Iterator[Change]:
    language = ask.subject.language
    assert language is not None
    if ask.device.unified_memory:
        return
    layers = language.layer_count
    if language.is_mixture:
        hosted = next((n for n in range(1, layers + 1) if ask.with_(host_experts=n).holds()), None)
        if hosted is not None and (held := ask.with_(host_experts=hosted).holds()):
            host = size(held.host_bytes)
            text = f"--n-cpu-moe {hosted}: the experts of {hosted} of {layers} layers in {host} of host memory"
            yield _change("offload", text, {"host_experts": hosted}, held)

    def on_gpu(n: int) -> bool:
        return ask.with_(gpu_layers=n, host_experts=0).holds() is not None

    most = _most(on_gpu, layers)
    if most is not None and (held := ask.with_(gpu_layers=most, host_experts=0).holds()):
        text = (
            f"-ngl {most}: {most} of {layers} layers on the GPU, the others in {size(held.host_bytes)} of host memory"
        )
        yield _change("offload", text, {"gpu_layers": most}, held)


def _pairs(ask: Ask) -> Iterator[Change]:
    """A quantization and a split together, the fewest devices first."""
    narrower = _narrower(ask)
    for tp, pp in _wider(ask):
        for name in narrower:
            if held := ask.with_(tp=tp, pp=pp, precision=name).holds():
                text = f"weights in {name} on {tp * pp} x {ask.device.id}"
                yield _change("quantization", text, {"precision": name, "tp": tp, "pp": pp}, held)
                return


def runs_on(ask: Ask, other: Device) -> bool:
    """Whether its runtime runs it on another device, were there memory enough."""
    assert ask.subject.language is not None
    try:
        check_runtime(ask.settings.runtime, other)
        check_together(other, ask.settings.gpus)
        computed(ask.subject.language, other, ask.settings)
    except PerfPassError:
        return False
    return True


def held_by(ask: Ask, other: Device) -> Need | None:
    """What it needs of another device that holds it; None where that does not, or where its runtime does not run it."""
    return ask.with_(device=other).holds() if runs_on(ask, other) else None


def _devices(ask: Ask) -> Iterator[Change]:
    for other, held in nearest(ask.device, lambda one: held_by(ask, one)):
        each = f"{ask.settings.gpus} x " if ask.settings.gpus > 1 else ""
        yield _change("device", f"{each}{other.id} ({size(other.usable_bytes)})", {"device": other.id}, held)
