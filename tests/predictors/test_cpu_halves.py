"""16 bits on CPUs in PyTorch: by which instructions products run, and one rule for inference and for training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper

import perfpass
from perfpass.devices import device
from perfpass.graph.table import OperatorColumns, Tables
from perfpass.measure.configuration import Configuration
from perfpass.measure.journal import read
from perfpass.predictors.inference import cpu_halves
from perfpass.predictors.inference.cpu_operators import FAMILIES, CpuTimes
from perfpass.predictors.way import Way
from perfpass.records.measured import journals
from perfpass.training.inference import host_tables
from perfpass.training.inference.cpu import machine
from perfpass.training.memory.host_plans import size_of
from small_quantised import convolutions_of_8_bits

MODEL = "examples/resnet50.onnx"
# How products run, and how long a batch of 32 takes over that in fp32: (least, most), in inference and in training.
WAYS = (
    ("xeon-platinum-8480-plus", "bf16", cpu_halves.TILES, (0.1, 0.6)),
    ("xeon-platinum-8480-plus", "fp16", cpu_halves.INSTRUCTIONS, (0.5, 0.75)),
    ("epyc-9654", "amp_bf16", cpu_halves.INSTRUCTIONS, (0.5, 0.75)),
    ("graviton3", "bf16", cpu_halves.INSTRUCTIONS, (0.5, 0.75)),
    ("xeon-platinum-8380", "bf16", cpu_halves.EMULATED, (1.5, 3.5)),
    ("core-i5-11400", "bf16", cpu_halves.EMULATED, (1.5, 3.5)),
    ("epyc-7742", "bf16", cpu_halves.LOOPS, (10.0, 100.0)),
    ("epyc-9654", "fp16", cpu_halves.LOOPS, (10.0, 100.0)),
    ("graviton2", "bf16", cpu_halves.LOOPS, (10.0, 100.0)),
)


@pytest.mark.parametrize(("cpu", "precision", "how", "between"), WAYS)
def test_16_bits_are_told_by_the_instructions_of_a_cpu_alike_in_inference_and_training(cpu, precision, how, between):
    assert cpu_halves.how(device(cpu), precision) == how
    over = {}
    for mode in ("inference", "training"):
        (asked, plain), few = (
            [
                perfpass.predict(MODEL, name, batch=32, precision=p, mode=mode, calibration=False)
                for p in (precision, "fp32")
            ]
            for name in (cpu, f"{cpu}:2")
        )
        assert between[0] <= asked.latency_ms.median / plain.latency_ms.median <= between[1], mode
        over[mode] = few[0].latency_ms.median / few[1].latency_ms.median
        said = [r for r in asked.support.reasons if r.startswith(f"products in {precision.removeprefix('amp_')} ")]
        assert len(said) == 1 and asked.support.level != "near"
        assert not any(r.startswith("products in") for r in plain.support.reasons)
    # A step has other shares of products and of all else, and is priced by the same rule; of 96 threads' waits, which
    # no precision shortens, it has more as well.
    assert over["training"] == pytest.approx(over["inference"], rel=0.2)


def test_what_was_measured_of_no_cpu_adds_a_factor_of_two_squares_with_squares():
    asked, plain = (
        perfpass.predict(MODEL, "epyc-9654", batch=32, precision=p, calibration=False).latency_ms
        for p in ("bf16", "fp32")
    )
    for bound in ("low", "high"):
        ours, theirs = (np.log(getattr(one, bound) / one.median) for one in (asked, plain))
        assert ours**2 - theirs**2 == pytest.approx(np.log(2.0) ** 2, rel=0.15)


@pytest.mark.parametrize("precision", ["bf16", "fp64"])
def test_bounds_of_a_step_allow_for_what_its_support_says(precision):
    found = perfpass.predict(MODEL, "epyc-7742", batch=8, precision=precision, mode="training", calibration=False)
    plain = perfpass.predict(MODEL, "epyc-7742", batch=8, mode="training", calibration=False).latency_ms
    asked = found.latency_ms
    assert any(reason.endswith("bounds allow for a factor of 2 in it") for reason in found.support.reasons)
    for bound in ("low", "high"):
        ours, theirs = (abs(np.log(getattr(one, bound) / one.median)) for one in (asked, plain))
        assert ours >= 0.99 * np.hypot(theirs, np.log(2.0))


def _depthwise(side: int) -> bytes:
    shape = ["batch", 128, 32, 32]
    node = helper.make_node("Conv", ["x", "w"], ["y"], group=128, kernel_shape=[side] * 2, pads=[side // 2] * 4)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "y")]
    weight = helper.make_tensor("w", TensorProto.FLOAT, [128, 1, side, side], bytes(4 * 128 * side**2), raw=True)
    graph = helper.make_graph([node], "depthwise", ends[:1], ends[1:], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()


@pytest.mark.parametrize("cpu", ["epyc-7742", "xeon-platinum-8480-plus", "core-i9-10940x"])
def test_fp64_in_pytorch_takes_longer_than_fp32(cpu):
    for model in (_depthwise(31), MODEL):
        asked, plain = (
            perfpass.predict(model, cpu, batch=16, precision=p, calibration=False).latency_ms for p in ("fp64", "fp32")
        )
        assert 1.6 <= asked.median / plain.median <= 4.0


# Trees learned of these in single precision; neither has instructions for bfloat16.
@pytest.mark.parametrize("cpu", ["core-i9-10940x", "core-i7-12700h"])
def test_16_bits_without_instructions_take_longer_than_fp32_where_trees_answer_for_that(cpu):
    for batch in (1, 16):
        asked, plain = (
            perfpass.predict(MODEL, cpu, batch=batch, precision=p, calibration=False).latency_ms
            for p in ("bf16", "fp32")
        )
        assert asked.median >= 1.2 * plain.median


@pytest.mark.parametrize(("runtime", "precision"), [("onnxruntime", "bf16"), ("torch", "int8")])
def test_tiles_run_products_of_matrices_alone(runtime, precision):
    cpu = "xeon-platinum-8480-plus"
    asked, plain = (
        perfpass.predict(_depthwise(31), cpu, batch=16, precision=p, runtime=runtime, calibration=False).latency_ms
        for p in (precision, "fp32")
    )
    # Vector instructions for 8 bits gain four times; the peak of tiles is 32 and 64 times that of fp32.
    assert asked.median >= plain.median / 10


def test_products_alone_gain_and_tiles_gain_less_than_their_peak():
    shares = np.full(len(FAMILIES), 0.6)
    way = Way(device("xeon-platinum-8480-plus"), "bf16")
    over = dict(zip(FAMILIES, cpu_halves.over_fp32(way, FAMILIES, shares), strict=True))
    peak = way.device.peak_flops["fp32"] / way.device.peak_flops["bf16"]
    assert over["pointwise"] == over["norm"] == over["conv_depthwise"] == 1.0
    assert 2.0 * peak <= over["dense"] < over["conv3x3"] < 0.15
    assert (cpu_halves.over_fp32(replace(way, precision="fp32"), FAMILIES, shares) == 1.0).all()


def test_the_rule_is_right_within_a_quarter_on_the_runs_in_bf16_that_were_measured():
    known, times, ratios = host_tables.load(), CpuTimes.load(), []
    for path in journals():
        for record in read(path).records:
            asked = record["configuration"]
            narrow = asked["precision"] in ("bf16", "amp_bf16") and asked["runtime"] == "torch"
            if not narrow or record["status"] != "ok" or asked["mode"] != "inference" or asked["layout"] != "nchw":
                continue
            size = size_of(Configuration.from_dict(asked))
            if size not in known:
                continue
            _, _, table = known[size]
            halved = {n: 0.5 * np.asarray(getattr(table, n)) for n in ("bytes_read", "bytes_written", "weight_bytes")}
            columns = OperatorColumns(**{**vars(table), **halved})
            cores = asked.get("threads") or record.get("ran", {}).get("threads") or 2
            way = Way(machine(cores), asked["precision"])
            told = times.seconds(Tables.one(columns), np.array([size[1]]), way).total[0]
            ratios.append(told / (1e-3 * record["latency_ms"]["median"]))
    assert len(ratios) == 20
    assert np.mean(np.abs(np.array(ratios) - 1.0)) < 0.25
    assert np.median(ratios) == pytest.approx(1.0, abs=0.1)


def _quantised(tmp_path) -> tuple[str, str]:
    """A small convolutional network, and it in 8 bits between QuantizeLinear and DequantizeLinear."""
    shape = [1, 64, 56, 56]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "y")]
    weight = helper.make_tensor("w", TensorProto.FLOAT, [64, 64, 3, 3], bytes(4 * 64 * 64 * 9), raw=True)
    attributes = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    plain, narrow = [], [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q0"])]
    for i in range(8):
        data = "x" if i == 0 else f"h{i - 1}"
        plain += [helper.make_node("Conv", [data, "w"], [f"c{i}"], **attributes)]
        plain += [helper.make_node("Relu", [f"c{i}"], ["y" if i == 7 else f"h{i}"])]
        narrow += [helper.make_node("DequantizeLinear", [f"q{i}", "s", "z"], [f"d{i}"])]
        narrow += [helper.make_node("DequantizeLinear", ["w8", "s", "zw"], [f"v{i}"])]
        narrow += [helper.make_node("Conv", [f"d{i}", f"v{i}"], [f"c{i}"], **attributes)]
        narrow += [helper.make_node("Relu", [f"c{i}"], [f"h{i}"])]
        narrow += [helper.make_node("QuantizeLinear", [f"h{i}", "s", "z"], [f"q{i + 1}"])]
    narrow += [helper.make_node("DequantizeLinear", ["q8", "s", "z"], ["y"])]
    stored = [
        helper.make_tensor("w8", TensorProto.INT8, [64, 64, 3, 3], bytes(64 * 64 * 9), raw=True),
        helper.make_tensor("s", TensorProto.FLOAT, [], [0.1]),
        helper.make_tensor("z", TensorProto.UINT8, [], [128]),
        helper.make_tensor("zw", TensorProto.INT8, [], [0]),
    ]
    for name, nodes, constants in (("plain", plain, [weight]), ("narrow", narrow, stored)):
        graph = helper.make_graph(nodes, name, ends[:1], ends[1:], constants)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        (tmp_path / f"{name}.onnx").write_bytes(made.SerializeToString())
    return str(tmp_path / "plain.onnx"), str(tmp_path / "narrow.onnx")


# By dot products of 8 bits, and without: one core of a Zen 3 takes ResNet-18 and -50 in 0.53 of fp32's time.
@pytest.mark.parametrize(
    ("cpu", "most"),
    [("xeon-platinum-8480-plus:4", 0.5), ("epyc-9654:1", 0.5), ("graviton3:4", 0.5), ("epyc-7763:1", 0.85)],
)
def test_8_bits_gain_by_the_instructions_of_a_cpu_as_a_precision_and_as_a_file_alike(tmp_path, cpu, most):
    plain, narrow = _quantised(tmp_path)
    how = {"runtime": "onnxruntime", "calibration": False}
    wide, file, asked = (
        perfpass.predict(path, cpu, precision=precision, **how).latency_ms.median
        for path, precision in ((plain, "fp32"), (narrow, "fp32"), (plain, "int8"))
    )
    assert 0.2 * wide <= file <= most * wide
    assert asked == pytest.approx(file, rel=0.15)


@pytest.mark.parametrize("runtime", ["torch", "onnxruntime", "openvino", "litert"])
def test_8_bits_on_a_cpu_say_how_they_run_and_their_bounds_hold_a_factor_of_two(tmp_path, runtime):
    plain, _ = _quantised(tmp_path)
    found, wide = (
        perfpass.predict(plain, "epyc-9654:1", precision=p, runtime=runtime, calibration=False)
        for p in ("int8", "fp32")
    )
    assert any(reason.startswith("products in int8 by its instructions") for reason in found.support.reasons)
    assert found.latency_ms.median <= wide.latency_ms.median
    ours, theirs = (one.latency_ms.high / one.latency_ms.median for one in (found, wide))
    assert np.log(ours) >= 0.95 * np.hypot(np.log(theirs), np.log(2.0))


@pytest.mark.parametrize(
    ("runtime", "least", "most"), [("onnxruntime", 0.2, 0.5), ("torch", 0.7, 1.1), ("tvm", 0.7, 1.1)]
)
def test_convolutions_of_8_bits_take_as_long_as_in_fp32_where_no_runtime_was_timed_in_them(
    tmp_path, runtime, least, most
):
    wide = perfpass.predict(_quantised(tmp_path)[0], "epyc-9654:4", runtime=runtime, calibration=False)
    narrow = perfpass.predict(convolutions_of_8_bits(), "epyc-9654:4", runtime=runtime, calibration=False)
    assert least <= narrow.latency_ms.median / wide.latency_ms.median <= most
    said = any("none in 8 bits was timed" in reason for reason in narrow.support.reasons)
    assert said == (runtime != "onnxruntime")
