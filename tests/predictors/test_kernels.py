"""The kernel predictor: what a caller may rely on."""

from __future__ import annotations

import json

import numpy as np
import pytest

from perfpass.cli import main
from perfpass.devices import device as find_device
from perfpass.errors import ArgumentError, DeviceError
from perfpass.predictors.kernels import predictor as kernels
from perfpass.predictors.kernels.model import Software, relative
from perfpass.predictors.kernels.software import family, version_number


@pytest.fixture(scope="module")
def predictor():
    return kernels.load()


def test_sizes_broadcast_and_bounds_hold_the_median(predictor):
    times = predictor.gemm("h100", [1, 64, 4096], 4096, 4096, "fp8", stack="vllm")
    assert times.seconds.shape == (3,)
    assert (times.low_s <= times.seconds).all() and (times.seconds <= times.high_s).all()
    assert (times.power_w > 50).all() and (times.power_w <= 700).all()
    one = predictor.gemm("h100", 64, 4096, 4096, "fp8", stack="vllm")
    assert one.seconds[0] == pytest.approx(times.seconds[1], rel=1e-6)


def test_a_large_product_runs_near_and_never_above_the_peak(predictor):
    seconds = predictor.gemm("h100", 8192, 8192, 8192, "bf16").seconds[0]
    rate = 2 * 8192**3 / seconds
    assert 0.5 * 989e12 < rate < 989e12


def test_what_was_not_measured_is_said_and_widens_the_bounds(predictor):
    known = predictor.gemm("h100", 512, 4096, 4096, "bf16", stack="vllm")
    other = predictor.gemm("l4", 512, 4096, 4096, "bf16", stack="vllm")
    beyond = predictor.gemm("h100", 512, 4096, 2**22, "bf16", stack="vllm")
    assert known.evidence == "measured" and known.support.level == "in range"
    assert other.evidence == "device unseen" and other.support.level == "near" and other.support.reasons
    assert beyond.outside.all() and beyond.support.level == "outside"
    widths = [float(np.log(t.high_s / t.low_s)[0]) for t in (known, other, beyond)]
    assert widths[0] < widths[1] < widths[2]


def test_a_board_alone_of_its_generation_is_the_least_certain(predictor):
    sister = predictor.gemm("b300", 512, 4096, 4096, stack="vllm")
    lone = predictor.gemm("rtx-5090", 512, 4096, 4096, stack="vllm")
    assert (sister.evidence, lone.evidence) == ("device unseen", "generation unseen")
    assert lone.high_s[0] / lone.low_s[0] > 1.5 * sister.high_s[0] / sister.low_s[0]


def test_a_precision_that_the_device_lacks_is_outside(predictor):
    times = predictor.gemm("a100-80gb", 512, 4096, 4096, "fp4")
    assert times.support.level == "outside" and "no fp4 rate" in " ".join(times.support.reasons)


def test_pytorch_operators_in_fp32(predictor):
    linear = predictor.torch_operator("v100-pcie-32gb", "linear", [[16, 512, 1024, 4096], [1, 512, 1024, 4096]])
    assert linear.seconds[0] > 8 * linear.seconds[1]
    assert 2 * 16 * 512 * 1024 * 4096 / linear.seconds[0] < 15.7e12
    unseen = predictor.torch_operator("rtx-3090", "softmax", [4096, 1024])
    assert unseen.evidence == "generation unseen" and unseen.seconds[0] > 1e-6
    with pytest.raises(ArgumentError):
        predictor.torch_operator("v100", "linear", [1, 2, 3])
    with pytest.raises(ArgumentError):
        predictor.torch_operator("v100", "nosuch", [1, 2])


def test_an_unmeasured_version_is_named(predictor):
    times = predictor.gemm("h100", 512, 4096, 4096, "bf16", stack="vllm", version="0.99.0")
    assert times.evidence == "version unseen"
    assert "0.99.0" in times.support.reasons[0]


def test_decode_attention_reads_its_cache(predictor):
    times = predictor.attention_decode("h100", 64, [2048, 65536], 64, 8)
    assert times.seconds[1] > 10 * times.seconds[0]
    assert (2 * 64 * 8 * 128 * 65536 * 2 / times.seconds[1]) < 3.352e12 * 1.05


def test_every_operator_answers_on_a_device_without_records(predictor):
    calls = (
        predictor.gemm("b300", 128, 4096, 4096, "fp4"),
        predictor.attention_prefill("b300", 4, 2048, 32, 8),
        predictor.attention_decode("b300", 4, 2048, 32, 8, window=1024),
        predictor.moe("b300", 128, 4096, 1536, 128, 8, "fp8_block", expert_parallel=4),
        predictor.collective("b300", "all_reduce", 8, 2**22),
    )
    for times in calls:
        assert np.isfinite(times.seconds).all() and (times.seconds > 1e-6).all() and (times.seconds < 1).all()


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda p: p.gemm("h100", 0, 1, 1), ArgumentError),
        (lambda p: p.gemm("h100", [1, 2], [1, 2, 3], 1), ArgumentError),
        (lambda p: p.gemm("h100", 1, 1, 1, "fp7"), ArgumentError),
        (lambda p: p.gemm("h100", 1, 1, 1, stack="nosuch"), ArgumentError),
        (lambda p: p.gemm("cpu", 1, 1, 1), DeviceError),
        (lambda p: p.attention_decode("h100", 1, 10, 4, 8), ArgumentError),
        (lambda p: p.collective("h100", "broadcast", 8, 10), ArgumentError),
        (lambda p: p.collective("h100", "all_reduce", 1, 10), ArgumentError),
        (lambda p: p.moe("h100", 1, 64, 64, 8, 2, skew=-1), ArgumentError),
    ],
)
def test_wrong_arguments_are_typed_errors(predictor, call, error):
    with pytest.raises(error):
        call(predictor)


def test_ten_measurements_move_a_device(predictor):
    m = np.array([1, 8, 16, 64, 128, 256, 512, 1024, 4096, 8192])
    before = predictor.gemm("l4", m, 4096, 4096)
    after = predictor.adapted("gemm", before, before.seconds * 1.5).gemm("l4", m, 4096, 4096)
    assert np.allclose(after.seconds / before.seconds, 1.5, rtol=0.12)
    assert np.array_equal(predictor.gemm("l4", m, 4096, 4096).seconds, before.seconds)


def test_versions_rise_with_releases():
    order = ["0.5.6.post2", "0.5.9", "0.5.10", "0.14.0", "0.22.0", "1.2.0rc5", "1.3.0rc10", "1.3.0rc20"]
    assert [version_number(v) for v in order] == sorted(version_number(v) for v in order)
    assert version_number("0.14.1.dev1+gd68209402") == pytest.approx(14.01)


def test_kernel_names_fall_into_families():
    assert family("DeepGemmFp8BlockScaledMMKernel") == "deepgemm"
    assert family("vllm_flash_attn_fa3") == "fa3"
    assert family("torch_flow") == "default"


def test_the_command_line_answers(capsys):
    arguments = ["operator", "gemm", "--device", "h100", "--m", "4096", "--n", "4096", "--k", "4096", "--dtype", "fp8"]
    assert main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["latency_us"]["low"] < found["latency_us"]["median"] < found["latency_us"]["high"]
    assert main(arguments) == 0
    assert "us" in capsys.readouterr().out
    assert main(["operator", "all-reduce", "--device", "h100", "--n-devices", "8", "--elements", "1048576"]) == 0


def test_a_vendor_without_records_is_outside(predictor):
    found = predictor.gemm("mi300x", 1024, 1024, 1024, "bf16")
    assert found.support.level == "outside"
    assert any("any device of AMD" in reason for reason in found.support.reasons)
    unseen = predictor.gemm("l4", 1024, 1024, 1024, "bf16")
    assert found.high_s[0] / found.low_s[0] > unseen.high_s[0] / unseen.low_s[0]


def test_a_sister_of_a_measured_board_starts_from_it(predictor):
    b200, gb200 = (predictor.attention_decode(d, 64, [1024, 8192], 64, 8) for d in ("b200", "gb200"))
    assert b200.evidence == "device unseen" and "GB200" in " ".join(b200.support.reasons)
    assert b200.seconds == pytest.approx(gb200.seconds, rel=0.25)


def test_the_relative_has_the_software_or_is_the_nearest_and_its_host_does_not_count():
    def row(device, runtime="vllm", host_bound=False):
        return Software(device, "9.0", runtime, "bf16", "0.22.0", "default", 100, host_bound)

    asked = (find_device("gh200-96gb"), "9.0", "vllm", "bf16", "default")
    h100, h200 = "h100-sxm5-80gb", "h200-sxm-141gb"
    assert relative([row(h100), row(h200)], *asked) == h100  # 3.35 and 4.8 TB/s; a GH200 has 4.0
    assert relative([row(h100, "trtllm"), row(h200)], *asked) == h200
    assert relative([row(h100, host_bound=True)], *asked) is None
    assert relative([row(h100)], find_device("l4"), "8.9", *asked[2:]) is None
