"""Options out of their range, wherever they are given: in Python, in TVM's pass, in a session of ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import perfpass
from perfpass.text import shown_value
from refusals import refused

MODEL = str(Path(__file__).resolve().parents[2] / "examples" / "resnet50.onnx")
OPTIONS: list[tuple[str, Any]] = [
    *(("batch", value) for value in (0, True, "4", 10**5000, 2.5)),
    *(("precision", value) for value in (7, "fp33", ["fp32"])),
    *(("device", value) for value in (5, "", "zzz", ["h100"])),
    *(("dims", value) for value in (3, {"a": -1}, {"a": 10**5000}, {3: 4}, [("a", 1)])),
    *(("layout", value) for value in (7, "abcd", ["nchw"])),
    *(("runtime", value) for value in (3, "spark")),
]
IDS = [f"{name}-{shown_value(value)}" for name, value in OPTIONS]


@pytest.mark.parametrize(("name", "value"), OPTIONS, ids=IDS)
def test_an_option_out_of_its_range_is_an_error_in_python(name, value):
    refused(lambda: perfpass.predict(MODEL, **{"device": "h100", name: value}))


PASS = [*((name, value) for name, value in OPTIONS if name != "dims"), ("schema", 9), ("schema", "x"), ("params", 3)]


@pytest.mark.parametrize(("name", "value"), PASS, ids=[f"{name}-{shown_value(value)}" for name, value in PASS])
def test_the_pass_of_relay_refuses_what_python_does(name, value):
    import tvm
    from tvm import relay

    from tvm_perfpass.relay.passes import PredictPerformance

    x, w = (relay.var(n, shape=s) for n, s in (("x", (1, 3, 8, 8)), ("w", (4, 3, 3, 3))))
    module = tvm.IRModule.from_expr(relay.Function([x, w], relay.nn.conv2d(x, w)))
    said = refused(lambda: PredictPerformance(**{"device": "h100", name: value})(module))
    if name not in ("schema", "params"):
        assert said == refused(lambda: perfpass.predict(MODEL, **{"device": "h100", name: value}))


@pytest.fixture(scope="module")
def relu(tmp_path_factory) -> Path:
    """A model that onnxruntime runs, with an open dimension."""
    import onnx

    make = onnx.helper
    ends = [make.make_tensor_value_info(name, 1, ["a", 4]) for name in "xy"]
    graph = make.make_graph([make.make_node("Relu", ["x"], ["y"])], "g", ends[:1], ends[1:])
    path = tmp_path_factory.mktemp("model") / "relu.onnx"
    onnx.save(make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=9), path)
    return path


SESSION = [
    *((name, value) for name, value in OPTIONS if name in ("batch", "precision", "device", "dims")),
    *(("memory_budget_bytes", value) for value in ("1", 0, float("nan"), True, 10**400)),
    *(("latency_target_ms", value) for value in ("x", -1, float("inf"), 10**400)),
    *(("drift", value) for value in ("x", -1, float("nan"), 10**5000)),
    *(("policy", value) for value in (3, "x", ["warn"])),
    *(("reader", value) for value in (3, "x", ["auto"])),
    *(("records", value) for value in (3, "/dev/zero", "/", "/nowhere/x", "a\0b", "x" * 5000)),
]


@pytest.mark.parametrize(("name", "value"), SESSION, ids=[f"{name}-{shown_value(value)}" for name, value in SESSION])
def test_a_session_refuses_options_out_of_their_range(relu, name, value):
    import ort_extension

    given = {"providers": ["CPUExecutionProvider"], name: value}
    said = refused(lambda: ort_extension.InferenceSession(str(relu), **given))
    if name in ("batch", "precision", "device"):
        assert said == refused(lambda: perfpass.predict(MODEL, **{"device": "h100", name: value}))
