"""Whether it fits has one rule and one search for what would: `predict`, `fit`, decisions and sessions never differ."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

import perfpass
from ort_extension import verdict as sessions
from perfpass.decision import CONFIDENCE, Decision, Limits, Place, answer_on_fit, fits
from perfpass.deploy.fit import Load, Settings, Subject, need
from perfpass.devices import device
from perfpass.interval import Interval
from perfpass.llm import language_model
from perfpass.llm.costs import PRECISIONS, Parallelism, Quantization
from perfpass.llm.memory import served
from perfpass.llm.serving import Serving
from perfpass.prediction import MemoryFigures
from perfpass.predictors.remedies import Question, in_words
from perfpass.predictors.serving.judged import changes
from perfpass.report.page.training import _fits as page_answer

RESNET = str(Path(__file__).resolve().parents[2] / "examples" / "resnet50.onnx")
WORDS = {"yes": "yes", "no": "no", "perhaps": "cannot say"}
GIB = float(2**30)


def test_no_needs_the_lower_bound_and_yes_the_confidence():
    memory = Interval(10 * GIB, 8 * GIB, 14 * GIB, "byte")
    chances = {at: MemoryFigures(memory).probability_fits(at * GIB) for at in (7.9, 8.3, 10.0, 12.5, 13.0)}
    assert chances[7.9] < 0.05 < chances[8.3] < 0.1 and 0.9 < chances[13.0] < 0.98
    # Below 0.1 and within the bounds it cannot be said: such runs are known to have run.
    assert [fits(memory, at * GIB) for at in chances] == ["no", "perhaps", "perhaps", "yes", "yes"]
    assert fits(memory, 12.5 * GIB, 0.95) == "perhaps"
    assert answer_on_fit(0.0, 0.9, possible=True) == "cannot say" and answer_on_fit(0.0, 0.9, possible=False) == "no"


def test_every_door_says_the_same_of_a_network_whatever_the_memory():
    peak = perfpass.predict(RESNET, "a30", batch=64).peak_memory_bytes
    seen = set()
    for at in (0.6 * peak.low, 0.8 * peak.low, peak.median, 0.9 * peak.median + 0.1 * peak.high, peak.high, 2e10):
        board = replace(device("a30"), memory_bytes=int(at))
        found = perfpass.predict(RESNET, board, batch=64, limits=Limits())
        verdict = found.memory_verdict
        (one,) = perfpass.fit(RESNET, board, batch=64).answers
        seen.add(verdict.fits)
        assert one.answer == WORDS[verdict.fits] == found.decision.answer
        assert one.probability == pytest.approx(verdict.probability) == found.decision.probability
        session = sessions.judge(None, found.peak_memory_bytes, None, board.memory_bytes, None)
        assert session.fits == verdict.fits
        page = {"memory_in_use_bytes": found.peak_memory_bytes.to_dict(), "device_memory_bytes": board.memory_bytes}
        assert page_answer(page) == verdict.fits
        # And the same would do: each change that `fit` lists is in the verdict's, in its words.
        said = "; ".join(verdict.remedies)
        for change in one.changes:
            assert change.text.split(" (")[0] in said, (change, said)
        assert bool(one.changes) == bool(verdict.remedies) == (verdict.fits != "yes")
    assert seen == {"yes", "perhaps", "no"}


def test_a_decision_with_a_target_is_no_refusal_by_memory_that_may_do():
    memory, time = Interval(10 * GIB, 8 * GIB, 14 * GIB, "byte"), Interval(10.0, 8.0, 12.5, "ms")
    place = Place("a30", None, 1, memory, int(8.3 * GIB), latency_ms=time)
    assert Decision(Limits(latency_ms=100.0), place).answer == "cannot say"
    assert Decision(Limits(latency_ms=1.0), place).answer == "no"  # by the time alone
    assert Decision(Limits(latency_ms=100.0), replace(place, available_bytes=int(7 * GIB))).answer == "no"
    assert Decision(Limits(memory_bytes=7 * GIB), replace(place, available_bytes=int(20 * GIB))).answer == "no"


def test_the_largest_batch_of_what_is_slow_to_ask_is_that_of_the_rule_as_well():
    def memory(*, device=None, batch=None, precision=None):
        asked.append(batch)
        median = GIB * (1.0 + 0.1 * batch)
        return Interval(median, 0.8 * median, 1.4 * median, "byte")

    asked: list[int] = []
    how = {"device": device("a30"), "batch": 64, "precision": "fp32", "training": True}
    quick = Question(memory, **how, available_bytes=12 * GIB).largest_batch()
    asked.clear()
    slow = Question(memory, **how, slow=True, available_bytes=12 * GIB)
    assert quick == slow.largest_batch() and len(asked) <= 6
    assert slow.holds(batch=quick)[0] >= 0.9 > 0.89 > (slow.holds(batch=quick + 3) or (0.0,))[0]


@pytest.mark.parametrize("batch", [1, 2, 4, 64, 1000])
def test_a_step_that_is_largest_at_its_update_says_the_same_largest_batch_from_any(batch):
    """At small batches the update of the weights takes the most, whatever the batch."""

    def memory(*, device=None, batch=None, precision=None):
        asked.append(batch)
        median = GIB * max(3.0 + 0.0001 * batch, 1.2 + 0.1 * batch)
        return Interval(median, 0.8 * median, 1.4 * median, "byte")

    asked: list[int] = []
    how = {"precision": "fp32", "training": True, "available_bytes": 12 * GIB}
    most = Question(memory, device("a30"), 1, **how).largest_batch()
    asked.clear()
    found = Question(memory, device("a30"), batch, **how, slow=True).largest_batch()
    assert 0.95 * most <= found <= most and len(asked) <= 6


@pytest.mark.parametrize("runtime", ["vllm", "sglang", "trtllm"])
def test_predict_and_fit_count_a_server_alike(runtime):
    answers = set()
    for name, on, tp, precision, context in itertools.product(
        ("llama-3.1-8b", "llama-3.1-70b", "mixtral-8x7b"),
        ("rtx-4090", "a100-sxm4-80gb", "h200"),
        (1, 2, 4),
        ("bf16", "fp8", "int4"),
        (1024, 8192, 32768),
    ):
        model, target = language_model(name), device(on)
        asked = Settings(runtime, tp=tp, precision=precision)
        counted = need(Subject(name, model), target, asked, Load(context))
        serving = Serving(
            input_length=context - 64,
            output_length=64,
            concurrency=1.0,
            runtime=runtime,
            parallelism=Parallelism.of(tp),
            quantization=Quantization(*PRECISIONS[precision], counted.cache_type),
        )
        memory = served(model, target, serving)
        assert memory.probability == pytest.approx(counted.probability, abs=1e-9)
        assert counted.answer(CONFIDENCE) == WORDS[memory.answer], (name, on, tp, precision, context)
        answers.add(memory.answer)
    assert answers == {"yes", "perhaps", "no"}


@pytest.mark.parametrize(
    ("name", "on", "more"),
    [
        ("llama-3.1-70b", "h100", {}),
        ("llama-3.1-8b", "a100-80gb:1g.10gb", {}),
        ("llama-3.1-8b", "rtx-3090", {"input_length": 60_000, "output_length": 4_000}),
        ("mixtral-8x7b", "l40s", {"runtime": "sglang"}),
    ],
)
def test_what_would_make_a_server_fit_is_a_change_and_asked_again_it_does(name, on, more):
    more = {"tp": 1, **more}
    first = perfpass.predict_llm(name, on, **more)
    model, target = language_model(name), device(on)
    found = list(changes(model, target, first.asked.serving))
    assert found and first.memory_verdict.fits != "yes"
    assert first.memory_verdict.remedies == tuple(in_words(found))
    for change in found:
        again = perfpass.predict_llm(name, **({"device": on, **more} | dict(change.options)))
        assert again.memory_verdict.fits == "yes", change
        assert again.memory.probability == pytest.approx(change.probability) and change.probability >= CONFIDENCE
        assert again.memory_verdict.needed_bytes == change.needed_bytes
    kinds = [change.kind for change in found]
    order = ["load", "quantization", "split", "device"]
    assert kinds == sorted(kinds, key=order.index)


def test_the_longest_request_that_fits_is_told_and_the_next_step_does_not():
    first = perfpass.predict_llm("llama-3.1-8b", "rtx-3090", input_length=60_000, output_length=4_000, tp=1)
    short = next(c for c in changes(first.asked.model, device("rtx-3090"), first.asked.serving) if c.kind == "load")
    tokens = sum(short.options.values())
    assert tokens % 256 == 0 and short.options["input_length"] == pytest.approx(
        15 * short.options["output_length"], 1e-2
    )
    longer = perfpass.predict_llm("llama-3.1-8b", "rtx-3090", input_length=tokens + 255, output_length=1, tp=1)
    assert longer.memory_verdict.fits != "yes"
