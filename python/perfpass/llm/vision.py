"""The vision tower of a vision-language model: read from its config.json, counted as an encoder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from perfpass.errors import ArgumentError, FormatError, UnsupportedError
from perfpass.importers.model_argument import understood
from perfpass.importers.model_sources import read_configuration
from perfpass.llm.architecture import Attention, LanguageModel, Layer, Mlp, Sight
from perfpass.llm.image_tokens import RULES, Grid, Seen, seen
from perfpass.text import unknown

_MOST_IMAGES = 10_000
# Pictures of which the largest number of tokens is one's: square, wide and high.
_LARGE = ((8192, 8192), (8192, 6144), (8192, 2048), (2048, 8192))


@dataclass(frozen=True)
class Tower:
    """What a family's published towers are, where a configuration is silent: the defaults of transformers' classes, or
    the one tower that the family has. ``names``: of width, layers, heads and inner width in its vision_config.
    ``matrices`` of an MLP, 3 where gated. ``unused``: last layers whose output is not taken.
    """

    width: int
    layers: int
    heads: int
    inner: int
    matrices: int = 2
    unused: int = 0
    names: tuple[str, str, str, str] = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")


_CLIP = Tower(1024, 24, 16, 4096, unused=1)
_SIGLIP = Tower(1152, 27, 16, 4304)
_QWEN = ("hidden_size", "depth", "num_heads", "intermediate_size")
TOWERS: dict[str, Tower] = {
    "qwen2_vl": Tower(1280, 32, 16, 5120, names=("embed_dim", "depth", "num_heads", "intermediate_size")),
    "qwen2_5_vl": Tower(1280, 32, 16, 3420, 3, names=_QWEN),
    "qwen3_vl": replace(_SIGLIP, names=_QWEN),
    "qwen3_vl_moe": replace(_SIGLIP, names=_QWEN),
    "llava": _CLIP,
    "llava_next": _CLIP,
    "internvl": Tower(1024, 24, 16, 4096),
    "internvl_chat": Tower(1024, 24, 16, 4096),
    "gemma3": _SIGLIP,
    "llama4": Tower(1408, 34, 16, 5632),
    "mllama": Tower(
        1280, 40, 16, 5120, names=("hidden_size", "num_hidden_layers", "attention_heads", "intermediate_size")
    ),
    "pixtral": Tower(1024, 24, 16, 4096, 3),
    "mistral3": Tower(1024, 24, 16, 4096, 3),
    "phi3_v": _CLIP,
}
_WINDOW, _FULL_AT = 112, (7, 15, 23, 31)


@dataclass(frozen=True)
class Vision:
    """How a model sees: ``tower`` as an encoder, and ``projector`` elements between it and the language model."""

    family: str
    grid: Grid
    tower: LanguageModel
    projector: int

    def seen(self, width: int, height: int) -> Seen:
        """One image of so many pixels. Raises ArgumentError."""
        return seen(self.family, self.grid, width, height)

    @property
    def parameters(self) -> int:
        """Of tower and projector."""
        return self.tower.parameters + self.projector

    @property
    def sight(self) -> Sight | None:
        """What it holds at once; None where pictures are no tokens of the prompt.

        Of a layer in eager PyTorch: the stream and its norm, beside them queries, keys and values, their rotation in
        fp32 and its result, or what is between the matrices of the MLP.
        """
        each = max((self.seen(*size) for size in _LARGE), key=lambda one: one.tokens)
        dense, width = self.tower.layers[0][1].dense, self.tower.hidden
        if each.tokens == 1 or dense is None:
            return None
        patches = each.tiles * each.patches / each.tokens
        held = max(12 * width, 2 * width + dense.matrices * dense.width)
        return Sight(patches * held, 0.0 if self.grid.tile else patches**2, each.tokens)


@dataclass(frozen=True)
class Images:
    """``count`` images of one size in a prompt."""

    vision: Vision
    count: int = 1
    width: int = 1024
    height: int = 1024

    def __post_init__(self) -> None:
        if isinstance(self.count, bool) or not isinstance(self.count, int) or not 0 <= self.count <= _MOST_IMAGES:
            raise ArgumentError(f"a prompt has 0 to {_MOST_IMAGES:,} images, got {self.count!r}")
        self.vision.seen(self.width, self.height)

    @property
    def each(self) -> Seen:
        """One of them."""
        return self.vision.seen(self.width, self.height)

    @property
    def tokens(self) -> int:
        """Prompt tokens that they are."""
        return self.count * self.each.tokens


def vision(config: str | os.PathLike[str] | Mapping[str, Any]) -> Vision:
    """The vision tower that a configuration describes, given as for `perfpass.llm.configuration.language_model`.

    Raises UnsupportedError for a model that sees nothing or of a family whose images are not known, and what reading a
    configuration raises.
    """
    source = config if isinstance(config, Mapping) else understood(config).configuration("images")
    content = read_configuration(source, run_code=False)
    family = str(content.get("model_type"))
    if family == "llava" and content.get("vision_config", {}).get("model_type") == "pixtral":
        family = "pixtral"
    if family not in RULES:
        raise UnsupportedError(
            f"{unknown('vision-language family', family, RULES)}; images of other models are not counted"
        )
    stated = content.get("vision_config") or {}
    if not isinstance(stated, Mapping):
        raise FormatError(f"{family}: vision_config holds {stated!r}, no table")
    text = content.get("text_config") or content.get("llm_config") or content
    hidden = _whole(text, "hidden_size", 4096)
    _, plain = RULES[family]
    grid = replace(plain, patch=_side(stated, ("patch_size", "spatial_patch_size"), plain.patch))
    if plain.merge > 1 and "spatial_merge_size" in {**content, **stated}:
        grid = replace(grid, merge=_whole({**content, **stated}, "spatial_merge_size", plain.merge))
    if plain.tile:
        grid = replace(grid, tile=_side({**stated, **_forced(content)}, ("image_size",), plain.tile))
    tower, width = _tower(family, stated, grid)
    return Vision(family, grid, tower, _projector(family, width, hidden, grid, stated))


def _forced(content: Mapping[str, Any]) -> dict[str, Any]:
    return {"image_size": content["force_image_size"]} if content.get("force_image_size") else {}


def _whole(table: Mapping[str, Any], name: str, default: int) -> int:
    value = table.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1_000_000:
        raise FormatError(f"vision: {name} must be a whole number from 1 to 1,000,000, got {value!r}")
    return value


def _side(table: Mapping[str, Any], names: tuple[str, ...], default: int) -> int:
    for name in names:
        value = table.get(name)
        if isinstance(value, list | tuple) and value:
            value = value[0]
        if value is not None:
            return _whole({name: value}, name, default)
    return default


def _tower(family: str, stated: Mapping[str, Any], grid: Grid) -> tuple[LanguageModel, int]:
    """Every token of a tile sees all of the others; in Qwen2.5-VL most layers see a window of 112 pixels."""
    known = TOWERS[family]
    width, layers, heads, inner = (
        _whole(stated, name, default)
        for name, default in zip(known.names, (known.width, known.layers, known.heads, known.inner), strict=True)
    )
    if family == "mllama" and "num_hidden_layers" in stated:
        layers += _whole(stated, "num_global_layers", 8)
    if family == "qwen2_vl":
        inner = int(width * float(stated.get("mlp_ratio", 4)))
    if heads > width:
        raise FormatError(f"vision: {heads} heads do not fit into a width of {width}")
    head = width // heads
    # Biases: of four projections and of the MLP; layer norms with two vectors each.
    attention = Attention(heads, heads, head, head, extra=4 * width)
    mlp = Mlp(inner, known.matrices, extra=(known.matrices - 1) * inner + width)
    full = Layer(attention=attention, dense=mlp, norms=4 * width, encoder=True)
    body: tuple[tuple[int, Layer], ...] = ((layers - known.unused, full),)
    if family == "qwen2_5_vl":
        seen_by = (_whole(stated, "window_size", _WINDOW) // grid.patch) ** 2
        windowed = replace(full, attention=replace(attention, window=seen_by))
        full_at = stated.get("fullatt_block_indexes", _FULL_AT)
        count = min(len(full_at) if isinstance(full_at, list | tuple) else len(_FULL_AT), layers)
        body = tuple((n, layer) for n, layer in ((count, full), (layers - count, windowed)) if n)
    # Of the patches: a convolution, twice in time for those that read video.
    frames = 2 if family.startswith("qwen") else 1
    patches = 3 * frames * grid.patch**2 * width
    tower = LanguageModel(f"tower of {family}", family, width, 0, body, tied=True, embedding_extra=patches)
    return tower, width


def _projector(family: str, width: int, hidden: int, grid: Grid, stated: Mapping[str, Any]) -> int:
    """Elements of the matrices between tower and language model."""
    joined = width * grid.merge**2
    if family in ("qwen3_vl", "qwen3_vl_moe"):  # one for each of the layers that are handed over early, and the last
        taken = stated.get("deepstack_visual_indexes", (8, 16, 24))
        return (len(taken) + 1) * (joined * joined + joined * hidden)
    if family.startswith("qwen"):
        return joined * joined + joined * hidden
    if family == "gemma3":
        return width * hidden
    if family == "llama4":
        return joined * 4096 + 4096 * 4096 + 4096 * hidden
    if family == "mllama":  # six layers' states side by side
        return 6 * width * hidden
    if family == "mistral3":
        return joined * width + width * hidden + hidden * hidden
    return joined * hidden + hidden * hidden
