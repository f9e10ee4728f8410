"""Keras's layers over sound and over text: spectrograms, look-ups of words."""

from __future__ import annotations

from typing import Any

from perfpass.errors import ShapeError, UnsupportedError
from perfpass.importers.formats.channels_last import Tensor
from perfpass.importers.formats.keras.layer import Layer
from perfpass.importers.formats.spatial import convolution

_PARTS = {"real": 1, "imag": 1, "stft": 2, "magnitude": 2, "log": 2, "psd": 2, "angle": 2}  # convolutions of each mode


def lookup(layer: Layer, x: Any, *_: Any, **__: Any) -> Tensor:
    """keras.layers.StringLookup, IntegerLookup, Hashing and HashedCrossing to numbers."""
    first = x[0] if isinstance(x, list | tuple) else x
    mode = layer.settings.text("output_mode", "int")
    if mode != "int":
        raise UnsupportedError(
            f"layer {layer.name} gives its numbers as {mode}, whose width only its vocabulary says; export the model "
            "(model.export) and pass the folder"
        )
    return layer.program.one("text", layer.class_name, [first], first.shape, "int64")


def text_vectorization(layer: Layer, x: Tensor, *_: Any, **__: Any) -> Tensor:
    """keras.layers.TextVectorization to sequences of a fixed length."""
    if (
        layer.settings.text("output_mode", "int") != "int"
        or layer.settings.config.get("output_sequence_length") is None
    ):
        raise UnsupportedError(f"layer {layer.name} gives texts of no fixed length; set output_sequence_length")
    shape = (x.shape[0], layer.settings.integer("output_sequence_length"))
    return layer.program.one("text", layer.class_name, [x], shape, "int64")


def spectrogram(layer: Layer, x: Tensor, **_: Any) -> Tensor:
    """keras.layers.STFTSpectrogram: a convolution for each part of the transform, of every channel by itself."""
    settings, p = layer.settings, layer.program
    if len(x.shape) != 3 or not settings.last:
        raise UnsupportedError(f"layer {layer.name} transforms {x.shape} with channels first, which is not read")
    mode = settings.text("mode", "log", tuple(_PARTS))
    frame = settings.integer("frame_length", 256)
    step = settings.integer("frame_step", max(frame // 2, 1))
    bins = settings.integer("fft_length", frame) // 2 + 1
    rows = p.reshape(p.transpose(x, [0, 2, 1], view=1), (x.shape[0] * x.shape[2], x.shape[1], 1))
    padding = settings.text("padding", "valid", ("valid", "same"))
    parts = [
        convolution(
            p,
            layer.class_name,
            rows,
            layer.weight(f"{name}_kernel", [frame, 1, bins]),
            None,
            strides=[step],
            dilations=[1],
            padding=padding,
        )
        for name in (("imag",) if mode == "imag" else ("real", "imag")[: _PARTS[mode]])
    ]
    if mode == "stft":
        length = parts[0].shape[1]
        found = p.one("concat", "concatenate", parts, (*rows.shape[:1], length, 2 * bins), axis=2)
    elif mode == "angle":
        found = p.each("trigonometric", "arctan2", *parts)
    else:
        found = parts[0]
        if len(parts) == 2:
            found = p.each("add", "add", *(p.each("mul", "square", part, part) for part in parts))
        if mode == "magnitude":
            found = p.each("sqrt", "sqrt", found)
        elif mode == "log":
            found = p.each("log", "log", found)
    length, width = found.shape[1:]
    by_sample = p.reshape(found, (x.shape[0], x.shape[2], length, width))
    last = p.transpose(by_sample, [0, 2, 1, 3], view=1)
    return p.reshape(last, (x.shape[0], length, x.shape[2] * width))


def mel_spectrogram(layer: Layer, x: Tensor, **_: Any) -> Tensor:
    """keras.layers.MelSpectrogram: a transform, its magnitude, bins of the mel scale, decibels."""
    settings, p = layer.settings, layer.program
    if len(x.shape) not in (1, 2):
        raise ShapeError(f"layer {layer.name} transforms {x.shape}; it takes samples of sound")
    stride = settings.integer("sequence_stride", 512)
    bins, mels = settings.integer("fft_length", 2048) // 2 + 1, settings.integer("num_mel_bins", 128)
    frames = (x.shape[-1] + stride + 1) // stride
    lead = x.shape[:-1]
    spectrum = p.one("stft", "stft", [x], (*lead, frames, bins), "complex64")
    power = p.each("pow", "power", p.each("abs", "abs", spectrum, dtype=x.dtype), p.tensor([], x.dtype, "literal"))
    scale = p.tensor([bins, mels], x.dtype, "literal")
    found = p.one("matmul", "tensordot", [power, scale], (*lead, frames, mels), x.dtype)
    if settings.flag("power_to_db", True):
        found = p.each("log", "log10", found)
    order = [*range(len(lead)), len(lead) + 1, len(lead)]
    return p.transpose(found, order, "swapaxes")
