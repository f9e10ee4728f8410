"""What a model of `transformers` reads where nobody says: shapes and types by name, and values that shapes follow.

They follow from the configuration and from the names in the signature of the model's forward pass.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from inspect import signature
from typing import TYPE_CHECKING, Any

from perfpass.errors import FormatError
from perfpass.text import shown_value

if TYPE_CHECKING:
    import torch

Shape = tuple[tuple[int, ...], str]  # without the batch, and the type

_CODECS = ("encodec", "mimi", "dac")  # read waveforms by channel: (channels, samples)
_MOONSHINE_STRIDE = 64 * 3 * 2  # samples of a frame, which its configuration does not state
_CLAP_FRAMES = 1001  # 10 s of sound at hops of 480 samples of 48 kHz
_PATCHES = "hidden_states"  # of a tower that reads a picture cut into patches, and their number a side in grid_thw
_FILM = "pixel_values_videos"
# What the image processors of transformers (5.23) make of COCO's usual picture of 640 x 480 (its shortest side 800, the
# other at most 1,333), or of any: height and width, of models whose configurations state no size.
_SHORTEST_800, _SQUARE_640 = (800, 1066), (640, 640)
_PROCESSED = {
    **dict.fromkeys(("detr", "conditional_detr", "deformable_detr", "dab-detr", "table-transformer"), _SHORTEST_800),
    **dict.fromkeys(("maskformer", "mask2former", "grounding-dino", "mm-grounding-dino"), _SHORTEST_800),
    **dict.fromkeys(("rt_detr", "rt_detr_v2", "d_fine"), _SQUARE_640),
}
_INNER = ("vision_config", "encoder")  # configurations within another that may be of what reads pictures
_FLATTENED_PATCHES = 2048  # of a picture: `max_patches` of transformers' Pix2StructImageProcessor


def inputs(model: Any, sequence_length: int) -> dict[str, Shape]:
    """Shapes (without the batch) and types of what the model reads, by name."""
    configuration, asked = model.config, signature(model.forward).parameters
    main = _main(model.main_input_name, asked)
    length = min(sequence_length, most_tokens(configuration) or sequence_length)
    vision = getattr(configuration, "vision_config", None)
    if main == "pixel_values":
        shapes = _pixels(configuration, asked)
        if hasattr(configuration, "text_config"):
            shapes["input_ids"] = ((_image_tokens(configuration, asked) + length,), "int64")
    elif main == "flattened_patches":
        shapes = {main: (_flattened(configuration), "float32")}
    elif main == _FILM:
        size = configuration.crop_size
        shapes = {main: ((configuration.frames_per_clip, configuration.in_chans, size, size), "float32")}
    elif main == _PATCHES:
        shapes = {main: (_cut_picture(configuration, length), "float32")}
    elif main in ("input_features", "input_values"):
        shapes = {main: (_sound(configuration, main, length), "float32")}
    else:
        shapes = {main: (tokens(model, length), "int64")}
        if "image_encoder_embeddings" in asked:  # text that attends to the pictures before it: one of them here
            (picture, kind) = _pixels(configuration, asked)["pixel_values"]
            shapes |= {"pixel_values": ((1, *picture), kind), "image_attention_mask": ((length, 1), "int64")}
        elif (vision is not None or hasattr(configuration, "image_size")) and not model.can_generate():
            shapes |= _pixels(configuration, asked) if "pixel_values" in asked else {}
    if configuration.model_type == "clap":
        shapes["input_features"] = ((1, _CLAP_FRAMES, configuration.audio_config.num_mel_bins), "float32")
    if getattr(configuration, "is_encoder_decoder", False) and "decoder_input_ids" in asked:
        shapes["decoder_input_ids"] = ((length,), "int64")
    return shapes


def _main(named: str, asked: Mapping[str, Any]) -> str:
    """The main input of a forward pass: a tower that keeps the name of text models' is told by what it asks for."""
    if "grid_thw" in asked and _PATCHES in asked:
        return _PATCHES
    return next((one for one in ("pixel_values", _FILM) if named not in asked and one in asked), named)


def values(model: Any, batch: int, sequence_length: int) -> dict[str, torch.Tensor]:
    """Further inputs whose values decide shapes, on the host, by name: where pictures stand, and how large they are."""
    import torch

    configuration, asked = model.config, signature(model.forward).parameters
    found = {}
    if "spatial_shapes" in asked:
        side = math.isqrt(_vision(configuration).num_patches)
        found["spatial_shapes"] = torch.tensor([[side, side]] * batch)
    if "grid_thw" in asked:
        side = math.isqrt(_cut_picture(configuration, sequence_length)[0])
        found["grid_thw"] = torch.tensor([[1, side, side]] * batch)
    if "image_embeds_position_mask" in asked:
        total = inputs(model, sequence_length)["input_ids"][0][0]
        places = torch.arange(total) < _image_tokens(configuration, asked)
        found["image_embeds_position_mask"] = places.expand(batch, total).contiguous()
    return found


def tokens(model: Any, length: int) -> tuple[int, ...]:
    """The shape of so many tokens: by codebook where the model has a table of embeddings for each."""
    from torch.nn import ModuleList

    tables = model.get_input_embeddings() if model.can_generate() else None
    return (len(tables), length) if isinstance(tables, ModuleList) else (length,)


def most_tokens(configuration: Any) -> int | None:
    """Of a text encoder of images, which may read few (CLIP: 77, ViLT: 40)."""
    reads_text = "text" in configuration.model_type or hasattr(configuration, "image_size")
    text = configuration if reads_text else getattr(configuration, "text_config", None)
    return getattr(text, "max_position_embeddings", None)


def _vision(configuration: Any) -> Any:
    """Of what reads pictures: a configuration within another, of two in one the encoder's, or the configuration."""
    within = getattr(configuration, "vision_config", None)
    return within or (configuration.encoder if hasattr(configuration, "encoder") else configuration)


def _pixels(configuration: Any, asked: Mapping[str, Any]) -> dict[str, Shape]:
    """Pictures: one, the frames of a film, patches of one of any size, or one beside an example and its mask."""
    vision = _vision(configuration)
    channels, height, width = _image_shape(vision)
    if "spatial_shapes" in asked:
        patches = (vision.num_patches, channels * vision.patch_size**2)
        return {"pixel_values": (patches, "float32"), "pixel_attention_mask": (patches[:1], "int64")}
    if "prompt_pixel_values" in asked:  # image_size is that of the canvas with the example above the picture
        names = ("pixel_values", "prompt_pixel_values", "prompt_masks")
        return dict.fromkeys(names, ((channels, height // 2, width), "float32"))
    frames = getattr(configuration, "num_frames", None) or getattr(vision, "num_frames", None)
    film = (int(frames),) if frames else ()
    return {"pixel_values": ((*film, channels, height, width), "float32")}


def processed(configuration: Any) -> bool:
    """Whether pictures are as large as the image processor makes them, since the configuration states no size."""
    return configuration.model_type in _PROCESSED and not getattr(configuration, "image_size", None)


def of_size(content: Mapping[str, Any], height: int, width: int) -> dict[str, Any]:
    """A configuration's content for pictures of another size."""
    size: Any = height if height == width else [height, width]
    inner = next((name for name in _INNER if isinstance(content.get(name), Mapping)), None)
    return dict(content) | ({inner: {**content[inner], "image_size": size}} if inner else {"image_size": size})


def _image_shape(vision: Any) -> tuple[int, int, int]:
    within = getattr(vision, "backbone_config", None)  # of SAM 2, whose tower is a backbone and a neck
    stated = getattr(vision, "image_size", None) or _PROCESSED.get(vision.model_type)
    size = stated or getattr(within, "image_size", None) or 224
    if isinstance(size, list | tuple) and len(size) != 2:
        raise FormatError(f"image_size is {shown_value(size)}; one size or [height, width] are read")
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return (int(getattr(vision, "num_channels", 3) or 3), int(height), int(width))


def _image_tokens(configuration: Any, asked: Mapping[str, Any]) -> int:
    """Places of the text that a picture takes."""
    return int(configuration.latent_query_num) if "image_embeds_position_mask" in asked else 0


def _flattened(configuration: Any) -> tuple[int, int]:
    """Patches of a picture, each with its row and column before its pixels."""
    vision = _vision(configuration)
    most = getattr(vision, "max_num_patches", None) or min(_FLATTENED_PATCHES, vision.seq_len)
    return int(most), 2 + int(vision.patch_embed_hidden_size)


def _cut_picture(vision: Any, tokens: int) -> tuple[int, int]:
    """Patches of a square picture of at most so many tokens of text (at least one), and the values of a patch: towers
    that read pictures of any size merge ``spatial_merge_size`` x ``spatial_merge_size`` patches into a token.
    """
    side = max(math.isqrt(tokens), 1) * vision.spatial_merge_size
    channels = getattr(vision, "in_channels", None) or getattr(vision, "in_chans", 3)
    return side * side, channels * vision.temporal_patch_size * vision.patch_size**2


def _sound(configuration: Any, main: str, length: int) -> tuple[int, ...]:
    """Frames of features, or samples for so many frames."""
    kind = configuration.model_type
    if main == "input_features" and kind in ("speech_to_text", "wav2vec2-bert"):
        bands = getattr(configuration, "input_feat_per_channel", None) or configuration.feature_projection_input_dim
        return (length, bands)
    if main == "input_features":
        mel = getattr(configuration, "num_mel_bins", 80)
        positions = getattr(configuration, "max_source_positions", None)
        return (mel, 2 * positions) if positions else (length, mel)
    if kind == "audio-spectrogram-transformer":
        return (configuration.max_length, configuration.num_mel_bins)
    if kind in _CODECS:
        samples = math.prod(getattr(configuration, "upsampling_ratios", None) or configuration.upsampling_rates)
        return (getattr(configuration, "audio_channels", 1), samples * length)
    if kind.startswith("moonshine"):
        return (_MOONSHINE_STRIDE * (length + 1),)
    # One frame of the feature extractor's output per step, and the rest of its first window.
    return (math.prod(getattr(configuration, "conv_stride", None) or [1]) * (length + 1),)
