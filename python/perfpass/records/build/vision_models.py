"""Vision models by the name that a record gives them, on the meta device: no weight is allocated or downloaded."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from perfpass.errors import PerfPassError, UnsupportedError
from perfpass.graph import OpGraph

if TYPE_CHECKING:
    import torch

BATCHES = (2, 3)  # not 1: a dimension of size 1 broadcasts and may change the operators that run

# A suffix of a record's model: measured with its parallel branches folded into one convolution each.
REPARAMETERIZED = "+reparameterized"

# Names that timm dropped without an alias: the same architecture under its present name, or as a variant of another.
_VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    # timm's alias names the 8d network for all four.
    "ig_resnext101_32x16d": ("resnext101_32x16d", {}),
    "ig_resnext101_32x32d": ("resnext101_32x32d", {}),
    "ig_resnext101_32x48d": ("resnext101_32x32d", {"base_width": 48}),
    "vit_base_patch16_reg8_gap_256": ("vit_base_patch16_reg4_gap_256", {"reg_tokens": 8}),
}
_RENAMED = {
    "vit_medium_patch16_reg4_256": "vit_medium_patch16_reg4_gap_256",
    "vit_base_patch16_224_sam": "vit_base_patch16_224",
    "vit_base_patch32_224_sam": "vit_base_patch32_224",
    "regnety_040s_gn": "regnety_040_sgn",
}


def _timm(name: str, img_size: int, fixed: bool, device: str = "meta") -> torch.nn.Module:
    import timm
    import torch

    name, variant = _VARIANTS.get(name, (_RENAMED.get(name, name), {}))
    kwargs = variant | ({"img_size": img_size} if fixed else {})
    with torch.device(device), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return timm.create_model(name, pretrained=False, **kwargs)


def _reparameterized(name: str) -> torch.nn.Module | None:
    """The model with its parallel branches folded (RepVGG, MobileOne, ...); None where nothing folds.

    Folding computes on weights, so they are allocated (and random) here, unlike everywhere else.
    """
    from timm.utils.model import reparameterize_model

    if not any(hasattr(m, "reparameterize") or hasattr(m, "fuse") for m in _timm(name, 0, False).modules()):
        return None
    return reparameterize_model(_timm(name, 0, False, device="cpu").eval())


def parameter_counts(name: str) -> tuple[int, int | None]:
    """Parameters of a timm model (buffers not counted) as built, and reparameterized; None where nothing folds."""
    from perfpass.importers import torchvision_schemas

    torchvision_schemas.define()
    folded = _reparameterized(name)
    plain = sum(p.numel() for p in _timm(name, 0, False).parameters())
    return plain, None if folded is None else sum(p.numel() for p in folded.parameters())


def _torchvision(name: str) -> torch.nn.Module:
    import torch
    import torchvision

    kwargs = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    with torch.device("meta"):
        return getattr(torchvision.models, name)(weights=None, **kwargs)


def _both(module: torch.nn.Module, img_size: int) -> tuple[OpGraph, OpGraph]:
    from perfpass.importers.torch import trace_owned

    first, second = (trace_owned(module, (3, img_size, img_size), batch=b) for b in BATCHES)
    if first.node_count != second.node_count:
        # The first forward pass filled a cache of constants (ConViT's relative indices); later passes are what counts.
        first = trace_owned(module, (3, img_size, img_size), batch=BATCHES[0])
    return first, second


def architectures(models: Iterable[tuple[str, str]]) -> dict[tuple[str, str], tuple[str, str]]:
    """(source, model) -> (architecture, family).

    The architecture is the name without its weights' tag and with timm's renamings applied; the family is the module of
    the source that defines it.
    """
    from perfpass.importers import torchvision_schemas

    torchvision_schemas.define()
    import timm
    import torchvision

    registry = timm.models._registry
    result = {}
    for source, model in models:
        if source == "torchvision":
            family = getattr(torchvision.models, model).__module__.rpartition(".")[2]
            result[source, model] = model, family
            continue
        name = _VARIANTS.get(model, (_RENAMED.get(model, model), {}))[0] if model.startswith("ig_") else model
        name = _RENAMED.get(name, name).removesuffix(REPARAMETERIZED).partition(".")[0]
        name = (registry._deprecated_models.get(name) or name).partition(".")[0]
        module = registry._model_to_module.get(name)
        # A model that the installed timm lacks stands alone under the first part of its name.
        result[source, model] = name, module or name.partition("_")[0]
    return result


def traces(source: str, model: str, img_size: int) -> tuple[OpGraph, OpGraph]:
    """The model's graph at both of `BATCHES`.

    A model whose forward pass refuses the size that it was measured at is built for that size instead, as timm's own
    benchmark does. Raises UnsupportedError for a name that the installed timm or torchvision does not know.
    """
    from perfpass.importers import torchvision_schemas

    torchvision_schemas.define()
    if model.endswith(REPARAMETERIZED):
        from perfpass.importers.torch import trace

        folded = _reparameterized(model.removesuffix(REPARAMETERIZED))
        if folded is None:
            raise UnsupportedError(f"{model}: this model has no branches that fold")
        first, second = (trace(folded, (3, img_size, img_size), batch=b) for b in BATCHES)
        return first, second
    failure: Exception | None = None
    for fixed in (False, True) if source == "timm" else (False,):
        try:
            module = _timm(model, img_size, fixed) if source == "timm" else _torchvision(model)
        except Exception as error:
            failure = failure or UnsupportedError(f"{source} cannot build {model}: {type(error).__name__}: {error}")
            continue
        try:
            return _both(module, img_size)
        except PerfPassError as error:
            failure = failure or error
    assert failure is not None
    raise failure
