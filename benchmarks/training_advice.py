"""Advice on training checked by running it: what each change takes of memory and time, predicted and on this CPU.

    python benchmarks/training_advice.py [OUT.json [MODEL ...]]      # some ten minutes of one core for all

Five small models of transformers and torchvision, each trained as it is (AdamW, fp32) and with one change. Memory: the
most that is alive in a step, of the CPU's allocator as PyTorch's profiler sees it; predicted by the recorded step
(`perfpass.importers.torch_memory`), of decoders also as `perfpass train-cost` counts. Time: of the processor, the least
of interleaved steps; predicted from the phases of `perfpass.predict`, with the blocks' share of the forward pass once
more where it is computed anew. Changes are of the whole step, relative to the model as it is.
"""

from __future__ import annotations

import copy
import json
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))

import numpy as np
import torch
import transformers
from torch.utils.checkpoint import checkpoint

import perfpass
from perfpass.graph import costs
from perfpass.importers import torchvision_schemas
from perfpass.importers.torch_allocations import allocations
from perfpass.importers.torch_memory import record
from perfpass.llm.configuration import language_model
from perfpass.llm.families import composes_norms
from perfpass.llm.recipe import Adapter, Kernels, Layout, Recipe
from perfpass.llm.training import training_memory

BATCH, TOKENS, VOCABULARY = 8, 128, 2048
STEPS = 7
ENDS = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0, "use_cache": False}
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adamw": lambda p: torch.optim.AdamW(p, 1e-4, foreach=True),
    "sgd": lambda p: torch.optim.SGD(p, 1e-4, foreach=True),
}


class Classifier(torch.nn.Module):
    """A network whose stages may be checkpointed, with its loss."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network, self.stages = network, ("layer1", "layer2", "layer3", "layer4")
        self.checkpointed = False

    def gradient_checkpointing_enable(self, _: Any) -> None:
        self.checkpointed = True

    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        n = self.network
        x = n.maxpool(n.relu(n.bn1(n.conv1(pixel_values))))
        for name in self.stages:
            for block in getattr(n, name):
                x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        logits = n.fc(torch.flatten(n.avgpool(x), 1))
        if labels is None:
            return logits
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


def models() -> dict[str, tuple[Callable[[], torch.nn.Module], dict[str, tuple[tuple[int, ...], str]], list[str]]]:
    """A module, its inputs without the batch, and what adapters stand beside."""
    torchvision_schemas.define()
    import torchvision

    ids = {"input_ids": ((TOKENS,), "int64")}
    pixels = {"pixel_values": ((3, 96, 96), "float32")}
    t = transformers
    drop = dict.fromkeys(("attn_pdrop", "resid_pdrop", "embd_pdrop"), 0.0)
    gpt2 = t.GPT2Config(
        n_embd=256, n_layer=4, n_head=4, vocab_size=VOCABULARY, n_positions=TOKENS, **drop, **ENDS,
        activation_function="gelu_pytorch_tanh",
    )  # fmt: skip
    llama = t.LlamaConfig(
        hidden_size=256, intermediate_size=768, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=VOCABULARY, **ENDS,
    )  # fmt: skip
    vit = t.ViTConfig(
        hidden_size=192, intermediate_size=768, num_hidden_layers=6, num_attention_heads=3, image_size=96, patch_size=8,
        num_labels=100,
    )  # fmt: skip
    t5 = t.T5Config(
        d_model=256, d_kv=64, d_ff=1024, num_layers=3, num_heads=4, vocab_size=VOCABULARY, dropout_rate=0.0,
        decoder_start_token_id=0, **ENDS,
    )  # fmt: skip
    return {
        "GPT-2": (lambda: t.GPT2LMHeadModel(gpt2), ids, ["c_attn"]),
        "Llama": (lambda: t.LlamaForCausalLM(llama), ids, ["q_proj", "v_proj"]),
        "ViT": (lambda: t.ViTForImageClassification(vit), pixels, ["q_proj", "v_proj", "query", "value"]),
        "ResNet-18": (lambda: Classifier(torchvision.models.resnet18(num_classes=100)), pixels, ["conv1", "conv2"]),
        "T5": (lambda: t.T5ForConditionalGeneration(t5), ids | {"decoder_input_ids": ids["input_ids"]}, ["q", "v"]),
    }


CHANGES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "recompute full": {"recompute": True},
    "micro-batches of 2": {"accumulate": 4},
    "SGD": {"optimizer": "sgd"},
    "LoRA": {"lora": True},
    "16 bits throughout": {"dtype": torch.bfloat16},
}


def changed(make: Callable[[], torch.nn.Module], targets: list[str], change: dict[str, Any]) -> torch.nn.Module:
    """A module with the change."""
    module = make()
    if change.get("lora"):
        import peft

        module = peft.get_peft_model(module, peft.LoraConfig(r=8, target_modules=targets))
    if change.get("recompute"):
        inner = module.get_base_model() if change.get("lora") else module
        inner.gradient_checkpointing_enable({"use_reentrant": False})
        if change.get("lora") and hasattr(inner, "enable_input_require_grads"):
            inner.enable_input_require_grads()
    return module.to(change.get("dtype", torch.float32)).train()


def on_meta(module: Any) -> torch.nn.Module:
    """Without data; tables that several modules share stay one, which `Module.to` leaves as many."""
    module = module.to("meta")
    inner = module.get_base_model() if hasattr(module, "get_base_model") else module
    if hasattr(inner, "tie_weights"):
        inner.tie_weights()
    return module


def inputs(shapes: dict[str, Any], batch: int, dtype: torch.dtype, *, real: bool) -> dict[str, torch.Tensor]:
    """A batch with its labels: of numbers, or without."""
    found = {}
    for name, (shape, kind) in shapes.items():
        whole = (batch, *shape)
        if kind == "int64":
            found[name] = torch.randint(0, 100, whole) if real else torch.empty(whole, dtype=torch.int64)
        else:
            found[name] = (torch.rand(whole) if real else torch.empty(whole)).to(dtype)
    labels = (batch, TOKENS) if "input_ids" in shapes else (batch,)
    return found | {"labels": torch.randint(0, 100, labels) if real else torch.empty(labels, dtype=torch.int64)}


def predicted_bytes(module: torch.nn.Module, shapes: dict[str, Any], change: dict[str, Any]) -> int:
    """The most that is alive, of a step recorded without data."""
    pieces = change.get("accumulate", 1)
    dtype = change.get("dtype", torch.float32)
    made = record(
        on_meta(module),
        lambda: inputs(shapes, BATCH // pieces, dtype, real=False),
        precision="bf16" if dtype == torch.bfloat16 else "fp32",
        optimizer=change.get("optimizer", "adamw"),
        loss=lambda out: out["loss"],
        zero_grad="never" if pieces > 1 else "none",
        loop=False,
    )
    return int(made.events.live_by_use().sum(axis=1).max())


def counted_bytes(module: Any, change: dict[str, Any]) -> float:
    """What `perfpass train-cost` counts, of a decoder."""
    model = language_model(module.config.to_dict())
    kernels = Kernels(fused_norms=not composes_norms(model.model_type), fused_gates=False)
    pieces = change.get("accumulate", 1)
    # GPT-2's queries, keys and values are one matrix, which an adapter reads once.
    adapter = Adapter(8, ("query", "value"), single=True) if change.get("lora") else None
    recipe = Recipe(
        BATCH // pieces,
        TOKENS,
        pieces,
        precision="bf16_true" if "dtype" in change else "fp32",
        optimizer=change.get("optimizer", "adamw"),
        recompute="full" if change.get("recompute") else "none",
        kernels=kernels,
        loss="eager",
        adapter=adapter,
        foreach=True,
        gradient_buffers=False,
    )
    return training_memory(model, Layout(), recipe).peak_bytes


def in_blocks(module: torch.nn.Module, shapes: dict[str, Any]) -> float:
    """Of the forward pass' multiply-adds, those in numbered blocks, which are checkpointed; the rest is ends."""
    graph = perfpass.load(module, input_shape=shapes, batch=BATCH)
    macs = costs.count(graph).macs
    inside = [bool(re.search(r"\.\d+\.", graph.label(node))) for node in range(graph.node_count)]
    return float(macs[np.array(inside)].sum() / macs.sum())


def predicted_ms(module: torch.nn.Module, shapes: dict[str, Any], change: dict[str, Any]) -> float:
    """The step by its phases: what is checkpointed runs forward once more, micro-batches run one by one."""
    pieces = change.get("accumulate", 1)
    found = perfpass.predict(
        module, "cpu", input_shape=shapes, batch=BATCH // pieces, mode="training",
        optimizer=change.get("optimizer", "adamw"), calibration=False,
    )  # fmt: skip
    phases = found.breakdown["phase_ms"]
    again = in_blocks(module, shapes) if change.get("recompute") else 0.0
    passes = phases["forward"] * (1 + again) + phases["backward"]
    share = found.latency_ms.median / sum(phases.values())
    return share * (pieces * passes + phases["optimizer"])


def stepper(module: torch.nn.Module, shapes: dict[str, Any], change: dict[str, Any]) -> Callable[[], None]:
    """A real step."""
    pieces = change.get("accumulate", 1)
    update = OPTIMIZERS[change.get("optimizer", "adamw")]([p for p in module.parameters() if p.requires_grad])
    batches = [inputs(shapes, BATCH // pieces, change.get("dtype", torch.float32), real=True) for _ in range(pieces)]

    def step() -> None:
        update.zero_grad()
        for batch in batches:
            out = module(**batch)
            (out["loss"] / pieces).backward()
            del out
        update.step()

    return step


def measured(name: str, parts: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
    """All changes of one model, their steps taken in turn."""
    make, shapes, targets = parts
    running = {}
    for words, change in CHANGES.items():
        torch.manual_seed(0)
        module = changed(make, targets, change)
        running[words] = (module, change, stepper(module, shapes, change))
    peaks, seconds = {}, {words: [] for words in running}
    for words, (module, change, step) in running.items():
        states = 2 if change.get("optimizer", "adamw") == "adamw" else 0
        trained = sum(p.numel() * p.element_size() for p in module.parameters() if p.requires_grad)
        step()
        step()
        gradients = sum(p.grad.numel() * p.grad.element_size() for p in module.parameters() if p.grad is not None)
        module.zero_grad()
        stays = sum(t.numel() * t.element_size() for t in (*module.parameters(), *module.buffers()))
        peaks[words] = stays + states * trained + allocations(step).peak_bytes
        assert gradients == trained
    for _ in range(STEPS):
        for words, (_, _, step) in running.items():
            before = time.process_time()
            step()
            seconds[words].append(time.process_time() - before)
    for words, (_, change, _) in running.items():
        fresh = changed(make, targets, change)
        counted = counted_bytes(fresh.get_base_model() if change.get("lora") else fresh, change) if name in (
            "GPT-2", "Llama"
        ) else None  # fmt: skip
        plain = on_meta(copy.deepcopy(fresh))
        timed = None if "dtype" in change else predicted_ms(plain, shapes, change)
        yield {
            "model": name,
            "change": words,
            "measured_bytes": peaks[words],
            "recorded_bytes": predicted_bytes(fresh, shapes, change),
            "counted_bytes": counted,
            "measured_ms": 1e3 * min(seconds[words]),
            "predicted_ms": timed,
        }


def main() -> None:
    """Prints the table, and writes it where a file is named."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    known = models()
    for name in sys.argv[2:] or known:
        for row in measured(name, known[name]):
            rows.append(row)
            first = next(one for one in rows if one["model"] == name)

            def change(what: str, row: dict[str, Any] = row, first: dict[str, Any] = first) -> str:
                return "" if row[what] is None else f"{100 * (row[what] / first[what] - 1):+.0f}"

            cells = (change(f"{what}") for what in ("measured_bytes", "recorded_bytes", "counted_bytes"))
            times = (change(what) for what in ("measured_ms", "predicted_ms"))
            print(f"{name:10s} {row['change']:22s}" + "".join(f"{c:>8s}" for c in (*cells, *times)), flush=True)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(json.dumps({"torch": torch.__version__, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
