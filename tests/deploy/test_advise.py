"""`perfpass advise`: changes that are predicted to be better, and rewritten files that compute the same."""

from __future__ import annotations

import errno
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import perfpass
from perfpass import Limits, errors
from perfpass.cli import main
from perfpass.deploy.advise import outputs, rewrites
from perfpass.deploy.advise.result import Change
from perfpass.graph import OpGraph
from perfpass.training.inference.cpu import machine
from small_networks import network

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
ROWS, WIDTH, LAYERS = 64, 384, 4


def saved(path: Path, nodes: list, shape: list, weights: dict) -> Path:
    """A model of one input and one output, both of ``shape``."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "y")]
    constants = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "network", ends[:1], ends[1:], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    return path


@pytest.fixture(scope="module")
def products(tmp_path_factory) -> Path:
    """Products with weights, as linear layers of a sequence are, with idle operators between."""
    generator = np.random.default_rng(0)
    weights = {f"w{i}": generator.normal(0, WIDTH**-0.5, (WIDTH, WIDTH)).astype(np.float32) for i in range(LAYERS)}
    nodes, last = [], "x"
    for i in range(LAYERS):
        nodes += [
            helper.make_node("MatMul", [last, f"w{i}"], [f"p{i}"]),
            helper.make_node("Relu", [f"p{i}"], [f"r{i}"]),
        ]
        nodes.append(helper.make_node("Identity", [f"r{i}"], ["y" if i == LAYERS - 1 else f"i{i}"]))
        last = f"i{i}"
    return saved(tmp_path_factory.mktemp("advise") / "products.onnx", nodes, ["batch", ROWS, WIDTH], weights)


@pytest.fixture(scope="module")
def advised(products):
    return perfpass.advise(products, machine(1), batch=1)


def by_rewrite(found) -> dict[str, Change]:
    return {one.changes["rewrite"]: one for one in found.alone if "rewrite" in one.changes}


def test_products_in_8_bits_are_advised_with_the_error_that_was_measured(advised):
    (step,) = advised.steps
    assert step.changes == {"rewrite": "int8"} and step.changes_numbers
    assert 0 < step.error < 0.05 and step.probability >= 0.9
    assert advised.settings["rewrites"] == ["tidy", "int8"]
    assert advised.total.interval.high < 1 and advised.total.new == step.ratio.new
    assert "changes numbers" in str(advised) and "outputs are off by" in str(advised)


def test_what_a_session_does_itself_as_it_loads_is_no_gain(advised):
    tidy = by_rewrite(advised)["tidy"]
    assert tidy.ratio.interval.median == pytest.approx(1.0, abs=0.01) and tidy.error == 0.0
    assert tidy.nodes[1] < tidy.nodes[0]
    assert tidy in advised.declined and "does the same as it loads the file" in tidy.why


def test_16_bits_bring_nothing_where_a_cpu_casts_around_them(advised):
    assert by_rewrite(advised)["fp16"].why and by_rewrite(advised)["fp16"].ratio.interval.median > 0.99


def test_numbers_that_are_to_be_kept_are_kept(products):
    found = perfpass.advise(products, machine(1), batch=1, keep_precision=True)
    assert not found.steps and not any(one.changes_numbers for one in found.alone)
    assert "nothing tried is surely better" in str(found)


def test_outputs_that_are_off_by_more_than_is_allowed_are_not_advised(products):
    found = perfpass.advise(products, machine(1), batch=1, tolerance=1e-6)
    assert not found.steps and "over the 0.0001 % allowed" in by_rewrite(found)["int8"].why


def test_the_written_file_computes_what_is_said(products, tmp_path, advised):
    found = perfpass.advise(products, machine(1), batch=1, output=tmp_path / "faster")
    assert [one.name for one in (tmp_path / "faster").iterdir()] == ["products.tidy.int8.onnx"]
    given = {"x": np.random.default_rng(1).standard_normal((3, ROWS, WIDTH)).astype(np.float32)}
    old, new = (onnxruntime.InferenceSession(str(path)).run(None, given) for path in (products, found.file))
    assert outputs.error_of(new, old) < 2 * advised.steps[0].error


def test_no_file_is_replaced(products, tmp_path):
    there = tmp_path / "products.tidy.int8.onnx"
    there.write_text("mine")
    with pytest.raises(errors.ArgumentError, match="is there already"):
        perfpass.advise(products, machine(1), batch=1, output=tmp_path)
    with pytest.raises(errors.ArgumentError, match="is no folder"):
        perfpass.advise(products, machine(1), batch=1, output=there)
    assert there.read_text() == "mine"


def test_a_full_disk_leaves_no_half_of_a_file(products, tmp_path, monkeypatch):
    def full(source, target, length):
        target.write(source.read(100))
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(errors.FileError, match="No space left"):
        perfpass.advise(products, machine(1), batch=1, output=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_run_leaves_nothing(products, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(rewrites, "rewritten", interrupted)
    with pytest.raises(KeyboardInterrupt):
        perfpass.advise(products, machine(1), batch=1, output=tmp_path / "faster")
    assert list(tmp_path.iterdir()) == []


def test_a_file_without_weights_is_told_and_its_settings_are_tried():
    found = perfpass.advise(EXAMPLES / "resnet50.onnx", "t4", batch=8)
    assert "only settings were tried" in found.notes[0] and found.steps
    assert not by_rewrite(found)


def test_without_the_tools_settings_are_tried_and_the_extra_is_named(products, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    found = perfpass.advise(products, "t4", batch=1)
    assert found.alone and not by_rewrite(found)
    assert "pip install 'perfpass[advise]'" in found.notes[0]


def test_products_in_8_bits_take_less_than_in_fp32_and_say_what_stands_behind_them(products, tmp_path):
    rewrite = next(one for one in rewrites.REWRITES if one.name == "int8")
    narrow = rewrites.rewritten(rewrite, products, tmp_path / "narrow.onnx")
    wide, found = (perfpass.predict(path, machine(1), batch=1, runtime="onnxruntime") for path in (products, narrow))
    assert found.latency_ms.median < wide.latency_ms.median
    assert any("8 bits" in reason for reason in found.support.reasons)


def test_a_batch_norm_is_folded_and_a_transformer_s_norms_are_fused(tmp_path):
    generator = np.random.default_rng(0)
    wide = {name: np.ones(8, np.float32) for name in ("g", "b", "m", "v")}
    weights = {"w": generator.standard_normal((8, 8, 3, 3)).astype(np.float32), **wide}
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
             helper.make_node("BatchNormalization", ["c", "g", "b", "m", "v"], ["y"])]  # fmt: skip
    path = saved(tmp_path / "norm.onnx", nodes, [1, 8, 8, 8], weights)
    rewrite = {one.name: one for one in rewrites.REWRITES}
    tidy = rewrites.rewritten(rewrite["tidy"], path, tmp_path / "tidy.onnx")
    assert [node.op_type for node in onnx.load(tidy).graph.node] == ["Conv"]
    kinds = (("Add", "x x a"), ("LayerNormalization", "a g b n"), ("Add", "n a o"), ("LayerNormalization", "o g b y"))
    nodes = [helper.make_node(kind, names.split()[:-1], [names[-1]]) for kind, names in kinds]
    path = saved(tmp_path / "layers.onnx", nodes, [1, 4, 8], {name: wide[name] for name in "gb"})
    fused = rewrites.rewritten(rewrite["fused"], path, tmp_path / "fused.onnx")
    assert "SkipLayerNormalization" in {node.op_type for node in onnx.load(fused).graph.node}
    sizes = outputs.Sizes(1, {}, {})
    both = [outputs.outputs(one, outputs.inputs(path, sizes)) for one in (fused, path)]
    assert outputs.error_of(*both) < outputs.ROUNDING


@pytest.mark.parametrize("target", ["latency", "throughput", "memory", "energy", "price"])
def test_every_step_is_surely_better_and_no_other_is_taken(target):
    found = perfpass.advise("resnet18", ["a100-80gb", "l4"], batch=8, target=target, slices=target == "price")
    for step in found.steps:
        assert step.probability >= 0.9 and not step.why
        better = step.ratio.inverted if target == "throughput" else step.ratio
        assert better.interval.median < 0.99
    assert all(one.why for one in found.declined)
    assert found.total.old == found.start.new
    if found.steps:
        assert found.total.new == found.steps[-1].ratio.new
        assert [a.ratio.new for a in found.steps[:-1]] == [b.ratio.old for b in found.steps[1:]]
    json.dumps(found.to_dict(), allow_nan=False)


def test_a_step_has_the_ratio_that_diff_has():
    found = perfpass.advise("resnet18", "t4", batch=8, runtime=("torch", "torch.compile"), keep_precision=True)
    (step,) = [one for one in found.alone if one.changes == {"runtime": "torch.compile"}]
    diff = perfpass.diff("resnet18", "resnet18", "t4", batch=8, change={"runtime": "torch.compile"})
    assert step.ratio == diff.devices[0].ratios[0]


def test_more_confidence_gives_no_step_that_is_less_sure():
    taken = {}
    for confidence in (0.6, 0.9, 0.99):
        taken[confidence] = perfpass.advise("resnet18", "t4", limits=Limits(confidence=confidence)).steps
        assert all(step.probability >= confidence for step in taken[confidence])
    assert len(taken[0.6]) >= len(taken[0.99]) and taken[0.6]


@pytest.mark.parametrize("how", [{"rewrites": False}, {"mode": "training"}])
def test_a_folder_for_what_is_never_rewritten_is_refused(products, tmp_path, how):
    with pytest.raises(errors.ArgumentError, match="nothing is rewritten"):
        perfpass.advise(products, "t4", output=tmp_path / "faster", **how)
    assert not (tmp_path / "faster").exists()


def test_where_a_price_comes_from_stands_beside_a_written_file_too(products, tmp_path):
    found = perfpass.advise(products, "t4", batch=1, target="price", output=tmp_path / "faster")
    assert any("USD an hour" in note for note in found.notes)


def test_a_limit_holds_back_what_would_break_it():
    free = perfpass.advise("resnet18", "t4", target="throughput", keep_precision=True)
    grown = [step for step in free.steps if "batch" in step.changes]
    most = grown[-1].figures["latency_ms"].median / 4
    held = perfpass.advise("resnet18", "t4", target="throughput", keep_precision=True, limits=Limits(latency_ms=most))
    assert held.settings["batch"] < free.settings["batch"]
    assert held.asked == free.asked


def test_what_may_not_change_does_not():
    found = perfpass.advise(
        "resnet18", "a100-80gb", target="throughput", runtime="torch", keep_precision=True, keep_batch=True
    )
    assert {name for one in found.alone for name in one.changes} <= {"layout"}
    graph = network()
    assert isinstance(graph, OpGraph)
    assert not any("batch" in one.changes for one in perfpass.advise(graph, "t4", target="throughput").alone)


def test_a_training_step_has_settings_too():
    found = perfpass.advise("resnet18", "t4", batch=8, mode="training")
    assert {"amp"} <= {one.changes.get("precision") for one in found.alone}
    assert {one.changes["runtime"] for one in found.alone if "runtime" in one.changes} == {"torch.compile"}


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"target": "speed"}, "unknown target"),
        ({"tolerance": 2}, "tolerance must be from 0 to 1"),
        ({"runtime": "caffe"}, "unknown runtime"),
        ({"runtime": ()}, "name a runtime"),
        ({"output": "x"}, "only ONNX files are rewritten"),
        ({"device": ()}, "name the device"),
    ],
)
def test_what_cannot_be_asked_is_refused(how, said):
    with pytest.raises(errors.ArgumentError, match=said):
        perfpass.advise(network(), **({"device": "t4"} | how))


_NUMBERS = st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=20)


@settings(deadline=None, max_examples=50)
@given(_NUMBERS, st.floats(0.1, 10))
def test_the_error_of_outputs_is_none_of_equal_ones_and_has_no_unit(numbers, factor):
    a = np.array(numbers, np.float64)
    b = a + np.linspace(0, 1, len(a))
    assert outputs.error_of([a], [a]) == 0.0
    assert outputs.error_of([b * factor], [a * factor]) == pytest.approx(outputs.error_of([b], [a]))
    assert outputs.error_of([a[:-1]], [a]) == np.inf
    assert outputs.error_of([np.where(a == a[0], np.nan, a)], [a]) == np.inf


def test_the_command_prints_the_path_and_json(products, tmp_path, capsys):
    command = ["advise", str(products), "--device", "cpu", "--batch", "1", "--no-rewrites"]
    assert main(command) == 0
    assert "as it is" in capsys.readouterr().out
    assert main([*command, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema_version"] == 1 and document["settings"]["runtime"] == "onnxruntime"
    assert main([*command, "-o", str(tmp_path), "--target", "speed"]) == 2
