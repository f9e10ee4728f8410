"""The XML of OpenVINO's intermediate representation as layers, ports and edges; nothing is understood here.

Format: OpenVINO's "Intermediate Representation" and opset pages, versions 10 and 11. The file of weights is no part of
it: a Const tells its element type and shape here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple
from xml.parsers import expat

from perfpass import _core
from perfpass.bounded_file import read_file
from perfpass.errors import FormatError, LimitError, UnsupportedError, shown
from perfpass.text import shown_value

_WHAT = "an OpenVINO model"
LARGEST_BYTES = 128 * 2**20  # of models with 80 layers of a decoder some 10 MiB
MOST_ELEMENTS = 6_000_000  # of XML; an operator has some 30
MOST_LAYERS = 250_000
DEEPEST = 16  # bodies within one another
_WIDEST = 2**48
_VERSIONS = (10, 11)
_ENCODING = re.compile(rb"""encoding\s*=\s*["']([^"']{0,40})["']""")


class Port(NamedTuple):
    """An output: its number, type, sizes (-1: open; None: even the rank is) and names of its tensor."""

    number: int
    dtype: str
    shape: tuple[int, ...] | None
    names: tuple[str, ...]


@dataclass(slots=True)
class Layer:
    """One layer as it is written; ``inputs``: numbers of its input ports in order. Layers may share data and inputs."""

    number: int
    name: str
    kind: str
    opset: str
    data: dict[str, str]
    inputs: list[int] = field(default_factory=list)
    outputs: list[Port] = field(default_factory=list)
    bodies: dict[str, Body] = field(default_factory=dict)
    maps: dict[str, list[dict[str, str]]] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return f"layer '{self.name[:200]}' ({self.kind})"


@dataclass
class Body:
    """Layers in the order of data flow; ``sources``: (layer, input port) -> (layer, output port) that it reads."""

    layers: list[Layer]
    sources: dict[tuple[int, int], tuple[int, int]]


def read(path: Path) -> Body:
    """The document at ``path``.

    Raises FileError, FormatError for what is no such document, LimitError over the bounds above, and UnsupportedError
    for another version.
    """
    name, content = shown(path), read_file(path, _WHAT, LARGEST_BYTES)
    if b"<!DOCTYPE" in content or b"<!ENTITY" in content:
        raise FormatError(f"{name}: declares a document type or entities, which OpenVINO never writes; export it anew")
    encoding = _ENCODING.search(content[:200])
    if b"\0" in content[:4096] or (encoding and encoding[1].lower() not in (b"utf-8", b"us-ascii", b"ascii")):
        raise FormatError(f"{name}: is not in UTF-8, in which OpenVINO writes; export the model anew")
    if content.count(b"<") > 2 * MOST_ELEMENTS:
        raise LimitError(f"{name}: more than {MOST_ELEMENTS:,} XML elements, the limit of {_WHAT}")
    found = _core.openvino_layers(content, Layer, Port) if _is_plain(content) else None
    if found is None:
        return _Parsing(name).body(content)
    layers, sources, is_ordered = found
    return Body(layers if is_ordered else _ordered({one.number: one for one in layers}, sources, name), sources)


def _is_plain(content: bytes) -> bool:
    """Whether the bytes are UTF-8 of characters that XML has, of which the core takes the documents without bodies."""
    if content.isascii():
        return True
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return False
    return "\ufffe" not in text and "\uffff" not in text


class _Open:
    """A network or a body whose elements are being read; ``layer``: the one that it is the body of."""

    def __init__(self, layer: Layer | None) -> None:
        self.layer = layer
        self.layers: dict[int, Layer] | None = None
        self.edges: list[tuple[int, int, int, int]] | None = None


# What an open element is: children of an _OTHER are skipped.
_OTHER, _NET, _LAYERS, _EDGES, _LAYER, _INPUT, _OUTPUT, _MAP, _BODY = range(9)
_IN_LAYER = {"input": _INPUT, "output": _OUTPUT, "body": _BODY, "then_body": _BODY, "else_body": _BODY}


class _Parsing:
    """The events of an XML parser into layers as they come: a tree of the elements took two thirds of the time.

    Four of five elements stand in a port and have handlers of their own, which count how deep they are.
    """

    __slots__ = ("bodies", "depth", "layer", "lines", "name", "open", "parser", "port", "result", "sizes", "texts")

    def __init__(self, name: str) -> None:
        self.name = name
        self.bodies: list[_Open] = []
        self.result: Body | None = None
        self.open: list[int] = []
        self.depth = 0
        self.layer = Layer(-1, "", "", "", {})  # the one that is open
        self.port: dict[str, str] = {}
        self.sizes: list[tuple[str, str | None]] = []  # of the port that is open
        self.texts: list[str] = []
        self.lines: list[dict[str, str]] = []  # of the map that is open
        self.parser = expat.ParserCreate(namespace_separator="}")
        self.parser.buffer_text = True

    def body(self, content: bytes) -> Body:
        """The network that ``content`` holds."""
        parser = self.parser
        parser.StartElementHandler, parser.EndElementHandler = self.start, self.end
        try:
            parser.Parse(content, True)
        except expat.ExpatError as error:
            raise FormatError(f"{self.name}: is no well-formed XML ({error}); the file is damaged or cut") from None
        finally:
            parser.StartElementHandler = parser.EndElementHandler = parser.CharacterDataHandler = None
        assert self.result is not None  # a document without a root is not well formed
        return self.result

    def start(self, tag: str, given: dict[str, str]) -> None:
        """An element opens outside of ports."""
        if not self.open:
            self.root(tag, given)
            return
        around = self.open[-1]
        if around == _OUTPUT:
            self.port, self.sizes = given, []
            self.parser.StartElementHandler, self.parser.EndElementHandler = self.size, self.size_end
        elif around == _EDGES:
            self.edge(given)
            self.skip()
        elif around == _LAYER:
            if tag == "data":
                self.layer.data = given
                self.skip()
            else:
                self.open.append(self.part(tag))
        elif around == _INPUT:
            self.layer.inputs.append(_integer(given.get("id"), self.name, "the id of a port"))
            self.skip()
        elif around == _LAYERS:
            self.opened(tag, given)
            self.open.append(_LAYER)
        elif around == _MAP:
            self.lines.append({"tag": tag, **given})
            self.skip()
        elif around == _OTHER:
            self.skip()
        else:
            self.open.append(self.listed(tag))

    def end(self, tag: str) -> None:
        """An element ends outside of ports."""
        state = self.open.pop()
        if state in (_BODY, _NET):
            self.closed(tag)

    def skip(self) -> None:
        """What stands in the element that opened is nothing of a network."""
        self.parser.StartElementHandler, self.parser.EndElementHandler = self.deeper, self.deeper_end

    def deeper(self, tag: str, given: dict[str, str]) -> None:
        self.depth += 1

    def deeper_end(self, tag: str) -> None:
        if self.depth:
            self.depth -= 1
        else:
            self.parser.StartElementHandler, self.parser.EndElementHandler = self.start, self.end

    def size(self, tag: str, given: dict[str, str]) -> None:
        """A size of an output opens, or something in it: a size is the text before that."""
        if self.depth:
            self.parser.CharacterDataHandler = None
        else:
            self.sizes.append((tag, None))
            self.texts = []
            self.parser.CharacterDataHandler = self.texts.append
        self.depth += 1

    def size_end(self, tag: str) -> None:
        """A size ends, something in it, or the output."""
        if self.depth:
            self.depth -= 1
            if not self.depth:
                self.parser.CharacterDataHandler = None
                if self.texts:
                    self.sizes[-1] = (tag, "".join(self.texts))
            return
        self.layer.outputs.append(self.made(self.port, self.sizes))
        self.parser.StartElementHandler, self.parser.EndElementHandler = self.start, self.end

    def root(self, tag: str, given: dict[str, str]) -> None:
        if tag != "net":
            raise FormatError(
                f"{self.name}: XML whose root is {shown_value(tag)}, not an OpenVINO model, whose root is net"
            )
        if _integer(given.get("version"), self.name, "its version") not in _VERSIONS:
            raise UnsupportedError(
                f"{self.name}: OpenVINO IR of version {given['version']}; versions 10 and 11 are read: save it anew "
                "with a release of OpenVINO from 2020.1 on (`openvino.save_model`)"
            )
        self.bodies.append(_Open(None))
        self.open.append(_NET)

    def listed(self, tag: str) -> int:
        """What a child of a network or of a body is; of several lists the first counts."""
        body = self.bodies[-1]
        if tag == "layers" and body.layers is None:
            body.layers = {}
            return _LAYERS
        if tag == "edges" and body.edges is None:
            body.edges = []
            return _EDGES
        return _OTHER

    def opened(self, tag: str, given: dict[str, str]) -> None:
        """A layer."""
        kind, layers = given.get("type"), self.bodies[-1].layers or {}
        if tag != "layer" or not kind:
            raise FormatError(
                f"{self.name}: among its layers is {shown_value(tag)} without a type; the file is damaged"
            )
        number = _integer(given.get("id"), self.name, "the id of a layer")
        if number in layers:
            raise FormatError(f"{self.name}: two layers have the number {number}; the file is damaged")
        if len(layers) >= MOST_LAYERS:
            raise LimitError(f"{self.name}: more than {MOST_LAYERS:,} layers; that many are read")
        self.layer = Layer(number, given.get("name", ""), kind, given.get("version", ""), {}, [], [], {}, {})
        self.bodies[-1].layers[number] = self.layer  # type: ignore[index]

    def part(self, tag: str) -> int:
        """What a child of a layer is."""
        layer = self.layer
        state = _IN_LAYER.get(tag, _OTHER)
        if state == _INPUT:
            layer.inputs = []
        elif state == _OUTPUT:
            layer.outputs = []
        elif state == _BODY:
            if len(self.bodies) > DEEPEST:
                raise LimitError(f"{self.name}: bodies of loops more than {DEEPEST} deep")
            self.bodies.append(_Open(layer))
        elif tag.endswith("port_map") or tag == "back_edges":
            self.lines = layer.maps[tag] = []
            return _MAP
        return state

    def closed(self, tag: str) -> None:
        """The network or a body is read."""
        one = self.bodies.pop()
        if one.layers is None:
            raise FormatError(f"{self.name}: a network without layers; the file is damaged")
        layers, sources = one.layers, {}
        for reader, port, writer, output in one.edges or ():
            if (reader, port) in sources:
                raise FormatError(f"{self.name}: input {port} of layer {reader} has two edges; the file is damaged")
            if reader not in layers or writer not in layers:
                raise FormatError(
                    f"{self.name}: an edge between layers {writer} and {reader}, one of which is not there"
                )
            sources[reader, port] = (writer, output)
        found = Body(_ordered(layers, sources, self.name), sources)
        if one.layer is None:
            self.result = found
        else:
            one.layer.bodies[tag] = found
            self.layer = one.layer

    def edge(self, given: dict[str, str]) -> None:
        try:
            ends = (int(given["to-layer"]), int(given["to-port"]), int(given["from-layer"]), int(given["from-port"]))
        except (KeyError, ValueError):
            said = f"an edge of {shown_value(given)}, not of four whole numbers"
            raise FormatError(f"{self.name}: {said}; the file is damaged") from None
        self.bodies[-1].edges.append(ends)  # type: ignore[union-attr]

    def made(self, port: dict[str, str], sizes: list[tuple[str, str | None]]) -> Port:
        """An output."""
        number, given = _integer(port.get("id"), self.name, "the id of a port"), port.get("names")
        names = tuple([n for n in given.split(",") if n]) if given else ()
        return Port(number, port.get("precision", ""), _shape(tuple(sizes), self.name), names)


@lru_cache(maxsize=4096)  # a network has few shapes
def _shape(dims: tuple[tuple[str, str | None], ...], name: str) -> tuple[int, ...] | None:
    """Of the elements within a port; None where even the rank is open. Raises FormatError and LimitError."""
    sizes = []
    for tag, text in dims:
        if tag == "dim":
            sizes.append(_size(text, name))
        elif tag in ("rank", "dynamic_rank"):
            return None
    if len(sizes) > 16:
        raise LimitError(f"{name}: a tensor of rank {len(sizes)}; at most 16 are read")
    return tuple(sizes)


def _size(text: str | None, name: str) -> int:
    """A size; -1 where it is open: -1, "?", or a range such as 1..8."""
    written = (text or "").strip()
    if written in ("?", "") or ".." in written:
        return -1
    size = _integer(written, name, "a size")
    if size > _WIDEST:
        raise LimitError(f"{name}: a dimension of {size}; at most 2^48 is read")
    return max(size, -1)


def _integer(text: str | None, name: str, what: str) -> int:
    try:
        if text is not None and len(text) <= 20:
            return int(text)
    except ValueError:
        pass
    raise FormatError(f"{name}: {what} is {shown_value(text)}, not a whole number; the file is damaged")


def _ordered(layers: dict[int, Layer], sources: dict[tuple[int, int], tuple[int, int]], name: str) -> list[Layer]:
    """Every layer after those that it reads, in the file's order where that is one."""
    place = {number: i for i, number in enumerate(layers)}
    if all(place[writer] < place[reader] for (reader, _), (writer, _) in sources.items()):
        return list(layers.values())
    waits = dict.fromkeys(layers, 0)
    readers: dict[int, list[int]] = {}
    for (reader, _), (writer, _) in sources.items():
        waits[reader] += 1
        readers.setdefault(writer, []).append(reader)
    ready = [number for number in layers if not waits[number]]
    order: list[int] = []
    while ready:
        number = ready.pop()
        order.append(number)
        for reader in readers.get(number, ()):
            waits[reader] -= 1
            if not waits[reader]:
                ready.append(reader)
    if len(order) != len(layers):
        raise FormatError(f"{name}: its layers read one another in a circle; the file is damaged")
    return [layers[number] for number in order]
