"""The kernels that a runtime makes of a graph: those that ONNX Runtime itself leaves, and the predictor's own rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper

import perfpass
from perfpass.errors import UnsupportedError
from perfpass.predictors.as_run import REWRITES, AsRun, as_run
from perfpass.predictors.assemble import run_of
from perfpass.predictors.by_node import node_times
from perfpass.predictors.way import STANDING_IN
from perfpass.predictors.workload import RUNTIMES

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
_NO_KERNEL = {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Shape", "Constant", "ReorderInput"}
_NO_KERNEL |= {"ReorderOutput"}


class Net:
    """An ONNX file of a few operators with random weights."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(0)

    def weight(self, *shape: int, value: float | None = None) -> str:
        name = f"w{len(self.weights)}"
        data = self._random.normal(size=shape) if value is None else np.full(shape, value)
        self.weights.append(numpy_helper.from_array(np.abs(data).astype(np.float32), name))
        return name

    def __call__(self, op: str, *inputs: str, **attributes: object) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=f"{op}_{len(self.nodes)}", **attributes))
        return name

    def conv(self, x: str, channels: int = 16) -> str:
        return self(
            "Conv", x, self.weight(channels, 16, 3, 3), self.weight(channels), pads=[1, 1, 1, 1], kernel_shape=[3, 3]
        )

    def norm(self, x: str) -> str:
        return self("BatchNormalization", x, *(self.weight(16) for _ in range(4)))

    def save(self, path: Path, shape: tuple[int, ...], out: str) -> Path:
        ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
        results = [helper.make_tensor_value_info(out, TensorProto.FLOAT, None)]
        graph = helper.make_graph(self.nodes, "g", ends, results, self.weights)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
        return path


def convolutions(path: Path) -> Path:
    """Two residual blocks with batch norms, as a file before any folding has them."""
    net = Net()
    x = net("Relu", net.conv("x"))
    for _ in range(2):
        y = net("Relu", net.norm(net.conv(x)))
        x = net("Relu", net("Add", net.norm(net.conv(y)), x))
    return net.save(path, (1, 16, 16, 16), net("GlobalAveragePool", x))


def hard_swishes(path: Path) -> Path:
    """Convolutions, each times its hard sigmoid."""
    net, x = Net(), "x"
    for _ in range(3):
        y = net.conv(x)
        x = net("Mul", y, net("HardSigmoid", y, alpha=1 / 6, beta=0.5))
    return net.save(path, (1, 16, 16, 16), net("GlobalAveragePool", x))


def feed_forward(path: Path) -> Path:
    """A transformer's feed-forward block: GELU written out, a residual and the norm after it."""
    net = Net()
    h = net("Add", net("MatMul", "x", net.weight(32, 64)), net.weight(64))
    e = net("Erf", net("Div", h, net.weight(value=2**0.5)))
    g = net("Mul", net("Mul", h, net("Add", e, net.weight(value=1.0))), net.weight(value=0.5))
    y = net("Add", net("MatMul", g, net.weight(64, 32)), net.weight(32))
    out = net("LayerNormalization", net("Add", y, "x"), net.weight(32), net.weight(32), axis=-1)
    return net.save(path, (2, 8, 32), out)


def of_onnxruntime(path: Path) -> Counter[str]:
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.optimized_model_filepath = str(path.with_suffix(".optimised.onnx"))
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    nodes = onnx.load(options.optimized_model_filepath).graph.node
    return Counter(node.op_type for node in nodes if node.op_type not in _NO_KERNEL)


def believed(model: str | Path, runtime: str, device: str = "a100", **sizes: object) -> AsRun:
    run = run_of(perfpass.load(model, **sizes), device, runtime=runtime)
    return as_run(run, [0.0] * run.graph.node_count)


@pytest.mark.parametrize("network", [convolutions, hard_swishes, feed_forward])
def test_onnxruntime_runs_as_many_kernels_as_are_believed(network, tmp_path):
    path = network(tmp_path / "model.onnx")
    real, mine = of_onnxruntime(path), believed(path, "onnxruntime")
    found = Counter(kernel.operator for kernel in mine.kernels)
    assert found.total() == real.total(), f"{dict(found)} and {dict(real)}"


def test_a_batch_norm_is_folded_and_a_residual_written_with_its_convolution(tmp_path):
    mine = believed(convolutions(tmp_path / "model.onnx"), "tensorrt")
    assert [k.operator for k in mine.kernels] == ["conv"] * 5 + ["global_avg_pool"]
    assert [(len(k.nodes), len(k.folded)) for k in mine.kernels] == [(2, 0), (3, 1), (4, 1), (3, 1), (4, 1), (1, 0)]


def test_torch_runs_what_stands_there(tmp_path):
    path = convolutions(tmp_path / "model.onnx")
    assert len(believed(path, "torch").kernels) == perfpass.load(path).node_count


@pytest.mark.parametrize("runtime", REWRITES)
@pytest.mark.parametrize("model", ["resnet50.onnx", "vit_base_patch16_224.onnx", "deberta_v3_large.onnx"])
def test_every_node_is_in_one_kernel_a_view_or_left_out(model, runtime):
    graph = perfpass.load(EXAMPLES / model)
    mine = believed(EXAMPLES / model, runtime)
    placed = [*mine.views, *mine.dropped, *(n for kernel in mine.kernels for n in kernel.nodes)]
    assert sorted(placed) == list(range(graph.node_count))
    assert all(kernel.anchor in kernel.nodes and set(kernel.folded) <= set(kernel.nodes) for kernel in mine.kernels)


def test_the_time_of_all_kernels_is_that_of_the_prediction():
    how = {"runtime": "tensorrt", "precision": "fp16"}
    graph = perfpass.load(EXAMPLES / "resnet50.onnx")
    total = perfpass.predict(graph, "t4", **how).latency_ms.median
    run = run_of(graph, "t4", **how)
    mine = as_run(run, node_times(run, False, total).ms[0].tolist())
    views = sum(node_times(run, False, total).ms[0][n] for n in (*mine.views, *mine.dropped))
    assert sum(kernel.ms for kernel in mine.kernels) + views == pytest.approx(total)
    assert 0.3 < mine.launches / len(mine.kernels) < 3.0


def test_every_runtime_that_is_predicted_by_itself_has_its_rewrites():
    assert set(REWRITES) == set(RUNTIMES) - set(STANDING_IN)
    for runtime in STANDING_IN:
        with pytest.raises(UnsupportedError, match=runtime):
            believed(EXAMPLES / "resnet50.onnx", runtime, device="xeon-platinum-8380")


def test_the_command_prints_kernels_and_strict_json(capsys):
    import json

    from perfpass.cli import main

    asked = [
        "inspect",
        str(EXAMPLES / "resnet50.onnx"),
        "--as-run",
        "tensorrt",
        "--device",
        "t4",
        "--precision",
        "fp16",
    ]
    assert main(asked) == 0
    assert "launched" in capsys.readouterr().out
    assert main([*asked, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["runtime"] == "tensorrt"
    assert all(kernel["nodes"] for kernel in found["kernels"])
    assert main(["inspect", str(EXAMPLES / "resnet50.onnx"), "--device", "t4"]) == 2
    assert main([*asked, "--symbolic"]) == 2


@pytest.mark.parametrize(
    ("runtime", "code", "says"),
    [
        *((runtime, 8, "was not measured; known are those of torch") for runtime in STANDING_IN),
        ("tensorRT", 2, "did you mean tensorrt?"),
        ("", 2, "allowed are torch, torch.compile, onnxruntime"),
    ],
)
def test_a_runtime_whose_kernels_are_not_known_is_refused_before_the_model_is_read(runtime, code, says, capsys):
    from perfpass.cli import main

    for device in ("cpu", "a100"):
        assert main(["inspect", "nowhere.onnx", "--as-run", runtime, "--device", device]) == code
        assert says in capsys.readouterr().err


def test_what_runs_in_8_bits_takes_in_what_widens_and_narrows_numbers_around_it(tmp_path: Path) -> None:
    net = Net()
    scale, zero = net.weight(value=0.1), "zero"
    net.weights.append(numpy_helper.from_array(np.uint8(128), zero))
    net.weights.append(numpy_helper.from_array(np.zeros((16, 16, 3, 3), dtype=np.uint8), "stored"))
    x = net("DequantizeLinear", net("QuantizeLinear", "x", scale, zero), scale, zero)
    weight = net("DequantizeLinear", "stored", scale, zero)
    y = net("Relu", net("Conv", x, weight, pads=[1, 1, 1, 1], kernel_shape=[3, 3]))
    y = net("DequantizeLinear", net("QuantizeLinear", y, scale, zero), scale, zero)
    run = run_of(perfpass.load(net.save(tmp_path / "m.onnx", (1, 16, 8, 8), y)), "epyc-9654:1", runtime="onnxruntime")
    found = as_run(run, node_times(run, False, 1.0).ms[0].tolist())
    assert [k.operator for k in found.kernels] == ["quantize", "quantized_conv", "dequantize"]
    assert len(found.kernels[1].nodes) == 5 and not found.dropped
