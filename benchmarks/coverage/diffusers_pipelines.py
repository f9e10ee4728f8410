"""Public pipelines of diffusers: what differs from the defaults of its classes.

Written down here, not downloaded: they show that networks of these classes are read at about their public size. A
pipeline's own folder may say other sizes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Component = tuple[str, str, dict[str, Any]]


def clip(
    width: int, layers: int, heads: int, act: str = "quick_gelu", projection: int = 768, kind: str = ""
) -> Component:
    """A text encoder of CLIP."""
    content = {
        "model_type": "clip_text_model",
        "hidden_size": width,
        "intermediate_size": 4 * width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "hidden_act": act,
        "projection_dim": projection,
        "vocab_size": 49408,
        "max_position_embeddings": 77,
    }
    return "transformers", f"CLIPTextModel{kind}", content


def t5(width: int, ff: int, layers: int, heads: int, vocabulary: int = 32128, kind: str = "T5") -> Component:
    """An encoder of T5 1.1, mT5 or UMT5."""
    content = {
        "model_type": kind.lower(),
        "d_model": width,
        "d_ff": ff,
        "d_kv": 64,
        "num_layers": layers,
        "num_heads": heads,
        "vocab_size": vocabulary,
        "feed_forward_proj": "gated-gelu",
        "is_encoder_decoder": True,
    }
    return "transformers", f"{kind}EncoderModel", content


def language(
    kind: str, name: str, width: int, ff: int, layers: int, heads: int, kv: int, words: int, **more: Any
) -> Component:
    """A decoder whose hidden states are read."""
    content = {
        "model_type": kind,
        "hidden_size": width,
        "intermediate_size": ff,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "vocab_size": words,
    }
    return "transformers", name, content | more


CLIP_L = clip(768, 12, 12)
CLIP_L_PROJECTED = clip(768, 12, 12, kind="WithProjection")
CLIP_H = clip(1024, 23, 16, "gelu", 512)
CLIP_G = clip(1280, 32, 20, "gelu", 1280, "WithProjection")
T5_XXL = t5(4096, 10240, 24, 64)
GEMMA_2 = language("gemma2", "Gemma2Model", 2304, 9216, 26, 8, 4, 256000, head_dim=256)
_FOUR = ["DownEncoderBlock2D"] * 4, ["UpDecoderBlock2D"] * 4


def vae(channels: int = 4, **more: Any) -> Component:
    """The autoencoder of Stable Diffusion and of what came after it."""
    down, up = _FOUR
    content = {
        "down_block_types": down,
        "up_block_types": up,
        "block_out_channels": [128, 256, 512, 512],
        "layers_per_block": 2,
        "latent_channels": channels,
    }
    return "diffusers", "AutoencoderKL", content | more


VAE_16 = vae(16, use_quant_conv=False, use_post_quant_conv=False)
_DC = {
    "latent_channels": 32,
    "encoder_block_types": ["ResBlock"] * 3 + ["EfficientViTBlock"] * 3,
    "decoder_block_types": ["ResBlock"] * 3 + ["EfficientViTBlock"] * 3,
    "encoder_block_out_channels": [128, 256, 512, 512, 1024, 1024],
    "decoder_block_out_channels": [128, 256, 512, 512, 1024, 1024],
    "upsample_block_type": "interpolate",
    "downsample_block_type": "Conv",
}
_XL = {
    "sample_size": 128,
    "block_out_channels": [320, 640, 1280],
    "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
    "up_block_types": ["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"],
    "attention_head_dim": [5, 10, 20],
    "transformer_layers_per_block": [1, 2, 10],
    "cross_attention_dim": 2048,
    "use_linear_projection": True,
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": 256,
    "projection_class_embeddings_input_dim": 2816,
}
_SD3 = {
    "sample_size": 128,
    "num_layers": 24,
    "num_attention_heads": 24,
    "caption_projection_dim": 1536,
    "pos_embed_max_size": 192,
}
_PIXART = {
    "num_attention_heads": 16,
    "attention_head_dim": 72,
    "num_layers": 28,
    "cross_attention_dim": 1152,
    "caption_channels": 4096,
    "sample_size": 128,
    "norm_type": "ada_norm_single",
}
_QWEN_VL = {
    "model_type": "qwen2_5_vl",
    "text_config": {
        "model_type": "qwen2_5_vl_text",
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152064,
        "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
    },
}
_CASCADE_BLOCKS = ["SDCascadeResBlock", "SDCascadeTimestepBlock", "SDCascadeAttnBlock"]


def _d(name: str, **content: Any) -> Component:
    return "diffusers", name, content


def _unet(**content: Any) -> Component:
    return _d("UNet2DConditionModel", **content)


_MOVQ = _d(
    "VQModel",
    block_out_channels=[128, 256, 256, 512],
    down_block_types=["DownEncoderBlock2D"] * 3 + ["AttnDownEncoderBlock2D"],
    up_block_types=["AttnUpDecoderBlock2D"] + ["UpDecoderBlock2D"] * 3,
    latent_channels=4,
    layers_per_block=2,
    norm_type="spatial",
    num_vq_embeddings=16384,
    vq_embed_dim=4,
)

PIPELINES: dict[str, tuple[str, dict[str, Component]]] = {
    "stable-diffusion-1.5": (
        "StableDiffusionPipeline",
        {"text_encoder": CLIP_L, "unet": _unet(sample_size=64, cross_attention_dim=768), "vae": vae()},
    ),
    "stable-diffusion-2.1": (
        "StableDiffusionPipeline",
        {
            "text_encoder": CLIP_H,
            "unet": _unet(
                sample_size=96,
                cross_attention_dim=1024,
                attention_head_dim=[5, 10, 20, 20],
                use_linear_projection=True,
            ),
            "vae": vae(),
        },
    ),
    "stable-diffusion-xl": (
        "StableDiffusionXLPipeline",
        {"text_encoder": CLIP_L, "text_encoder_2": CLIP_G, "unet": _unet(**_XL), "vae": vae()},
    ),
    "latent-consistency-dreamshaper": (
        "LatentConsistencyModelPipeline",
        {
            "text_encoder": CLIP_L,
            "unet": _unet(sample_size=96, cross_attention_dim=768, time_cond_proj_dim=256),
            "vae": vae(),
        },
    ),
    "stable-diffusion-3-medium": (
        "StableDiffusion3Pipeline",
        {
            "text_encoder": CLIP_L_PROJECTED,
            "text_encoder_2": CLIP_G,
            "text_encoder_3": T5_XXL,
            "transformer": _d("SD3Transformer2DModel", **_SD3),
            "vae": VAE_16,
        },
    ),
    "stable-diffusion-3.5-large": (
        "StableDiffusion3Pipeline",
        {
            "text_encoder": CLIP_L_PROJECTED,
            "text_encoder_2": CLIP_G,
            "text_encoder_3": T5_XXL,
            "transformer": _d(
                "SD3Transformer2DModel",
                **(_SD3 | {"num_layers": 38, "num_attention_heads": 38, "caption_projection_dim": 2432}),
                qk_norm="rms_norm",
            ),
            "vae": VAE_16,
        },
    ),
    "flux.1-dev": (
        "FluxPipeline",
        {
            "text_encoder": CLIP_L,
            "text_encoder_2": T5_XXL,
            "transformer": _d("FluxTransformer2DModel", guidance_embeds=True),
            "vae": VAE_16,
        },
    ),
    "flux.1-schnell": (
        "FluxPipeline",
        {
            "text_encoder": CLIP_L,
            "text_encoder_2": T5_XXL,
            "transformer": _d("FluxTransformer2DModel", guidance_embeds=False),
            "vae": VAE_16,
        },
    ),
    "chroma": (
        "ChromaPipeline",
        {"text_encoder": T5_XXL, "transformer": _d("ChromaTransformer2DModel"), "vae": VAE_16},
    ),
    "pixart-alpha": (
        "PixArtAlphaPipeline",
        {"text_encoder": T5_XXL, "transformer": _d("PixArtTransformer2DModel", **_PIXART), "vae": vae()},
    ),
    "pixart-sigma": (
        "PixArtSigmaPipeline",
        {
            "text_encoder": T5_XXL,
            "transformer": _d("PixArtTransformer2DModel", **_PIXART, use_additional_conditions=False),
            "vae": vae(),
        },
    ),
    "kandinsky-2.2-prior": (
        "KandinskyV22PriorPipeline",
        {
            "text_encoder": CLIP_G,
            "prior": _d("PriorTransformer", embedding_dim=1280, num_embeddings=77),
        },
    ),
    "kandinsky-2.2-decoder": (
        "KandinskyV22Pipeline",
        {
            "unet": _unet(
                sample_size=64,
                block_out_channels=[384, 768, 1152, 1536],
                down_block_types=[
                    "ResnetDownsampleBlock2D",
                    "SimpleCrossAttnDownBlock2D",
                    "SimpleCrossAttnDownBlock2D",
                    "SimpleCrossAttnDownBlock2D",
                ],
                up_block_types=[
                    "SimpleCrossAttnUpBlock2D",
                    "SimpleCrossAttnUpBlock2D",
                    "SimpleCrossAttnUpBlock2D",
                    "ResnetUpsampleBlock2D",
                ],
                mid_block_type="UNetMidBlock2DSimpleCrossAttn",
                layers_per_block=3,
                cross_attention_dim=768,
                attention_head_dim=64,
                encoder_hid_dim=1280,
                encoder_hid_dim_type="image_proj",
                addition_embed_type="image",
                resnet_time_scale_shift="scale_shift",
                out_channels=8,
            ),
            "movq": _MOVQ,
        },
    ),
    "kandinsky-3": (
        "Kandinsky3Pipeline",
        {
            "text_encoder": T5_XXL,
            "unet": _d("Kandinsky3UNet"),
            "movq": _MOVQ,
        },
    ),
    "stable-cascade-prior": (
        "StableCascadePriorPipeline",
        {
            "text_encoder": CLIP_G,
            "prior": _d("StableCascadeUNet", clip_text_in_channels=1280, clip_image_in_channels=768),
        },
    ),
    "stable-cascade-decoder": (
        "StableCascadeDecoderPipeline",
        {
            "text_encoder": CLIP_G,
            "decoder": _d(
                "StableCascadeUNet",
                in_channels=4,
                out_channels=4,
                patch_size=2,
                conditioning_dim=1280,
                block_out_channels=[320, 640, 1280, 1280],
                num_attention_heads=[0, 0, 20, 20],
                down_num_layers_per_block=[2, 6, 28, 6],
                up_num_layers_per_block=[6, 28, 6, 2],
                down_blocks_repeat_mappers=[1, 1, 1, 1],
                up_blocks_repeat_mappers=[3, 3, 2, 2],
                block_types_per_layer=[_CASCADE_BLOCKS[:2]] * 2 + [_CASCADE_BLOCKS] * 2,
                effnet_in_channels=16,
                pixel_mapper_in_channels=3,
                timestep_conditioning_type=["sca"],
                dropout=[0, 0, 0.1, 0.1],
            ),
            "vqgan": ("wuerstchen", "PaellaVQModel", {}),
        },
    ),
    "aura-flow": (
        "AuraFlowPipeline",
        {
            "text_encoder": t5(2048, 5120, 24, 32, kind="UMT5", vocabulary=32128),
            "transformer": _d("AuraFlowTransformer2DModel"),
            "vae": vae(),
        },
    ),
    "sana-1.6b": (
        "SanaPipeline",
        {
            "text_encoder": GEMMA_2,
            "transformer": _d("SanaTransformer2DModel", caption_channels=2304),
            "vae": _d("AutoencoderDC", **_DC),
        },
    ),
    "cogvideox-2b": (
        "CogVideoXPipeline",
        {
            "text_encoder": T5_XXL,
            "transformer": _d("CogVideoXTransformer3DModel"),
            "vae": _d("AutoencoderKLCogVideoX"),
        },
    ),
    "ltx-video": (
        "LTXPipeline",
        {
            "text_encoder": T5_XXL,
            "transformer": _d("LTXVideoTransformer3DModel"),
            "vae": _d("AutoencoderKLLTXVideo"),
        },
    ),
    "wan-2.1-1.3b": (
        "WanPipeline",
        {
            "text_encoder": t5(4096, 10240, 24, 64, 256384, "UMT5"),
            "transformer": _d("WanTransformer3DModel", num_attention_heads=12, ffn_dim=8960, num_layers=30),
            "vae": _d("AutoencoderKLWan"),
        },
    ),
    "hunyuan-video": (
        "HunyuanVideoPipeline",
        {
            "text_encoder": language("llama", "LlamaModel", 4096, 14336, 32, 32, 8, 128320),
            "text_encoder_2": CLIP_L,
            "transformer": _d("HunyuanVideoTransformer3DModel"),
            "vae": _d("AutoencoderKLHunyuanVideo"),
        },
    ),
    "hunyuan-dit": (
        "HunyuanDiTPipeline",
        {
            "text_encoder": (
                "transformers",
                "BertModel",
                {"model_type": "bert", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24}
                | {"num_attention_heads": 16, "vocab_size": 47020},
            ),
            "text_encoder_2": t5(2048, 5120, 24, 32, 250112),
            "transformer": _d(
                "HunyuanDiT2DModel",
                in_channels=4,
                patch_size=2,
                sample_size=128,
                hidden_size=1408,
                num_layers=40,
                mlp_ratio=4.3637,
            ),
            "vae": vae(),
        },
    ),
    "audioldm2": (
        "AudioLDM2Pipeline",
        {
            "text_encoder_2": t5(1024, 2816, 24, 16),
            "unet": _d(
                "AudioLDM2UNet2DConditionModel",
                sample_size=256,
                in_channels=8,
                out_channels=8,
                block_out_channels=[128, 256, 384, 640],
                attention_head_dim=8,
                cross_attention_dim=[[None, 768, 1024]] * 4,
                down_block_types=["DownBlock2D"] + ["CrossAttnDownBlock2D"] * 3,
                up_block_types=["CrossAttnUpBlock2D"] * 3 + ["UpBlock2D"],
            ),
            "vae": vae(
                8,
                in_channels=1,
                out_channels=1,
                block_out_channels=[128, 256, 512],
                down_block_types=["DownEncoderBlock2D"] * 3,
                up_block_types=["UpDecoderBlock2D"] * 3,
            ),
            "vocoder": ("transformers", "SpeechT5HifiGan", {"model_type": "hifigan", "model_in_dim": 64}),
        },
    ),
    "stable-audio-open": (
        "StableAudioPipeline",
        {
            "text_encoder": t5(768, 3072, 12, 12),
            "transformer": _d("StableAudioDiTModel"),
            "vae": _d("AutoencoderOobleck"),
        },
    ),
    "lumina-next": (
        "LuminaPipeline",
        {
            "text_encoder": language("gemma", "GemmaModel", 2048, 16384, 18, 8, 1, 256000, head_dim=256),
            "transformer": _d("LuminaNextDiT2DModel", num_layers=24, num_kv_heads=8, num_attention_heads=16),
            "vae": vae(),
        },
    ),
    "lumina-image-2": (
        "Lumina2Pipeline",
        {
            "text_encoder": GEMMA_2,
            "transformer": _d(
                "Lumina2Transformer2DModel", cap_feat_dim=2304, axes_dim_rope=[32, 32, 32], axes_lens=[300, 512, 512]
            ),
            "vae": VAE_16,
        },
    ),
    "mochi-1": (
        "MochiPipeline",
        {"text_encoder": T5_XXL, "transformer": _d("MochiTransformer3DModel"), "vae": _d("AutoencoderKLMochi")},
    ),
    "qwen-image": (
        "QwenImagePipeline",
        {
            "text_encoder": ("transformers", "Qwen2_5_VLForConditionalGeneration", _QWEN_VL),
            "transformer": _d("QwenImageTransformer2DModel"),
            "vae": _d("AutoencoderKLQwenImage"),
        },
    ),
    "cogview3-plus": (
        "CogView3PlusPipeline",
        {"text_encoder": T5_XXL, "transformer": _d("CogView3PlusTransformer2DModel"), "vae": vae(16)},
    ),
    "cogview4": (
        "CogView4Pipeline",
        {
            "text_encoder": language("glm", "GlmModel", 4096, 13696, 40, 32, 2, 151552),
            "transformer": _d("CogView4Transformer2DModel", num_attention_heads=32, attention_head_dim=128),
            "vae": VAE_16,
        },
    ),
    "dit-xl-2": ("DiTPipeline", {"transformer": _d("DiTTransformer2DModel", out_channels=8), "vae": vae()}),
    "ddpm-cifar10": (
        "DDPMPipeline",
        {
            "unet": _d(
                "UNet2DModel",
                sample_size=32,
                block_out_channels=[128, 256, 256, 256],
                down_block_types=["DownBlock2D", "AttnDownBlock2D", "DownBlock2D", "DownBlock2D"],
                up_block_types=["UpBlock2D", "UpBlock2D", "AttnUpBlock2D", "UpBlock2D"],
                attention_head_dim=None,
            )
        },
    ),
    "text-to-video-1.7b": (
        "TextToVideoSDPipeline",
        {"text_encoder": CLIP_H, "unet": _d("UNet3DConditionModel", sample_size=32), "vae": vae()},
    ),
    "stable-video-diffusion": (
        "StableVideoDiffusionPipeline",
        {
            "unet": _d("UNetSpatioTemporalConditionModel", sample_size=96, num_frames=14),
            "vae": _d(
                "AutoencoderKLTemporalDecoder",
                block_out_channels=[128, 256, 512, 512],
                down_block_types=["DownEncoderBlock2D"] * 4,
                layers_per_block=2,
            ),
        },
    ),
    "allegro": (
        "AllegroPipeline",
        {
            "text_encoder": T5_XXL,
            "transformer": _d("AllegroTransformer3DModel"),
            "vae": _d("AutoencoderKLAllegro"),
        },
    ),
}


def write(name: str, folder: Path) -> Path:
    """The pipeline as the hub has it: model_index.json and a config.json in a folder for every network."""
    pipeline, components = PIPELINES[name]
    index: dict[str, Any] = {"_class_name": pipeline, "_diffusers_version": "0.42.1"}
    index |= {"scheduler": ["diffusers", "EulerDiscreteScheduler"]}
    for key, (library, kind, content) in components.items():
        index[key] = [library, kind]
        (folder / key).mkdir(parents=True, exist_ok=True)
        named = {"_class_name": kind} if library != "transformers" else {"architectures": [kind]}
        (folder / key / "config.json").write_text(json.dumps(named | content))
    (folder / "model_index.json").write_text(json.dumps(index, indent=2))
    return folder
