"""Images in prompts as a transformation of a load: the tower's pass before each prefill.

Its weights are loaded whether or not there are images (`perfpass.llm.towers`); with them no setting leaves them out.
"""

from __future__ import annotations

from dataclasses import replace

from perfpass.errors import ArgumentError
from perfpass.llm.costs import Parallelism, Quantization
from perfpass.llm.memory import Beside
from perfpass.llm.serving import check_split, usable
from perfpass.llm.vision import Images
from perfpass.predictors.switches.load import Change, Deployment, Load

_SPREAD = 0.2


def look(deployment: Deployment, load: Load, images: Images) -> Change:
    """The tower sees every image before the prompt is read; what it makes of them is in the prompt's tokens already."""
    each, serving = images.each, deployment.serving
    tower = images.vision.tower
    split = Parallelism()
    try:
        check_split(tower, serving.parallelism.tensor)
        split = Parallelism.of(serving.parallelism.tensor)
    except ArgumentError:  # it runs whole on every GPU
        pass
    wide = usable(deployment.device, serving.quantization.activations)
    steps = deployment.steps(tower, split, Quantization(wide, wide, wide))
    tiles = float(images.count * each.tiles)
    # Half of them: an encoder's layers count every patch as seeing all others (`perfpass.llm.costs`).
    seen = tiles * each.patches * (each.patches + 1) / 2
    seconds = steps.one(tiles * each.patches, tiles, seen, 0.0, 0.0, 0.0) if images.count else 0.0
    several = "" if images.count == 1 else "s"
    said = (
        f"{images.count} image{several} of {images.width}x{images.height}: {images.tokens:,} prompt tokens; "
        f"{tiles * each.patches:,.0f} patches through {images.vision.parameters / 1e9:.2f} B parameters "
        f"in {1e3 * seconds:,.1f} ms"
    )
    return Change(
        replace(load, busy_s=load.busy_s + seconds),
        said,
        Beside(towers=images.count > 0),
        _SPREAD if images.count else 0.0,
        "no record has images: the tower is taken as a prefill of its size" if images.count else "",
        {"images": images.count, "prompt_tokens": images.tokens, "encoder_ms": 1e3 * seconds},
    )
