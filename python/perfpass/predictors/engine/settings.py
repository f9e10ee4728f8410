"""How each engine schedules: small tables of settings, with their sources."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from perfpass.devices import Device
from perfpass.errors import ArgumentError
from perfpass.llm.in_use import sglang_settings
from perfpass.llm.memory import VLLM_FIRST_UNTIL, VLLM_LARGE_BYTES, VLLM_SEQUENCES, VLLM_SEQUENCES_ON_LARGE
from perfpass.llm.serving import Serving
from perfpass.llm.versions import release
from perfpass.text import unknown

_MOST = 10_000_000
ROUTERS = ("round-robin", "least-loaded", "prefix")


@dataclass(frozen=True)
class EngineSettings:
    """How an engine forms its steps.

    ``max_batched_tokens``: tokens of one step, prompts and (where ``mixed``) one for each decode. ``max_sequences``:
    requests that hold cache at once. ``block_tokens``: of a block of the paged cache. ``mixed``: prompts and decodes
    share a step; otherwise prompts go first and decodes wait. ``chunked``: a prompt is split over steps; otherwise one
    that is longer than a step has a step by itself. ``reserved``: share of the tokens that running requests have still
    to write that a new one must leave free: 1 never preempts, 0 admits what fits now and preempts the newest when the
    cache is full; what was preempted is computed again. ``prefix_sharing``: full blocks of finished and running prompts
    are found again, the longest unused go first.
    """

    max_batched_tokens: int
    max_sequences: int
    block_tokens: int
    mixed: bool
    chunked: bool
    reserved: float
    prefix_sharing: bool = True

    def __post_init__(self) -> None:
        for name in ("max_batched_tokens", "max_sequences", "block_tokens"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST:
                raise ArgumentError(f"{name} must be a whole number from 1 to {_MOST:,}, got {value!r}")
        if not 0 <= self.reserved <= 1:
            raise ArgumentError(f"reserved must be a share from 0 to 1, got {self.reserved!r}")

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


# vLLM (vllm/engine/arg_utils.py of 0.10 to 0.12, API server on a board of 70 GiB or more that is no A100; scheduler of
# its second engine, vllm/v1/core/sched/scheduler.py): decodes first, then prompts in chunks; the newest is preempted.
_VLLM = EngineSettings(8192, VLLM_SEQUENCES_ON_LARGE, 16, mixed=True, chunked=True, reserved=0.0)
_VLLM_SMALL = replace(_VLLM, max_batched_tokens=2048, max_sequences=VLLM_SEQUENCES)
# vLLM's first engine, the default before 0.8 (vllm/core/scheduler.py of 0.5: whole prompts before decodes, in steps by
# themselves; chunks and prefix caching only when asked for).
_VLLM_FIRST = EngineSettings(8192, VLLM_SEQUENCES, 16, mixed=False, chunked=False, reserved=0.0, prefix_sharing=False)
# SGLang (python/sglang/srt/server_args.py, managers/schedule_policy.py, environ.py of 0.5): prompts before decodes
# (enable_mixed_chunk is off), pages of one token, room for 0.7 x 0.14 of what is still to come once its estimate has
# decayed; chunks by the board's memory.
_SGLANG = EngineSettings(8192, 4096, 1, mixed=False, chunked=True, reserved=0.098)
# TensorRT-LLM (llmapi/llm_args.py of 1.0: max_num_tokens, max_batch_size, KvCacheConfig.tokens_per_block,
# enable_chunked_prefill; GUARANTEED_NO_EVICT, "Useful Runtime Options"): what is started is never paused.
_TRTLLM = EngineSettings(8192, 2048, 32, mixed=True, chunked=False, reserved=1.0)
ENGINES: dict[str, EngineSettings] = {"vllm": _VLLM, "sglang": _SGLANG, "trtllm": _TRTLLM}


def engine_settings(
    runtime: str, memory_bytes: float = 80e9, *, a100: bool = False, version: str = ""
) -> EngineSettings:
    """What a runtime (of a ``version``, by default the newest) takes by itself on a board of ``memory_bytes``.

    Raises ArgumentError for a runtime that is none.
    """
    if runtime not in ENGINES:
        raise ArgumentError(f"{unknown('runtime', runtime, ENGINES)}: engines whose requests arrive")
    if runtime == "vllm" and release(version) < VLLM_FIRST_UNTIL:
        return _VLLM_FIRST
    if runtime == "vllm" and (memory_bytes < VLLM_LARGE_BYTES or a100):
        return _VLLM_SMALL
    if runtime == "sglang":
        return replace(_SGLANG, max_batched_tokens=sglang_settings(memory_bytes / 2**20)[0])
    return ENGINES[runtime]


def settings_of(device: Device, serving: Serving) -> EngineSettings:
    """What the engine of a deployment takes by itself. Raises ArgumentError as `engine_settings`."""
    a100 = device.id.startswith("a100")
    return engine_settings(serving.runtime, device.memory_bytes, a100=a100, version=serving.runtime_version)
