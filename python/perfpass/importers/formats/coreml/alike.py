"""ML Programs whose operations the core repeats: of those that are alike one is lowered here (`program`), no others.

Networks are blocks over and over. What an operation becomes depends on its kind, its arguments' names, types and
constants and its outputs' types; the core compares these and copies what came of the first one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from perfpass.errors import PerfPassError
from perfpass.graph import OpGraph
from perfpass.importers.draft import Draft
from perfpass.importers.formats.coreml.program import Program, Value
from perfpass.importers.formats.protobuf import FieldBudget, Message

_Typed = tuple[str, tuple[int, ...], str]  # type, sizes and role of a tensor
_Lowered = tuple[str, str, dict[str, int], list[int], list[_Typed]]
_ABSENT = -1
_DAMAGE = (PerfPassError, IndexError, ValueError, OverflowError, ZeroDivisionError)


def read(block: Message, inputs: Sequence[tuple[str, str, tuple[int, ...]]]) -> OpGraph | None:
    """The graph of a block, whose inputs are (name, type, sizes); None where it is to be read one by one.

    That is: blocks within it, weights that are unpacked, and damage, for which that reading has the words.
    """
    meaning = _Meaning([(Value(dtype, shape), None, False) for _, dtype, shape in inputs])
    try:
        core = block.program(list(inputs), meaning.value, meaning.operation)
    except _DAMAGE:
        return None
    return None if core is None else OpGraph(core)


class _Meaning:
    """What the core asks. ``values``: what each of its values is, its constant in the file, and whether it is one."""

    def __init__(self, values: list[tuple[Value, Message | None, bool]]) -> None:
        self.values = values

    def value(self, kind: bytes, constant: bool, given: Message | None, budget: FieldBudget) -> _Typed | None:
        """Type, sizes and role of the next value; None for a text."""
        program = Program(Draft(), {})
        found = program.typed(kind, budget, "a value")
        self.values.append((found, given, constant))
        if not constant:
            return found.dtype, found.shape, "activation"
        program.constant(given, found, "")
        return None if found.tensor < 0 else (found.dtype, found.shape, program.draft.tensors[found.tensor].role)

    def operation(self, message: Message, read: list[tuple[str, int]]) -> _Lowered | int | None:
        """What an operation becomes: an operator, or the place of what it passes on."""
        draft = Draft()
        program = Program(draft, {})
        for name, number in read:
            if name not in program.names:
                program.names[name] = self._fresh(program, number)
        before, known = list(draft.tensors), dict(program.names)
        kept = [replace(tensor) for tensor in before]
        program.operation(message, "", 1.0, 0)
        places = {known[name].tensor: place for place, (name, _) in reversed(list(enumerate(read)))}
        if not draft.nodes:
            return _passed_on(program.names, known, read)
        written = [made for made, _ in message.operation()[1]]
        first_written = len(draft.tensors) - len(written)
        if len(draft.nodes) > 1 or before != kept or draft.notes or draft.branches:
            return None
        (node,) = draft.nodes
        within = [t for t in dict.fromkeys(node.inputs) if t >= len(before)]
        if node.outputs != list(range(first_written, len(draft.tensors))) or any(t >= first_written for t in within):
            return None
        made = {t: -2 - i for i, t in enumerate(sorted(within))} | {_ABSENT: _ABSENT}
        constants = [(t.dtype, t.shape, t.role) for t in (draft.tensors[i] for i in sorted(within))]
        inputs = [made[t] if t in made else places[t] for t in node.inputs]
        return node.kind, node.source, node.attributes, inputs, constants

    def _fresh(self, program: Program, number: int) -> Value:
        """A value of its own that is as that one."""
        value, given, constant = self.values[number]
        found = replace(value, tensor=-1, numbers=None, text="")
        if constant:
            return program.constant(given, found, "")
        found.tensor = program.draft.tensor(found.dtype, found.shape)
        return found


def _passed_on(names: dict[str, Value], known: dict[str, Value], read: list[tuple[str, int]]) -> int | None:
    """The place of the value that an operation without an operator gave a new name to."""
    new = [value for name, value in names.items() if known.get(name) is not value]
    places = [place for place, (name, _) in enumerate(read) if new and known[name] is new[0]]
    return places[0] if len(new) == 1 and places else None
