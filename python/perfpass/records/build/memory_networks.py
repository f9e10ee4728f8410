"""Networks whose memory other laboratories measured, built without weights, as stages that run one after another.

    python -m perfpass.training.memory.measured_runs SHARED_DATA

BERT and Llama need transformers, Stable Diffusion 1.5 diffusers and transformers (`pip install --target`), the
segmentation networks torchvision. Sizes are those of the published configurations.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from perfpass.graph import OpGraph

_LATENT = 8  # pixels of the image to one of Stable Diffusion's latent
_GUIDED = 2  # classifier-free guidance: the U-Net sees every prompt twice


def _on_meta(make: Callable[[], Any]) -> Any:
    import torch

    with torch.device("meta"):
        return make().eval()


def _only(module: torch.nn.Module, method: str, output: Callable[[Any], Any]) -> torch.nn.Module:
    """A module whose forward calls one method of another and gives one tensor."""
    import torch

    class Only(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return output(getattr(self.inner, method)(*args, **kwargs))

    return Only()


@lru_cache(maxsize=4)
def _bert(attention: str) -> Any:
    from transformers import BertConfig, BertModel

    config: Any = BertConfig
    return _on_meta(lambda: BertModel(config(attn_implementation=attention)))


@lru_cache(maxsize=4)
def _llama_7b(attention: str) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config: Any = LlamaConfig
    made = config(num_key_value_heads=32, attn_implementation=attention)
    return _on_meta(lambda: LlamaForCausalLM(made))


def bert_base(batch: int, sequence: int, attention: str = "eager") -> list[OpGraph]:
    """BERT-base, encoder and pooler."""
    from perfpass.importers import load

    tokens = ((sequence,), "int64")
    return [load(_bert(attention), batch=batch, input_shape={"input_ids": tokens, "attention_mask": tokens})]


def llama_2_7b(batch: int, sequence: int, attention: str = "sdpa") -> list[OpGraph]:
    """Llama-2-7B with its language-model head; the cache is an output, as transformers keeps it."""
    from perfpass.importers import load

    return [load(_llama_7b(attention), batch=batch, input_shape={"input_ids": ((sequence,), "int64")})]


def llama_3_2_3b(batch: int, sequence: int) -> list[OpGraph]:
    """Llama 3.2 3B with its language-model head."""
    from perfpass.importers import load

    return [load("meta-llama/Llama-3.2-3B", batch=batch, dims={"sequence_length": sequence})]


@lru_cache(maxsize=1)
def _stable_diffusion() -> tuple[Any, Any, Any]:
    from diffusers import AutoencoderKL, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel

    text = CLIPTextConfig(
        vocab_size=49408, hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12
    )
    decoder: dict[str, Any] = {
        "block_out_channels": (128, 256, 512, 512),
        "down_block_types": ("DownEncoderBlock2D",) * 4,
        "up_block_types": ("UpDecoderBlock2D",) * 4,
        "layers_per_block": 2,
        "latent_channels": 4,
        "sample_size": 512,
    }
    return (
        _on_meta(lambda: CLIPTextModel(text)),
        _on_meta(lambda: UNet2DConditionModel(sample_size=64, cross_attention_dim=768, attention_head_dim=8)),
        _on_meta(lambda: AutoencoderKL(**decoder)),
    )


@lru_cache(maxsize=32)
def stable_diffusion(batch: int, image: int = 512, attention: str = "sdpa") -> list[OpGraph]:
    """Text encoder, U-Net (two samples an image) and the whole autoencoder's decoder of Stable Diffusion 1."""
    from diffusers.models.attention_processor import AttnProcessor, AttnProcessor2_0

    from perfpass.importers import load

    text, unet, decoder = _stable_diffusion()
    for part in (unet, decoder):
        part.set_attn_processor(AttnProcessor() if attention == "eager" else AttnProcessor2_0())
    latent = image // _LATENT
    return [
        load(text, batch=_GUIDED * batch, input_shape={"input_ids": ((77,), "int64")}),
        load(
            _only(unet, "forward", lambda out: out.sample),
            batch=_GUIDED * batch,
            input_shape=((4, latent, latent), (), (77, 768)),
        ),
        load(_only(decoder, "decode", lambda out: out.sample), batch=batch, input_shape=(4, latent, latent)),
    ]


@lru_cache(maxsize=8)
def segmentation(name: str, batch: int, height: int, width: int, classes: int, deep_stem: bool) -> list[OpGraph]:
    """Of torchvision ``name`` (fcn_resnet50, ...) with its auxiliary head; ``deep_stem``: three 3 x 3 convolutions."""
    import torch
    import torchvision

    from perfpass.importers import load

    make = getattr(torchvision.models.segmentation, name)
    module = _on_meta(lambda: make(weights=None, weights_backbone=None, num_classes=classes, aux_loss=True))
    if deep_stem:
        channels = (3, 32, 32, 64)
        parts: list[torch.nn.Module] = []
        for i in range(3):
            parts.append(torch.nn.Conv2d(channels[i], channels[i + 1], 3, 2 - min(i, 1), 1, bias=False, device="meta"))
            if i < 2:
                parts += [torch.nn.BatchNorm2d(channels[i + 1], device="meta").eval(), torch.nn.ReLU(inplace=True)]
        module.backbone["conv1"] = torch.nn.Sequential(*parts)
    both = _only(module, "forward", lambda out: (out["out"], out["aux"]))
    return [load(both, batch=batch, input_shape=(3, height, width))]
