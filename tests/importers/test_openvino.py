"""OpenVINO's representation: the same network as by other roads, weights as they are stored, hostile documents."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfpass
from perfpass import _core
from perfpass.errors import FormatError, LimitError, PerfPassError, ShapeError, UnsupportedError
from perfpass.graph import OPERATORS, ROLES, OpGraph, costs
from perfpass.importers import torch as tracer
from perfpass.importers.formats import Content, Sizes, recognised
from perfpass.importers.formats.openvino import contents, document, inputs, operators, read, shapes
from perfpass.importers.formats.openvino.constants import Constants

FILES = Path(__file__).parent / "files"
OPEN = {"ov_images_open": {"x:2": 32, "x:3": 32}, "ov_block_open": {"ids:1": 8}}


def networks() -> ModuleType:
    """The modules that the files beside were made of."""
    spec = importlib.util.spec_from_file_location("small_networks", FILES / "small_networks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def kinds(graph: OpGraph) -> list[str]:
    return [OPERATORS[op] for op in graph.core.op.tolist()]


def total(graph: OpGraph, what: str = "macs") -> int:
    return int(costs.count(graph).totals[what])


def load(name: str, **more: Any) -> OpGraph:
    return read(FILES / f"{name}.xml", Sizes(dims=OPEN.get(name, {}), **({"batch": 1} if name in OPEN else {}) | more))


@pytest.mark.parametrize("name", ["ov_images_fp16", "ov_images_open", "ov_images_int8"])
def test_a_network_of_images_has_the_products_that_torch_has(name: str) -> None:
    traced = tracer.trace(networks().Images(), (3, 32, 32))
    assert total(load(name)) == total(traced)
    assert not load(name).unknown_operators


@pytest.mark.parametrize("name", ["ov_block", "ov_block_open"])
def test_a_transformer_has_the_parameters_products_and_operators_that_torch_has(name: str) -> None:
    traced = tracer.trace(networks().Block(), ((8,), "int64"))
    found = load(name)
    assert (total(found), total(found, "parameters")) == (total(traced), total(traced, "parameters"))
    for kind in ("dense", "layer_norm", "attention", "gelu"):
        assert kinds(found).count(kind) == kinds(traced).count(kind)


def test_open_sizes_give_the_graph_of_a_file_that_fixes_them() -> None:
    assert total(load("ov_block_open", batch=3)) == total(load("ov_block", batch=3)) == 3 * total(load("ov_block"))
    longer = read(FILES / "ov_block_open.xml", Sizes(batch=1, dims={"ids:1": 16}))
    assert total(longer) > 2 * total(load("ov_block"))


def test_open_sizes_without_the_weights_beside_are_refused_with_what_to_do(tmp_path: Path) -> None:
    alone = Path(shutil.copy(FILES / "ov_block_open.xml", tmp_path))
    with pytest.raises(ShapeError, match="beside it would tell"):
        read(alone, Sizes(batch=1, dims={"ids:1": 8}))
    with pytest.raises(ShapeError, match="ids:1"):
        read(FILES / "ov_block_open.xml", Sizes(batch=1))


def test_weights_of_a_file_that_fixes_its_sizes_are_never_opened(tmp_path: Path) -> None:
    path = Path(shutil.copy(FILES / "ov_block.xml", tmp_path))
    (tmp_path / "ov_block.bin").symlink_to("/dev/zero")
    assert total(read(path, Sizes())) == total(load("ov_block"))


def test_a_place_of_thousands_of_digits_is_told_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(bytes(8))
    data = {"element_type": "i64", "offset": "9" * 4000, "size": "8"}
    with pytest.raises(FormatError, match="4000 digits") as error:
        Constants(tmp_path / "model.xml").read(data, (1,))
    assert len(str(error.value)) < 400


@pytest.mark.parametrize("name", ["ov_block_open", "ov_images_open"])
def test_of_the_weights_numbers_are_read_that_a_size_depends_on_and_none_else(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def pread(file: int, size: int, offset: int, read: Callable[[int, int, int], bytes] = os.pread) -> bytes:
        asked.append(offset)
        return read(file, size, offset)

    monkeypatch.setattr(os, "pread", pread)
    load(name)
    data = [layer.find("data") for layer in ElementTree.parse(FILES / f"{name}.xml").iter("layer")]
    constants = [d.attrib for d in data if d is not None and "offset" in d.attrib]
    types = {c["element_type"] for c in constants if int(c["offset"]) in asked}
    assert asked and types <= {"i32", "i64"}


def test_what_shape_arithmetic_makes_is_bounded_before_it_is_made() -> None:
    def known(values: Sequence[int]) -> shapes.Known:
        return shapes.Known("int64", np.shape(values), np.array(values))

    layer = document.Layer(1, "r", "Range", "opset4", {}, [0, 1, 2], [document.Port(3, "I64", (1,), ())])
    made = [shapes.Known("int64", (1,))]
    contents.follow(layer, [known([0]), known([1 << 40]), known([1])], made)  # 8 TiB
    assert made[0].values is None


def test_a_body_of_a_layer_that_nobody_knows_is_an_unknown_operator(tmp_path: Path) -> None:
    text = (FILES / "ov_control.xml").read_text()
    (tmp_path / "model.xml").write_text(text.replace('type="TensorIterator"', 'type="Unheard"'))
    assert read(tmp_path / "model.xml", Sizes()).unknown_operators["Unheard"] == 1


def test_weights_are_counted_as_they_are_stored() -> None:
    halves, rows = load("ov_images_fp16"), load("ov_rows_int4")
    assert total(halves, "weight_bytes") == 2 * total(halves, "parameters")
    assert kinds(rows).count("matmul_nbits") == 2 and "gather" in kinds(rows)
    matrices = 32 * 64 + 64 * 32 + 50 * 32
    assert matrices // 2 < total(rows, "weight_bytes") < matrices
    assert total(rows) == 8 * (32 * 64 + 64 * 32)


def test_biases_and_norms_are_part_of_their_operators() -> None:
    found = kinds(load("ov_images_fp16"))
    assert found.count("batch_norm") == 1 and found.count("add") == 1  # one norm is folded, the other cannot be


def test_loops_count_their_trips_and_of_branches_one_counts() -> None:
    graph = load("ov_control")
    named = dict(zip(kinds(graph), graph.core.repeat.tolist(), strict=True))
    assert named["tanh"] == 4 and named["scan"] == named["conditional"] == 1
    assert named["concat"] == 0  # the branch with less to do
    assert total(graph) == 4 * 8 * 8 + 4 * 8 * 16


def test_every_operator_that_openvino_registers_is_canonical_or_unknown_on_purpose() -> None:
    registered = (FILES / "openvino_operators.txt").read_text().split()
    assert len(registered) == len(set(registered)) > 200
    known = {*operators.KIND_OF, *operators.UNKNOWN, *operators.NO_OPERATORS}
    assert [name for name in registered if name not in known] == []
    assert set(operators.KIND_OF.values()) <= set(OPERATORS)
    assert not set(operators.KIND_OF) & set(operators.UNKNOWN)


def test_an_unknown_operator_stays_and_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.xml"
    path.write_text((FILES / "ov_block.xml").read_text().replace('type="Gelu"', 'type="Tensorise"'))
    assert read(path, Sizes()).unknown_operators == {"Tensorise": 1}


def test_a_file_is_told_by_its_content_and_every_command_takes_it(tmp_path: Path) -> None:
    odd = Path(shutil.copy(FILES / "ov_images_fp16.xml", tmp_path / "model.data"))
    found = recognised(Content.of(odd))
    assert found is not None and found.name == "openvino"
    assert [(i.name, i.dtype, i.shape) for i in inputs(odd)] == [("x", "float32", (1, 3, 32, 32))]
    assert total(perfpass.load(odd, batch=4)) == 4 * total(load("ov_images_fp16"))
    assert perfpass.predict(odd, device="A100").latency_ms.median > 0


def test_inputs_and_weights_have_their_roles() -> None:
    graph = load("ov_block")
    roles = [ROLES[r] for r in graph.core.tensor_role.tolist()]
    assert roles.count("input") == 1 and roles.count("weight") == 13


# -- hostile documents -------------------------------------------------------------------------------------------------


def refused(tmp_path: Path, text: str | bytes, kind: type[PerfPassError] = FormatError) -> str:
    path = tmp_path / "model.xml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(kind) as error:
        read(path, Sizes())
    return str(error.value)


BOMB = '<!DOCTYPE net [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'


@pytest.mark.parametrize(
    "head",
    [
        BOMB,
        '<!DOCTYPE net SYSTEM "file:///etc/passwd">',
        '<!DOCTYPE net [<!ENTITY x SYSTEM "http://localhost/x">]>',
        '<!DOCTYPE net [<!ENTITY % p SYSTEM "file:///dev/zero"> %p;]>',
    ],
)
def test_entities_and_references_are_refused_before_they_are_read(tmp_path: Path, head: str) -> None:
    assert "document type" in refused(tmp_path, f'<?xml version="1.0"?>{head}<net name="a" version="11"></net>')


def test_other_encodings_other_documents_and_other_versions_are_refused(tmp_path: Path) -> None:
    whole = (FILES / "ov_lstm.xml").read_text()
    assert "UTF-8" in refused(tmp_path, whole.encode("utf-16"))
    assert "UTF-8" in refused(tmp_path, whole.replace('"1.0"?>', '"1.0" encoding="cp037"?>'))
    assert "net" in refused(tmp_path, "<graph></graph>")
    assert "version 7" in refused(tmp_path, '<net name="a" version="7"><layers/></net>', UnsupportedError)


def test_deep_and_wide_documents_end_in_an_error(tmp_path: Path) -> None:
    deep = "<a>" * 200_000 + "</a>" * 200_000
    assert refused(tmp_path, f'<net version="11"><layers>{deep}</layers></net>')
    body = "<layers/>"
    for _ in range(40):
        body = f'<layers><layer id="0" type="Loop"><body>{body}</body></layer></layers>'
    assert "deep" in refused(tmp_path, f'<net version="11">{body}</net>', LimitError)
    dims = "<dim>1</dim>" * 100
    wide = f'<layer id="0" type="Parameter"><output><port id="0">{dims}</port></output></layer>'
    assert "rank" in refused(tmp_path, f'<net version="11"><layers>{wide}</layers></net>', LimitError)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("<dim>1</dim>", "<dim>99999999999999999999999</dim>", "whole number"),
        ("<dim>1</dim>", f"<dim>{2**60}</dim>", "2\\^48"),
        ('from-layer="0"', 'from-layer="9999"', "not there"),
        ('<edge from-layer="0"', '<edge bogus="0"', "whole number"),
        ('<layer id="1"', '<layer id="0"', "two layers"),
        ('size="', 'size="7', "damaged"),
    ],
)
def test_what_is_wrong_in_a_document_is_said(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = (FILES / "ov_images_fp16.xml").read_text()
    path = tmp_path / "model.xml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(PerfPassError, match=said):
        read(path, Sizes())


def test_layers_in_a_circle_are_refused(tmp_path: Path) -> None:
    port = '<input><port id="0"/></input><output><port id="1" precision="FP32"><dim>1</dim></port></output>'
    layers = "".join(f'<layer id="{i}" name="n{i}" type="ReLU" version="opset1">{port}</layer>' for i in range(2))
    edges = "".join(f'<edge from-layer="{a}" from-port="1" to-layer="{b}" to-port="0"/>' for a, b in ((0, 1), (1, 0)))
    text = f'<net name="a" version="11"><layers>{layers}</layers><edges>{edges}</edges></net>'
    assert "circle" in refused(tmp_path, text)


def assert_taken_as_by_the_parser(content: bytes) -> bool:
    """Whether the core takes a document, which is then the one that the parser of XML reads."""
    if not document._is_plain(content):
        return False
    taken = _core.openvino_layers(content, document.Layer, document.Port)
    if taken is None:
        return False
    layers, sources, is_ordered = taken
    expected = document._Parsing("document").body(content)
    assert sources == expected.sources
    assert is_ordered is (layers == expected.layers)
    assert sorted(layers, key=lambda layer: layer.number) == sorted(expected.layers, key=lambda layer: layer.number)
    return True


@pytest.mark.parametrize("path", sorted(FILES.glob("*.xml")), ids=lambda path: path.stem)
def test_the_core_reads_a_document_without_bodies_as_the_parser_of_xml_does(path: Path) -> None:
    content = path.read_bytes()
    assert assert_taken_as_by_the_parser(content) is not (b"<body>" in content or b"<then_body>" in content)


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_damage_ends_in_one_of_our_errors_or_in_a_graph(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(["ov_control", "ov_lstm", "ov_rows_int4", "ov_block_open"]))
    content = bytearray((FILES / f"{name}.xml").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        how = data.draw(st.sampled_from(["flip", "cut", "drop", "number", "copy"]))
        if how == "flip":
            content[at] = data.draw(st.integers(0, 255))
        elif how == "cut":
            del content[at:]
            content = content or bytearray(b"<")
        elif how == "drop":
            del content[at : at + data.draw(st.integers(1, 300))]
            content = content or bytearray(b"<")
        elif how == "number":
            digits = [i for i in range(at, min(at + 200, len(content))) if 48 <= content[i] <= 57]
            if digits:
                content[digits[0] : digits[0] + 1] = str(data.draw(st.integers(-(2**40), 2**70))).encode()
        else:
            content[at:at] = content[at : at + data.draw(st.integers(1, 400))]
    path = tmp_path_factory.mktemp("damaged") / f"{name}.xml"
    path.write_bytes(bytes(content))
    assert_taken_as_by_the_parser(bytes(content))
    try:
        costs.count(read(path, Sizes(batch=1, dims=OPEN.get(name, {}))))
    except PerfPassError as error:
        assert str(error)
