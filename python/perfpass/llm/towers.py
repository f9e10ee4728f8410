"""What a model that reads pictures or sound loads beside its language model: towers, by their configurations.

Servers and transformers load the whole checkpoint, whatever is asked of it; llama.cpp takes towers from a file of their
own (``--mmproj``). A text meets none of their parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from perfpass.errors import UnsupportedError
from perfpass.llm.architecture import Sight
from perfpass.llm.vision import vision

# Of pictures and of sound: where wrappers keep the configuration of what reads them.
_KINDS = {
    "pictures": ("vision_config", "visual", "vit_config"),
    "sound": ("audio_config", "audio_encoder_config", "encoder_config"),
}
_WIDTH = ("hidden_size", "embed_dim", "d_model", "width")
_LAYERS = ("num_hidden_layers", "depth", "encoder_layers", "num_layers", "layers")
_INNER = ("intermediate_size", "encoder_ffn_dim", "ffn_dim")
# Types whose published configurations leave out what transformers' classes have: width, layers, inner width.
_DEFAULTS = {
    "siglip_vision_model": (768, 12, 3072),
    "clip_vision_model": (768, 12, 3072),
    "idefics3_vision": (1152, 12, 3072),
    "idefics3": (1152, 27, 4304),  # as the family's published towers are
}
_MOST = 100_000_000_000


def sight(content: Mapping[str, Any]) -> Sight | None:
    """What the tower of pictures that a configuration describes holds at once; None where its family is not known."""
    try:
        return vision(content).sight if dict(_towers(content)).get("pictures") else None
    except UnsupportedError:
        return None


def beside(content: Mapping[str, Any]) -> tuple[int, str]:
    """Parameters of the towers that a configuration describes, and a sentence about them; (0, "") where it has none.

    Raises what `perfpass.llm.vision.vision` does for a configuration that it knows and that is malformed.
    """
    found = dict(_towers(content))
    if not found:
        return 0, ""
    unknown = [kind for kind, size in found.items() if size is None]
    if unknown:
        said = " and ".join(unknown)
        return sum(size or 0 for size in found.values()), f"what reads {said} is not counted: its size is not stated"
    total = sum(size for size in found.values() if size is not None)
    return total, (
        f"the weights of what reads {' and '.join(found)} ({total / 1e9:.2f} B parameters) are loaded beside it, by "
        f"llama.cpp from a file of their own; {_passes(content)}"
    )


def _passes(content: Mapping[str, Any]) -> str:
    """What is counted of passes through towers, as a sentence's end."""
    try:
        seen = vision(content).sight
    except UnsupportedError:
        return "passes through them are not counted"
    held = ", but in what transformers may hold and vLLM profiles" if seen else ""
    return f"passes through them are counted only where images are asked for{held}"


def _towers(content: Mapping[str, Any]) -> Iterator[tuple[str, int | None]]:
    for kind, keys in _KINDS.items():
        stated = next((content[key] for key in keys if isinstance(content.get(key), Mapping) and content[key]), None)
        if stated is not None:
            yield kind, _pictures(content, stated) if kind == "pictures" else _counted(stated, "")


def _pictures(content: Mapping[str, Any], stated: Mapping[str, Any]) -> int | None:
    try:
        return vision(content).parameters
    except UnsupportedError:
        return _counted(stated, str(content.get("model_type")))


def _counted(stated: Mapping[str, Any], family: str) -> int | None:
    """Four projections and an MLP of two matrices a layer; None where width or layers are not stated."""
    kind = family if family in _DEFAULTS else str(stated.get("model_type"))
    width, layers, inner = (
        next((stated[key] for key in keys if _is_size(stated.get(key))), default)
        for keys, default in zip((_WIDTH, _LAYERS, _INNER), _DEFAULTS.get(kind, (0, 0, 0)), strict=True)
    )
    if not width or not layers:
        return None
    total = int(layers * (4 * width**2 + 2 * width * (inner or 4 * width)))
    return total if total <= _MOST else None


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**6
