"""Simulated allocators against the runtimes that are installed: onnxruntime's arena, TVM's storage plan."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import numpy as np
import pytest

from perfpass.graph import allocators
from perfpass.graph.allocators import FREE, USES, Events
from perfpass.importers import load

_RUN = """
import sys, numpy, onnxruntime
onnxruntime.set_default_logger_severity(1)
options = onnxruntime.SessionOptions()
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
options.intra_op_num_threads = 1
options.log_severity_level = 3
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
for _ in range(3):
    session.run(None, {"x": numpy.zeros(eval(sys.argv[2]), numpy.float32)})
"""


def convolutions(path, batch: int) -> list[int]:
    """A small network of convolutions, activations and residuals as an ONNX file; the shape of its input."""
    import onnx

    rng = np.random.default_rng(0)
    nodes, weights, last, channels = [], [], "x", 3
    for i, (out, stride) in enumerate([(32, 1), (32, 1), (64, 2), (64, 1), (128, 2), (128, 1), (256, 2)]):
        kernel = rng.standard_normal((out, channels, 3, 3), dtype=np.float32)
        weights.append(onnx.numpy_helper.from_array(kernel, f"w{i}"))
        settings = {"kernel_shape": [3, 3], "pads": [1] * 4, "strides": [stride] * 2}
        nodes.append(onnx.helper.make_node("Conv", [last, f"w{i}"], [f"c{i}"], **settings))
        nodes.append(onnx.helper.make_node("Sigmoid", [f"c{i}"], [f"s{i}"]))
        if channels == out:
            nodes.append(onnx.helper.make_node("Add", [f"s{i}", last], [f"a{i}"]))
        last, channels = f"a{i}" if channels == out else f"s{i}", out
    kind, shape = onnx.TensorProto.FLOAT, [batch, 3, 96, 96]
    ends = (
        [onnx.helper.make_tensor_value_info("x", kind, shape)],
        [onnx.helper.make_tensor_value_info(last, kind, None)],
    )
    graph = onnx.helper.make_graph(nodes, "convolutions", *ends, weights)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(onnx.shape_inference.infer_shapes(model).SerializeToString())
    return shape


@pytest.mark.parametrize("batch", [1, 4])
def test_onnxruntimes_arena_grows_to_what_is_simulated(tmp_path, batch):
    shape = convolutions(tmp_path / "net.onnx", batch)
    events = Events.of(load(tmp_path / "net.onnx"))
    run = events.use == USES.index("activations")
    simulated = allocators.arena(Events(*(c[run].copy() for c in (events.block, events.bytes, events.use))))
    command = [sys.executable, "-c", _RUN, str(tmp_path / "net.onnx"), str(shape)]
    log = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert int(re.findall(r"Total allocated bytes: (\d+)", log)[-1]) == simulated.peak_reserved


@pytest.mark.slow
def test_tvms_storage_is_what_is_simulated():
    import tvm
    from tvm import relay

    x = relay.var("data", shape=(1, 3, 64, 64))
    channels = 3
    for i, out in enumerate((16, 16, 32, 32, 16)):
        weight = relay.var(f"w{i}", shape=(out, channels, 3, 3))
        settings = {"padding": (1, 1), "strides": (2, 2) if i == 2 else (1, 1), "channels": out, "kernel_size": (3, 3)}
        y = relay.nn.relu(relay.nn.conv2d(x, weight, **settings))
        x, channels = (relay.add(y, x) if channels == out else y), out
    x = relay.nn.dense(relay.nn.batch_flatten(relay.nn.global_avg_pool2d(x)), relay.var("head", shape=(10, 16)))
    module = tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(x), x))
    with tvm.transform.PassContext(opt_level=3):
        graph = json.loads(relay.build(module, target="llvm").get_graph_json())
    attributes = {name: value[1] for name, value in graph["attrs"].items()}
    size = [4 * int(np.prod(shape)) for shape in attributes["shape"]]
    readers = [0] * len(size)
    for node in graph["nodes"]:
        for source, *_ in node["inputs"]:
            readers[source] += 1
    for source, *_ in graph["heads"]:
        readers[source] += 1
    owner, pairs, uses = list(range(len(size))), [], []
    inputs = [i for i, node in enumerate(graph["nodes"]) if node["op"] == "null"]
    for i in inputs:
        pairs.append((i, size[i]))
        uses.append(USES.index("inputs"))
    for i, node in enumerate(graph["nodes"]):
        if i in inputs:
            continue
        sources = [owner[s] for s, *_ in node["inputs"]]
        if node["attrs"]["func_name"] == "__nop":  # a reshape: its input's storage under another shape
            owner[i] = sources[0]
            readers[owner[i]] += readers[i]
        else:
            pairs.append((i, size[i]))
            uses.append(USES.index("activations"))
        for s in sources:
            readers[s] -= 1
            if readers[s] == 0 and s not in inputs:
                pairs.append((s, FREE))
                uses.append(USES.index("activations"))
    report, storage = allocators.storage_sharing(Events.from_columns(*zip(*pairs, strict=True), uses))
    theirs = attributes["storage_id"]
    ours = [int(storage[owner[i]]) for i in range(len(size))]
    groups = {s: {i for i in range(len(size)) if theirs[i] == s} for s in set(theirs)}
    assert sorted(map(sorted, groups.values())) == sorted(
        sorted(i for i in range(len(size)) if ours[i] == s) for s in set(ours)
    )
    assert report.peak_reserved == sum(max(size[i] for i in members) for members in groups.values())


@pytest.mark.parametrize("batch", [1, 4])
def test_onnxruntimes_search_for_convolutions_stays_in_its_arena(tmp_path, batch):
    from perfpass.devices import device
    from perfpass.graph import liveness
    from perfpass.predictors.estimate import PlannedRun
    from perfpass.predictors.memory import allocation
    from perfpass.predictors.way import Way

    convolutions(tmp_path / "net.onnx", batch)
    graph = load(tmp_path / "net.onnx")
    plan = liveness.plan(graph, float_as="float32", alignment_bytes=64)

    def reserved(on: str) -> float:
        way = Way(device(on), runtime="onnxruntime")
        run = PlannedRun(graph=graph, plan=plan, batch=batch, way=way, float_as="float32")
        return float(allocation.columns_of(run)["reserved_bytes"][0]) - plan.weight_bytes

    # The largest is the first convolution of 32 to 32 channels; strided ones are not searched for.
    side, channels = 96, 32
    largest = 36 * (4 * batch * 2 * channels * side**2 / 16 + 4 * channels**2)
    grown = 1
    while grown * 2**20 < plan.peak_activation_bytes + largest:
        grown = 2 * grown + 1
    assert reserved("t4") == grown * 2**20
    assert reserved("t4") > plan.peak_activation_bytes


def test_a_tensorrt_engine_holds_what_it_planned(tmp_path):
    from perfpass import predict

    convolutions(tmp_path / "net.onnx", 4)
    found = predict(tmp_path / "net.onnx", device="t4", runtime="tensorrt", precision="fp16").memory
    assert found.reserved.median == pytest.approx(found.alive.median)


def test_a_compiled_graph_keeps_no_copies_of_autocast_and_writes_over_its_inputs(tmp_path):
    from perfpass import predict

    convolutions(tmp_path / "net.onnx", 4)
    eager, compiled = (
        predict(tmp_path / "net.onnx", device="rtx-4090", runtime=runtime, precision="amp")
        for runtime in ("torch", "torch.compile")
    )
    weights = [found.breakdown["memory_bytes"]["weights"] for found in (eager, compiled)]
    assert 2 * weights[0] == pytest.approx(3 * weights[1])
    assert compiled.memory.alive.low < eager.memory.alive.low
    for figure in (compiled.memory.reserved, compiled.memory.in_use):
        assert figure.low >= compiled.memory.alive.low


def test_an_engine_fits_on_a_board_that_shares_two_gigabytes_with_its_host(tmp_path):
    from perfpass import predict

    convolutions(tmp_path / "net.onnx", 1)
    for runtime in ("tensorrt", "torch"):
        found = predict(tmp_path / "net.onnx", device="jetson-nano-2gb", runtime=runtime)
        assert found.memory_verdict.fits != "no"


def test_onnxruntime_on_a_cpu_holds_packed_filters_and_while_opening_the_largest_twice_more(tmp_path):
    import onnx

    from perfpass.devices import device
    from perfpass.graph import liveness
    from perfpass.predictors.estimate import PlannedRun
    from perfpass.predictors.memory import allocation
    from perfpass.predictors.way import Way

    convolutions(tmp_path / "net.onnx", 1)
    model = onnx.load(tmp_path / "net.onnx")
    # A bias that no input decides: folded when the model is opened.
    base = onnx.numpy_helper.from_array(np.ones((1, 256, 12, 12), np.float32), "base")
    model.graph.initializer.append(base)
    model.graph.node.append(onnx.helper.make_node("Exp", ["base"], ["folded"]))
    model.graph.node.append(onnx.helper.make_node("Add", [model.graph.output[0].name, "folded"], ["biased"]))
    model.graph.output[0].name = "biased"
    onnx.save(onnx.shape_inference.infer_shapes(model), tmp_path / "folded.onnx")
    graph = load(tmp_path / "folded.onnx")
    plan = liveness.plan(graph, float_as="float32", alignment_bytes=64)
    way = Way(device("cpu"), runtime="onnxruntime")
    run = PlannedRun(graph=graph, plan=plan, batch=1, way=way, float_as="float32")
    columns = allocation.columns_of(run)
    arena = allocation.reserved_bytes(run) - plan.weight_bytes
    filters = [4 * 9 * i * o for i, o in [(3, 32), (32, 32), (32, 64), (64, 64), (64, 128), (128, 128), (128, 256)]]
    folded = 4 * 256 * 12 * 12
    held = sum(filters) + folded + max(2 * max(filters), folded + arena)
    assert float(columns["reserved_bytes"][0]) == plan.weight_bytes + held
    # Every road counts the same: a prediction, its memory alone, a scorer's lane.
    from perfpass import predict
    from perfpass.predictors.assemble import peak_memory
    from perfpass.search import Scorer

    for on in ("cpu", "t4"):
        how = {"device": on, "runtime": "onnxruntime"}
        found = predict(tmp_path / "folded.onnx", **how).peak_memory_bytes
        scored = Scorer(on, runtime="onnxruntime").score([tmp_path / "folded.onnx"])
        assert found.median == pytest.approx(peak_memory(graph, **how).median)
        assert found.median == pytest.approx(float(np.ravel(scored.peak_memory_bytes.median)[0]))
