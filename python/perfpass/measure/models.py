"""A configuration's model with random weights, and random inputs for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perfpass.errors import UnsupportedError
from perfpass.importers import model_sources
from perfpass.measure.configuration import DEFAULT_SEQUENCE_LENGTH, Configuration

if TYPE_CHECKING:
    import torch


@dataclass
class Built:
    """A model ready to be measured, with what its inputs look like."""

    module: Any  # a torch.nn.Module
    kind: str  # image, tokens, causal
    image_shape: tuple[int, int, int] | None  # [C, H, W]
    vocabulary: int | None
    decoder_inputs: bool  # an encoder-decoder, which reads tokens on both sides
    parameters: int
    buffers: int
    context_limit: int | None  # most tokens that the model has positions for

    def inputs(self, configuration: Configuration, device: str) -> dict[str, torch.Tensor]:
        """Named inputs of one batch on ``device``: images in fp32, standard normal; tokens, uniform."""
        import torch

        if self.image_shape is not None:
            return {"x": torch.randn((configuration.batch, *self.image_shape), device=device)}
        if self.vocabulary is None:
            raise UnsupportedError(f"{configuration.model} reads neither images nor tokens")
        length = 1 if configuration.mode == "decode" else sequence_length(configuration)
        tokens = torch.randint(0, self.vocabulary, (configuration.batch, length), device=device)
        return {"input_ids": tokens} | ({"decoder_input_ids": tokens.clone()} if self.decoder_inputs else {})

    def positional(self, names: tuple[str, ...]) -> torch.nn.Module:
        """The module with inputs by position and the first output only, as exporters and tracers want it."""
        import torch

        module, image = self.module, self.image_shape is not None
        keywords = {"use_cache": False} if self.kind == "causal" else {}

        class Positional(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.module = module

            def forward(self, *values: Any) -> Any:
                if image:
                    return module(values[0])
                return module(**dict(zip(names, values, strict=True)), **keywords)[0]

        return Positional().eval()


def sequence_length(configuration: Configuration) -> int:
    """The configuration's own, or 128."""
    return configuration.sequence_length or DEFAULT_SEQUENCE_LENGTH


def build(configuration: Configuration, device: str) -> Built:
    """The model on ``device``, in eval mode, with random weights.

    Raises UnsupportedError where it cannot be built here; errors of exhausted memory pass through.
    """
    source, name = configuration.source, configuration.name
    if source == "hf":
        return _language_model(configuration, device)
    if source == "timm":
        module, shape = model_sources.timm_image_model(name, configuration.image_size, device)
    elif source == "torchvision":
        module, shape = model_sources.torchvision_image_model(name, configuration.image_size, device)
    elif source == "unet":
        module, shape = _unet(name, device)
    else:
        raise UnsupportedError(f"{configuration.model} is no torch model")
    return Built(module, "image", shape, None, False, *_sizes(module), None)


def _language_model(configuration: Configuration, device: str) -> Built:
    content = model_sources.read_configuration(configuration.name)
    dtype = {"fp16": "float16", "bf16": "bfloat16"}.get(configuration.precision, "float32")
    causal = configuration.mode in ("prefill", "decode", "training")
    module: Any = model_sources.huggingface(content, dtype=dtype, causal=causal, device=device)
    decoder = model_sources.is_decoder(module)
    if configuration.mode in ("prefill", "decode") and not decoder:
        raise UnsupportedError(f"{configuration.model} is no decoder and has no {configuration.mode}")
    settings = module.config
    if module.main_input_name != "input_ids":
        raise UnsupportedError(
            f"{configuration.model} reads {module.main_input_name}; only models that read tokens are measured"
        )
    return Built(
        module,
        "causal" if decoder else "tokens",
        None,
        int(settings.vocab_size),
        bool(getattr(settings, "is_encoder_decoder", False)),
        *_sizes(module),
        getattr(settings, "max_position_embeddings", None),
    )


def _unet(name: str, device: str) -> tuple[Any, tuple[int, int, int]]:
    import torch

    from perfpass.measure import unet

    if name not in unet.NAMES:
        raise UnsupportedError(f"unknown U-Net {name!r}; known are {', '.join(unet.NAMES)}")
    with torch.device(device):
        return unet.UNet(unet.NAMES[name]).eval(), (unet.CHANNELS, unet.HEIGHT, unet.WIDTH)


def _sizes(module: Any) -> tuple[int, int]:
    """Numbers of parameters and of buffer elements."""
    return sum(p.numel() for p in module.parameters()), sum(b.numel() for b in module.buffers())
