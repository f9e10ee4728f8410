"""The seam of file formats: recognition by content, sizes as ONNX files take them, a fixed batch at another."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfpass
from perfpass.errors import ArgumentError, FormatError, LimitError, PerfPassError, ShapeError
from perfpass.graph import OpGraph, costs
from perfpass.importers.formats import FORMATS, Content, Sizes, archive, fixed, recognised
from perfpass.importers.formats.batch import scaled
from perfpass.importers.onnx import Input

IMAGE = Input("image", "float32", ("batch", 3, "height", "width"))
MASK = Input("mask", "int64", ("mask:0", 77))
FIXED = Input("image", "float32", (2, 3, 224, 224))


def test_every_format_is_named_once_and_has_a_module_that_reads() -> None:
    assert len({one.name for one in FORMATS}) == len(FORMATS)
    for one in FORMATS:
        module = one._of()
        assert callable(module.read) and callable(module.inputs) and one.title.startswith(("a ", "an "))


@given(st.binary(max_size=200))
def test_any_bytes_are_recognised_or_not_without_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.mktemp("any") / "model"
    path.write_bytes(data)
    try:
        recognised(Content.of(path))
    except PerfPassError as error:
        assert str(error)


@pytest.mark.parametrize("suffix", ["tflite", "onnx", "pt2", "gguf", "mlir", "param", ""])
def test_a_file_without_a_byte_is_empty_whatever_its_name(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"model.{suffix}"
    path.touch()
    with pytest.raises(FormatError, match="the file is empty, and a model was expected; is the download complete"):
        perfpass.load(str(path))


def test_names_of_an_archive_and_of_a_folder_are_entries(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("one/config.json", "{}")
    found = Content.of(tmp_path / "a.zip")
    assert found.is_archive and found.entries == {"one/config.json"} and found.any_entry("config.json")
    assert Content.of(tmp_path).entries == {"a.zip"} and Content.of(tmp_path).is_folder


def test_an_archive_that_is_cut_short_or_endless_is_refused_before_it_is_listed(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for i in range(200):
            archive.writestr(f"{i}", "")
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    with pytest.raises(FormatError, match="cut short"):
        _ = Content.of(path).entries
    path.write_bytes(whole[:-12] + b"\xff\xff\xff\x7f" + whole[-8:])
    with pytest.raises(LimitError, match="at most"):
        _ = Content.of(path).entries


def test_an_entry_is_read_to_its_limit_whatever_the_archive_says(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as written:
        written.writestr("config.json", b"{" + b" " * 5_000_000 + b"}")
    assert len(archive.member(path, "config.json", "the configuration", 6_000_000)) == 5_000_002
    with pytest.raises(LimitError, match="larger than 1000 bytes"):
        archive.member(path, "config.json", "the configuration", 1000)
    with pytest.raises(FormatError, match=r"no model\.json, the model"):
        archive.member(path, "model.json", "the model", 1000)
    data = path.read_bytes()
    path.write_bytes(data.replace((5_000_002).to_bytes(4, "little"), (10).to_bytes(4, "little")))
    with pytest.raises((FormatError, LimitError)):
        archive.member(path, "config.json", "the configuration", 1000)


def test_open_dimensions_take_names_shapes_and_the_batch() -> None:
    by_name = fixed([IMAGE, MASK], Sizes(batch=4, dims={"height": 32, "width": 64}))
    assert by_name.shapes == {"image": (4, 3, 32, 64), "mask": (4, 77)} and by_name.batch is None
    by_shape = fixed([IMAGE, MASK], Sizes(input_shapes={"image": (4, 3, 32, 64), "mask": (4, 77)}))
    assert by_shape.shapes == by_name.shapes


@pytest.mark.parametrize(
    ("sizes", "error", "message"),
    [
        (Sizes(), ShapeError, "without a value: 'batch', 'height', 'width'.*--dim batch=N"),
        (Sizes(dims={"depth": 3}), ArgumentError, "no symbolic dimension 'depth'.*'batch', 'height'"),
        (Sizes(input_shapes={"picture": (1,)}), ArgumentError, "no input 'picture'.*'image'"),
        (Sizes(input_shapes={"image": (1, 3)}), ShapeError, "has 4 dimensions"),
        (Sizes(batch=2, dims={"batch": 3}), ShapeError, "set to 3 and, by the batch, to 2"),
        (Sizes(batch=0), ArgumentError, "from 1 to"),
        (Sizes(input_shapes={"image": (1, 4, 8, 8)}), ShapeError, "which fixes 3"),
    ],
)
def test_a_size_that_cannot_be_is_refused_by_name(sizes: Sizes, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        fixed([IMAGE], sizes)


def test_a_batch_that_the_file_fixes_is_said_beside_the_one_asked() -> None:
    assert fixed([FIXED], Sizes(batch=8)).declared_batch == 2
    assert fixed([FIXED], Sizes(batch=8)).shapes == {"image": FIXED.shape}
    assert fixed([FIXED], Sizes(batch=2)).declared_batch is None
    with pytest.raises(ShapeError, match="no shape in the file"):
        fixed([Input("x", "float32", None)], Sizes())


@pytest.mark.parametrize(
    "name", ["timm:resnet18", "timm:vit_tiny_patch16_224", "gpt2", "t5-small", "timm:convnext_atto"]
)
@pytest.mark.parametrize("declared", [1, 2])
def test_a_graph_at_another_batch_costs_what_the_model_traced_there_costs(name: str, declared: int) -> None:
    found, traced = scaled(perfpass.load(name, batch=declared), declared, 8), perfpass.load(name, batch=8)
    assert np.array_equal(costs.count(found).macs, costs.count(traced).macs)
    assert np.array_equal(costs.count(found).flops, costs.count(traced).flops)
    assert np.array_equal(costs.count(found).bytes_written, costs.count(traced).bytes_written)


def test_a_batch_that_hides_is_refused_and_its_own_changes_nothing() -> None:
    graph: OpGraph = perfpass.load("timm:resnet18", batch=3)
    assert scaled(graph, 3, 3) is graph and scaled(graph, None, 8) is graph
    with pytest.raises(ShapeError, match="no input of the file begins with its batch of 5"):
        scaled(graph, 5, 8)
