"""Keras's layers over time: LSTM, GRU, SimpleRNN, their cells, convolutional LSTMs, and what wraps other layers.

Gates and weights: the documentation of keras.layers.LSTM and GRU. A recurrent layer is one operator, as a GPU runs it
(cuDNN), with its kernels as [gates x hidden, inputs]; a ConvLSTM is its loop's body, repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perfpass.errors import FormatError, ShapeError, UnsupportedError
from perfpass.importers.formats.channels_last import AXIS, ROWS, Tensor
from perfpass.importers.formats.keras.layer import Layer, activation, tensors_in
from perfpass.importers.formats.keras.layers import joined
from perfpass.importers.formats.spatial import convolution

_GATES = {"LSTM": 4, "GRU": 3, "SimpleRNN": 1}
_KINDS = {"LSTM": "lstm", "GRU": "gru", "SimpleRNN": "rnn"}


def _named(layer: Layer) -> str:
    return layer.class_name.removesuffix("Cell").removeprefix("CuDNN")


def _sequence(layer: Layer, cell: Layer, x: Tensor, states: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """All outputs [N, length, hidden] of one cell over ``x`` and its last states."""
    name, p = _named(cell), layer.program
    if name not in _GATES:
        raise UnsupportedError(
            f"layer {layer.name} has a cell of class {cell.class_name}, whose code is not known; export the model "
            "(model.export) and pass the folder"
        )
    if len(x.shape) != 3:
        raise ShapeError(f"layer {layer.name} runs over {x.shape}; it takes [samples, length, width]")
    hidden, gates = cell.settings.integer("units"), _GATES[name]
    inputs: list[Tensor | None] = [
        x,
        cell.weight("kernel", [gates * hidden, x.shape[-1]]),
        cell.weight("recurrent_kernel", [gates * hidden, hidden]),
    ]
    if cell.settings.flag("use_bias", True):
        both = name == "GRU" and cell.settings.flag("reset_after", True)
        inputs.append(cell.weight("bias", [2, gates * hidden] if both else [gates * hidden]))
    state = (x.shape[0], hidden)
    outputs = p.add(
        _KINDS[name],
        cell.class_name,
        [*inputs, *states],
        [(*x.shape[:2], hidden), *[state] * (2 if name == "LSTM" else 1)],
        x.dtype,
        ROWS,
        hidden_size=hidden,
        directions=1,
    )
    return outputs[0], outputs[1:]


def recurrent(layer: Layer, x: Any, initial_state: Any = None, mask: Any = None, **_: Any) -> Any:
    """keras.layers.LSTM, GRU, SimpleRNN, and RNN over one cell or several."""
    if isinstance(x, list | tuple):
        x, *more = x
        initial_state = more or initial_state
    states = tensors_in(initial_state)
    cells = [layer]
    if layer.class_name == "RNN":
        cell = layer.part("cell")
        stacked = cell.settings.config.get("cells") if cell.class_name == "StackedRNNCells" else None
        if stacked is not None and not isinstance(stacked, list):
            raise FormatError(f"layer {layer.name} has cells that are no list")
        cells = [cell] if stacked is None else [cell.part(f"cells/{i}", spec) for i, spec in enumerate(stacked)]
    if layer.settings.flag("go_backwards"):
        x = layer.program.one("reverse", "reverse", [x], x.shape, axis=1)
    last: list[Tensor] = []
    for cell in cells:
        count = 2 if _named(cell) == "LSTM" else 1
        own, states = states[:count], states[count:]
        x, made = _sequence(layer, cell, x, own)
        last += made
    out = x if layer.settings.flag("return_sequences") else last_step(layer, x)
    return [out, *last] if layer.settings.flag("return_state") else out


def last_step(layer: Layer, x: Tensor) -> Tensor:
    """The last of [N, length, ...]: a view."""
    return layer.program.one("slice", "last", [x], (x.shape[0], *x.shape[2:]), view=1)


def cell_step(layer: Layer, x: Tensor, states: Any = None, **_: Any) -> Any:
    """A cell called as a layer: one step."""
    steps, made = _sequence(layer, layer, layer.program.reshape(x, (x.shape[0], 1, x.shape[-1])), tensors_in(states))
    return [layer.program.reshape(steps, (x.shape[0], steps.shape[-1])), made]


def convolutional_lstm(layer: Layer, x: Any, initial_state: Any = None, **_: Any) -> Any:
    """keras.layers.ConvLSTM1D to ConvLSTM3D: per step a convolution of the input and one of the state."""
    x = x[0] if isinstance(x, list | tuple) else x
    settings, p, rank = layer.settings, layer.program, len(x.shape) - 3
    if rank < 1 or not settings.last:
        raise UnsupportedError(f"layer {layer.name} runs over {x.shape} with channels first, which is not read")
    kernel, filters = settings.integers("kernel_size", rank), settings.integer("filters")
    weight = layer.weight("kernel", [*kernel, x.shape[-1], 4 * filters])
    back = layer.weight("recurrent_kernel", [*kernel, filters, 4 * filters])
    bias = layer.weight("bias", [4 * filters]) if settings.flag("use_bias", True) else None
    length = x.shape[1]
    with p.repeated(length):
        step = p.one("slice", "step", [x], (x.shape[0], *x.shape[2:]))
        given: dict[str, Any] = {
            "strides": settings.integers("strides", rank, 1),
            "dilations": settings.integers("dilation_rate", rank, 1),
            "padding": settings.text("padding", "valid", ("valid", "same")),
        }
        new = convolution(p, layer.class_name, step, weight, bias, **given)
        state = p.one("fill", "state", [], (*new.shape[:-1], filters), x.dtype)
        plain: dict[str, Any] = {"strides": [1] * rank, "dilations": [1] * rank, "padding": "same"}
        old = convolution(p, layer.class_name, state, back, None, **plain)
        total = p.each("add", "add", new, old)
        parts = p.add("split", "split", [total], [state.shape] * 4, x.dtype, AXIS, axis=len(total.shape) - 1)
        gates = [
            activation(layer, t, settings.config.get(key, default))
            for t, key, default in zip(
                parts,
                ("recurrent_activation", "recurrent_activation", "activation", "recurrent_activation"),
                ("hard_sigmoid", "hard_sigmoid", "tanh", "hard_sigmoid"),
                strict=True,
            )
        ]
        carry = p.each(
            "add", "add", p.each("mul", "multiply", gates[1], state), p.each("mul", "multiply", gates[0], gates[2])
        )
        out = p.each("mul", "multiply", gates[3], activation(layer, carry, settings.config.get("activation", "tanh")))
    found = out
    if settings.flag("return_sequences"):
        found = p.one("concat", "stack", [out], (out.shape[0], length, *out.shape[1:]), axis=1)
    return [found, out, carry] if settings.flag("return_state") else found


def bidirectional(layer: Layer, x: Any, initial_state: Any = None, mask: Any = None, **_: Any) -> Any:
    """keras.layers.Bidirectional: a layer forwards and one backwards over the same sequence."""
    p = layer.program
    forward = layer.part("layer")
    spec = layer.settings.config.get("backward_layer")
    if spec is None:
        name = f"backward_{forward.name.removeprefix('forward_')}"
        own = dict(forward.settings.config) | {"name": name, "go_backwards": not forward.settings.flag("go_backwards")}
        spec = dict(forward.spec) | {"name": name, "config": own}
    backward = layer.part("backward_layer", spec)
    states = tensors_in(initial_state)
    half = len(states) // 2
    ways = [
        way(x, initial_state=own) if own else way(x)
        for way, own in ((forward, states[:half]), (backward, states[half:]))
    ]
    outs = [way[0] if isinstance(way, list) else way for way in ways]
    if forward.settings.flag("return_sequences"):
        outs[1] = p.one("reverse", "reverse", [outs[1]], outs[1].shape, axis=1)
    merge = layer.settings.config.get("merge_mode", "concat")
    last = [t for way in ways if isinstance(way, list) for t in way[1:]]
    if merge is None:
        return [*outs, *last]
    if merge == "concat":
        found = joined(layer, outs, len(outs[0].shape) - 1)
    elif merge in ("sum", "ave", "mul"):
        found = p.each("mul" if merge == "mul" else "add", str(merge), *outs)
        if merge == "ave":
            found = p.each("div", "divide", found, p.tensor([], found.dtype, "literal"))
    else:
        raise layer.settings.wrong("merge_mode", "concat, sum, ave, mul or null")
    return [found, *last] if last else found


def time_distributed(layer: Layer, x: Tensor, mask: Any = None, **_: Any) -> Tensor:
    """keras.layers.TimeDistributed: all steps of all samples as one batch."""
    p = layer.program
    inner = layer.part("layer")(p.reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:])))
    found = tensors_in(inner)[0]
    return p.reshape(found, (*x.shape[:2], *found.shape[1:]))
