"""Families of transformers as their configuration classes have them by default, and with two layers a stack."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from counted import by_torch, compared
from row import NotMadeError, Reading

from perfpass.importers import huggingface, huggingface_inputs, model_sources, torchvision_schemas

TITLE = "Hugging Face families"
PACKAGES = ("torch", "transformers")
FAMILIES = Path(__file__).with_suffix(".txt").read_text().split()
_LAYERS = frozenset(
    {
        *("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers"),
        *("num_encoder_layers", "num_decoder_layers"),
    }
)
_NAMES = ("stage_names", "out_features")  # follow from the number of layers
_FEW = 2
# Of a published checkpoint, where the defaults alone make no model.
_STATED: dict[str, dict[str, Any]] = {
    "dots1": {"n_routed_experts": 128, "n_shared_experts": 2, "num_experts_per_tok": 6, "topk_group": 1, "n_group": 1},
    "esm": {"vocab_size": 33, "mask_token_id": 32, "pad_token_id": 1, "position_embedding_type": "rotary"},
    "hunyuan_v1_dense": {"head_dim": 128},
    "ministral": {"head_dim": 128},
    "nemotron": {"num_key_value_heads": 8},
    # Of models of images and text that write, the part that writes.
    "idefics": {"architectures": ["IdeficsForVisionText2Text"]},
    "llava": {"architectures": ["LlavaForConditionalGeneration"]},
    "paligemma": {"architectures": ["PaliGemmaForConditionalGeneration"]},
    "qwen2_vl": {"architectures": ["Qwen2VLForConditionalGeneration"]},
    "musicgen_decoder": {"architectures": ["MusicgenForCausalLM"]},
    "xmod": {"default_language": "en_XX"},
}
# Layers that a hybrid has before each kind of layer has come.
_PERIOD = {"jamba": 8, "qwen3_next": 4, "recurrent_gemma": 3, "zamba": 6, "zamba2": 7, "lfm2": 3}
_PERIOD |= dict.fromkeys(("clap", "depth_anything", "funnel", "mask2former", "maskformer", "zamba", "zoedepth"), 99)


def models() -> list[str]:
    """Every family that this release of transformers has, at both sizes."""
    torchvision_schemas.define()
    import transformers

    found = [kind for kind in FAMILIES if kind in transformers.CONFIG_MAPPING]
    return [f"{kind}, {size}" for size in ("two layers", "as published") for kind in found]


def read(model: str) -> Reading:
    """The model on its default inputs, and torch's counter beside it."""
    kind, _, size = model.partition(", ")
    content = {"model_type": kind, **_STATED.get(kind, {})}
    if size != "as published":
        content |= _few_layers(kind, content)
    graph = huggingface.trace_config(content)
    module: Any = model_sources.huggingface(content, dtype="float32", causal=False)
    length = huggingface.DEFAULT_SEQUENCE_LENGTH
    shapes, given = huggingface_inputs.inputs(module, length), huggingface_inputs.values(module, 1, length)
    given |= {"use_cache": True} if model_sources.is_decoder(module) else {}
    return compared(graph, module, by_torch(module, shapes, given))


def _few_layers(kind: str, content: dict[str, Any]) -> dict[str, Any]:
    """What is set so that every stack, of the parts too, has two layers, or the first of each kind."""
    import transformers

    try:
        configuration = transformers.CONFIG_MAPPING[kind](**{k: v for k, v in content.items() if k != "model_type"})
    except Exception as error:
        raise NotMadeError(f"transformers makes no {kind} configuration without values: {error}") from error
    return _changed(configuration, _PERIOD.get(kind, _FEW))


def _changed(configuration: Any, few: int) -> dict[str, Any]:
    """The number of layers, and lists with an entry a layer."""
    held = {name: value for name, value in configuration.to_dict().items() if not name.startswith("_")}
    stacks = {name: value for name, value in held.items() if name in _LAYERS and isinstance(value, int) and value > few}
    found: dict[str, Any] = dict.fromkeys(stacks, few)
    for name, value in held.items():
        part = getattr(configuration, name, None)
        if name in configuration.sub_configs and part is not None and (inside := _changed(part, few)):
            found[name] = {"model_type": part.model_type, **inside}
        elif isinstance(value, list) and len(value) in stacks.values() and name not in _NAMES:
            found[name] = value[:few]
    return found
