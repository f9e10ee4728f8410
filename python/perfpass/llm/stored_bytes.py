"""quantization_config of a config.json -> bytes of an element of the matrices as its method packs them.

`perfpass.llm.costs.ELEMENT_BYTES` has one figure a precision; methods differ in the size of their groups and in what
they keep beside the numbers: GPTQ and AWQ a 16-bit scale and a zero of the numbers' own width for each group
(arXiv:2210.17323, arXiv:2306.00978), bitsandbytes an fp32 scale for 64 numbers or, quantized twice, a byte and an fp32
one for 256 of these (QLoRA, arXiv:2305.14314), HQQ scale and zero in 16 bits (mobiusml/hqq), compressed-tensors a
16-bit scale and a zero where it is not symmetric.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SCALE = 2.0
_BNB_BLOCK, _BNB_NESTED = 64, 256
NF4_BYTES = 0.5 + 4 / _BNB_BLOCK
NF4_TWICE_BYTES = 0.5 + 1 / _BNB_BLOCK + 4 / (_BNB_BLOCK * _BNB_NESTED)
# GPTQ and AWQ as they are published: groups of 128.
GROUPS_OF_128_BYTES = 4 / 8 + (_SCALE + 4 / 8) / 128
_INTEGERS = ("gptq", "gptq-marlin", "awq", "awq-marlin", "auto-round", "intel/auto-round")


def packed_bytes(quantization: Any) -> dict[str, float]:
    """Bytes of an element by precision of ELEMENT_BYTES, of those that the method states; {} where it states none."""
    if not isinstance(quantization, Mapping):
        return {}
    method = str(quantization.get("quant_method") or "").lower().replace("_", "-")
    if method in _INTEGERS:
        return _integers(quantization)
    if method == "bitsandbytes" or any(f"{mark}load_in_4bit" in quantization for mark in ("", "_")):
        if quantization.get("load_in_4bit") or quantization.get("_load_in_4bit"):
            twice = quantization.get("bnb_4bit_use_double_quant") is True
            return {"int4_wo": NF4_TWICE_BYTES if twice else NF4_BYTES}
        return {}
    if method == "hqq":
        inner = quantization.get("quant_config")
        weights = inner.get("weight_quant_params") if isinstance(inner, Mapping) else quantization
        return _grouped(weights, ("nbits", "bits"), 2 * _SCALE)
    if method == "compressed-tensors":
        return _compressed(quantization)
    return {}


def _size(table: Any, *keys: str) -> int | None:
    for key in keys:
        value = table.get(key) if isinstance(table, Mapping) else None
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def _grouped(table: Any, bits_keys: tuple[str, ...], beside: float) -> dict[str, float]:
    """``beside``: bytes of a group beside its numbers."""
    bits, group = _size(table, *bits_keys), _size(table, "group_size", "q_group_size")
    if bits not in (2, 3, 4, 8) or group is None:
        return {}
    return {f"int{bits}_wo": bits / 8 + (beside / group if group > 0 else 0.0)}


def _integers(q: Mapping[str, Any]) -> dict[str, float]:
    bits = _size(q, "bits", "w_bit", "num_bits")
    return _grouped(q, ("bits", "w_bit", "num_bits"), _SCALE + (bits or 0) / 8)


def _compressed(q: Mapping[str, Any]) -> dict[str, float]:
    groups = q.get("config_groups")
    if not isinstance(groups, Mapping) or len(groups) != 1:
        return {}
    (group,) = groups.values()
    weights = group.get("weights") if isinstance(group, Mapping) else None
    if not isinstance(weights, Mapping) or weights.get("type", "int") != "int":
        return {}
    zero = 0.0 if weights.get("symmetric", True) else (_size(weights, "num_bits") or 0) / 8
    return _grouped(weights, ("num_bits",), _SCALE + zero)
