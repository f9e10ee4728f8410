"""`perfpass train-cost`: layouts that fit, what they take, the search, and refusals."""

from __future__ import annotations

import dataclasses
import inspect
import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfpass
from perfpass.cli import main
from perfpass.deploy.train_cost import search_layouts, train_cost
from perfpass.devices import device
from perfpass.errors import ArgumentError, DeviceError, PerfPassError
from perfpass.llm import families
from perfpass.llm.configuration import language_model
from perfpass.llm.recipe import Layout, Recipe
from perfpass.predictors.llm_training.constants import STEP
from perfpass.predictors.llm_training.step import timed, work
from perfpass.predictors.training_step.power import StepPower
from perfpass.predictors.training_step.predictor import StepPredictor

BLOOM = {"gpus": 64, "tensor": 8, "pipeline": 4, "global_batch": 512}


@pytest.fixture(scope="module")
def found():
    return perfpass.train_cost("llama-3.1-70b", "h100", tokens=1e10, region="FR", **BLOOM)


def test_attention_is_eager_in_torch_where_transformers_has_no_fused_one():
    asked = {"framework": "torch", "lora_rank": 16, "sequence": 2048, "equal_lengths": True}
    usual, fused, kept = (
        train_cost("gemma-2-9b", "a100-80gb", **asked, **more)
        for more in ({}, {"attention": "flash"}, {"attention": "unfused"})
    )
    assert usual.predicted == kept.predicted != fused.predicted
    assert any("--attention flash" in note for note in usual.notes)
    assert not any("--attention" in note for found in (fused, kept) for note in found.notes)
    for model, framework in (("gemma-2-9b", "deepspeed"), ("qwen3-8b", "torch")):
        found = train_cost(model, "a100-80gb", **asked | {"framework": framework})
        assert found.recipe.kernels.attention == "flash"


def test_what_reads_pictures_is_held_frozen_or_trained_and_said():
    """Frozen: two bytes a parameter; trained: gradients, master copy and moments as well, sharded as the rest."""

    def held(towers, **asked):
        found = train_cost("gemma-3-4b", "h100", towers=towers, **asked)
        assert any("(0.42 B parameters)" in note for note in found.notes)
        return found.predicted.memory.peak_bytes

    size = 0.42e9
    assert held("frozen") - held("none") == pytest.approx(2 * size, rel=0.02)
    assert held("trained") - held("none") == pytest.approx((2 + 4 + 4 + 8) * size, rel=0.02)
    assert held("trained", gpus=8) - held("none", gpus=8) == pytest.approx((2 + 4 + 12 / 8) * size, rel=0.02)
    adapted = {"lora_rank": 8, "frozen": "nf4", "framework": "torch"}
    assert held("trained", **adapted) - held("none", **adapted) == pytest.approx((0.5 + 4 / 64) * size, rel=0.02)
    assert not any("pictures" in note for note in train_cost("qwen3-8b", "h100", gpus=8).notes)
    with pytest.raises(ArgumentError, match="towers"):
        train_cost("gemma-3-4b", "h100", towers="thawed")


@pytest.mark.parametrize(("board", "known"), [("mi300x", True), ("gaudi3", False), ("tpu-v5p", False)])
def test_memory_on_a_runtime_that_nobody_measured_is_as_wide_as_in_inference(board, known):
    here, nvidia = (train_cost("llama-3.1-8b", name, gpus=8) for name in (board, "h200"))
    a, b = here.predicted.in_use, nvidia.predicted.in_use
    assert a.median == b.median and ((a.low, a.high) == (b.low, b.high)) == known
    assert known or (a.low < b.low and a.high > b.high)
    assert any("no framework's memory was measured" in note for note in here.notes) != known


def test_which_attention_is_eager_is_what_transformers_says():
    folder, seen = Path(find_spec("transformers").origin).parent / "models", 0
    for model_type in (*families.PLAIN, "bloom", "codegen", "falcon", "gpt_neo", "mpt", "xglm"):
        name = model_type.removesuffix("_text")
        if (file := folder / name / f"modeling_{name}.py").exists():
            seen += 1
            assert families.attends_eagerly(model_type) == ("_supports_sdpa = True" not in file.read_text()), model_type
    assert seen > 30


def test_a_run_adds_up(found):
    step = found.predicted.step_s
    assert sum(dataclasses.asdict(found.predicted.parts_s).values()) == pytest.approx(step.median)
    assert found.tokens_per_s.median == pytest.approx(512 * 4096 / step.median)
    assert found.hours.median == pytest.approx(1e10 / found.tokens_per_s.median / 3600)
    assert found.energy_j.median == pytest.approx(64 * found.predicted.power_w.median * found.hours.median * 3600)
    assert found.usd.median > 0 and found.carbon_g.median > 0
    assert step.low < step.median < step.high and 0.2 < found.predicted.mfu < 0.9


def test_the_result_is_strict_json(found):
    facts = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert facts["layout"]["tensor"] == 8 and len(facts["stages"]) == 4
    assert facts["stages"][facts["fullest_stage"]]["peak"] == max(s["peak"] for s in facts["stages"])
    assert "P = " in str(found) and "tp8 pp4 dp2" in str(found)


def test_what_is_held_follows_the_layout(found):
    whole = train_cost("llama-3.1-70b", "h100", gpus=8, tensor=8)
    assert not whole.predicted.fits and found.predicted.fits
    again = train_cost("llama-3.1-70b", "h100", recompute="full", **BLOOM)
    assert again.predicted.in_use.median < found.predicted.in_use.median
    assert again.predicted.step_s.median > found.predicted.step_s.median
    assert again.predicted.mfu < found.predicted.mfu


@settings(max_examples=40)
@given(
    tensor=st.sampled_from([1, 2, 8]),
    pipeline=st.sampled_from([1, 4]),
    data=st.sampled_from([1, 2, 16]),
    sharding=st.sampled_from(["none", "zero1", "zero3"]),
    micro_batches=st.integers(1, 8),
    recompute=st.sampled_from(["none", "selective", "full"]),
)
def test_more_work_and_slower_networks_never_take_less(tensor, pipeline, data, sharding, micro_batches, recompute):
    model, board = language_model("llama-3.1-8b"), device("h100")
    layout = Layout(tensor=tensor, pipeline=pipeline, data=data, sharding=sharding)
    recipe = Recipe(1, 2048, micro_batches, recompute=recompute)

    def seconds(layout=layout, recipe=recipe, **more):
        return float(timed(work(model, board, layout, recipe, **more), STEP).seconds)

    # A step that waits for its replicas alone takes the same, but for rounding.
    base = seconds() * (1 - 1e-9)
    assert seconds(recipe=dataclasses.replace(recipe, micro_batches=micro_batches + 1)) > base
    assert seconds(recipe=dataclasses.replace(recipe, sequence=4096)) >= base
    assert seconds(fabric=10e9) >= base >= seconds(fabric=400e9) * (1 - 2e-9)
    assert seconds(recipe=dataclasses.replace(recipe, recompute="full")) >= base
    if pipeline > 1:
        assert seconds(dataclasses.replace(layout, virtual=2)) * (1 - 1e-9) <= base


def test_zero_bubble_schedules_wait_as_their_paper_says():
    """arXiv:2401.10241, table 2: of F + B + W a stage waits F + B - W, or F + B - 2 W."""
    model, board = language_model("llama-3.1-8b"), device("h100")
    found = {
        name: timed(work(model, board, Layout(pipeline=8, schedule=name), Recipe(1, 4096, 16)), STEP)
        for name in ("1f1b", "zb_h1", "zb_h2")
    }
    plain, of_weights = found["1f1b"], found["1f1b"].products / 3
    assert found["zb_h1"].bubble == pytest.approx(plain.bubble - 7 / 16 * 2 * of_weights)
    assert found["zb_h2"].bubble == pytest.approx(plain.bubble - 7 / 16 * 3 * of_weights)
    assert found["zb_h2"].bubble < 0.35 * plain.bubble


def test_offloading_fits_more_and_costs_what_the_link_and_the_host_take():
    def asked(name="rtx-4090", **more):
        return train_cost("llama-3.2-3b", name, framework="torch", precision="bf16_true", sequence=1024, **more)

    stays, states, weights = asked(), asked(offload="optimizer"), asked(offload="parameters", recompute="offloaded")
    peaks = [one.predicted.in_use.median for one in (stays, states, weights)]
    assert peaks == sorted(peaks, reverse=True)
    assert stays.predicted.parts_s.offload == 0 < states.predicted.parts_s.offload
    assert asked(offload="optimizer", host_gb_s=100.0).predicted.step_s.median < states.predicted.step_s.median
    assert "offloads was measured" in str(states) and "of the host's memory" in str(states)
    step = states.predicted.step_s
    assert step.high / step.low > stays.predicted.step_s.high / stays.predicted.step_s.low
    fast, slow = (asked(name, offload="parameters").predicted.parts_s.offload for name in ("gh200-96gb", "h100"))
    assert fast < slow


def test_plain_pytorch_in_16_bits_names_the_training_without_a_master_copy():
    def asked(**how):
        return train_cost("llama-3.2-1b", "h100", sequence=1024, framework="torch", **how)

    mixed, alone = asked(precision="bf16"), asked(precision="bf16_true")
    assert any("bf16_true" in note for note in mixed.notes)
    assert not any("bf16_true" in note for note in (*alone.notes, *asked(lora_rank=8).notes))
    states = [
        sum(getattr(of.predicted.memory.stages[0], name) for name in ("weights", "gradients", "master", "moments"))
        for of in (mixed, alone)
    ]
    assert states[1] < 0.5 * states[0]


def test_what_is_not_counted_is_said():
    def notes(**asked):
        return " ".join(train_cost("llama-3.2-1b", "h100", sequence=8192, **asked).notes)

    assert not notes(lora_rank=8)
    assert not notes(lora_rank=8, frozen="nf4")
    assert "unpacking" in notes(lora_rank=8, frozen="int8") and "DoRA" in notes(lora_rank=8, dora=True)
    assert "gradients" in notes(offload="optimizer")
    assert "gradients" not in notes(offload="optimizer", framework="torch")
    assert "leaves weights and gradients" in notes(offload="parameters")


def test_one_stage_has_no_schedule_that_was_not_measured():
    def width(**asked):
        found = train_cost("llama-3.2-1b", "h100", gpus=2, global_batch=8, sequence=1024, **asked)
        return found.predicted.step_s.high / found.predicted.step_s.low, found.notes

    assert width(schedule="zb_h1") == width()
    wide, notes = width(schedule="zb_h1", pipeline=2)
    assert wide > width(pipeline=2)[0] and "zero-bubble" in notes[0]


def test_the_search_finds_the_quickest_layout_that_fits_and_keeps_what_is_given():
    layouts = search_layouts("llama-3.1-8b", "h100", gpus=8, global_batch=64, tensor=2)
    assert layouts.best and {one.layout.tensor for one in layouts.best} == {2}
    steps = [one.predicted.step_s.median for one in layouts.best]
    assert steps == sorted(steps) and all(one.predicted.fits for one in layouts.best)
    assert not any(one.predicted.fits for one in layouts.others)
    assert layouts.tried == len(layouts.best) + len(layouts.others)
    json.dumps(layouts.to_dict(), allow_nan=False)
    none = search_layouts("llama-3.1-70b", "h100", gpus=8, global_batch=8)
    assert not none.best and "none of" in str(none)


def test_a_framework_or_device_that_was_not_measured_is_wider():
    def width(**asked):
        step = train_cost("llama-3.1-8b", gpus=8, sharding="zero3", **asked).predicted.step_s
        return step.high / step.low

    known = width(device="h100")
    assert width(device="h100", framework="other") > known and width(device="h200") > known
    assert "not measured" not in str(train_cost("llama-3.1-8b", "h100", gpus=8))
    assert "no training of a language model was measured" in str(train_cost("llama-3.1-8b", "h200", gpus=8))


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        ({"gpus": 6, "tensor": 4}, ArgumentError, "do not divide 6 devices"),
        ({"gpus": 8, "global_batch": 12}, ArgumentError, "global batch of 12"),
        ({"gpus": 3, "tensor": 3}, ArgumentError, "heads"),
        ({"gpus": 0}, ArgumentError, "gpus"),
        ({"precision": "fp6"}, ArgumentError, "fp6"),
        ({"framework": "jax"}, ArgumentError, "jax"),
        ({"tokens": -1.0}, ArgumentError, "tokens"),
        ({"fabric_gb_s": 0.0}, ArgumentError, "GB/s"),
        ({"host_gb_s": -1.0}, ArgumentError, "host_gb_s -1.0"),
        ({"gpus": 8, "pipeline": 8, "virtual": 9}, ArgumentError, "9 chunks.*at most 4, one for each layer"),
        ({"dora": True}, ArgumentError, "lora_rank"),
        ({"frozen": "nf4"}, ArgumentError, "frozen weights .* lora_rank"),
        ({"gpus": 2, "context": 2, "sequence": 4095}, ArgumentError, "context ranks"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_words(asked, error, words):
    with pytest.raises(error, match=words):
        train_cost("llama-3.1-8b", "h100", **asked)


def test_a_precision_that_a_device_lacks_is_refused():
    with pytest.raises(DeviceError, match="fp8"):
        train_cost("llama-3.1-8b", "a100-80gb", precision="fp8")
    with pytest.raises(ArgumentError, match="GPUs"):
        train_cost("llama-3.1-8b", "epyc-9654")


def test_the_search_keeps_the_notes_of_a_file(tmp_path, capsys):
    script = tmp_path / "pretrain.sh"
    script.write_text(
        "pretrain_gpt.py --num-layers 4 --hidden-size 512 --num-attention-heads 8 --seq-length 1024 "
        "--max-position-embeddings 1024 --micro-batch-size 1 --global-batch-size 8 --bf16 --vocab-size 4096 "
        "--cpu-offloading\n"
    )
    asked = ["train-cost", "--config", str(script), "--device", "h100", "--gpus", "2", "--global-batch", "8"]
    for more in ([], ["--search"]):
        assert main([*asked, *more]) == 0
        assert "cpu-offloading: activations on the host" in " ".join(capsys.readouterr().out.split())


def test_the_command_prints_says_whether_it_fits_and_searches(capsys):
    asked = ["train-cost", "llama-3.1-8b", "--device", "h100", "--gpus", "8", "--global-batch", "8"]
    assert main([*asked, "--sharding", "zero3"]) == 0
    assert "MFU" in capsys.readouterr().out
    assert main(["train-cost", "llama-3.1-70b", "--device", "h100", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["fits_probability"] < 0.01
    assert main([*asked, "--search"]) == 0
    assert "layouts fit" in capsys.readouterr().out
    assert main(["train-cost", "llama-3.1-8b", "--device", "h100", "--search"]) == 2
    assert "--global-batch" in capsys.readouterr().err
    assert main([*asked, "--tokens", "ten"]) == 2


_ANYTHING = st.one_of(
    st.sampled_from([0, -1, 3, 2**31, 10**30, 10**400, 0.5, float("nan"), float("inf"), "8", "", None, True]),
    st.sampled_from([[1], (), {}, "zero3", "torch", "nf4", "states", "full", "FR"]),
)
_ARGUMENTS = sorted(inspect.signature(train_cost).parameters.keys() - {"model", "device", "price_table"})


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["llama-3.2-1b", "mixtral-8x7b", "t5-base"]),
    st.sampled_from(["h100", "mi300x", "cpu", "a100-80gb:1g.10gb"]),
    st.dictionaries(st.sampled_from(_ARGUMENTS), _ANYTHING, max_size=4),
)
def test_whatever_is_asked_is_answered_or_refused_in_one_line(model, on, asked):
    try:
        found = train_cost(model, on, **asked)
    except PerfPassError as error:
        assert "\n" not in str(error) and len(str(error)) <= 1000
    else:
        assert json.dumps(found.to_dict(), allow_nan=False) and str(found)


def test_among_gpus_without_a_switch_two_have_one_link_and_eight_have_all():
    def tensor(ranks):
        found = train_cost("llama-3.1-8b", "mi300x", gpus=ranks, tensor=ranks, micro_batch=4)
        return found.predicted.parts_s.tensor * ranks / (ranks - 1)  # a ring's message, over the link's rate

    assert tensor(8) / tensor(2) == pytest.approx(1 / 7)


@pytest.mark.parametrize("precision", [None, "fp32", "amp"])
def test_a_board_without_16_bits_is_refused_without_a_precision_to_take(precision):
    with pytest.raises(DeviceError, match=r"no arithmetic in 16 bits.*choose another device"):
        train_cost("tinyllama-1.1b", "m40-24gb", precision=precision)


@pytest.mark.parametrize("board", ["t4", "v100"])
def test_a_board_without_bf16_trains_in_fp16(board):
    assert train_cost("gpt2", board).precision == "fp16" and train_cost("gpt2", "a100").precision == "bf16"
    assert str(train_cost("gpt2", board)) == str(train_cost("gpt2", board, precision="fp16"))
    for precision in ("bf16", "bf16_true"):
        with pytest.raises(DeviceError, match=r"no bf16 arithmetic, which precision .* needs; take fp16"):
            train_cost("gpt2", board, precision=precision)


@pytest.mark.parametrize("board", ["mi300x", "m2-max", "gaudi3"])
def test_a_vendor_that_was_never_trained_on_is_far_wider_than_a_new_board(board):
    def width(on: str) -> float:
        step = train_cost("gpt2", on, micro_batch=32, global_batch=32).predicted.step_s  # that no host holds up
        return step.high / step.low

    assert width("a100") < width("rtx-4090") < 2 < 3 < width(board)
    assert "on a board of this vendor" in " ".join(train_cost("gpt2", board).notes)


def test_slices_train_alone():
    assert train_cost("gpt2", "a100-80gb:3g.40gb").devices == 1
    for arguments in ({"gpus": 2}, {"gpus": 2, "tensor": 2}):
        with pytest.raises(ArgumentError, match="as no instance of MIG has, so 2 of it do not work together"):
            train_cost("gpt2", "a100-80gb:3g.40gb", **arguments)


@pytest.mark.parametrize("board", ["h100", "rtx-4090", "t4"])
def test_watts_follow_the_law_of_other_networks_steps(board):
    """`predict --mode training` and `train_cost` tell the power of one model's steps by one law.

    At a batch that keeps the board busy: an eager step of fewer samples waits for its host, as fused kernels do not.
    """
    found = perfpass.train_cost("gpt2", board, gpus=1, sequence=512, micro_batch=32, precision="amp", framework="torch")
    step = perfpass.predict("gpt2", board, batch=32, dims={"sequence": 512}, precision="amp", mode="training")
    ours, theirs = found.predicted.power_w, step.power_w
    assert ours.median == pytest.approx(theirs.median, rel=0.5)
    limit = device(board).power_limit_w
    for one in (ours, theirs):
        law = StepPower.from_dict(StepPredictor.load().manifest["step_power"])
        assert one.low == pytest.approx(law.low * one.median)
        assert one.high == pytest.approx(min(law.high * one.median, limit))


def test_one_device_may_hold_no_more_than_is_counted():
    """What DeepSpeed's measured programs held beside were communicators and buckets of many devices."""
    asked = {"sequence": 512, "recompute": "full", "framework": "deepspeed", "global_batch": 8}
    alone, many = (perfpass.train_cost("Qwen/Qwen-14B", "a100-80gb", lora_rank=8, gpus=n, **asked) for n in (1, 8))
    counted = alone.predicted.memory.peak_bytes
    assert counted <= alone.predicted.in_use.low <= 1.01 * counted < alone.predicted.in_use.median
    assert many.predicted.in_use.low > 1.02 * many.predicted.memory.peak_bytes


# LitGPT's table of resources (data/records/llm_training.parquet): ms of a step with LoRA on an A100 40GB, one sample.
_LITGPT = {
    ("microsoft/phi-1_5", "none"): 97.2,
    ("microsoft/phi-1_5", "nf4"): 106.2,
    ("meta-llama/Llama-2-7b-hf", "none"): 141.6,
    ("meta-llama/Llama-2-7b-hf", "nf4"): 220.8,
    ("stabilityai/stablelm-base-alpha-3b", "none"): 74.4,
    ("stabilityai/stablelm-base-alpha-3b", "nf4"): 109.2,
}


def _adapted(model="meta-llama/Llama-2-7b-hf", **asked):
    asked = {"sequence": 256, "global_batch": 1, "framework": "torch", "precision": "bf16_true", "lora_rank": 8} | asked
    return perfpass.train_cost(model, "a100-sxm4-40gb", **asked).predicted


def test_small_steps_wait_for_their_host():
    for (model, frozen), milliseconds in _LITGPT.items():
        step = _adapted(model, frozen=frozen).step_s
        assert step.low < milliseconds / 1e3 < step.high, (model, frozen, step)
    short, twice = (_adapted(sequence=n).step_s.median for n in (64, 128))
    assert twice < 1.05 * short
    long, double = (_adapted(sequence=n, micro_batch=4, global_batch=4).step_s.median for n in (2048, 4096))
    assert double > 1.9 * long


def test_what_the_host_has_to_issue_is_counted():
    few, many = (_adapted(lora_targets=t).parts_s for t in (("query",), ("query", "key", "value", "up", "down")))
    assert many.issuing > 1.3 * few.issuing
    again = _adapted(recompute="full").parts_s
    assert again.issuing > _adapted(recompute="none").parts_s.issuing
    unpacked = [_adapted(frozen="nf4", recompute=r).parts_s.unpacking for r in ("none", "full")]
    assert unpacked[1] == pytest.approx(1.5 * unpacked[0]) and _adapted().parts_s.unpacking == 0
    waits, works = _adapted(), _adapted(sequence=4096, micro_batch=4, global_batch=4)
    assert "issue" in waits.why and "issue" not in works.why
    ratio = [found.step_s.high / found.step_s.low for found in (waits, works)]
    assert ratio[0] > 1.5 * ratio[1]
