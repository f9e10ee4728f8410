"""One layer of a Keras model: its settings, its weights, and the layers inside it. What a class does: `table`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfpass.errors import FormatError, LimitError, ShapeError, UnsupportedError
from perfpass.importers.formats.channels_last import FREE, Program, Tensor
from perfpass.importers.formats.keras.settings import Settings, policy
from perfpass.text import shown_value

_DEEPEST = 40
_KERAS = ("keras", "tensorflow", "tf_keras", "tensorflow_core")

# Activations by name (keras.activations), and the canonical operator of each.
ACTIVATIONS = {
    "relu": "relu",
    "relu6": "clip",
    "threshold": "relu",
    "leaky_relu": "leaky_relu",
    "elu": "elu",
    "selu": "selu",
    "celu": "celu",
    "gelu": "gelu",
    "glu": "glu",
    "sigmoid": "sigmoid",
    "log_sigmoid": "sigmoid",
    "sparse_sigmoid": "clip",
    "hard_sigmoid": "hard_sigmoid",
    "hard_silu": "hard_swish",
    "hard_swish": "hard_swish",
    "silu": "silu",
    "swish": "silu",
    "mish": "mish",
    "tanh": "tanh",
    "hard_tanh": "clip",
    "tanh_shrink": "tanh",
    "soft_shrink": "clip",
    "hard_shrink": "clip",
    "softplus": "softplus",
    "squareplus": "softplus",
    "sparse_plus": "softplus",
    "softsign": "softsign",
    "exponential": "exp",
    "softmax": "softmax",
    "log_softmax": "log_softmax",
    "sparsemax": "softmax",
}


@dataclass(frozen=True)
class Known:
    """What each class of Keras computes: the layers and the operations that a model may be made of."""

    layers: Mapping[str, Callable[..., Any]]
    operations: Mapping[str, Callable[..., Any]]


class Layer:
    """A layer as serialized in ``spec``. Shared layers are one object, whose weights count once.

    Raises FormatError for a damaged one and UnsupportedError for one whose code is the user's.
    """

    def __init__(self, program: Program, spec: Any, known: Known, depth: int = 0) -> None:
        if depth > _DEEPEST:
            raise LimitError(f"a Keras model whose layers are nested more than {_DEEPEST} deep")
        if not isinstance(spec, dict) or not isinstance(spec.get("class_name"), str):
            raise FormatError(f"a Keras model has the layer {shown_value(spec)}, which names no class")
        config = spec.get("config")
        name = spec.get("name") or (config.get("name") if isinstance(config, dict) else None) or spec["class_name"]
        self.program = program
        self.spec: Mapping[str, Any] = spec
        self.known = known
        self.depth = depth
        self.class_name: str = spec["class_name"]
        self.name = str(name)[:500]
        self.settings = Settings(self.name, config)
        # An operation (keras.ops) has a dtype of its results, not a policy.
        self.dtype, self.mode = policy(self.name, self.settings.config.get("dtype"))
        self.weights: dict[str, Tensor] = {}
        self.parts: dict[str, Layer] = {}

    @property
    def module(self) -> str:
        """The Python module that the file names; never imported."""
        return str(
            self.spec.get("module") or ("keras.layers" if self.spec.get("registered_name") is None else "the user")
        )

    @property
    def built_in(self) -> bool:
        """Whether the class is said to be Keras's own."""
        if self.spec.get("module") is None and self.spec.get("registered_name") is not None:
            return False
        return self.module.partition(".")[0] in _KERAS and ">" not in self.class_name

    @property
    def is_operation(self) -> bool:
        """Whether it is of keras.ops. HDF5 files do not say so: a layer has a setting that an operation lacks."""
        if self.spec.get("module") is None:
            return "trainable" not in self.settings.config
        return ".ops." in f"{self.module}."

    def weight(self, key: str, shape: Sequence[int], dtype: str = "") -> Tensor:
        """The weight ``key`` of ``shape``. Raises ShapeError where a shared layer would need two."""
        found = self.weights.get(key)
        if found is None:
            found = self.program.weight(f"{self.name}/{key}", shape, dtype or self.dtype)
            self.weights[key] = found
        if found.shape != tuple(shape):
            raise ShapeError(
                f"layer {shown_value(self.name)} is shared by inputs that need its {key} as {found.shape} and as "
                f"{tuple(shape)}; the file contradicts itself"
            )
        return found

    def part(self, key: str, spec: Any = None) -> Layer:
        """The layer inside this one that ``spec`` (by default the setting ``key``) describes."""
        if key not in self.parts:
            own = self.settings.config.get(key) if spec is None else spec
            self.parts[key] = Layer(self.program, own, self.known, self.depth + 1)
        return self.parts[key]

    def own(self, key: str, class_name: str, config: dict[str, Any]) -> Layer:
        """A layer that Keras makes inside this one, with this one's type."""
        given = {"name": f"{self.name}/{key}", "dtype": self.settings.config.get("dtype")} | config
        return self.part(key, {"class_name": class_name, "config": given})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the layer makes of tensors. Raises UnsupportedError for a class that is not known."""
        operation = self.is_operation and self.class_name in self.known.operations
        known = self.known.operations if operation else self.known.layers
        compute = known.get(self.class_name) if self.built_in else None
        with self.program.scope(self.name):
            if compute is None:
                return unknown(self, kwargs.pop("declared", None), tensors_in([args, kwargs]))
            kwargs.pop("declared", None)
            try:
                return compute(self, *args, **kwargs)
            except (TypeError, AttributeError, IndexError, KeyError, ValueError, ZeroDivisionError) as error:
                if isinstance(error, FormatError | ShapeError | LimitError):
                    raise
                raise FormatError(
                    f"layer {shown_value(self.name)} ({self.class_name}) has inputs or settings that its class does "
                    f"not take ({error}); the file is damaged, or of a later Keras"
                ) from error

    def activate(self, x: Tensor, key: str = "activation", default: str | None = None) -> Tensor:
        """``x`` through the activation that the setting ``key`` names."""
        value = self.settings.config.get(key, default)
        return activation(self, x, value)


def activation(layer: Layer, x: Tensor, value: Any) -> Tensor:
    """``x`` through an activation: its name, a serialized function or a layer. Raises UnsupportedError."""
    if isinstance(value, dict):
        if value.get("class_name") in ("function", "builtin_function_or_method"):
            value = value.get("config")
            value = value.get("name") if isinstance(value, dict) else value
        else:
            return layer.part(f"activation:{value.get('class_name')}", value)(x)
    if value is None or value == "linear":
        return x
    kind = ACTIVATIONS.get(value) if isinstance(value, str) else None
    if kind is None:
        raise UnsupportedError(
            f"layer {shown_value(layer.name)} has the activation {shown_value(value)}, whose code is not Keras's and "
            "is never run; export the model (model.export) and pass the folder"
        )
    if kind in ("softmax", "log_softmax"):
        return layer.program.one(kind, value, [x], x.shape, axis=len(x.shape) - 1)
    if kind == "glu":
        return layer.program.one(kind, value, [x], (*x.shape[:-1], x.shape[-1] // 2), axis=len(x.shape) - 1)
    return layer.program.each(kind, value, x)


def unknown(layer: Layer, declared: Sequence[tuple[tuple[int, ...], str]] | None, inputs: list[Tensor]) -> Any:
    """A layer whose code is not known, with the shapes that the file declares for its results."""
    whose = "whose code is the user's" if not layer.built_in else "which is not known here"
    if layer.class_name == "Lambda":
        whose = "whose code stands in the file and is never run"
    if not declared or not inputs:
        raise UnsupportedError(
            f"layer {shown_value(layer.name)} is a {shown_value(layer.class_name)} of {layer.module}, {whose}, and the "
            "file does not say what shape it gives; export the model (model.export) and pass the folder"
        )
    layer.program.notes[
        f"layer {shown_value(layer.name)} is a {shown_value(layer.class_name)} of {layer.module}, {whose}: counted as "
        "an unknown operator by the shapes that the file declares, its parameters and arithmetic are missing"
    ] = False
    made = [layer.program.one("unknown", layer.class_name, inputs, shape, dtype, FREE) for shape, dtype in declared]
    return made[0] if len(made) == 1 else made


def tensors_in(value: Any, depth: int = 0) -> list[Tensor]:
    """The tensors in nested lists and mappings, in order."""
    if isinstance(value, Tensor):
        return [value]
    if depth > _DEEPEST:
        return []
    if isinstance(value, list | tuple):
        return [t for item in value for t in tensors_in(item, depth + 1)]
    if isinstance(value, dict):
        return [t for item in value.values() for t in tensors_in(item, depth + 1)]
    return []
