"""Lets torchvision (and timm, which needs it) import beside a torch build without torchvision's compiled operators.

torchvision registers autocast and shape rules for its operators when it is imported, which fails where its extension
was built for another torch (CPU torch with the CUDA wheel, say). Defining the operators' schemas first is enough: a
trace needs their names and shapes, never their kernels. Schemas: torchvision/csrc/ops/*.cpp (TORCH_LIBRARY_FRAGMENT).
"""

from __future__ import annotations

import sys

_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
    "int sampling_ratio, bool aligned) -> Tensor",
    "roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) "
    "-> (Tensor, Tensor)",
    "ps_roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
    "int sampling_ratio) -> (Tensor, Tensor)",
    "ps_roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) "
    "-> (Tensor, Tensor)",
    "deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, "
    "SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, "
    "SymInt offset_groups, bool use_mask) -> Tensor",
)
_library = None


def define() -> None:
    """Define the schemas if torchvision's own extension cannot be loaded. Does nothing once torchvision is imported."""
    global _library
    if _library is not None or "torchvision" in sys.modules:
        return
    import importlib.util
    from pathlib import Path

    import torch

    found = importlib.util.find_spec("torchvision")
    if found is None or found.origin is None:
        return
    for extension in Path(found.origin).parent.glob("_C*.so"):
        try:
            torch.ops.load_library(str(extension))
            return
        except OSError:
            pass
    _library = torch.library.Library("torchvision", "DEF")
    for schema in _SCHEMAS:
        _library.define(schema)
    # torchvision defines these three shape rules only beside its own extension.
    from torchvision import _meta_registrations as rules

    shapes = {
        "roi_align": rules.meta_roi_align,
        "roi_pool": rules.meta_roi_pool,
        "ps_roi_align": rules.meta_ps_roi_align,
        "ps_roi_pool": rules.meta_ps_roi_pool,
        "deform_conv2d": rules.meta_deform_conv2d,
    }
    for name, rule in shapes.items():
        _library.impl(name, rule, "Meta")
    # Detection heads ask first whether the operators are there.
    from torchvision import extension as own
    from torchvision import ops

    for module in (own, sys.modules[f"{ops.__name__}.roi_align"]):
        vars(module)["_has_ops"] = lambda: True
