"""Steps of an engine: tables agree with themselves, never fall with work, and know what limits a step."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfpass.devices import device
from perfpass.errors import DeviceError
from perfpass.llm.batch import EngineBatch
from perfpass.llm.configuration import language_model
from perfpass.llm.costs import Parallelism, Quantization
from perfpass.llm.serving import Serving
from perfpass.predictors.kernels.predictor import KernelPredictor
from perfpass.predictors.step_time import kernel_parts
from perfpass.predictors.step_time.grid import Curve, PlainCurve, PlainSurface, Surface, doublings
from perfpass.predictors.step_time.kernel_parts import KernelParts
from perfpass.predictors.step_time.parts import PARTS
from perfpass.predictors.step_time.setup import TOKENS, Setup
from perfpass.predictors.step_time.steps import LIMITS, Steps

_FP8 = Quantization("fp8", "fp8", "fp8")
DEPLOYMENTS = {
    "dense": ("llama-3.1-8b", "h100", Serving(1024, 128, 8.0, "vllm")),
    "experts": (
        "deepseek-v3",
        "b200",
        Serving(1024, 128, 8.0, "trtllm", parallelism=Parallelism.of(1, 1, 8, 8), quantization=_FP8),
    ),
    "recurrent": (
        "qwen3.5-397b-a17b",
        "h200",
        Serving(1024, 128, 8.0, "sglang", parallelism=Parallelism.of(8), quantization=_FP8),
    ),
    "pipeline": ("qwen2.5-14b", "a100-80gb", Serving(1024, 128, 8.0, "vllm", parallelism=Parallelism.of(2, 4))),
    "another vendor": ("llama-3.1-8b", "mi300x", Serving(1024, 128, 8.0, "vllm")),
    "encoder and decoder": ("flan-t5-xl", "a100-80gb", Serving(256, 128, 8.0, "vllm")),
}


def steps(name: str, **options: bool) -> Steps:
    model, gpu, serving = DEPLOYMENTS[name]
    return Steps(language_model(model), device(gpu), serving, **options)


@st.composite
def batches(draw: st.DrawFn) -> tuple[float, ...]:
    """Six sums of a batch that some requests could have."""
    chunks = draw(st.lists(st.tuples(st.integers(1, 8192), st.integers(0, 100_000)), max_size=4))
    contexts = draw(st.lists(st.integers(1, 200_000), max_size=4))
    many = draw(st.sampled_from((1, 3, 64, 512)))
    found = EngineBatch.of(chunks, contexts * many)
    return tuple(float(v) for v in vars(found).values())


@pytest.mark.parametrize("name", DEPLOYMENTS)
@settings(max_examples=40, deadline=None)
@given(batch=batches())
def test_one_step_is_a_row_of_many(name, batch):
    own = steps(name)
    assert own.one(*batch) == pytest.approx(float(own.seconds(EngineBatch(*batch))[0]), rel=1e-9)
    assert math.isfinite(own.one(*batch))
    assert (own.one(*batch) > 0) == (batch[0] + batch[4] > 0)


@pytest.mark.parametrize("name", DEPLOYMENTS)
@settings(max_examples=40, deadline=None)
@given(batch=batches(), more=batches())
def test_no_step_is_faster_with_more_in_it(name, batch, more):
    own = steps(name)
    both = tuple(a + b for a, b in zip(batch, more, strict=True))
    assert own.one(*both) >= own.one(*batch) * (1 - 1e-9)
    if batch[0] + batch[4] > 0:
        for i in range(6):
            wider = list(batch)
            wider[i] *= 1.5
            assert own.one(*wider) >= own.one(*batch) * (1 - 1e-9)


@pytest.mark.parametrize("name", DEPLOYMENTS)
@settings(max_examples=25, deadline=None)
@given(decodes=st.integers(1, 3000), context=st.integers(1, 50_000), count=st.integers(1, 700), eager=st.booleans())
def test_a_run_of_decodes_is_the_sum_of_its_steps(name, decodes, context, count, eager):
    own = steps(name, eager=eager)
    start = float(decodes * context)
    each = own.seconds(EngineBatch(decodes=float(decodes), decode_context=start + decodes * np.arange(count)))
    assert own.decode_run(float(decodes), start, float(count)) == pytest.approx(float(each.sum()), rel=1e-9)


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_parts_and_limits_make_up_a_step(name):
    own = steps(name)
    batch = EngineBatch.of([(2048, 0)], [1000] * 32)
    assert own.parts(batch).sum() == pytest.approx(float(own.seconds(batch)[0]))
    assert (own.parts(batch) >= 0).all()
    assert set(own.limits(batch)) <= set(LIMITS)


def test_weights_are_read_once_where_prompts_join_decodes():
    own = steps("dense")
    prompt, decodes = EngineBatch.of([(256, 0)]), EngineBatch.of([], [1000] * 16)
    both = EngineBatch.of([(256, 0)], [1000] * 16)
    apart = float(own.seconds(prompt)[0] + own.seconds(decodes)[0])
    assert max(own.seconds(prompt)[0], own.seconds(decodes)[0]) < own.seconds(both)[0] < 0.75 * apart


def test_a_decode_step_is_no_quicker_than_its_weights_and_cache():
    for name in ("dense", "another vendor"):
        model, gpu, _ = DEPLOYMENTS[name]
        weights = 2.0 * (language_model(model).parameters - 128_256 * 4096)
        cache = 2.0 * float(np.asarray(language_model(model).cache_elements(64 * 4000.0)))
        least = (weights + cache) / device(gpu).memory_bandwidth_bytes_s
        found = steps(name).one(0.0, 0.0, 0.0, 0.0, 64.0, 64 * 4000.0)
        assert least < found < 3 * least


@pytest.mark.parametrize("gpu", ["l40s", "h100", "a100-80gb"])
@pytest.mark.parametrize("model", ["llama-2-7b", "mistral-7b"])
def test_the_cache_of_many_decodes_is_read_at_three_quarters_of_the_bandwidth(model, gpu):
    """As the measured kernels do; those of one sequence, which are slower, say nothing of many."""
    read = language_model(model)
    serving = Serving(1024, 128, 8.0, "trtllm", quantization=Quantization("fp16", "fp16", "fp16"))
    for decodes, context in ((64, 4096), (256, 1024)):
        batch = EngineBatch.of([], [context] * decodes)
        attention = Steps(read, device(gpu), serving).parts(batch)[0, PARTS.index("decode attention")]
        least = 2.0 * float(read.cache_elements(context, decodes)) / device(gpu).memory_bandwidth_bytes_s
        assert 0.65 < least / attention < 0.95


def test_what_limits_a_step_follows_its_batch():
    own = steps("dense")
    assert own.limits(EngineBatch.of([], [500])) == ("bandwidth",)
    assert own.limits(EngineBatch.of([(8192, 0)])) == ("compute",)
    assert own.limits(EngineBatch.of([], [100_000] * 16)) == ("cache",)
    assert steps("dense", eager=True).limits(EngineBatch.of([], [10])) == ("host",)


def test_stages_of_a_pipeline_work_at_once():
    model, gpu = language_model("qwen2.5-14b"), device("a100-80gb")
    whole, staged = (
        Steps(model, gpu, Serving(1024, 128, 8.0, "vllm", parallelism=Parallelism.of(2, stages))) for stages in (1, 4)
    )
    prompt = EngineBatch.of([(8192, 0)])
    assert 0.2 < float(staged.seconds(prompt)[0] / whole.seconds(prompt)[0]) < 0.45
    # One request passes all stages one after another.
    alone = EngineBatch.of([], [1000])
    assert float(staged.seconds(alone)[0] / whole.seconds(alone)[0]) == pytest.approx(1.0, abs=0.1)


def test_deployments_that_differ_in_their_stages_alone_ask_kernels_once(monkeypatch):
    asked: list[str] = []
    predict = KernelPredictor._predict

    def counted(self, operator, *rest):
        asked.append(operator)
        return predict(self, operator, *rest)

    monkeypatch.setattr(KernelPredictor, "_predict", counted)
    model, gpu, quantization = language_model("llama-3.1-8b"), device("h100"), Quantization("bf16", "bf16", "bf16")
    kernel_parts._measured.cache_clear()
    parts = [
        KernelParts(Setup(model, gpu, Parallelism.of(tensor, pipeline), quantization, "vllm", ""))
        for tensor, pipeline in ((2, 1), (2, 4), (1, 1))
    ]
    products, asked_for = [], []
    for part in parts:
        products.append(part.products())
        asked_for.append(len(asked))
    assert asked_for == [1, 1, 2]
    np.testing.assert_array_equal(products[0], products[1])
    assert (products[2] > products[0])[1:].all()
    kernel_parts._measured.cache_clear()
    np.testing.assert_array_equal(parts[1].products(), products[1])


def test_a_table_goes_on_beyond_its_last_node_and_never_falls():
    nodes = doublings(4)
    curve = Curve(nodes, np.array([0.0, 3.0, 2.0, 5.0, 6.0, 10.0]))
    assert curve.at(np.array([1.0, 2.0, 3.0, 32.0])).tolist() == [3.0, 3.0, 4.0, 18.0]
    plain = PlainCurve(curve)
    assert [plain.at(x) for x in (1.0, 2.0, 3.0, 32.0)] == [3.0, 3.0, 4.0, 18.0]
    first, second = np.meshgrid(nodes, nodes, indexing="ij")
    surface = Surface(nodes, nodes, 1 + 2 * first + 3 * second + first * second)
    x, y = np.array([0.3, 1.0, 5.0, 40.0]), np.array([0.7, 2.5, 70.0, 3.0])
    assert surface.at(x, y) == pytest.approx(1 + 2 * x + 3 * y + x * y)
    assert [PlainSurface(surface).at(*at) for at in zip(x, y, strict=True)] == pytest.approx(surface.at(x, y))


def test_a_board_without_the_figures_that_kernels_need_is_counted_and_says_so(tmp_path):
    import perfpass
    import perfpass.llm
    from perfpass.devices.toml_file import read
    from perfpass.predictors.kernels import predictor as kernels

    place = tmp_path / "mine.toml"
    place.write_text(
        '[[device]]\nid = "mine"\nname = "Mine"\nmemory_gib = 80\nbandwidth_gb_s = 2000\nsm_count = 100\n'
        "power_limit_w = 400\npeak_tflops = { fp32 = 20, fp16 = 300, bf16 = 300 }\n"
    )
    (mine,) = read(place)
    for tensor in (1, 2):
        found = perfpass.llm.step_time("llama-3.1-8b", mine, EngineBatch.of([(512, 0)], [1000] * 8), tp=tensor)
        assert 0 < found.low_s[0] < found.seconds[0] < found.high_s[0] < 1
        assert any("states no boost_mhz" in reason for reason in found.support.reasons)
        assert perfpass.simulate_llm("llama-3.1-8b", mine, rate=1.0, requests=20, tp=tensor).ttft_ms.p99.median > 0
    with pytest.raises(DeviceError, match="Mine states no boost_mhz"):
        kernels.load().gemm(mine, 16, 4096, 4096)


def test_messages_over_pcie_lie_between_the_hosts_that_were_measured():
    def message_s(gpu, gpus, runtime, version=""):
        setup = Setup(
            language_model("llama-3.1-8b"), device(gpu), Parallelism.of(gpus), Quantization(), runtime, version
        )
        return KernelParts(setup).messages()[TOKENS == 1024][0]

    def bytes_s(seconds, gpus):
        sent = 64 * 2 * (gpus - 1) / gpus * 1024 * 4096 * 2  # two all-reduces of each of 32 layers
        return sent / seconds

    for gpus, one_host in ((4, 5.2e9), (8, 2.5e9)):
        # The other lets some 20 GB/s pass, and nobody states which he has.
        found = {name: bytes_s(message_s("l40s", gpus, name), gpus) for name in ("vllm", "trtllm")}
        assert all(1.3 * one_host < rate < 12e9 for rate in found.values()), found
    # A pair shares a switch in both, and NVLink asks no host.
    assert 15e9 < bytes_s(message_s("l40s", 2, "vllm"), 2) < 25e9
    assert bytes_s(message_s("h100", 8, "vllm"), 8) > 100e9
