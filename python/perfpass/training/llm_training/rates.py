"""Records of step times and rates as questions: model, device, layout, recipe, and the step that was measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.devices import device as find_device
from perfpass.errors import ArgumentError
from perfpass.llm.architecture import Attention, LanguageModel, Layer, Mlp
from perfpass.llm.configuration import language_model
from perfpass.llm.recipe import Adapter, Kernels, Layout, Recipe
from perfpass.predictors.llm_training.step import BACKWARD_ATTENTION, Work, work
from perfpass.training.llm_training import questions

if TYPE_CHECKING:
    import pandas

    from perfpass.devices import Device

# Layers, hidden, heads of MPT models (llm-foundry's scripts/train/yamls/pretrain).
_MPT = {
    "mpt-125m": (12, 768, 12),
    "mpt-350m": (24, 1024, 16),
    "mpt-760m": (24, 1536, 12),
    "mpt-1b": (24, 2048, 16),
    "mpt-3b": (32, 2560, 20),
    "mpt-7b": (32, 4096, 32),
    "mpt-13b": (40, 5120, 40),
    "mpt-30b": (48, 7168, 56),
    "mpt-70b": (80, 8192, 64),
}
# Network between hosts, bytes/s of one direction for a device, as the sources state it: 4 x 100 Gb/s a host of 8
# (InternEvo's page, Jean Zay's Omni-Path), 1,600 Gb/s a host (llm-foundry's A100 sections).
_FABRIC = {"internevo": 6.25e9, "bigscience": 6.25e9}
_FOUNDRY_A100 = 25e9
_LEAST_HIDDEN = 4096  # of Megatron-LM's tests: the others wait for the host
# Laboratories whose attention is older than the second FlashAttention, and how much longer it takes on an A100 forward
# and backward (arXiv:2307.08691, section 4.1). llm-foundry's benchmarks take the first in Triton (`--attn_impl triton`
# of submit_benchmarks.py, in PyTorch 2.0.1 by sweep.sh): 1.3 to 1.5 times and some 2 times. InternLM's table is of
# 2023, when its framework had flash-attn 1.0.5 (doc/en/install.md; 2.2.1 from InternEvo's pull request 31 of January
# 2024 on): some 2 times.
_OVER_FLASH_2 = {"llm-foundry": (1.4, 2.0), "internevo": (2.0, 2.0)}
_PRODUCTS = {"fp8": "fp8", "mxfp8": "fp8", "nvfp4": "nvfp4", "amp_fp8": "fp8"}


@dataclass(frozen=True)
class Timed:
    """What was timed; ``laboratory`` is left out whole, ``seconds`` of one step by the record."""

    model: LanguageModel
    device: Device
    layout: Layout
    recipe: Recipe
    product_precision: str
    fabric: float
    seconds: float
    laboratory: str

    @property
    def work(self) -> Work:
        """What each device does in the step. Raises ArgumentError, DeviceError."""
        older = _OVER_FLASH_2.get(self.laboratory)
        found = work(
            self.model,
            self.device,
            self.layout,
            self.recipe,
            product_precision=self.product_precision,
            fabric=self.fabric,
            flash_2=older is not None,
        )
        if older is None:
            return found
        forward, backward = older
        both = (forward + BACKWARD_ATTENTION * backward) / (1 + BACKWARD_ATTENTION)
        return replace(found, attention=found.attention * both, attended_anew=found.attended_anew * forward / both)


def stacked(rows: Sequence[Timed]) -> Work:
    """The work of [N] steps, as arrays."""
    found = [row.work for row in rows]
    return Work(**{f.name: np.array([getattr(one, f.name) for one in found], dtype=float) for f in fields(Work)})


def asked(rows: pandas.DataFrame) -> tuple[list[Timed | None], list[str]]:
    """A question for each row, or None and why."""

    def counted(row: Any) -> Timed:
        found = _timed(row)
        _ = found.work
        return found

    return questions.each(rows, counted)


def _timed(row: Any) -> Timed:
    if not row.listed:
        raise ArgumentError("the device is not in the catalogue")
    device = find_device(row.device)
    if row.source == "tpu_training" or device.vendor != "NVIDIA":
        raise ArgumentError("TPUs: no record of their own chips' layouts")
    if row.source in ("megatron_bridge", "nemo"):
        model, layout, recipe = _tuned(row)
    elif row.source == "training_pages":
        model, layout, recipe = _foundry(row) if row.variant.startswith("llm-foundry") else _tuned(row)
    else:
        found = questions.question(row)
        if row.source == "megatron_lm" and found.model.hidden < _LEAST_HIDDEN:
            raise ArgumentError("a small model that waits for its host")
        model, layout, recipe = found.model, found.layout, found.recipe
    fabric = _FABRIC.get(row.source, 0.0)
    if "llm-foundry" in row.variant and "a100" in device.id:
        fabric = _FOUNDRY_A100
    tokens = recipe.micro_batch * recipe.sequence * recipe.micro_batches * layout.data
    seconds = row.latency_ms / 1e3 if np.isfinite(row.latency_ms) else tokens / row.throughput_per_s
    laboratory = "llm-foundry" if "llm-foundry" in row.variant else row.source
    if laboratory in ("nemo", "megatron_bridge", "training_pages"):
        laboratory = "nvidia"  # one laboratory's recipes, on three pages
    if not np.isfinite(seconds) or seconds <= 0:
        raise ArgumentError("no time of a step")
    return Timed(model, device, layout, recipe, _PRODUCTS.get(row.precision, ""), fabric, seconds, laboratory)


def _tuned(row: Any) -> tuple[LanguageModel, Layout, Recipe]:
    if not row.network:
        raise ArgumentError("no definition of the model")
    if row.tensor < 1 or row.pipeline < 1 or row.batch < 1:
        raise ArgumentError("no layout stated")
    ranks = int(row.tensor * row.pipeline * max(row.context, 1))
    layout = Layout(
        tensor=int(row.tensor),
        pipeline=int(row.pipeline),
        virtual=max(int(row.virtual), 1) if row.pipeline > 1 else 1,
        context=max(int(row.context), 1),
        expert=max(int(row.expert), 1),
        expert_tensor=1 if row.expert > 1 else 0,
        data=max(int(row.n_devices) // ranks, 1),
        sharding=row.sharding or "zero1",
        sharding_group=max(int(row.sharding_group), 0),
        sequence_parallel=row.tensor > 1,
    )
    micro = max(int(row.micro_batch), 1)
    # Fine-tuning recipes of NVIDIA's pages: rank 8 on queries, keys, values and outputs.
    adapter = Adapter(8, ("query", "key", "value", "output")) if row.task == "lora" else None
    recipe = Recipe(
        micro,
        int(row.sequence),
        max(1, int(row.batch) // (micro * layout.data)),
        precision="bf16" if row.precision == "bf16" else "fp8",
        adapter=adapter,
    )
    return language_model(row.network), layout, recipe


def _foundry(row: Any) -> tuple[LanguageModel, Layout, Recipe]:
    layers, hidden, heads = _MPT[row.model.lower()]
    attention = Attention(heads, heads, hidden // heads, hidden // heads)
    layer = Layer(attention, dense=Mlp(4 * hidden, 2), norms=2 * hidden)
    model = LanguageModel(row.model, "mpt", hidden, 50_368, ((layers, layer),), tied=True)
    layout = Layout(data=int(row.n_devices), sharding=row.sharding)
    steps = max(1, int(row.batch) // (int(row.micro_batch) * int(row.n_devices)))
    recipe = Recipe(int(row.micro_batch), int(row.sequence), steps, precision="bf16", recompute=row.recompute)
    return model, layout, dataclasses.replace(recipe, kernels=Kernels())
