"""Parts of a configuration that are networks of their own, by name: ``openai/whisper-large-v3:encoder``.

The encoder of an encoder-decoder (``encoder``; of two configurations in one ``decoder`` too), and what a configuration
describes within itself: ``text``, ``vision``, ``audio`` and the like, which are the towers of CLIP and of models that
read pictures or sound. A part is a configuration as well, so whatever takes a model takes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

from perfpass.errors import UnsupportedError, shown
from perfpass.text import nearest

# Model type -> the class of transformers that is its encoder alone.
_ENCODERS = {
    "bart": "BartEncoder",
    "bigbird_pegasus": "BigBirdPegasusEncoder",
    "blenderbot": "BlenderbotEncoder",
    "blenderbot-small": "BlenderbotSmallEncoder",
    "led": "LEDEncoder",
    "longt5": "LongT5EncoderModel",
    "m2m_100": "M2M100Encoder",
    "marian": "MarianEncoder",
    "mbart": "MBartEncoder",
    "moonshine": "MoonshineEncoder",
    "mt5": "MT5EncoderModel",
    "mvp": "MvpEncoder",
    "nllb-moe": "NllbMoeEncoder",
    "pegasus": "PegasusEncoder",
    "pegasus_x": "PegasusXEncoder",
    "plbart": "PLBartEncoder",
    "speech_to_text": "Speech2TextEncoder",
    "t5": "T5EncoderModel",
    "umt5": "UMT5EncoderModel",
    "whisper": "WhisperEncoder",
}
# Towers that a configuration may leave to the defaults of their types, which are named after it.
_TOWERS = {
    **dict.fromkeys(("clip", "siglip", "siglip2", "chinese_clip", "align", "owlvit", "owlv2"), ("text", "vision")),
    "clap": ("text",),
}
_SAME_KEYS = ("encoder", "decoder")  # of two configurations in one
_INNER = ("text", "vision", "audio")
# Types within others that no AutoModel makes -> their classes.
_CLASSES = {
    "align_text_model": "AlignTextModel",
    "align_vision_model": "AlignVisionModel",
    "blip_2_vision_model": "Blip2VisionModel",
    "blip_text_model": "BlipTextModel",
    "blip_vision_model": "BlipVisionModel",
    "chinese_clip_text_model": "ChineseCLIPTextModel",
    "clap_text_model": "ClapTextModel",
    "git_vision_model": "GitVisionModel",
    "glm4v_vision": "Glm4vVisionModel",
    "idefics2_vision": "Idefics2VisionTransformer",
    "idefics3_vision": "Idefics3VisionTransformer",
    "llama4_vision_model": "Llama4VisionModel",
    "mllama_text_model": "MllamaForCausalLM",
    "owlv2_text_model": "Owlv2TextModel",
    "owlv2_vision_model": "Owlv2VisionModel",
    "owlvit_text_model": "OwlViTTextModel",
    "owlvit_vision_model": "OwlViTVisionModel",
    "pix2struct_text_model": "Pix2StructTextModel",
    "pix2struct_vision_model": "Pix2StructVisionModel",
    "qwen2_5_vl_vision": "Qwen2_5_VisionTransformerPretrainedModel",
    "qwen2_vl_vision": "Qwen2VisionTransformerPretrainedModel",
    "qwen3_vl_moe_vision": "Qwen3VLMoeVisionModel",
    "qwen3_vl_vision": "Qwen3VLVisionModel",
    "siglip2_text_model": "Siglip2TextModel",
    "siglip_text_model": "SiglipTextModel",
    "smolvlm_vision": "SmolVLMVisionTransformer",
}
# Models whose published configurations name the vision tower's type after the whole, or not at all -> that type.
_VISION = {kind: f"{kind}_vision" for kind in ("glm4v", "idefics2", "idefics3", "smolvlm", "qwen2_vl", "qwen2_5_vl",
                                               "qwen3_vl", "qwen3_vl_moe")}  # fmt: skip

# Read more than their name says: the tiles of a picture, a sound cut into pieces of several lengths.
_NEED_MORE = ("mllama_vision_model", "clap_audio_model")
# What transformers' models and people call them.
_ALSO = {
    "text_encoder": "text", "text_model": "text", "language_model": "text", "llm": "text", "decoder": "text",
    "vision_encoder": "vision", "vision_model": "vision", "vision_tower": "vision", "image": "vision",
    "image_encoder": "vision",
    "audio_encoder": "audio", "audio_tower": "audio", "audio_model": "audio",
}  # fmt: skip


def names(content: Mapping[str, Any]) -> tuple[str, ...]:
    """The parts of a configuration; none of one that describes a single network."""
    return tuple(_found(content))


def part(content: Mapping[str, Any], asked: str, where: str) -> tuple[str, dict[str, Any]]:
    """The name of a part and its configuration. Raises UnsupportedError for one that there is not, naming the parts."""
    found = _found(content)
    name = asked.lower().replace("-", "_")
    name = name if name in found else _ALSO.get(name, name)
    if name not in found:
        if not found:
            raise UnsupportedError(
                f"{where} is one network, of which no part has a name, so not {shown(asked)}; ask for {where} alone"
            )
        raise UnsupportedError(
            f"{where} has no part {shown(asked)};{nearest(name, found)} its parts are {', '.join(found)}; "
            f"write {where}:{next(iter(found))}"
        )
    return name, found[name]


def _found(content: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return dict(_each(content))


def _each(content: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    kind = content["model_type"]
    if encoder := _ENCODERS.get(kind):
        yield "encoder", {**content, "architectures": [encoder], "is_encoder_decoder": False}
    for key in _SAME_KEYS:
        if _is_configuration(content.get(key)):
            yield key, dict(content[key])
    for name in _INNER:
        inner = content.get(f"{name}_config")
        if name == "vision" and kind in _VISION and isinstance(inner, Mapping):
            inner = {**inner, "model_type": _VISION[kind]}
        if _is_configuration(inner) and inner["model_type"] not in _NEED_MORE:
            yield name, {**inner, **_class(inner["model_type"])}
        elif name in _TOWERS.get(kind, ()):
            own = f"{kind}_{name}_model"
            yield name, {**(inner or {}), "model_type": own, **_class(own)}


def _is_configuration(value: Any) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping) and isinstance(value.get("model_type"), str)


def _class(kind: str) -> dict[str, list[str]]:
    return {"architectures": [_CLASSES[kind]]} if kind in _CLASSES else {}
