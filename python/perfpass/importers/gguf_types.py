"""Types of tensors in GGUF files, and whether the tensors of a file lie where they say.

Elements and bytes of a block as in gguf-py 0.19 (GGML_QUANT_SIZES); the layout is what ggml itself insists on
(`gguf_init_from_file`): each tensor begins where the one before it ends, rounded up to the file's alignment.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from perfpass.errors import FormatError, UnsupportedError
from perfpass.text import shown_value

DEFAULT_ALIGNMENT, _LARGEST_ALIGNMENT = 32, 1 << 20


class Tensor(NamedTuple):
    """One tensor: its dimensions, the fastest first, its type and where its data begins, after the header."""

    name: str
    dims: tuple[int, ...]
    kind: int
    offset: int


def bytes_of(tensor: Tensor, where: str) -> int:
    """Bytes of a tensor. Raises UnsupportedError for a type not known, FormatError for a row of half a block."""
    if tensor.kind not in BLOCKS:
        raise UnsupportedError(
            f"{where}: tensor {shown_value(tensor.name)} is of type {tensor.kind} of GGML; known are 0 to "
            f"{max(BLOCKS)} without those that GGML removed: quantise the model to one of them"
        )
    elements, size = BLOCKS[tensor.kind]
    row = tensor.dims[0] if tensor.dims else 1
    if row % elements:
        raise FormatError(
            f"{where}: tensor {shown_value(tensor.name)} has rows of {row}, and its type packs {elements} numbers"
        )
    return math.prod(tensor.dims) // elements * size


def check_layout(tensors: Sequence[Tensor], alignment: object, header_bytes: int, file_bytes: int, where: str) -> None:
    """Raises FormatError where tensors overlap, leave gaps or lie outside the file.

    ``header_bytes``: where the header ends. A file that ends there, or within the padding after it, is a header alone.
    """
    if alignment is None:
        alignment = DEFAULT_ALIGNMENT
    if (
        not isinstance(alignment, int)
        or isinstance(alignment, bool)
        or not 0 < alignment <= _LARGEST_ALIGNMENT
        or alignment & (alignment - 1)
    ):
        raise FormatError(f"{where}: general.alignment is {shown_value(alignment)}; a power of 2 is needed")
    at = end = 0
    for tensor in tensors:
        if tensor.offset != at:
            what = "overlaps the one before it" if tensor.offset < at else "leaves a gap before it"
            raise FormatError(
                f"{where}: tensor {shown_value(tensor.name)} begins at byte {tensor.offset:,} of the data and {what}: "
                f"{at:,} is expected; the header is damaged"
            )
        end = at + bytes_of(tensor, where)
        at = -(-end // alignment) * alignment
    begin = -(-header_bytes // alignment) * alignment
    if begin < file_bytes < begin + end:
        raise FormatError(
            f"{where}: its tensors take {end:,} bytes, and {file_bytes - begin:,} follow the header: a download that "
            f"broke off, or a damaged header; give the whole file, or the header alone (its first {header_bytes:,} "
            "bytes)"
        )


# Type of a tensor: elements of a block, and its bytes.
BLOCKS: dict[int, tuple[int, int]] = {
    0: (1, 4),
    1: (1, 2),
    30: (1, 2),
    28: (1, 8),
    24: (1, 1),
    25: (1, 2),
    26: (1, 4),
    27: (1, 8),
    2: (32, 18),
    3: (32, 20),
    6: (32, 22),
    7: (32, 24),
    8: (32, 34),
    9: (32, 40),
    10: (256, 84),
    11: (256, 110),
    12: (256, 144),
    13: (256, 176),
    14: (256, 210),
    15: (256, 292),
    16: (256, 66),
    17: (256, 74),
    18: (256, 98),
    19: (256, 50),
    20: (32, 18),
    21: (256, 110),
    22: (256, 82),
    23: (256, 136),
    29: (256, 56),
    34: (256, 54),
    35: (256, 66),
    39: (32, 17),
    40: (64, 36),
    41: (128, 18),
}
# general.file_type: the mixture of types that the file was made with, by the name of `perfpass.llm.costs`.
FILE_TYPES: dict[int, str] = {
    0: "fp32",
    1: "fp16",
    32: "bf16",
    2: "q4_0",
    3: "q4_1",
    7: "q8_0",
    8: "q5_0",
    9: "q5_1",
    10: "q2_k",
    11: "q3_k_s",
    12: "q3_k_m",
    13: "q3_k_l",
    14: "q4_k_s",
    15: "q4_k_m",
    16: "q5_k_s",
    17: "q5_k_m",
    18: "q6_k",
    19: "iq2_xxs",
    20: "iq2_xs",
    21: "q2_k_s",
    22: "iq3_xs",
    23: "iq3_xxs",
    24: "iq1_s",
    25: "iq4_nl",
    26: "iq3_s",
    27: "iq3_m",
    28: "iq2_s",
    29: "iq2_m",
    30: "iq4_xs",
    31: "iq1_m",
    38: "mxfp4",
    39: "nvfp4",
}
