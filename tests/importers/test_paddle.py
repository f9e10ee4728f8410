"""Paddle programs of both forms: what is in them, open sizes, control flow, damage."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfpass
from perfpass.errors import FormatError, LimitError, PerfPassError, ShapeError
from perfpass.graph import costs
from perfpass.importers import formats
from perfpass.importers.formats.paddle import kinds

FILES = Path(__file__).parent / "files" / "paddle"
# Parameters and MACs of the ONNX file that paddle2onnx 2.1 writes of the same program at these sizes, read here too;
# of detector, unet, llama, channels_last, which it cannot write (or not readably), of the layers by hand.
COUNTED = {
    "bert.json": ({"ids": (1, 64)}, 11_170_048, 209_780_736),
    "bert.pdmodel": ({"ids": (1, 64)}, 11_170_048, 209_780_736),
    "vit.json": ({"image": (1, 3, 224, 224)}, 2_158_120, 437_289_984),
    "mobilenet_v3_small.json": ({"image": (1, 3, 224, 224)}, 2_554_968, 56_510_400),
    "gru.json": ({"ids": (1, 32)}, 939_146, 9_439_104),
    "gru.pdmodel": ({"ids": (1, 32)}, 939_146, 9_439_104),
    "lstm.json": ({"ids": (1, 32)}, 1_038_218, 12_584_832),
    "video.json": ({"clip": (1, 3, 16, 112, 112)}, 15_562, 75_866_432),
    "choosing.json": ({"x": (1, 64)}, 41_408, 36_864),
    "choosing.pdmodel": ({"x": (1, 64)}, 41_408, 36_864),
    "unet.json": ({"image": (1, 3, 64, 64)}, 77_157, 13_451_264),
    "unet.pdmodel": ({"image": (1, 3, 64, 64)}, 77_157, 13_451_264),
    "detector.json": ({"image": (1, 3, 320, 320)}, 564_124, 828_313_600),
    "detector.pdmodel": ({"image": (1, 3, 320, 320)}, 564_124, 828_313_600),
    "channels_last.json": ({"image": (1, 64, 64, 3)}, 1_098, 461_120),
    "channels_last.pdmodel": ({"image": (1, 64, 64, 3)}, 1_098, 461_120),
    "quantised.json": ({}, 61_610, 341_256),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("paddle")
    for one in FILES.glob("*.gz"):
        (path / one.stem).write_bytes(gzip.decompress(one.read_bytes()))
    return path


@pytest.mark.parametrize("name", COUNTED)
def test_parameters_and_macs_are_those_of_the_same_program_as_onnx(folder: Path, name: str) -> None:
    shapes, parameters, macs = COUNTED[name]
    graph = perfpass.load(folder / name, input_shape=shapes)
    totals = costs.count(graph).totals
    assert (totals["parameters"], totals["macs"]) == (parameters, macs)
    assert not graph.unknown_operators


@pytest.mark.parametrize("name", [n for n in COUNTED if "quantised" not in n])
def test_an_open_batch_scales_the_products_and_not_the_parameters(folder: Path, name: str) -> None:
    shapes, parameters, macs = COUNTED[name]
    four = {key: (4, *shape[1:]) for key, shape in shapes.items()}
    totals = costs.count(perfpass.load(folder / name, input_shape=four)).totals
    assert (totals["parameters"], totals["macs"]) == (parameters, 4 * macs)


def test_a_fixed_batch_is_scaled(folder: Path) -> None:
    totals = costs.count(perfpass.load(folder / "quantised.json", batch=8)).totals
    assert totals["macs"] == 8 * COUNTED["quantised.json"][2]


def test_open_sizes_are_named_and_set_by_name(folder: Path) -> None:
    (ids,) = formats.named("paddle").inputs(folder / "bert.json")
    assert (ids.name, ids.dtype, ids.shape) == ("ids", "int64", ("ids:0", "ids:1"))
    with pytest.raises(ShapeError, match="ids:1"):
        perfpass.load(folder / "bert.json", batch=1)
    graph = perfpass.load(folder / "bert.json", batch=2, dims={"ids:1": 16})
    assert graph.shape(int(graph.graph_outputs[0])) == (2, 16, 256)


@pytest.mark.parametrize(("name", "idle"), [("choosing.json", ["dense"]), ("choosing.pdmodel", ["dense", "copy"])])
def test_the_heavier_side_of_a_choice_counts_and_the_other_does_not(folder: Path, name: str, idle: list[str]) -> None:
    graph = perfpass.load(folder / name, batch=1)
    counted = costs.count(graph).macs
    assert sorted(int(m) for m, r in zip(counted, graph.repeat, strict=True) if r and m) == [4096, 16384, 16384]
    assert [graph.op_name(n) for n in range(graph.node_count) if not graph.repeat[n]] == idle
    assert any("then branch is counted" in note for note in graph.notes)
    assert ["loop" in note for note in graph.counted_once] == [True]


def test_a_channels_last_convolution_costs_what_it_costs_channels_first(folder: Path) -> None:
    graph = perfpass.load(folder / "channels_last.json", batch=1)
    convolutions = [n for n in range(graph.node_count) if graph.op_name(n) == "conv"]
    names = list(perfpass.graph.ATTRIBUTES)
    assert all(graph.attributes[n][names.index("channels_last")] == 1 for n in convolutions)
    assert graph.attributes[convolutions[1]][names.index("groups")] == 16


def test_sizes_that_a_program_cannot_take_are_a_shape_error(folder: Path) -> None:
    with pytest.raises(ShapeError, match=r"pd_op.concat of .* along axis 1"):
        perfpass.load(folder / "unet.json", input_shape={"image": (1, 3, 30, 30)})


def test_an_operator_that_nobody_knows_is_kept_and_named(folder: Path, tmp_path: Path) -> None:
    content = json.loads((folder / "channels_last.json").read_text())
    operators = content["program"]["regions"][0]["blocks"][0]["ops"]
    (relu,) = [o for o in operators if o["#"] == "1.relu"]
    relu["#"] = "3.my_own"
    relu["O"][0]["TT"]["D"][1] = [1, 32, 32, 16]
    (tmp_path / "m.json").write_text(json.dumps(content))
    graph = perfpass.load(tmp_path / "m.json", batch=1)
    assert graph.unknown_operators == {"custom_op.my_own": 1}


def test_an_infinite_number_of_a_value_is_refused(folder: Path, tmp_path: Path) -> None:
    content = json.loads((folder / "channels_last.json").read_text())
    next(o for o in content["program"]["regions"][0]["blocks"][0]["ops"] if o["#"] == "1.add")["I"][0]["%"] = math.inf
    (tmp_path / "m.json").write_text(json.dumps(content))
    with pytest.raises(FormatError, match="not as PIR writes it"):
        perfpass.load(tmp_path / "m.json", batch=1)


@pytest.mark.parametrize("side", ["I", "O"])
def test_an_operator_without_its_operands_or_results_is_refused_by_name(
    folder: Path, tmp_path: Path, side: str
) -> None:
    content = json.loads((folder / "channels_last.json").read_text())
    operators = content["program"]["regions"][0]["blocks"][0]["ops"]
    next(o for o in operators if o["#"] == "1.add")[side][1 if side == "I" else 0 :] = []
    (tmp_path / "m.json").write_text(json.dumps(content))
    with pytest.raises(FormatError, match=r"pd_op\.add .* do not fit"):
        perfpass.load(tmp_path / "m.json", batch=1)


def test_a_result_of_open_size_without_a_rule_is_refused_by_name(folder: Path, tmp_path: Path) -> None:
    content = (folder / "channels_last.json").read_text().replace('"1.relu"', '"3.my_own"')
    (tmp_path / "m.json").write_text(content)
    with pytest.raises(ShapeError, match=r"custom_op\.my_own"):
        perfpass.load(tmp_path / "m.json", batch=1)


def test_a_program_that_yields_nothing_is_refused(folder: Path, tmp_path: Path) -> None:
    content = (folder / "channels_last.json").read_text().replace('"1.fetch"', '"1.print"')
    (tmp_path / "m.json").write_text(content)
    with pytest.raises(FormatError, match="fetches nothing"):
        perfpass.load(tmp_path / "m.json", batch=1)


def test_blocks_without_end_are_refused(folder: Path, tmp_path: Path) -> None:
    inner = {"regions": [{"#": "r", "blocks": [{"#": "b", "args": [], "ops": []}]}]}
    for _ in range(80):
        op = {"#": "1.if", "A": [], "I": [], "O": [], "OA": [], **inner}
        inner = {"regions": [{"#": "r", "blocks": [{"#": "b", "args": [], "ops": [op]}]}]}
    (tmp_path / "m.json").write_text(json.dumps({"base_code": {"magic": "pir", "version": 4}, "program": inner}))
    with pytest.raises((LimitError, FormatError)):
        perfpass.load(tmp_path / "m.json", batch=1)


def test_every_listed_kind_is_canonical_and_no_name_stands_twice() -> None:
    assert set(kinds._KINDS) <= set(perfpass.graph.OPERATORS)
    names = [name for listed in kinds._KINDS.values() for name in listed.split()]
    assert len(names) == len(set(names))


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_damage_is_one_of_our_errors(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(["channels_last.json", "channels_last.pdmodel", "choosing.pdmodel", "gru.json"]))
    content = bytearray((folder / name).read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    how = data.draw(st.sampled_from(["cut", "byte", "many"]))
    if how == "cut":
        content = content[:at]
    elif how == "byte":
        content[at] = data.draw(st.integers(0, 255))
    else:
        seed = np.random.default_rng(data.draw(st.integers(0, 2**16)))
        for place in seed.integers(0, len(content), 20):
            content[place] = seed.integers(0, 256)
    path = tmp_path_factory.mktemp("damaged") / "m"
    path.write_bytes(content)
    shapes = formats.Sizes(input_shapes=COUNTED[name][0])
    for read in (lambda: formats.named("paddle").inputs(path), lambda: formats.named("paddle").read(path, shapes)):
        try:
            read()
        except PerfPassError as error:
            assert str(error)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_attributes_of_any_kind_are_taken_or_refused(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(["unet.json", "gru.json", "channels_last.json", "video.json"]))
    content = json.loads((folder / name).read_text())
    operators = [o for o in content["program"]["regions"][0]["blocks"][0]["ops"] if o["A"] and o["#"] != "p"]
    attribute = data.draw(st.sampled_from(data.draw(st.sampled_from(operators))["A"]))
    values = st.one_of(st.none(), st.integers(-(2**70), 2**70), st.text(max_size=4), st.just(1e400), st.just([]))
    attribute["AT"]["D"] = data.draw(st.one_of(values, st.lists(values, max_size=4)))
    path = tmp_path_factory.mktemp("attributes") / "m.json"
    path.write_text(json.dumps(content))
    try:
        perfpass.load(path, input_shape=COUNTED[name][0])
    except PerfPassError as error:
        assert str(error)


def test_an_operator_or_attribute_without_a_name_is_refused(tmp_path: Path) -> None:
    root = b"\x08\x00\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    for operator in (b"", b"\x1a\x04relu\x22\x02\x10\x01"):
        block = root + b"\x22" + bytes([len(operator)]) + operator
        (tmp_path / "m").write_bytes(b"\x0a" + bytes([len(block)]) + block)
        with pytest.raises(FormatError, match="without a name"):
            perfpass.load(tmp_path / "m")
