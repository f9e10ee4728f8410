"""In which precisions a language model is served on a device: asked for, or what the checkpoint stores."""

from __future__ import annotations

from dataclasses import replace

from perfpass.devices import Device
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.costs import Quantization, named_precision
from perfpass.llm.serving import check_arithmetic, usable

# Precisions behind whose measured runs the cache was at 8 bits.
_CACHE_8_BITS = ("fp8", "fp8_block", "nvfp4")


def quantization(
    model: LanguageModel, precision: str | Quantization | None, kv: str | None, device: Device
) -> tuple[Quantization, str]:
    """The precisions of matrices, experts and cache on a device, and a sentence where they are not what is stored.

    A precision that is asked for must be one that the device computes in. What the checkpoint stores is served as
    runtimes do on a device without it: 16 bits as the other type of 16 bits or as fp32, fp8 and nvfp4 as weights alone.
    Without ``kv`` the cache is at 8 bits where the dense matrices are in fp8 or nvfp4, the default behind the measured
    runs, else as wide as activations.

    Raises ArgumentError for a name that is none, DeviceError for a precision that the device has no arithmetic for.
    """
    said = ""
    if isinstance(precision, Quantization):
        check_arithmetic(device, precision.gemm, precision.moe)
        return (replace(precision, kv_cache=kv) if kv else precision), said
    if precision is None:
        stored = model.stored_as, model.experts_stored_as
        gemm, moe = (usable(device, part) for part in stored)
        check_arithmetic(device, gemm, moe)
        changed = [f"{old} as {new}" for old, new in dict(zip(stored, (gemm, moe), strict=True)).items() if old != new]
        if changed:
            said = f"{device.name} lacks the arithmetic of what the checkpoint stores; served {', '.join(changed)}"
    else:
        gemm, moe = named_precision(precision, mixture=model.is_mixture)
        if gemm != moe:  # of the experts alone: the rest is in whichever 16 bits the device has
            gemm = usable(device, gemm)
        check_arithmetic(device, gemm, moe, asked=precision)
    found = Quantization(gemm, moe)
    return replace(found, kv_cache=kv or ("fp8" if gemm in _CACHE_8_BITS else found.activations)), said
