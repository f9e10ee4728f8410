"""Small files that would unfold to more than any machine has: each ends in a moment, and with little memory.

``python tests/importers/bombs.py`` reads all of them in one process, and prints how each ended, in how many seconds of
the processor, and the memory that the process had grown by.
"""

from __future__ import annotations

import io
import json
import os
import resource
import struct
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

FILES = Path(__file__).resolve().parent / "files"
_GIBIBYTES = 4
_HUGE = 10**6


def _bomb(letter: bytes, head: bytes = b"") -> tuple[bytes, int]:
    """A deflated stream of ``head`` and 4 GiB of one letter, and its length: a MiB is packed once and repeated."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    start = packer.compress(head) + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(letter * (1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    count = _GIBIBYTES * 1024
    return start + block * count + packer.flush(zlib.Z_FINISH), len(head) + (count << 20)


def _zipped(entries: dict[str, bytes], bomb: str, stream: bytes, said: int, times: int = 1) -> bytes:
    """A zip archive of ``entries``, and of ``times`` entries (the first is ``bomb``) that share one packed stream."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    whole = out.getvalue()
    where = struct.unpack_from("<L", whole, len(whole) - 6)[0]  # of the list of entries
    body, listed = bytearray(whole[:where]), whole[where:-22]
    said = min(said, 0xFFFFFFFE)
    offset, sizes = len(body), struct.pack("<LLL", 0, len(stream), said)
    body += b"PK\x03\x04" + struct.pack("<5H", 20, 0, 8, 0, 33) + sizes + struct.pack("<HH", len(bomb), 0)
    body += bomb.encode() + stream
    directory = bytearray(listed)
    for number in range(times):
        entry = (bomb if not number else f"{bomb}{number}").encode()
        directory += b"PK\x01\x02" + struct.pack("<6H", 20, 20, 0, 8, 0, 33) + sizes
        directory += struct.pack("<5HLL", len(entry), 0, 0, 0, 0, 0, offset) + entry
    count = len(entries) + times
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, count, count, len(directory), len(body), 0)
    return bytes(body + directory) + end


_META = json.dumps({"keras_version": "3.0.0"}).encode()


def _keras_ratio(said: int | None = None) -> bytes:
    stream, size = _bomb(b" ", b"{")
    return _zipped({"metadata.json": _META}, "config.json", stream, size if said is None else said)


def _shared_entries() -> bytes:
    """Thirty thousand entries over one packed stream: 120 TiB in 5 MB (David Fifield's "A better zip bomb")."""
    stream, size = _bomb(b" ", b"{")
    return _zipped({"metadata.json": _META}, "config.json", stream, size, 30_000)


def _nested_archives() -> bytes:
    """An archive in an archive in an archive, eight deep, each ten times; none of them is a model's entry."""
    inner = b" " * 4096
    for _ in range(8):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for number in range(10):
                archive.writestr(f"{number}.zip", inner)
            archive.writestr("config.json", inner)
            archive.writestr("metadata.json", _META)
        inner = out.getvalue()
    return inner


def _script_ratio() -> bytes:
    stream, size = _bomb(b"\n", b"class Network(Module):\n")
    entries = {
        "m/version": b"3\n",
        "m/constants.pkl": b"\x80\x02).",
        "m/data.pkl": b"\x80\x02c__torch__\nNetwork\n)\x81}b.",
    }
    return _zipped(entries, "m/code/__torch__.py", stream, size)


def _export_ratio() -> bytes:
    stream, size = _bomb(b" ", b"{")
    entries = {"m/archive_format": b"pt2", "m/archive_version": b"0", "m/byteorder": b"little"}
    return _zipped(entries, "m/models/model.json", stream, size)


def _laughs(levels: int = 12) -> bytes:
    """Each entity is ten of the one before it: 10^12 words."""
    entities = ['<!ENTITY a0 "lol">', *(f'<!ENTITY a{i} "{f"&a{i - 1};" * 10}">' for i in range(1, levels + 1))]
    net = f'<net name="&a{levels};" version="11"><layers/></net>'
    return f'<?xml version="1.0"?><!DOCTYPE net [{"".join(entities)}]>{net}'.encode()


def _quadratic() -> bytes:
    """One entity of 2 KiB, asked for a million times."""
    doctype = f'<!DOCTYPE net [<!ENTITY a "{"x" * 2048}">]>'
    return f'<?xml version="1.0"?>{doctype}<net version="11"><layers>{"&a;" * _HUGE}</layers></net>'.encode()


def _outside() -> bytes:
    doctype = '<!DOCTYPE net [<!ENTITY a SYSTEM "file:///dev/zero">]>'
    return f'<?xml version="1.0"?>{doctype}<net version="11"><layers>&a;</layers></net>'.encode()


def _deep_elements() -> bytes:
    deep = "<layer>" * _HUGE
    return f'<?xml version="1.0"?><net version="11"><layers>{deep}'.encode()


def _module(body: str, before: str = "", after: str = "") -> bytes:
    main = "func.func public @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32>"
    return f"{before}module @m {{\n{main} {{\n{body}\nreturn %x : tensor<4x8xf32>\n}}\n}}\n{after}".encode()


def _mlir(body: str, before: str = "", after: str = "") -> Callable[[], bytes]:
    return lambda: _module(body, before, after)


def _doubling_aliases() -> bytes:
    """Each alias is a tuple of two of the one before it: 2^64 types."""
    lines = ["!t0 = tensor<4x8xf32>", *(f"!t{i} = tuple<!t{i - 1}, !t{i - 1}>" for i in range(1, 65))]
    body = '%0 = "stablehlo.tuple"(%x) : (tensor<4x8xf32>) -> !t64\nreturn %0 : !t64'
    return _module(body, "\n".join(lines) + "\n").replace(b"-> tensor<4x8xf32> {", b"-> !t64 {")


def _tflite(field: str) -> bytes:
    """block.tflite with ``field`` of its first subgraph saying that it has 2^32 - 1 entries, or leading to itself."""
    data = bytearray((FILES / "block.tflite").read_bytes())

    def at(table: int, number: int) -> int:
        """Where the field of a table is."""
        back = table - struct.unpack_from("<i", data, table)[0]
        return table + struct.unpack_from("<H", data, back + 4 + 2 * number)[0]

    def led(place: int) -> int:
        return place + struct.unpack_from("<I", data, place)[0]

    subgraphs = led(at(led(0), 2))
    subgraph = led(subgraphs + 4)
    operators = led(at(subgraph, 3))
    if field == "long":
        struct.pack_into("<I", data, operators, 0xFFFFFFFF)
    elif field == "cyclic":  # 2^32 bytes further on is here again, for who adds 32-bit numbers
        struct.pack_into("<I", data, operators + 4, (subgraph - operators - 4) % (1 << 32))
    else:  # 900,000 operators are one table without any field, behind them
        place = at(subgraph, 3)
        start = len(data) + -(len(data) - place) % 4
        struct.pack_into("<I", data, place, start - place)
        count = 9 * _HUGE // 10
        table = start + 4 + 4 * count + 4
        data = data.ljust(start, b"\0") + struct.pack("<I", count)
        data += struct.pack(f"<{count}I", *(table - start - 4 - 4 * i for i in range(count)))
        data += struct.pack("<HHi", 4, 4, 4)
    return bytes(data)


def _field(number: int, content: bytes) -> bytes:
    """A field of protobuf that holds bytes."""

    def varint(value: int) -> bytes:
        return bytes([value & 127 | 128]) + varint(value >> 7) if value > 127 else bytes([value])

    return varint(number << 3 | 2) + varint(len(content)) + content


def _coreml(after: bytes = b"", inputs: bytes = b"", operations: bytes = b"") -> bytes:
    """An ML Program without an operation, with this behind it, behind its first input and in its block."""
    block = _field(3, _field(1, b"CoreML7") + _field(2, operations))
    program = _field(2, _field(1, b"main") + _field(2, _field(2, b"CoreML7") + block))
    return b"\x08\x08" + _field(2, b"\x0a\x00" + inputs) + _field(502, program) + after


def _distinct_fields() -> bytes:
    """Fields of two million numbers, none of them twice."""
    return (
        b"".join(bytes([n << 3 & 0x78 | 0x80, n >> 4 & 127 | 128, n >> 11 & 127 | 128, 1, 0]) for n in range(1 << 18))
        * 8
    )


def _constants() -> bytes:
    """An operation that reads a million constants, each written where it is read."""
    return _field(3, _field(1, b"concat") + _field(2, _field(1, b"values") + _field(2, _field(1, b"\x12\x00") * _HUGE)))


def _gguf_arrays() -> bytes:
    """An array of arrays of arrays, each of 2^60 of them."""
    key = b"general.architecture"
    nested = struct.pack("<I", 9) + struct.pack("<IQ", 9, 1 << 60) * 100_000
    return b"GGUF" + struct.pack("<IQQQ", 3, 1, 1, len(key)) + key + nested


# Their names, and how each may end.
BOMBS: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "zip-ratio": ("model.keras", _keras_ratio, "LimitError"),
    "zip-ratio-that-says-little": ("model.keras", lambda: _keras_ratio(100), "FormatError"),
    "zip-entries-over-one-stream": ("model.keras", _shared_entries, "LimitError"),
    "zip-nested": ("model.keras", _nested_archives, "FormatError"),
    "zip-of-torchscript": ("model.pt", _script_ratio, "LimitError"),
    "zip-of-torch-export": ("model.pt2", _export_ratio, "LimitError"),
    "xml-billion-laughs": ("model.xml", _laughs, "FormatError"),
    "xml-quadratic": ("model.xml", _quadratic, "FormatError"),
    "xml-external-entity": ("model.xml", _outside, "FormatError"),
    "xml-deep": ("model.xml", _deep_elements, "FormatError"),
    "mlir-regions": ("model.mlir", _mlir('%0 = "stablehlo.case"(%x) ({\n' * _HUGE), "LimitError"),
    "mlir-attributes": (
        "model.mlir",
        _mlir(f"%0 = stablehlo.abs %x {{a = {'[' * _HUGE}}} : tensor<4x8xf32>"),
        "FormatError",
    ),
    "mlir-types": ("model.mlir", _mlir(f"%0 = stablehlo.abs %x : {'tuple<' * _HUGE}"), "FormatError"),
    "mlir-locations": ("model.mlir", _mlir("", after=f"#loc = loc({'callsite(' * _HUGE}"), "FormatError"),
    "mlir-number": (
        "model.mlir",
        _mlir(
            f"%c = stablehlo.constant dense<{'9' * 4 * _HUGE}> : tensor<1xi64>\n"
            "%s = stablehlo.constant dense<[4, 8]> : tensor<2xi64>\n"
            "%0 = stablehlo.dynamic_reshape %x, %c : (tensor<4x8xf32>, tensor<1xi64>) -> tensor<?xf32>\n"
            "%1 = stablehlo.dynamic_reshape %0, %s : (tensor<?xf32>, tensor<2xi64>) -> tensor<4x8xf32>\n"
            "return %1 : tensor<4x8xf32>"
        ),
        "LimitError",
    ),
    "mlir-size": ("model.mlir", _mlir(f"%0 = stablehlo.abs %x : tensor<{'9' * _HUGE}xf32>"), "LimitError"),
    "mlir-type-aliases": ("model.mlir", _doubling_aliases, "GraphError"),
    "mlir-resources": (
        "model.mlir",
        _mlir(
            "%c = stablehlo.constant dense_resource<w> : tensor<4x8xf32>\n"
            "%0 = stablehlo.add %x, %c : tensor<4x8xf32>\nreturn %0 : tensor<4x8xf32>",
            after=f'{{-# dialect_resources: {{ builtin: {{ w: "0x{"0" * 8 * _HUGE}" }} }} #-}}',
        ),
        "answered",
    ),
    "mlir-bytecode": (
        "model.mlirbc",
        lambda: b"ML\xefR\x0dbomb\0" + b"\x07\x00\xff\xff\xff\xff\xff\xff\xff\xff" * 4,
        "FormatError UnsupportedError",
    ),
    "flatbuffer-long-vector": ("model.tflite", lambda: _tflite("long"), "FormatError"),
    "flatbuffer-cyclic": ("model.tflite", lambda: _tflite("cyclic"), "FormatError"),
    "flatbuffer-shared": ("model.tflite", lambda: _tflite("shared"), "ShapeError"),
    "coreml-numbers": ("model.mlmodel", lambda: _coreml(b"\x08\x01" * 8 * _HUGE), "LimitError"),
    "coreml-fields": ("model.mlmodel", lambda: _coreml(_distinct_fields()), "GraphError"),
    "coreml-messages": ("model.mlmodel", lambda: _coreml(b"\x0a\x00" * 3 * _HUGE), "GraphError"),
    "coreml-inputs": ("model.mlmodel", lambda: _coreml(inputs=b"\x0a\x00" * 3 * _HUGE), "LimitError"),
    "coreml-functions": (
        "model.mlmodel",
        lambda: _coreml(_field(502, _field(2, b"") * 3 * _HUGE)),
        "LimitError",
    ),
    "coreml-operations": ("model.mlmodel", lambda: _coreml(operations=b"\x1a\x00" * 3 * _HUGE), "LimitError"),
    "coreml-constants": ("model.mlmodel", lambda: _coreml(operations=_constants()), "answered"),
    "json-deep": ("model.json", lambda: b'{"Layers": [' + b'{"Name": [' * _HUGE, "FormatError"),
    "gguf-arrays": ("model.gguf", _gguf_arrays, "FormatError"),
}


@contextmanager
def _kept_small(directory: Path, name: str) -> Iterator[Path]:
    filename, build, _ = BOMBS[name]
    path = directory / filename
    path.write_bytes(build())
    try:
        yield path
    finally:
        path.unlink()


def _ended(path: Path) -> tuple[str, str]:
    import perfpass
    from perfpass.errors import PerfPassError
    from perfpass.importers import gguf

    try:
        perfpass.load(path) if path.suffix != ".gguf" else gguf.read(path)
    except PerfPassError as error:
        return type(error).__name__, str(error)
    except Exception as error:
        return f"{type(error).__name__}, which is no error of ours", str(error)
    return "answered", ""


def main() -> None:
    """Prints a line of JSON for every bomb."""
    with tempfile.TemporaryDirectory(prefix="perfpass-bombs-") as directory:
        good = Path(directory) / "good.keras"
        good.write_bytes((FILES / "vision.keras").read_bytes())
        _ended(good)  # what is imported on first use counts for no bomb
        for name in sys.argv[1:] or BOMBS:
            with _kept_small(Path(directory), name) as path:
                before, spent = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, sum(os.times()[:4])
                how, said = _ended(path)
                row = {
                    "bomb": name,
                    "bytes": path.stat().st_size,
                    "ended": how,
                    "said": said[:400],
                    "seconds": sum(os.times()[:4]) - spent,
                    "grown_mib": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
                }
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
