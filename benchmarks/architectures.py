"""Real architectures by name: timm, torchvision, and transformers configurations of published models."""

from __future__ import annotations

from functools import cache
from typing import Any

# (name, input shape without the batch): classification, segmentation and video.
TORCHVISION = {
    "alexnet": (3, 224, 224),
    "vgg16_bn": (3, 224, 224),
    "squeezenet1_1": (3, 224, 224),
    "googlenet": (3, 224, 224),
    "inception_v3": (3, 299, 299),
    "densenet121": (3, 224, 224),
    "mnasnet1_0": (3, 224, 224),
    "mobilenet_v2": (3, 224, 224),
    "mobilenet_v3_small": (3, 224, 224),
    "shufflenet_v2_x1_0": (3, 224, 224),
    "resnet50": (3, 224, 224),
    "resnext50_32x4d": (3, 224, 224),
    "wide_resnet50_2": (3, 224, 224),
    "efficientnet_b0": (3, 224, 224),
    "convnext_tiny": (3, 224, 224),
    "vit_b_16": (3, 224, 224),
    "swin_v2_t": (3, 256, 256),
    "maxvit_t": (3, 224, 224),
    "segmentation.fcn_resnet50": (3, 260, 260),
    "segmentation.deeplabv3_mobilenet_v3_large": (3, 260, 260),
    "segmentation.lraspp_mobilenet_v3_large": (3, 260, 260),
    "video.r3d_18": (3, 8, 112, 112),
    "video.s3d": (3, 16, 224, 224),
    "optical_flow.raft_small": None,  # two images
}
_TOKENS = {"input_ids": ((48,), "int64")}
_BOTH_TOKENS = {**_TOKENS, "decoder_input_ids": ((16,), "int64")}
_IMAGE = {"pixel_values": ((3, 224, 224), "float32")}
# Published sizes; layers reduced where all layers are alike, which changes no operator.
TRANSFORMERS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "bert-base": ("BertModel", {}, _TOKENS),
    "roberta-base": ("RobertaModel", {}, _TOKENS),
    "distilbert-base": ("DistilBertModel", {}, _TOKENS),
    "albert-base": ("AlbertModel", {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}, _TOKENS),
    "electra-small": ("ElectraModel", {}, _TOKENS),
    "mpnet-base": ("MPNetModel", {}, _TOKENS),
    "modernbert-base": ("ModernBertModel", {"num_hidden_layers": 6}, _TOKENS),
    "gpt2": ("GPT2LMHeadModel", {}, _TOKENS),
    "gpt-neox": ("GPTNeoXForCausalLM", {"num_hidden_layers": 4}, _TOKENS),
    "opt-125m": ("OPTForCausalLM", {}, _TOKENS),
    "bloom-560m": ("BloomForCausalLM", {"hidden_size": 1024, "n_layer": 4, "n_head": 16}, _TOKENS),
    "falcon-7b": ("FalconForCausalLM", {"num_hidden_layers": 2}, _TOKENS),
    "llama-2-7b": ("LlamaForCausalLM", {"num_hidden_layers": 2}, _TOKENS),
    "mistral-7b": ("MistralForCausalLM", {"num_hidden_layers": 2}, _TOKENS),
    "qwen2-7b": ("Qwen2ForCausalLM", {"num_hidden_layers": 2}, _TOKENS),
    "qwen3-8b": ("Qwen3ForCausalLM", {"num_hidden_layers": 2}, _TOKENS),
    "gemma-7b": ("GemmaForCausalLM", {"num_hidden_layers": 2}, _TOKENS),
    "gemma2-9b": ("Gemma2ForCausalLM", {"num_hidden_layers": 2}, _TOKENS),
    "phi3-mini": ("Phi3ForCausalLM", {"num_hidden_layers": 2, "pad_token_id": 0}, _TOKENS),
    "mamba-130m": ("MambaForCausalLM", {"num_hidden_layers": 2}, _TOKENS),
    "t5-small": ("T5ForConditionalGeneration", {}, _BOTH_TOKENS),
    "whisper-tiny": (
        "WhisperModel",
        {},
        {"input_features": ((80, 3000), "float32"), "decoder_input_ids": ((16,), "int64")},
    ),
    "wav2vec2-base": ("Wav2Vec2Model", {}, {"input_values": ((16000,), "float32")}),
    "vit-base": ("ViTModel", {}, _IMAGE),
    "dinov2-base": ("Dinov2Model", {}, _IMAGE),
    "segformer-b0": ("SegformerModel", {}, _IMAGE),
    "siglip-vision": ("SiglipVisionModel", {}, _IMAGE),
    "clip": ("CLIPModel", {}, {"input_ids": ((48,), "int64"), **_IMAGE}),
}
# Exported to ONNX: small enough to export in seconds on two cores; (source, name, input shape or shapes by name).
ONNX: list[tuple[str, str]] = [
    *(("torchvision", n) for n in ("squeezenet1_1", "mobilenet_v2", "mobilenet_v3_small", "shufflenet_v2_x1_0")),
    *(("torchvision", n) for n in ("mnasnet1_0", "efficientnet_b0", "vgg16_bn", "densenet121", "resnet50")),
    ("torchvision", "googlenet"),
    *(("timm", n) for n in ("vit_tiny_patch16_224", "deit_tiny_patch16_224", "convnext_atto", "mixer_s32_224")),
    *(("timm", n) for n in ("mobilevit_xxs", "edgenext_xx_small", "poolformer_s12", "ghostnet_100", "resnet18d")),
    *(("timm", n) for n in ("efficientvit_b0", "fastvit_t8", "levit_128s", "swin_tiny_patch4_window7_224")),
    *(("transformers", n) for n in ("distilbert-base", "segformer-b0")),
]


@cache
def timm_names() -> dict[str, tuple[int, int, int]]:
    """One member of every timm family (the middle one by name), with the image size that it is made for."""
    import timm

    names: dict[str, tuple[int, int, int]] = {}
    for module in timm.list_modules():
        members = [m for m in timm.list_models(module=module) if not m.startswith("test_")]
        if members:
            name = members[len(members) // 2]
            configuration = timm.get_pretrained_cfg(name, allow_unregistered=True)
            size = configuration.input_size if configuration is not None else (3, 224, 224)
            names[name] = (3, size[1], size[2])
    return names


def build(source: str, name: str) -> Any:
    """The module, on torch's current default device."""
    if source == "timm":
        import timm

        return timm.create_model(name, pretrained=False)
    if source == "torchvision":
        import torchvision

        package, _, member = name.rpartition(".")
        home = getattr(torchvision.models, package) if package else torchvision.models
        extra = {"init_weights": False} if member in ("googlenet", "inception_v3") else {}
        extra |= {"weights_backbone": None} if package == "segmentation" else {}
        return getattr(home, member)(weights=None, **extra)
    import transformers

    architecture, settings, _ = TRANSFORMERS[name]
    kind = getattr(transformers, architecture)
    return kind(kind.config_class(**settings))


def shapes(source: str, name: str) -> Any:
    """Input shape without the batch, or shapes and types by name."""
    if source == "transformers":
        return TRANSFORMERS[name][2]
    if source == "torchvision":
        return TORCHVISION[name] or {"image1": ((3, 128, 128), "float32"), "image2": ((3, 128, 128), "float32")}
    return timm_names().get(name, (3, 224, 224))
