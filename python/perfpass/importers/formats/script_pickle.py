"""The pickles of TorchScript archives, read as data: no class is looked up, nothing is constructed or called.

The reader knows the operation codes that TorchScript's own writer uses (torch/csrc/jit/serialization/pickler.cpp) and
refuses any other. A name in a pickle stays a name: those of tensors and lists are understood, those of the archive's
own classes become a `Record` of that name, and every other name is refused.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

from perfpass.errors import FormatError, LimitError, PerfPassError, UnsupportedError, shown

_MOST_STEPS = 20_000_000
_MOST_VALUES = 1 << 22
_DEEPEST = 256
_MOST_RANK = 16
_STORAGES = {
    "FloatStorage": "float32",
    "DoubleStorage": "float64",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
}
_TENSOR = "torch._utils _rebuild_tensor_v2"
_QUANTISED = "torch._utils _rebuild_qtensor"
_DICT = "collections OrderedDict"
_DEVICE = "torch device"
_LISTS = frozenset(f"torch.jit._pickle build_{kind}list" for kind in ("int", "tensor", "double", "bool"))
_TAGGED = "torch.jit._pickle restore_type_tag"
_MARK = object()


@dataclass(frozen=True)
class Name:
    """A name of the pickle that is understood."""

    text: str


@dataclass
class Record:
    """An object of a class of the archive: its name and its fields."""

    kind: str
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StoredTensor:
    """A tensor without its elements, which lie in the entry ``key`` from ``offset`` on."""

    dtype: str
    shape: tuple[int, ...]
    key: str
    offset: int


def check_size(value: Any, what: str) -> int:
    """How many values a list, dict or record holds, each counted as often as it stands there: one list may stand in
    another many times, or in itself. Raises LimitError over 2^22 of them, or over 256 lists within one another.
    """
    held, level = 0, [value]
    for _ in range(_DEEPEST):
        inner: list[Any] = []
        for one in level:
            one = one.fields if isinstance(one, Record) else one
            if not isinstance(one, (list, tuple, dict)):
                continue
            held += len(one)
            if held > _MOST_VALUES:
                raise LimitError(f"{what} holds over {_MOST_VALUES} values within one another")
            inner.extend(one.values() if isinstance(one, dict) else one)
        if not inner:
            return held
        level = inner
    raise LimitError(f"{what} holds lists over {_DEEPEST} deep in one another")


_NUMBERS = {form: struct.Struct(form) for form in ("<B", "<H", "<i", "<I", ">d")}
_NUMBER = _NUMBERS["<I"].unpack_from
_LONG_BINPUT, _BINPUT, _LONG_BINGET, _BINGET, _BINUNICODE, _MARKED, _BININT1 = b"rqjhX(K"


class ScriptPickle:
    """One pickle. `value` is what it holds: records, tensors' sizes, numbers, texts, lists, dicts."""

    def __init__(self, content: bytes, what: str) -> None:
        self._content, self._what, self._at = content, what, 0
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        try:
            self.value = self._run()
        except PerfPassError:
            raise
        except (struct.error, IndexError, KeyError, UnicodeDecodeError, TypeError, ValueError) as error:
            raise FormatError(f"{what} of the archive is damaged at byte {self._at}; save the model again") from error
        check_size(self.value, f"{what} of the archive")

    def _take(self, size: int) -> bytes:
        if size < 0 or self._at + size > len(self._content):
            raise FormatError(f"{self._what} of the archive ends at byte {self._at}; save the model again")
        self._at += size
        return self._content[self._at - size : self._at]

    def _number(self, form: str) -> Any:
        read = _NUMBERS[form]
        at, self._at = self._at, self._at + read.size
        if self._at > len(self._content):
            self._at = at
            self._take(read.size)  # which says so
        return read.unpack_from(self._content, at)[0]

    def _line(self) -> str:
        end = self._content.index(b"\n", self._at)
        return self._take(end + 1 - self._at)[:-1].decode()

    def _marked(self) -> list[Any]:
        """What stands above the last mark, taken away with it."""
        place = len(self._stack) - 1
        while self._stack[place] is not _MARK:
            place -= 1
            if place < 0:
                raise IndexError
        found = self._stack[place + 1 :]
        del self._stack[place:]
        return found

    def _run(self) -> Any:
        """Nine of ten steps of an archive are of a few kinds, done here; `_step` has every kind."""
        content, stack, memo, at = self._content, self._stack, self._memo, 0
        push, last = stack.append, len(content) - 4
        try:
            for _ in range(_MOST_STEPS):
                code = content[at] if at < last else -1
                if code == _LONG_BINPUT:
                    memo[_NUMBER(content, at + 1)[0]] = stack[-1]
                    at += 5
                elif code == _BINPUT:
                    memo[content[at + 1]] = stack[-1]
                    at += 2
                elif code == _LONG_BINGET:
                    push(memo[_NUMBER(content, at + 1)[0]])
                    at += 5
                elif code == _BINGET:
                    push(memo[content[at + 1]])
                    at += 2
                elif code == _BINUNICODE and (size := _NUMBER(content, at + 1)[0]) <= last - at - 1:
                    push(content[at + 5 : at + 5 + size].decode("utf-8", "surrogatepass"))
                    at += 5 + size
                elif code == _MARKED:
                    push(_MARK)
                    at += 1
                elif code == _BININT1:
                    push(content[at + 1])
                    at += 2
                else:
                    self._at = at
                    step = self._take(1)
                    if step == b".":
                        return stack.pop()
                    self._step(step)
                    at = self._at
        finally:
            self._at = max(self._at, at)  # an error says where
        raise LimitError(f"{self._what} of the archive has over {_MOST_STEPS} steps")

    def _step(self, code: bytes) -> None:
        stack = self._stack
        match code:
            case b"r":  # LONG_BINPUT
                self._memo[self._number("<I")] = stack[-1]
            case b"q":  # BINPUT
                self._memo[self._number("<B")] = stack[-1]
            case b"h":  # BINGET
                stack.append(self._memo[self._number("<B")])
            case b"j":  # LONG_BINGET
                stack.append(self._memo[self._number("<I")])
            case b"X":  # BINUNICODE
                stack.append(self._take(self._number("<I")).decode("utf-8", "surrogatepass"))
            case b"(":  # MARK
                stack.append(_MARK)
            case b"K":  # BININT1
                stack.append(self._number("<B"))
            case b"t":  # TUPLE
                stack.append(tuple(self._marked()))
            case b"\x88" | b"\x89":  # NEWTRUE, NEWFALSE
                stack.append(code == b"\x88")
            case b")":  # EMPTY_TUPLE
                stack.append(())
            case b"N":  # NONE
                stack.append(None)
            case b"c":  # GLOBAL
                stack.append(self._name(f"{self._line()} {self._line()}"))
            case b"M":  # BININT2
                stack.append(self._number("<H"))
            case b"R":  # REDUCE
                arguments = stack.pop()
                stack.append(self._made(stack.pop(), arguments))
            case b"}":  # EMPTY_DICT
                stack.append({})
            case b"u":  # SETITEMS
                items = self._marked()
                self._of(dict).update(zip(items[::2], items[1::2], strict=True))
            case b"b":  # BUILD
                state = stack.pop()
                record = self._of(Record)
                record.fields = dict(state) if isinstance(state, dict) else {"state": state}
            case b"\x81":  # NEWOBJ
                stack.pop()
                stack.append(Record(self._class(stack.pop())))
            case b"Q":  # BINPERSID
                stack.append(self._storage(stack.pop()))
            case b"J":  # BININT
                stack.append(self._number("<i"))
            case b"\x80":  # PROTO
                self._take(1)
            case b"]":  # EMPTY_LIST
                stack.append([])
            case b"\x8a":  # LONG1
                stack.append(int.from_bytes(self._take(min(self._number("<B"), 16)), "little", signed=True))
            case b"G":  # BINFLOAT
                stack.append(self._number(">d"))
            case b"\x85" | b"\x86" | b"\x87":  # TUPLE1 to TUPLE3
                size = code[0] - 0x84
                stack[-size:] = [tuple(stack[-size:])] if len(stack) >= size else [stack[-size]]
            case b"l":  # LIST
                stack.append(self._marked())
            case b"e":  # APPENDS
                items = self._marked()
                self._of(list).extend(items)
            case b"a":  # APPEND
                item = stack.pop()
                self._of(list).append(item)
            case b"s":  # SETITEM
                value, key = stack.pop(), stack.pop()
                self._of(dict)[key] = value
            case _:
                raise UnsupportedError(
                    f"{self._what} of the archive has the operation {code!r}, which TorchScript does not write: it may "
                    "run code and is not read; save the model with torch.jit.save, or export it to ONNX"
                )

    def _of(self, kind: type) -> Any:
        if not isinstance(self._stack[-1], kind):
            raise TypeError
        return self._stack[-1]

    def _name(self, text: str) -> Name:
        known = text in _LISTS or text in (_TENSOR, _DICT, _TAGGED, _DEVICE)
        module, _, name = text.partition(" ")
        if text == _QUANTISED:
            raise UnsupportedError(
                f"{self._what} of the archive holds weights that PyTorch quantised, in the packed form of the CPU that "
                "wrote it, which no operator's shape rule reads; give the program as it was before and ask for "
                "--precision int8 (precision='int8'), or export it to ONNX with QuantizeLinear and DequantizeLinear"
            )
        if not known and not (module == "torch" and name in _STORAGES) and not f"{module}.".startswith("__torch__."):
            raise UnsupportedError(
                f"{self._what} of the archive names {shown(text[:80])}, which is none of TorchScript's own: it may run "
                "code and is not read; save the model with torch.jit.save, or export it to ONNX"
            )
        return Name(text)

    @staticmethod
    def _class(name: Any) -> str:
        if not isinstance(name, Name) or not name.text.startswith("__torch__"):
            raise TypeError
        return name.text.replace(" ", ".")

    def _made(self, name: Any, arguments: Any) -> Any:
        if not isinstance(name, Name) or not isinstance(arguments, tuple):
            raise TypeError
        if name.text == _TENSOR:
            storage, offset, shape = arguments[:3]
            (dtype, key) = storage
            if len(shape) > _MOST_RANK or not all(isinstance(d, int) and 0 <= d <= 1 << 48 for d in shape):
                raise ValueError
            return StoredTensor(dtype, tuple(shape), key, int(offset))
        if name.text in _LISTS or name.text == _TAGGED:
            return arguments[0]
        if name.text == _DICT:
            return {}
        if name.text == _DEVICE:
            return "meta"
        raise TypeError

    @staticmethod
    def _storage(entry: Any) -> tuple[str, str]:
        """(type, entry) of ('storage', torch.FloatStorage, '0', 'cpu', 864)."""
        word, name, key = entry[:3]
        if word != "storage" or not isinstance(name, Name) or not isinstance(key, str):
            raise TypeError
        return _STORAGES[name.text.partition(" ")[2]], key
