"""Model in, OpGraph out: one module per source, `load` chooses; other packages' readers are found by entry point."""

from __future__ import annotations

from perfpass.importers.choose import load, named_shapes

__all__ = [
    "configuration_names",
    "configuration_ranges",
    "definitions",
    "formats",
    "gguf",
    "hub",
    "huggingface",
    "library_names",
    "load",
    "model_argument",
    "model_sources",
    "named_shapes",
    "onnx",
    "operators",
    "readers",
    "safetensors_header",
    "sound_models",
    "symbolic",
    "torch",
    "torch_allocations",
    "torch_memory",
    "torch_training",
    "torchvision_schemas",
]
