"""Models as layers: functional graphs, also those within others, and sequences of layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from perfpass.errors import FormatError, GraphError, LimitError, UnsupportedError
from perfpass.importers.formats.channels_last import Program, Tensor
from perfpass.importers.formats.keras.layer import Layer, tensors_in
from perfpass.text import shown_value

_DEEPEST = 30
_MOST_CALLS = 200_000
Key = tuple[str, int]


def model(layer: Layer, *args: Any, **kwargs: Any) -> Any:
    """A model called as a layer."""
    specs = layer.settings.config.get("layers")
    if not isinstance(specs, list):
        raise UnsupportedError(
            f"{shown_value(layer.name)} is a model of class {shown_value(layer.class_name)} whose layers stand in "
            "Python code and not in the file, and that code is never run; export the model (model.export) and pass the "
            "folder"
        )
    if "input_layers" in layer.settings.config:
        graph = _Graph(layer, specs)
        given = args[0] if len(args) == 1 else list(args)
        return graph.run(graph.fed(given))
    found = args[0]
    for number, spec in enumerate(specs):
        found = layer.part(f"{number}", spec)(found)
    return found


class _Graph:
    """A functional model: calls of layers by the results that they read."""

    def __init__(self, layer: Layer, specs: list[Any]) -> None:
        self.program: Program = layer.program
        self.settings = layer.settings
        self.layers: dict[str, Layer] = {}
        self.calls: dict[Key, Any] = {}
        self.counted_from_one: set[str] = set()  # models: a list counts the call that made them, which no file holds
        is_keras_2 = any(isinstance(spec, dict) and _has_calls_as_lists(spec) for spec in specs)
        for spec in specs:
            if not isinstance(spec, dict):
                raise FormatError(f"model {shown_value(layer.name)} has the layer {shown_value(spec)}")
            own = layer.part(f"layer:{spec.get('name')}", spec)
            self.layers[own.name] = own
            if _has_own_call(spec, is_keras_2):
                self.counted_from_one.add(own.name)
            nodes = spec.get("inbound_nodes") or []
            if not isinstance(nodes, list):
                raise FormatError(f"layer {shown_value(own.name)} has inbound nodes {shown_value(nodes)}")
            for number, node in enumerate(nodes):
                self.calls[own.name, number] = node
        if len(self.calls) > _MOST_CALLS:
            raise LimitError(f"a Keras model of {len(self.calls)} calls; at most {_MOST_CALLS} are read")
        self.results: dict[Key, list[Tensor]] = {}
        self.declared: dict[tuple[str, int, int], tuple[list[Any], str]] = {}

    def fed(self, given: Any) -> dict[str, Tensor]:
        """What is given for each input layer: by name where both are mappings, else in order."""
        asked = self.settings.config["input_layers"]
        if isinstance(asked, dict) and isinstance(given, dict):
            asked = {key: value for key, value in asked.items() if tensors_in(given.get(key))}  # others are optional
            given = [given[key] for key in asked]
        names, tensors = list(_references(asked)), tensors_in(given)
        if len(names) != len(tensors):
            raise FormatError(f"model {shown_value(self.settings.name)} of {len(names)} inputs gets {len(tensors)}")
        return {str(reference[0]): tensor for reference, tensor in zip(names, tensors, strict=True)}

    def run(self, fed: Mapping[str, Tensor]) -> Any:
        """The outputs, in the structure that the file gives them."""
        for name, tensor in fed.items():
            self.results[name, 0] = [tensor]
        batch = next((t.shape[0] for t in fed.values() if t.shape), 1)
        reads = {key: self._reads(node) for key, node in self.calls.items() if key not in self.results}
        readers: dict[Key, list[Key]] = {}
        missing = {}
        for key, needed in reads.items():
            open_ = {other for other in needed if other not in self.results}
            missing[key] = len(open_)
            for other in open_:
                readers.setdefault(other, []).append(key)
        ready = [key for key, count in missing.items() if count == 0]
        for key in ready:
            self._call(key, batch)
            for reader in readers.get(key, ()):
                missing[reader] -= 1
                if missing[reader] == 0:
                    ready.append(reader)
        outputs = self.settings.config.get("output_layers")
        return self._decoded(outputs, legacy=True)

    def _call(self, key: Key, batch: int) -> None:
        layer = self.layers[key[0]]
        if layer.class_name == "InputLayer":
            raise FormatError(f"input {shown_value(layer.name)} is none of the model's inputs; the file is damaged")
        args, kwargs = self._arguments(self.calls[key])
        found = layer(*args, **kwargs, declared=self._shapes(key, batch))
        self.results[key] = tensors_in(found)

    def _shapes(self, key: Key, batch: int) -> list[tuple[tuple[int, ...], str]] | None:
        """The shapes of a call's results as its readers declare them; None where one is open."""
        found: list[tuple[tuple[int, ...], str]] = []
        while (declared := self.declared.get((*key, len(found)))) is not None:
            sizes, dtype = declared
            shape = [batch if s is None and axis == 0 else s for axis, s in enumerate(sizes)]
            if any(isinstance(s, bool) or not isinstance(s, int) or s < 0 for s in shape):
                return None
            found.append((tuple(shape), dtype))
        return found or None

    # -- calls as they are serialized ------------------------------------------------------------------------------

    def _reads(self, node: Any) -> set[Key]:
        """The calls whose results a call reads."""
        found: set[Key] = set()
        waiting = [(node, 0)]
        while waiting:
            value, depth = waiting.pop()
            if depth > _DEEPEST:
                raise LimitError(f"a call of model {shown_value(self.settings.name)} is nested over {_DEEPEST} deep")
            if isinstance(value, dict) and value.get("class_name") == "__keras_tensor__":
                config = value.get("config")
                history = config.get("keras_history") if isinstance(config, dict) else None
                if not self._is_reference(history):
                    raise FormatError(f"a call of model {shown_value(self.settings.name)} reads {shown_value(history)}")
                assert isinstance(config, dict) and isinstance(history, list)
                found.add((history[0], history[1]))
                shape, dtype = config.get("shape"), config.get("dtype")
                if isinstance(shape, list) and isinstance(dtype, str):
                    self.declared[history[0], history[1], history[2]] = shape, dtype
            elif self._is_reference(value):
                found.add(self._listed(value))
                waiting += [(item, depth + 1) for item in value[3:]]
            elif isinstance(value, dict):
                waiting += [(item, depth + 1) for item in value.values()]
            elif isinstance(value, list):
                waiting += [(item, depth + 1) for item in value]
        return found

    def _is_reference(self, value: Any) -> bool:
        return (
            isinstance(value, list)
            and len(value) in (3, 4)
            and isinstance(value[0], str)
            and value[0] in self.layers
            and all(isinstance(v, int) and not isinstance(v, bool) for v in value[1:3])
            and isinstance(value[3:], list)
            and all(isinstance(v, dict) for v in value[3:])
        )

    def _listed(self, reference: list[Any]) -> Key:
        """The call that a list [layer, call, result] means."""
        return reference[0], reference[1] - (reference[0] in self.counted_from_one)

    def _arguments(self, node: Any) -> tuple[list[Any], dict[str, Any]]:
        if isinstance(node, dict):
            args, kwargs = self._decoded(node.get("args") or []), self._decoded(node.get("kwargs") or {})
            if not isinstance(args, list) or not isinstance(kwargs, dict):
                raise FormatError(
                    f"a call of model {shown_value(self.settings.name)} has arguments {shown_value(node)}"
                )
            return args, {key: value for key, value in kwargs.items() if key not in ("training", "declared")}
        if not isinstance(node, list):
            raise FormatError(f"a call of model {shown_value(self.settings.name)} is {shown_value(node)}")
        # Keras 2: [[layer, node, tensor, kwargs], ...], or one of these alone.
        references = [node] if self._is_reference(node) else node
        kwargs = {}
        for reference in references:
            if isinstance(reference, list) and len(reference) == 4 and isinstance(reference[3], dict):
                kwargs |= {k: self._decoded(v, legacy=True) for k, v in reference[3].items() if k != "training"}
        tensors = [self._decoded(r, legacy=True) for r in references]
        return [tensors[0] if len(tensors) == 1 else tensors], kwargs

    def _decoded(self, value: Any, legacy: bool = False, depth: int = 0) -> Any:
        """A serialized argument: its tensors are those that were made."""
        if depth > _DEEPEST:
            raise LimitError(f"a call of model {shown_value(self.settings.name)} is nested over {_DEEPEST} deep")
        if legacy and self._is_reference(value):
            return self._result((*self._listed(value), value[2]))
        if isinstance(value, list):
            return [self._decoded(item, legacy, depth + 1) for item in value]
        if not isinstance(value, dict):
            return value
        kind, config = value.get("class_name"), value.get("config")
        if kind == "__keras_tensor__":
            return self._result(config["keras_history"] if isinstance(config, dict) else config)
        if kind == "__ellipsis__":
            return Ellipsis
        if kind == "__slice__" and isinstance(config, dict):
            parts = [self._decoded(config.get(key), legacy, depth + 1) for key in ("start", "stop", "step")]
            if any(part is not None and (not isinstance(part, int) or isinstance(part, bool)) for part in parts):
                raise UnsupportedError("a slice whose ends are tensors; export the model (model.export)")
            if parts[2] == 0:
                raise FormatError("a slice of step 0; the file is damaged")
            return slice(*parts)
        if kind in ("__numpy__", "__tensor__") and isinstance(config, dict):
            shape: list[int] = []
            inner = config.get("value")
            while isinstance(inner, list) and len(shape) <= _DEEPEST:
                shape.append(len(inner))
                inner = inner[0] if inner else None
            dtype = config.get("dtype")
            return self.program.weight("", shape, dtype if isinstance(dtype, str) else "float32")
        return {key: self._decoded(item, legacy, depth + 1) for key, item in value.items()}

    def _result(self, reference: Any) -> Tensor:
        key, number = (reference[0], reference[1]), reference[2]
        made = self.results.get(key)
        if made is None:
            raise GraphError(
                f"model {shown_value(self.settings.name)}: layer {shown_value(reference[0])} is read and never made "
                "(its calls wait for one another, or are missing)"
            )
        if not 0 <= number < len(made):
            raise FormatError(f"layer {shown_value(reference[0])} has {len(made)} results, and number {number} is read")
        return made[number]


def _has_calls_as_lists(spec: Mapping[str, Any]) -> bool:
    """Whether a layer is called as Keras 2 writes it."""
    nodes = spec.get("inbound_nodes")
    return isinstance(nodes, list) and any(isinstance(node, list) for node in nodes)


def _has_own_call(spec: Mapping[str, Any], is_keras_2: bool) -> bool:
    """Whether a layer is a model whose calls are counted from one: a functional one; of Keras 2 also a sequence that
    begins with its input.
    """
    config = spec.get("config")
    layers = config.get("layers") if isinstance(config, dict) else None
    if not isinstance(config, dict) or not isinstance(layers, list):
        return False
    if "input_layers" in config:
        return True
    return is_keras_2 and bool(layers) and isinstance(layers[0], dict) and layers[0].get("class_name") == "InputLayer"


def _references(value: Any, depth: int = 0) -> Iterator[list[Any]]:
    """The [layer, node, tensor] of a structure, in order."""
    if depth > _DEEPEST:
        raise LimitError(f"inputs nested more than {_DEEPEST} deep")
    if isinstance(value, dict):
        for item in value.values():
            yield from _references(item, depth + 1)
    elif isinstance(value, list):
        if len(value) >= 3 and isinstance(value[0], str):
            yield value
        else:
            for item in value:
                yield from _references(item, depth + 1)


def input_names(config: Mapping[str, Any]) -> list[str]:
    """The names of a functional model's input layers, in order."""
    return [str(reference[0]) for reference in _references(config.get("input_layers"))]
