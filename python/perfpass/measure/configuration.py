"""What is measured (Configuration) and how carefully (Protocol)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from perfpass.declared import Choice, Flag, Kind, Maybe, Number, Text
from perfpass.errors import ArgumentError

MODES = ("inference", "training", "prefill", "decode")
PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "amp", "amp_bf16")
RUNTIMES = ("torch", "torch.compile", "onnxruntime", "tvm", "openvino", "litert")
LAYOUTS = ("nchw", "nhwc")
OPTIMIZERS = ("sgd", "adamw")
SOURCES = ("timm", "torchvision", "definitions", "hf", "onnx", "file", "unet", "net")
# Runtimes of models that are files already: "file" is one of another framework (`perfpass.importers.formats`).
_OF_FILES = {"onnx": ("onnxruntime", "openvino"), "file": ("openvino", "litert")}
_ON_CPUS = ("openvino", "litert")
DEFAULT_SEQUENCE_LENGTH = 128
_LARGEST = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """One thing to measure. Every field is part of its identity (`key`).

    ``model`` is ``SOURCE:NAME``: ``timm:resnet50``, ``torchvision:resnet50``, ``definitions:yolov8n``
    (`perfpass.importers.definitions`; networks of one image), ``hf:NAME`` (a configuration shipped with perfpass) or
    ``hf:PATH`` (a config.json or its folder; weights are random), ``onnx:PATH``, ``file:PATH`` (an OpenVINO or LiteRT
    file), ``unet:NAME``, ``net:NAME`` (`perfpass.measure.networks`).
    ``sequence_length`` counts tokens read by each sample (inference, training, prefill) or already in its cache
    (decode). ``image_size`` is in pixels, None for the model's own. ``threads`` (CPU only): None for all. ``repeat``
    tells repetitions of the same configuration apart. ``input_shapes`` (``onnx:`` only): shapes by input name, for a
    file with open dimensions other than the batch; given as a mapping or as pairs. ``own_process`` (CPU, inference
    only): measured in an interpreter started for it that imports only what runs the model; what is exported or compiled
    before, another process makes.
    """

    model: str
    mode: str = "inference"
    batch: int = 1
    precision: str = "fp32"
    layout: str = "nchw"
    runtime: str = "torch"
    device: str = "cpu"
    image_size: int | None = None
    sequence_length: int | None = None
    optimizer: str | None = None
    threads: int | None = None
    repeat: int = 0
    input_shapes: tuple[tuple[str, tuple[int, ...]], ...] | None = None
    own_process: bool = False

    def __post_init__(self) -> None:
        source, colon, name = self.model.partition(":") if isinstance(self.model, str) else ("", "", "")
        if not colon or source not in SOURCES or not name:
            raise ArgumentError(f"model {self.model!r}; write SOURCE:NAME with SOURCE one of {', '.join(SOURCES)}")
        for field, kind in _FIELDS.items():
            kind.check(getattr(self, field), "", field, ArgumentError)
        if self.input_shapes is not None:
            object.__setattr__(self, "input_shapes", _shapes(self.input_shapes))
        self._check_combination()

    def _check_combination(self) -> None:
        if self.device not in ("cpu", "cuda") and not self.device.removeprefix("cuda:").isdigit():
            raise ArgumentError(f"device {self.device!r}; allowed are cpu, cuda and cuda:N")
        if self.mode == "training" and self.runtime not in ("torch", "torch.compile"):
            raise ArgumentError(f"{self.runtime} runs no training step; use torch or torch.compile")
        if self.mode in ("prefill", "decode") and self.source != "hf":
            raise ArgumentError(f"{self.mode} needs a language model (hf:NAME), got {self.model!r}")
        if self.is_file and self.runtime not in _OF_FILES[self.source]:
            runs = " or ".join(_OF_FILES[self.source])
            raise ArgumentError(f"{self.model!r} is a file, which runs in {runs}, not in {self.runtime}")
        if self.runtime == "litert" and not self.is_file:
            raise ArgumentError(
                f"{self.model!r} in litert: only files are measured there; convert the model with litert-torch and "
                "pass the .tflite file"
            )
        if self.runtime in _ON_CPUS and self.device != "cpu":
            raise ArgumentError(f"{self.runtime} on {self.device}; it is measured on the CPU only")
        if self.mode in ("prefill", "decode") and not self.runtime.startswith("torch"):
            raise ArgumentError(f"{self.mode} is measured in torch only, not in {self.runtime}")
        if self.optimizer is not None and self.mode != "training":
            raise ArgumentError(f"optimizer {self.optimizer!r} in mode {self.mode}; only training has one")
        if self.threads is not None and self.device != "cpu":
            raise ArgumentError(f"threads {self.threads} on {self.device}; only the CPU has them")
        if self.own_process and (self.device != "cpu" or self.mode != "inference" or self.runtime == "torch.compile"):
            raise ArgumentError(
                "own_process is for inference on the CPU in torch, onnxruntime, openvino, litert or tvm"
            )
        if self.input_shapes is not None and self.source != "onnx":
            raise ArgumentError(f"input_shapes of {self.model!r}; only ONNX files have them")
        # An ONNX file has the precision that it was written in; models that are exported here are exported in fp32.
        if self.precision != "fp32" and not self.runtime.startswith("torch") and not self.is_file:
            raise ArgumentError(f"precision {self.precision!r} in {self.runtime}; only fp32 is measured there")

    @property
    def source(self) -> str:
        """Where the model comes from, the part before the colon."""
        return self.model.partition(":")[0]

    @property
    def is_file(self) -> bool:
        """Whether the model is a file that its runtime opens as it is."""
        return self.source in _OF_FILES

    @property
    def name(self) -> str:
        """The model's name in its source."""
        return self.model.partition(":")[2]

    @property
    def key(self) -> str:
        """20 hexadecimal digits, equal for equal configurations."""
        content = asdict(self)
        if self.input_shapes is None:
            del content["input_shapes"]  # configurations that lack it keep the keys that journals know them by
        if not self.own_process:
            del content["own_process"]
        return digest(content)

    def to_dict(self) -> dict[str, Any]:
        """All fields that are not None."""
        content = {name: value for name, value in asdict(self).items() if value is not None}
        if not self.own_process:
            del content["own_process"]
        if self.input_shapes is not None:
            content["input_shapes"] = {name: list(shape) for name, shape in self.input_shapes}
        return content

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Configuration:
        """The inverse of `to_dict`. Raises ArgumentError for unknown fields and values outside the allowed ones."""
        unknown = sorted(set(content) - {field.name for field in fields(cls)})
        if unknown:
            known = ", ".join(field.name for field in fields(cls))
            raise ArgumentError(f"unknown field{'s' if unknown[1:] else ''} {', '.join(unknown)}; allowed are {known}")
        if "model" not in content:
            raise ArgumentError("a configuration needs a model")
        return cls(**content)


_SIZE = Number(1, _LARGEST, whole=True)
_FIELDS: dict[str, Kind] = {
    "model": Text(4096),
    "mode": Choice(MODES),
    "precision": Choice(PRECISIONS),
    "layout": Choice(LAYOUTS),
    "runtime": Choice(RUNTIMES),
    "optimizer": Maybe(Choice(OPTIMIZERS)),
    "device": Text(),
    "batch": _SIZE,
    "image_size": Maybe(_SIZE),
    "sequence_length": Maybe(_SIZE),
    "threads": Maybe(_SIZE),
    "repeat": Number(0, _LARGEST, whole=True),
    "own_process": Flag(),
}


def _shapes(given: Any) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Input shapes as pairs in the order of their names, so that equal ones are equal and can be hashed."""
    try:
        pairs = sorted((str(name), tuple(shape)) for name, shape in dict(given).items())
    except (TypeError, ValueError):
        raise ArgumentError(f"input_shapes {given!r}; it maps names of inputs to shapes") from None
    for name, shape in pairs:
        for size in shape:
            _SIZE.check(size, "", f"input_shapes of {name!r}:", ArgumentError)
    return tuple(pairs)


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """How a configuration is measured. All times in seconds.

    An iteration's latency is the time from its call to its completion on the device. Warm-up ends when two consecutive
    windows of iterations have medians within ``steady_share`` of each other. Iterations are then taken until the 95 %
    confidence interval of the median (from order statistics) is narrower than +-``confidence_share``, within the
    bounds given here.
    """

    steady_share: float = 0.02
    warmup_max_s: float = 5.0
    confidence_share: float = 0.01
    iterations_min: int = 11
    iterations_max: int = 20_000
    measure_min_s: float = 0.3
    measure_max_s: float = 5.0
    energy_min_s: float = 0.8  # of measured time, where energy is read: its counter moves in steps of 20 to 100 ms
    timeout_s: float = 300.0  # for one configuration, model building included
    iterations_least: int = 1  # measured even where they take longer than measure_max_s
    core: int | None = None  # an own process is pinned to it, with the highest priority that the system grants

    def __post_init__(self) -> None:
        for field in fields(self):
            kind = Number(0, 1_000_000, whole=field.name.startswith("iterations"), above=True)
            if field.name == "core":
                Maybe(Number(0, _LARGEST, whole=True)).check(self.core, "protocol", field.name, ArgumentError)
                continue
            kind.check(getattr(self, field.name), "protocol", field.name, ArgumentError)
        if self.measure_min_s > self.measure_max_s or self.iterations_min > self.iterations_max:
            raise ArgumentError("protocol: a minimum is larger than its maximum")

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Protocol:
        """Raises ArgumentError for unknown names and values out of range."""
        unknown = sorted(set(content) - {field.name for field in fields(cls)})
        if unknown:
            known = ", ".join(field.name for field in fields(cls))
            raise ArgumentError(f"protocol: unknown {', '.join(unknown)}; allowed are {known}")
        return replace(cls(), **content)


def digest(content: Any) -> str:
    """20 hexadecimal digits of the SHA-256 of ``content`` as canonical JSON."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:20]
