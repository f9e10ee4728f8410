"""PIR programs of Paddle 3 (``inference.json``, ``model.json``): JSON, a list of operators with the types of results.

Source of the form: paddle/fluid/pir/serialize_deserialize of PaddlePaddle 3.x (Apache-2.0), versions 1 to 4 of it.
Keys: ``#`` name, ``%`` value, ``A`` attributes (``N`` name, ``AT`` typed data), ``I`` operands, ``O`` results, ``TT``
type, ``D`` data. Dialects are numbered: 0 builtin, 1 pd_op, 2 control flow, 3 custom.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from perfpass import json_text
from perfpass.errors import FormatError, LimitError, PerfPassError
from perfpass.importers.formats.paddle.program import MOST_DEPTH, MOST_OPERATORS, Block, Op, Program, Value

_MOST_BYTES = 1 << 28
_DTYPES = {
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    "bf16": "bfloat16",
    "bool": "bool",
    "i8": "int8",
    "ui8": "uint8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "index": "int64",
    "c64": "complex64",
    "c128": "complex128",
    "f8e4m3": "float8",
    "f8e5m2": "float8",
    "f8e4m3fn": "float8",
}
_INPUTS = frozenset({"data", "feed"})
_OUTPUTS = frozenset({"fetch", "shadow_output"})


def read(path: Path) -> Program:
    """The program of a file. Raises FileError, FormatError, LimitError."""
    content = json_text.read_json(path, "a Paddle program", _MOST_BYTES, any_number=True)
    try:
        return _Reader().program(content["program"])
    except PerfPassError:
        raise
    except (KeyError, IndexError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise FormatError(
            f"a Paddle program in which an operator or a type is not as PIR writes it ({type(error).__name__}: "
            f"{error}); export it again with paddle.jit.save"
        ) from error


class _Reader:
    def __init__(self) -> None:
        self.found = Program()
        self.vectors: dict[int, list[int]] = {}  # values that are lists of values
        self.same: dict[int, int] = {}  # values that are a member of a list -> that member
        self.next = 1 << 40  # of values that the file does not number: members of lists
        self.count = 0

    def program(self, content: dict[str, Any]) -> Program:
        (region,) = content["regions"]
        self.found.block = self.block(region["blocks"][0], 0)
        return self.found

    def block(self, content: dict[str, Any], depth: int) -> Block:
        if depth > MOST_DEPTH:
            raise LimitError(f"a Paddle program with more than {MOST_DEPTH} blocks within blocks")
        block = Block()
        for argument in content.get("args", ()):
            self.value(int(argument["#"]), argument["TT"])
            block.arguments.append(int(argument["#"]))
        for operator in content["ops"]:
            self.count += 1
            if self.count > MOST_OPERATORS:
                raise LimitError(f"a Paddle program of more than {MOST_OPERATORS} operators")
            self.operator(operator, block, depth)
        return block

    def value(self, number: int, kind: Any, name: str = "") -> int:
        tag = kind.get("#", "") if kind else ""
        if tag.endswith("t_vec"):
            self.vectors[number] = []
            for member in kind["D"]:
                self.next += 1
                self.vectors[number].append(self.value(self.next, member))
        elif tag.endswith("t_dtensor"):
            element, dims = kind["D"][0]["#"], kind["D"][1]
            if len(dims) > 64 or any(not isinstance(size, int) or not -1 <= size < 1 << 48 for size in dims):
                raise FormatError(f"a Paddle program with a tensor of sizes {str(dims)[:80]}; sizes are -1 or more")
            dtype = _DTYPES.get(element.partition("t_")[2], "undefined")
            self.found.values[number] = Value(dtype, tuple(dims), name)
        else:
            self.found.values[number] = Value("undefined", None, name)
        return number

    def slot(self, operand: dict[str, Any]) -> int | list[int] | None:
        number = int(operand["%"])
        if number == 0:  # how the file writes an operand that is absent
            return None
        number = self.same.get(number, number)
        return self.vectors.get(number, number)

    def operator(self, content: dict[str, Any], block: Block, depth: int) -> None:
        dialect, _, name = content["#"].rpartition(".")
        if name == "p" and not dialect:
            result = content["O"]
            self.value(int(result["%"]), result["TT"], str(content["A"][3]))
            self.found.parameters.append(int(result["%"]))
            return
        inputs = [self.slot(operand) for operand in content["I"]]
        outputs = [self.value(int(result["%"]), result["TT"]) for result in content["O"]]
        if dialect == "0" and name in ("combine", "split", "slice"):
            self.list_of_values(name, inputs, outputs, content)
            return
        attributes = {a["N"]: _data(a["AT"]) for a in content["A"]}
        plain = name.removesuffix("_")
        if dialect == "1" and plain in _INPUTS and outputs:
            self.found.values[outputs[0]].name = str(attributes.get("name", ""))
            self.found.inputs.append(outputs[0])
            return
        if plain in _OUTPUTS:
            self.found.outputs += [i for i in inputs if isinstance(i, int)]
            return
        if dialect == "0" and plain == "set_parameter":
            return
        source = {"0": "builtin", "1": "pd_op", "2": "cf", "3": "custom_op"}.get(dialect, dialect)
        blocks = [self.block(b, depth + 1) for region in content.get("regions", ()) for b in region["blocks"]]
        flat = [number for o in outputs for number in self.vectors.get(o, [o])]
        known = plain if dialect in ("0", "1", "2") else ""
        block.operators.append(Op(known, f"{source}.{name}", inputs, flat, attributes, blocks))

    def list_of_values(self, name: str, inputs: list, outputs: list[int], content: dict[str, Any]) -> None:
        """Lists are no tensors: who reads one reads its members."""
        if name == "combine":
            members = []
            for i in inputs:
                members += i if isinstance(i, list) else [] if i is None else [i]
            self.vectors[outputs[0]] = members
            return
        (members,) = inputs
        if not isinstance(members, list):
            raise FormatError(f"a Paddle program in which builtin.{name} reads no list of tensors; export it again")
        if name == "slice":
            (index,) = (_data(a["AT"]) for a in content["A"] if a["N"] == "index")
            members = [members[index]]
        for output, member in zip(outputs, members, strict=True):
            self.same[output] = member
            self.found.values.pop(output, None)


def _data(content: Any) -> Any:
    """The value of an attribute: a number, a text, or a list of them."""
    if not isinstance(content, dict):
        return content
    found = content.get("D", content.get("VD"))
    return [_data(item) for item in found] if isinstance(found, list) else found
