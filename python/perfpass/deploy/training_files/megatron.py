"""Megatron-LM's arguments: of a script's command line, of YAML, or under the names of NeMo and Megatron-Bridge."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from perfpass.deploy.training_files.settings import Keys, Settings, stated
from perfpass.errors import ArgumentError, FormatError, LimitError
from perfpass.llm import megatron
from perfpass.text import shown_value

_MOST_ARGUMENTS, _MOST_LAYERS, _MOST_DEPTH = 10_000, 10_000, 16
# Variables of a script that name one another, so many times; a circle of them ends there.
_MOST_NAMES, _LONGEST_VALUE = 4, 1000
_SIGN = "--"
_MARKS = ("tensor-model-parallel-size", "num-layers", "micro-batch-size", "pipeline-model-parallel-size")
_LONGEST_PATTERN = 200
_SIZES = (
    *("num-layers", "hidden-size", "ffn-hidden-size", "num-attention-heads", "num-query-groups", "kv-channels"),
    *("vocab-size", "make-vocab-size-divisible-by", "max-position-embeddings", "num-experts", "moe-router-topk"),
    *("moe-ffn-hidden-size", "moe-shared-expert-intermediate-size", "qk-head-dim", "qk-pos-emb-head-dim", "v-head-dim"),
    *("q-lora-rank", "kv-lora-rank", "tensor-model-parallel-size"),
)
_VIRTUAL = ("num-layers-per-virtual-pipeline-stage", "num-virtual-stages-per-pipeline-rank")
_HOSTS, _EACH = ("nnodes", "num-nodes"), ("nproc-per-node", "devices")
_ASSIGNED = re.compile(r"^\s*(?:export\s+)?([A-Za-z_]\w*)=(\S*)\s*(?:#.*)?$", re.MULTILINE)
_DEFAULT = re.compile(r"\$\{(\w+):?[-=]([^}]*)\}")
_NAMED = re.compile(r"\$\{?(\w+)\}?")
_POINTER = re.compile(r"^\$\{([.\w]+)\}$")
# NeMo's and Megatron-Bridge's names of what the command line has other names for.
_ALIASES = {
    "encoder-seq-length": "seq-length",
    "sequence-length": "seq-length",
    "activations-checkpoint-granularity": "recompute-granularity",
    "virtual-pipeline-model-parallel-size": "num-virtual-stages-per-pipeline-rank",
    "num-moe-experts": "num-experts",
    "fp8-recipe": "fp8-format",
    "fp8": "fp8-format",
    "expert-tensor-model-parallel-size": "expert-tensor-parallel-size",
}
# Options that change a step and are not counted, beside those that `perfpass.llm.megatron` lists.
_UNCOUNTED = {
    "cpu-offloading": "activations on the host: counted in the device's memory",
    "use-precision-aware-optimizer": "moments in fewer bits: counted in 32",
    "recompute-num-layers": "layers that are not computed anew: all are counted as computed anew",
    "tp-comm-overlap": "messages that products hide: taken as the frameworks that were measured",
    "moe-token-dispatcher-type": "how experts are sent to: taken as all-to-all",
    "grad-reduce-in-bf16": "gradients in 16 bits: counted in 32",
    "use-torch-fsdp2": "PyTorch's FSDP: counted as ZeRO 3",
}
_SHARDED = {"optim": "zero1", "optim-grads": "zero2", "optim-grads-params": "zero3", "no-shard": "none"}


def recognised(content: Mapping[str, Any]) -> bool:
    """Whether a YAML document holds arguments: a table of them, or the tables of NeMo and Megatron-Bridge."""
    return any(name in _MARKS for name, _ in _flat(content))


def recognised_script(text: str) -> bool:
    """Whether a text is a command line, or a script with one."""
    return any(f"{_SIGN}{name}" in text for name in _MARKS)


def read(content: Mapping[str, Any], where: str) -> Settings:
    """From YAML. Raises FormatError, LimitError."""
    found: dict[str, Any] = {}
    for count, (name, value) in enumerate(_flat(content)):
        if count > _MOST_ARGUMENTS:
            raise LimitError(f"{where}: over {_MOST_ARGUMENTS} entries; no training file has so many")
        if isinstance(value, str) and (pointer := _POINTER.match(value)):
            value = _pointed(content, pointer.group(1))
        if value is not None and value is not False and found.get(name) is None:
            found[name] = value
    kind = "NeMo" if "trainer" in content else "Megatron-Bridge" if "train" in content else "Megatron-LM"
    activation = str(found.get("activation", ""))
    found |= {"swiglu": True} if "swiglu" in activation or found.get("gated-linear-unit") else {}
    found |= {"disable-bias-linear": True} if _inside(content, "model", "bias") is False else {}
    if str(found.get("normalization", "")).lower() in ("rmsnorm", "rms_norm"):
        found["normalization"] = "RMSNorm"
    if found.get("num-query-groups"):
        found["group-query-attention"] = True
    word = str(found.get("precision", ""))
    if "bf16" in word or "bf16" in str(found.get("mixed-precision", "")):
        found["bf16"] = True
    elif word.startswith("16"):
        found["fp16"] = True
    name = str(_inside(content, "model", "optim", "name") or found.get("optimizer") or "")
    found |= {"use-distributed-optimizer": True} if "distributed" in name else {}
    found["optimizer"] = next((known for known in megatron.OPTIMIZERS if known in name), "adam")
    return _settings(found, where, kind)


def read_script(text: str, where: str) -> Settings:
    """From a command line or a script that has one. Raises FormatError, LimitError."""
    # "NAME=${NAME:-4}" is its default where the script alone is known.
    known = {name: _DEFAULT.sub(lambda m: m[2], value.strip("\"'")) for name, value in _ASSIGNED.findall(text)}

    def told(part: str) -> str:
        for _ in range(_MOST_NAMES):
            if len(part) > _LONGEST_VALUE:
                break
            part = _DEFAULT.sub(lambda m: known.get(m[1], m[2]), part)
            part = _NAMED.sub(lambda m: known.get(m[1], m[0]), part)
        return part[:_LONGEST_VALUE]

    try:
        tokens = shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError as error:
        raise FormatError(f"{where}: not a command line ({error})") from error
    found: dict[str, Any] = {}
    name = ""
    for token in tokens:
        if token.startswith(_SIGN):
            name, equals, value = token[len(_SIGN) :].partition("=")
            name = _plain(name)
            found[name] = told(value) if equals else True
        elif name and found[name] is True:
            found[name] = told(token.rstrip(")"))
        if len(found) > _MOST_ARGUMENTS:
            raise LimitError(f"{where}: over {_MOST_ARGUMENTS} arguments; no command line has so many")
    return _settings(found, where, "Megatron-LM")


def _settings(found: dict[str, Any], where: str, kind: str) -> Settings:
    keys = Keys(where, found)
    notes = [f"{name}: {what}" for name, what in _UNCOUNTED.items() if keys.get(name)]
    notes += [f"{name}: {what} are not counted" for name, what in megatron.UNCOUNTED.items() if keys.get(name)]
    each, hosts = keys.whole(*_EACH, least=1), keys.whole(*_HOSTS, least=1)
    devices = (each or 8) * hosts if hosts else each
    world = keys.whole("world-size", least=1)
    layers = keys.whole("num-layers", least=1)
    if layers is not None and layers > _MOST_LAYERS:
        raise LimitError(f"{where}: {layers} layers; at most {_MOST_LAYERS} are read")
    offloads = keys.flag("optimizer-cpu-offload")
    if offloads and keys.text("optimizer-offload-fraction") not in ("", "1", "1.0"):
        notes.append("optimizer-offload-fraction: all states are counted on the host")
    recompute = keys.text("recompute-granularity") or ("selective" if keys.flag("recompute-activations") else "")
    if recompute not in ("", "selective", "full"):
        raise FormatError(f"{where}: recompute-granularity is {shown_value(recompute)}; selective and full are read")
    modules = keys.text("recompute-modules")
    if recompute == "selective" and modules and "core_attn" not in modules:
        notes.append(f"recompute-modules {modules}: nothing is counted as computed anew")
        recompute = ""
    pipeline = keys.whole("pipeline-model-parallel-size", least=1)
    experts = keys.whole("num-experts", least=1)
    model = _model(found, where, notes)
    asked = {
        "gpus": world or devices,
        "tensor": keys.whole("tensor-model-parallel-size", least=1),
        "pipeline": pipeline,
        "virtual": _chunks(keys, layers, pipeline),
        "context": keys.whole("context-parallel-size", least=1),
        "expert": keys.whole("expert-model-parallel-size", least=1),
        "expert_tensor": keys.whole("expert-tensor-parallel-size", least=1) if experts else None,
        "sharding": _sharding(keys),
        "sequence": keys.whole("seq-length", least=1),
        "micro_batch": keys.whole("micro-batch-size", least=1),
        "global_batch": keys.whole("global-batch-size", least=1),
        "precision": _precision(keys),
        "optimizer": megatron.OPTIMIZERS.get(keys.text("optimizer") or "adam", "adamw"),
        "recompute": recompute or None,
        "attention": "unfused" if keys.text("transformer-impl") == "local" else None,
        "framework": "megatron",
        "offload": "states" if offloads else None,
    }
    return Settings(kind, model, stated(asked), tuple(notes))


def _model(found: dict[str, Any], where: str, notes: list[str]) -> Any:
    if not found.get("num-layers") or not found.get("hidden-size") or any(found.get(n) for n in megatron.UNCOUNTED):
        return None
    keys = Keys(where, found)
    sizes = {name: keys.whole(name) for name in _SIZES}
    layers = found.get("moe-layer-freq")
    if isinstance(layers, list):
        layers = "".join(f"[{int(bool(one))}]" for one in layers[:_MOST_LAYERS])
    elif len(str(layers)) > _LONGEST_PATTERN or re.search(r"\d{5}", str(layers)):
        raise LimitError(f"{where}: moe-layer-freq is {shown_value(layers)}; no model has such a pattern")
    if not (found.get("vocab-size") or found.get("padded-vocab-size")):
        notes.append("vocab-size is not stated: taken by the tokenizer's name, else GPT-2's")
    with _refused(where):
        return megatron.architecture(
            found | {n: v for n, v in sizes.items() if v is not None} | {"moe-layer-freq": layers}
        )


@contextlib.contextmanager
def _refused(where: str) -> Iterator[None]:
    """What Megatron-LM would not start is an error of the file."""
    try:
        yield
    except ArgumentError as error:
        raise FormatError(f"{where}: {error}") from error
    except FormatError:
        raise
    except (TypeError, ValueError, OverflowError, ZeroDivisionError) as error:
        raise FormatError(f"{where}: sizes of the model are not numbers that make one ({error})") from error


def _chunks(keys: Keys, layers: int | None, pipeline: int | None) -> int | None:
    stated = {name: keys.whole(name, least=1) for name in _VIRTUAL}
    if (pipeline or 1) == 1 or not any(stated.values()):
        return None
    if not layers or not pipeline:
        return stated["num-virtual-stages-per-pipeline-rank"]
    with _refused(keys.where):
        return megatron.chunks({**keys.content, **stated}, layers, pipeline)


def _sharding(keys: Keys) -> str:
    strategy = keys.text("data-parallel-sharding-strategy").replace("_", "-")
    if strategy in _SHARDED:
        return _SHARDED[strategy]
    if keys.flag("use-torch-fsdp2", "use-megatron-fsdp", "use-custom-fsdp"):
        return "zero3"
    return "zero1" if keys.flag("use-distributed-optimizer") else "none"


def _precision(keys: Keys) -> str:
    if keys.get("fp4-format", "fp4"):
        return "nvfp4"
    if keys.get("fp8-format"):
        return "fp8"
    return "bf16" if keys.flag("bf16") else "fp16" if keys.flag("fp16") else "fp32"


def _flat(content: Mapping[str, Any], depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Every entry that is no table, by its own name as the command line has it."""
    for name, value in content.items():
        if isinstance(value, Mapping):
            if depth < _MOST_DEPTH:
                yield from _flat(value, depth + 1)
        else:
            yield _plain(str(name)), value


def _plain(name: str) -> str:
    name = name.lstrip("-").replace("_", "-")
    return _ALIASES.get(name, name)


def _pointed(content: Mapping[str, Any], path: str) -> Any:
    """The value that "${model.encoder_seq_length}" means; None for one that is not there."""
    value = _inside(content, *path.strip(".").split("."))
    if value is None and path.startswith("."):
        value = _inside(content, "model", *path.strip(".").split("."))
    return None if isinstance(value, Mapping | list) or (isinstance(value, str) and "${" in value) else value


def _inside(content: Any, *path: str) -> Any:
    for name in path:
        content = content.get(name) if isinstance(content, Mapping) else None
    return content
