"""Parts of a step as their measured kernels run in the engine's software.

What no kernel was measured of (latent attention's decode, states of recurrent layers, messages between experts and
between nodes, element-wise work) is counted, with the least time of a kernel added for each.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import numpy as np

from perfpass.devices import Device
from perfpass.llm.architecture import Attention, Experts, Layer
from perfpass.llm.costs import ELEMENT_BYTES, GGUF_BITS, ROUTING_SKEW, expected_share, peak_flops
from perfpass.predictors.kernels import network
from perfpass.predictors.kernels import predictor as kernels
from perfpass.predictors.step_time.overheads import RUNTIMES
from perfpass.predictors.step_time.setup import (
    ATTENDED,
    CHUNKS,
    COMPUTE,
    CONTEXT,
    DECODES,
    MEMORY,
    MEMORY_CACHE,
    MEMORY_EXPERTS,
    MESSAGE_S,
    REQUESTS,
    TOKENS,
    WIRE,
    Setup,
    hop_bytes_s,
    joined_gpus,
    messages_bytes_s,
    nodes_of,
)

# Precisions of the serving stacks by the kernels' names; of those of experts mxfp4 by whether the device has fp4.
_KERNELS = {
    **{name: name for name in ("bf16", "fp16", "fp8", "fp8_block", "int8", "int8_wo", "int4_wo", "fp32")},
    "nvfp4": "fp4",
    "fp8_wo": "int8_wo",
    "nvfp4_wo": "int4_wo",
    "mxfp4": "int4_wo",
}
# Collectives were measured inside a node of so many GPUs.
_NODE = 8
# The least time of a kernel inside a CUDA graph (`kernels.physics`), and of those that element-wise work of a layer
# needs after fusion: two norms, positions, the cache's write, the activation.
_KERNEL_S, _FUSED = 2e-6, 5
# Tokens of a request that tables go to, in doublings.
_LONGEST = 20
# Kernels of a recurrent layer beside its projections (`llm.costs`).
_RECURRENT = 6


class KernelParts:
    """Seconds of the parts of one deployment at the nodes of the tables."""

    def __init__(self, setup: Setup) -> None:
        self._s, self._kernels = setup, kernels.load()
        self._stack = setup.runtime if setup.runtime in RUNTIMES else RUNTIMES[0]
        self._version = setup.version if re.match(r"v?\d+\.\d+", setup.version) else None
        self._bandwidth = setup.device.memory_bandwidth_bytes_s
        self.reasons: dict[str, None] = {}
        self._alone: dict[Attention, np.ndarray] = {}

    def _seconds(self, operator: str, *sizes: Any, **how: Any) -> np.ndarray:
        """Seconds [N] of N kernels of ``operator``, a method of `KernelPredictor`, by its arguments."""
        columns = tuple(v.astype(np.float64).tobytes() if isinstance(v, np.ndarray) else v for v in sizes)
        version = {"stack": self._stack, "version": self._version}
        seconds, reasons = _measured(self._kernels, operator, self._s.device, columns, tuple((version | how).items()))
        self.reasons.update(dict.fromkeys(reasons))
        return seconds

    def _peak(self, precision: str) -> float:
        return peak_flops(self._s.device.peak_flops, precision)

    def _products(self, shapes: list[tuple[float, float, float, str]], nodes: np.ndarray) -> np.ndarray:
        """Seconds [nodes] of products [m, k] x [k, n] for every m of ``nodes``; shapes are (count, n, k, precision)."""
        out, sizes = np.zeros(len(nodes)), nodes[1:]
        for precision in dict.fromkeys(shape[3] for shape in shapes):
            alike: dict[tuple[float, float], float] = {}
            for count, n, k, other in shapes:
                if other == precision and n > 0 and k > 0:
                    key = (max(round(n), 1), max(round(k), 1))
                    alike[key] = alike.get(key, 0.0) + count
            if not alike:
                continue
            widths, depths = (np.repeat([key[i] for key in alike], len(sizes)) for i in (0, 1))
            rows = np.tile(sizes, len(alike))
            seconds = self._gemm(rows, widths.astype(float), depths.astype(float), precision)
            out[1:] += np.array(list(alike.values())) @ seconds.reshape(len(alike), len(sizes))
        return out

    def _gemm(self, m: np.ndarray, n: np.ndarray, k: np.ndarray, precision: str) -> np.ndarray:
        name = _KERNELS.get(precision)
        if name is None:
            self.reasons[f"no product in {precision} was measured: by its bytes"] = None
            flops = 2 * m * n * k / self._peak(precision) / COMPUTE
            moved = (n * k * ELEMENT_BYTES[precision] + 2 * m * (n + k)) / self._bandwidth / MEMORY
            return np.asarray(np.maximum(flops, moved) + _KERNEL_S)
        return self._seconds("gemm", m, n, k, name)

    def products(self) -> np.ndarray:
        """Dense products of all layers."""
        s = self._s
        shapes: list[tuple[float, float, float, str]] = []
        for count, layer in s.model.layers:
            shapes += [(count * n, wide, deep, precision) for n, wide, deep, precision in self._shapes(layer)]
        return self._products(shapes, TOKENS)

    def _shapes(self, layer: Layer) -> list[tuple[float, float, float, str]]:
        s, tensor = self._s, self._s.split.tensor
        hidden, gemm, plain = s.model.hidden, s.quantization.gemm, s.quantization.activations
        out: list[tuple[float, float, float, str]] = []
        if a := layer.attention:
            out += _projections(a, hidden, tensor, gemm)
        if layer.recurrence:
            inner = layer.recurrence.projections / hidden
            out += [(1, inner * 2 / 3 / tensor, hidden, gemm), (1, hidden, inner / 3 / tensor, gemm)]
        if layer.dense:
            width = layer.dense.width / tensor
            out += [(1, (layer.dense.matrices - 1) * width, hidden, gemm), (1, hidden, width, gemm)]
        if e := layer.experts:
            out.append((1, e.count, hidden, plain))
            if e.latent_projection:
                out += [(2, e.model_width, hidden, gemm)]
            if e.shared_width:
                width = e.shared_width / tensor
                out += [(1, (e.matrices - 1) * width, hidden, gemm), (1, hidden, width, gemm)]
        return out

    def experts(self) -> np.ndarray:
        """Routed experts, on the tokens of all attention-data ranks."""
        s, out = self._s, np.zeros(len(TOKENS))
        for count, layer in s.model.layers:
            if layer.experts:
                out[1:] += count * self._experts(layer.experts)
        return out

    def _experts(self, e: Experts) -> np.ndarray:
        s = self._s
        precision, tokens = s.quantization.moe, TOKENS[1:] * s.split.attention_data
        name = _KERNELS.get(precision)
        if precision == "mxfp4":
            name = "w4a8_mxfp4_mxfp8" if "fp4" in s.device.peak_flops else "w4a16_mxfp4"
        groups, ranks = min(s.split.expert, e.count), s.split.expert_tensor
        if name is None:
            local = e.count / groups
            touched = local * expected_share(e, tokens)
            elements = e.expert_elements / ranks
            flops = 2 * elements * tokens * e.active / groups / self._peak(precision) / COMPUTE
            moved = touched * elements * ELEMENT_BYTES[precision] / self._bandwidth / MEMORY_EXPERTS
            return np.asarray(np.maximum(flops, moved) + 5 * _KERNEL_S)
        return np.min(self._by_family(e, tokens, name, groups, ranks), axis=0)

    def _by_family(self, e: Experts, tokens: np.ndarray, name: str, groups: int, ranks: int) -> list[np.ndarray]:
        """Seconds by each family of kernels that the engine has for them: it takes the fastest."""
        s = self._s
        known = [x for x in self._kernels.model("moe").software if (x.runtime, x.precision) == (self._stack, name)]
        here = [x for x in known if x.device == s.device.id]
        families = {x.family for x in here or known if (x.family == "nongated") == (e.matrices == 2)}
        return [
            self._seconds(
                "moe", tokens, e.model_width, e.width, e.count, e.active, name, kernel=family,
                tensor_parallel=ranks, expert_parallel=groups, skew=ROUTING_SKEW,
            )
            for family in (*sorted(families),) or (None,)
        ]  # fmt: skip

    def elementwise(self) -> np.ndarray:
        """Norms, positions, activations between products."""
        s, layers = self._s, self._s.model.layer_count
        moved = 6 * s.model.hidden * s.quantization.activation_bytes * layers
        out = moved * TOKENS / self._bandwidth / MEMORY + layers * _FUSED * _KERNEL_S
        return np.where(TOKENS > 0, out, 0.0)

    def messages(self) -> np.ndarray:
        """All-reduces between tensor ranks, tokens to their experts and back, hops between pipeline stages."""
        s, split = self._s, self._s.split
        reduces: dict[tuple[int, float], float] = {}  # by GPUs and elements of a token
        row = s.quantization.activation_bytes
        sent = messages = 0.0
        for count, layer in s.model.layers:
            inner = [(split.tensor, float(s.model.hidden))] * bool(layer.attention or layer.recurrence)
            if e := layer.experts:
                if split.sends_tokens:
                    # Each token goes to at most `active` other groups, and comes back.
                    reached = min(e.active, split.expert) * (split.expert - 1) / split.expert
                    sent += count * 2.0 * e.model_width * row * reached
                    messages += 2.0 * count
                else:
                    inner.append((split.stage, float(e.model_width * split.attention_data)))
            elif layer.dense:
                inner.append((split.tensor, float(s.model.hidden)))
            for key in inner:
                reduces[key] = reduces.get(key, 0.0) + count
        hops = split.pipeline - 1
        messages += hops
        wire_s = sent / messages_bytes_s(s.device, split) + hops * s.model.hidden * row / hop_bytes_s(s.device, split)
        out = wire_s / WIRE * TOKENS + messages * MESSAGE_S
        for (gpus, elements), a_step in reduces.items():
            out[1:] += a_step * self._all_reduce(gpus, elements * TOKENS[1:])
        return np.where(TOKENS > 0, out, 0.0)

    def _all_reduce(self, gpus: int, elements: np.ndarray) -> np.ndarray:
        s = self._s
        if gpus == 1:
            return np.zeros(len(elements))
        linked = s.device.link_bytes_s(gpus) or s.device.pcie_bandwidth_bytes_s
        if linked and gpus > joined_gpus(s.device):
            nodes = nodes_of(s.device, gpus)
            return network.collective(self._kernels, s.device, "all_reduce", gpus, nodes, elements, "bf16").seconds
        if gpus > _NODE or not linked:
            moved = 2 * (gpus - 1) / gpus * elements * s.quantization.activation_bytes
            return np.asarray(moved / (messages_bytes_s(s.device, s.split) * WIRE) + MESSAGE_S)
        kernel = None if self._stack == "trtllm" else "graph"
        seconds = self._seconds("collective", "all_reduce", gpus, elements, "bf16", kernel=kernel)
        elsewhere = network.on_the_other_host(self._kernels, s.device, gpus, elements)
        if elsewhere is not None:
            return np.asarray(np.sqrt(seconds * elsewhere.seconds))
        return seconds

    def logits(self) -> np.ndarray:
        """The head, for each request whose next token is drawn."""
        s = self._s
        precision = s.quantization.gemm if s.quantization.gemm in GGUF_BITS else s.quantization.activations
        shape = (1.0, s.model.vocabulary / s.split.tensor, float(s.model.hidden), precision)
        return self._products([shape], REQUESTS)

    def states(self) -> np.ndarray:
        """States of recurrent layers, read and written once a step for each request."""
        s, out = self._s, np.zeros(len(REQUESTS))
        for count, layer in s.model.layers:
            if r := layer.recurrence:
                moved = 2 * r.state_bytes(s.quantization.activation_bytes) / s.split.tensor * REQUESTS[1:]
                out[1:] += count * (moved / self._bandwidth / MEMORY_CACHE + _RECURRENT * _KERNEL_S)
        return out

    def prompt_attention(self, a: Attention) -> np.ndarray:
        """[CHUNKS] of one layer: of one prompt by itself."""
        out = np.zeros(len(CHUNKS))
        out[1:] = self._one_prompt(a)
        return out + self._from_latent(a)

    def _one_prompt(self, a: Attention) -> np.ndarray:
        """[CHUNKS but 0] of one prompt by itself; asked for twice."""
        if a not in self._alone:
            self._alone[a] = self._prompts(np.ones(len(CHUNKS) - 1), CHUNKS[1:], a)
        return self._alone[a]

    def prefill_attention(self, a: Attention) -> np.ndarray:
        """[CHUNKS, ATTENDED] of one layer. Tokens that attend to others before their chunk count as their share of a
        whole prompt that attends to as many; a chunk by itself is a whole prompt.
        """
        tokens, total, cells = _cells(CHUNKS, ATTENDED)
        length = 2 * total / tokens - 1
        whole = self._prompts(np.maximum(tokens / length, 1.0), length, a)
        least = self._one_prompt(a)[np.searchsorted(CHUNKS[1:], tokens)]
        seconds = np.where(tokens < length, np.maximum(whole * np.minimum(tokens / length, 1.0), least), whole)
        return _filled(seconds, cells) + self._from_latent(a)[:, None]

    def _prompts(self, prompts: np.ndarray, length: np.ndarray, a: Attention) -> np.ndarray:
        """Seconds [N] of whole prompts, many at once."""
        tensor, q = self._s.split.tensor, self._s.quantization
        heads = max(a.heads / tensor, 1.0)
        if not a.top_k:
            kv_heads = heads if a.is_latent else max(a.kv_heads / tensor, 1.0)
            split = (heads, kv_heads, (a.head_dim + a.value_dim) / 2)
            return self._attention("attention_prefill", prompts, length, split, a)
        tokens = prompts * length
        pairs = 2 * heads * (2 * a.kv_rank + a.rope_dim if a.is_latent else a.head_dim + a.value_dim)
        flops = pairs * tokens * np.minimum(length / 2, a.top_k) + a.index_heads * a.index_dim * tokens * length
        return np.asarray(flops / self._peak(q.activations) / COMPUTE + 4 * _KERNEL_S)

    def _from_latent(self, a: Attention) -> np.ndarray:
        """[CHUNKS] of keys and values of every new token, from its latent."""
        if not a.is_latent or a.top_k:
            return np.zeros(len(CHUNKS))
        wide = a.heads * (a.head_dim - a.rope_dim + a.value_dim) / self._s.split.tensor
        return self._products([(1.0, wide, float(a.kv_rank), self._s.quantization.gemm)], CHUNKS)

    def decode_attention(self, a: Attention) -> np.ndarray:
        """[DECODES, CONTEXT] of one layer. Fewer decodes take no longer over as many cached tokens: engines share out a
        long sequence over the device, where some kernels that were timed with one sequence do not.
        """
        requests, total, cells = _cells(DECODES, CONTEXT)
        context = total / requests
        tensor, q = self._s.split.tensor, self._s.quantization
        heads, kv_bytes = max(a.heads / tensor, 1.0), ELEMENT_BYTES[q.kv_cache]
        if a.is_latent:
            seen = np.minimum(context, a.top_k) if a.top_k else context
            flops = 2 * heads * (2 * a.kv_rank + a.rope_dim) * requests * seen
            moved = a.cache_elements * kv_bytes * requests * seen
            seconds = np.maximum(flops / self._peak(q.activations) / COMPUTE, moved / self._bandwidth / MEMORY_CACHE)
            seconds = seconds + 2 * _KERNEL_S
        else:
            split = (heads, max(a.kv_heads / tensor, 1.0), (a.head_dim + a.value_dim) / 2)
            seconds = self._attention("attention_decode", requests, context, split, a)
        if a.top_k:
            flops = 2 * a.index_heads * a.index_dim * requests * context / self._peak(q.activations) / COMPUTE
            moved = a.index_dim * kv_bytes * requests * context / self._bandwidth / MEMORY_CACHE
            seconds = seconds + np.maximum(flops, moved) + 4 * _KERNEL_S
        out = _filled(seconds, cells)
        out[1:] = np.flip(np.minimum.accumulate(np.flip(out[1:], 0), axis=0), 0)
        if a.is_latent:  # queries into the latent, values out of it, instead of keys and values of every cached token
            inner, value = a.head_dim - a.rope_dim, a.value_dim
            absorbed = [(1.0, heads * a.kv_rank, float(d), q.activations) for d in (inner, value)]
            out += self._products(absorbed, DECODES)[:, None]
        return out

    def _attention(
        self, kind: str, batch: np.ndarray, tokens: np.ndarray, split: tuple[float, float, float], a: Attention
    ) -> np.ndarray:
        """Of a rank with its share of ``split``: heads, those of keys, and their width."""
        s = self._s
        plain = "fp16" if s.quantization.activations == "fp32" else "bf16"
        kv = "fp8" if ELEMENT_BYTES[s.quantization.kv_cache] <= 1 else plain
        return self._seconds(kind, batch, tokens, *split, plain, window=a.window or 0, kv_dtype=kv)


@lru_cache(maxsize=1024)
def _measured(
    predictor: kernels.KernelPredictor, operator: str, device: Device, sizes: tuple[Any, ...], how: tuple[Any, ...]
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Seconds [N], not to be written to, and what of them nothing near was measured of; ``sizes`` that are bytes are
    columns of float64. Deployments that differ in their stages or replicas alone ask for the same kernels.
    """
    columns = (np.frombuffer(v) if isinstance(v, bytes) else v for v in sizes)
    found = getattr(predictor, operator)(device, *columns, **dict(how))
    found.seconds.setflags(write=False)
    unseen = found.evidence in ("generation unseen", "outside", "device and software unseen")
    return found.seconds, found.support.reasons[:2] if unseen else ()


def _cells(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sizes [M] of the cells of a table in which each of the first has at least one of the second, and no more than
    2^20; and which those are, [first, second].
    """
    n, total = np.meshgrid(first, second, indexing="ij")
    cells = (n > 0) & (total >= n) & (total <= n * 2.0**_LONGEST)
    return n[cells], total[cells], cells


def _filled(seconds: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """A table from its cells; before the first of a row as that, beyond the last growing with the size."""
    out = np.zeros(cells.shape)
    out[cells] = seconds
    for row, inside in zip(out, cells, strict=True):
        if inside.any():
            first, last = np.flatnonzero(inside)[[0, -1]]
            row[:first] = row[first]
            row[last + 1 :] = row[last] * 2.0 ** np.arange(1, len(row) - last)
    return out


def _projections(a: Attention, hidden: int, tensor: int, gemm: str) -> list[tuple[float, float, float, str]]:
    """Products of a token's projections; those that latent attention does otherwise in decode are with its tables."""
    queries, values = a.heads * a.head_dim * (2 if a.gated else 1) / tensor, a.heads * a.value_dim / tensor
    out = [(1.0, float(hidden), values, gemm)]
    if a.is_latent:
        down = (a.q_rank or queries) + a.kv_rank + a.rope_dim  # the same for all ranks
        out.append((1.0, down, float(hidden), gemm))
        if a.q_rank:
            out.append((1.0, queries, float(a.q_rank), gemm))
    else:
        kv = 0 if a.borrows else a.kv_heads * (a.head_dim + (0 if a.keys_are_values else a.value_dim))
        own = max(kv / tensor, kv / a.kv_heads)
        out.append((1.0, queries + own, float(hidden), gemm))
    if a.top_k:
        out.append((1.0, float(a.index_dim + a.index_heads), float(hidden), gemm))
        out.append((1.0, float(a.index_heads * a.index_dim), float(a.q_rank or hidden), gemm))
    return out
