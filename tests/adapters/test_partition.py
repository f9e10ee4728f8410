"""Node memory statistics for ONNX Runtime's partitioning, beside what its own profiling run writes."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import onnxruntime
import pytest
from ort_models import MODELS

from ort_extension import observer
from ort_extension.partition import SETTING, Partition, murmur3, partition, unique_name
from perfpass.errors import ArgumentError, FileError, UnsupportedError

native = pytest.mark.skipif(observer.native_library() is None, reason="the native provider was not built")
# Name, values of open dimensions, and by how much the sums may differ: allocations are rounded up, which shows where
# tensors are small.
CASES = [
    ("resnet18", {}, 1e-4),
    ("mobilenetv3", {}, 1e-3),
    ("vit", {}, 1e-4),
    ("bert", {}, 0.01),
    ("lstm", {}, 0.01),
    ("gpt2-dynamic", {"batch": 2, "length": 4}, 0.06),
]
_DTYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A function from a name to the exported model's path."""
    folder, made = tmp_path_factory.mktemp("models"), {}

    def path(name):
        if name not in made:
            made[name] = folder / f"{name}.onnx"
            MODELS[name](made[name])
        return made[name]

    return path


def profiled(path, dims):
    """What onnxruntime's own profiling run writes of the graph that it partitions, by node name."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.enable_mem_pattern = False  # with patterns, one block holds all tensors and no node allocates
    options.add_session_config_entry("session.disable_prepacking", "1")  # packed weights are not counted
    options.add_session_config_entry("session.collect_node_memory_stats_to_file", "profiled.csv")
    session = onnxruntime.InferenceSession(path, options)
    feeds = {
        item.name: np.ones([dims.get(d, d) for d in item.shape], _DTYPES[item.type]) for item in session.get_inputs()
    }
    session.run(None, feeds)
    del session
    header, *lines = path.with_name("profiled.csv").read_text().splitlines()
    rows = (line.rsplit(",", 4) for line in lines)
    return header, {name: [int(size) for size in sizes] for name, *sizes in rows}


@native
@pytest.mark.parametrize(("name", "dims", "tolerance"), CASES, ids=[case[0] for case in CASES])
def test_names_and_sums_are_those_of_the_profiling_run(model, tmp_path, name, dims, tolerance):
    path = model(name)
    header, theirs = profiled(path, dims)
    found = partition(path, "l4", dims=dims or None, source="onnxruntime")
    found.write(tmp_path / "ours.csv")
    assert (tmp_path / "ours.csv").read_text().splitlines()[0] == header
    assert {node.name for node in found.nodes} == set(theirs)
    without_temporaries = sum(sum(sizes[:3]) for sizes in theirs.values())
    assert found.total_bytes == pytest.approx(without_temporaries, rel=tolerance)
    assert all(sizes[1] == 0 for sizes in theirs.values())


def test_onnxruntime_reads_the_file_and_refuses_a_damaged_one(model):
    path = model("resnet18")
    found = partition(path, "l4", source="file")
    found.write(path.with_name("ours.csv"))
    path.with_name("damaged.csv").write_text("".join(f"{node.name},1\n" for node in found.nodes))

    def opened_with(setting):
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.add_session_config_entry(SETTING, setting)
        return onnxruntime.InferenceSession(path, options)

    assert opened_with(found.setting("ours.csv")).get_inputs()
    with pytest.raises(Exception, match=r"damaged\.csv"):
        opened_with(found.setting("damaged.csv"))
    with pytest.raises(Exception, match=r"missing\.csv"):
        opened_with(found.setting("missing.csv"))


def test_a_model_without_weights_is_partitioned_from_its_file(examples):
    found = partition(examples / "llama_1b_prefill.onnx", "l4", source="file")
    assert found.source == "file" and len(found.nodes) > 500
    assert found.total_bytes > 4_000_000_000
    assert 20 * 2**20 < found.limit_kb < 24 * 2**20
    assert partition(examples / "llama_1b_prefill.onnx", "a100-80gb:1g.10gb", source="file").limit_kb < 10 * 2**20


def test_every_tensor_counts_once(model):
    path = model("resnet18")
    once = partition(path, "l4", source="file")
    from perfpass.graph import DTYPES
    from perfpass.importers.onnx import read

    graph = read(path)
    width = {"float32": 4, "int64": 8}
    used = {int(t) for node in range(graph.node_count) for t in (*graph.node_inputs(node), *graph.node_outputs(node))}
    everything = sum(int(np.prod(graph.shape(t))) * width[DTYPES[graph.tensor_dtype[t]]] for t in used if t >= 0)
    assert once.total_bytes == everything


def test_an_absent_input_counts_in_a_node_name():
    assert murmur3(b"", 0) == (0, 0, 0, 0) != murmur3(b"", 1)
    assert unique_name("node", ["a", "", "b"]) != unique_name("node", ["a", "b"])


def test_wrong_arguments_are_named(model, tmp_path):
    with pytest.raises(ArgumentError, match="unknown source"):
        partition(model("resnet18"), "l4", source="gpu")
    with pytest.raises(ArgumentError, match="comma"):
        Partition((), 1, "file", "", 0).setting("a,b.csv")
    with pytest.raises(FileError):
        Partition((), 1, "file", "", 0).write(tmp_path / "no" / "file.csv")


@native
def test_a_model_that_onnxruntime_cannot_open_is_read_from_its_file(model, tmp_path):
    import onnx

    proto = onnx.load(model("external-data"), load_external_data=False)
    (tmp_path / "alone.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(UnsupportedError, match="source='file'"):
        partition(tmp_path / "alone.onnx", "l4", source="onnxruntime")
    found = partition(tmp_path / "alone.onnx", "l4")
    assert found.source == "file" and "does not open" in found.why_file


def test_the_command_writes_the_file_and_says_what_to_set(model, tmp_path):
    command = [sys.executable, "-m", "perfpass", "partition", str(model("resnet18")), "--device", "l4"]
    output = tmp_path / "stats.csv"
    text = subprocess.run([*command, "-o", str(output), "--json"], capture_output=True, text=True, check=True).stdout
    facts = json.loads(text)
    assert facts["setting"][SETTING] == f"{facts['limit_bytes'] // 1024},{output}"
    assert len(output.read_text().splitlines()) == facts["nodes"] + 1
    shown = subprocess.run([*command, "-o", str(output)], capture_output=True, text=True, check=True).stdout
    assert "fits" in shown and SETTING in shown
