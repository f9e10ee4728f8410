"""quantization_config of a config.json -> the precisions in which the checkpoint stores its matrices.

Every method is known by name with what it stores, or refused by name: a checkpoint that is read as 16 bits where it
holds 4 would be counted four times too large. Field names are those that each method's tools write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from perfpass.declared import shown_value
from perfpass.errors import FormatError, UnsupportedError

Stored = tuple[str, str]  # precision of the dense matrices, of the experts; of `perfpass.llm.costs.ELEMENT_BYTES`
_WEIGHT_ONLY = {2: "int2_wo", 3: "int3_wo", 4: "int4_wo", 8: "int8_wo"}
_INSTEAD = (
    "take quantization_config out of the configuration and state the precision that it is served in (--precision)"
)


def stored(quantization: Any, name: str) -> Stored:
    """Precisions of matrices and of experts as stored; bf16 (any type of 16 bits) without a quantization.

    Raises FormatError for a quantization_config without a method or with bits that its method does not have,
    UnsupportedError for a method whose weights are not counted here; both name it and say what to do.
    """
    if quantization is None:
        return "bf16", "bf16"
    if not isinstance(quantization, Mapping):
        raise FormatError(
            f"{name}: quantization_config is {_short(quantization)}; a table with quant_method is needed, as a "
            "quantized checkpoint's config.json has it"
        )
    method = quantization.get("quant_method") or quantization.get("quant_algo")
    if method is None and ("load_in_4bit" in quantization or "load_in_8bit" in quantization):
        method = "bitsandbytes"  # as its first versions wrote it
    inner = quantization.get("quantization")
    if method is None and isinstance(inner, Mapping):  # as modelopt's hf_quant_config.json has it
        return _modelopt(inner, name)
    if not isinstance(method, str):
        raise FormatError(f"{name}: quantization_config has no quant_method; {_INSTEAD}")
    reader = METHODS.get(method.lower().replace("_", "-"))
    if reader is None:
        raise _unknown(name, f"quant_method {_short(method)}")
    found = reader(quantization, name)
    _check_stated_bits(quantization, found, name)
    return found


# Types of a cache as modelopt names them.
_CACHES = {"fp8": "fp8", "nvfp4": "nvfp4"}


def cache_stored(quantization: Any) -> str:
    """The type of cache that a checkpoint asks for beside its weights: `kv_cache_quant_algo` of modelopt, or a
    `kv_cache_scheme` of 8-bit floats of compressed-tensors; "" where it asks for none.
    """
    if not isinstance(quantization, Mapping):
        return ""
    inner = quantization.get("quantization")
    for part in (quantization, inner if isinstance(inner, Mapping) else {}):
        if found := _CACHES.get(str(part.get("kv_cache_quant_algo")).lower()):
            return found
    scheme = quantization.get("kv_cache_scheme")
    narrow = isinstance(scheme, Mapping) and scheme.get("num_bits") == 8 and scheme.get("type") == "float"
    return "fp8" if narrow else ""


# Bits of an element, by how the names of precisions begin.
_BITS_OF = {"int2": 2, "int3": 3, "int4": 4, "int8": 8, "ternary": 2, "nvfp4": 4, "mxfp4": 4, "fp8": 8}
_STATED = ("bits", "w_bit", "num_bits", "nbits")


def _check_stated_bits(q: Mapping[str, Any], found: Stored, name: str) -> None:
    """Raises FormatError where bits are stated that the matrices are not counted with, UnsupportedError where some
    modules have others.
    """
    counted = [bits for begin, bits in _BITS_OF.items() if any(part.startswith(begin) for part in found)]
    for key in _STATED:
        if q.get(key) is not None and q[key] not in counted:
            raise FormatError(
                f"{name}: {key} of quantization_config is {_short(q[key])}, but its method stores "
                f"{' and '.join(dict.fromkeys(found))}; one of them is wrong"
            )
    for key in ("dynamic", "extra_config"):  # GPTQModel's and AutoRound's exceptions, by pattern of the module's name
        rules = q.get(key)
        for rule in rules.values() if isinstance(rules, Mapping) else ():
            bits = rule.get("bits") if isinstance(rule, Mapping) else None
            if bits in list(_WEIGHT_ONLY) and bits not in counted:
                raise _unknown(name, f"a mixture of {' and '.join(dict.fromkeys(found))} with {bits} bits ({key})")


def _short(value: Any) -> str:
    return shown_value(value)


def _says(q: Mapping[str, Any], name: str, *keys: str) -> bool:
    """Whether one of ``keys`` is true; absent and null are not."""
    found = [(key, q[key]) for key in keys if q.get(key) is not None]
    for key, value in found:
        if not isinstance(value, bool):
            raise FormatError(f"{name}: {key} of quantization_config is {_short(value)}; true or false is needed")
    return any(value for _, value in found)


def _unknown(name: str, what: str) -> UnsupportedError:
    return UnsupportedError(
        f"{name}: {what} is not counted here; known are {', '.join(sorted(METHODS))}. Else {_INSTEAD}"
    )


def _both(precision: str) -> Stored:
    return precision, precision


def _bits(q: Mapping[str, Any], name: str, *keys: str) -> Stored:
    """Weight-only integers of the bits that the first present of ``keys`` states."""
    key = next((key for key in keys if q.get(key) is not None), None)
    if key is None:
        raise FormatError(f"{name}: quantization_config has no {keys[0]}; it cannot be counted without")
    bits = q[key]
    if isinstance(bits, bool) or not isinstance(bits, int) or bits not in _WEIGHT_ONLY:
        allowed = ", ".join(map(str, _WEIGHT_ONLY))
        raise FormatError(f"{name}: {key} of quantization_config is {_short(bits)}; allowed are {allowed}")
    return _both(_WEIGHT_ONLY[bits])


def _integers(q: Mapping[str, Any], name: str) -> Stored:
    return _bits(q, name, "bits", "w_bit", "num_bits")


def _bitsandbytes(q: Mapping[str, Any], name: str) -> Stored:
    """NF4 and FP4 in blocks of 64 with an fp32 scale take as much as int4 in groups of 32 (arXiv:2305.14314); LLM.int8
    multiplies in int8 (arXiv:2208.07339).
    """
    four, eight = (_says(q, name, f"load_in_{n}bit", f"_load_in_{n}bit") for n in (4, 8))
    if four == eight:
        raise FormatError(
            f"{name}: quantization_config of bitsandbytes has {'both' if four else 'neither'} load_in_4bit "
            f"{'and' if four else 'nor'} load_in_8bit; one of them must be true, or {_INSTEAD}"
        )
    return _both("int4_wo" if four else "int8")


def _fp8(q: Mapping[str, Any], name: str) -> Stored:
    block = q.get("weight_block_size")
    if block is None:
        return _both("fp8")
    if not isinstance(block, list) or len(block) != 2 or not all(type(v) is int and v > 0 for v in block):
        raise FormatError(
            f"{name}: weight_block_size of quantization_config is {_short(block)}; two whole numbers above 0 are needed"
        )
    return _both("fp8_block")


def _hqq(q: Mapping[str, Any], name: str) -> Stored:
    inner = q.get("quant_config")
    weights = inner.get("weight_quant_params") if isinstance(inner, Mapping) else None
    return _bits(weights if isinstance(weights, Mapping) else q, name, "nbits", "bits")


def _aqlm(q: Mapping[str, Any], name: str) -> Stored:
    """Codes of ``num_codebooks`` codebooks for each group of weights (arXiv:2401.06118)."""
    found = [q.get(key) for key in ("num_codebooks", "nbits_per_codebook", "in_group_size")]
    found.append(q.get("out_group_size", 1))
    sizes = [v for v in found if isinstance(v, int) and not isinstance(v, bool) and v > 0]
    if len(sizes) < len(found):
        raise FormatError(
            f"{name}: quantization_config of aqlm needs num_codebooks, nbits_per_codebook and in_group_size, whole "
            "numbers above 0"
        )
    books, bits, inputs, outputs = sizes
    if max(sizes) > 2**16:
        raise FormatError(f"{name}: quantization_config of aqlm has {_short(max(sizes))}; at most {2**16} is allowed")
    each = books * bits / (inputs * outputs)
    if each not in _WEIGHT_ONLY:
        raise _unknown(name, f"aqlm of {each:.3g} bits")
    return _both(_WEIGHT_ONLY[int(each)])


# Types of torchao, lower-case letters and digits alone, without the "config" of its newer names.
_TORCHAO = {
    "int4weightonly": "int4_wo",
    "int8weightonly": "int8_wo",
    "int8dynamicactivationint4weight": "int4_wo",
    "int8dynamicactivationint8weight": "int8",
    "float8weightonly": "fp8_wo",
    "float8dynamicactivationfloat8weight": "fp8",
}


def _torchao(q: Mapping[str, Any], name: str) -> Stored:
    kind: Any = q.get("quant_type")
    while isinstance(kind, Mapping):  # {"default": {"_type": "Int4WeightOnlyConfig", ...}}
        if "default" in kind and len(kind) > 1:
            raise _unknown(name, f"a mixture of torchao's types ({', '.join(map(_short, kind))})")
        kind = kind.get("default") or kind.get("_type")
    plain = "".join(c for c in str(kind).lower() if c.isalnum()).removesuffix("config")
    if plain not in _TORCHAO:
        raise _unknown(name, f"quant_type {_short(kind)} of torchao")
    return _both(_TORCHAO[plain])


_QUANTO = {"int2": "int2_wo", "int4": "int4_wo", "int8": "int8_wo", "float8": "fp8_wo"}


def _quanto(q: Mapping[str, Any], name: str) -> Stored:
    weights, activations = q.get("weights"), q.get("activations")
    if not isinstance(weights, str) or weights not in _QUANTO:
        raise FormatError(
            f"{name}: weights of quantization_config is {_short(weights)}; allowed are {', '.join(_QUANTO)}"
        )
    computed = {"int8": "int8", "float8": "fp8"}
    return _both(computed[weights] if activations == weights and weights in computed else _QUANTO[weights])


def _of_type(name: str, weights: Mapping[str, Any], activations: bool) -> str:
    """Precision of weights as compressed-tensors describes them; ``activations``: they are quantized as well."""
    bits, kind = weights.get("num_bits"), str(weights.get("type", "int"))
    if kind == "float" and bits == 4 and weights.get("group_size") == 32:
        return "mxfp4"
    if kind == "float" and bits == 4:
        return "nvfp4" if activations else "nvfp4_wo"
    if kind == "float" and bits == 8:
        return "fp8" if activations else "fp8_wo"
    if kind == "int" and bits == 8 and activations:
        return "int8"
    if kind == "int":
        return _bits({"num_bits": bits}, name, "num_bits")[0]
    raise FormatError(f"{name}: quantization_config has weights of {_short(bits)} bits of type {_short(kind)}")


def _groups(q: Mapping[str, Any], name: str) -> Stored:
    """compressed-tensors: groups of layers, of one precision; what is ignored stays in 16 bits."""
    groups = q.get("config_groups")
    found = set()
    for group in groups.values() if isinstance(groups, Mapping) else ():
        weights = group.get("weights") if isinstance(group, Mapping) else None
        if isinstance(weights, Mapping):
            inputs = group.get("input_activations")
            narrow = isinstance(inputs, Mapping) and inputs.get("num_bits") in (4, 8)
            found.add(_of_type(name, weights, narrow))
    if not found:
        raise FormatError(
            f"{name}: quantization_config has no config_groups with weights; it cannot be counted without"
        )
    if len(found) > 1:
        raise _unknown(name, f"a mixture of {', '.join(sorted(found))}")
    (precision,) = found
    # Where attention is left out, the experts alone are quantized.
    experts_only = "self_attn" in str(q.get("ignore")).lower()
    return ("bf16" if experts_only else precision), precision


_MODELOPT = {
    "fp8": "fp8",
    "fp8-pb-wo": "fp8_block",
    **dict.fromkeys(("nvfp4", "modelopt-fp4"), "nvfp4"),
    "nvfp4-awq": "nvfp4",
    "w4a16-awq": "int4_wo",
    "w4a8-awq": "int4_wo",
    "int4-awq": "int4_wo",
    "int8-sq": "int8",
}


def _modelopt(q: Mapping[str, Any], name: str) -> Stored:
    algorithm = q.get("quant_algo") or (q.get("quant_method") if "config_groups" not in q else None)
    if algorithm is None:
        return _groups(q, name)
    plain = str(algorithm).lower().replace("_", "-")
    if plain not in _MODELOPT:
        raise _unknown(name, f"quant_algo {_short(algorithm)} of modelopt")
    return _both(_MODELOPT[plain])


_QUARK = {"fp8_e4m3": "fp8", "fp4": "mxfp4", "int4": "int4_wo", "uint4": "int4_wo", "int8": "int8"}


def _quark(q: Mapping[str, Any], name: str) -> Stored:
    every = q.get("global_quant_config")
    weight = every.get("weight") if isinstance(every, Mapping) else None
    kind = weight.get("dtype") if isinstance(weight, Mapping) else None
    if not isinstance(kind, str) or kind not in _QUARK:
        raise _unknown(name, f"weights of type {_short(kind)} of quark")
    return _both(_QUARK[str(kind)])


def _fixed(gemm: str, moe: str) -> Callable[[Mapping[str, Any], str], Stored]:
    return lambda q, name: (gemm, moe)


METHODS: dict[str, Callable[[Mapping[str, Any], str], Stored]] = {
    **dict.fromkeys(("gptq", "gptq-marlin", "awq", "awq-marlin", "auto-round", "intel/auto-round"), _integers),
    "bitsandbytes": _bitsandbytes,
    "fp8": _fp8,
    "fbgemm-fp8": _fixed("fp8", "fp8"),
    "mxfp4": _fixed("bf16", "mxfp4"),  # gpt-oss: only the experts are quantized
    "hqq": _hqq,
    "aqlm": _aqlm,
    "torchao": _torchao,
    "quanto": _quanto,
    "eetq": _fixed("int8_wo", "int8_wo"),
    "bitnet": _fixed("ternary_wo", "ternary_wo"),
    "compressed-tensors": _groups,
    **dict.fromkeys(("modelopt", "modelopt-fp4", "nvfp4"), _modelopt),
    "quark": _quark,
}
