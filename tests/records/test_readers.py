"""One model through several readers: what agrees, and that every difference is explained or listed as unexplained."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfpass.errors import FormatError
from perfpass.graph import difference as comparison
from perfpass.graph.difference import Summary, compare, summarise
from perfpass.importers.onnx import read

KINDS = {
    "broadcast",
    "common subexpression",
    "constant folding",
    "decomposition",
    "fusion",
    "index arithmetic",
    "layout or identity",
    "not needed for the outputs",
    "rewriting",
    "same operator, counted otherwise",
}
DIMS = {"gpt2-dynamic": {"batch": 2, "length": 4}}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A function from a name to the exported model's path."""
    from ort_models import MODELS

    folder, made = tmp_path_factory.mktemp("models"), {}

    def path(name):
        if name not in made:
            made[name] = folder / f"{name}.onnx"
            MODELS[name](made[name])
        return made[name]

    return path


def assert_explained(found):
    """Equal work; every difference of a known kind; and all of them together are the difference of the totals."""
    assert found.unexplained == ()
    assert {d.kind for d in found.differences} <= KINDS
    before, after = found.features["macs"]
    assert before == after > 0
    for name in ("flops", "parameters"):
        before, after = found.features[name]
        assert sum(getattr(d, name) for d in found.differences) == after - before, name
    moved = [found.features["bytes_read"][i] + found.features["bytes_written"][i] for i in (0, 1)]
    assert sum(d.moved_bytes for d in found.differences) == moved[1] - moved[0]


@pytest.mark.parametrize(
    "name", ["resnet18", "mobilenetv3", "convnext", "vit", "bert", "llama", "gpt2-dynamic", "lstm", "int8-qdq"]
)
def test_the_file_and_onnxruntime_agree_but_for_what_is_explained(model, name):
    from ort_extension import observer

    if observer.native_library() is None:
        pytest.skip("the native provider was not built")
    from ort_extension.partition import optimised_graph

    shapes = {"dims": DIMS.get(name), "input_shapes": None, "batch": None}
    file = summarise(read(model(name), dims=DIMS.get(name)), "file")
    found = compare(file, summarise(optimised_graph(model(name), shapes), "onnxruntime"))
    assert_explained(found)
    before, after = found.features["parameters"]
    folded = [d for d in found.differences if d.parameters and d.kind != "same operator, counted otherwise"]
    assert before == after or folded


@pytest.mark.slow
def test_the_file_and_relay_agree_but_for_what_is_explained(model):
    import onnx

    from tvm_perfpass.onnx_model import relay_graph

    path = model("resnet18")
    found = compare(
        summarise(read(path), "file"), summarise(relay_graph(path, {"image": [1, 3, 64, 64]}), "relay", "0.19")
    )
    assert_explained(found)
    assert found.features["parameters"][0] == found.features["parameters"][1]
    split_off = [d for d in found.differences if d.what == "nothing -> nn.bias_add"]
    assert [(d.kind, d.count) for d in split_off] == [("decomposition", 20)]
    assert not hasattr(onnx, "mapping")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "shapes", "decomposed"),
    [("bert", {"ids": [1, 8], "mask": [1, 8]}, "LayerNormalization"), ("lstm", {"ids": [1, 12]}, "2 LSTM")],
)
def test_what_relay_decomposes_is_explained_and_said_in_few_words(model, name, shapes, decomposed):
    from tvm_perfpass.onnx_model import relay_graph

    found = compare(summarise(read(model(name)), "file"), summarise(relay_graph(model(name), shapes), "relay", "0.19"))
    assert_explained(found)
    assert any(d.kind == "decomposition" and d.what.startswith(decomposed) for d in found.differences)
    assert max(len(d.what) for d in found.differences) < 200


def test_a_model_differs_from_itself_in_nothing(examples):
    for name in ("resnet50", "vit_base_patch16_224", "llama_1b_prefill"):
        one = summarise(read(examples / f"{name}.onnx"), "file")
        found = compare(one, one)
        assert found.differences == found.unexplained == ()
        assert Summary.from_dict(json.loads(json.dumps(one.to_dict()))) == one


def without(summary, index):
    """The graph without one operator: who read it reads what it read."""
    gone = summary.nodes[index]
    nodes = [
        dataclasses.replace(node, reads=tuple(r for i in node.reads for r in (gone.reads if i == index else (i,))))
        for node in summary.nodes
    ]
    nodes[index] = dataclasses.replace(gone, reads=(), name="unused")
    outputs = tuple(r for i in summary.outputs for r in (gone.reads if i == index else (i,)))
    return dataclasses.replace(summary, nodes=tuple(nodes), outputs=outputs)


@pytest.mark.parametrize("op", ["relu", "max_pool", "conv", "dense"])
def test_a_lost_operator_is_unexplained(examples, op):
    one = summarise(read(examples / "resnet50.onnx"), "file")
    places = [i for i, node in enumerate(one.nodes) if node.op == op]
    found = compare(one, without(one, places[-1]))
    assert [d.reference_nodes for d in found.unexplained] == [[one.nodes[places[-1]].name]]


def test_an_operator_of_another_size_is_unexplained(examples):
    one = summarise(read(examples / "resnet50.onnx"), "file")
    place = next(i for i, node in enumerate(one.nodes) if node.op == "conv")
    nodes = list(one.nodes)
    nodes[place] = dataclasses.replace(nodes[place], macs=2 * nodes[place].macs)
    assert len(compare(one, dataclasses.replace(one, nodes=tuple(nodes))).unexplained) == 1


def plain_length(a, b):
    """Length of a longest common subsequence, by the table of its definition."""
    row = [0] * (len(b) + 1)
    for x in a:
        before = row
        row = [0]
        for j, y in enumerate(b):
            row.append(before[j] + 1 if x == y else max(row[j], before[j + 1]))
    return row[-1]


@given(st.lists(st.integers(0, 4), max_size=40), st.lists(st.integers(0, 4), max_size=40))
def test_the_alignment_is_a_longest_common_subsequence(a, b):
    pairs = comparison.common_subsequence(a, b)
    assert all(a[i] == b[j] for i, j in pairs)
    assert all(x[0] < y[0] and x[1] < y[1] for x, y in pairwise(pairs))
    assert len(pairs) == plain_length(a, b)


@pytest.mark.parametrize("damaged", [None, [], {}, {"schema_version": 2}, {"schema_version": 1, "nodes": [{}]}])
def test_what_is_no_summary_is_a_format_error(damaged):
    with pytest.raises(FormatError, match="summary"):
        Summary.from_dict(damaged)


def test_the_command_names_readers_that_are_missing_and_reads_exported_graphs(examples, tmp_path):
    model, export = str(examples / "resnet50.onnx"), str(tmp_path / "graph.json")

    def run(*arguments):
        command = [sys.executable, "-m", "perfpass", "compare", model, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert run("--readers", "file", "--export", export).returncode == 0
    done = run("--readers", "file,relax", "--python", "relax=no-such-python", "--summary", export, "--json")
    assert done.returncode == 3 and "no-such-python" in done.stderr
    done = run("--readers", "file,relax", "--python", "relax=false", "--summary", export, "--json")
    facts = json.loads(done.stdout)
    assert list(facts["missing"]) == ["relax"]
    assert [c["differences"] + c["unexplained"] for c in facts["comparisons"]] == [[]]
    shown = run("--readers", "file", "--python", "file=" + sys.executable, "--summary", export, "--explain")
    assert shown.returncode == 0 and "no difference" in shown.stdout
    assert run("--readers", "nonsense").returncode == 2
    (tmp_path / "graph.json").write_text("[")
    assert run("--readers", "file", "--summary", export).returncode == 4
