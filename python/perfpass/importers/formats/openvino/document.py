"""The XML of OpenVINO's intermediate representation as layers, ports and edges; nothing is understood here.

Format: OpenVINO's "Intermediate Representation" and opset pages, versions 10 and 11. The file of weights is no part of
it: a Const tells its element type and shape here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from xml.etree import ElementTree

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
_ENDS = ("to-layer", "to-port", "from-layer", "from-port")
_ENCODING = re.compile(rb"""encoding\s*=\s*["']([^"']{0,40})["']""")


@dataclass(frozen=True)
class Port:
    """An output: its number, type, sizes (-1: open; None: even the rank is) and names of its tensor."""

    number: int
    dtype: str
    shape: tuple[int, ...] | None
    names: tuple[str, ...]


@dataclass
class Layer:
    """One layer as it is written; ``inputs``: numbers of its input ports in order."""

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
    name = shown(path)
    root = parsed(read_file(path, _WHAT, LARGEST_BYTES), name)
    if root.tag != "net":
        raise FormatError(
            f"{name}: XML whose root is {shown_value(root.tag)}, not an OpenVINO model, whose root is net"
        )
    version = _integer(root.get("version"), name, "its version")
    if version not in _VERSIONS:
        raise UnsupportedError(
            f"{name}: OpenVINO IR of version {version}; versions 10 and 11 are read: save it anew with a release "
            "of OpenVINO from 2020.1 on (`openvino.save_model`)"
        )
    return _body(root, name, 0)


def parsed(content: bytes, name: str) -> ElementTree.Element:
    """The root of ``content``, refused where it declares entities or a document type, or is not UTF-8."""
    if b"<!DOCTYPE" in content or b"<!ENTITY" in content:
        raise FormatError(f"{name}: declares a document type or entities, which OpenVINO never writes; export it anew")
    encoding = _ENCODING.search(content[:200])
    if b"\0" in content[:4096] or (encoding and encoding[1].lower() not in (b"utf-8", b"us-ascii", b"ascii")):
        raise FormatError(f"{name}: is not in UTF-8, in which OpenVINO writes; export the model anew")
    if content.count(b"<") > 2 * MOST_ELEMENTS:
        raise LimitError(f"{name}: more than {MOST_ELEMENTS:,} XML elements, the limit of {_WHAT}")
    try:
        return ElementTree.fromstring(content)
    except (ElementTree.ParseError, ValueError, RecursionError) as error:
        raise FormatError(f"{name}: is no well-formed XML ({error}); the file is damaged or cut") from None


def _body(root: ElementTree.Element, name: str, depth: int) -> Body:
    if depth > DEEPEST:
        raise LimitError(f"{name}: bodies of loops more than {DEEPEST} deep")
    listed, edges = root.find("layers"), root.find("edges")
    if listed is None:
        raise FormatError(f"{name}: a network without layers; the file is damaged")
    if len(listed) > MOST_LAYERS:
        raise LimitError(f"{name}: {len(listed):,} layers; at most {MOST_LAYERS:,} are read")
    layers: dict[int, Layer] = {}
    for element in listed:
        layer = _layer(element, name, depth)
        if layer.number in layers:
            raise FormatError(f"{name}: two layers have the number {layer.number}; the file is damaged")
        layers[layer.number] = layer
    sources: dict[tuple[int, int], tuple[int, int]] = {}
    for edge in () if edges is None else edges:
        try:
            reader, port, writer, output = [int(edge.attrib[k]) for k in _ENDS]
        except (KeyError, ValueError):
            said = f"an edge of {shown_value(edge.attrib)}, not of four whole numbers"
            raise FormatError(f"{name}: {said}; the file is damaged") from None
        if (reader, port) in sources:
            raise FormatError(f"{name}: input {port} of layer {reader} has two edges; the file is damaged")
        if reader not in layers or writer not in layers:
            raise FormatError(f"{name}: an edge between layers {writer} and {reader}, one of which is not there")
        sources[reader, port] = (writer, output)
    return Body(_ordered(layers, sources, name), sources)


def _layer(element: ElementTree.Element, name: str, depth: int) -> Layer:
    kind = element.get("type")
    if element.tag != "layer" or not kind:
        raise FormatError(f"{name}: among its layers is {shown_value(element.tag)} without a type; the file is damaged")
    number = _integer(element.get("id"), name, "the id of a layer")
    found = Layer(number, element.get("name", ""), kind, element.get("version", ""), {})
    for part in element:
        if part.tag == "data":
            found.data = part.attrib
        elif part.tag == "input":
            found.inputs = [_integer(port.get("id"), name, "the id of a port") for port in part]
        elif part.tag == "output":
            found.outputs = [_port(port, name) for port in part]
        elif part.tag in ("body", "then_body", "else_body"):
            found.bodies[part.tag] = _body(part, name, depth + 1)
        elif part.tag.endswith("port_map") or part.tag == "back_edges":
            found.maps[part.tag] = [{"tag": line.tag, **line.attrib} for line in part]
    return found


def _port(element: ElementTree.Element, name: str) -> Port:
    number, given = _integer(element.get("id"), name, "the id of a port"), element.get("names")
    shape = _shape(tuple([(dim.tag, dim.text) for dim in element]), name)
    names = tuple([n for n in given.split(",") if n]) if given else ()
    return Port(number, element.get("precision", ""), shape, names)


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
