"""NCNN's ``.param`` files: text, and binary (``.param.bin``), which has the same layers with numbers for names.

Source of both forms: Net::load_param and ParamDict of ncnn (BSD-3-Clause), magic 7767517; every layer has parameters by
number, arrays under -23300 less the number.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perfpass.bounded_file import read_file
from perfpass.errors import FormatError, LimitError

MAGIC = 7767517
_MOST_BYTES = 1 << 26
_MOST_LAYERS = 1_000_000
_MOST_BLOBS = 1 << 16  # of one layer
_ARRAY, _END, _MOST_NUMBERS = -23300, -233, 4096

# Numbers of the binary form, in the order in which ncnn registers its layers; checked against its release 20261020.
_TYPES = (
    "AbsVal ArgMax BatchNorm Bias BNLL Concat Convolution Crop Deconvolution Dropout Eltwise ELU Embed Exp "
    "Flatten InnerProduct Input Log LRN MemoryData MVN Pooling Power PReLU Proposal Reduction ReLU Reshape "
    "ROIPooling Scale Sigmoid Slice Softmax Split SPP TanH Threshold Tile RNN LSTM BinaryOp UnaryOp "
    "ConvolutionDepthWise Padding Squeeze ExpandDims Normalize Permute PriorBox DetectionOutput Interp "
    "DeconvolutionDepthWise ShuffleChannel InstanceNorm Clip Reorg YoloDetectionOutput Quantize Dequantize "
    "Yolov3DetectionOutput PSROIPooling ROIAlign Packing Requantize Cast HardSigmoid SELU HardSwish Noop "
    "PixelShuffle DeepCopy Mish StatisticsPooling Swish Gemm GroupNorm LayerNorm Softplus GRU MultiHeadAttention "
    "GELU Convolution1D Pooling1D ConvolutionDepthWise1D Convolution3D ConvolutionDepthWise3D Pooling3D MatMul "
    "Deconvolution1D DeconvolutionDepthWise1D Deconvolution3D DeconvolutionDepthWise3D Einsum DeformableConv2D "
    "GLU Fold Unfold GridSample CumulativeSum CopyTo Erf Diag CELU Shrink RMSNorm Spectrogram InverseSpectrogram "
    "Flip SDPA RotaryEmbed "
)
TYPES = _TYPES.split()

Number = int | float
Parameters = dict[int, Number | str | list[Number]]


@dataclass
class Layer:
    """``parameters`` by number; of the binary form they are the 32 bits as an int, which `real` reads as a float."""

    type: str
    name: str
    bottoms: list[str]
    tops: list[str]
    parameters: Parameters = field(default_factory=dict)
    binary: bool = False

    def whole(self, number: int, otherwise: int = 0) -> int:
        value = self.parameters.get(number, otherwise)
        if isinstance(value, str | list):
            raise FormatError(f"{self}: parameter {number} is {str(value)[:40]!r}, a whole number is needed")
        if not -(1 << 31) <= value < 1 << 31:  # infinities and NaN too
            raise FormatError(f"{self}: parameter {number} is {value}; ncnn has whole numbers of 32 bits")
        return int(value)

    def real(self, number: int, otherwise: float) -> float:
        value = self.parameters.get(number, otherwise)
        if isinstance(value, str | list):
            raise FormatError(f"{self}: parameter {number} is {str(value)[:40]!r}, a number is needed")
        if self.binary and isinstance(value, int):
            return float(struct.unpack("<f", struct.pack("<i", value))[0])
        return float(value)

    def list_of(self, number: int) -> list[int]:
        value = self.parameters.get(number, [])
        return [int(v) for v in value if -(1 << 31) <= v < 1 << 31] if isinstance(value, list) else []

    def text(self, number: int) -> str:
        """Texts are arrays of characters in the binary form."""
        value = self.parameters.get(number, "")
        if isinstance(value, list):
            return "".join(chr(int(v)) for v in value if 0 < v < 128)
        return value if isinstance(value, str) else ""

    def __str__(self) -> str:
        return f"layer {self.name[:80]!r} ({self.type[:40]})"


def read(path: Path) -> list[Layer]:
    """The layers of a file. Raises FileError, FormatError, LimitError."""
    content = read_file(path, "an ncnn model", _MOST_BYTES)
    if content[:4] == struct.pack("<i", MAGIC):
        return _binary(content)
    return _text(content.decode("utf-8", "replace").splitlines())


def _checked(layers: int, blobs: int) -> None:
    if not 0 < layers <= _MOST_LAYERS or not 0 < blobs <= 4 * _MOST_LAYERS:
        raise LimitError(f"an ncnn model of {layers} layers and {blobs} blobs; up to {_MOST_LAYERS} layers are read")


def _text(lines: list[str]) -> list[Layer]:
    rows = [line.split() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if len(rows) < 2:
        raise FormatError(f"an ncnn .param file of {len(rows)} lines, cut before its layers; convert the model again")
    try:
        if [int(word) for word in rows[0]] != [MAGIC]:
            raise FormatError("an ncnn .param file begins with 7767517 on a line of its own; convert the model again")
        count, blobs = (int(word) for word in rows[1])
        _checked(count, blobs)
        alike: dict[tuple[str, ...], Parameters] = {}
        found = [_layer(row, alike) for row in rows[2:]]
    except ValueError as error:
        if isinstance(error, FormatError | LimitError):
            raise
        raise FormatError(
            f"an ncnn .param file with a line that is no layer ({error}); convert the model again"
        ) from error
    if len(found) != count:
        raise FormatError(
            f"a truncated ncnn .param file: it says {count} layers and holds {len(found)}; convert the model again"
        )
    return found


def _layer(row: list[str], alike: dict[tuple[str, ...], Parameters]) -> Layer:
    """``alike``: parameters by their text, which layers that are written alike share."""
    if len(row) < 4:
        line = " ".join(row)[:80]
        raise FormatError(
            f"a truncated ncnn .param file: its line {line!r} ends before the layer's name, inputs and outputs; "
            "convert the model again"
        )
    kind, name, bottoms, tops = row[0], row[1], int(row[2]), int(row[3])
    if not (0 <= bottoms <= _MOST_BLOBS and 0 <= tops <= _MOST_BLOBS) or len(row) < 4 + bottoms + tops:
        raise FormatError(f"an ncnn .param file whose layer {name[:80]!r} has {bottoms} inputs and {tops} outputs")
    given, made, rest = row[4 : 4 + bottoms], row[4 + bottoms : 4 + bottoms + tops], tuple(row[4 + bottoms + tops :])
    parameters = alike.get(rest)
    if parameters is None:
        parameters = alike[rest] = _parameters(rest)
    return Layer(kind, name, given, made, parameters)


def _parameters(rest: Sequence[str]) -> Parameters:
    parameters: Parameters = {}
    for word in rest:
        key, _, value = word.partition("=")
        number = int(key)
        if number <= _ARRAY:
            parameters[_ARRAY - number] = _array(value)
        else:
            parameters[number] = value.strip('"') if value.startswith('"') else _number(value)
    return parameters


def _array(value: str) -> str | list[Number]:
    if value.startswith('"'):
        return value.strip('"')
    length, *numbers = value.split(",", _MOST_NUMBERS + 1)
    if len(numbers) > _MOST_NUMBERS:
        raise LimitError(f"an ncnn .param file with an array of over {_MOST_NUMBERS} numbers")
    found = [v for word in numbers if not isinstance(v := _number(word), str)]
    if int(length) != len(found):
        raise FormatError(f"an ncnn .param file with an array of {len(found)} numbers that says {length[:20]}")
    return found


def _number(word: str) -> Number | str:
    if any(c in word for c in ".eEnN"):
        return float(word)
    if word[:1] in "-+0123456789":
        value = int(word)
        if abs(value) >= 1 << 48:
            raise FormatError(f"an ncnn .param file with the number {word[:30]}; numbers below 2^48 are read")
        return value
    return word


class _Words:
    """32-bit words of a binary file in order."""

    def __init__(self, content: bytes) -> None:
        self.content, self.at = content, 0

    def next(self) -> int:
        if self.at + 4 > len(self.content):
            raise FormatError(
                f"a truncated ncnn .param.bin file: it ends at byte {len(self.content)}; convert it again"
            )
        (found,) = struct.unpack_from("<i", self.content, self.at)
        self.at += 4
        return int(found)

    def several(self, count: int, most: int, what: str) -> list[int]:
        if not 0 <= count <= most:
            raise FormatError(f"a damaged ncnn .param.bin file: {count} {what} at byte {self.at}; convert it again")
        return [self.next() for _ in range(count)]


def _binary(content: bytes) -> list[Layer]:
    words = _Words(content)
    words.next()
    count, blobs = words.next(), words.next()
    _checked(count, blobs)
    found = []
    for index in range(count):
        kind, bottoms, tops = words.next(), words.next(), words.next()
        given = [str(b) for b in words.several(bottoms, _MOST_BLOBS, "inputs")]
        made = [str(t) for t in words.several(tops, _MOST_BLOBS, "outputs")]
        parameters: dict[int, Number | str | list[Number]] = {}
        while (number := words.next()) != _END:
            if number <= _ARRAY:
                parameters[_ARRAY - number] = list(words.several(words.next(), _MOST_NUMBERS, "numbers in an array"))
            elif 0 <= number < 64:
                parameters[number] = words.next()
            else:
                raise FormatError(
                    f"a damaged ncnn .param.bin file: parameter {number} at byte {words.at}; convert it again"
                )
        name = TYPES[kind] if 0 <= kind < len(TYPES) else f"type {kind}"
        found.append(Layer(name, f"{name}_{index}", given, made, parameters, binary=True))
    return found
