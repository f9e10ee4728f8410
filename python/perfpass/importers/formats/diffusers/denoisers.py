"""What the networks of a diffusers pipeline are fed: of every class its tensors, from its configuration and the sizes.

Source: the forward passes of diffusers 0.42 (Apache-2.0) and how its pipelines call them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Given = dict[str, Any]


@dataclass(frozen=True)
class Latent:
    """What one run of a denoiser works on: ``height``, ``width`` and ``frames`` of the latents, ``tokens`` of text."""

    batch: int
    height: int
    width: int
    frames: int
    tokens: int


def _tensor(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def _times(at: Latent) -> torch.Tensor:
    return _tensor(at.batch)


def _mask(at: Latent, dtype: torch.dtype = torch.bool) -> torch.Tensor:
    return _tensor(at.batch, at.tokens, dtype=dtype)


def _image(c: Any, at: Latent) -> torch.Tensor:
    return _tensor(at.batch, c.in_channels, at.height, at.width)


def _video(c: Any, at: Latent) -> torch.Tensor:
    return _tensor(at.batch, c.in_channels, at.frames, at.height, at.width)


def _packed(c: Any, at: Latent) -> torch.Tensor:
    """Latents of 2 x 2 places as one token."""
    return _tensor(at.batch, (at.height // 2) * (at.width // 2), c.in_channels)


def _words(at: Latent, width: int) -> torch.Tensor:
    return _tensor(at.batch, at.tokens, width)


def _flux(c: Any, at: Latent) -> Given:
    image = _packed(c, at)
    axes = len(c.axes_dims_rope)
    given = {
        "hidden_states": image,
        "encoder_hidden_states": _words(at, c.joint_attention_dim),
        "timestep": _times(at),
        "img_ids": _tensor(image.shape[1], axes),
        "txt_ids": _tensor(at.tokens, axes),
    }
    if getattr(c, "pooled_projection_dim", None):
        given["pooled_projections"] = _tensor(at.batch, c.pooled_projection_dim)
    if getattr(c, "guidance_embeds", False):
        given["guidance"] = _times(at)
    return given


def _chroma(c: Any, at: Latent) -> Given:
    given = _flux(c, at)
    return {**given, "attention_mask": _tensor(at.batch, at.tokens + given["hidden_states"].shape[1])}


def _stable_diffusion_3(c: Any, at: Latent) -> Given:
    return {
        "hidden_states": _image(c, at),
        "encoder_hidden_states": _words(at, c.joint_attention_dim),
        "pooled_projections": _tensor(at.batch, c.pooled_projection_dim),
        "timestep": _times(at),
    }


def _pixart(c: Any, at: Latent) -> Given:
    extra: Given = {"resolution": None, "aspect_ratio": None}
    if c.sample_size == 128 and getattr(c, "use_additional_conditions", None) is not False:
        extra = {"resolution": _tensor(at.batch, 2), "aspect_ratio": _tensor(at.batch, 1)}
    return {
        "hidden_states": _image(c, at),
        "encoder_hidden_states": _words(at, c.caption_channels),
        "encoder_attention_mask": _mask(at),
        "timestep": _times(at),
        "added_cond_kwargs": extra,
    }


def _sana(c: Any, at: Latent) -> Given:
    given = {
        "hidden_states": _image(c, at),
        "encoder_hidden_states": _words(at, c.caption_channels),
        "encoder_attention_mask": _mask(at),
        "timestep": _times(at),
    }
    return {**given, "guidance": _times(at)} if getattr(c, "guidance_embeds", False) else given


def _aura_flow(c: Any, at: Latent) -> Given:
    return {
        "hidden_states": _image(c, at),
        "encoder_hidden_states": _words(at, c.joint_attention_dim),
        "timestep": _times(at),
    }


def _cog_video(c: Any, at: Latent) -> Given:
    deep = math.ceil(at.frames / (c.patch_size_t or 1))  # the pipeline draws as many frames as fill its patches
    frames = deep * (c.patch_size_t or 1)
    given: Given = {
        "hidden_states": _tensor(at.batch, frames, c.in_channels, at.height, at.width),
        "encoder_hidden_states": _words(at, c.text_embed_dim),
        "timestep": _times(at),
    }
    if c.use_rotary_positional_embeddings:
        places = deep * (at.height // c.patch_size) * (at.width // c.patch_size)
        given["image_rotary_emb"] = tuple(_tensor(places, c.attention_head_dim) for _ in range(2))
    return given


def _ltx(c: Any, at: Latent) -> Given:
    return {
        "hidden_states": _tensor(at.batch, at.frames * at.height * at.width, c.in_channels),
        "encoder_hidden_states": _words(at, c.caption_channels),
        "timestep": _times(at),
        "encoder_attention_mask": _mask(at),
        "num_frames": at.frames,
        "height": at.height,
        "width": at.width,
        "rope_interpolation_scale": (8 / 25, 32, 32),
    }


def _wan(c: Any, at: Latent) -> Given:
    return {
        "hidden_states": _video(c, at),
        "encoder_hidden_states": _words(at, c.text_dim),
        "timestep": _times(at),
    }


def _hunyuan_video(c: Any, at: Latent) -> Given:
    given = {
        "hidden_states": _video(c, at),
        "encoder_hidden_states": _words(at, c.text_embed_dim),
        "encoder_attention_mask": _mask(at),
        "pooled_projections": _tensor(at.batch, c.pooled_projection_dim),
        "timestep": _times(at),
    }
    return {**given, "guidance": _times(at)} if c.guidance_embeds else given


def _hunyuan_dit(c: Any, at: Latent) -> Given:
    places = (at.height // c.patch_size) * (at.width // c.patch_size)
    width = c.attention_head_dim
    given = {
        "hidden_states": _image(c, at),
        "timestep": _times(at),
        "encoder_hidden_states": _tensor(at.batch, c.text_len, c.cross_attention_dim),
        "text_embedding_mask": _tensor(at.batch, c.text_len),
        "encoder_hidden_states_t5": _tensor(at.batch, c.text_len_t5, c.cross_attention_dim_t5),
        "text_embedding_mask_t5": _tensor(at.batch, c.text_len_t5),
        "image_rotary_emb": tuple(_tensor(places, width) for _ in range(2)),
    }
    if c.use_style_cond_and_image_meta_size:
        given |= {"image_meta_size": _tensor(at.batch, 6), "style": _tensor(at.batch, dtype=torch.int64)}
    return given


def _stable_audio(c: Any, at: Latent) -> Given:
    """``tokens`` and two more: where the sound begins and ends."""
    length = at.width
    return {
        "hidden_states": _tensor(at.batch, c.in_channels, length),
        "timestep": _times(at),
        "encoder_hidden_states": _tensor(at.batch, at.tokens + 2, c.cross_attention_input_dim),
        "global_hidden_states": _tensor(at.batch, 1, c.global_states_input_dim),
        "rotary_embedding": tuple(_tensor(length + 1, c.attention_head_dim // 2) for _ in range(2)),
    }


def _lumina(c: Any, at: Latent) -> Given:
    side = max(at.height, at.width) // c.patch_size
    return {
        "hidden_states": _image(c, at),
        "timestep": _times(at),
        "encoder_hidden_states": _words(at, c.cross_attention_dim),
        "encoder_mask": _mask(at),
        "image_rotary_emb": _tensor(side, side, c.hidden_size // c.num_attention_heads // 2, dtype=torch.complex64),
        "cross_attention_kwargs": {"base_sequence_length": 4096},
    }


def _mochi(c: Any, at: Latent) -> Given:
    return {
        "hidden_states": _video(c, at),
        "encoder_hidden_states": _words(at, c.text_embed_dim),
        # On the host: its attention takes the tokens that hold, so that how many is asked; a prompt of full length.
        "encoder_attention_mask": torch.ones((at.batch, at.tokens), dtype=torch.bool, device="cpu"),
        "timestep": _times(at),
    }


def _qwen_image(c: Any, at: Latent) -> Given:
    image = _packed(c, at)
    return {
        "hidden_states": image,
        "encoder_hidden_states": _words(at, c.joint_attention_dim),
        "timestep": _times(at),
        "img_shapes": [[(1, at.height // 2, at.width // 2)]] * at.batch,
    }


def _cog_view(c: Any, at: Latent) -> Given:
    return {
        "hidden_states": _image(c, at),
        "encoder_hidden_states": _words(at, c.text_embed_dim),
        "timestep": _times(at),
        "original_size": _tensor(at.batch, 2),
        "target_size": _tensor(at.batch, 2),
        "crop_coords": _tensor(at.batch, 2),
    }


def _dit(c: Any, at: Latent) -> Given:
    return {
        "hidden_states": _image(c, at),
        "timestep": _times(at),
        "class_labels": _tensor(at.batch, dtype=torch.int64),
    }


def _cascade(c: Any, at: Latent) -> Given:
    given: Given = {
        "sample": _image(c, at),
        "timestep_ratio": _times(at),
        "clip_text_pooled": _tensor(at.batch, 1, c.clip_text_pooled_in_channels),
    }
    if c.clip_text_in_channels:
        given["clip_text"] = _words(at, c.clip_text_in_channels)
    if c.clip_image_in_channels:
        given["clip_img"] = _tensor(at.batch, 1, c.clip_image_in_channels)
    if c.effnet_in_channels:  # the prior's latents: 24 a side for 1024 pixels, where this network has 256
        given["effnet"] = _tensor(
            at.batch, c.effnet_in_channels, max(at.height * 24 // 256, 1), max(at.width * 24 // 256, 1)
        )
    return given


def _kandinsky_3(c: Any, at: Latent) -> Given:
    return {
        "sample": _image(c, at),
        "timestep": _times(at),
        "encoder_hidden_states": _words(at, c.encoder_hid_dim),
        "encoder_attention_mask": _mask(at, torch.float32),
    }


def _unet(c: Any, at: Latent) -> Given:
    width = c.cross_attention_dim
    width = width[0] if isinstance(width, list | tuple) else width
    given: Given = {"sample": _image(c, at), "timestep": _times(at), "encoder_hidden_states": _words(at, width)}
    kind = getattr(c, "addition_embed_type", None)
    if kind == "text_time":
        pooled = c.projection_class_embeddings_input_dim - 6 * c.addition_time_embed_dim
        given["added_cond_kwargs"] = {"text_embeds": _tensor(at.batch, pooled), "time_ids": _tensor(at.batch, 6)}
    elif kind == "image":
        given["encoder_hidden_states"] = None
        given["added_cond_kwargs"] = {"image_embeds": _tensor(at.batch, c.encoder_hid_dim)}
    elif getattr(c, "encoder_hid_dim", None):
        given["encoder_hidden_states"] = _words(at, c.encoder_hid_dim)
    if getattr(c, "time_cond_proj_dim", None):
        given["timestep_cond"] = _tensor(at.batch, c.time_cond_proj_dim)
    if getattr(c, "class_embed_type", None) == "simple_projection":
        given["class_labels"] = _tensor(at.batch, c.projection_class_embeddings_input_dim)
    return given


def _audio_unet(c: Any, at: Latent) -> Given:
    """AudioLDM2: eight states of the language model, and the words of T5."""
    widths = c.cross_attention_dim
    flat = [w for row in widths for w in (row if isinstance(row, list | tuple) else [row]) if w]
    return {
        "sample": _image(c, at),
        "timestep": _times(at),
        "encoder_hidden_states": _tensor(at.batch, 8, flat[0]),
        "encoder_hidden_states_1": _words(at, max(flat)),
        "encoder_attention_mask_1": _mask(at),
    }


def _unet_3d(c: Any, at: Latent) -> Given:
    return {
        "sample": _video(c, at),
        "timestep": _times(at),
        "encoder_hidden_states": _words(at, c.cross_attention_dim),
    }


def _stable_video(c: Any, at: Latent) -> Given:
    return {
        "sample": _tensor(at.batch, at.frames, c.in_channels, at.height, at.width),
        "timestep": _times(at),
        "encoder_hidden_states": _tensor(at.batch, 1, c.cross_attention_dim),
        "added_time_ids": _tensor(at.batch, 3),
    }


def _unconditional(c: Any, at: Latent) -> Given:
    return {"sample": _image(c, at), "timestep": _times(at)}


def _prior(c: Any, at: Latent) -> Given:
    return {
        "hidden_states": _tensor(at.batch, c.embedding_dim),
        "timestep": _times(at),
        "proj_embedding": _tensor(at.batch, c.embedding_proj_dim or c.embedding_dim),
        "encoder_hidden_states": _tensor(at.batch, c.num_embeddings, c.embedding_dim),
        "attention_mask": _tensor(at.batch, c.num_embeddings, dtype=torch.bool),
    }


def _allegro(c: Any, at: Latent) -> Given:
    deep, high, wide = at.frames, at.height // c.patch_size, at.width // c.patch_size
    grids = tuple(_tensor(1, deep * high * wide, dtype=torch.int64) for _ in range(3))
    size = c.attention_head_dim // 3
    axes = tuple(tuple(_tensor(n, size) for _ in range(2)) for n in (deep, high, wide))
    return {
        "hidden_states": _video(c, at),
        "encoder_hidden_states": _words(at, c.caption_channels),
        "timestep": _times(at),
        "attention_mask": _tensor(at.batch, deep, at.height, at.width),
        "encoder_attention_mask": _mask(at, torch.float32),
        "image_rotary_emb": (axes, grids),
    }


def _latte(c: Any, at: Latent) -> Given:
    return {
        "hidden_states": _video(c, at),
        "timestep": _times(at),
        "encoder_hidden_states": _words(at, c.caption_channels),
    }


# Classes of networks that run once a step -> what they are fed.
DENOISERS: dict[str, Callable[[Any, Latent], Given]] = {
    "FluxTransformer2DModel": _flux,
    "Flux2Transformer2DModel": _flux,
    "BriaTransformer2DModel": _flux,
    "ChromaTransformer2DModel": _chroma,
    "SD3Transformer2DModel": _stable_diffusion_3,
    "PixArtTransformer2DModel": _pixart,
    "Transformer2DModel": _pixart,
    "SanaTransformer2DModel": _sana,
    "AuraFlowTransformer2DModel": _aura_flow,
    "CogVideoXTransformer3DModel": _cog_video,
    "LTXVideoTransformer3DModel": _ltx,
    "WanTransformer3DModel": _wan,
    "HunyuanVideoTransformer3DModel": _hunyuan_video,
    "HunyuanDiT2DModel": _hunyuan_dit,
    "StableAudioDiTModel": _stable_audio,
    "LuminaNextDiT2DModel": _lumina,
    "Lumina2Transformer2DModel": lambda c, at: {
        "hidden_states": _image(c, at),
        "timestep": _times(at),
        "encoder_hidden_states": _words(at, c.cap_feat_dim),
        "encoder_attention_mask": torch.ones(at.batch, at.tokens, dtype=torch.bool),  # its sums are lengths
    },
    "MochiTransformer3DModel": _mochi,
    "QwenImageTransformer2DModel": _qwen_image,
    "CogView4Transformer2DModel": _cog_view,
    "CogView3PlusTransformer2DModel": _cog_view,
    "DiTTransformer2DModel": _dit,
    "StableCascadeUNet": _cascade,
    "Kandinsky3UNet": _kandinsky_3,
    "UNet2DConditionModel": _unet,
    "AudioLDM2UNet2DConditionModel": _audio_unet,
    "UNet3DConditionModel": _unet_3d,
    "UNetMotionModel": _unet_3d,
    "UNetSpatioTemporalConditionModel": _stable_video,
    "UNet2DModel": _unconditional,
    "PriorTransformer": _prior,
    "AllegroTransformer3DModel": _allegro,
    "LatteTransformer3DModel": _latte,
}


def _power(name: str) -> Callable[[Any], int]:
    return lambda c: 2 ** (len(getattr(c, name)) - 1)


def _same(value: int) -> Callable[[Any], int]:
    return lambda c: value


@dataclass(frozen=True)
class Decoder:
    """Of a class of autoencoders: pixels a latent's side stands for, frames one stands for, the latents' channels."""

    side: Callable[[Any], int]
    frames: Callable[[Any], int] = lambda c: 1
    channels: str = "latent_channels"
    video: bool = False


DECODERS: dict[str, Decoder] = {
    "AutoencoderKL": Decoder(_power("block_out_channels")),
    "AutoencoderTiny": Decoder(_same(8)),
    "AutoencoderDC": Decoder(_power("encoder_block_out_channels")),
    "VQModel": Decoder(_power("block_out_channels")),
    "AutoencoderKLCogVideoX": Decoder(
        _power("block_out_channels"), lambda c: int(c.temporal_compression_ratio), video=True
    ),
    "AutoencoderKLHunyuanVideo": Decoder(
        lambda c: int(c.spatial_compression_ratio), lambda c: int(c.temporal_compression_ratio), video=True
    ),
    "AutoencoderKLWan": Decoder(_same(8), _same(4), "z_dim", video=True),
    "AutoencoderKLQwenImage": Decoder(_same(8), _same(4), "z_dim", video=True),
    "AutoencoderKLLTXVideo": Decoder(_same(32), _same(8), video=True),
    "AutoencoderKLMochi": Decoder(_same(8), _same(6), video=True),
    "AutoencoderKLAllegro": Decoder(
        _power("block_out_channels"), lambda c: int(c.temporal_compression_ratio), video=True
    ),
    "AutoencoderKLTemporalDecoder": Decoder(_power("block_out_channels")),
    "AutoencoderOobleck": Decoder(lambda c: math.prod(c.downsampling_ratios), channels="decoder_input_channels"),
    "AutoencoderKLFlux2": Decoder(_power("block_out_channels")),
}


class Decoding(torch.nn.Module):
    """The decoder's half of an autoencoder."""

    def __init__(self, autoencoder: Any, frames: int) -> None:
        super().__init__()
        self.autoencoder, self.frames = autoencoder, frames

    def forward(self, latents: torch.Tensor) -> torch.Tensor:
        """Latents to pixels, frames or samples."""
        more: Given = {}
        if type(self.autoencoder).__name__ == "AutoencoderKLTemporalDecoder":
            more["num_frames"] = self.frames
        elif type(self.autoencoder).__name__ == "VQModel":
            more["force_not_quantize"] = True
        elif getattr(self.autoencoder.config, "timestep_conditioning", False):
            more["temb"] = torch.empty(latents.shape[0], device=latents.device)
        return self.autoencoder.decode(latents, return_dict=False, **more)[0]
