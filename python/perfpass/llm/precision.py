"""In which precisions a language model is served on a device: asked for, or what the checkpoint stores."""

from __future__ import annotations

from dataclasses import replace

from perfpass.devices import Device
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.costs import Quantization, experts_in_file, is_as_stored, named_precision
from perfpass.llm.in_use import SERVERS
from perfpass.llm.serving import check_arithmetic, usable

# Of TensorRT-LLM's checkpoints those that its own tools (modelopt's hf_ptq.py) make, with a cache of 8 bits by default.
_OF_MODELOPT = ("fp8", "nvfp4")
# The unit without which a narrow cache is not read.
_CACHE_UNITS = {"fp8": "fp8", "nvfp4": "fp4"}


def quantization(
    model: LanguageModel, precision: str | Quantization | None, kv: str | None, device: Device, runtime: str
) -> tuple[Quantization, str]:
    """The precisions of matrices, experts and cache on a device, and a sentence where they are not what is stored.

    A precision that is asked for must be one that the device computes in. What the checkpoint stores is served as
    ``runtime`` does by itself: fp32 in 16 bits by servers (vLLM's and SGLang's ``--dtype auto``, TensorRT-LLM's
    ``infer_dtype``), and on a device without its arithmetic 16 bits as the other type of 16 bits or as fp32, fp8 and
    nvfp4 as weights alone where the runtime has kernels for it.
    Without ``kv`` the cache is of the `cache_type` that the runtime takes by itself.

    Raises ArgumentError for a name that is none, DeviceError for a precision that the device has no arithmetic for.
    """
    if isinstance(precision, Quantization):
        check_arithmetic(device, precision.gemm, precision.moe, runtime=runtime)
        return (replace(precision, kv_cache=kv) if kv else precision), ""
    gemm, moe, said = loaded(model, precision, device, runtime)
    check_arithmetic(device, gemm, moe, asked=precision or "", runtime=runtime)
    found = Quantization(gemm, moe)
    return replace(found, kv_cache=kv or cache_type(model, found, precision, device, runtime)), said


def cache_type(model: LanguageModel, used: Quantization, precision: str | None, device: Device, runtime: str) -> str:
    """The type of cache that a runtime takes by itself for matrices in ``used``; ``precision``: what was asked for.

    Servers (vLLM's and SGLang's ``--kv-cache-dtype auto``, TensorRT-LLM's ``KvCacheConfig.dtype``) take the type that
    the checkpoint asks for, whatever its weights are in, and else that of the activations; a precision that is the
    checkpoint's own asks for it by name. Where no checkpoint is known but TensorRT-LLM's fp8 or nvfp4, it is one of
    modelopt's. A device that cannot read the type keeps activations.
    """
    own = precision is None or is_as_stored(model, used)
    asked = model.cache_stored_as if own and runtime in SERVERS else ""
    if not asked and precision is not None and runtime == "trtllm" and used.gemm in _OF_MODELOPT:
        asked = "fp8"
    return asked if asked and _CACHE_UNITS[asked] in device.peak_flops else used.activations


def loaded(model: LanguageModel, precision: str | None, device: Device, runtime: str) -> tuple[str, str, str]:
    """Precisions of matrices and of experts as `quantization` has them, whether or not the device computes in them, and
    what was changed, in words. Raises ArgumentError for a name that is none.
    """
    if precision is not None:
        gemm, moe = named_precision(precision, mixture=model.is_mixture)
        moe = experts_in_file(model.experts_stored_as, moe)
        # Of the experts alone: the rest is in whichever 16 bits the device has.
        return (gemm if gemm == moe else usable(device, gemm)), moe, ""
    stored = model.stored_as, model.experts_stored_as
    wanted = tuple("bf16" if part == "fp32" and runtime in SERVERS else part for part in stored)
    gemm, moe = (usable(device, part, runtime) for part in wanted)
    said = []
    changed = {old: new for old, new in zip(stored, (gemm, moe), strict=True) if old != new}
    if new := changed.pop("fp32", ""):
        said.append(f"the checkpoint stores fp32, which servers load in 16 bits by themselves: {new}")
    if changed:
        as_run = ", ".join(f"{old} as {new}" for old, new in changed.items())
        said.append(f"{device.name} lacks the arithmetic of what the checkpoint stores; served {as_run}")
    return gemm, moe, "; ".join(said)
