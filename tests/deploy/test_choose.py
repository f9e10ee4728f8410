"""Choices: the order that targets, confidence and prices have to keep, and what is said where nothing will do."""

from __future__ import annotations

import json
import math
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfpass.decision import together
from perfpass.deploy.choose import Targets, choose, queue
from perfpass.deploy.choose.targets import limit_of
from perfpass.deploy.cost import Options
from perfpass.errors import ArgumentError
from perfpass.prediction import Interval

ONNX = str(Path(__file__).resolve().parents[2] / "examples" / "resnet50.onnx")
BOARDS = ["h100", "l4", "a100-80gb"]
MODEL = "llama-3.1-8b"


def priced(found):
    """USD an hour of what was chosen at a rate; infinite for nothing."""
    return found.chosen.usd_per_hour if found.chosen else math.inf


@cache
def asked(**more):
    return choose(MODEL, BOARDS, input_length=512, output_length=128, tensor_parallel=[1, 2], **more)


@settings(deadline=None, max_examples=6)
@given(
    st.sampled_from([(200.0, 400.0), (400.0, 900.0)]),
    st.sampled_from([(15.0, 30.0), (30.0, 60.0)]),
    st.sampled_from([(0.5, 0.8), (0.8, 0.9), (0.9, 0.97)]),
    st.sampled_from([3.0, 40.0]),
)
def test_looser_targets_never_cost_more_and_more_confidence_never_less(ttft, tpot, confidence, rate):
    tight = asked(rate=rate, ttft_ms=ttft[0], tpot_ms=tpot[0], confidence=confidence[0])
    for looser in ({"ttft_ms": ttft[1]}, {"tpot_ms": tpot[1]}):
        other = asked(rate=rate, **{"ttft_ms": ttft[0], "tpot_ms": tpot[0], "confidence": confidence[0], **looser})
        assert priced(other) <= priced(tight)
    surer = asked(rate=rate, ttft_ms=ttft[0], tpot_ms=tpot[0], confidence=confidence[1])
    assert priced(surer) >= priced(tight)
    more = asked(rate=2 * rate, ttft_ms=ttft[0], tpot_ms=tpot[0], confidence=confidence[0])
    assert priced(more) >= priced(tight)


def test_what_is_chosen_keeps_its_targets_and_is_the_cheapest_that_does():
    found = asked(rate=10.0, ttft_ms=600, tpot_ms=40)
    first = found.chosen
    assert first is not None and found.exit_code == 0 and first.meets and first.probability >= 0.9
    assert first.probability <= min(first.probabilities.values())
    prices = [o.price.median for o in found.options if o.meets]
    assert prices == sorted(prices)
    assert any("first tokens at this rate on" in note and "99 in 100 within" in note for note in found.notes)
    rate = first.figures["requests_per_s"]
    assert rate.median * first.replicas >= 10.0
    assert all(option.why for option in found.options[1:])
    shown = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert shown["decision"] == "chosen" and shown["options"][0]["count"] == first.count
    text = str(found)
    assert text.startswith("Take ") and "why not the others" in text and "what would change it" in text


def test_a_dearer_table_makes_the_price_and_not_the_targets(tmp_path):
    rows = "".join(
        f'[[price]]\ndevice = "{name}"\nprovider = "us"\nusd_per_hour = {usd}\ndate = "2026-01-01"\nsource = "us"\n'
        for name, usd in (("h100-sxm5-80gb", 900.0), ("l4", 0.5))
    )
    table = tmp_path / "prices.toml"
    table.write_text(f"schema = 1\n{rows}")
    found = choose(MODEL, ["h100", "l4", "a100-80gb"], rate=0.5, where=Options(price_table=table))
    assert found.chosen is not None and found.chosen.device == "l4"
    unpriced = next(o for o in found.options if o.device.startswith("a100"))
    assert unpriced.price is None and "no price" in unpriced.why
    nothing = choose(MODEL, ["a100-80gb"], rate=0.5, where=Options(price_table=table))
    assert nothing.decision == "cannot say" and nothing.exit_code == 2 and nothing.chosen is None


def test_of_a_device_without_a_price_what_is_cheapest_at_any_price_is_taken(tmp_path):
    table = tmp_path / "prices.toml"
    row = 'device = "rtx-5090"\nprovider = "us"\nusd_per_hour = 0.5\ndate = "2026-01-01"\nsource = "us"\n'
    table.write_text(f"schema = 1\n[[price]]\n{row}")
    for load in ({"rate": 2.0}, {"concurrency": 8}, {}):
        (unknown,) = choose(MODEL, ["rtx-5090"], tpot_ms=30.0, **load).options
        known = choose(MODEL, ["rtx-5090"], tpot_ms=30.0, where=Options(price_table=table), **load).chosen
        assert unknown.price is None and known is not None
        assert (unknown.count, unknown.split, unknown.in_flight) == (known.count, known.split, known.in_flight)


def test_where_nothing_will_do_the_target_that_fails_is_named_and_what_would():
    found = asked(rate=5.0, ttft_ms=600, tpot_ms=1.0)
    assert found.exit_code == 1 and "--tpot 1" in found.headline
    (would,) = [text for text in found.changes if text.startswith("--tpot")]
    better = float(would.split()[1])
    assert asked(rate=5.0, ttft_ms=600, tpot_ms=better).exit_code == 0
    power = choose(ONNX, ["l4"], latency_ms=100, max_power_w=1.0, batches=[1])
    assert power.exit_code == 1 and any(text.startswith("--max-power") for text in power.changes)
    price = choose(ONNX, ["l4"], rate=10, max_usd_per_hour=0.01, batches=[1])
    assert price.exit_code == 1 and "it costs 0.7992 USD an hour" in price.headline


def test_devices_that_cannot_be_asked_are_named_with_their_reason():
    found = choose(MODEL, ["t4", "h100"], precisions=["fp8"], tensor_parallel=[1])
    assert [option.device for option in found.options] == ["h100-sxm5-80gb"]
    assert any(note.startswith("t4: NVIDIA Tesla T4 has no fp8") for note in found.notes)
    none = choose(MODEL, ["t4"], precisions=["fp8"], tensor_parallel=[1])
    assert none.decision == "cannot say" and none.exit_code == 2 and not none.options


def test_a_network_may_be_chosen_for_as_a_cuda_graph_and_a_served_model_not():
    how = {"devices": ["a100"], "precisions": ["fp16"], "runtimes": ["tensorrt"], "batches": [1], "latency_ms": 100}
    launched, replayed = (choose("resnet50", cuda_graph=graph, **how) for graph in (False, True))
    assert replayed.options[0].figures["latency_ms"].median < launched.options[0].figures["latency_ms"].median
    assert replayed.options[0].price.median < launched.options[0].price.median
    assert any("CUDA graph" in note for note in replayed.notes)
    with pytest.raises(ArgumentError, match="captures graphs of its own"):
        choose("llama-3.1-8b", ["a100"], cuda_graph=True)


def test_slices_stand_beside_whole_devices_at_their_part_of_the_price():
    found = choose(ONNX, ["a100-80gb"], slices=True, rate=20, p99_ms=200, batches=[1, 2])
    by_name = {option.device: option for option in found.options}
    whole, slice_ = by_name["a100-sxm4-80gb"], by_name["a100-sxm4-80gb:1g.10gb"]
    assert slice_.usd_per_hour / slice_.count == pytest.approx(whole.usd_per_hour / whole.count / 7)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"ttft_ms": 500, "latency_ms": 300}, "below --ttft 500 ms"),
        ({"p99_ms": 5, "latency_ms": 10}, "below --latency 10 ms"),
        ({"ttft_ms": 0}, r"--ttft must be a number above 0 and at most 1e\+\d+, got 0"),
        ({"tpot_ms": math.nan}, "--tpot must be"),
        ({"max_power_w": -1}, "--max-power must be"),
        ({"confidence": 1.0}, "between 0 and 1"),
        ({"rate": 1, "concurrency": 2}, "give one of them"),
        ({"rate": math.inf}, r"--rate must be from 1e-06 to 1e\+09, got inf"),
        ({"rate": 1e-323}, r"--rate must be from 1e-06 to 1e\+09, got 1e-323"),
        ({"rate": None, "concurrency": 1e-323}, r"--concurrency must be from 1e-06 to 1e\+07, got 1e-323"),
        ({"p99_ms": 100, "rate": 2}, "--p99 of a served language model is no target"),
    ],
)
def test_contradictions_are_one_clear_error(wrong, said):
    with pytest.raises(ArgumentError, match=said):
        asked(**wrong)


def test_a_network_has_no_first_token_and_a_percentile_needs_arrivals():
    with pytest.raises(ArgumentError, match="--ttft is of a served language model"):
        choose(ONNX, ["l4"], ttft_ms=10)
    with pytest.raises(ArgumentError, match="--p99 needs --rate"):
        choose(ONNX, ["l4"], p99_ms=10)


@settings(deadline=None)
@given(st.floats(0.1, 1e4), st.floats(1.01, 30), st.floats(1.01, 30), st.floats(0.01, 0.99))
def test_a_limit_is_where_the_probability_is_reached(median, below, above, probability):
    found = Interval(median, median / below, median * above, "ms")
    assert found.probability_below(limit_of(found, probability)) == pytest.approx(probability, abs=1e-6)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_together_is_no_more_than_any_and_all_where_one_is_open(each):
    assert 0.0 <= together(each) <= min(each) + 1e-12
    assert together([*each, 1.0]) == pytest.approx(together(each))


@settings(deadline=None)
@given(st.floats(0.5, 100), st.sampled_from([1, 2, 8, 32]), st.floats(0.05, 0.95))
def test_the_longest_run_is_the_one_whose_percentile_is_the_limit(run_ms, batch, load):
    rate = 1e3 * batch / run_ms * load
    p99 = queue.p99_ms(run_ms, batch, rate)
    assert p99 > run_ms and queue.longest_run_ms(p99, batch, rate) == pytest.approx(run_ms, rel=1e-4)
    assert queue.waits_ms(run_ms, batch, 1.01e3 * batch / run_ms) == math.inf


@pytest.mark.parametrize(("batch", "load"), [(1, 0.3), (1, 0.9), (4, 0.6), (16, 0.8)])
def test_a_simulated_queue_stays_below_the_closed_form(batch, load):
    rng, run_ms = np.random.default_rng(0), 10.0
    rate = 1e3 * batch / run_ms * load
    arrived = np.cumsum(rng.exponential(1e3 / rate, 60_000 * batch)).reshape(-1, batch)
    ended, until = np.empty(len(arrived)), 0.0
    for i, ready in enumerate(arrived[:, -1].tolist()):
        until = max(until, ready) + run_ms
        ended[i] = until
    simulated = float(np.quantile(ended[:, None] - arrived, 0.99))
    assert simulated <= queue.p99_ms(run_ms, batch, rate) * 1.02 <= 2.5 * simulated


def test_targets_are_strict_json():
    assert json.loads(json.dumps(Targets(ttft_ms=5.0).to_dict()))["ttft_ms"] == 5.0


def test_copies_are_not_piled_up_for_a_target_that_no_number_of_them_keeps():
    found = asked(rate=5.0, tpot_ms=0.5)
    assert found.exit_code == 1
    for option in found.options:
        assert option.probabilities["rate"] >= 0.9
        assert option.replicas <= 1.2 * 5.0 * option.figures["request_ms"].high / 1e3 / option.in_flight + 1


def test_where_there_is_no_chance_the_nearest_stands_first_and_is_called_so():
    found = asked(tpot_ms=0.5)
    times = [one.figures["tpot_ms"].median for one in found.options]
    assert found.exit_code == 1 and 0 < max(one.probability for one in found.options) < 5e-4
    assert times == sorted(times)
    assert "The nearest is" in found.headline and "--tpot 0.5 is out of reach" in found.headline
    dear = asked(tpot_ms=100, max_usd_per_hour=0.1)  # what is lost at any price need not lose the other target
    assert all(one.probabilities["tpot_ms"] > 0.5 for one in dear.options)
    likely = asked(tpot_ms=8.0, confidence=0.99)
    assert "The likeliest is" in likely.headline and "with probability 0." in likely.headline


def test_a_run_s_memory_is_read_as_a_size():
    shown = str(choose(ONNX, ["t4"], latency_ms=100, batches=[1]))
    assert re.search(r"memory in use +[0-9.]+ [MG]iB  [0-9.]+ [MG]iB to [0-9.]+ [MG]iB", shown) and "e+09" not in shown


def test_where_no_probability_is_left_the_nearest_is_told():
    found = choose(ONNX, ["t4", "h100"], latency_ms=1e-6, batches=[1, 64])
    assert found.decision == "none meets" and found.options[0].probability == 0.0
    times = {one.device: one.figures["latency_ms"].median for one in found.options}
    assert found.options[0].device == min(times, key=times.get)
    assert times["t4"] == pytest.approx(
        choose(ONNX, ["t4"], latency_ms=1e-6, batches=[1]).options[0].figures["latency_ms"].median
    )


def test_what_is_out_of_reach_is_told_of_the_nearest_and_not_of_a_thousand_copies():
    found = choose("resnet50", ["a40", "t4"], rate=10.0, p99_ms=0.5, precisions=["fp16"])
    assert found.exit_code == 1 and "--p99 0.5 is out of reach" in found.headline
    nearest = found.options[0]
    # A batch of two waits for its second request, a tenth of a second in the mean: alone is nearer.
    assert nearest.in_flight == 1 and nearest.replicas < 10, found.headline
    predicted = float(found.headline.rsplit(" ms are predicted", 1)[0].rsplit(" ", 1)[1])
    assert predicted < 30
