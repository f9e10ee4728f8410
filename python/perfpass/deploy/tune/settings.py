"""What an engine is told, its words for it, and what it takes by itself.

Sources: vLLM 0.33, engine/arg_utils.py; SGLang 0.5.23, srt/arg_groups; TensorRT-LLM, commands/serve.py; llama.cpp,
common/arg.cpp. tests/deploy/engine_flags.json holds their flags.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from perfpass.devices import Device
from perfpass.llm import Parallelism
from perfpass.llm.in_use import default_share, sglang_settings
from perfpass.llm.memory import UTILIZATION, VLLM_SEQUENCES_ON_LARGE, ServingMemory, vllm_sequences

_GIB = 2**30


@dataclass(frozen=True)
class Settings:
    """One replica of ``workers``. ``sequences``: requests that run at once on each rank of attention data;
    ``batched_tokens``: of a step; ``memory_share`` of a GPU that weights, cache, steps and runtime take together;
    ``kv``: precision of the cache.
    """

    sequences: int
    batched_tokens: int
    memory_share: float
    split: Parallelism
    workers: int
    kv: str

    @property
    def ranks(self) -> int:
        """Groups of GPUs that each hold requests of their own, over all replicas."""
        return self.workers * self.split.attention_data

    @property
    def graph_sequences(self) -> int:
        """Sequences of the largest step that is captured as a CUDA graph: engines capture multiples of 8."""
        return -(-self.sequences // 8) * 8


def defaults(engine: str, device: Device, split: Parallelism, workers: int, kv: str) -> Settings:
    """What an engine takes where it is told the split alone."""
    if engine == "vllm":  # EngineArgs.get_batch_defaults
        runs, share = vllm_sequences(device), default_share(engine, device, split.gpus)
        large = 16384 if device.memory_bytes >= 160 * _GIB else 8192
        return Settings(runs, large if runs == VLLM_SEQUENCES_ON_LARGE else 2048, share, split, workers, kv)
    if engine == "sglang":
        return Settings(2048, sglang_settings(device.memory_bytes / 2**20)[0], UTILIZATION, split, workers, kv)
    return Settings(2048, 8192, UTILIZATION, split, workers, kv)  # BuildConfig; KvCacheConfig


@dataclass(frozen=True)
class Flag:
    """One thing that is told. ``words``: of the command line, none where the engine is not told. ``field``: of
    Settings, which is set back to see what the flag brings.
    """

    name: str
    words: tuple[str, ...]
    field: str


def _share(value: float) -> str:
    """Two digits, rounded down: what does not fit ends the server."""
    return f"{math.floor(value * 100 + 1e-6) / 100:g}"


# What an engine calls tensor ranks, pipeline stages, ranks of attention data and expert groups. vLLM's expert groups
# are all GPUs of a stage; SGLang's and TensorRT-LLM's tensor ranks are.
_SPLIT = {
    "vllm": ("--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size", "--enable-expert-parallel"),
    "sglang": ("--tp-size", "--pp-size", "--attn-dp-size", "--ep-size"),
    "trtllm": ("--tp_size", "--pp_size", "", "--ep_size"),
}


def split_words(engine: str, split: Parallelism) -> tuple[str, ...]:
    """The flags by which ``engine`` is told how a replica is split."""
    tensor, pipeline, data, expert = _SPLIT[engine]
    words = [tensor, str(split.tensor if engine == "vllm" else split.stage)]
    if split.pipeline > 1:
        words += [pipeline, str(split.pipeline)]
    if split.attention_data > 1 and data:
        words += [data, str(split.attention_data)]
    if split.expert > 1:
        words += [expert] if engine == "vllm" else [expert, str(split.expert)]
    return tuple(words)


def vllm(s: Settings, memory: ServingMemory, context: int) -> list[Flag]:
    """Of `vllm serve`."""
    return [
        Flag("split", split_words("vllm", s.split), "split"),
        Flag("context", ("--max-model-len", str(context)), ""),
        Flag("sequences", ("--max-num-seqs", str(s.sequences)), "sequences"),
        Flag("batched tokens", ("--max-num-batched-tokens", str(s.batched_tokens)), "batched_tokens"),
        Flag("memory share", ("--gpu-memory-utilization", _share(s.memory_share)), "memory_share"),
        Flag("cache type", ("--kv-cache-dtype", "fp8" if s.kv == "fp8" else "auto"), "kv"),
        Flag("CUDA graphs", ("--max-cudagraph-capture-size", str(s.graph_sequences)), ""),
    ]


def sglang(s: Settings, memory: ServingMemory, context: int) -> list[Flag]:
    """Of `python -m sglang.launch_server`: --tp-size counts the GPUs of all attention groups, and the share of memory
    is that of weights and cache alone.
    """
    beside = (memory.workspace_bytes + memory.runtime_bytes) * s.memory_share / memory.usable_bytes
    return [
        Flag("split", split_words("sglang", s.split), "split"),
        Flag("context", ("--context-length", str(context)), ""),
        Flag("sequences", ("--max-running-requests", str(s.sequences * s.split.attention_data)), "sequences"),
        Flag("batched tokens", ("--chunked-prefill-size", str(s.batched_tokens)), "batched_tokens"),
        Flag("memory share", ("--mem-fraction-static", _share(s.memory_share - beside)), "memory_share"),
        Flag("cache type", ("--kv-cache-dtype", "fp8_e4m3" if s.kv == "fp8" else "auto"), "kv"),
        Flag("CUDA graphs", ("--cuda-graph-max-bs-decode", str(s.graph_sequences)), ""),
    ]


def trtllm(s: Settings, memory: ServingMemory, context: int) -> list[Flag]:
    """Of `trtllm-serve`: the share of memory is the cache's of what weights, steps and runtime leave. Cache type, CUDA
    graphs and data-parallel attention stand in a file of options (`--config`), not in flags.
    """
    beside = memory.weights_bytes + memory.workspace_bytes + memory.runtime_bytes
    whole = memory.usable_bytes / s.memory_share
    cache = (memory.usable_bytes - beside) / max(whole - beside, 1.0)
    return [
        Flag("split", split_words("trtllm", s.split), "split"),
        Flag("context", ("--max_seq_len", str(context)), ""),
        Flag("sequences", ("--max_batch_size", str(s.sequences)), "sequences"),
        Flag("batched tokens", ("--max_num_tokens", str(s.batched_tokens), "--enable_chunked_prefill"),
             "batched_tokens"),
        Flag("memory share", ("--kv_cache_free_gpu_memory_fraction", _share(max(cache, 0.01))), "memory_share"),
    ]  # fmt: skip


WORDS: dict[str, Callable[[Settings, ServingMemory, int], list[Flag]]] = {
    "vllm": vllm,
    "sglang": sglang,
    "trtllm": trtllm,
}
