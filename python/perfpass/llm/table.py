"""One row per run of a language model: model, workload and hardware as a table for trees.

Columns and groups after Panner Selvam and Brorsson, "Can Tree-Based Model Improve Performance Prediction for LLMs?"
(ARC-LG workshop, ISCA 2024), and what decoders need beyond them. Counts come from the configuration alone, but for
nodes and edges of the operator graph, which are missing (NaN) unless given.

Left out, and why: the type vocabulary (decoders have none); L1, and clock, memory, caches, cores and architecture of
the host: no public record says which host it ran on.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from perfpass.devices import Device
from perfpass.errors import ArgumentError
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.costs import ELEMENT_BYTES, Parallelism, Quantization, Step, listed, step_costs

VERSION = 1

# Column: what it is, with its unit. Groups are what an ablation takes away.
GROUPS: dict[str, dict[str, str]] = {
    "macs": {
        "total_macs": "multiply-accumulates of the prompt's forward pass, whole batch",
        "generation_macs": "the same of all decode steps (ours)",
    },
    "size": {
        "total_parameters": "all parameters",
        "total_memory_bytes": "weights, and keys and values at the last token",
    },
    "shape": {
        "total_nodes": "of the prompt's operator graph",
        "total_edges": "of the prompt's operator graph",
        "max_position_embeddings": "tokens",
        "hidden_layers": "layers",
        "attention_heads": "query heads",
        "hidden_size": "width",
        "vocabulary_size": "tokens",
        "kv_heads": "key-value heads (ours)",
        "cache_elements_per_token": "of all layers (ours)",
        "experts": "of a layer, 1 for a dense one (ours)",
        "active_experts": "per token (ours)",
    },
    "workload": {
        "batch_size": "sequences",
        "sequence_length": "prompt tokens",
        "output_tokens": "generated tokens of each sequence (ours)",
        "quantization_bits": "bits of a weight as stored, scales included",
        "devices": "that share the model (ours)",
    },
    "hardware": {
        "peak_fp32_gflop_s": "10^9 FLOP/s; of the catalogue",
        "peak_fp16_gflop_s": "10^9 FLOP/s of the matrix units (ours); of the catalogue",
        "peak_bandwidth_gb_s": "10^9 byte/s; of the catalogue",
        "memory_bytes": "of one device (ours); of the catalogue",
        "link_gb_s": "10^9 byte/s between devices, both directions (ours); of the catalogue",
        "compute_capability_major": "NVIDIA; of the catalogue",
        "compute_capability_minor": "NVIDIA; of the catalogue",
        "max_threads_per_block": "1024; CUDA C++ Programming Guide and HIP documentation, all of these boards",
        "max_threads_per_multiprocessor": "of the catalogue",
        "registers_per_block": "65,536 of 32 bits; CUDA C++ Programming Guide",
        "registers_per_multiprocessor": "of 32 bits; of the catalogue",
        "warp_size": "32; CUDA C++ Programming Guide; CDNA 64, CDNA architecture whitepapers",
        "shared_memory_per_block_bytes": "without opting in, 48 KiB; CUDA C++ Programming Guide",
        "shared_memory_per_multiprocessor_bytes": "of the catalogue",
        "shared_memory_opt_in_bytes": "per block; of the catalogue",
        "multiprocessors": "of the catalogue",
        "clock_ghz": "10^9 Hz at boost (ours); of the catalogue",
        "l2_bytes": "of the catalogue",
        "l3_bytes": "of the catalogue",
    },
}
COLUMNS: tuple[str, ...] = tuple(name for group in GROUPS.values() for name in group)
# What only a traced operator graph tells.
TRACED = ("total_nodes", "total_edges")


def columns_of(groups: Iterable[str]) -> list[int]:
    """Places in `COLUMNS` of all columns of these groups. Raises ArgumentError for an unknown group."""
    names: list[str] = []
    for group in groups:
        if group not in GROUPS:
            raise ArgumentError(f"unknown group {group!r}; allowed are {', '.join(GROUPS)}")
        names += GROUPS[group]
    return [COLUMNS.index(n) for n in names]


def row(
    model: LanguageModel,
    device: Device,
    *,
    batch: int,
    input_tokens: int,
    output_tokens: int,
    precision: str = "fp16",
    devices: int = 1,
    nodes: float = np.nan,
    edges: float = np.nan,
) -> np.ndarray:
    """[len(COLUMNS)] one run: ``batch`` prompts of ``input_tokens``, ``output_tokens`` generated for each."""
    if precision not in ELEMENT_BYTES:
        raise ArgumentError(f"precision {precision!r}; allowed are {listed(ELEMENT_BYTES)}")
    alone, plain = Parallelism.of(), Quantization()
    prompt = step_costs(model, alone, plain, Step.of_prefill(batch, input_tokens))
    token = step_costs(model, alone, plain, Step.of_decode(batch, input_tokens + output_tokens / 2))
    context = input_tokens + output_tokens
    mixture = next((layer.experts for _, layer in model.layers if layer.experts), None)
    values = {
        "total_macs": float(prompt.total("flops")) / 2,
        "generation_macs": float(token.total("flops")) / 2 * output_tokens,
        "total_parameters": model.parameters,
        "total_memory_bytes": model.parameters * ELEMENT_BYTES[precision] + 2 * model.cache_elements(context, batch),
        "total_nodes": nodes,
        "total_edges": edges,
        "max_position_embeddings": model.max_positions or np.nan,
        "hidden_layers": model.layer_count,
        "attention_heads": model.heads,
        "hidden_size": model.hidden,
        "vocabulary_size": model.vocabulary,
        "kv_heads": model.kv_heads,
        "cache_elements_per_token": model.cache_elements(1.0),
        "experts": mixture.count if mixture else 1,
        "active_experts": mixture.active if mixture else 1,
        "batch_size": batch,
        "sequence_length": input_tokens,
        "output_tokens": output_tokens,
        "quantization_bits": 8 * ELEMENT_BYTES[precision],
        "devices": devices,
        **_hardware(device, devices),
    }
    return np.array([values[name] for name in COLUMNS], dtype=np.float64)


def _hardware(device: Device, devices: int) -> dict[str, float]:
    major, minor = device.compute_capability or (np.nan, np.nan)
    cuda = device.compute_capability is not None
    threads = cuda or device.vendor == "AMD"
    return {
        "peak_fp32_gflop_s": device.peak_flops["fp32"] / 1e9,
        "peak_fp16_gflop_s": device.peak_flops.get("fp16", device.peak_flops["fp32"]) / 1e9,
        "peak_bandwidth_gb_s": device.memory_bandwidth_bytes_s / 1e9,
        "memory_bytes": device.memory_bytes,
        "link_gb_s": device.nvlink_bandwidth_bytes_s / 1e9 if device.link_bytes_s(devices) else 0.0,
        "compute_capability_major": major,
        "compute_capability_minor": minor,
        "max_threads_per_block": 1024 if threads else np.nan,
        "max_threads_per_multiprocessor": device.max_threads_per_sm or np.nan,
        "registers_per_block": 65536 if cuda else np.nan,
        "registers_per_multiprocessor": device.registers_per_sm or np.nan,
        "warp_size": 32 if cuda else 64 if device.architecture.startswith("cdna") else np.nan,
        "shared_memory_per_block_bytes": 49152 if cuda else np.nan,
        "shared_memory_per_multiprocessor_bytes": device.shared_memory_per_sm_bytes or np.nan,
        "shared_memory_opt_in_bytes": device.shared_memory_per_block_bytes or np.nan,
        "multiprocessors": device.sm_count,
        "clock_ghz": device.clock_hz / 1e9,
        "l2_bytes": device.l2_bytes or np.nan,
        "l3_bytes": device.l3_bytes,
    }
