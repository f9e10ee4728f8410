"""Messages of protobuf, which Core ML, Paddle and TensorFlow write: read whole, or refused with one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfpass
from perfpass.errors import FormatError, LimitError
from perfpass.importers.formats.protobuf import Budget, Message, Span, fields, mapped, signed

DAMAGED = {
    "longer than the file": (b"\x0a\xff\xff\xff\xff\x0f\x00", "cut short"),
    "number that ends within": (b"\x0d\x00\x00", "cut short"),
    "no end": (b"\xff" * 20, "without an end"),
    "group": (b"\x0b\x00", "wire type 3"),
}


def spanned(content: bytes) -> Span:
    return Span(content, 0, len(content))


@given(st.binary(max_size=300))
def test_any_bytes_are_fields_or_one_error(content: bytes) -> None:
    for data in (content, memoryview(content)):
        try:
            assert sum(1 for _ in fields(Span(data, 0, len(content)))) <= len(content)
        except FormatError as error:
            assert str(error)


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_message_is_refused_by_what_is_wrong(damage: str) -> None:
    content, said = DAMAGED[damage]
    with pytest.raises(FormatError, match=said):
        list(fields(spanned(content)))


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_program_of_paddle_is_refused_with_its_path(damage: str, tmp_path: Path) -> None:
    content, said = DAMAGED[damage]
    root = b"\x08\x00\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01" + content
    (tmp_path / "m.pdmodel").write_bytes(b"\x0a" + bytes([len(root)]) + root)
    with pytest.raises(FormatError, match=said) as error:
        perfpass.load(tmp_path / "m.pdmodel")
    assert "m.pdmodel" in str(error.value.subject)


def test_numbers_are_read_packed_and_one_by_one() -> None:
    message = Message(
        spanned(b"\x08\x05\x0a\x02\x06\x07\x15\x00\x00\x80\x3f\x12\x04\x00\x00\x00\x40"), Budget(99, "file")
    )
    assert message.integers(1) == [5, 6, 7]
    assert message.reals(2, "f") == [1.0, 2.0]
    assert (message.integer(9, 4), message.text(9), message.one(9).fields) == (4, "", {})
    with pytest.raises(FormatError, match="numbers of 8"):
        Message(spanned(b"\x12\x04abcd"), Budget(99, "file")).reals(2, "d")


@given(st.binary(max_size=300), st.integers(0, 20))
def test_the_core_finds_the_fields_that_plain_python_finds(content: bytes, begin: int) -> None:
    span = Span(content, min(begin, len(content)), len(content))
    try:
        found: dict[int, list[int | bytes]] = {}
        for number, value, part in fields(span):
            found.setdefault(number, []).append(value & (1 << 64) - 1 if part is None else part.content)
    except FormatError as error:
        with pytest.raises(FormatError) as ours:
            Message(span, Budget(999, "file"))
        assert str(ours.value)[:20] == str(error)[:20]
        return
    message = Message(span, Budget(999, "file"))
    assert {
        number: [one if isinstance(one, int) else content[slice(*one)] for one in given]
        for number, given in message.fields.items()
    } == found


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_a_number_keeps_its_sign(value: int) -> None:
    assert signed(value & (1 << 64) - 1) == value


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m").touch()
    with pytest.raises(FormatError, match="a Core ML model was expected"), mapped(tmp_path / "m", "a Core ML model"):
        pass


def test_fields_have_an_end() -> None:
    budget = Budget(10, "model of this kind")
    Message(spanned(b"\x08\x00" * 10), budget)
    with pytest.raises(LimitError, match="more than 10 fields; no model of this kind"):
        Message(spanned(b"\x08\x00"), budget)
    with pytest.raises(LimitError, match="more than 10 fields"):
        Message(spanned(b"\x0a\x0b" + b"\x00" * 11), Budget(10, "file")).integers(1)
