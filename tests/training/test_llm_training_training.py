"""Training of language models: what ships is what the records give, and what is held out stays out."""

from __future__ import annotations

import dataclasses
from importlib import import_module

import numpy as np
import pytest

import perfpass
from perfpass.errors import ArgumentError
from perfpass.llm import megatron
from perfpass.llm.configuration import language_model
from perfpass.llm.recipe import Layout
from perfpass.predictors.llm_training import constants
from perfpass.training.llm_training.fit import NAMES, fit

grading = import_module("perfpass.training.llm_training.evaluate")  # the package's own name is the function
memory = import_module("perfpass.training.llm_training.memory")


@pytest.fixture(scope="module")
def table():
    return grading.load()


@pytest.fixture(scope="module")
def steps(table):
    return grading.steps(table)


def test_the_shipped_constants_are_those_that_the_records_give(steps):
    rows, asked, _ = steps
    found, factors = fit(asked, grading.shares(rows))
    shipped = dataclasses.asdict(constants.STEP)
    assert [getattr(found, name) for name in NAMES] == pytest.approx([shipped[name] for name in NAMES], rel=0.02)
    laboratories = {"megatron": "nvidia", "torch": "llm-foundry", "deepspeed": "bigscience"}
    for framework, laboratory in laboratories.items():
        ours = factors[laboratory] ** (0.5 if framework in constants.OF_ONE_LABORATORY else 1.0)
        assert constants.FRAMEWORKS[framework] == pytest.approx(ours, rel=0.01)
    assert set(constants.MEASURED) == set(rows.device)
    assert constants.SPREAD.rows == len(rows)


@pytest.mark.parametrize(("laboratory", "forward", "both"), [("llm-foundry", 1.4, 1.83), ("internevo", 2.0, 2.0)])
def test_attention_before_the_second_flashattention_is_asked_as_slower(steps, laboratory, forward, both):
    """By section 4.1 of arXiv:2307.08691; of what is computed anew only the forward pass."""
    _, asked, _ = steps
    row = next(
        one for one in asked
        if one.laboratory == laboratory and one.recipe.recompute == "full" and one.device.architecture == "ampere-ga100"
    )  # fmt: skip
    ours, other = row.work, dataclasses.replace(row, laboratory="another").work
    assert ours.attention / other.attention == pytest.approx(both, rel=0.01)
    assert ours.attention * ours.attended_anew == pytest.approx(forward * other.attention * other.attended_anew)
    same = {"attention": 0.0, "attended_anew": 0.0}
    assert dataclasses.replace(ours, **same) == dataclasses.replace(other, **same)


def test_the_shipped_shares_of_memory_are_those_of_the_records(table):
    rows, counted, known, _ = memory.rows(table)
    for framework, found in memory.held(rows[known].reset_index(drop=True), counted[known]).items():
        pairs = zip(
            (constants.MEMORY[framework], *constants.MEMORY[framework].alike), (found, *found.alike), strict=True
        )
        for shipped, fitted in pairs:
            assert dataclasses.astuple(shipped)[:-1] == pytest.approx(dataclasses.astuple(fitted)[:-1], rel=0.01)


def test_a_framework_that_was_not_measured_may_hold_more_than_any_that_was():
    counted = np.array([1e9, 2e10, 6e10])
    low, middle, high = constants.MEMORY["other"].of(counted)
    others = [constants.MEMORY[name].of(counted)[2] for name in ("megatron", "torch", "deepspeed")]
    assert (middle == counted).all() and (low < middle).all()
    assert all((high > one).all() for one in others)


def test_a_laboratory_s_memory_left_out_is_covered(table):
    rows, counted, known, _ = memory.rows(table)
    source, framework, layout = (
        of.to_numpy(dtype=str) for of in (rows.source, rows.source.map(memory.FRAMEWORKS), rows.configuration)
    )
    measured = rows.peak_memory_bytes.to_numpy()
    here, rest = known & (source == "bigscience"), known & (source != "bigscience")
    found = memory.unmeasured(*(of[rest] for of in (counted, measured, source, framework, layout)))
    low, _, high = found.of(counted[here])
    assert 0.88 <= ((low <= measured[here]) & (measured[here] <= high)).mean() <= 0.93


def test_blooms_last_runs_hold_gradients_in_single_precision_too(table):
    questions = import_module("perfpass.training.llm_training.questions")
    rows = table[(table.source == "bigscience") & table.peak_memory_bytes.notna()]
    last = rows.variant.str.contains("Rebalancing").to_numpy()
    asked = [one for one in questions.asked(rows[last])[0] if one]
    assert len(asked) > 8 and all(one.recipe.gradient_bytes == 6 for one in asked)
    earlier = [one for one in questions.asked(rows[~last & (rows.precision == "fp16").to_numpy()])[0] if one]
    assert len(earlier) > 30 and all(one.recipe.gradient_bytes == 2 for one in earlier)


def test_what_one_laboratory_taught_is_as_wide_as_another_one(table):
    found = {
        name: perfpass.train_cost("llama-3.1-8b", "h100", gpus=8, sequence=8192, framework=name).predicted.step_s
        for name in ("megatron", "torch", "deepspeed", "other")
    }
    width = {name: step.high / step.low for name, step in found.items()}
    # All but for what of so long a step is the host's.
    assert width["torch"] == pytest.approx(width["other"], rel=1e-4) == pytest.approx(width["deepspeed"], rel=1e-4)
    assert width["megatron"] < width["torch"]
    gradients = [
        perfpass.train_cost(
            "llama-3.1-8b", "h100", gpus=8, sharding=s, framework="deepspeed"
        ).predicted.memory.stages[0].gradients
        for s in ("zero1", "zero2")
    ]  # fmt: skip
    assert gradients[0] == pytest.approx(gradients[1] * 8 * 6 / 4)


def test_no_more_is_held_beside_little_than_beside_the_least_that_was_measured():
    held = constants.MEMORY["deepspeed"]
    counted = np.array([0.0, held.least_bytes / 8, held.least_bytes, 4 * held.least_bytes])
    low, middle, high = held.of(counted)
    assert (
        (low <= counted)[:2].all() and (low <= middle).all() and (middle <= high).all() and (np.diff(middle) > 0).all()
    )
    assert middle[1] / counted[1] == pytest.approx(middle[2] / counted[2])


def test_memory_of_megatrons_runs_is_counted_closely(table):
    rows, counted, known, _ = memory.rows(table)
    off = np.abs(counted / rows.peak_memory_bytes - 1)[known & (rows.source == "megatron_lm")]
    assert len(off) > 500 and off.mean() < 0.05
    large = np.abs(counted / rows.peak_memory_bytes - 1)[rows.model.str.startswith("gpt3_7b")]
    assert len(large) == 6 and large.max() < 0.03


def test_rows_of_one_group_are_held_out_together(steps):
    rows, asked, _ = steps
    for split in ("layout", "model", "device", "laboratory"):
        group = grading.groups(rows, asked, split)
        parts = grading.folds(group)
        assert sorted(np.concatenate(parts)) == list(range(len(rows)))
        for held in parts:
            assert not set(group[held]) & set(np.delete(group, held))


def test_the_shipped_width_is_that_of_the_errors_of_all_splits(table):
    found = grading.widths(table)[2]
    assert constants.SPREAD.causes == found.causes
    assert constants.SPREAD.high == pytest.approx(found.high, rel=0.02)
    unknown = constants.SPREAD.bounds({cause: 1.0 for cause in found.causes if cause != "experts"} | {"experts": 0.0})
    assert np.exp(unknown[1] - unknown[0]) < 3


def test_what_is_held_out_is_not_known(steps):
    rows, asked, _ = steps
    layout, laboratory = (grading.lacks(rows, asked, split) for split in ("layout", "laboratory"))
    assert layout["layout"].all() and laboratory["framework"].all()
    assert not layout["device"].any() and not layout["framework"].any()
    nvidia = np.array([one.laboratory == "nvidia" for one in asked])
    assert laboratory["device"][nvidia & (rows.device == "b200-sxm-180gb")].all()
    assert not laboratory["device"][nvidia & (rows.device == "h100-sxm5-80gb")].any()


@pytest.mark.parametrize(
    ("text", "count", "expected"),
    [("1", 3, [1, 1, 1]), ("2", 4, [1, 0, 1, 0]), ("([0]*1+[1]*3)", 4, [0, 1, 1, 1])],
)
def test_a_pattern_of_expert_layers_is_read(text, count, expected):
    assert megatron._pattern(text, count) == [bool(one) for one in expected]


def test_stages_that_count_both_ends_of_the_table_have_a_layer_fewer_there():
    questions = import_module("perfpass.training.llm_training.questions")
    model = language_model("llama-3.1-8b")  # 32 layers: with both ends 34
    stages = [len(stage) for stage in questions._rebalanced(model, Layout(pipeline=2))]
    assert stages == [16, 16] and sum(stages) == model.layer_count
    with pytest.raises(ArgumentError, match="does not divide"):
        questions._rebalanced(model, Layout(pipeline=4))


def test_a_laboratory_from_which_nothing_is_learned_is_asked_by_its_own_pages(table):
    elsewhere = import_module("perfpass.training.llm_training.elsewhere")
    rows = elsewhere.rows(table)
    split = rows[rows.variant.str.contains("TP=") & ~rows.variant.str.contains(r"\*\*Table")].iloc[0]
    found = elsewhere._step(split)
    shards = int(elsewhere._SPLIT.search(split.variant)[1])
    assert found.tokens == shards * split.micro_batch * split.sequence
    assert found.step_s.low < found.step_s.median < found.step_s.high
    wrong = rows[rows.variant.str.contains(r"\*\*Table")].iloc[0]
    with pytest.raises(ArgumentError, match="another table"):
        elsewhere._step(wrong)


def test_litgpts_adapters_are_those_of_its_configurations(table):
    """config_hub/finetune: every matrix in some models; the inputs of 4-bit products live a forward pass too long."""
    questions = import_module("perfpass.training.llm_training.questions")
    rows = table[table.variant.str.startswith("LitGPT") & table.peak_memory_bytes.notna()]
    asked = dict(zip(rows.variant.str.removeprefix("LitGPT; "), questions.asked(rows)[0], strict=True))
    found = {name: (one.recipe.adapter.rank, len(one.recipe.adapter.targets)) for name, one in asked.items() if one}
    assert found["llama-3-8b/lora.yaml"] == found["falcon-7b/qlora.yaml"] == (32, 2)
    assert found["gemma-2b/lora.yaml"] == found["phi-2/qlora.yaml"] == (8, 7)
    assert found["gemma-2b/qlora.yaml"] == (16, 7) and found["tiny-llama/lora.yaml"] == (32, 7)
    once = dataclasses.replace(asked["llama-2-7b/qlora.yaml"].recipe.adapter, inputs_kept=1)
    question = asked["llama-2-7b/qlora.yaml"]
    less = dataclasses.replace(question, recipe=dataclasses.replace(question.recipe, adapter=once))
    inputs = 32 * (3 * 4096 + 11008) * 2 * 512 * 2  # of 32 layers, 16 bits, two sequences of 512
    assert question.memory.peak - less.memory.peak == pytest.approx(inputs, rel=0.02)
