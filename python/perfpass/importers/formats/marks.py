"""By which bytes formats are told whose files carry no name of their own."""

from __future__ import annotations

from perfpass.importers.formats.content import Content

_HDF5 = b"\x89HDF\r\n\x1a\n"
_KERAS_ENTRIES = frozenset({"config.json", "metadata.json"})
_SAVED_MODEL = "saved_model.pb"
# saved_model_schema_version 1, then a MetaGraphDef that begins with its MetaInfoDef, whose first field is the list of
# operators, the tags or the version: a Core ML model of version 1 begins alike, and has a text there.
_VERSION_AND_GRAPH = b"\x08\x01\x12"
_META_INFO, _META_INFO_FIELDS = 0x0A, (0x12, 0x1A, 0x22, 0x2A)
_NAME, _OPERATOR = 0x0A, 0x12
# The root block of Paddle's ProgramDesc: its index 0, and -1 for its parent.
_ROOT_BLOCK = b"\x08\x00\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
_NCNN = 7767517
OLD_PROGRAM = "serialized_exported_program.json"  # of torch.export before torch 2.8


def is_tflite(content: Content) -> bool:
    """FlatBuffers have the name of their schema behind the first offset."""
    return content.head[4:8] == b"TFL3"


def is_ort(content: Content) -> bool:
    """As `is_tflite`."""
    return content.head[4:8] == b"ORTM"


def is_executorch(content: Content) -> bool:
    """As `is_tflite`."""
    return content.head[4:8] == b"ET12"


def is_openvino(content: Content) -> bool:
    """XML whose root is a network with a version."""
    head = content.head.removeprefix(b"\xef\xbb\xbf").lstrip()
    return head.startswith(b"<") and b"<net" in head and b"version=" in head


def is_coreml(content: Content) -> bool:
    """A package, or a specification: its version, then a description that begins with an input or a function."""
    if content.is_folder:
        return {"Manifest.json", "Data"} <= content.entries
    head = content.head
    if len(head) < 8 or head[0] != 0x08 or not 0 < head[1] < 64 or head[2] != 0x12:
        return False
    after = next((i for i in range(3, 8) if head[i] < 128), 8) + 1
    return head[after : after + 1] == b"\x0a" or head[after : after + 2] == b"\xa2\x01"


def is_paddle(content: Content) -> bool:
    """PIR as JSON that says so, or a ProgramDesc, which begins with its root block."""
    head = content.head.lstrip()
    if head.startswith(b"{"):
        return b'"base_code"' in head and b'"pir"' in head
    return content.head.startswith(b"\x0a") and _ROOT_BLOCK in content.head[2 : 8 + len(_ROOT_BLOCK)]


def is_pipeline(content: Content) -> bool:
    """A pipeline of diffusers: its folder, or the index within it."""
    if content.is_folder:
        return "model_index.json" in content.entries
    head = content.head.lstrip()
    return head[:1] == b"{" and all(mark in head for mark in (b'"_class_name"', b'"_diffusers_version"', b"Pipeline"))


def is_engine(content: Content) -> bool:
    """What TensorRT's inspector writes of an engine."""
    head = content.head.lstrip()
    return head.startswith(b"{") and head[1:64].lstrip().startswith(b'"Layers"')


def is_ncnn(content: Content) -> bool:
    """A text or binary parameter file: both begin with one number."""
    first = content.head[:64].split(b"\n", 1)[0].strip()
    return first == str(_NCNN).encode() or content.head[:4] == _NCNN.to_bytes(4, "little")


def is_keras(content: Content) -> bool:
    """A ``.keras`` archive, or an HDF5 file (of what else such a file is, the reader says that it is no model)."""
    return content.head.startswith(_HDF5) or (content.is_archive and content.entries >= _KERAS_ENTRIES)


def is_tensorflow(content: Content) -> bool:
    """A SavedModel's folder or its file, or a GraphDef by itself: a list of nodes that begin with name and operator."""
    if content.is_folder:
        return _SAVED_MODEL in content.entries
    head = content.head
    if head.startswith(_VERSION_AND_GRAPH):
        inner = _inside(head, 2)
        info = _inside(head, inner)
        return _at(head, inner) == _META_INFO and _at(head, info) in _META_INFO_FIELDS
    if not head.startswith(b"\x0a"):
        return False
    node = _inside(head, 0)
    name = _inside(head, node)
    if _at(head, node) != _NAME or name <= 0:
        return False
    behind = name + _length(head, node)
    operator = _inside(head, behind)
    if _at(head, behind) != _OPERATOR or operator <= 0:
        return False
    text = head[operator : operator + _length(head, behind)]
    return len(text) > 0 and text.replace(b"_", b"").isalnum() and text.isascii()


def is_export(content: Content) -> bool:
    """What ``torch.export.save`` writes, or a compiled package in the same form (refused when read)."""
    if not content.is_archive:
        return False
    return (
        content.any_entry(OLD_PROGRAM)
        or content.any_entry("archive_format")
        or any("/data/aotinductor/" in f"/{name}" for name in content.entries)
    )


def is_torchscript(content: Content) -> bool:
    """What ``torch.jit.save`` writes: pickled sizes beside a program in its own text."""
    if not content.is_archive or not content.any_entry("constants.pkl"):
        return False
    return any("/code/" in f"/{name}" for name in content.entries) or content.any_entry("bytecode.pkl")


def _at(head: bytes, place: int) -> int:
    return head[place] if 0 <= place < len(head) else -1


def _varint(head: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        byte = _at(head, place)
        place += 1
        if byte < 0:
            return -1, -1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
    return -1, -1


def _inside(head: bytes, place: int) -> int:
    """Where the content of the field at ``place`` begins; -1 where there is none."""
    return _varint(head, place + 1)[1] if place >= 0 else -1


def _length(head: bytes, place: int) -> int:
    return _varint(head, place + 1)[0]
