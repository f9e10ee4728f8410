from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfpass
from perfpass.cli import main
from perfpass.errors import ArgumentError
from perfpass.llm import Parallelism, Serving, language_model
from perfpass.llm.adapters import Adapters
from perfpass.llm.batch import EngineBatch
from perfpass.llm.speculation import METHODS, Speculation
from perfpass.llm.vision import Images, vision
from perfpass.predictors.engine.simulate import simulate_llm
from perfpass.predictors.switches.adapting import adapt
from perfpass.predictors.switches.experts import imbalance
from perfpass.predictors.switches.load import Deployment
from perfpass.predictors.switches.prefixes import share
from perfpass.predictors.switches.sharing import confine
from perfpass.predictors.switches.speculative import SpeculativeSteps, TokenSteps, speculate
from perfpass.predictors.switches.unequal import vary

SERVING = Serving(1024, 128, 8)
SHARES = st.floats(0.0, 1.0)


@pytest.fixture(scope="module")
def deployment() -> Deployment:
    return Deployment(language_model("llama-3.1-8b"), perfpass.device("h100"), SERVING)


def asked(acceptance: float, drafted: int = 4) -> Speculation:
    return Speculation.of("model", draft=language_model("llama-3.2-1b"), drafted=drafted, acceptance=acceptance)


def predicted(**switches):
    return perfpass.predict_llm(
        "llama-3.1-8b", "h100", input_length=1024, output_length=128, concurrency=8,
        switches=perfpass.Switches(**switches),
    )  # fmt: skip


def test_nothing_switched_on_changes_no_figure():
    assert predicted().to_dict() == perfpass.predict_llm(
        "llama-3.1-8b", "h100", input_length=1024, output_length=128, concurrency=8
    ).to_dict()  # fmt: skip


def test_no_draft_token_is_a_plain_step(deployment):
    load = deployment.load()
    steps = SpeculativeSteps(load.steps, None, asked(0.5, drafted=0))
    batch = EngineBatch.of([(300, 20)], [100, 900])
    assert steps.seconds(batch) == pytest.approx(load.steps.seconds(batch), rel=1e-12)
    assert steps.tokens == 1.0


def test_without_acceptance_a_step_is_slower_by_exactly_the_drafts(deployment):
    load, one = deployment.load(), asked(0.0)
    steps = speculate(deployment, load, one).load.steps
    drafter = deployment.steps(one.drafter(deployment.model))
    batch = EngineBatch(decodes=8.0, decode_context=8000.0)
    drafts = 4 * drafter.seconds(batch)
    verified = load.steps.seconds(EngineBatch(decodes=8.0 * 5, decode_context=8000.0))
    assert steps.seconds(batch) == pytest.approx(drafts + verified, rel=1e-12)
    assert steps.tokens == 1.0


def test_with_full_acceptance_a_step_yields_every_draft_and_one_more(deployment):
    load, run = deployment.load(), []
    for acceptance in (0.0, 1.0):
        steps = speculate(deployment, load, asked(acceptance)).load.steps
        run.append(steps.decode_run(8.0, 8000.0, 1.0))
    assert run[0] / run[1] == pytest.approx(5.0, rel=1e-12)


@settings(max_examples=25, deadline=None)
@given(SHARES, SHARES)
def test_more_acceptance_never_makes_a_token_slower(one, other):
    deployment = Deployment(language_model("llama-3.1-8b"), perfpass.device("h100"), SERVING)
    low, high = sorted((one, other))
    times = [speculate(deployment, deployment.load(), asked(a)).load.times()[1] for a in (low, high)]
    assert times[1] <= times[0] * (1 + 1e-12)


@settings(max_examples=25, deadline=None)
@given(SHARES, SHARES)
def test_more_prefix_found_never_makes_anything_slower(one, other):
    deployment = Deployment(language_model("llama-3.1-8b"), perfpass.device("h100"), SERVING)
    low, high = sorted((one, other))
    slow, fast = (share(deployment, deployment.load(), hit).load.times() for hit in (low, high))
    assert fast[0] <= slow[0] * (1 + 1e-9)
    assert fast[1] <= slow[1] * (1 + 1e-9)


def test_no_prefix_found_is_the_plain_load_and_all_of_it_is_a_prompt_of_one_token(deployment):
    load = deployment.load()
    assert share(deployment, load, 0.0).load == load
    found = share(deployment, load, 1.0).load
    assert (found.computed, found.cached) == (1.0, 1023.0)


def test_a_cache_on_the_host_is_slower_than_one_on_the_device_and_faster_than_none():
    device, host, none = (
        predicted(**one).ttft_ms.median for one in ({"prefix_hit": 0.8}, {"prefix_hit": 0.8, "from_host": 1.0}, {})
    )
    assert device < host < none


def test_the_result_names_what_is_on_what_it_brings_and_what_was_without():
    plain, found = predicted(), predicted(prefix_hit=0.4, speculation=asked(0.7))
    said = str(found)
    assert "prefix caching, 40% of the prompt found: 614 of 1,024 tokens computed" in said
    assert "llama-3.2-1b, 4 draft tokens, acceptance 0.70: 2.77 tokens a step" in said
    switched = found.to_dict()["switched"]
    assert switched["without"]["tpot_ms"] == plain.tpot_ms.median
    ratio = np.prod([part["tpot_ratio"] for part in switched["parts"]])
    assert found.tpot_ms.median == pytest.approx(plain.tpot_ms.median * ratio)
    assert "switched" not in plain.to_dict()


def test_a_draft_model_is_counted_in_memory_and_leaves_room_for_fewer_requests():
    plain, found = predicted(), predicted(speculation=asked(0.7))
    draft = 2.0 * language_model("llama-3.2-1b").parameters
    assert found.memory.weights_bytes - plain.memory.weights_bytes == pytest.approx(draft, rel=0.01)
    single = replace(language_model("llama-3.2-1b"), stored_as="fp32", experts_stored_as="fp32")
    wide = predicted(speculation=Speculation.of("model", draft=single, drafted=4, acceptance=0.7))
    assert wide.memory.weights_bytes == found.memory.weights_bytes  # a server loads it in 16 bits
    assert found.memory.cache_bytes > plain.memory.cache_bytes
    assert found.memory.most_requests < plain.memory.most_requests


def test_what_no_record_covers_is_said_and_widens():
    plain, found = predicted(), predicted(speculation=asked(0.7))
    assert found.tpot_ms.high / found.tpot_ms.low > plain.tpot_ms.high / plain.tpot_ms.low
    assert found.support.level != "in range"
    assert any("Spec-Bench" in reason for reason in found.support.reasons)


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"model", "swift"}))
def test_every_method_answers_for_a_dense_model_and_a_mixture(method):
    for name in ("llama-3.1-8b", "mixtral-8x7b"):
        model = language_model(name)
        deployment = Deployment(model, perfpass.device("h200"), SERVING)
        change = speculate(deployment, deployment.load(), Speculation.of(method))
        assert all(np.isfinite(change.load.times()))
        assert change.beside.weights_bytes >= 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"gpu_share": 0.0},
        {"gpu_share": float("nan")},
        {"expert_imbalance": float("nan")},
        {"expert_imbalance": 0.5},
        {"answer_variation": -1.0},
        {"prefix_hit": 1.1},
        {"prefix_hit": -0.1},
        {"from_host": 0.5},
    ],
)
def test_figures_out_of_range_are_refused(wrong):
    with pytest.raises(ArgumentError):
        perfpass.Switches(**wrong)


@pytest.fixture(scope="module")
def split_mixture() -> Deployment:
    serving = Serving(1024, 128, 16, parallelism=Parallelism.of(4, expert=4))
    return Deployment(language_model("mixtral-8x7b"), perfpass.device("h100"), serving)


def test_even_experts_are_the_plain_load_and_uneven_ones_never_faster(split_mixture):
    load = split_mixture.load()
    plain = load.times()
    even = imbalance(split_mixture, load, 1.0).load.times()
    assert even == pytest.approx(plain, rel=1e-12)
    before = plain
    for factor in (1.1, 1.3, 1.5, 2.0, 3.7, 4.0):
        now = imbalance(split_mixture, load, factor).load.times()
        assert now[0] >= before[0] and now[1] >= before[1]
        before = now


def test_experts_that_every_gpu_shares_are_waited_for_by_none():
    deployment = Deployment(language_model("mixtral-8x7b"), perfpass.device("h100"), SERVING)
    load = deployment.load()
    assert imbalance(deployment, load, 1.3).load == load


@pytest.mark.parametrize(("name", "factor"), [("llama-3.1-8b", 1.3), ("mixtral-8x7b", 0.9)])
def test_imbalance_that_cannot_be_is_refused(name, factor):
    deployment = Deployment(language_model(name), perfpass.device("h100"), SERVING)
    with pytest.raises(ArgumentError):
        imbalance(deployment, deployment.load(), factor)


def test_no_adapter_is_the_plain_load(deployment):
    load = deployment.load()
    for none in (Adapters(0, 8), Adapters(16, 0)):
        change = adapt(deployment, load, none)
        assert change.load == load
        assert change.beside.weights_bytes == 0


def test_wider_and_more_adapters_are_never_faster_and_always_larger(deployment):
    load = deployment.load()
    before = load.times()
    for adapters in (Adapters(8, 1), Adapters(16, 1), Adapters(16, 8), Adapters(64, 8), Adapters(64, 64)):
        now = adapt(deployment, load, adapters).load.times()
        assert now[0] >= before[0] and now[1] >= before[1]
        before = now
    assert predicted(adapters=Adapters(16, 8)).memory.weights_bytes == pytest.approx(
        predicted().memory.weights_bytes + 8 * 2 * 41_943_040, abs=2
    )


def test_swapped_adapters_take_less_memory_and_longer_to_start(deployment):
    load = deployment.load()
    all_there, some = (adapt(deployment, load, Adapters(64, 64, resident)) for resident in (None, 8))
    assert some.beside.weights_bytes == all_there.beside.weights_bytes / 8
    assert some.load.times()[0] > all_there.load.times()[0]
    assert adapt(deployment, load, Adapters(64, 64, 64)).load.fetch_s == 0.0


def test_equal_answers_are_the_plain_load_and_unequal_ones_read_more(deployment):
    load = deployment.load()
    assert vary(deployment, load, 0.0).load == load
    times = [vary(deployment, load, variation).load.times()[1] for variation in (0.0, 0.5, 1.0, 2.0)]
    assert times == sorted(times) and times[0] < times[-1]


SEEING = {
    "model_type": "qwen2_5_vl", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
    "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": False,
    "vision_config": {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16, "patch_size": 14},
}  # fmt: skip


def test_images_are_prompt_tokens_and_the_towers_time_and_its_weights_are_loaded_without_them_too():
    asked = {"input_length": 200, "output_length": 128, "concurrency": 8}
    plain = perfpass.predict_llm(SEEING, "h100", **asked)
    seeing = vision(SEEING)
    before = plain
    for count in (1, 2, 4):
        switches = perfpass.Switches(images=Images(seeing, count, 1024, 768))
        found = perfpass.predict_llm(SEEING, "h100", switches=switches, **asked)
        assert found.serving.input_length == 200 + count * 999
        assert found.ttft_ms.median > before.ttft_ms.median
        before = found
    text = perfpass.predict_llm(replace(language_model(SEEING), beside=0), "h100", **asked)
    assert before.memory.weights_bytes == plain.memory.weights_bytes
    # Without images a server may be told to leave the tower out.
    assert before.memory.alive.low >= plain.memory.alive.low + 2 * seeing.parameters
    assert plain.memory.weights_bytes - text.memory.weights_bytes == pytest.approx(2 * seeing.parameters, abs=2)
    none = perfpass.predict_llm(SEEING, "h100", switches=perfpass.Switches(images=Images(seeing, 0)), **asked)
    assert (none.ttft_ms, none.tpot_ms, none.memory) == (plain.ttft_ms, plain.tpot_ms, plain.memory)


def test_a_share_of_a_gpu_is_slower_by_it_and_a_whole_one_is_the_plain_load(deployment):
    load = deployment.load()
    assert confine(deployment, load, 1.0).load.times() == load.times()
    whole, half = predicted(), predicted(gpu_share=0.5)
    assert half.tpot_ms.median == pytest.approx(2 * whole.tpot_ms.median)
    assert half.memory.usable_bytes == pytest.approx(whole.memory.usable_bytes / 2, abs=1)
    assert half.memory.most_requests < whole.memory.most_requests


def test_a_share_too_small_for_the_weights_does_not_fit_and_has_the_times_of_one_that_does():
    found = predicted(gpu_share=0.1)
    assert not found.memory.fits and found.memory_verdict.fits == "no"
    assert found.tpot_ms.median == pytest.approx(10 * predicted().tpot_ms.median)


def test_prefill_on_gpus_of_its_own_stalls_no_decoding():
    apart = replace(SERVING, mode="disagg", prefill=Parallelism(), prefill_workers=1)
    deployment = Deployment(language_model("llama-3.1-8b"), perfpass.device("h100"), apart)
    load = deployment.load()
    assert share(deployment, load, 0.9).load.times()[1] == load.times()[1]


def test_a_tokens_share_of_drafting_steps_leaves_prompts_whole(deployment):
    steps = speculate(deployment, deployment.load(), asked(0.7)).load.steps
    shared = TokenSteps(steps, steps.tokens)
    decodes, prompt = EngineBatch.of((), [900] * 8), EngineBatch.of([(512, 100)])
    both = EngineBatch.of([(512, 100)], [900] * 8)
    assert shared.seconds(decodes) == pytest.approx(steps.seconds(decodes) / steps.tokens)
    assert shared.seconds(prompt) == pytest.approx(steps.seconds(prompt))
    whole = steps.seconds(both) - steps.seconds(decodes)
    assert shared.seconds(both) == pytest.approx(whole + shared.seconds(decodes))
    for batch in (decodes, prompt, both):
        sizes = vars(batch).values()
        assert shared.one(*sizes) == pytest.approx(float(shared.seconds(batch)[0]), rel=1e-12)
        assert steps.one(*sizes) == pytest.approx(float(steps.seconds(batch)[0]), rel=1e-12)


def test_requests_that_arrive_are_faster_with_drafts_and_slower_with_adapters():
    def token_ms(**switches) -> float:
        found = simulate_llm(
            "llama-3.1-8b", "h100", rate=2.0, requests=40, output_length=64,
            switches=perfpass.Switches(**switches) if switches else None,
        )  # fmt: skip
        return found.tpot_ms.mean.median

    plain = token_ms()
    assert token_ms(speculation=Speculation.of("ngram")) < plain < token_ms(adapters=Adapters(16, 8))


def test_a_misspelt_way_of_drafting_is_told_what_it_is_near_to(capsys):
    assert main(["llm", "llama-3.1-8b", "--device", "h100", "--draft", "eagel"]) != 0
    assert "did you mean eagle" in capsys.readouterr().err


@pytest.mark.parametrize("options", [("--images", "1"), ("--answer-variation", "1"), ("--from-host", "0.5")])
def test_arriving_requests_refuse_what_is_no_matter_of_steps(capsys, options):
    assert main(["llm", "llama-3.1-8b", "--device", "h100", "--rate", "2", "--prefix-hit", "0.2", *options]) != 0
    assert options[0] in capsys.readouterr().err


def test_a_batch_without_a_server_refuses_every_switch(capsys):
    for option in (("--draft", "eagle"), ("--lora", "16x8"), ("--gpu-share", "0.5"), ("--prefix-hit", "0.5")):
        assert main(["llm", "llama-3.1-8b", "--device", "h100", "--offline", *option]) != 0
        assert option[0] in capsys.readouterr().err


def test_all_switches_go_together_on_one_line_each():
    switches = perfpass.Switches(
        answer_variation=1.0,
        images=Images(vision(SEEING), 1, 640, 480),
        prefix_hit=0.5,
        from_host=0.5,
        adapters=Adapters(16, 8, 4),
        speculation=Speculation.of("ngram"),
    )
    found = perfpass.predict_llm(SEEING, "h100", concurrency=8, switches=switches)
    assert [part.name for part in found.switched.parts] == [
        *("unequal answers", "images", "prefix caching", "adapters", "speculative decoding")
    ]


def run(capsys, *options: str) -> str:
    assert main(["llm", "llama-3.1-8b", "--device", "h100", *options]) == 0
    return capsys.readouterr().out


def test_the_command_takes_every_switch_and_writes_it(capsys):
    out = run(capsys, "--concurrency", "8", "--draft", "llama-3.2-1b", "--draft-tokens", "3", "--acceptance", "0.7",
              "--prefix-hit", "0.4", "--lora", "16x8", "--answer-variation", "0.8", "--json")  # fmt: skip
    parts = json.loads(out)["switched"]["parts"]
    assert parts[-1]["facts"] == {"draft_tokens": 3, "acceptance": 0.7, "tokens_per_step": pytest.approx(2.533)}
    assert [part["name"] for part in parts] == [
        *("unequal answers", "prefix caching", "adapters", "speculative decoding")
    ]


@pytest.mark.parametrize(
    "options",
    [
        ("--acceptance", "0.7"),
        ("--draft", "eagle", "--acceptance", "1.7"),
        ("--lora", "16"),
        ("--lora", "ax8"),
        ("--lora-resident", "2"),
        ("--images", "1"),
        ("--image-size", "10x10"),
        ("--prefix-hit", "nan"),
        ("--expert-imbalance", "1.3"),
    ],
)
def test_the_command_refuses_what_does_not_go_together(capsys, options):
    assert main(["llm", "llama-3.1-8b", "--device", "h100", *options]) != 0
    assert "Traceback" not in capsys.readouterr().err
