"""Networks of the transformers library, by the name that `records.named_definitions` gives them: configuration/head."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perfpass.importers.model_sources import read_configuration

if TYPE_CHECKING:
    from perfpass.graph import OpGraph


def _rt_detr(kind: str, depths: Sequence[int], **fields: Any) -> dict[str, Any]:
    """RT-DETR (Zhao et al., 2024) on a ResNet-vd of ``kind`` basic or bottleneck."""
    wide = 4 if kind == "bottleneck" else 1
    widths = [wide * n for n in (64, 128, 256, 512)]
    backbone = {
        "model_type": "rt_detr_resnet", "layer_type": kind, "depths": list(depths), "hidden_sizes": widths,
        "out_features": ["stage2", "stage3", "stage4"], "downsample_in_bottleneck": False,
    }  # fmt: skip
    return {"model_type": "rt_detr", "backbone_config": backbone, "encoder_in_channels": widths[1:], **fields}


# Configurations that the package does not ship.
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    # TinyBERT's student (Jiao et al., 2020): 14.5 million parameters; the feed-forward width is 1,200.
    "bert-4l-312": {
        "model_type": "bert",
        "hidden_size": 312,
        "num_hidden_layers": 4,
        "num_attention_heads": 12,
        "intermediate_size": 1200,
    },
    # TinyBERT's larger student: 67 million parameters.
    "bert-6l-768": {"model_type": "bert", "num_hidden_layers": 6},
    # Yang et al., 2019: as BERT-base.
    "xlnet-base": {"model_type": "xlnet", "d_model": 768, "n_layer": 12, "n_head": 12, "d_inner": 3072},
    "electra-base": {
        "model_type": "electra",
        "embedding_size": 768,
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
    },
    "rt-detr-r18": _rt_detr("basic", (2, 2, 2, 2), hidden_expansion=0.5, decoder_layers=3),
    "rt-detr-r34": _rt_detr("basic", (3, 4, 6, 3), hidden_expansion=0.5, decoder_layers=4),
    "rt-detr-r50": _rt_detr("bottleneck", (3, 4, 6, 3)),
    "rt-detr-r101": _rt_detr(
        "bottleneck", (3, 4, 23, 3), encoder_hidden_dim=384, encoder_ffn_dim=2048, decoder_in_channels=[384] * 3
    ),
    # Radford et al., 2022: 74 million parameters.
    "whisper-base": {
        "model_type": "whisper",
        "vocab_size": 51865,
        "d_model": 512,
        "encoder_layers": 6,
        "decoder_layers": 6,
        "encoder_attention_heads": 8,
        "decoder_attention_heads": 8,
        "encoder_ffn_dim": 2048,
        "decoder_ffn_dim": 2048,
    },
}
# Of a sequence, the tokens that pre-training masks and its head reads, as DeepLearningExamples has them.
_MASKED = {128: 20, 512: 80}


def configuration(name: str) -> Mapping[str, Any]:
    """The content of a config.json, of those here or of those that ship. Raises FileError for an unknown name."""
    if name in CONFIGURATIONS:
        return CONFIGURATIONS[name]
    return read_configuration(name)


def module(name: str, eager: bool, tokens: int = 0) -> Any:
    """The network ``configuration/head`` on the meta device; ``eager``: attention as products around a softmax.

    Benchmarks of encoders alone run more ``tokens`` than the configuration has positions for: then it gets as many.
    """
    from perfpass.importers.model_sources import huggingface

    base, _, head = name.partition("/")
    content = dict(configuration(base))
    if content["model_type"] not in ("xlnet", "rt_detr"):  # which have no other, or none for every part
        content["attn_implementation"] = "eager" if eager else "sdpa"
    if content["model_type"] == "bert":
        content["max_position_embeddings"] = max(512, tokens)
    if head == "pretraining":
        return _pretraining(huggingface({**content, "architectures": ["BertModel"]}, dtype="float32", causal=False))
    return huggingface({**content, "architectures": [head]}, dtype="float32", causal=False)


def _pretraining(bert: Any) -> Any:
    """BERT with the heads of its pre-training, which read the masked tokens alone (Devlin et al., 2018)."""
    import torch
    from torch import nn

    class Pretraining(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            hidden, words = bert.config.hidden_size, bert.config.vocab_size
            self.bert = bert
            self.transform = nn.Sequential(nn.Linear(hidden, hidden), nn.GELU(), nn.LayerNorm(hidden))
            self.bias = nn.Parameter(torch.empty(words))
            self.next_sentence = nn.Linear(hidden, 2)

        def forward(self, input_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            out = self.bert(input_ids)
            tokens = input_ids.shape[1]
            masked = out.last_hidden_state[:, : _MASKED.get(tokens, round(0.15 * tokens))]
            words = self.bert.embeddings.word_embeddings.weight
            scores = nn.functional.linear(self.transform(masked), words, self.bias)
            return scores, self.next_sentence(out.pooler_output)

    with torch.device("meta"):
        return Pretraining().eval()


def tracer(name: str, size: int, eager: bool) -> Callable[[int], OpGraph]:
    """The graph of ``configuration/head`` at ``size`` tokens, by batch. Raises as `module`."""
    from perfpass.importers.torch import trace_owned

    built = module(name, eager, size)
    shapes: dict[str, Any] = {"input_ids": ((size,), "int64")}
    given: dict[str, Any] = {}
    if name.startswith("whisper"):
        shapes = {"input_features": ((80, 3000), "float32"), "decoder_input_ids": ((size,), "int64")}
        given = {"use_cache": False}
    elif name.startswith("rt-detr"):
        shapes = {"pixel_values": ((3, size, size), "float32")}
        trace_owned(built, shapes, batch=1)  # the library keeps the anchors of a size that it has once made
    elif "CausalLM" in name:
        given = {"use_cache": False}
    return lambda batch: trace_owned(built, shapes, batch=batch, given=given)
