"""Architectures of GGUF files: which are read, as which model_type of a config.json, and why others are not.

Names: MODEL_ARCH_NAMES of gguf-py 0.19, all of them. Of models for images beside text the language part is meant.
"""

from __future__ import annotations

from perfpass.importers import gguf_hybrids

# Architecture in the file: model_type of a config.json with the same layers.
TYPES: dict[str, str] = {
    **{name: name for name in ("gemma", "gemma2", "falcon", "starcoder2", "gpt2", "bloom", "mpt", "stablelm", "olmo")},
    **{name: name for name in ("llama", "qwen2", "qwen3", "phi3", "olmo2", "olmoe", "nemotron", "granite", "baichuan")},
    **{name: name for name in ("internlm2", "exaone", "exaone4", "smollm3", "glm4", "cohere2", "gptj")},
    "qwen2moe": "qwen2_moe",
    "qwen3moe": "qwen3_moe",
    "qwen2vl": "qwen2",
    "qwen3vl": "qwen3",
    "qwen": "qwen",
    "qwen3vlmoe": "qwen3_moe",
    "gemma3": "gemma3_text",
    "phi2": "phi",
    "starcoder": "gpt_bigcode",
    "gptneox": "gpt_neox",
    "command-r": "cohere",
    "deepseek2": "deepseek_v3",
    "chatglm": "glm",
    "arcee": "arcee",
    "glm4moe": "glm4_moe",
    "hunyuan-moe": "hunyuan_v1_moe",
    "hunyuan-dense": "hunyuan_v1_dense",
    "gpt-oss": "gpt_oss",
    "seed_oss": "seed_oss",
    "minicpm": "llama",
    "orion": "llama",
    "xverse": "llama",
    "granitemoe": "granitemoe",
    "phimoe": "phimoe",
    "minimax-m2": "minimax_m2",
    "mistral3": "llama",
    "ernie4_5": "ernie4_5",
    "mamba": "mamba",
    "deepseek": "deepseek",
    "llama4": "llama4_text",
    "refact": "llama",
    "plamo": "llama",
    "jais": "llama",
    "llama-embed": "llama",
    "pangu-embedded": "qwen2",
    "maincoder": "qwen3",
    "codeshell": "starcoder2",
    "dbrx": "mixtral",
    "grok": "mixtral",
    "apertus": "apertus",
    "bitnet": "bitnet",
    "jais2": "jais2",
    "hunyuan_vl": "hunyuan_v1_dense",
    "paddleocr": "ernie4_5",
    "gemma-embedding": "gemma3_text",
    "bert": "bert",
    "nomic-bert": "nomic_bert",
    **gguf_hybrids.TYPES,
}

_REASONS = {
    "it holds a projector of images or a vocoder, no language model": "clip wavtokenizer-dec",
    "its layers differ from one another in ways that the header does not say": "deci openelm mimo2 step35 "
    "gemma3n gemma4 plamo3",
    "it mixes attention with states, whose sizes stand under keys of their own": "kimi-linear plamo2 qwen3next qwen35 "
    "qwen35moe",
    "its states are of a kind of their own": "rwkv6 rwkv6qwen2 rwkv7 arwkv7",
    "its keys and values are latent, under keys of their own": "minicpm3 plm mistral4 glm-dsa deepseek2-ocr",
    "it writes text by diffusion and not token by token": "dream llada llada-moe rnd1",
    "it has an encoder and a decoder": "t5 t5encoder",
    "its experts follow rules of their own": "afmoe arctic bailingmoe bailingmoe2 dots1 ernie4_5-moe exaone-moe "
    "grovemoe nomic-bert-moe smallthinker",
    "it is an encoder of text whose layers follow rules of their own": "eurobert jina-bert-v2 jina-bert-v3 modern-bert "
    "neo-bert",
    "it has weights for images beside those for text": "chameleon cogvlm",
}
REFUSED: dict[str, str] = {name: reason for reason, names in _REASONS.items() for name in names.split()}
