"""Advice on training checked by running it: what each change takes of memory and time, predicted and on this CPU.

    python benchmarks/training_advice.py --json benchmarks/results/training_advice.json   # some ten minutes of one core

Five small models of transformers and torchvision, each trained as it is (AdamW, fp32) and with one change: all that
`perfpass train-cost --advise` tells of them on one core of this CPU, plain SGD and LoRA beside. Memory: the most that
is alive in a step, of the CPU's allocator as PyTorch's profiler sees it; of decoders also as a language model's
`train-cost` counts, which answers for GPUs alone. Time: of the processor; steps are taken in turn, and what counts is
the median of the rounds' ratios to the model as it is. Sharding and offloading are no advice for one CPU: bytes of
ranks are held against PyTorch's own in the tests (`tests/traced_processes.py`), their time against nothing.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
import transformers
from report import publish
from torch.utils.checkpoint import checkpoint

import perfpass
from perfpass.deploy.train_network import NetworkTrainCost
from perfpass.deploy.train_network_advice import train_network_advice
from perfpass.devices import Device
from perfpass.importers import torchvision_schemas
from perfpass.importers.torch_allocations import allocations
from perfpass.llm.configuration import language_model
from perfpass.llm.families import composes_norms
from perfpass.llm.recipe import Adapter, Kernels, Layout, Recipe
from perfpass.llm.training import training_memory

BATCH, TOKENS, VOCABULARY = 8, 128, 2048
ROUNDS, FIRST = 9, 2
# Less than this of the time is no change.
NONE = 0.05
ENDS = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0, "use_cache": False}
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adamw": lambda p: torch.optim.AdamW(p, 1e-4),
    "sgd": lambda p: torch.optim.SGD(p, 1e-4),
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


@dataclass(frozen=True)
class Change:
    """One change: what to ask for, and what is then predicted; ``lora``: adapters beside frozen weights."""

    words: str
    asked: dict[str, Any]
    found: NetworkTrainCost
    lora: bool = False
    low: float = 0.0
    high: float = 0.0


def one_core() -> Device:
    """One of this CPU's: what the steps below run on."""
    host = perfpass.device("cpu")
    peaks = {name: rate / host.sm_count for name, rate in host.peak_flops.items()}
    return replace(host, peak_flops=peaks, l2_bytes=host.l2_bytes // host.sm_count, sm_count=1)


def changes(make: Callable[[], torch.nn.Module], shapes: dict[str, Any], targets: list[str]) -> list[Change]:
    """The model as it is, what is advised, and what is beside."""
    core = one_core()
    how = {"micro_batch": BATCH, "optimizer": "adamw", "input_shape": shapes, "calibration": False}
    advice = train_network_advice(make().train(), core, **how)
    found = [Change("as it is", {}, advice.asked)]
    found += [Change(one.words, one.changes, one.found, low=one.time_low, high=one.time_high) for one in advice.changes]
    sgd = perfpass.train_network_cost(make().train(), core, **how | {"optimizer": "sgd"})
    adapted = perfpass.train_network_cost(changed(make, targets, Change("", {}, sgd, lora=True)), core, **how)
    return [*found, Change("SGD", {"optimizer": "sgd"}, sgd), Change("LoRA", {}, adapted, lora=True)]


def changed(make: Callable[[], torch.nn.Module], targets: list[str], change: Change) -> torch.nn.Module:
    """A module with the change."""
    module = make()
    if change.lora:
        import peft

        module = peft.get_peft_model(module, peft.LoraConfig(r=8, target_modules=targets))
    if change.asked.get("recompute") == "full":
        module.gradient_checkpointing_enable({"use_reentrant": False})
    return module.to(torch.bfloat16 if change.asked.get("precision") == "bf16" else torch.float32).train()


def inputs(shapes: dict[str, Any], batch: int, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """A batch with its labels."""
    found = {}
    for name, (shape, kind) in shapes.items():
        whole = (batch, *shape)
        found[name] = torch.randint(0, 100, whole) if kind == "int64" else torch.rand(whole).to(dtype)
    labels = (batch, TOKENS) if "input_ids" in shapes else (batch,)
    return found | {"labels": torch.randint(0, 100, labels)}


def counted_bytes(module: Any, change: Change) -> float:
    """What a language model's `perfpass train-cost` counts."""
    model = language_model(module.config.to_dict())
    kernels = Kernels(fused_norms=not composes_norms(model.model_type), fused_gates=False)
    micro_batch = change.asked.get("micro_batch", BATCH)
    # GPT-2's queries, keys and values are one matrix, which an adapter reads once.
    adapter = Adapter(8, ("query", "value"), single=True) if change.lora else None
    recipe = Recipe(
        micro_batch,
        TOKENS,
        BATCH // micro_batch,
        precision={"bf16": "bf16_true", "amp_bf16": "amp"}.get(change.asked.get("precision", ""), "fp32"),
        optimizer=change.asked.get("optimizer", "adamw"),
        recompute=change.asked.get("recompute", "none"),
        kernels=kernels,
        loss="eager",
        adapter=adapter,
        foreach=False,
        gradient_buffers=False,
    )
    return training_memory(model, Layout(), recipe).peak_bytes


def alive_bytes(found: NetworkTrainCost) -> float:
    """What is predicted of tensors alone, without the process around them."""
    return found.memory_in_use_bytes.median - found.step.breakdown["memory_bytes"]["runtime"]


def stepper(module: torch.nn.Module, shapes: dict[str, Any], change: Change) -> Callable[[], None]:
    """A real step."""
    asked = change.asked
    micro_batch = asked.get("micro_batch", BATCH)
    pieces, dtype = BATCH // micro_batch, torch.bfloat16 if asked.get("precision") == "bf16" else torch.float32
    update = OPTIMIZERS[asked.get("optimizer", "adamw")]([p for p in module.parameters() if p.requires_grad])
    batches = [inputs(shapes, micro_batch, dtype) for _ in range(pieces)]

    def step() -> None:
        update.zero_grad()
        for batch in batches:
            with torch.autocast("cpu", torch.bfloat16, enabled=asked.get("precision") == "amp_bf16"):
                out = module(**batch)
            (out["loss"] / pieces).backward()
            del out
        update.step()

    return step


def measured_bytes(module: torch.nn.Module, change: Change, step: Callable[[], None]) -> int:
    """The most that is alive in a step, after the first."""
    states = 0 if "optimizer" in change.asked else 2
    trained = sum(p.numel() * p.element_size() for p in module.parameters() if p.requires_grad)
    step()
    module.zero_grad()
    stays = sum(t.numel() * t.element_size() for t in (*module.parameters(), *module.buffers()))
    return stays + states * trained + allocations(step).peak_bytes


def measured(name: str, parts: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
    """All changes of one model, their steps taken in turn."""
    make, shapes, targets = parts
    asked = changes(make, shapes, targets)
    running = []
    for change in asked:
        torch.manual_seed(0)
        module = changed(make, targets, change)
        running.append((change, module, stepper(module, shapes, change)))
    peaks = [measured_bytes(module, change, step) for change, module, step in running]
    seconds: list[list[float]] = []
    for _ in range(ROUNDS + FIRST):
        seconds.append([])
        for _, _, step in running:
            before = time.process_time()
            step()
            seconds[-1].append(time.process_time() - before)
    first = asked[0].found
    for i, change in enumerate(asked):
        decoder = name in ("GPT-2", "Llama")
        yield {
            "model": name,
            "change": change.words,
            "advised": 0 < i < len(asked) - 2,
            "measured_bytes": peaks[i],
            "predicted_bytes": alive_bytes(change.found),
            "counted_bytes": counted_bytes(make(), change) if decoder else None,
            "measured_ms": 1e3 * median(each[i] for each in seconds[FIRST:]),
            "measured_time": median(each[i] / each[0] for each in seconds[FIRST:]),
            "predicted_time": change.found.step_s.median / first.step_s.median,
            "low": 1 + change.low,
            "high": 1 + change.high,
        }


def main() -> None:
    """Prints the rows, and writes them where --json says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", nargs="*", help="of the five; all if left out")
    parser.add_argument("--json", type=Path, help="also write all results to this file")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    known = models()
    for name in options.models or known:
        first: dict[str, Any] = {}
        for row in measured(name, known[name]):
            rows.append(row)
            first = first or row
            cells = [
                "" if row[what] is None else f"{100 * (row[what] / first[what] - 1):+.0f}"
                for what in ("measured_bytes", "predicted_bytes", "counted_bytes", "measured_time", "predicted_time")
            ]
            print(f"{name:10s} {row['change']:22s}" + "".join(f"{cell:>8s}" for cell in cells), flush=True)
    results = {"none": NONE, "rounds": ROUNDS, "batch": BATCH, "rows": rows}
    publish("training_advice", results, ("torch", "transformers", "torchvision", "peft"), options.json)


if __name__ == "__main__":
    main()
