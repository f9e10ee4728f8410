"""Messages of protobuf, which Core ML, Paddle and TensorFlow write: read whole, or refused with one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfpass
from perfpass import _core
from perfpass.errors import FormatError, LimitError
from perfpass.importers.formats.protobuf import FieldBudget, Message, Span, fields, listed, mapped, message_of, signed

DAMAGED = {
    "longer than the file": (b"\x0a\xff\xff\xff\xff\x0f\x00", "cut short"),
    "number that ends within": (b"\x0d\x00\x00", "cut short"),
    "no end": (b"\xff" * 20, "without an end"),
    "group": (b"\x0b\x00", "wire type 3"),
}


def spanned(content: bytes) -> Span:
    return Span(content, 0, len(content))


def read(content: bytes) -> Message:
    return message_of(spanned(content), FieldBudget(10_000_000, "file"))


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
    message = read(b"\x08\x05\x0a\x02\x06\x07\x15\x00\x00\x80\x3f\x12\x04\x00\x00\x00\x40")
    assert message.integers(1) == [5, 6, 7]
    assert message.reals(2, "f") == [1.0, 2.0]
    assert (message.integer(9, 4), message.text(9), message.one(9).first_from(0)) == (4, "", 0)
    with pytest.raises(FormatError, match="numbers of 8"):
        read(b"\x12\x04abcd").reals(2, "d")


@given(st.binary(max_size=300), st.integers(0, 20))
def test_the_core_finds_the_fields_that_plain_python_finds(content: bytes, begin: int) -> None:
    span = Span(content, min(begin, len(content)), len(content))
    try:
        found: dict[int, list[int | bytes]] = {}
        for number, value, part in fields(span):
            found.setdefault(number, []).append(value & (1 << 64) - 1 if part is None else part.content)
    except FormatError as error:
        with pytest.raises(FormatError) as ours:
            message_of(span, FieldBudget(999, "file"))
        assert str(ours.value)[:20] == str(error)[:20]
        return
    for data in (content, memoryview(content)):
        message = message_of(Span(data, span.begin, span.end), FieldBudget(999, "file"))
        for number in {*range(70), *found}:
            given = found.get(number, [])
            assert message.has(number) == bool(given)
            if any(isinstance(one, int) for one in given):
                with pytest.raises(FormatError, match="a number where a message belongs"):
                    message.contents(number)
            else:
                last = given[-1] if given else b""
                assert (message.contents(number), message.content(number), message.size(number)) == (
                    given,
                    last,
                    len(last),
                )


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_a_number_keeps_its_sign(value: int) -> None:
    assert signed(value & (1 << 64) - 1) == value


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m").touch()
    with pytest.raises(FormatError, match="a Core ML model was expected"), mapped(tmp_path / "m", "a Core ML model"):
        pass


def test_fields_have_an_end() -> None:
    budget = FieldBudget(10, "model of this kind")
    message_of(spanned(b"\x08\x00" * 10), budget)
    with pytest.raises(LimitError, match="more than 10 fields; no model of this kind"):
        message_of(spanned(b"\x08\x00"), budget)
    with pytest.raises(LimitError, match="more than 10 fields"):
        message_of(spanned(b"\x0a\x0b" + b"\x00" * 11), FieldBudget(10, "file")).integers(1)


def test_a_repeated_message_is_made_one_by_one_and_a_map_and_a_list_have_an_end() -> None:
    assert [one.integer(1) for one in read(b"\x0a\x02\x08\x07\x12\x00\x0a\x02\x08\x09").all(1)] == [7, 9]
    with pytest.raises(FormatError, match="a number where a message belongs"):
        list(read(b"\x0a\x00\x08\x01").all(1))
    assert len(read(b"\x0a\x00" * 65_536).map(1)) == 1
    with pytest.raises(LimitError, match="more than 65,536 entries"):
        read(b"\x0a\x00" * 65_537).map(1)
    with pytest.raises(LimitError, match="more than 1,048,576 numbers"):
        read(b"\x08\x00" * ((1 << 20) + 1)).integers(1)
    with pytest.raises(LimitError, match="more than 3 blocks"):
        listed(read(b"\x0a\x00" * 4).all(1), 3, "blocks")


def test_a_mapped_file_is_closed_though_messages_of_it_are_held(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(b"\x0a\x02\x08\x07" + bytes(1 << 25))
    with mapped(tmp_path / "m", "a model") as whole:
        kept = message_of(Span(whole.data, 0, 4), FieldBudget(9, "file"))
        part = kept.one(1)
        assert part.integer(1) == 7
    with pytest.raises(ValueError, match="released"):
        part.integer(1)


def test_an_index_of_messages_ends_one_behind_its_limit_and_keeps_the_other_fields() -> None:
    content = b"\x0a\x04\x0a\x02ab" + b"\x10\x05" + b"\x0a\x00" + b"\x1a\x01x"
    found = _core.message_index(content, 0, len(content), 1, 10)
    assert found == ([("ab", 2, 6), ("", 10, 10)], [(2, 5, 0, -1), (3, 0, 12, 13)])
    many = b"\x0a\x00" * 100
    assert len(_core.message_index(many, 0, len(many), 1, 7)[0]) == 8
    assert len(_core.message_index(many, 0, len(many), 2, 7)[1]) == 8


def test_a_node_of_tensorflow_is_its_name_operator_inputs_and_the_fields_of_its_attributes() -> None:
    content = b"\x0a\x01n\x12\x01O\x1a\x02^c\x1a\x01a" + b"\x2a\x09\x0a\x01T\x12\x04\x30\x01\x30\x02"
    content += b"\x2a\x07\x0a\x01U\x12\x02\x30\x03"
    assert _core.node_def(content, 0, len(content)) == (
        "n",
        "O",
        ["a"],
        {"T": [(6, 1, -1), (6, 2, -1)], "U": (6, 3, -1)},
    )
    with pytest.raises(FormatError, match="a map with a number for an entry"):
        _core.node_def(b"\x28\x01", 0, 2)


@pytest.mark.parametrize(
    "content",
    [
        b"\x1a\x01a" * 65_537,
        b"\x2a\x89\x80\x08" + b"\x0a\x01T" + b"\x12\x82\x80\x08" + b"\x30\x01" * 65_537,
    ],
    ids=["inputs", "fields of a value"],
)
def test_a_node_that_fills_memory_with_items_of_a_few_bytes_is_refused(content: bytes) -> None:
    with pytest.raises(LimitError, match="over 65536 items"):
        _core.node_def(content, 0, len(content))
