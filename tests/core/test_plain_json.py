"""JSON that the core finds plain is what the careful parser takes, with the same value; anything else is its own."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfpass import _core, json_text
from perfpass.errors import FormatError

_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["\ud83d\ude00", "\ud800"]),
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=24,
)
_LONG = json.dumps({"padding": [0] * 4096})


def careful(content: bytes, any_number: bool, monkeypatch: pytest.MonkeyPatch) -> Any:
    with monkeypatch.context() as here:
        here.setattr(json_text, "_is_plain", lambda content, text: False)
        return parsed(content, any_number)


def parsed(content: bytes, any_number: bool) -> Any:
    try:
        return repr(json_text.parse(content, "it", any_number=any_number))
    except FormatError as error:
        return f"refused: {error}"


def same(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_text, "_LONG", 0)
    for any_number in (False, True):
        assert parsed(content, any_number) == careful(content, any_number, monkeypatch)


@settings(max_examples=300, deadline=None)
@given(value=_VALUES, spaced=st.booleans(), ascii_only=st.booleans())
def test_a_value_is_the_same_by_both_ways(value: Any, spaced: bool, ascii_only: bool) -> None:
    text = json.dumps(value, indent=1 if spaced else None, ensure_ascii=ascii_only)
    with pytest.MonkeyPatch.context() as monkeypatch:
        same(text.encode("utf-8", "surrogatepass"), monkeypatch)


@settings(max_examples=300, deadline=None)
@given(value=_VALUES, data=st.data())
def test_a_damaged_text_is_the_same_by_both_ways(value: Any, data: st.DataObject) -> None:
    content = bytearray(json.dumps(value).encode("utf-8", "surrogatepass"))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(content)))
        content[place : place + data.draw(st.integers(0, 2))] = data.draw(
            st.sampled_from(list(b'{}[]":,\\u0e9-. N'))
        ).to_bytes()
    with pytest.MonkeyPatch.context() as monkeypatch:
        same(bytes(content), monkeypatch)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ('{"a": [1, -2.5e3, "x\\n\\u00e9", true, null], "b": {}}', True),
        (f'{{"a": {"[" * 20}{"]" * 20}}}', True),
        ("{" + ", ".join(f'"k{i}": {i}' for i in range(1000)) + "}", True),
        ('{"a": 1, "b": 2, "a": 3}', False),
        ("{" + ", ".join(f'"k{i % 999}": {i}' for i in range(1000)) + "}", False),
        (f"{'[' * 70}{']' * 70}", False),
        ('{"a\\u0062": 1}', False),
        ('"\\ud800"', False),
        ("[NaN]", False),
        ("[1e999]", False),
        ("[9999999999999999999]", False),
        ("[1,]", False),
        ("[1] 2", False),
        ("", False),
    ],
)
def test_what_is_plain(text: str, plain: bool) -> None:
    assert _core.is_plain_json(text.encode()) is plain


def test_a_long_plain_text_is_parsed_without_a_call_for_each_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_text, "_once", lambda pairs: pytest.fail("an object was looked at one by one"))
    assert json_text.parse(_LONG, "it") == {"padding": [0] * 4096}
