"""Stable Diffusion 1.5 (Rombach et al., 2022): its three networks as one graph of a whole picture.

The U-Net runs once a step on two copies of each sample, with and without the prompt; its operators repeat ``STEPS``
times. Needs diffusers, at build time alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

    from perfpass.graph import OpGraph

STEPS = 50  # of the records
UNET = "unet"


def module() -> torch.nn.Module:
    """Text encoder, U-Net and decoder on the meta device."""
    from perfpass.importers import torchvision_schemas

    torchvision_schemas.define()
    import torch
    from diffusers import AutoencoderKL, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel

    class Pipeline(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            text: Any = CLIPTextConfig(
                hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12
            )
            self.text = CLIPTextModel(text)
            self.unet = UNet2DConditionModel(
                sample_size=64, cross_attention_dim=768, attention_head_dim=8, block_out_channels=(320, 640, 1280, 1280)
            )
            self.vae = AutoencoderKL(
                block_out_channels=(128, 256, 512, 512), layers_per_block=2, latent_channels=4,
                down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4,
            )  # fmt: skip

        def forward(self, ids: torch.Tensor, latents: torch.Tensor) -> torch.Tensor:
            both = torch.cat([ids, ids])
            words = self.text(both).last_hidden_state
            step = torch.empty(2 * latents.shape[0], device=latents.device)
            noise = self.unet(torch.cat([latents, latents]), step, words).sample
            uncertain, certain = noise.chunk(2)
            latents = latents + uncertain + 7.5 * (certain - uncertain)
            return self.vae.decode(latents).sample

    with torch.device("meta"):
        return Pipeline().eval()


def tracer(pixels: int) -> Callable[[int], OpGraph]:
    """The graph of pictures of ``pixels`` on a side, by batch, each operator once."""
    from perfpass.importers.torch import trace_owned

    built, side = module(), pixels // 8
    return lambda batch: trace_owned(built, [((77,), "int64"), (4, side, side)], batch=batch)


def repeats(graph: OpGraph) -> np.ndarray:
    """[N] how often each node of `tracer`'s graph runs for a picture."""
    names = [graph.string(int(name)) for name in graph.node_name]
    return np.where([name.startswith(UNET) for name in names], float(STEPS), 1.0)
