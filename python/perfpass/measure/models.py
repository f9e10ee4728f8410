"""A configuration's model with random weights, and random inputs for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perfpass.errors import UnsupportedError
from perfpass.importers import definitions, model_sources
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
    # Inputs by name with shape behind the batch and the numbers that they hold (None: standard normal), where they are
    # more than one image or one sequence of tokens.
    named_inputs: tuple[tuple[str, tuple[int, ...], int | None], ...] = ()

    def inputs(self, configuration: Configuration, device: str) -> dict[str, torch.Tensor]:
        """Named inputs of one batch on ``device``: images in fp32, standard normal; tokens, uniform."""
        import torch

        if self.named_inputs:
            return {
                name: torch.randn((configuration.batch, *shape), device=device)
                if numbers is None
                else torch.randint(0, numbers, (configuration.batch, *shape), device=device)
                for name, shape, numbers in self.named_inputs
            }
        if self.image_shape is not None:
            return {"x": torch.randn((configuration.batch, *self.image_shape), device=device)}
        if self.vocabulary is None:
            raise UnsupportedError(f"{configuration.model} reads neither images nor tokens")
        length = 1 if configuration.mode == "decode" else sequence_length(configuration)
        tokens = torch.randint(0, self.vocabulary, (configuration.batch, length), device=device)
        return {"input_ids": tokens} | ({"decoder_input_ids": tokens.clone()} if self.decoder_inputs else {})

    def facts(self, configuration: Configuration) -> dict[str, Any]:
        """What a record says of the model and its inputs; None where it does not apply."""
        return {
            "parameters": self.parameters,
            "buffers": self.buffers,
            "image_size": self.image_shape[1] if self.image_shape else None,
            "sequence_length": None if self.image_shape or self.named_inputs else sequence_length(configuration),
            "inputs": {name: list(shape) for name, shape, _ in self.named_inputs} or None,
        }

    def positional(self, names: tuple[str, ...]) -> torch.nn.Module:
        """The module with inputs by position and the first output only, as exporters and tracers want it."""
        import torch

        module, image = self.module, names == ("x",)
        keywords = {"use_cache": False} if self.kind == "causal" else {}

        class Positional(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.module = module

            def forward(self, *values: Any) -> Any:
                if image:
                    return _tensors(module(values[0]))
                return _first(module(**dict(zip(names, values, strict=True)), **keywords))

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
        return _torchvision(name, configuration.image_size, device)
    elif source == "definitions":
        module, shape = _defined(configuration, device)
    elif source == "unet":
        module, shape = _unet(name, device)
    elif source == "net":
        return _own_definition(name, configuration, device)
    else:
        raise UnsupportedError(f"{configuration.model} is no torch model")
    return Built(module, "image", shape, None, False, *_sizes(module), None)


def _language_model(configuration: Configuration, device: str) -> Built:
    content = dict(model_sources.read_configuration(configuration.name))
    if configuration.image_size is not None and "image_size" in content:
        content["image_size"] = configuration.image_size
    dtype = {"fp16": "float16", "bf16": "bfloat16"}.get(configuration.precision, "float32")
    causal = configuration.mode in ("prefill", "decode", "training")
    module: Any = model_sources.huggingface(content, dtype=dtype, causal=causal, device=device)
    decoder = model_sources.is_decoder(module)
    if configuration.mode in ("prefill", "decode") and not decoder:
        raise UnsupportedError(f"{configuration.model} is no decoder and has no {configuration.mode}")
    settings = module.config
    named: tuple[tuple[str, tuple[int, ...], int | None], ...] = ()
    if module.main_input_name != "input_ids" or hasattr(settings, "vision_config"):
        named, decoder = _named_inputs(module, configuration), False
    return Built(
        module,
        "causal" if decoder else "tokens",
        None,
        None if named else int(settings.vocab_size),
        bool(getattr(settings, "is_encoder_decoder", False)),
        *_sizes(module),
        getattr(settings, "max_position_embeddings", None),
        named,
    )


def _named_inputs(module: Any, configuration: Configuration) -> tuple[tuple[str, tuple[int, ...], int | None], ...]:
    """Inputs of a model of `transformers` that reads images or sound: shapes behind the batch, from its settings."""
    settings = module.config
    vision, text = getattr(settings, "vision_config", None), getattr(settings, "text_config", None)
    main, length = module.main_input_name, sequence_length(configuration)
    if vision is not None and text is not None:
        images = ("pixel_values", _image_shape(vision, configuration), None)
        return (("input_ids", (length,), int(text.vocab_size)), images)
    if main == "pixel_values":
        return ((main, _image_shape(settings, configuration), None),)
    if main == "input_values" and hasattr(settings, "num_mel_bins") and hasattr(settings, "max_length"):
        return ((main, (settings.max_length, settings.num_mel_bins), None),)  # a spectrogram
    if main == "input_values":
        return ((main, (length,), None),)  # a waveform; its length in samples
    if main == "input_features" and hasattr(settings, "max_source_positions"):
        tokens = (("decoder_input_ids", (32,), int(settings.vocab_size)),) if settings.is_encoder_decoder else ()
        return ((main, (settings.num_mel_bins, 2 * settings.max_source_positions), None), *tokens)
    raise UnsupportedError(f"{configuration.model} reads {main}; nothing here makes such inputs")


def _image_shape(settings: Any, configuration: Configuration) -> tuple[int, ...]:
    size = configuration.image_size or getattr(settings, "image_size", None) or 224
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return int(getattr(settings, "num_channels", 3)), int(height), int(width)


def _torchvision(name: str, image_size: int | None, device: str) -> Built:
    """A classifier, a segmenter, or a detector up to its heads (boxes are neither decoded nor sorted)."""
    import torch

    module, shapes = model_sources.torchvision_image_model(name, image_size, device)
    shape: Any = shapes
    if isinstance(shape[0], tuple):
        images = tuple((f"image{i}", image, None) for i, image in enumerate(shape, 1))
        return Built(module, "image", None, None, False, *_sizes(module), None, images)
    if len(shape) == 4:
        return Built(module, "image", None, None, False, *_sizes(module), None, (("x", shape, None),))
    whole: Any = module
    if not hasattr(whole, "backbone") or not (hasattr(whole, "head") or hasattr(whole, "rpn")):
        return Built(module, "image", shape, None, False, *_sizes(module), None)

    class Heads(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = whole.backbone
            self.head = whole.head if hasattr(whole, "head") else whole.rpn.head

        def forward(self, x: torch.Tensor) -> Any:
            return _tensors(self.head(list(self.backbone(x).values())))

    heads = Heads().eval()
    return Built(heads, "image", shape, None, False, *_sizes(heads), None)


def _defined(configuration: Configuration, device: str) -> tuple[torch.nn.Module, tuple[int, int, int]]:
    """One of `perfpass.importers.definitions` that reads one image, and the shape of it."""
    own = definitions.definition(configuration.name)
    size = configuration.image_size
    shape = own.inputs(*((size, size) if size else own.size))
    if len(shape) != 3 or not all(isinstance(n, int) for n in shape):
        raise UnsupportedError(f"{configuration.model} reads no single image; networks of images alone are measured")
    return own.module(device), shape


def _own_definition(name: str, configuration: Configuration, device: str) -> Built:
    import torch

    from perfpass.measure import networks

    with torch.device(device):
        module, inputs = networks.build(name, configuration)
    return Built(module.eval(), "image", None, None, False, *_sizes(module), None, inputs)


def _tensors(output: Any) -> Any:
    """An output as tracers want it: mappings and nested lists become a tuple of tensors."""
    if isinstance(output, Mapping):
        output = tuple(output.values())
    if not isinstance(output, list | tuple):
        return output
    flat: list[Any] = []
    for part in output:
        found = _tensors(part)
        flat += found if isinstance(found, tuple) else [found]
    return tuple(flat)


def _first(output: Any) -> Any:
    """The first tensor of what a model of `transformers` gives."""
    while not hasattr(output, "dtype"):
        output = output[0]
    return output


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
