"""What a torch module and an optimizer say of how they are trained, read from the objects; nothing of them is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from perfpass.errors import ArgumentError, PerfPassError, UnsupportedError
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.configuration import language_model
from perfpass.llm.recipe import Adapter
from perfpass.text import unknown

# Classes of optimizers by the name that `perfpass.train_cost` knows them by.
_OPTIMIZERS = {
    "sgd": "sgd",
    "adam": "adam",
    "adamw": "adamw",
    "nadam": "adamw",
    "radam": "adamw",
    "adamax": "adamw",
    "adam8bit": "adamw_8bit",
    "adamw8bit": "adamw_8bit",
    "pagedadamw8bit": "adamw_8bit",
    "pagedadamw": "adamw",
    "pagedadamw32bit": "adamw",
    "lion": "lion",
    "rmsprop": "momentum",
    "adagrad": "momentum",
    "muon": "muon",
    "adafactor": "adafactor",
}
NAMES = ("none", "sgd", "momentum", "adam", "adamw", "adamw_bf16", "adamw_8bit", "lion", "muon", "adafactor")
# What a step derived from any graph knows: those with as many states for each parameter stand in.
_AS_MANY_STATES = {
    "lion": "momentum",
    "muon": "momentum",
    "adafactor": "sgd",
    "adamw_8bit": "adamw",
    "adamw_bf16": "adamw",
}
PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "amp", "amp_bf16")
# Words of Lightning, Accelerate and Transformers.
_WORDS = {
    "32": "fp32",
    "32-true": "fp32",
    "no": "",
    "": "",
    "16": "amp",
    "16-mixed": "amp",
    "bf16-mixed": "amp_bf16",
    "16-true": "fp16",
    "bf16-true": "bf16",
}
_TYPES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
_HEADS = ("ForCausalLM", "LMHeadModel")
_QUANTISED = {"Params4bit": "nf4", "Int8Params": "int8"}
_TARGETS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("q_proj", "query", "wq", "q_lin"), ("query",)),
    **dict.fromkeys(("k_proj", "key", "wk", "k_lin"), ("key",)),
    **dict.fromkeys(("v_proj", "value", "wv", "v_lin"), ("value",)),
    **dict.fromkeys(("o_proj", "out_proj", "wo", "dense"), ("output",)),
    **dict.fromkeys(("c_attn", "query_key_value", "qkv_proj", "Wqkv"), ("query", "key", "value")),
    **dict.fromkeys(("gate_proj", "w1"), ("gate",)),
    **dict.fromkeys(("up_proj", "w3", "fc1", "c_fc", "dense_h_to_4h", "fc_in"), ("up",)),
    **dict.fromkeys(("down_proj", "w2", "fc2", "dense_4h_to_h", "fc_out"), ("down",)),
    "gate_up_proj": ("gate", "up"),
    "c_proj": ("output", "down"),
}


@dataclass(frozen=True, eq=False)
class Inspected:
    """A module as it is trained.

    ``module``: without the wrappers of torch.compile and of data parallelism. ``parameters`` and ``trained`` count
    elements, ``precision`` is that of most parameters that are not quantised. ``adapter``: of LoRA layers;
    ``language``: the decoder that the module is, None for other networks; ``attention``: as `perfpass.train_cost` calls
    what its configuration says, None where it says nothing.
    """

    module: torch.nn.Module
    name: str
    parameters: int
    trained: int
    precision: str
    checkpointed: bool
    compiled: bool
    adapter: Adapter | None
    language: LanguageModel | None
    attention: str | None

    def lines(self) -> tuple[str, ...]:
        """What was read, a sentence each."""
        found = [f"{self.trained:,} of {self.parameters:,} parameters are trained"]
        if self.adapter is not None:
            kept = "" if self.adapter.frozen == "none" else f", the rest frozen in {self.adapter.frozen}"
            name = "DoRA" if self.adapter.decomposed else "LoRA"
            found.append(f"{name} of rank {self.adapter.rank} on {', '.join(self.adapter.targets)}{kept}")
        if self.checkpointed:
            found.append("activation checkpointing is on")
        if self.attention == "unfused":
            found.append("attention is computed eagerly")
        if self.compiled:
            found.append("compiled by torch.compile")
        return tuple(found)


def inspected(module: torch.nn.Module) -> Inspected:
    """Reads a module. Raises ArgumentError for what is none, UnsupportedError where nothing is trained."""
    if not isinstance(module, torch.nn.Module):
        raise ArgumentError(f"estimate takes a torch.nn.Module, got {type(module).__name__}")
    inner, compiled = unwrapped(module)
    parameters = list(inner.parameters())
    trained = sum(p.numel() for p in parameters if p.requires_grad)
    if not trained:
        raise UnsupportedError(f"{type(inner).__name__} has no parameter that requires a gradient; nothing is trained")
    adapter = _adapter(inner)
    whole = trained == sum(p.numel() for p in parameters)
    return Inspected(
        module=inner,
        name=_name(inner),
        parameters=sum(p.numel() for p in parameters),
        trained=trained,
        precision=_precision(parameters),
        checkpointed=_checkpointed(inner),
        compiled=compiled,
        adapter=adapter,
        language=_language(inner) if whole or adapter is not None else None,
        attention=_attention(inner),
    )


def unwrapped(module: torch.nn.Module) -> tuple[torch.nn.Module, bool]:
    """The module inside torch.compile's and data parallelism's wrappers, and whether it is compiled."""
    compiled = False
    while True:
        compiled = compiled or module._compiled_call_impl is not None
        inner = getattr(module, "_orig_mod", None)
        if isinstance(inner, torch.nn.Module):
            module, compiled = inner, True
        elif isinstance(module, torch.nn.parallel.DistributedDataParallel | torch.nn.DataParallel):
            module = module.module
        else:
            return module, compiled


def optimizer_name(optimizer: Any) -> str:
    """The name of an optimizer: of one of torch.optim or bitsandbytes (wrapped or not), or the name itself.

    Raises ArgumentError for one that is not known.
    """
    if isinstance(optimizer, str):
        if optimizer not in NAMES:
            raise ArgumentError(unknown("optimizer", optimizer, NAMES))
        return optimizer
    while isinstance(inner := getattr(optimizer, "optimizer", None), torch.optim.Optimizer):
        optimizer = inner
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ArgumentError(f"optimizer must be a torch.optim.Optimizer or a name, got {type(optimizer).__name__}")
    name = _OPTIMIZERS.get(type(optimizer).__name__.lower())
    if name is None:
        raise ArgumentError(
            f"an optimizer of class {type(optimizer).__name__} is not known; give by name one with the same states: "
            f"{', '.join(NAMES)}"
        )
    if name == "sgd" and any(group.get("momentum") for group in optimizer.param_groups):
        return "momentum"
    bits = getattr(getattr(optimizer, "args", None), "optim_bits", 32)  # bitsandbytes' AdamW(optim_bits=8)
    return "adamw_8bit" if name in ("adam", "adamw") and bits == 8 else name


def optimizer_of_a_graph(name: str) -> tuple[str, str]:
    """The optimizer that stands in where a step is derived from any graph, and what is to be said of it."""
    other = _AS_MANY_STATES.get(name, name)
    said = "" if other == name else f"the step of {name} is taken as that of {other}, which its states are nearest to"
    return other, said


def precision_of(found: Inspected, asked: str | None) -> str:
    """The precision of PRECISIONS that a module is trained in: ``asked``, else that of its parameters.

    ``asked`` may be in the words of Lightning and Accelerate ("bf16-mixed", "no"). Raises ArgumentError.
    """
    name = _WORDS.get(asked or "", asked or "") or found.precision
    if name not in PRECISIONS:
        raise ArgumentError(unknown("precision", asked, (*PRECISIONS, *filter(None, _WORDS))))
    matrices = torch.get_float32_matmul_precision()
    return "tf32" if name == "fp32" and asked in (None, "", "no") and matrices != "highest" else name


def mixed(word: str) -> str:
    """The precision that "fp16" and "bf16" mean to Accelerate and Transformers, where they are autocast's."""
    return {"fp16": "amp", "bf16": "amp_bf16"}.get(word, word)


def shapes_of(example: Any) -> tuple[Any, int]:
    """The shapes of example inputs without their batch, as `perfpass.predict` takes them, and the batch.

    ``example``: a tensor, a sequence of them, or a mapping by keyword; numbers are left out, and labels are: the loss
    is added where the step is made. Values are not read. Raises ArgumentError.
    """
    if isinstance(example, torch.Tensor):
        return shapes_of((example,))
    named = isinstance(example, Mapping)
    if not named and not isinstance(example, Sequence):
        raise ArgumentError(
            f"example_inputs must be tensors, a sequence or a mapping of them, got {type(example).__name__}"
        )
    pairs = example.items() if named else enumerate(example)
    tensors = {
        key: value
        for key, value in pairs
        if isinstance(value, torch.Tensor) and value.dim() and key not in ("labels", "label")
    }
    batches = {value.shape[0] for value in tensors.values()}
    if len(batches) != 1:
        sizes = ", ".join(str(tuple(value.shape)) for value in tensors.values()) or "no tensor"
        raise ArgumentError(
            f"example_inputs must share their first dimension, the batch, got {sizes}; give input_shape"
        )
    if batches == {0}:
        raise ArgumentError("example_inputs hold an empty batch; give one sample or more, or input_shape")
    shapes = {key: _shape(value) for key, value in tensors.items()}
    return (shapes if named else tuple(shapes.values())), batches.pop()


def _shape(tensor: torch.Tensor) -> Any:
    size = tuple(tensor.shape[1:])
    return size if tensor.is_floating_point() else (size, str(tensor.dtype).removeprefix("torch."))


def _base(module: torch.nn.Module) -> torch.nn.Module:
    """The model inside peft's wrapper."""
    inner = getattr(module, "get_base_model", None)
    return inner() if callable(inner) else module


def _name(module: torch.nn.Module) -> str:
    base = _base(module)
    name = getattr(getattr(base, "config", None), "_name_or_path", "")
    return str(name or type(base).__name__)


def _precision(parameters: list[torch.nn.Parameter]) -> str:
    size: dict[str, int] = {}
    for parameter in parameters:
        if (name := _TYPES.get(parameter.dtype)) is not None:
            size[name] = size.get(name, 0) + parameter.numel()
    return max(size, key=lambda name: size[name]) if size else "fp32"


def _checkpointed(module: torch.nn.Module) -> bool:
    """By the flags of transformers and timm, and torch's own wrapper."""
    return any(
        getattr(part, "gradient_checkpointing", False) is True
        or getattr(part, "activation_checkpointing", False) is True
        or getattr(part, "grad_checkpointing", False) is True
        or type(part).__name__ == "CheckpointWrapper"
        for part in module.modules()
    )


def _adapter(module: torch.nn.Module) -> Adapter | None:
    """From the layers of peft: a rank, what they adapt, and in what the weights beside them are kept."""
    rank, targets, frozen, magnitudes = 0, set(), "none", False
    for name, part in module.named_modules():
        down = getattr(part, "lora_A", None)
        if not isinstance(down, torch.nn.ModuleDict) or not down:
            continue
        rank = max(rank, *(int(layer.out_features) for layer in down.values() if isinstance(layer, torch.nn.Linear)))
        targets |= set(_TARGETS.get(name.rpartition(".")[2], ()))
        magnitudes = magnitudes or len(getattr(part, "lora_magnitude_vector", ())) > 0
        weight = getattr(getattr(part, "base_layer", None), "weight", None)
        frozen = _QUANTISED.get(type(weight).__name__, frozen)
    ordered = tuple(name for name in ("query", "key", "value", "output", "gate", "up", "down") if name in targets)
    return Adapter(rank, ordered, frozen, decomposed=magnitudes) if rank and ordered else None


def _attention(module: torch.nn.Module) -> str | None:
    """By the implementation that transformers has chosen."""
    chosen = getattr(getattr(_base(module), "config", None), "_attn_implementation", None)
    return None if not isinstance(chosen, str) else "unfused" if chosen == "eager" else "flash"


def _language(module: torch.nn.Module) -> LanguageModel | None:
    """The decoder that a model of transformers (inside peft's, perhaps) is."""
    base = _base(module)
    content = getattr(getattr(base, "config", None), "to_dict", None)
    if not callable(content) or not type(base).__name__.endswith(_HEADS):
        return None
    try:
        found = language_model(content(), _name(base))
    except PerfPassError:
        return None
    return None if found.is_hybrid or found.is_encoder_decoder else found
