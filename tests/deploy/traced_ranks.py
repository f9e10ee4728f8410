"""A small vision transformer whose step is traced on two ranks over gloo, sharded by PyTorch itself; bytes as JSON.

python tests/deploy/traced_ranks.py ddp zero1 zero2 zero3
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from perfpass.importers import torchvision_schemas

torchvision_schemas.define()

import torch
import torchvision

from traced_processes import print_traced

RANKS, BATCH, SIZE = 2, 2, 32


def network() -> torch.nn.Module:
    """Four blocks of a vision transformer."""
    return torchvision.models.VisionTransformer(
        image_size=SIZE, patch_size=8, num_layers=4, num_heads=2, hidden_dim=33 * 2, mlp_dim=131, num_classes=11
    )


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _bytes(tensors) -> int:
    return sum(t.numel() * t.element_size() for t in map(_local, tensors))


def _spread(kind: str):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.optim import ZeroRedundancyOptimizer

    torch.manual_seed(0)
    module = network()
    if kind in ("zero2", "zero3"):
        mesh = init_device_mesh("cpu", (RANKS,))
        for part in (*module.encoder.layers, module):
            fully_shard(part, mesh=mesh, reshard_after_forward=kind == "zero3")
        return module, torch.optim.AdamW(module.parameters(), 1e-3)
    module = torch.nn.parallel.DistributedDataParallel(module)
    if kind == "zero1":
        return module, ZeroRedundancyOptimizer(module.parameters(), optimizer_class=torch.optim.AdamW, lr=1e-3)
    return module, torch.optim.AdamW(module.parameters(), 1e-3)


def _held(kind: str) -> dict[str, int]:
    """Of this rank, after a step."""
    module, update = _spread(kind)
    module(torch.randn(BATCH, 3, SIZE, SIZE)).sum().backward()
    update.step()
    states = getattr(update, "optim", update).state.values()
    return {
        "weights": _bytes(module.parameters()),
        "gradients": _bytes(p.grad for p in module.parameters() if p.grad is not None),
        "states": _bytes(t for s in states for name, t in s.items() if name != "step"),
    }


if __name__ == "__main__":
    print_traced(_held, sys.argv[1:], RANKS)
