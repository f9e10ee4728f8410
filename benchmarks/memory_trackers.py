"""Peaks of recorded programs beside those of PyTorch's own tracker (torch.distributed._tools.mem_tracker), per model.

    python benchmarks/memory_trackers.py            # prints models, both peaks (MiB) and their ratio

Both see the same two training steps and the same forward pass without gradients, without a device and unrounded. The
tracker's tensors never take a gradient in place, which CUDA's do: ours may be smaller by gradients of activations.
"""

from __future__ import annotations

import statistics
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))

# fmt: off
MODELS = (
    "resnet18", "resnet50", "resnext50_32x4d", "wide_resnet50_2", "densenet121", "mobilenetv2_100",
    "mobilenetv3_large_100", "efficientnet_b0", "regnety_016", "convnext_tiny", "convnextv2_nano", "vgg11", "dla34",
    "hrnet_w18_small", "vit_tiny_patch16_224", "vit_small_patch16_224", "deit_small_patch16_224", "mixer_s32_224",
    "swin_tiny_patch4_window7_224", "pit_s_224", "poolformer_s12", "resmlp_12_224", "gmlp_s16_224", "cait_xxs24_224",
    "xcit_tiny_12_p16_224", "coat_tiny", "edgenext_small", "ghostnet_100",
)
# fmt: on
BATCH = 8


def main() -> None:
    """Print the table and the quantiles of the ratio."""
    import torch
    from torch._subclasses import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker
    from torch.nn import functional

    from perfpass.importers.model_sources import timm
    from perfpass.importers.torch_memory import OPTIMIZERS, record

    warnings.simplefilter("ignore")

    def loss(out: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(out, torch.empty(len(out), dtype=torch.int64))

    def theirs(name: str, optimizer: str | None) -> float:
        source = timm(name)
        with FakeTensorMode(allow_non_fake_inputs=True):
            module = source.to_empty(device="cpu").train(optimizer is not None)
            update = OPTIMIZERS[optimizer](module.parameters()) if optimizer else None
            tracker = MemTracker()
            tracker.track_external(*([module, update] if update else [module]))
            with tracker, torch.set_grad_enabled(update is not None):
                for _ in range(2):
                    tracker.reset_mod_stats()
                    module.zero_grad()
                    out = module(torch.empty(BATCH, 3, 224, 224))
                    if update:
                        loss(out).backward()
                        update.step()
            peak = next(iter(tracker.get_tracker_snapshot("peak").values()))
        return sum(v for k, v in peak.items() if k != "Total") / 2**20

    ratios: dict[str, list[float]] = {}
    for name in MODELS:
        for optimizer in (None, "sgd", "adam"):
            try:
                options = {"optimizer": optimizer, "loss": loss} if optimizer else {"gradients": False}
                made = record(timm(name), lambda: (torch.empty(BATCH, 3, 224, 224),), loop=False, **options)
                ours, other = made.events.live_by_use().sum(axis=1).max() / 2**20, theirs(name, optimizer)
            except Exception as error:
                print(f"{name:32s}{optimizer or 'no_grad':10s}{type(error).__name__}: {str(error)[:60]}")
                continue
            ratios.setdefault(optimizer or "no_grad", []).append(ours / other)
            print(f"{name:32s}{optimizer or 'no_grad':10s}{ours:10.1f}{other:10.1f}{ours / other:8.3f}", flush=True)
    for what, found in ratios.items():
        within = sum(abs(r - 1) <= 0.01 for r in found)
        print(f"{what}: {len(found)} models, median {statistics.median(found):.3f}, {within} within 1 %")


if __name__ == "__main__":
    main()
