"""Headers of safetensors files: counted to the byte, and not believed before they were checked."""

from __future__ import annotations

import json

import numpy as np
import pytest

from perfpass.errors import FileError, FormatError, LimitError, UnsupportedError
from perfpass.importers import safetensors_header as headers

SHAPES = {"model.embed_tokens.weight": (100, 64), "model.layers.0.mlp.up_proj.weight": (128, 64)}


def framed(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(begin: int, end: int, shape=(4,), dtype="F32") -> dict[str, object]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


@pytest.fixture
def written(tmp_path):
    def write(content: bytes, name="model.safetensors"):
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write


def test_a_file_of_the_library_is_counted_to_the_byte(tmp_path):
    from safetensors.numpy import save_file

    arrays = {name: np.zeros(shape, dtype=np.float16) for name, shape in SHAPES.items()}
    save_file(arrays, tmp_path / "model.safetensors", metadata={"format": "pt"})
    found = headers.read(tmp_path / "model.safetensors")
    assert {t.name: t.shape for t in found.tensors} == SHAPES
    assert found.bytes == sum(a.nbytes for a in arrays.values()) and found.elements == 14592


def test_a_header_alone_says_the_same(written):
    whole = framed({"a": entry(0, 16), "b": entry(16, 48, (2, 4))}, bytes(48))
    alone = whole[: 8 + int.from_bytes(whole[:8], "little")]
    assert headers.read(written(whole)) == headers.read(written(alone, "header.safetensors"))


def test_types_narrower_than_a_byte_are_counted_by_their_bits(written):
    found = headers.read(written(framed({"a": entry(0, 32, (64,), "F4"), "b": entry(32, 80, (64,), "F6_E3M2")})))
    assert [t.bytes for t in found.tensors] == [32, 48]


def test_an_index_leads_to_its_files_and_says_which_are_missing(written, tmp_path):
    one, two = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    written(framed({"a": entry(0, 16)}), one)
    index = written(json.dumps({"weight_map": {"a": one, "b": two}}).encode(), headers.INDEX)
    assert (headers.read(index).missing, headers.read(tmp_path).bytes) == (1, 16)
    assert headers.read(tmp_path / one).missing == 1
    written(framed({"b": entry(0, 16)}), two)
    assert headers.read(tmp_path).bytes == 32
    written(framed({"c": entry(0, 16)}), two)
    with pytest.raises(FormatError, match="names 'b', which no file beside it holds"):
        headers.read(index)
    written(framed({"a": entry(0, 16)}), two)
    with pytest.raises(FormatError, match="two files hold 'a'"):
        headers.read(index)


@pytest.mark.parametrize("place", ["../model.safetensors", "/etc/passwd", "weights.bin"])
def test_an_index_leads_nowhere_else(written, place):
    index = written(json.dumps({"weight_map": {"a": place}}).encode(), headers.INDEX)
    with pytest.raises(FormatError, match="which is no file beside it"):
        headers.read(index)


LIES = {
    "past the end": (framed({"a": entry(0, 16)}, bytes(8)), FormatError, "8 bytes follow its header"),
    "more than its tensors": (framed({"a": entry(0, 16)}, bytes(64)), FormatError, "more than its tensors have"),
    "overlapping": (framed({"a": entry(0, 16), "b": entry(8, 24)}), FormatError, "'b' begins at byte 8 and overlaps"),
    "a gap": (framed({"a": entry(0, 16), "b": entry(32, 48)}), FormatError, "leaves 16 bytes before it unused"),
    "another size": (framed({"a": entry(0, 12)}), FormatError, r"of F32 \[4\] takes 16 bytes, and .* give it 12"),
    "huge": (framed({"a": entry(0, 2**60, (2**48, 2**48))}), LimitError, r"over 2\^62 elements"),
    "wide": (framed({"a": entry(0, 16, (2**60,))}), FormatError, "a list of whole numbers is needed"),
    "negative": (framed({"a": entry(0, 16, (-4,))}), FormatError, "a list of whole numbers is needed"),
    "backwards": (framed({"a": {**entry(0, 16), "data_offsets": [-16, 0]}}), FormatError, "where it begins and ends"),
    "half a byte": (framed({"a": entry(0, 2, (3,), "F4")}), FormatError, "takes 2 bytes"),
    "no type": (framed({"a": entry(0, 16, dtype="F128")}), UnsupportedError, "is of type 'F128'; the format has"),
    "no table": (framed({"a": 7}), FormatError, "'a' is 7; a table"),
    "a list": (framed([1]), FormatError, "a table of tensors is needed"),
    "no JSON": (framed(b"{'a'"), FormatError, "is not JSON"),
    "twice": (framed(b'{"a": 1, "a": 2}'), FormatError, "occurs twice"),
    "half a header": (framed({"a": entry(0, 16)})[:40], FormatError, "ends within its header"),
    "a long header": ((2**40).to_bytes(8, "little"), LimitError, "its first 8 bytes speak of a header of"),
    "a NumPy file": (b"\x93NUMPY\x01\x00" + bytes(64), LimitError, "it is no safetensors file"),
    "empty": (b"", FormatError, "is no safetensors file"),
}


@pytest.mark.parametrize("case", LIES)
def test_a_header_that_lies_is_one_error(written, case):
    content, kind, said = LIES[case]
    with pytest.raises(kind, match=said):
        headers.read(written(content))


def test_what_is_not_there_is_said(tmp_path):
    with pytest.raises(FileError, match="No such file"):
        headers.read(tmp_path / "model.safetensors")
    with pytest.raises(FileError, match="a folder without safetensors files"):
        headers.read(tmp_path)
