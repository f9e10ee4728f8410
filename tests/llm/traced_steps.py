"""Real training steps of small models on the CPU, and the bytes of what they hold; with ranks where it is run.

python tests/llm/traced_steps.py fsdp2 ddp ...     # two processes over gloo; their bytes as JSON
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from perfpass.importers import torchvision_schemas

torchvision_schemas.define()

import torch
import transformers

from perfpass.importers.torch_allocations import allocations
from traced_processes import print_traced

BATCH, TOKENS, LAYERS, RANKS = 2, 32, 3, 2
DTYPES = {"fp32": torch.float32, "amp": torch.float32, "bf16_true": torch.bfloat16}
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 1e-3, foreach=True),
    "momentum": lambda p: torch.optim.SGD(p, 1e-3, momentum=0.9, foreach=True),
    "adamw": lambda p: torch.optim.AdamW(p, 1e-3, foreach=True),
    "adafactor": lambda p: torch.optim.Adafactor(p, 1e-3, foreach=True),
}


@dataclasses.dataclass(frozen=True)
class Step:
    """Bytes: of weights, gradients and states of the optimizer; ``kept`` by the forward pass, over what was held; the
    peaks of both passes and of the update over that.
    """

    weights: int
    gradients: int
    moments: int
    kept: int
    peak: int
    update: int


def configuration(family: str, layers: int = LAYERS, **changes):
    """A small configuration of "llama" (grouped keys, gates) or "gpt2" (biases, tied tables)."""
    if family == "llama":
        sizes = {"hidden_size": 64, "intermediate_size": 160, "num_attention_heads": 4, "num_key_value_heads": 2}
        return transformers.LlamaConfig(
            **sizes, head_dim=16, num_hidden_layers=layers, vocab_size=512, use_cache=False, **changes
        )
    dropouts = dict.fromkeys(("attn_pdrop", "resid_pdrop", "embd_pdrop"), 0.0)
    changes = {"activation_function": "gelu_pytorch_tanh"} | changes
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    return transformers.GPT2Config(
        n_embd=64,
        n_layer=layers,
        n_head=4,
        vocab_size=512,
        n_positions=128,
        use_cache=False,
        **dropouts,
        **ends,
        **changes,
    )


def model(family: str, precision: str, layers: int = LAYERS, *, recompute: str = "none", attention: str = "sdpa"):
    """A model of transformers, in training mode."""
    found = configuration(family, layers)
    found._attn_implementation = attention
    kind = {"llama": transformers.LlamaForCausalLM, "gpt2": transformers.GPT2LMHeadModel}[family]
    made = kind(found).to(DTYPES[precision]).train()
    if recompute == "full":
        made.gradient_checkpointing_enable({"use_reentrant": False})
    return made


def held(tensors) -> int:
    """Bytes of the storages of ``tensors``, of a rank's shards where they are sharded."""
    local = [t.to_local() if hasattr(t, "to_local") else t for t in tensors]
    return sum(t.numel() * t.element_size() for t in local)


def step(module, update, precision: str = "fp32") -> Step:
    """The third step of ``module`` with ``update``, traced."""
    ids = torch.randint(0, 512, (BATCH, TOKENS))
    found: dict[str, object] = {}

    def forward():
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "amp"):
            found["output"] = module(input_ids=ids, labels=ids)

    def backward():
        found["output"].loss.backward()

    for _ in range(2):
        forward()
        backward()
        update.step()
        update.zero_grad()
        found.clear()
    before, after = allocations(forward), allocations(backward)
    gradients = held(p.grad for p in module.parameters() if p.grad is not None)
    of_update = allocations(update.step)
    inner = getattr(update, "optim", update)  # of a ZeroRedundancyOptimizer, the one of this rank
    return Step(
        weights=held(module.parameters()),
        gradients=gradients,
        moments=sum(held([t]) for s in inner.state.values() for name, t in s.items() if name != "step"),
        kept=before.left_bytes,
        peak=max(before.peak_bytes, before.left_bytes + after.peak_bytes),
        update=of_update.peak_bytes,
    )


def _sharded(kind: str):
    """A model over the ranks of this process group, its optimizer, and what the sharding itself made."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, ShardingStrategy, fully_shard
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer

    module = model("llama", "fp32")
    if kind in ("fsdp2", "fsdp2_mixed"):
        policy = MixedPrecisionPolicy(*(torch.bfloat16, torch.float32) if kind == "fsdp2_mixed" else ())
        mesh = init_device_mesh("cpu", (RANKS,))
        for layer in (*module.model.layers, module):
            fully_shard(layer, mesh=mesh, mp_policy=policy)
    elif kind in ("fsdp1", "fsdp1_zero2"):
        strategy = ShardingStrategy.FULL_SHARD if kind == "fsdp1" else ShardingStrategy.SHARD_GRAD_OP
        wraps = ModuleWrapPolicy({LlamaDecoderLayer})
        module = FullyShardedDataParallel(
            module,
            sharding_strategy=strategy,
            device_id=torch.device("cpu"),
            auto_wrap_policy=wraps,
            use_orig_params=True,
        )
    else:
        made: list[torch.nn.Module] = []

        def spread():
            made.append(torch.nn.parallel.DistributedDataParallel(module))
            torch.distributed.barrier()  # until then the weights of the first rank are on their way

        buckets = allocations(spread).left_bytes
        module = made[0]
        if kind == "zero1":
            options = {"optimizer_class": torch.optim.AdamW, "lr": 1e-3, "foreach": True}
            return module, ZeroRedundancyOptimizer(module.parameters(), **options), buckets
        return module, OPTIMIZERS["adamw"](module.parameters()), buckets
    return module, OPTIMIZERS["adamw"](module.parameters()), 0


def _traced(kind: str) -> dict[str, int]:
    """Of this rank."""
    module, update, buckets = _sharded(kind)
    return {"buckets": buckets, **dataclasses.asdict(step(module, update))}


if __name__ == "__main__":
    print_traced(_traced, sys.argv[1:], RANKS)
